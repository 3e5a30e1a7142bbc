"""Optimizers as rows of a table over optax: AdamW as BERT and as optax have it, LAMB, layer-wise rates.

A row takes the learning rate of one step, so `optax.X(learning_rate)` is a row as it is. The rate follows the step of
the run, not a count inside the optimizer: a skipped update leaves moments alone and still advances the schedule.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import OptimizerConfig

Tree = Any
Rate = jax.Array | float
Optimizer = Callable[[Rate], optax.GradientTransformation]  # the state has the same structure for every rate


class ParamInfo(NamedTuple):
    """What an optimizer may ask of each parameter; trees with the structure of the parameters."""

    logical_axes: Tree  # tuple of axis names; "layers" is the axis on which blocks are stacked
    sections: Tree  # "embeddings", "layers" or "heads"
    decayed: Tree  # whether weight decay applies: matrices and tables, not norms, not biases


def make_optimizer(config: OptimizerConfig, logical_axes: Tree, sections: Tree) -> Optimizer:
    """Return the optimizer of `config` with clipping before it and layer-wise rates after it."""
    info = ParamInfo(logical_axes, sections, decay_mask(logical_axes))
    row = OPTIMIZERS[config.name]

    def optimizer(learning_rate: Rate) -> optax.GradientTransformation:
        chain = [] if config.clip_norm is None else [optax.clip_by_global_norm(config.clip_norm)]
        chain.append(row(learning_rate, config, info))
        if config.layer_decay != 1.0 or config.freeze_encoder:
            chain.append(scale_by_depth(0.0 if config.freeze_encoder else 1.0, config.layer_decay, sections))
        return optax.chain(*chain)

    return optimizer


def adamw(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """Adam with decoupled weight decay; norms and biases do not decay (google-research/bert)."""
    return optax.chain(
        _adam(config),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        optax.scale_by_learning_rate(learning_rate),
    )


def lamb(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """AdamW with a trust ratio per layer (You et al. 2020); norms and biases have neither decay nor a ratio."""
    return optax.chain(
        _adam(config),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        scale_by_layer_trust_ratio(info.logical_axes, info.decayed),
        optax.scale_by_learning_rate(learning_rate),
    )


# (learning rate, config, info) -> optax transformation. `config.optimizer.name` chooses the row.
OPTIMIZERS: dict[str, Callable[[Rate, OptimizerConfig, ParamInfo], optax.GradientTransformation]] = {
    "adamw": adamw,
    "lamb": lamb,
}


def decay_mask(logical_axes: Tree) -> Tree:
    """Return True for the weights that decay: matrices and embedding tables, not norms, not biases."""
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
    """LAMB's |parameter| / |update| (You et al. 2020), one ratio per layer where layers are stacked.

    A ratio is 1 where `applies` is False, and where either norm is zero.
    """

    def scale(axes: tuple[str, ...], apply: bool, update: jax.Array, param: jax.Array) -> jax.Array:
        if not apply:
            return update
        within = tuple(i for i, name in enumerate(axes) if name != "layers")
        param_norm, update_norm = _norm(param, within), _norm(update, within)
        ratio = jnp.where((param_norm > 0) & (update_norm > 0), param_norm / jnp.maximum(update_norm, 1e-30), 1.0)
        return update * ratio

    def update(updates: Tree, params: Tree = None) -> Tree:
        return jax.tree.map(scale, logical_axes, applies, updates, params, is_leaf=_is_axes)

    return optax.stateless(update)


def scale_by_depth(encoder: float, decay: float, sections: Tree) -> optax.GradientTransformation:
    """Multiply the updates of the encoder by `encoder`, and by `decay` for each step down from the heads.

    As in google-research/electra's optimization.py, where the heads are two steps above the last layer: of L layers the
    last has decay^2, the first decay^(L + 1), the embeddings decay^(L + 2).
    """

    def update(updates: Tree, params: Tree = None) -> Tree:
        del params
        sizes = jax.tree.map(lambda section, x: len(x) if section == "layers" else 0, sections, updates)
        layers = max(jax.tree.leaves(sizes))

        def scale(section: str, x: jax.Array) -> jax.Array:
            if section == "heads":
                return x
            if section == "embeddings":
                return x * (encoder * decay ** (layers + 2))
            depth = layers + 1 - jnp.arange(len(x), dtype=jnp.float32)
            return x * (encoder * decay**depth).reshape(-1, *(1,) * (x.ndim - 1))

        return jax.tree.map(scale, sections, updates)

    return optax.stateless(update)


def _adam(config: OptimizerConfig) -> optax.GradientTransformation:
    adam = optax.scale_by_adam if config.bias_correction else scale_by_uncorrected_adam
    return adam(config.beta1, config.beta2, config.epsilon)


def _norm(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True))


def _is_axes(x: Any) -> bool:
    return isinstance(x, tuple) and all(isinstance(name, str) for name in x)
