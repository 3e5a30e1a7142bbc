"""AdamW as BERT and as optax have it, LAMB, layer-wise rates, as optax transformations without the learning rate.

The caller multiplies by `-learning_rate(step)`: the schedule belongs to the run's step, not to the optimizer's count,
which does not advance when an update is skipped.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import OptimizerConfig

Tree = Any


def make_optimizer(config: OptimizerConfig, logical_axes: Tree) -> optax.GradientTransformation:
    """Clip, Adam, decoupled decay and, for LAMB, the trust ratio; the output still lacks the factor -learning_rate.

    `logical_axes` has the parameters' structure with a tuple of axis names a leaf. LayerNorms and biases are neither
    decayed nor given a trust ratio (google-research/bert and albert `exclude_from_weight_decay`).
    """
    decayed = decay_mask(logical_axes)
    chain = [optax.clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
    if config.bias_correction:
        chain.append(optax.scale_by_adam(config.beta1, config.beta2, config.epsilon))
    else:
        chain.append(scale_by_uncorrected_adam(config.beta1, config.beta2, config.epsilon))
    chain.append(optax.add_decayed_weights(config.weight_decay, mask=decayed))
    if config.name == "lamb":
        chain.append(scale_by_layer_trust_ratio(logical_axes, decayed))
    if config.layer_decay != 1.0 or config.freeze_encoder:
        chain.append(scale_by_depth(0.0 if config.freeze_encoder else 1.0, config.layer_decay))
    return optax.chain(*chain)


def decay_mask(logical_axes: Tree) -> Tree:
    """True for the weights that decay: matrices and embeddings, not LayerNorms, not biases."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key not in ("bias", "scale"), logical_axes, is_leaf=_is_axes
    )


class UncorrectedAdamState(NamedTuple):
    """First and second moments, structured like the parameters, float32."""

    mu: Tree
    nu: Tree


def scale_by_uncorrected_adam(beta1: float, beta2: float, epsilon: float) -> optax.GradientTransformation:
    """Adam as google-research/bert's AdamWeightDecayOptimizer: m / (sqrt(v) + epsilon), no bias correction."""

    def init(params: Tree) -> UncorrectedAdamState:
        return UncorrectedAdamState(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))

    def update(grads: Tree, state: UncorrectedAdamState, params: Tree = None) -> tuple[Tree, UncorrectedAdamState]:
        del params
        mu = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state.nu, grads)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu)
        return updates, UncorrectedAdamState(mu, nu)

    return optax.GradientTransformation(init, update)


def scale_by_layer_trust_ratio(logical_axes: Tree, applies: Tree) -> optax.GradientTransformation:
    """LAMB's |parameter| / |update| (You et al. 2020), one ratio a layer where layers are stacked on a 'layers' axis.

    A ratio is 1 where `applies` is False, and where either norm is zero.
    """

    def scale(axes: tuple[str, ...], apply: bool, update: jax.Array, param: jax.Array) -> jax.Array:
        if not apply:
            return update
        within = tuple(i for i, name in enumerate(axes) if name != "layers")
        param_norm, update_norm = _norm(param, within), _norm(update, within)
        ratio = jnp.where((param_norm > 0) & (update_norm > 0), param_norm / jnp.maximum(update_norm, 1e-30), 1.0)
        return update * ratio

    def update(updates: Tree, state: optax.EmptyState, params: Tree = None) -> tuple[Tree, optax.EmptyState]:
        return jax.tree.map(scale, logical_axes, applies, updates, params, is_leaf=_is_axes), state

    init: Callable[[Tree], optax.EmptyState] = lambda params: optax.EmptyState()  # noqa: E731
    return optax.GradientTransformation(init, update)


def scale_by_depth(encoder: float, decay: float) -> optax.GradientTransformation:
    """Heads keep their updates; the encoder's are multiplied by `encoder`, and by `decay` for each step down from them.

    As in google-research/electra's optimization.py, where the heads lie two steps above the last layer: of L layers the
    last has decay^2, the first decay^(L + 1), the embeddings decay^(L + 2).
    """

    def scale(layers: int, path: Any, update: jax.Array) -> jax.Array:
        if path[0].key != "encoder":
            return update
        if path[1].key != "layers":
            return update * (encoder * decay ** (layers + 2))
        depth = layers + 1 - jnp.arange(update.shape[0], dtype=jnp.float32)
        return update * (encoder * decay**depth).reshape(-1, *(1,) * (update.ndim - 1))

    def update(updates: Tree, state: optax.EmptyState, params: Tree = None) -> tuple[Tree, optax.EmptyState]:
        layers = len(jax.tree.leaves(updates["encoder"]["layers"])[0])
        return jax.tree_util.tree_map_with_path(functools.partial(scale, layers), updates), state

    init: Callable[[Tree], optax.EmptyState] = lambda params: optax.EmptyState()  # noqa: E731
    return optax.GradientTransformation(init, update)


def _norm(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True))


def _is_axes(x: Any) -> bool:
    return isinstance(x, tuple) and all(isinstance(name, str) for name in x)
