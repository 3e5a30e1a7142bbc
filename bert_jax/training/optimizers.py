"""The table of optimizers, made of optax transformations.

A row of `OPTIMIZERS` is a function that makes an optimizer from a learning rate, so a row can be made of any
`optax.X(learning_rate)`. The rate depends on the step of the run, not on a count inside the optimizer. So a skipped
update does not change the moments, but advances the schedule. `make_optimizer` adds clipping, learning rates per layer,
and a moving average of the parameters to every optimizer. To add an optimizer, write a function (in a separate file if
it is long), and add a row to `OPTIMIZERS`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from bert_jax.config import OptimizerConfig
from bert_jax.errors import UserError
from bert_jax.parallel.sharding import is_logical_axes

Tree = Any
Rate = jax.Array | float


class ParamInfo(NamedTuple):
    """Properties of each parameter that optimizers need, as trees with the structure of the parameters."""

    logical_axes: Tree  # tuple of axis names of the parameter; "layers" is the axis on which blocks are stacked
    sections: Tree  # section of the parameter: "embeddings", "layers", "top", "heads" or "unused"
    decayed: Tree  # whether weight decay applies: for matrices and tables; not for norms, biases, unused parameters
    linear: Tree  # whether the parameter is the matrix of a linear map in a block, `[layers, inputs, outputs]`


def make_param_info(logical_axes: Tree, sections: Tree) -> ParamInfo:
    """Return the properties of parameters that follow from the logical axes and the sections of a model."""

    def is_linear(path: Any, axes: tuple[str, ...], section: str) -> bool:
        return section == "layers" and path[-1].key == "kernel" and len(axes) == 3

    decayed = jax.tree.map(lambda section, it: it and section != "unused", sections, weight_decay_mask(logical_axes))
    linear = jax.tree_util.tree_map_with_path(is_linear, logical_axes, sections, is_leaf=is_logical_axes)
    return ParamInfo(logical_axes, sections, decayed, linear)


NOT_DECAYED = ("bias", "scale", "log_temperature")  # last keys of the paths of biases, norms and a learned temperature


def weight_decay_mask(logical_axes: Tree) -> Tree:
    """Return a tree of booleans: True for matrices and embedding tables, which decay; False for all others.

    Norms, biases and a learned temperature do not decay.
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key not in NOT_DECAYED, logical_axes, is_leaf=is_logical_axes
    )


def indices_of_axes_within_layer(axis_names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the indices of the axes within a layer: all axes except "layers", along which blocks are stacked."""
    return tuple(i for i, name in enumerate(axis_names) if name != "layers")


def adamw(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """Return Adam with decoupled weight decay; norms and biases do not decay, as in google-research/bert."""
    return optax.chain(
        scale_by_configured_adam(config),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_by_configured_adam(config: OptimizerConfig) -> optax.GradientTransformation:
    """Return Adam with the moment decays, epsilon and bias correction of `config`, without a learning rate."""
    adam = optax.scale_by_adam if config.bias_correction else scale_by_uncorrected_adam
    return adam(config.beta1, config.beta2, config.epsilon)


class UncorrectedAdamState(NamedTuple):
    """The first and the second moments, float32 trees with the structure of the parameters."""

    mu: Tree
    nu: Tree


def scale_by_uncorrected_adam(beta1: float, beta2: float, epsilon: float) -> optax.GradientTransformation:
    """Return Adam as in google-research/bert: the update m / (sqrt(v) + epsilon), without bias correction."""

    def init(params: Tree) -> UncorrectedAdamState:
        return UncorrectedAdamState(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))

    def update(grads: Tree, state: UncorrectedAdamState, params: Tree = None) -> tuple[Tree, UncorrectedAdamState]:
        del params
        mu = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.mu, grads)
        nu = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state.nu, grads)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + epsilon), mu, nu)
        return updates, UncorrectedAdamState(mu, nu)

    return optax.GradientTransformation(init, update)


def lamb(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """Return LAMB (You 2020): AdamW with a trust ratio for each layer; norms and biases have no decay and no ratio."""
    return optax.chain(
        scale_by_configured_adam(config),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        scale_by_layer_trust_ratio(info.logical_axes, info.decayed),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_by_layer_trust_ratio(logical_axes: Tree, applies: Tree) -> optax.GradientTransformation:
    """Multiply updates by LAMB's trust ratio |parameter| / |update|, separately for each stacked layer.

    `applies` is a tree of booleans. The ratio is 1 if `applies` is False for the parameter, or if a norm is zero.
    """

    def scale(axes: tuple[str, ...], apply: bool, update: jax.Array, param: jax.Array) -> jax.Array:
        if not apply:
            return update
        within = indices_of_axes_within_layer(axes)
        param_norm, update_norm = _norm_over_axes(param, within), _norm_over_axes(update, within)
        ratio = jnp.where((param_norm > 0) & (update_norm > 0), param_norm / jnp.maximum(update_norm, 1e-30), 1.0)
        return update * ratio

    def update(updates: Tree, params: Tree = None) -> Tree:
        return jax.tree.map(scale, logical_axes, applies, updates, params, is_leaf=is_logical_axes)

    return optax.stateless(update)


def _norm_over_axes(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Return the Euclidean norm over the given axes; these axes have size 1 in the result."""
    return jnp.sqrt(jnp.sum(jnp.square(x), axis=axes, keepdims=True))


LAYERS_INPUTS_OUTPUTS = contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)  # axis 0 is a batch axis


def muon(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """Return Muon (Jordan et al. 2024) for the matrices of blocks, and AdamW for all other parameters.

    Muon orthogonalizes the momentum by Newton-Schulz iterations. The result equals `optax.contrib.muon` on a model
    whose blocks are not stacked: each matrix of each layer is orthogonalized separately, and its update is multiplied
    by sqrt(max(1, outputs / inputs)). Weight decay is decoupled, and multiplied by the learning rate of the parameter.

    Raises:
        UserError: `config.peak_learning_rate` is 0, but Muon's rate is a multiple of the scheduled rate.
    """
    if not config.peak_learning_rate:
        raise UserError(
            "config.optimizer.peak_learning_rate=0: muon_learning_rate follows its schedule; set it above 0"
        )
    labels = jax.tree.map(lambda linear: "muon" if linear else "adam", info.linear)
    # In the tree for Muon, the parameters of Adam are optax's `MaskedNode`, as in the gradients that Muon gets.
    dimension_numbers = jax.tree.map(
        lambda linear: LAYERS_INPUTS_OUTPUTS if linear else optax.MaskedNode(), info.linear
    )
    orthogonalized = contrib.scale_by_muon(
        beta=config.momentum, nesterov=config.nesterov, weight_dimension_numbers=lambda _: dimension_numbers
    )
    matrices = optax.chain(orthogonalized, optax.stateless(_scale_by_aspect_ratio))
    ratio = config.muon_learning_rate / config.peak_learning_rate
    return optax.chain(
        optax.partition({"muon": matrices, "adam": scale_by_configured_adam(config)}, labels),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        optax.stateless(lambda updates, params: _scale_linear_updates(updates, info.linear, ratio)),
        optax.scale_by_learning_rate(learning_rate),
    )


def _scale_by_aspect_ratio(updates: Tree, params: Tree) -> Tree:
    """Multiply matrices `[layers, inputs, outputs]` by sqrt(max(1, outputs / inputs))."""
    return jax.tree.map(lambda x: x * math.sqrt(max(1.0, x.shape[2] / x.shape[1])), updates)


def _scale_linear_updates(updates: Tree, linear: Tree, ratio: float) -> Tree:
    """Multiply the updates of linear maps by `ratio`; `linear` is a tree of booleans."""
    return jax.tree.map(lambda is_linear, x: x * ratio if is_linear else x, linear, updates)


def stable_adamw(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """Return StableAdamW: AdamW with update clipping, which needs no gradient clipping (Wortsman 2023, algorithm 2).

    The update of a parameter, including decay, is divided by max(1, RMS). RMS is the root of the mean of gradient^2 /
    max(second moment, epsilon^2) over the parameter, separately for each stacked layer.
    """
    adam = scale_by_configured_adam(config)

    def update(gradients: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        updates, state = adam.update(gradients, state, params)
        second = optax.tree.bias_correction(state.nu, config.beta2, state.count) if config.bias_correction else state.nu

        def clipped_update(
            axes: tuple[str, ...], decayed: bool, x: jax.Array, gradient: jax.Array, moment: jax.Array, param: jax.Array
        ) -> jax.Array:
            """Return the update `x` of a parameter with weight decay, divided by max(1, RMS)."""
            ratio = jnp.square(gradient) / jnp.maximum(moment, max(config.epsilon**2, 1e-30))
            rms = jnp.sqrt(jnp.mean(ratio, axis=indices_of_axes_within_layer(axes), keepdims=True))
            return (x + (config.weight_decay if decayed else 0.0) * param) / jnp.maximum(1.0, rms)

        trees = (info.logical_axes, info.decayed, updates, gradients, second, params)
        return jax.tree.map(clipped_update, *trees, is_leaf=is_logical_axes), state

    return optax.chain(optax.GradientTransformation(adam.init, update), optax.scale_by_learning_rate(learning_rate))


def scale_by_layer_depth(encoder_scale: float, decay: float, sections: Tree) -> optax.GradientTransformation:
    """Multiply the updates of the encoder by `encoder_scale`, and by a power of `decay` that grows with the depth.

    The depth is the distance from the heads. As in google-research/electra's optimization.py, the heads are two levels
    above the last layer. With L layers, the factor is decay^2 for the last layer, decay^(L + 1) for the first layer,
    and decay^(L + 2) for the embeddings. A norm after the last layer has the factor decay^1.
    """

    def update(updates: Tree, params: Tree = None) -> Tree:
        del params
        sizes = jax.tree.map(lambda section, x: len(x) if section == "layers" else 0, sections, updates)
        layers = max(jax.tree.leaves(sizes))

        def scale(section: str, x: jax.Array) -> jax.Array:
            if section == "heads":
                return x
            if section == "top":
                return x * (encoder_scale * decay)
            if section == "embeddings":
                return x * (encoder_scale * decay ** (layers + 2))
            depth = layers + 1 - jnp.arange(len(x), dtype=jnp.float32)
            return x * (encoder_scale * decay**depth).reshape(-1, *(1,) * (x.ndim - 1))

        return jax.tree.map(scale, sections, updates)

    return optax.stateless(update)


class AveragedState(NamedTuple):
    """The state of an optimizer, and the moving average of the parameters over the updates of the optimizer."""

    inner: optax.OptState
    updates: jax.Array  # number of updates so far, int32
    average: Tree  # average of the parameters, float32; before the first update, a copy of the parameters


def with_parameter_average(inner: optax.GradientTransformation, decay: float) -> optax.GradientTransformation:
    """Return `inner` with an exponential moving average of the parameters in its state.

    As in `optax.ema` with debias, the weights of the averaged parameters add up to 1, and the parameters before the
    first update have weight 0. The state holds the debiased average, so that readers of a checkpoint can use it
    directly.
    """

    def init(params: Tree) -> AveragedState:
        # The average is a copy, because the state is donated, and no buffer may be donated twice.
        return AveragedState(inner.init(params), jnp.zeros((), jnp.int32), jax.tree.map(jnp.copy, params))

    def update(gradients: Tree, state: AveragedState, params: Tree = None) -> tuple[Tree, AveragedState]:
        updates, inner_state = inner.update(gradients, state.inner, params)
        count = state.updates + 1
        weight = (1.0 - decay) / -jnp.expm1(count * math.log(decay))  # the weight is 1 at the first update
        average = jax.tree.map(
            lambda old, new: old + weight * (new - old), state.average, optax.apply_updates(params, updates)
        )
        return updates, AveragedState(inner_state, count, average)

    return optax.GradientTransformation(init, update)


Optimizer = Callable[[Rate], optax.GradientTransformation]  # the structure of the state does not depend on the rate

# (learning rate, config, info) -> optax transformation. `config.optimizer.name` chooses the row.
OPTIMIZERS: dict[str, Callable[[Rate, OptimizerConfig, ParamInfo], optax.GradientTransformation]] = {
    "adamw": adamw,
    "lamb": lamb,
    "muon": muon,
    "stable_adamw": stable_adamw,
}


def make_optimizer(
    config: OptimizerConfig, logical_axes: Tree, sections: Tree, weight_decay: float | None = None
) -> Optimizer:
    """Return the optimizer of `config`, with clipping, layer-wise learning rates and a moving average.

    `weight_decay` is the weight decay of a phase, in place of `config.weight_decay`; the state does not depend on the
    weight decay.
    """
    if weight_decay is not None:
        config = dataclasses.replace(config, weight_decay=weight_decay)
    info = make_param_info(logical_axes, sections)
    row = OPTIMIZERS[config.name]

    def optimizer(learning_rate: Rate) -> optax.GradientTransformation:
        chain = (
            []
            if config.clip_norm is None
            else [_clip_trained_gradients(config.clip_norm, config.freeze_encoder, sections)]
        )
        chain.append(row(learning_rate, config, info))
        if config.layer_decay != 1.0 or config.freeze_encoder:
            chain.append(scale_by_layer_depth(0.0 if config.freeze_encoder else 1.0, config.layer_decay, sections))
        chained = optax.chain(*chain)
        return chained if config.ema_decay is None else with_parameter_average(chained, config.ema_decay)

    return optimizer


def _clip_trained_gradients(norm: float, freeze_encoder: bool, sections: Tree) -> optax.GradientTransformation:
    """Return a transformation that clips gradients by their norm over the trained parameters; no state is needed."""
    clip = optax.clip_by_global_norm(norm)
    if not freeze_encoder:
        return clip
    clip_heads = optax.chain(scale_by_layer_depth(0.0, 1.0, sections), clip)
    return optax.stateless(lambda updates, params: clip_heads.update(updates, clip_heads.init(params), params)[0])
