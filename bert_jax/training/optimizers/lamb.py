"""LAMB: Adam with a trust ratio per layer."""

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import OptimizerConfig
from bert_jax.training.optimizers.adam import scale_by_configured_adam
from bert_jax.training.optimizers.parameters import ParamInfo, Rate, Tree, axes_within_layer, is_axes


def lamb(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """AdamW with a trust ratio per layer (You et al. 2020); norms and biases have neither decay nor a ratio."""
    return optax.chain(
        scale_by_configured_adam(config),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        scale_by_layer_trust_ratio(info.logical_axes, info.decayed),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_by_layer_trust_ratio(logical_axes: Tree, applies: Tree) -> optax.GradientTransformation:
    """LAMB's |parameter| / |update| (You et al. 2020), one ratio per layer where layers are stacked.

    A ratio is 1 where `applies` is False, and where either norm is zero.
    """

    def scale(axes: tuple[str, ...], apply: bool, update: jax.Array, param: jax.Array) -> jax.Array:
        if not apply:
            return update
        within = axes_within_layer(axes)
        param_norm, update_norm = _norm(param, within), _norm(update, within)
        ratio = jnp.where((param_norm > 0) & (update_norm > 0), param_norm / jnp.maximum(update_norm, 1e-30), 1.0)
        return update * ratio

    def update(updates: Tree, params: Tree = None) -> Tree:
        return jax.tree.map(scale, logical_axes, applies, updates, params, is_leaf=is_axes)

    return optax.stateless(update)


def _norm(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True))
