"""A moving average of the parameters beside any optimizer, for evaluation and export."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.training.optimizers.parameters import Tree


class AveragedState(NamedTuple):
    """State of an optimizer, and the average of the parameters after each of its updates so far."""

    inner: optax.OptState
    updates: jax.Array  # int32, how many so far
    average: Tree  # float32, structured like the parameters; before the first update the parameters themselves


def with_average(inner: optax.GradientTransformation, decay: float) -> optax.GradientTransformation:
    """Return `inner` with an exponential moving average of the parameters in its state.

    As `optax.ema` with debias: the weights of all parameters so far add up to 1, and those before the first update have
    none. What is kept is the debiased average, not the sum that it is made of, so that it can be read as it is.
    """

    def init(params: Tree) -> AveragedState:
        # A copy: the state is donated, and no buffer may be donated twice.
        return AveragedState(inner.init(params), jnp.zeros((), jnp.int32), jax.tree.map(jnp.copy, params))

    def update(gradients: Tree, state: AveragedState, params: Tree = None) -> tuple[Tree, AveragedState]:
        updates, inner_state = inner.update(gradients, state.inner, params)
        count = state.updates + 1
        weight = (1.0 - decay) / -jnp.expm1(count * math.log(decay))  # 1 at the first update
        average = jax.tree.map(
            lambda old, new: old + weight * (new - old), state.average, optax.apply_updates(params, updates)
        )
        return updates, AveragedState(inner_state, count, average)

    return optax.GradientTransformation(init, update)
