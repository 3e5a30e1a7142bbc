"""The training state, and the training step of every objective."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.errors import UserError
from bert_jax.objectives.base import Batch, Normalizers, Objective, Params, Rngs, training_rngs
from bert_jax.objectives.cached_vectors import LossAndGradients, cached_loss_and_gradients, split_into_micro_batches
from bert_jax.objectives.hybrid import split_batch
from bert_jax.objectives.losses import Mean
from bert_jax.parallel import sharding
from bert_jax.parallel.platform import compiler_options
from bert_jax.training.optimizers import AveragedState, Optimizer
from bert_jax.training.schedules import Phase

LearningRate = Callable[[jax.Array], jax.Array]  # int32 step -> float32 learning rate of the step


class TrainState(NamedTuple):
    """The training state of a run; the field `step` determines the sequences that the run reads next.

    The type of some fields is Any, because the same class holds shapes and shardings in place of arrays.
    """

    step: Any  # number of steps so far, including skipped updates, int32
    params: Params  # float32
    opt_state: optax.OptState
    rng: Any  # random key, uint32 [2]; each step folds its number into the key
    skipped: Any  # number of updates that were skipped because loss or gradient was not finite, int32
    skipped_in_a_row: Any  # number of consecutive skipped updates up to now, int32
    frozen: Params = ()  # parameters that are read but never updated or saved, such as a teacher's parameters


StateAndMetrics = tuple[TrainState, dict[str, Any]]


def init_state(seed: int, objective: Objective, optimizer: Optimizer, params: Params | None = None) -> TrainState:
    """Return the state before the first step, without frozen parameters; the state depends only on `seed` and `params`.

    Args:
        seed: seed of the run.
        objective: objective of the run.
        optimizer: optimizer of the run.
        params: initial parameters, float32; None: random parameters.
    """
    _, step_key = jax.random.split(jax.random.PRNGKey(seed))
    params = random_params(seed, objective) if params is None else params
    zero = jnp.zeros((), jnp.int32)
    return TrainState(zero, params, optimizer(0.0).init(params), step_key, zero, zero)


def random_params(seed: int, objective: Objective) -> Params:
    """Return the random initial parameters, float32, of a run with the seed `seed`."""
    init_key, _ = jax.random.split(jax.random.PRNGKey(seed))
    return objective.init(init_key)


def evaluated_params(state: TrainState) -> Params:
    """Return the parameters for evaluation and export: the moving average if the state has it, else the parameters."""
    return state.opt_state.average if isinstance(state.opt_state, AveragedState) else state.params


class StateLayout(NamedTuple):
    """The shape with dtype, and the sharding, of each array of a training state."""

    shapes: TrainState
    shardings: TrainState


def state_layout(objective: Objective, optimizer: Optimizer, mesh: jax.sharding.Mesh) -> StateLayout:
    """Return the layout of the training state: moments are sharded like their parameters, scalars are replicated."""
    shapes = jax.eval_shape(functools.partial(init_state, 0, objective, optimizer), objective.shapes)
    shapes = shapes._replace(frozen=jax.eval_shape(objective.init_frozen, jax.random.PRNGKey(0)))
    replicated = sharding.replicated(mesh)
    params = sharding.named_shardings(objective.logical_axes, mesh)
    opt_state = optax.tree.map_params(
        optimizer(0.0),
        lambda leaf, shard: leaf if _is_absent_parameter(leaf) else shard,
        shapes.opt_state,
        params,
        transform_non_params=lambda _: replicated,
        is_leaf=_is_absent_parameter,
    )
    frozen_shardings = sharding.named_shardings(objective.frozen_axes, mesh) if objective.frozen_axes else ()
    shardings = TrainState(replicated, params, opt_state, replicated, replicated, replicated, frozen_shardings)
    return StateLayout(shapes, shardings)


def _is_absent_parameter(node: Any) -> bool:
    """Return whether a node of an optimizer's state is optax's mark of an absent parameter."""
    return isinstance(node, optax.MaskedNode)


def abstract_state(shapes: TrainState, shardings: TrainState) -> TrainState:
    """Return a tree with shape, dtype and sharding of each array of a state, for `Checkpoints.restore`."""
    return jax.tree.map(lambda s, shard: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=shard), shapes, shardings)


def train_step(
    objective: Objective,
    optimizer: Optimizer,
    learning_rate: LearningRate,
    grad_accum_steps: int,
    state: TrainState,
    batch: Batch,
) -> StateAndMetrics:
    """Return the state after a training step on a batch, and the metrics of the step.

    The batch is computed in `grad_accum_steps` micro-batches, so a step needs only the memory of a single micro-batch.
    The loss is a global sum divided by a global count, so the numbers of micro-batches, devices and hosts affect only
    rounding. If the loss or the gradient is not finite, parameters and optimizer state do not change, and the step is
    counted as skipped.
    """
    rng = jax.random.fold_in(state.rng, state.step)
    loss, gradients, metrics = _loss_and_gradients(objective, grad_accum_steps, state, batch, rng)
    norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    rate = learning_rate(state.step)
    updates, opt_state = optimizer(rate).update(gradients, state.opt_state, state.params)
    params = objective.project(optax.apply_updates(state.params, updates))
    params, opt_state = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old), (params, opt_state), (state.params, state.opt_state)
    )
    skipped = 1 - finite.astype(jnp.int32)
    in_a_row = (state.skipped_in_a_row + 1) * skipped
    state = state._replace(
        step=state.step + 1,
        params=params,
        opt_state=opt_state,
        skipped=state.skipped + skipped,
        skipped_in_a_row=in_a_row,
    )
    report = {"learning_rate": rate, "grad_norm": norm, "skipped": state.skipped, "skipped_in_a_row": in_a_row}
    counted = finite.astype(jnp.float32)
    means = {name: Mean(jnp.where(finite, m.total, 0.0), m.weight * counted) for name, m in metrics.items()}
    return state, {"means": means, "report": report}


def jit_train_step(
    objective: Objective,
    optimizer: Optimizer,
    learning_rate: LearningRate,
    grad_accum_steps: int,
    *,
    mesh: jax.sharding.Mesh,
    shardings: TrainState,
    deterministic: bool = False,
) -> Any:
    """Return the jitted step of a phase, `(state, batch) -> (state, metrics)`, for training and for the dry run.

    `shardings` are the shardings of the state, both as input and as output; the state is donated. The argument
    `deterministic` is the value of the config field `config.compute.deterministic`.
    """
    step = functools.partial(train_step, objective, optimizer, learning_rate, grad_accum_steps)
    out = (shardings, sharding.replicated(mesh))
    options = compiler_options(mesh, deterministic)
    return jax.jit(step, donate_argnums=0, out_shardings=out, compiler_options=options)


def _loss_and_gradients(
    objective: Objective, grad_accum_steps: int, state: TrainState, batch: Batch, rng: jax.Array
) -> LossAndGradients:
    """Return loss, gradients and metrics of a batch, summed over its micro-batches, then over the devices."""
    if objective.left_to_right_fraction:
        batch = split_batch(batch, objective.left_to_right_fraction)
    normalizers = objective.normalizers(batch) | objective.loss_weights(state.step)
    if grad_accum_steps > 1:
        return _accumulate_micro_batches(objective, grad_accum_steps, state, batch, rng, normalizers)
    value_and_grad = jax.value_and_grad(objective.loss, has_aux=True)
    (loss, metrics), gradients = value_and_grad(state.params, state.frozen, batch, training_rngs(rng), normalizers)
    return LossAndGradients(loss, gradients, metrics)


def _accumulate_micro_batches(
    objective: Objective,
    grad_accum_steps: int,
    state: TrainState,
    batch: Batch,
    rng: jax.Array,
    normalizers: Normalizers,
) -> LossAndGradients:
    """Return loss, gradients and metrics of a batch that is computed in `grad_accum_steps` micro-batches."""
    if objective.whole_batch_loss:
        return cached_loss_and_gradients(
            objective.whole_batch_loss,
            grad_accum_steps,
            state.params,
            state.frozen,
            batch,
            normalizers,
            lambda index: training_rngs(jax.random.fold_in(rng, index)),
        )
    value_and_grad = jax.value_and_grad(objective.loss, has_aux=True)

    def sum_over_micro_batches(
        batch: Batch, params: Params, frozen: Params, rng: jax.Array, normalizers: Normalizers
    ) -> Any:
        """Return ((loss, metrics), gradients), summed over the micro-batches."""

        def rngs(index: Any) -> Rngs:
            return training_rngs(jax.random.fold_in(rng, index))

        def add_micro_batch(sums: Any, xs: tuple[jax.Array, Batch]) -> tuple[Any, None]:
            index, micro = xs
            return jax.tree.map(jnp.add, sums, value_and_grad(params, frozen, micro, rngs(index), normalizers)), None

        micros = split_into_micro_batches(batch, grad_accum_steps)
        first = jax.tree.map(lambda x: x[0], micros)
        shapes = jax.eval_shape(value_and_grad, params, frozen, first, rngs(0), normalizers)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.scan(add_micro_batch, zeros, (jnp.arange(grad_accum_steps), micros))[0]

    (loss, metrics), gradients = sharding.sum_over_data(sum_over_micro_batches)(
        batch, state.params, state.frozen, rng, normalizers
    )
    return LossAndGradients(loss, gradients, metrics)


def check_divisible_by_mesh(
    mesh: jax.sharding.Mesh, objective: Objective, phases: tuple[Phase, ...], evaluation_batch_size: int | None = None
) -> None:
    """Raise UserError unless the model, the batches and the micro-batches divide evenly over the mesh.

    `evaluation_batch_size` is the batch size of evaluations in the config, or None.
    """
    sharding.check_mesh_divides_heads(mesh, objective.num_heads)
    sharding.check_mesh_divides_parameters(objective.logical_axes, objective.shapes, mesh)
    check_divisible_batches(mesh, phases, evaluation_batch_size)
    for phase in phases:
        fraction = objective.of_phase(phase.index).left_to_right_fraction
        num_sequences = phase.batch_size // (mesh.shape["data"] * mesh.shape["fsdp"] * phase.grad_accum_steps)
        nearest = round(fraction * num_sequences) / num_sequences
        if fraction and not (0 < nearest < 1 and math.isclose(fraction, nearest, rel_tol=1e-5)):
            raise UserError(
                f"{phase.batch_keys}.left_to_right_fraction={fraction:g}: a device reads {num_sequences} sequences "
                f"at a time; set a multiple of 1/{num_sequences} below 1, or a larger batch_size"
            )


def check_divisible_batches(
    mesh: jax.sharding.Mesh, phases: tuple[Phase, ...], evaluation_batch_size: int | None = None
) -> None:
    """Raise UserError unless the batches and the micro-batches divide evenly over the mesh."""
    for phase in phases:
        if phase.batch_size % phase.grad_accum_steps:
            raise UserError(
                f"a batch of {phase.batch_size} sequences does not divide into {phase.grad_accum_steps} micro-batches; "
                "change config.train.batch_size or grad_accum_steps, or the phase's own batch_size, batch_stages or "
                "grad_accum_steps"
            )
        sharding.check_mesh_divides_batch(mesh, phase.batch_size, phase.grad_accum_steps)
    if evaluation_batch_size is not None:
        sharding.check_mesh_divides_batch(mesh, evaluation_batch_size, name="config.evaluate.batch_size")
