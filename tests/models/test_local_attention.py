"""Windows by chunks against the scores of all pairs: results, gradients, dropout, memory, and the encoder's layers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.dryrun.hlo_cost import program_cost
from bert_jax.models import Head, make_model
from bert_jax.models.attention import local, xla
from bert_jax.models.attention.inputs import WindowSpec
from tests.models.test_attention import random_inputs

SHAPE = (2, 701, 2, 8)  # no multiple of a chunk

WINDOW = WindowSpec(radius=5)


def inputs_of(reach: int, packed: bool):
    inputs, gradient = random_inputs(SHAPE, packed=packed)
    mask = np.ones(SHAPE[:2], np.int32)
    mask[1, 500:] = 0
    window = WindowSpec(radius=reach)
    inputs = dataclasses.replace(inputs, mask=jnp.asarray(mask), radius=reach, window=window)
    return inputs, gradient * mask[..., None]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("reach", [3, 64, 100])
def test_chunks_equal_all_pairs(reach: int, packed: bool) -> None:
    """At real tokens, with the same dropout masks; 100 reaches past a half of the smallest chunk."""
    inputs, gradient = inputs_of(reach, packed)
    assert local.chunks_save_work(inputs)
    for rate in (0.0, 0.3):

        def run(which, q, k, v, rate=rate):
            return which(dataclasses.replace(inputs, q=q, k=k, v=v), rate)

        (near, pull_near), (everything, pull) = (
            jax.vjp(jax.jit(lambda q, k, v, which=which: run(which, q, k, v)), inputs.q, inputs.k, inputs.v)
            for which in (local.chunked_attention, xla.dense_attention)
        )
        real = np.asarray(inputs.mask, bool)
        np.testing.assert_allclose(near[real], everything[real], rtol=0, atol=1e-5)
        for ours, theirs in zip(pull_near(gradient), pull(gradient), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("reach", "window"),
    [(5, WINDOW), (2**30, WINDOW), (5, WindowSpec(radius=20, every_layer=True))],
)
def test_a_scanned_program_takes_the_branch_of_its_layer(reach: int, window: WindowSpec) -> None:
    """The reach is an array there, and may be less than the window; results and gradients are those of the mask."""
    inputs, gradient = inputs_of(5, packed=False)
    reach = jnp.asarray(reach)

    def run(q, k, v, reach, window):
        return xla.xla_attention(dataclasses.replace(inputs, q=q, k=k, v=v, radius=reach, window=window), 0.1)

    found, pull = jax.vjp(lambda *x: jax.jit(run, static_argnums=4)(*x, reach, window), inputs.q, inputs.k, inputs.v)
    expected, pull_expected = jax.vjp(
        lambda *x: jax.jit(run, static_argnums=4)(*x, reach, None), inputs.q, inputs.k, inputs.v
    )
    real = np.asarray(inputs.mask, bool)
    np.testing.assert_allclose(found[real], expected[real], rtol=0, atol=1e-5)
    for ours, theirs in zip(pull(gradient), pull_expected(gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_short_sequences_and_biases_read_all_pairs() -> None:
    inputs, _ = inputs_of(64, packed=False)
    assert not local.chunks_save_work(dataclasses.replace(inputs, bias=jnp.zeros((2, 701, 701))))
    assert not local.chunks_save_work(dataclasses.replace(inputs, window=None))
    assert not local.chunks_save_work(dataclasses.replace(inputs, q=inputs.q[:, :500]))


LONG = EncoderConfig(
    vocab_size=99,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    mlp_size=24,
    max_positions=8192,
    num_token_types=0,
    norm_position="pre",
    positions="rotary",
    local_window=128,
    global_every=3,
    dropout=0.0,
    attention_dropout=0.0,
)


@pytest.mark.parametrize("scan", [True, False])
def test_a_long_sequence_equals_the_masks(scan: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an encoder with one global layer in three."""
    model = make_model(LONG, ComputeConfig(scan_layers=scan), (Head("hidden_states"),))
    params = jax.jit(model.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    batch = {name: np.zeros((1, 600), np.int32) for name in ("input_ids", "token_type_ids")}
    batch["input_ids"] = rng.integers(0, 99, (1, 600)).astype(np.int32)
    batch["attention_mask"] = np.ones((1, 600), np.int32)

    def run():
        def total(params):
            states = model.apply(params, batch, None)["hidden_states"]
            return (states[-1] ** 3).sum(), states

        return jax.jit(jax.value_and_grad(total, has_aux=True))(params)

    (_, states), gradients = run()
    monkeypatch.setattr(local, "chunks_save_work", lambda inputs: False)
    jax.clear_caches()
    (_, expected), expected_gradients = run()
    np.testing.assert_allclose(states, expected, rtol=0, atol=2e-5)
    for ours, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * max(1.0, np.abs(theirs).max()))


def test_memory_and_work_grow_with_the_length_and_not_with_its_square() -> None:
    """Of local layers, compiled and not run; the scores of all pairs would take sixteen times as much."""

    def compiled(length: int):
        inputs, gradient = random_inputs((1, length, 2, 8))

        def pull(q, k, v, gradient):
            def attend(*tensors):
                own = dataclasses.replace(
                    inputs, **dict(zip("qkv", tensors, strict=True)), radius=64, window=WindowSpec(radius=64)
                )
                return xla.xla_attention(own, 0.0)

            return jax.vjp(attend, q, k, v)[1](gradient)

        program = jax.jit(pull).lower(inputs.q, inputs.k, inputs.v, gradient).compile()
        return program.memory_analysis().temp_size_in_bytes, program_cost(program.as_text()).flops

    (memory, flops), (more_memory, more_flops) = compiled(1024), compiled(4096)
    assert more_memory < 5 * memory
    assert more_flops < 4.5 * flops
