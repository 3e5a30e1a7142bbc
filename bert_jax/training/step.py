"""The state and the step: the same for every objective."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import Config
from bert_jax.objectives.base import Batch, Normalizers, Objective, Params
from bert_jax.objectives.means import Mean
from bert_jax.parallel import sharding
from bert_jax.parallel.compilation import compiler_options
from bert_jax.training.schedules import Phase, learning_rate, plan


class TrainState(NamedTuple):
    """All that a run is, but for the rows it reads; the rows follow from `step`."""

    step: Any  # int32, updates tried so far (Any: a state of shapes or of shardings has this form too)
    params: Params  # float32
    opt_state: optax.OptState
    rng: Any  # uint32 [2], folded with the step for dropout
    skipped: Any  # int32, updates left out because loss or gradient was not finite
    skipped_in_a_row: Any  # int32


def init_state(
    config: Config, objective: Objective, optimizer: optax.GradientTransformation, start: Params | None = None
) -> TrainState:
    """The state before the first step, a pure function of `config.seed` and of `start`; None: random parameters."""
    init_key, dropout_key = jax.random.split(jax.random.PRNGKey(config.seed))
    params = objective.init(init_key) if start is None else start
    zero = jnp.zeros((), jnp.int32)
    return TrainState(zero, params, optimizer.init(params), dropout_key, zero, zero)


def state_shardings(
    config: Config, objective: Objective, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh
) -> tuple[TrainState, TrainState]:
    """Shapes and shardings of the state: moments lie where their parameters lie, scalars everywhere."""
    shapes = jax.eval_shape(functools.partial(init_state, config, objective, optimizer))
    everywhere = sharding.replicated(mesh)
    params = sharding.shardings(objective.logical_axes, mesh)
    opt_state = optax.tree.map_params(
        optimizer, lambda _, place: place, shapes.opt_state, params, transform_non_params=lambda _: everywhere
    )
    return shapes, TrainState(everywhere, params, opt_state, everywhere, everywhere, everywhere)


def abstract_state(shapes: TrainState, shardings: TrainState) -> TrainState:
    """What `Checkpoints.restore` wants to know: shape, dtype and sharding of each leaf."""
    return jax.tree.map(lambda s, place: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=place), shapes, shardings)


def train_step(
    config: Config,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    grad_accum_steps: int,
    state: TrainState,
    batch: Batch,
) -> tuple[TrainState, dict[str, Any]]:
    """One update from one batch, computed in `grad_accum_steps` micro-batches with the memory of one.

    The loss is a global sum over a global count: micro-batches, devices and hosts change nothing but rounding.
    A loss or gradient that is not finite leaves parameters and optimizer as they were, and is counted.
    """
    rng = jax.random.fold_in(state.rng, state.step)
    loss, gradients, metrics = _gradients(objective, grad_accum_steps, state.params, batch, rng)
    norm = optax.tree.norm(gradients)
    finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    updates, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    rate = learning_rate(config, state.step)
    params = jax.tree.map(lambda p, u: p - rate * u, state.params, updates)
    params, opt_state = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old), (params, opt_state), (state.params, state.opt_state)
    )
    bad = 1 - finite.astype(jnp.int32)
    in_a_row = (state.skipped_in_a_row + 1) * bad
    state = TrainState(state.step + 1, params, opt_state, state.rng, state.skipped + bad, in_a_row)
    report = {"learning_rate": rate, "grad_norm": norm, "skipped": state.skipped, "skipped_in_a_row": in_a_row}
    one = finite.astype(jnp.float32)
    means = {name: Mean(jnp.where(finite, m.total, 0.0), m.weight * one) for name, m in metrics.items()}
    return state, {"means": means, "report": report}


def jit_step(
    config: Config,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    phase: Phase,
    mesh: jax.sharding.Mesh,
    shardings: TrainState,
) -> Any:
    """`(state, batch) -> (state, metrics)` of a phase as a jitted function: the one program that runs and is examined.

    `shardings` are the state's shardings, in and out; the state is donated.
    """
    step = functools.partial(train_step, config, objective, optimizer, phase.grad_accum_steps)
    out = (shardings, sharding.replicated(mesh))
    return jax.jit(step, donate_argnums=0, out_shardings=out, compiler_options=compiler_options(mesh))


def _gradients(
    objective: Objective, grad_accum_steps: int, params: Params, batch: Batch, rng: jax.Array
) -> tuple[jax.Array, Params, dict[str, Mean]]:
    """Loss, gradients and metrics of a batch, summed over its micro-batches by a scan, then over the devices."""
    value_and_grad = jax.value_and_grad(objective.loss, has_aux=True)
    normalizers = objective.normalizers(batch)
    if grad_accum_steps == 1:
        (loss, metrics), gradients = value_and_grad(params, batch, rng, normalizers)
        return loss, gradients, metrics

    def in_micro_batches(batch: Batch, params: Params, rng: jax.Array, normalizers: Normalizers) -> Any:
        def one(carry: Any, xs: tuple[jax.Array, Batch]) -> tuple[Any, None]:
            number, micro = xs
            found = value_and_grad(params, micro, jax.random.fold_in(rng, number), normalizers)
            return jax.tree.map(jnp.add, carry, found), None

        # Micro-batch i takes rows i, i + grad_accum_steps, ...: every device keeps the rows it has.
        micros = {k: jnp.swapaxes(v.reshape(-1, grad_accum_steps, *v.shape[1:]), 0, 1) for k, v in batch.items()}
        micros = {k: sharding.constrain(v, "accumulation", "batch") for k, v in micros.items()}
        first = {k: v[0] for k, v in micros.items()}
        shapes = jax.eval_shape(value_and_grad, params, first, rng, normalizers)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.scan(one, zeros, (jnp.arange(grad_accum_steps), micros))[0]

    (loss, metrics), gradients = sharding.over_data(in_micro_batches)(batch, params, rng, normalizers)
    return loss, gradients, metrics


def layout(
    config: Config, objective: Objective, devices: Sequence[jax.Device] | None = None
) -> tuple[jax.sharding.Mesh, tuple[Phase, ...]]:
    """The mesh over `devices` (all present ones if None) and the phases of a run.

    UserError where devices, model, batches and micro-batches do not divide.
    """
    mesh, phases = sharding.make_mesh(config.mesh, devices), plan(config)
    sharding.check_heads(mesh, config.model.num_heads)
    sharding.check_parameters(objective.logical_axes, jax.eval_shape(objective.init, jax.random.PRNGKey(0)), mesh)
    for phase in phases:
        sharding.check_batch(mesh, phase.batch_size, phase.grad_accum_steps)
    sharding.check_batch(mesh, config.evaluate.batch_size, name="config.evaluate.batch_size")
    return mesh, phases
