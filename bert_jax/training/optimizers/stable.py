"""StableAdamW: AdamW whose rate falls where the second moment lags behind the gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import OptimizerConfig
from bert_jax.training.optimizers.adam import scale_by_configured_adam
from bert_jax.training.optimizers.parameters import ParamInfo, Rate, Tree, axes_within_layer, is_axes


def stable_adamw(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """AdamW with update clipping (Wortsman et al. 2023, algorithm 2): no gradient clipping is needed.

    The update of a parameter, decay included, is divided by max(1, RMS), where RMS is the root of the mean of
    gradient^2 / max(second moment, epsilon^2) over the parameter, of each layer by itself where layers are stacked.
    """
    adam = scale_by_configured_adam(config)

    def update(gradients: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        updates, state = adam.update(gradients, state, params)
        second = optax.tree.bias_correction(state.nu, config.beta2, state.count) if config.bias_correction else state.nu

        def clipped(
            axes: tuple[str, ...], decayed: bool, x: jax.Array, gradient: jax.Array, moment: jax.Array, param: jax.Array
        ) -> jax.Array:
            ratio = jnp.square(gradient) / jnp.maximum(moment, max(config.epsilon**2, 1e-30))
            rms = jnp.sqrt(jnp.mean(ratio, axis=axes_within_layer(axes), keepdims=True))
            return (x + (config.weight_decay if decayed else 0.0) * param) / jnp.maximum(1.0, rms)

        trees = (info.logical_axes, info.decayed, updates, gradients, second, params)
        return jax.tree.map(clipped, *trees, is_leaf=is_axes), state

    return optax.chain(optax.GradientTransformation(adam.init, update), optax.scale_by_learning_rate(learning_rate))
