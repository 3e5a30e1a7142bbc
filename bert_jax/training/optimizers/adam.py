"""Adam as optax has it and as the original BERT has it, with decoupled weight decay."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from bert_jax.config import OptimizerConfig
from bert_jax.training.optimizers.parameters import ParamInfo, Rate, Tree


def adamw(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """Adam with decoupled weight decay; norms and biases do not decay (google-research/bert)."""
    return optax.chain(
        scale_by_configured_adam(config),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_by_configured_adam(config: OptimizerConfig) -> optax.GradientTransformation:
    """Return Adam with the moments, epsilon and bias correction of `config`, without a learning rate."""
    adam = optax.scale_by_adam if config.bias_correction else scale_by_uncorrected_adam
    return adam(config.beta1, config.beta2, config.epsilon)


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
