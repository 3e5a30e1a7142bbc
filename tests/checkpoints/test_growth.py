"""Growth in depth and width: the function of the smaller model, layers by a list written by hand, unequal copies."""

import dataclasses
import io
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import transformers

from bert_jax.checkpoints.growth import grow_weights, source_layers, with_size_of
from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.huggingface.model_config import model_config_fields, model_config_text
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import Head, make_model
from tests.helpers.family_cases import CASES, answers, batch_of, model_of

WIDER = (
    ("bert", "BertForPreTraining"),
    ("roberta", "RobertaForMaskedLM"),
    ("albert", "AlbertForPreTraining"),
    ("electra", "ElectraForPreTraining"),
    ("electra, wider tables, tanh", "ElectraForMaskedLM"),
    ("mpnet", "MPNetForMaskedLM"),
    ("deberta-v2", "DebertaV2ForMaskedLM"),
    ("nomic_bert", "NomicBertForMaskedLM"),
    ("modernbert", "ModernBertForMaskedLM"),
    ("modernbert with biases, of mean, every second", "ModernBertForMaskedLM"),
)


def three_times_as_wide(config: EncoderConfig) -> EncoderConfig:
    """The MLP is no multiple: its units have two or three copies."""
    sizes = {"hidden_size": 3 * config.hidden_size, "num_heads": 3 * config.num_heads}
    tables = config.embedding_size and 2 * config.embedding_size
    return dataclasses.replace(config, **sizes, mlp_size=2 * config.mlp_size + 5, embedding_size=tables)


def grow(weights: Weights, grown: EncoderConfig) -> tuple[Weights, str]:
    out = io.StringIO()
    return grow_weights(weights, grown, "DIR", "config.model", 0, Console(out)), out.getvalue().strip()


@pytest.mark.parametrize(("name", "kind"), WIDER)
def test_a_wider_model_is_the_same_function_for_transformers(name: str, kind: str, tmp_path: pathlib.Path) -> None:
    case = CASES[name]
    small = model_of(case, kind)
    small.save_pretrained(tmp_path / "small")
    weights = Weights(**vars(load_model(tmp_path / "small")), directory=tmp_path)
    grown, said = grow(weights, three_times_as_wide(case.ours))
    assert f"grown from {case.ours.num_layers} x 24 to {case.ours.num_layers} x 72 (layers x width)" in said
    (tmp_path / "wide").mkdir()
    fields = json.loads((tmp_path / "small" / "config.json").read_text())
    fields |= model_config_fields(grown.config, case.theirs.pad_token_id, "here")
    (tmp_path / "wide" / "config.json").write_text(model_config_text(fields))
    tensors = to_tensors(grown.params, grown.config, grown.heads)
    safetensors.numpy.save_file(tensors, tmp_path / "wide" / "model.safetensors", metadata={"format": "pt"})
    wide, read = getattr(transformers, kind).from_pretrained(tmp_path / "wide", output_loading_info=True)
    assert not read["missing_keys"]
    assert not read["unexpected_keys"]
    assert wide.config.hidden_size == 72
    batch = batch_of(case)
    mask = batch["attention_mask"].reshape(-1, case.length) != 0
    expected, found = answers(small, batch), answers(wide.eval(), batch)
    for key in {"mlm_logits", "nsp_logits", "replaced_logits"} & expected.keys():
        rows = mask if expected[key].shape[:2] == mask.shape else slice(None)
        assert np.abs(expected[key]).max() > 0.3
        np.testing.assert_allclose(found[key][rows], expected[key][rows], atol=1e-5)


def random_weights(config: EncoderConfig) -> Weights:
    """Of the masked-token model, well away from zero."""
    rng, heads = np.random.default_rng(0), (Head("masked_token"),)
    shapes = make_model(config, ComputeConfig(), heads).shapes
    params = jax.tree.map(lambda x: rng.normal(0.1, 0.2, x.shape).astype(np.float32), shapes)
    return Weights(config=config, heads=heads, params=params, directory=pathlib.Path())


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_copies_get_different_gradients(name: str) -> None:
    """Those of all parameters that write repeated features; parameters that read them differ themselves."""
    config = dataclasses.replace(CASES[name].ours, num_layers=2)
    sizes = {field: 2 * getattr(config, field) for field in ("hidden_size", "num_heads", "mlp_size")}
    weights = random_weights(config)
    grown, _ = grow(weights, dataclasses.replace(config, **sizes))
    model = make_model(grown.config, ComputeConfig(), grown.heads)
    batch = {key: x.reshape(-1, x.shape[-1]) for key, x in batch_of(CASES[name]).items()}
    targets = np.random.default_rng(1).integers(0, config.vocab_size, (*batch["masked_positions"].shape, 1))

    def loss(params):
        logits = jax.nn.log_softmax(model.apply(params, batch, None)["mlm_logits"])
        return -jnp.take_along_axis(logits, targets, -1).mean()

    compared = 0
    gradients = jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(loss))(grown.params))
    for (path, gradient), small, values in zip(
        gradients, jax.tree.leaves(weights.params), jax.tree.leaves(grown.params), strict=True
    ):
        names = [key.key for key in path]
        if gradient.shape[-1] == small.shape[-1] or names[-2:] == ["key", "bias"]:  # the softmax ignores this bias
            continue
        # Before the table, whose columns are equal, the copies of the norm themselves differ.
        compared_array = values if names[:2] == ["masked_token", "norm"] else gradient
        first, second = (x.ravel() for x in np.split(np.asarray(compared_array), 2, -1))
        cosine = first @ second / (np.linalg.norm(first) * np.linalg.norm(second))
        assert cosine < 0.95, names
        compared += 1
    assert compared == {"bert": 24, "modernbert": 14}[name]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ((3, 6), [0, 0, 1, 1, 2, 2]),
        ((4, 6), [0, 0, 1, 2, 2, 3]),
        ((3, 7), [0, 0, 0, 1, 1, 2, 2]),
        ((1, 3), [0, 0, 0]),
        ((2, 2), [0, 1]),
    ],
)
def test_layers_are_interleaved(layers: tuple[int, int], expected: list[int]) -> None:
    assert source_layers(*layers) == expected


def test_a_deeper_model_has_copies_of_layers() -> None:
    weights = random_weights(dataclasses.replace(CASES["modernbert"].ours, num_layers=3))
    grown, said = grow(weights, dataclasses.replace(weights.config, num_layers=7))
    assert said == "grown from 3 x 24 to 7 x 24 (layers x width), copies of the layers 0, 0, 0, 1, 1, 2, 2"
    layers = grown.params["encoder"].pop("layers"), weights.params["encoder"].pop("layers")
    jax.tree.map(lambda new, old: np.testing.assert_array_equal(new, old[[0, 0, 0, 1, 1, 2, 2]]), *layers)
    jax.tree.map(np.testing.assert_array_equal, grown.params, weights.params)


BERT = CASES["bert"].ours


@pytest.mark.parametrize(
    ("small", "wanted", "says"),
    [
        (BERT, {"hidden_size": 36, "num_heads": 3}, "config.model.hidden_size=36; choose a multiple of 24"),
        (BERT, {"num_layers": 1}, "DIR cannot grow to config.model.num_layers=1; choose at least 2"),
        (BERT, {"mlp_size": 39}, "config.model.mlp_size=39; choose at least 40"),
        (BERT, {"hidden_size": 48}, "from 8 to 16 features per head; set config.model.num_heads=6"),
        (BERT, {"embedding_size": 8}, "config.model.embedding_size=8; choose None"),
        (CASES["albert"].ours, {"embedding_size": 15}, "embedding_size=15; choose a multiple of 10"),
        (CASES["mobilebert"].ours, {"hidden_size": 48}, "keep config.model.hidden_size=24 and embedding_size=10"),
        (
            dataclasses.replace(BERT, norm_scale=False),
            {"hidden_size": 48, "num_heads": 6},
            "config.model.norm_scale=False, which would scale the logits; keep the width 24",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_other_growth_is_refused(small: EncoderConfig, wanted: dict, says: str) -> None:
    weights = Weights(config=small, heads=(), params={}, directory=pathlib.Path())
    with pytest.raises(UserError) as caught:
        grow(weights, with_size_of(small, dataclasses.replace(small, **wanted)))
    assert says in str(caught.value)
