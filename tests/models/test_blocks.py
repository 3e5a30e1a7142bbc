"""Every field of the block against the literal encoder in numpy, T5's positions and ModernBERT of `transformers`."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from transformers.models.modernbert.modeling_modernbert import ModernBertForMaskedLM
from transformers.models.t5.modeling_t5 import T5Attention

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models import PRESETS, Head, count_parameters, make_model, model_flops
from bert_jax.models.attention import tpu, xla
from bert_jax.models.init import init_scales
from bert_jax.models.positions import distance_buckets
from tests.models import literal
from tests.models.test_attention import random_inputs

LENGTH = 12
HEADS = (Head("hidden_states"),)
BASE = EncoderConfig(
    vocab_size=50,
    num_layers=4,
    hidden_size=16,
    num_heads=2,
    mlp_size=20,
    max_positions=LENGTH,
    num_token_types=0,
    layer_norm_epsilon=1e-5,
)
NO_BIASES = {"norm_bias": False, "attention_bias": False, "mlp_bias": False, "head_bias": False}
PRE = dataclasses.replace(BASE, norm_position="pre")
LOCAL = {"local_window": 5, "global_every": 3}
CASES = {
    "post": BASE,
    "post, rms norm, no embedding norm": dataclasses.replace(BASE, norm="rms_norm", embedding_norm=False),
    "pre": PRE,
    "pre, final norm without parameters": dataclasses.replace(
        PRE, final_norm=True, norm="rms_norm", norm_scale=False, norm_bias=False
    ),
    "post, local, rotary": dataclasses.replace(BASE, positions="rotary", rotary_base=100.0, **LOCAL),
    "pre, gated silu, query-key norm": dataclasses.replace(
        PRE, mlp="gated", activation="silu", query_key_norm=True, positions="rotary", final_norm=True, **NO_BIASES
    ),
    "modern": dataclasses.replace(
        PRESETS["modern_tiny"],
        vocab_size=50,
        num_layers=4,
        hidden_size=16,
        mlp_size=20,
        rotary_base=900.0,
        local_rotary_base=20.0,
        local_window=6,
    ),
    "bottleneck, trigrams, gated, local, rotary": dataclasses.replace(
        BASE,
        embedding_size=6,
        trigram_embeddings=True,
        bottleneck_size=8,
        bottleneck_mlps=2,
        num_layers=2,
        norm="rms_norm",
        mlp="gated",
        positions="rotary",
        rotary_base=100.0,
        **LOCAL,
    ),
    "relative, local": dataclasses.replace(
        PRE, positions="relative", relative_buckets=8, relative_max_distance=10, **LOCAL
    ),
}


def random_params(config: EncoderConfig, compute: ComputeConfig) -> dict:
    """Parameters well away from where they start, so that each matters."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(make_model(config, compute, HEADS).init, jax.random.key(0))
    return jax.tree_util.tree_map_with_path(
        lambda path, x: (rng.normal(0, 0.3, x.shape) + (path[-1].key == "scale")).astype(np.float32), shapes
    )


def batch_of(config: EncoderConfig, lengths: list[int]) -> dict[str, np.ndarray]:
    """One sequence for each length, padded."""
    ids = np.random.default_rng(1).integers(1, config.vocab_size, (len(lengths), LENGTH)).astype(np.int32)
    mask = (np.arange(LENGTH) < np.array(lengths)[:, None]).astype(np.int32)
    return {"input_ids": ids * mask, "token_type_ids": 0 * ids, "attention_mask": mask}


def packed_batch(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All sequences of a batch in one row, with two columns of padding."""
    lengths = batch["attention_mask"].sum(1)
    ids = np.concatenate(
        [row[:n] for row, n in zip(batch["input_ids"], lengths, strict=True)] + [np.zeros(2, np.int32)]
    )
    segments = np.concatenate([np.full(n, i + 1) for i, n in enumerate(lengths)] + [np.zeros(2)]).astype(np.int32)
    mask = (segments > 0).astype(np.int32)
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask, "segment_ids": segments}
    return {name: x[None] for name, x in batch.items()}


def t5_bias(config: EncoderConfig, table: np.ndarray, length: int) -> np.ndarray:
    """float64 `[heads, length, length]` of transformers."""
    theirs = T5Attention(
        transformers.T5Config(
            d_model=config.hidden_size,
            d_kv=config.hidden_size // config.num_heads,
            num_heads=config.num_heads,
            relative_attention_num_buckets=config.relative_buckets,
            relative_attention_max_distance=config.relative_max_distance,
            is_decoder=False,
        ),
        has_relative_attention_bias=True,
    ).double()
    with torch.no_grad():
        theirs.relative_attention_bias.weight[:] = torch.tensor(table)
        return theirs.compute_bias(length, length)[0].numpy()


def run(config: EncoderConfig, params: dict, batch: dict[str, np.ndarray], compute: ComputeConfig) -> np.ndarray:
    model = make_model(config, compute, HEADS)
    return np.asarray(jax.jit(model.apply)(params, batch, None)["hidden_states"])


@pytest.mark.parametrize("name", CASES)
def test_the_encoder_equals_numpy(name: str) -> None:
    config, scanned = CASES[name], ComputeConfig()
    params, lengths = random_params(config, scanned), [LENGTH, 7]
    params["encoder"]["embeddings"]["token"][0] = 0  # padding, which is the neighbor of a last token
    batch, wide = batch_of(config, lengths), jax.tree.map(np.float64, params["encoder"])
    bias = t5_bias(config, wide["position_bias"]["table"], LENGTH) if config.positions == "relative" else None
    expected = [
        literal.hidden_states(config, wide, row[:n], None if bias is None else bias[:, :n, :n])
        for row, n in zip(batch["input_ids"], lengths, strict=True)
    ]
    padded = [run(config, params, batch, compute) for compute in (scanned, ComputeConfig(scan_layers=False))]
    longer = dataclasses.replace(config, max_positions=sum(lengths) + 2)
    if config.positions == "learned":
        table = params["encoder"]["embeddings"]["position"]
        params["encoder"]["embeddings"]["position"] = np.resize(table, (longer.max_positions, table.shape[1]))
    packed = run(longer, params, packed_batch(batch), scanned)[:, 0]
    for row, (n, begin) in enumerate(zip(lengths, (0, LENGTH), strict=True)):
        for found in (*(states[:, row, :n] for states in padded), packed[:, begin : begin + n]):
            np.testing.assert_allclose(found, expected[row], rtol=0, atol=2e-5)
    assert np.abs(np.diff(expected[0], axis=0)).max() > 0.5, "too small for an absolute tolerance to mean anything"


@pytest.mark.parametrize("name", ["modern", pytest.param("relative, local", marks=pytest.mark.slow)])
def test_gradients_equal_the_unrolled_encoder_and_finite_differences(name: str) -> None:
    config = dataclasses.replace(CASES[name], num_layers=3, dropout=0.1, attention_dropout=0.1)
    params, batch = random_params(config, ComputeConfig()), batch_of(config, [LENGTH, 7])
    weights = np.random.default_rng(2).normal(size=(4, 2, LENGTH, 16)).astype(np.float32)

    def loss(compute: ComputeConfig, params: dict) -> jax.Array:
        model = make_model(config, compute, HEADS)
        return (model.apply(params, batch, jax.random.key(3))["hidden_states"] * weights).sum()

    settings = [ComputeConfig(), ComputeConfig(scan_layers=False), ComputeConfig(remat=True)]
    first, *others = [jax.jit(jax.grad(functools.partial(loss, compute)))(params) for compute in settings]
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(first))
    for other in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * largest), first, other)
    direction = jax.tree.map(lambda x: np.random.default_rng(x.size).normal(size=x.shape).astype(np.float32), params)
    with jax.enable_x64():
        step = 1e-4
        moved = [jax.tree.map(lambda p, d, s=s: p + s * np.float64(d), params, direction) for s in (step, -step)]
        above, below = map(float, map(jax.jit(functools.partial(loss, settings[0])), moved))
    slope = sum(float((g * d).sum()) for g, d in zip(*map(jax.tree.leaves, (first, direction)), strict=True))
    assert (above - below) / (2 * step) == pytest.approx(slope, rel=0.02)


def test_the_first_norm_is_unused_and_has_no_gradient() -> None:
    config = CASES["modern"]
    params, batch = random_params(config, ComputeConfig()), batch_of(config, [LENGTH])
    model = make_model(config, ComputeConfig(), HEADS)
    gradient = jax.jit(jax.grad(lambda p: (model.apply(p, batch, None)["hidden_states"] ** 3).sum()))(params)
    scale = gradient["encoder"]["layers"]["attention_norm"]["scale"]
    assert (scale[0] == 0).all()
    assert (np.abs(scale[1:]) > 0).all()


@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 10), (64, 300), (4, 2)])
def test_buckets_equal_the_buckets_of_t5(buckets: int, most: int) -> None:
    distances = np.arange(-700, 701)
    expected = T5Attention._relative_position_bucket(torch.tensor(distances), True, buckets, most)
    found = np.asarray(distance_buckets(distances, buckets, most))
    np.testing.assert_array_equal(found, expected.numpy())
    assert set(found) <= set(range(buckets))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("reach", [0, 3, 100])
def test_windows_of_the_kernels(reach: int, packed: bool) -> None:
    """Plain attention against a loop over the keys, the fused kernels, interpreted, against plain attention."""
    inputs, gradient = random_inputs((2, 24, 2, 16), packed=packed)
    inputs = dataclasses.replace(inputs, radius=reach)

    def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return xla.xla_forward(dataclasses.replace(inputs, q=q, k=k, v=v), 0.0)

    plain, pull = jax.vjp(attend, inputs.q, inputs.k, inputs.v)
    q, k, v = (np.float64(x).reshape(2, 24, 2, 16) for x in (inputs.q, inputs.k, inputs.v))
    for row, i, head in itertools.product(range(2), range(24), range(2)):
        read = [j for j in range(24) if inputs.mask[row, j] and abs(i - j) <= reach]
        if packed:
            read = [j for j in read if inputs.segments[row, i] == inputs.segments[row, j]]
        if read:
            scores = np.array([q[row, i, head] @ k[row, j, head] for j in read]) / np.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max())
            expected = weights / weights.sum() @ v[row, read, head]
            np.testing.assert_allclose(plain.reshape(q.shape)[row, i, head], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(tpu.tpu_forward(inputs, 0.0, interpret=True), plain, rtol=0, atol=1e-5)
    found = tpu.tpu_backward(inputs, gradient, 0.0, interpret=True)
    for ours, theirs in zip(found, pull(gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"local_window": 8}, "local_window has no effect with model.global_every=1"),
        ({"global_every": 3}, "global_every has no effect with model.local_window=None"),
        ({"local_windows": (4, 8), "local_window": 8, "global_every": 0}, r"local_windows=\(4, 8\): give the window"),
        ({"local_rotary_base": 9.0, "positions": "rotary"}, "local_rotary_base has no effect with .*window=None"),
        ({"local_rotary_base": 9.0, **LOCAL}, "local_rotary_base has no effect with model.positions=learned"),
        ({"first_attention_norm": False}, "first_attention_norm has no effect with model.norm_position=post"),
        ({"positions": "relative", "relative_buckets": 7}, "relative_buckets=7.*must be even"),
        ({"positions": "relative", "relative_max_distance": 8}, "relative_max_distance=8: .*larger than a quarter"),
        ({"norm_position": "per"}, "norm_position='per' is none of post, pre.*did you mean 'pre'"),
        ({"initialization": "norm"}, "initialization='norm' is none of normal"),
    ],
)
def test_settings_without_effect_are_refused(change: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make_model(dataclasses.replace(BASE, **change), ComputeConfig(), HEADS).init(jax.random.key(0))


def test_heads_in_a_list_and_a_head_that_no_table_has() -> None:
    assert make_model(BASE, ComputeConfig(), [*HEADS]).heads == HEADS
    with pytest.raises(UserError, match=r"head='hidden_state' is none of .*did you mean 'hidden_states'"):
        make_model(BASE, ComputeConfig(), (Head("hidden_state"),))
    with pytest.raises(UserError, match=r"dtype=.*bfloat16.* is none of float32, bfloat16"):
        make_model(BASE, ComputeConfig(dtype=jnp.bfloat16), HEADS)


MODERNS = [name for name, config in PRESETS.items() if config.family == "modernbert"]


@pytest.mark.parametrize("name", MODERNS)
def test_modernbert_has_as_many_parameters_as_in_transformers(name: str) -> None:
    config = PRESETS[name]
    with torch.device("meta"):
        theirs = ModernBertForMaskedLM(
            transformers.ModernBertConfig(
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_heads,
                intermediate_size=config.mlp_size,
            )
        )
    assert count_parameters(config, (Head("masked_token"),)) == sum(x.numel() for x in theirs.parameters())


def test_initial_standard_deviations_equal_modernbert_in_transformers() -> None:
    config = dataclasses.replace(
        PRESETS["modern_tiny"], vocab_size=400, hidden_size=192, num_layers=8, mlp_size=160, num_heads=3
    )
    torch.manual_seed(0)
    theirs = ModernBertForMaskedLM(
        transformers.ModernBertConfig(
            vocab_size=400,
            hidden_size=192,
            num_hidden_layers=8,
            num_attention_heads=3,
            intermediate_size=160,
            pad_token_id=0,
        )
    )
    params = jax.jit(make_model(config, ComputeConfig(), (Head("masked_token"),)).init)(jax.random.key(0))
    layers, theirs_layer = params["encoder"]["layers"], theirs.model.layers[3]
    pairs = {
        "tokens": (params["encoder"]["embeddings"]["token"][1:400], theirs.model.embeddings.tok_embeddings.weight[1:]),
        "query": (layers["attention"]["query"]["kernel"], theirs_layer.attn.Wqkv.weight),
        "output": (layers["attention"]["output"]["kernel"], theirs_layer.attn.Wo.weight),
        "up": (layers["mlp_up"]["kernel"], theirs_layer.mlp.Wi.weight),
        "down": (layers["mlp_down"]["kernel"], theirs_layer.mlp.Wo.weight),
        "dense": (params["masked_token"]["dense"]["kernel"], theirs.head.dense.weight),
    }
    for name, (ours, other) in pairs.items():
        assert float(np.std(ours)) == pytest.approx(float(other.detach().std()), rel=0.03), name
        assert float(np.abs(ours).max()) == pytest.approx(float(other.detach().abs().max()), rel=0.02), name
    assert init_scales(config).output == config.initializer_range / 4


def test_flops_of_windows_count_the_pairs() -> None:
    config, length = dataclasses.replace(PRE, max_positions=64, **LOCAL), 40
    everywhere = dataclasses.replace(config, local_window=None, global_every=1)
    pairs = sum(abs(i - j) <= 2 for i, j in itertools.product(range(length), repeat=2))
    saved = 2 * 12 * config.hidden_size * (length**2 - pairs)  # blocks 1 and 2 of 4 are local
    assert model_flops(everywhere, length, 3) - model_flops(config, length, 3) == saved
    wide = dataclasses.replace(config, local_window=200)
    assert model_flops(wide, length, 3) == model_flops(everywhere, length, 3)
    each = dataclasses.replace(config, local_window=8, local_windows=(2, 4, 8, 4), global_every=0)
    read = sum(abs(i - j) <= reach for reach in (1, 2, 4, 2) for i, j in itertools.product(range(length), repeat=2))
    saved = 12 * config.hidden_size * (4 * length**2 - read)
    assert model_flops(everywhere, length, 3) - model_flops(each, length, 3) == saved
