"""The interface of a training objective (pure functions over parameter trees), and the inputs of its constructor."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from bert_jax.config import ComputeConfig, DistillationConfig, EncoderConfig, ReplacedTokensConfig
from bert_jax.models import Head
from bert_jax.objectives.losses import Mean

Params = Any
Batch = dict[str, Any]  # batches/pipeline.py documents keys, dtypes and shapes
Normalizers = dict[str, jax.Array]
LossAndMetrics = tuple[jax.Array, dict[str, Mean]]  # the pair that `jax.value_and_grad(has_aux=True)` needs


class Rngs(NamedTuple):
    """The random keys of a call of a loss; an evaluation has no dropout, but may sample."""

    dropout: jax.Array | None  # None: no dropout
    sampling: jax.Array  # key for samples of the objective, such as the replaced tokens of ELECTRA


def training_rngs(rng: jax.Array) -> Rngs:
    """Return the dropout and sampling keys of a training step from its key."""
    return Rngs(rng, jax.random.fold_in(rng, 1 << 20))


class WholeBatchLoss(NamedTuple):
    """The two steps of a loss that compares each example with all other examples of the batch.

    The two steps let micro-batches share the loss of the whole batch (cached_vectors.py).

    Attributes:
        represent: function (params, frozen, micro_batch, rngs) -> vectors of the examples, float32 `[examples, texts,
            ...]`
        loss: function (params, vectors of all examples, batch, normalizers) -> (float32 scalar, metrics as Means)
    """

    represent: Callable[[Params, Params, Batch, Rngs], jax.Array]
    loss: Callable[[Params, jax.Array, Batch, Normalizers], LossAndMetrics]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """A loss, and the facts about its parameters that the trainer needs.

    The function `loss` returns the contribution of a micro-batch to the loss of the batch. The contributions of all
    micro-batches add up exactly to the loss of the batch, unless the objective has a `whole_batch_loss`.

    Attributes:
        init: function from a random key to the initial parameters, float32
        normalizers: function from a batch to the divisor of each loss term, a float32 scalar for the whole batch
        loss: function (params, frozen, micro_batch, rngs, normalizers) -> (float32 scalar, metrics as Means)
        shapes: a tree like the parameters, with a jax.ShapeDtypeStruct for each leaf
        logical_axes: a tree like the parameters, with a tuple of axis names for each leaf (parallel/sharding.py)
        sections: a tree like the parameters, with "embeddings", "layers", ... for each leaf (models.Model)
        flops: function (seq_len, index of a phase) -> model FLOPs of training on one sequence of the phase
        num_heads: number of attention heads, which must be a multiple of mesh.tensor
        frozen_axes: logical axes of parameters that are not trained, such as a teacher's; () if all are trained
        init_frozen: function from a random key to the parameters that are not trained, in the structure of
            `frozen_axes`
        loss_weights: function from a step to the loss weights that change during the training; these weights join the
            normalizers
        whole_batch_loss: the two steps of `loss`, if the loss of an example depends on the other examples of the batch
        project: function from updated parameters to the nearest allowed parameters, applied after each update
        phases: index of a phase -> objective of the phase, if it differs from the run's objective; all objectives train
            the run's parameters
        evaluated_phases: index of a phase -> objective that evaluations measure, if it differs from the run's objective
        left_to_right_fraction: fraction of the sequences of a batch that a hybrid objective trains left to right; its
            functions read the two batches of `hybrid.split_batch`. 0: the objective is not a hybrid
    """

    init: Callable[[jax.Array], Params]
    normalizers: Callable[[Batch], Normalizers]
    loss: Callable[[Params, Params, Batch, Rngs, Normalizers], LossAndMetrics]
    shapes: Any
    logical_axes: Any
    sections: Any
    flops: Callable[[int, int], float]
    num_heads: int
    frozen_axes: Any = ()
    init_frozen: Callable[[jax.Array], Params] = lambda rng: ()
    loss_weights: Callable[[jax.Array], dict[str, jax.Array]] = lambda step: {}
    whole_batch_loss: WholeBatchLoss | None = None
    project: Callable[[Params], Params] = lambda params: params
    phases: Mapping[int, "Objective"] = dataclasses.field(default_factory=dict)
    evaluated_phases: Mapping[int, "Objective"] = dataclasses.field(default_factory=dict)
    left_to_right_fraction: float = 0.0

    def of_phase(self, index: int) -> "Objective":
        """Return the objective of the phase `index` of `config.train.phases`."""
        return self.phases.get(index, self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ingredients:
    """The inputs for the constructors of pretraining objectives; a constructor reads the inputs that it needs."""

    model: EncoderConfig
    compute: ComputeConfig
    sentence_pairs: str  # a row of SENTENCE_PAIRS
    packing: int  # maximum number of examples in a sequence
    z_loss: float  # weight of the squared log of the softmax normalizer
    mask_rates: tuple[float, ...]  # mean fraction of the tokens to predict, by phase
    replaced_tokens: ReplacedTokensConfig
    distillation: DistillationConfig
    teacher: EncoderConfig | None  # architecture of the frozen model that a distillation reads
    has_init_weights: bool  # whether the run starts from trained weights


class ModelAndAuxiliary(NamedTuple):
    """The parameters of a run's model, and of an auxiliary model; the tree of the model may have further entries."""

    model: Params
    auxiliary: Params


class EmbeddingSharing(NamedTuple):
    """The functions that join and split the parameters of two models in a run, with or without shared embeddings.

    Attributes:
        stored: function from a tree like the parameters of the auxiliary model to the part that the tree of a run
            stores
        begin: function (parameters of the model, random parameters of the auxiliary model) -> initial parameters of the
            auxiliary model
        join: function (parameters of the model, parameters of the auxiliary model) -> tree of the run
        split: function from the tree of a run to the parameters of both models; the inverse of `join`, but for rounding
    """

    stored: Callable[[Any], Any]
    begin: Callable[[Params, Params], Params]
    join: Callable[[Params, Params], Params]
    split: Callable[[Params], ModelAndAuxiliary]


class AuxiliaryModel(NamedTuple):
    """An auxiliary model that a run trains, such as ELECTRA's generator, with parameters in the run's tree.

    Attributes:
        init_from: a directory of initial weights; None: the auxiliary model in the run's `init_from`, or random
            weights if the run has no `init_from` with this model
    """

    config: EncoderConfig
    heads: tuple[Head, ...]
    sharing: EmbeddingSharing
    init_from: str | None
