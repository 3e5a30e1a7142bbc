"""MobileBERT as published: its config.json, its pooler without parameters, refusals, and a smaller model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from bert_jax.config import ComputeConfig, PretrainConfig
from bert_jax.console import Console
from bert_jax.convert.prune import TARGETS, gate_importance
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.interop.huggingface.model_config import parse_model_config
from bert_jax.interop.tensors import (
    flatten_params,
    iterate_stored_tensors,
    model_class_for_heads,
    parameter_shapes,
    unflatten_params,
)
from bert_jax.models import PRESETS, Head, make_model
from bert_jax.models.heads import Pooler
from bert_jax.objectives.replaced_tokens import generator_config
from bert_jax.pretraining.budget.plan import config_for_budget
from tests.helpers import tokenizer_directories
from tests.helpers.family_cases import CASES, MOBILEBERT, batch_of, model_of

# The fields of google/mobilebert-uncased that are about the architecture.
PUBLISHED = {
    "model_type": "mobilebert",
    "attention_probs_dropout_prob": 0.1,
    "classifier_activation": False,
    "embedding_size": 128,
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 512,
    "initializer_range": 0.02,
    "intermediate_size": 512,
    "intra_bottleneck_size": 128,
    "key_query_shared_bottleneck": True,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "normalization_type": "no_norm",
    "num_attention_heads": 4,
    "num_feedforward_networks": 4,
    "num_hidden_layers": 24,
    "pad_token_id": 0,
    "trigram_input": True,
    "true_hidden_size": 128,
    "type_vocab_size": 2,
    "use_bottleneck": True,
    "use_bottleneck_attention": False,
    "vocab_size": 30522,
}


def test_the_published_config_is_the_preset() -> None:
    assert parse_model_config(PUBLISHED, "here").encoder == PRESETS["mobilebert"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("trigram_input", False, "trigram_input is False; only True can be read"),
        ("use_bottleneck", False, "use_bottleneck is False; only True can be read"),
        ("use_bottleneck_attention", True, "use_bottleneck_attention is True; only False can be read"),
        ("key_query_shared_bottleneck", False, "key_query_shared_bottleneck is False; only True can be read"),
        ("normalization_type", "layer_norm", "normalization_type is 'layer_norm'; only 'no_norm' can be read"),
        ("true_hidden_size", 512, "true_hidden_size is 512; only intra_bottleneck_size, 128, can be read"),
        ("num_feedforward_networks", 9, "num_feedforward_networks is 9; it must lie from 1 to 8"),
    ],
)
def test_other_architectures_of_the_class_are_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(UserError, match=f"^here: {words}$"):
        parse_model_config(PUBLISHED | {name: value}, "here")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_heads": 3}, "model.num_heads=3 does not divide model.bottleneck_size=14"),
        ({"bottleneck_size": None}, "model.bottleneck_mlps has no effect with model.bottleneck_size=None"),
        ({"norm_position": "pre"}, "model.norm_position has no effect with model.bottleneck_size=14"),
        ({"embedding_size": None}, "model.masked_extra_table=True has no effect with a token table of 24 features"),
        ({"initialization": "neighbors"}, "set model.initialization=identity_head"),
        ({"masked_norm": "no_nrm"}, "model.masked_norm='no_nrm' is none of .* did you mean 'no_norm'"),
    ],
    ids=str,
)
def test_fields_without_effect_are_refused(change: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_model(dataclasses.replace(MOBILEBERT, **change), ComputeConfig(), (Head("masked_token"),))


def test_code_that_resizes_a_model_refuses_a_model_of_two_widths(tmp_path) -> None:
    config = PretrainConfig(model=MOBILEBERT)
    with pytest.raises(UserError, match="makes no generator on trigrams or with a bottleneck"):
        generator_config(config.model, config.replaced_tokens)
    with pytest.raises(UserError, match=r"config\.model\.bottleneck_size makes two"):
        config_for_budget(config, "30m", tmp_path, Console())


def test_a_pooler_without_a_dense_layer_is_the_first_token(tmp_path) -> None:
    """As published: heads read it as it is, and no tensor of a pooler is missing."""
    config = transformers.MobileBertConfig(**CASES["mobilebert"].theirs.to_dict() | {"classifier_activation": False})
    theirs = transformers.MobileBertForPreTraining(config)
    theirs.save_pretrained(tmp_path)
    found = load_model(tmp_path)
    assert found.config == dataclasses.replace(MOBILEBERT, pooler_dense=False)
    assert set(found.params) == {"encoder", "masked_token", "next_sentence"}
    assert (found.new, found.unused) == ((), ())
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 24)).astype(np.float32))
    pooled = Pooler(found.config, jnp.dtype("float32"), "tanh").apply({}, x, None)
    np.testing.assert_array_equal(pooled, x)


def test_a_research_directory_names_every_parameter() -> None:
    config, heads = dataclasses.replace(MOBILEBERT, family="research", mlp="gated"), (Head("masked_token"),)
    shapes, modules = parameter_shapes(config, heads), model_class_for_heads(config, heads).modules
    assert {stored.path for stored in iterate_stored_tensors((*FAMILIES["research"].encoder, *modules), shapes)} == {
        *shapes
    }


def test_importance_adds_up_every_mlp_and_the_end_of_the_bottleneck() -> None:
    """The loss is half the sum of squares, so that the derivative of a gate is the sum of squares behind it."""
    shapes = {"mlp_down/kernel": (40, 14), "mlp_0/mlp_down/kernel": (40, 14), "output/kernel": (14, 24)}
    rng = np.random.default_rng(0)
    weights = {path: rng.normal(size=(2, *shape)).astype(np.float32) for path, shape in shapes.items()}
    params = unflatten_params({f"encoder/layers/{path}": x for path, x in weights.items()})
    config, examples = dataclasses.replace(MOBILEBERT, bottleneck_mlps=2), {"input_ids": np.zeros(1, np.float32)}

    def loss(params: dict, _: dict) -> jax.Array:
        return 0.5 * sum(jnp.sum(x * x) for x in flatten_params(params).values())

    squares = {path: np.square(x.astype(np.float64)) for path, x in weights.items()}
    found = gate_importance(TARGETS["mlp"], config, params, examples, loss)
    features = np.concatenate([squares["mlp_0/mlp_down/kernel"], squares["mlp_down/kernel"]], axis=1).sum(-1)
    np.testing.assert_allclose(found, features, rtol=1e-5)
    found = gate_importance(TARGETS["layers"], config, params, examples, loss)
    np.testing.assert_allclose(found, squares["output/kernel"].sum((1, 2)), rtol=1e-5)


def test_removed_mlp_features_are_those_that_write_nothing(tmp_path) -> None:
    theirs = model_of(CASES["mobilebert"], "MobileBertForSequenceClassification")
    theirs.save_pretrained(tmp_path / "whole")
    loaded = load_model(tmp_path / "whole")
    flat = {path: np.asarray(x) for path, x in flatten_params(loaded.params).items()}
    features = np.random.default_rng(0).random((2, 3 * 40))
    config, flat, what = TARGETS["mlp"].remove(loaded.config, flat, features, 0.4)
    assert (config.mlp_size, what) == (24, "16 of 40 MLP features of each MLP removed")
    tokenizer = tokenizer_directories.of_family("mobilebert", tmp_path / "tokenizer")
    export_model(unflatten_params(flat), config, loaded.heads, tokenizer, tmp_path / "smaller")
    smaller = transformers.MobileBertForSequenceClassification.from_pretrained(tmp_path / "smaller").eval()

    for layer, own in zip(theirs.mobilebert.encoder.layer, features, strict=True):
        for mlp, each in zip((*layer.ffn, layer), np.split(own, 3), strict=True):
            mlp.output.dense.weight.data[:, np.argsort(each)[:16]] = 0
    ids = torch.tensor(batch_of(CASES["mobilebert"])["input_ids"][:, 0]).long()
    with torch.no_grad():
        found, expected = smaller(ids).logits, theirs(ids).logits
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
