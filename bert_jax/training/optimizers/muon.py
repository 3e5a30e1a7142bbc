"""Muon for the matrices of the blocks, Adam for all else."""

import math

import jax
import optax
from optax import contrib

from bert_jax.config import OptimizerConfig
from bert_jax.errors import UserError
from bert_jax.training.optimizers.adam import scale_by_configured_adam
from bert_jax.training.optimizers.parameters import ParamInfo, Rate, Tree

LAYERS_INPUTS_OUTPUTS = contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)  # the first is a batch axis


def muon(learning_rate: Rate, config: OptimizerConfig, info: ParamInfo) -> optax.GradientTransformation:
    """Momentum orthogonalized by Newton-Schulz (Jordan et al. 2024), AdamW for tables, vectors, embeddings and heads.

    As `optax.contrib.muon` on a model whose blocks are not stacked: each matrix of each layer is orthogonalized by
    itself, and its update is multiplied by sqrt(max(1, outputs / inputs)). Weight decay is decoupled, each parameter's
    with its own rate.

    Raises:
        UserError: `config.peak_learning_rate` is 0, so that the schedule has no shape to follow.
    """
    if not config.peak_learning_rate:
        raise UserError(
            "config.optimizer.peak_learning_rate=0: muon_learning_rate follows its schedule; set it above 0"
        )
    labels = jax.tree.map(lambda linear: "muon" if linear else "adam", info.linear)
    # Where Adam is at work the tree has optax's mark of an absent parameter, as the gradients that Muon is given.
    numbers = jax.tree.map(lambda linear: LAYERS_INPUTS_OUTPUTS if linear else optax.MaskedNode(), info.linear)
    orthogonalized = contrib.scale_by_muon(
        beta=config.momentum, nesterov=config.nesterov, weight_dimension_numbers=lambda _: numbers
    )
    matrices = optax.chain(orthogonalized, optax.stateless(_scale_by_shape))
    ratio = config.muon_learning_rate / config.peak_learning_rate
    return optax.chain(
        optax.partition({"muon": matrices, "adam": scale_by_configured_adam(config)}, labels),
        optax.add_decayed_weights(config.weight_decay, mask=info.decayed),
        optax.stateless(lambda updates, params: _scale(updates, info.linear, ratio)),
        optax.scale_by_learning_rate(learning_rate),
    )


def _scale_by_shape(updates: Tree, params: Tree) -> Tree:
    return jax.tree.map(lambda x: x * math.sqrt(max(1.0, x.shape[2] / x.shape[1])), updates)


def _scale(updates: Tree, linear: Tree, ratio: float) -> Tree:
    return jax.tree.map(lambda is_linear, x: x * ratio if is_linear else x, linear, updates)
