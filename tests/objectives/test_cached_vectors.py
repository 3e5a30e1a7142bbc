"""Cached gradients of losses over a whole batch: equal to the gradient of the whole batch, with less memory."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import ComputeConfig, EncoderConfig, OptimizerConfig, TaskConfig
from bert_jax.models import Head, make_model
from bert_jax.objectives import Rngs
from bert_jax.objectives.base import WholeBatchLoss, training_rngs
from bert_jax.objectives.cached_vectors import cached_loss_and_gradients, split_into_micro_batches
from bert_jax.objectives.frozen_encoder import with_frozen_encoder
from bert_jax.objectives.tasks import make_task_objective
from bert_jax.objectives.vector_losses import VectorLabels, VectorLossOptions, vector_losses
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.step import init_state, train_step

EXAMPLES, TEXTS, WIDTH = 12, 3, 6
SIZES = {"vocab_size": 50, "num_layers": 1, "num_heads": 2, "max_positions": 32, "initializer_range": 0.3}
ENCODER = EncoderConfig(**SIZES, hidden_size=16, mlp_size=32)  # with dropout


def batch_of(examples: int, texts: int, length: int = 8) -> dict[str, np.ndarray]:
    """Some examples are absent or no positives, and some texts are equal."""
    rng = np.random.default_rng(examples)
    shape = (examples, texts, length)
    text_ids = rng.integers(0, 2 * examples, (examples, texts), np.int32)
    lengths = rng.integers(2, length + 1, (examples, texts, 1))
    return {
        "input_ids": rng.integers(5, 50, shape, np.int32),
        "token_type_ids": np.zeros(shape, np.int32),
        "attention_mask": (np.arange(length) < lengths).astype(np.int32),
        "text_ids": text_ids,
        "positives": (np.arange(examples) % 5 > 0).astype(np.float32),
        "example_weights": (np.arange(examples) % 7 > 0).astype(np.float32),
        "grades": rng.integers(0, 4, examples).astype(np.float32),
        "scores": rng.normal(size=(examples, texts - 1)).astype(np.float32),
    }


def small_network(params, frozen, batch, rngs):
    """Unit vectors of a network with dropout, in the dtype of the parameters."""
    hidden = jnp.tanh(batch["x"] @ params["first"])
    hidden *= jax.random.bernoulli(rngs.dropout, 0.7, hidden.shape)
    vectors = hidden @ params["second"] * frozen
    return vectors / jnp.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize("steps", [2, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("info_nce", {"symmetric": True, "false_negative_margin": 0.1, "matryoshka_sizes": (2, 4)}),
        ("margin_mse", {}),
        ("teacher_kl", {}),
        ("cosent", {}),
        ("triplet", {}),
    ],
)
def test_the_cached_gradient_is_the_gradient_of_all_micro_batches_together(name, options, steps):
    with jax.enable_x64():
        rng, key = np.random.default_rng(0), jax.random.key(1)
        batch = {key: x for key, x in batch_of(EXAMPLES, TEXTS).items() if "_ids" not in key or key == "text_ids"}
        batch |= {"x": rng.normal(size=(EXAMPLES, TEXTS, 5)), "scores": batch["scores"].astype(np.float64)}
        params = {"first": rng.normal(size=(5, 9)), "second": rng.normal(size=(9, WIDTH)), "scale": np.array(0.4)}
        frozen = rng.normal(size=WIDTH)

        def loss(params, vectors, batch, normalizers):
            weights = batch["positives"]
            labels = VectorLabels(weights, batch["text_ids"], batch["grades"], batch["scores"])
            losses, _ = vector_losses(name, vectors, labels, params["scale"], VectorLossOptions(**options))
            return jnp.sum(losses * weights) / normalizers["targets"], {}

        def rngs(index):
            return Rngs(jax.random.fold_in(key, index), key)

        normalizers = {"targets": batch["positives"].sum()}

        def together(params):
            micros = [{key: x[n::steps] for key, x in batch.items()} for n in range(steps)]
            vectors = [small_network(params, frozen, micro, rngs(n)) for n, micro in enumerate(micros)]
            ordered = jnp.stack(vectors, axis=1).reshape(EXAMPLES, TEXTS, WIDTH)
            return loss(params, ordered, {key: jnp.asarray(x) for key, x in batch.items()}, normalizers)[0]

        expected, expected_gradient = jax.jit(jax.value_and_grad(together))(params)
        cached = functools.partial(cached_loss_and_gradients, WholeBatchLoss(small_network, loss), steps, rngs=rngs)
        found, gradient, _ = jax.jit(cached)(params, frozen, batch, normalizers)
        assert found.dtype == np.float64
        assert float(found) == pytest.approx(float(expected), rel=1e-10)
        for key in params:
            np.testing.assert_allclose(gradient[key], expected_gradient[key], rtol=1e-10, atol=1e-12, err_msg=key)


def parts(grad_accum_steps, settings, batch, dropout):
    """Loss, gradient norm and parameters after a step of plain gradient descent."""
    model = make_model(ENCODER, ComputeConfig(), (Head("sentence_embedding"),))
    objective = make_task_objective(model, "similarity", False, settings)
    params = jax.jit(objective.init)(jax.random.key(0))
    rng = jax.random.PRNGKey(3)
    whole, normalizers = objective.whole_batch_loss, objective.normalizers(batch)

    def rngs(index):
        return training_rngs(jax.random.fold_in(rng, index)) if dropout else Rngs(None, rng)

    def together(params):
        """The vectors of all micro-batches, with the dropout of each, in one graph."""
        micros = [{key: x[n::grad_accum_steps] for key, x in batch.items()} for n in range(grad_accum_steps)]
        vectors = [whole.represent(params, (), micro, rngs(n)) for n, micro in enumerate(micros)]
        ordered = jnp.stack(vectors, axis=1).reshape(-1, *vectors[0].shape[1:])
        return whole.loss(params, ordered, batch, normalizers)[0]

    batch = {key: jnp.asarray(x) for key, x in batch.items()}
    expected = jax.jit(jax.value_and_grad(together))(params)
    cached = functools.partial(cached_loss_and_gradients, whole, grad_accum_steps, rngs=rngs)
    return jax.jit(cached)(params, (), batch, normalizers)[:2], expected


@pytest.fixture(scope="module")
def with_and_without_dropout():
    settings = TaskConfig(learned_temperature=True, temperature=0.2)
    return {dropout: parts(4, settings, batch_of(EXAMPLES, 2), dropout) for dropout in (False, True)}


@pytest.mark.parametrize("dropout", [False, True])
def test_cached_gradients_of_an_encoder_equal_uncached_gradients(with_and_without_dropout, dropout):
    (loss, gradients), (expected, expected_gradients) = with_and_without_dropout[dropout]
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(expected_gradients))
    assert largest > 0.01
    for ours, theirs in zip(*map(jax.tree.leaves, (gradients, expected_gradients)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * largest)


def test_dropout_changes_the_loss(with_and_without_dropout):
    """Otherwise the comparison with dropout would show nothing."""
    losses = [float(loss) for (loss, _), _ in with_and_without_dropout.values()]
    assert abs(losses[0] - losses[1]) > 0.01


def test_a_frozen_encoder_gives_the_same_vectors():
    """The objective of an adapter reads the encoder among the frozen parameters."""
    model = make_model(ENCODER, ComputeConfig(), (Head("sentence_embedding"),))
    objective = make_task_objective(model, "similarity", False, TaskConfig())
    params, batch, rngs = (
        jax.jit(objective.init)(jax.random.key(0)),
        batch_of(4, 2),
        training_rngs(jax.random.PRNGKey(3)),
    )
    frozen = with_frozen_encoder(objective, ENCODER.num_layers)
    trained = {name: part for name, part in params.items() if name != "encoder"}
    vectors = jax.jit(frozen.whole_batch_loss.represent)(trained, {"encoder": params["encoder"]}, batch, rngs)
    expected = jax.jit(model.apply)(params, batch, rngs.dropout)["sentence_vectors"]
    np.testing.assert_array_equal(vectors, expected)


def test_micro_batches_hold_every_row_once():
    micros = split_into_micro_batches({"x": jnp.arange(24).reshape(12, 2)}, 3)["x"]
    assert micros.shape == (3, 4, 2)
    assert sorted(micros[..., 0].reshape(-1).tolist()) == list(range(0, 24, 2))


@pytest.mark.slow
def test_memory_grows_with_the_vectors_alone():
    """A batch of 4,096 pairs in micro-batches of 64, beside a batch of 64, by the compiler's own count."""
    encoder = EncoderConfig(**SIZES, hidden_size=64, mlp_size=256)
    model = make_model(encoder, ComputeConfig(), (Head("sentence_embedding"),))
    objective = make_task_objective(model, "similarity", False, TaskConfig())
    optimizer = make_optimizer(OptimizerConfig(), objective.logical_axes, objective.sections)
    state = jax.eval_shape(lambda: init_state(0, objective, optimizer))

    def temporary_bytes(examples, grad_accum_steps):
        step = functools.partial(train_step, objective, optimizer, lambda step: 1e-3, grad_accum_steps)
        return jax.jit(step).lower(state, batch_of(examples, 2, 32)).compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(4_096, 64) < 1.5 * temporary_bytes(64, 1)
