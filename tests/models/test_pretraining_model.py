"""The model against `transformers.BertForPreTraining` under torch: logits, gradients, counts, variants of computing."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import PRESETS, Head, count_parameters, model_flops, padded_vocab, pretraining_model
from tests.helpers import reference

SMALL = EncoderConfig(
    vocab_size=211, hidden_size=48, num_layers=2, num_heads=4, mlp_size=80, max_positions=40, initializer_range=0.1
)
SHAPES = {
    "erf": (SMALL, (3, 24, 5)),
    "tanh": (dataclasses.replace(SMALL, activation="gelu_tanh"), (2, 17, 4)),
    "odd": (
        EncoderConfig(vocab_size=131, hidden_size=33, num_layers=3, num_heads=3, mlp_size=57, max_positions=19),
        (5, 19, 3),
    ),
    "full table": (dataclasses.replace(SMALL, vocab_size=256, num_token_types=3, layer_norm_epsilon=1e-5), (1, 40, 6)),
    "one head, one layer": (dataclasses.replace(SMALL, num_heads=1, num_layers=1), (4, 8, 2)),
}


def initial(config):
    """(model, initial params) of the default way of computing."""
    model = pretraining_model(config, ComputeConfig())
    return model, jax.jit(model.init)(jax.random.key(0))


def loss(model, params, batch, rng=None):
    out = model.apply(params, batch, rng)
    mlm = -jnp.take_along_axis(jax.nn.log_softmax(out["mlm_logits"]), batch["masked_labels"][..., None], -1)[..., 0]
    nsp = -jnp.take_along_axis(jax.nn.log_softmax(out["nsp_logits"]), batch["next_sentence_labels"][:, None], -1)
    weights = batch["masked_weights"]
    return (mlm * weights).sum() / weights.sum() + nsp.mean()


@pytest.mark.parametrize(
    "name",
    [
        "erf",
        "odd",
        "full table",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("tanh", "one head, one layer")),
    ],
)
def test_logits_and_gradients_equal_the_reference(name):
    config, shape = SHAPES[name]
    theirs = reference.bert(config)
    params, batch = reference.params_of(theirs, config), reference.random_batch(config, *shape)
    model = pretraining_model(config, ComputeConfig())

    mlm, nsp = reference.reference_outputs(theirs, batch)
    out = jax.jit(model.apply)(params, batch, None)
    assert out["mlm_logits"].shape == (shape[0], shape[2], padded_vocab(config.vocab_size))
    assert mlm.std() > 0.3, "logits too small for an absolute tolerance to mean anything"
    np.testing.assert_allclose(out["mlm_logits"][..., : config.vocab_size], mlm.detach(), rtol=0, atol=2e-5)
    np.testing.assert_allclose(out["nsp_logits"], nsp.detach(), rtol=0, atol=2e-5)

    reference.reference_loss(theirs, batch).backward()
    gradients = jax.jit(jax.grad(lambda p: loss(model, p, batch)))(params)
    ours = to_tensors(gradients, config)
    for tensor, parameter in theirs.named_parameters():
        scale = float(parameter.grad.abs().max())
        # The softmax does not see what is added to every key: the true gradient of a key's bias is zero.
        atol = 1e-6 if tensor.endswith("key.bias") else 1e-4 * scale
        np.testing.assert_allclose(ours[tensor], parameter.grad, rtol=0, atol=atol, err_msg=tensor)
    assert {name for name, _ in theirs.named_parameters()} == ours.keys()


def test_padded_rows_of_the_vocabulary_carry_nothing():
    config, shape = SHAPES["erf"]
    model, params = initial(config)
    batch = reference.random_batch(config, *shape)
    probabilities = jax.nn.softmax(jax.jit(model.apply)(params, batch, None)["mlm_logits"])
    assert (probabilities[..., config.vocab_size :] == 0).all()
    gradients = jax.jit(jax.grad(lambda p: loss(model, p, batch)))(params)
    for tree in (params, gradients):
        assert (tree["encoder"]["embeddings"]["token"][config.vocab_size :] == 0).all()
        assert (tree["masked_token"]["bias"][config.vocab_size :] == 0).all()


def test_the_tokens_under_padding_change_nothing():
    config, shape = SHAPES["erf"]
    model, params = initial(config)
    batch = reference.random_batch(config, *shape)
    other = dict(batch, input_ids=np.where(batch["attention_mask"] == 1, batch["input_ids"], 7))
    apply = jax.jit(model.apply)
    for name, x in apply(params, batch, None).items():
        np.testing.assert_array_equal(x, apply(params, other, None)[name])


def test_a_sequence_of_padding_alone_is_finite():
    config, shape = SHAPES["erf"]
    model, params = initial(config)
    batch = {name: np.zeros_like(x) for name, x in reference.random_batch(config, *shape).items()}
    out = jax.jit(model.apply)(params, batch, None)
    assert all(np.isfinite(x).all() for x in out.values())


def test_an_id_outside_the_table_gives_nan():
    config, shape = SHAPES["full table"]
    model, params = initial(config)
    batch = reference.random_batch(config, *shape)
    batch["input_ids"][0, 0] = config.vocab_size
    assert np.isnan(jax.jit(model.apply)(params, batch, None)["nsp_logits"]).all()


WAYS = [
    ComputeConfig(scan_layers=False),
    pytest.param(ComputeConfig(remat=True), marks=pytest.mark.slow),
    pytest.param(ComputeConfig(scan_layers=False, remat=True), marks=pytest.mark.slow),
    pytest.param(ComputeConfig(attention="xla"), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("compute", WAYS, ids=str)
def test_ways_of_computing_agree(compute):
    config, shape = SHAPES["odd"]
    batch, rng = reference.random_batch(config, *shape), jax.random.key(3)
    (scanned, params), other = initial(config), pretraining_model(config, compute)
    jax.tree.map(np.testing.assert_array_equal, params, jax.jit(other.init)(jax.random.key(0)))
    expected = jax.jit(jax.value_and_grad(lambda p: loss(scanned, p, batch, rng)))(params)
    found = jax.jit(jax.value_and_grad(lambda p: loss(other, p, batch, rng)))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), expected, found)


def test_bfloat16_is_close_and_keeps_float32_where_it_matters():
    config, shape = SHAPES["erf"]
    theirs = reference.bert(config)
    params, batch = reference.params_of(theirs, config), reference.random_batch(config, *shape)
    model = pretraining_model(config, ComputeConfig(dtype="bfloat16"))
    out = jax.jit(model.apply)(params, batch, None)
    assert out["mlm_logits"].dtype == out["nsp_logits"].dtype == jnp.float32
    for tree in (model.init, lambda rng: jax.grad(lambda p: loss(model, p, batch, rng))(params)):
        assert {x.dtype.name for x in jax.tree.leaves(jax.eval_shape(tree, jax.random.key(0)))} == {"float32"}
    with torch.no_grad():
        mlm, nsp = reference.reference_outputs(theirs, batch)
    error = np.asarray(out["mlm_logits"][..., : config.vocab_size]) - mlm.numpy()
    assert np.sqrt((error**2).mean()) < 0.02 * float(mlm.std())
    np.testing.assert_allclose(out["nsp_logits"], nsp, atol=0.05)
    text = str(jax.make_jaxpr(model.apply)(params, batch, None))
    assert "bf16" in text
    exponentials = [line for line in text.splitlines() if " = exp " in line or " = rsqrt " in line]
    assert exponentials
    assert all("f32" in line for line in exponentials)


def test_logical_axes_name_every_axis():
    model = pretraining_model(SMALL, ComputeConfig())
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    jax.tree.map(
        lambda x, names: pytest.fail(f"{x.shape} {names}") if len(x.shape) != len(names) else None,
        shapes,
        model.logical_axes,
    )
    assert model.logical_axes["encoder"]["layers"]["mlp_up"]["kernel"] == ("layers", "embed", "mlp")
    assert model.logical_axes["encoder"]["embeddings"]["token"] == ("vocab", "features")


def test_initial_values_follow_the_distribution_of_bert():
    config = dataclasses.replace(PRESETS["tiny"], vocab_size=5000)
    params = jax.jit(pretraining_model(config, ComputeConfig()).init)(jax.random.key(1))
    for name, x in to_tensors(params, config).items():
        if name.endswith("LayerNorm.weight"):
            assert (x == 1).all(), name
        elif name.endswith("bias"):
            assert (x == 0).all(), name
        else:  # a normal of 0.02 cut at two deviations has a deviation of 0.8796 x 0.02
            assert np.abs(x).max() <= 0.04, name
            tolerance = 5 / np.sqrt(2 * x.size)
            np.testing.assert_allclose(x.std() / 0.02, 0.8796, rtol=tolerance, err_msg=name)
    query = params["encoder"]["layers"]["attention"]["query"]["kernel"]
    assert not np.array_equal(query[0], query[1]), "every layer draws its own"


# Turc et al. 2019, table 1 of github.com/google-research/bert, in millions: bodies without the pretraining heads.
PUBLISHED = {
    "L2_H128": 4.4,
    "L4_H256": 11.3,
    "L4_H512": 29.1,
    "L8_H512": 41.7,
    "L12_H768": 110.1,
    "tiny": 4.4,
    "mini": 11.3,
    "small": 29.1,
    "medium": 41.7,
    "base": 110.1,
}


BERTS = [name for name, config in PRESETS.items() if config.family == "bert"]


@pytest.mark.parametrize("name", BERTS)
def test_parameter_counts(name):
    config = PRESETS[name]
    with torch.device("meta"):
        theirs = transformers.BertForPreTraining(
            transformers.BertConfig(
                vocab_size=30522,
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                intermediate_size=4 * config.hidden_size,
            )
        )
    assert count_parameters(config) == sum(x.numel() for x in theirs.parameters())
    if name in PUBLISHED:
        assert round(count_parameters(config) / 1e6, 1) == PUBLISHED[name]


def test_presets_equal_the_published_architectures():
    assert len(BERTS) == 6 + 24
    assert PRESETS["base"] == PRESETS["L12_H768"] == EncoderConfig(vocab_size=30522)
    assert count_parameters(PRESETS["base"]) == 110_106_428
    assert all(PRESETS[name].hidden_size == 64 * PRESETS[name].num_heads for name in BERTS)


# The released checkpoints, as their cards and the sizes of their files say.
@pytest.mark.parametrize(
    ("name", "heads", "number"),
    [
        ("roberta_base", (Head("pooled"),), 124_645_632),
        ("roberta_base", (Head("masked_token"),), 124_697_433),
        ("albert_base", (Head("pooled"),), 11_683_584),
        ("albert_xxlarge", (Head("pooled"),), 222_595_584),
        ("distilbert", (), 66_362_880),
        ("distilbert", (Head("masked_token"),), 66_985_530),
        ("electra_small", (), 13_483_008),
        ("electra_base", (), 108_891_648),
        ("xlm_roberta_base", (Head("pooled"),), 278_043_648),
        ("xlm_roberta_base", (Head("masked_token"),), 278_295_186),
        ("xlm_roberta_large", (Head("pooled"),), 559_890_432),
        ("mpnet_base", (Head("pooled"),), 109_486_464),
        ("deberta_v3_xsmall", (), 70_682_112),
        ("deberta_v3_small", (), 141_304_320),
        ("deberta_v3_base", (), 183_831_552),
        ("deberta_v3_large", (), 434_012_160),
        ("nomic_bert_base", (), 136_731_648),
        # As transformers counts MobileBertForPreTraining.
        ("mobilebert", (Head("masked_token"), Head("next_sentence")), 36_597_564),
    ],
)
def test_parameter_counts_of_the_other_families(name, heads, number):
    assert count_parameters(PRESETS[name], heads) == number


def test_flops_equal_the_reference():
    gathered = model_flops(PRESETS["base"], 512, round(0.15 * 512)) / 512
    assert gathered == pytest.approx(588e6, rel=2e-3)
    assert model_flops(PRESETS["base"], 512, 512) / 512 == pytest.approx(710e6, rel=2e-3)


@pytest.mark.parametrize(
    ("config", "compute", "words"),
    [
        (dataclasses.replace(SMALL, vocab_size=0), ComputeConfig(), "vocab_size"),
        (dataclasses.replace(SMALL, num_heads=5), ComputeConfig(), "num_heads=5 does not divide"),
        (dataclasses.replace(SMALL, activation="gelu_tan"), ComputeConfig(), "did you mean 'gelu_tanh'"),
        (SMALL, ComputeConfig(dtype="float16"), "compute.dtype='float16'"),
        (SMALL, ComputeConfig(attention="cudnn", dtype="bfloat16"), "attention_dropout=0"),
    ],
)
def test_an_architecture_that_cannot_be_built_is_refused(config, compute, words):
    with pytest.raises(UserError, match=words):
        pretraining_model(config, compute)


def test_sequences_beyond_the_positions_are_refused():
    model, params = initial(SMALL)
    batch = reference.random_batch(SMALL, 2, SMALL.max_positions + 1, 3)
    with pytest.raises(UserError, match="max_positions=40"):
        model.apply(params, batch, None)


def test_the_gradient_of_logits_is_multiplied_in_bfloat16(monkeypatch):
    """A GPU multiplies float32 at half the speed, and reads twice the bytes."""
    params = initial(SMALL)[1]
    batch, rows = reference.random_batch(SMALL, 3, 24, 5), padded_vocab(SMALL.vocab_size)

    def gradient(dtype):
        model = pretraining_model(SMALL, ComputeConfig(dtype=dtype, attention="xla"))
        return jax.grad(lambda p: jnp.square(model.apply(p, batch, None)["mlm_logits"][..., : SMALL.vocab_size]).mean())

    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        program = jax.jit(gradient("bfloat16")).lower(params).as_text()
    over_vocabulary = [line for line in program.split("\n") if "dot_general" in line and f"x{rows}x" in line + "x"]
    assert len(over_vocabulary) >= 3  # logits, and the gradients of both factors
    assert not [line for line in over_vocabulary if re.search(r": \(tensor<\w+xf32>|, tensor<\w+xf32>\)", line)]
    exact, found = (jax.jit(gradient(dtype))(params)["encoder"] for dtype in ("float32", "bfloat16"))
    error, size = (
        np.sqrt(sum(float(jnp.square(x).sum()) for x in jax.tree.leaves(tree)))
        for tree in (jax.tree.map(jnp.subtract, found, exact), exact)
    )
    assert error < 2e-2 * size
