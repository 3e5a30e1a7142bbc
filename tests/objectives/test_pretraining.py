"""The pretraining objective: heads and metrics for each kind of sentence pairs; packed sequences."""

import dataclasses
import typing

import jax
import numpy as np
import pytest

from bert_jax.batches.pipeline import batch_shapes
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import EncoderConfig, PretrainConfig
from bert_jax.config.presets import PRESETS
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import make_model
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.objectives.masked_tokens import PAIR_LABELS
from bert_jax.pretraining.initial_weights import check_exportable
from tests.helpers.synthetic import NO_DROPOUT, packed_batch, random_batch, tiny_config, unpacked

MASKED = {"mlm_loss", "mlm_accuracy"}
METRICS = {
    "next_sentence": MASKED | {"nsp_loss", "nsp_accuracy", "nsp_random_fraction"},
    "sentence_order": MASKED | {"sop_loss", "sop_accuracy", "sop_swapped_fraction"},
    "full_sentences": MASKED,
    "full_text": MASKED,
    "document_sentences": MASKED,
    "none": MASKED,
}
PAIRED = ("next_sentence", "sentence_order")


def config_of(pairing: str, packing: int = 1, **model: object) -> PretrainConfig:
    """The tiny model without dropout."""
    tiny = tiny_config(model={"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.2} | model)
    return dataclasses.replace(tiny, data=dataclasses.replace(tiny.data, sentence_pairs=pairing, packing=packing))


def loss_of(config: PretrainConfig) -> tuple[typing.Any, typing.Any]:
    """Functions rng -> parameters, and (parameters, batch) -> (loss, metrics) without dropout."""
    objective = make_objective(config)
    return objective.init, lambda params, batch: objective.loss(
        params, (), batch, NO_DROPOUT, objective.normalizers(batch)
    )


def trained_on(config: PretrainConfig, batch: dict[str, np.ndarray]) -> tuple[typing.Any, ...]:
    """Loss, metrics and gradients of the objective's first parameters."""
    init, loss = loss_of(config)
    params = jax.jit(init)(jax.random.key(0))
    (value, metrics), gradients = jax.device_get(jax.jit(jax.value_and_grad(loss, has_aux=True))(params, batch))
    return value, metrics, gradients


def batch_of(config: PretrainConfig) -> dict[str, jax.ShapeDtypeStruct]:
    """What the pipeline makes, as shapes."""
    shapes = batch_shapes(4, 16, config.data)
    return {name: jax.ShapeDtypeStruct(shape, dtype) for name, (shape, dtype) in shapes.items()}


@pytest.mark.parametrize("pairing", SENTENCE_PAIRS)
@pytest.mark.parametrize("packing", [1, 4])
def test_each_kind_of_sentence_pairs_has_its_heads_and_metrics(pairing: str, packing: int) -> None:
    config = config_of(pairing, packing)
    init, loss = loss_of(config)
    params = jax.eval_shape(init, jax.random.key(0))
    _, metrics = jax.eval_shape(loss, params, batch_of(config))
    heads = {head.name for head in OBJECTIVES[config.objective].heads(config.data.sentence_pairs)}
    assert heads == ({"masked_token", "next_sentence"} if pairing in PAIRED else {"masked_token"})
    assert metrics.keys() == METRICS[pairing]
    assert params.keys() == {"encoder"} | heads | ({"pooler"} if pairing in PAIRED else set())


def test_the_sentence_pairs_with_labels_are_those_whose_batches_have_them() -> None:
    assert set(PAIR_LABELS) == {name for name in SENTENCE_PAIRS if "next_sentence_labels" in batch_of(config_of(name))}


@pytest.mark.parametrize("pairing", ["next_sentence", pytest.param("none", marks=pytest.mark.slow)])
def test_packed_sequences_train_like_their_examples_alone(pairing: str) -> None:
    packed = packed_batch(0, 8, 24, 4)
    config = config_of(pairing, packing=4)
    value, metrics, gradients = trained_on(config, packed)
    expected = trained_on(config_of(pairing), unpacked(packed))
    assert value == pytest.approx(expected[0], rel=1e-6)
    assert value == pytest.approx(sum(x.value() for name, x in metrics.items() if name.endswith("_loss")), rel=1e-6)
    assert metrics.keys() == expected[1].keys() == METRICS[pairing]
    for name, mean in expected[1].items():
        assert metrics[name].weight == mean.weight, name
        assert metrics[name].total == pytest.approx(mean.total, rel=1e-5), name
    if pairing in PAIRED:
        assert metrics["nsp_loss"].weight == packed["example_weights"].sum() > len(packed["input_ids"])

    def compare(path: typing.Any, found: np.ndarray, alone: np.ndarray) -> None:
        # The softmax does not see what is added to every key: the true gradient of a key's bias is zero.
        scale = 1.0 if "key" in str(path) and "bias" in str(path) else np.abs(alone).max()
        assert scale > 0, path
        np.testing.assert_allclose(found, alone, rtol=0, atol=2e-5 * scale, err_msg=str(path))

    jax.tree_util.tree_map_with_path(compare, gradients, expected[2])


@pytest.mark.parametrize("packing", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_z_loss_is_the_squared_log_of_the_partition_function(packing: int) -> None:
    """Value and gradient against the closed form, with logits from the model itself; without it nothing changes."""
    weight, config = 0.01, config_of("none", packing)
    batch = packed_batch(0, 8, 24, 4) if packing > 1 else random_batch(0, 8, 24)
    with_loss = dataclasses.replace(config, train=dataclasses.replace(config.train, z_loss=weight))
    model = make_model(config.model, config.compute, OBJECTIVES["masked_tokens"].heads(config.data.sentence_pairs))
    params = jax.jit(model.init)(jax.random.key(0))

    def closed_form(params: typing.Any) -> jax.Array:
        log_z = jax.nn.logsumexp(model.apply(params, batch, None)["mlm_logits"], axis=-1).reshape(-1)
        weights = batch["masked_weights"].reshape(-1)
        return weight * (log_z**2 * weights).sum() / weights.sum()

    extra, slope = jax.jit(jax.value_and_grad(closed_form))(params)
    plain, metrics, gradients = trained_on(config, batch)
    value, named, found = trained_on(with_loss, batch)
    assert named.keys() - metrics.keys() == {"z_loss"}
    assert named["z_loss"].value() == pytest.approx(float(extra), rel=1e-5)
    assert value == pytest.approx(float(plain + extra), rel=1e-5)
    assert named["mlm_loss"].value() == pytest.approx(metrics["mlm_loss"].value(), rel=1e-6)
    for one, other, added in zip(*map(jax.tree.leaves, (found, gradients, slope)), strict=True):
        np.testing.assert_allclose(one, other + added, rtol=0, atol=2e-5 * max(1e-3, np.abs(other + added).max()))


PRESET = {
    "bert": "tiny",
    "roberta": "roberta_base",
    "albert": "albert_base",
    "electra": "electra_small",
    "modernbert": "modern_base",
    "xlm-roberta": "xlm_roberta_base",
    "camembert": "camembert_base",
    "mpnet": "mpnet_base",
    "deberta-v2": "deberta_v3_base",
    "nomic_bert": "nomic_bert_base",
    "longformer": "longformer_base",
    "big_bird": "big_bird_base",
}


def published(family: str, pairing: str, **model: object) -> tuple[EncoderConfig, str, str, dict[str, int]]:
    """The architecture of a family, an objective, sentence pairs, and the ids of padding and separator."""
    architecture = dataclasses.replace(PRESETS[PRESET.get(family, family)], **model)
    ids = {"pad": architecture.position_offset // 2, "sep": architecture.question_separator_id or 2}
    return architecture, "masked_tokens", pairing, ids


@pytest.mark.parametrize(
    "family", [name for name, family in FAMILIES.items() if family.in_transformers and not family.bidirectional]
)
@pytest.mark.parametrize("pairing", SENTENCE_PAIRS)
def test_a_family_without_the_head_is_refused(family: str, pairing: str) -> None:
    """BERT, MobileBERT, ALBERT and BigBird have one; others export theirs as classifiers."""
    with_head = ("bert", "mobilebert", "albert", "big_bird", "modernbert", "nomic_bert")
    if pairing not in PAIRED or family in with_head:
        check_exportable(*published(family, pairing))
        return
    with pytest.raises(UserError) as error:
        check_exportable(*published(family, pairing))
    assert f"family={family} has no head for config.objective=masked_tokens with" in str(error.value)
    assert f"config.data.sentence_pairs={pairing}; choose one of" in str(error.value)
    assert str(error.value).endswith("full_sentences, document_sentences, full_text, none")


def test_a_model_that_cannot_be_exported_is_refused_before_training() -> None:
    with pytest.raises(UserError, match="no electra of transformers has model"):
        check_exportable(*published("electra", "none", pooler_activation="tanh"))
    roberta, *settings, _ = published("roberta", "none")
    with pytest.raises(UserError, match=r"position_offset=2: .* set it to 1"):
        check_exportable(roberta, *settings, {"pad": 0, "sep": 2})
    longformer, *settings, _ = published("longformer", "none")
    with pytest.raises(UserError, match=r"separator_id=2: set it to 3, the id of \[SEP\]"):
        check_exportable(longformer, *settings, {"pad": 1, "sep": 3})


def test_any_architecture_can_be_trained_as_research() -> None:
    changes = {"query_key_norm": True, "norm": "rms_norm", "norm_position": "pre", "positions": "relative"}
    for name in changes:
        with pytest.raises(
            UserError, match=f"no bert of transformers has model.{name}=.*; model.family=research allows"
        ):
            check_exportable(*published("bert", "none", **{name: changes[name]}))
    bert, *settings = published("bert", "next_sentence", **changes)
    check_exportable(dataclasses.replace(bert, family="research"), *settings)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("bert", {}),
        ("roberta", {"num_token_types": 1, "position_offset": 2, "masked_activation": "gelu"}),
        ("albert", {"share_layers": True, "embedding_size": 8}),
        ("distilbert", {"num_token_types": 0, "pooler_activation": "relu"}),
        ("electra", {"embedding_size": 8, "masked_activation": "gelu"}),
    ],
)
def test_masked_tokens_alone_are_a_model_of_every_family(family: str, fields: dict) -> None:
    config = config_of("none", family=family, **fields)
    init, loss = loss_of(config)
    shapes = jax.eval_shape(init, jax.random.key(0))
    assert jax.eval_shape(loss, shapes, batch_of(config))[0].shape == ()
    params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    assert to_tensors(params, config.model, OBJECTIVES[config.objective].heads(config.data.sentence_pairs))
