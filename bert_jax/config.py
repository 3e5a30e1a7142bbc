"""Every knob, its default and its meaning; a `ConfigDict` from a recipe becomes one frozen `Config`.

A recipe (`configs/NAME.py`) calls `default_config()`, changes what differs and returns it. `resolve` checks the
result against the dataclasses below, so that an unknown key or a wrong type is refused by name.
"""

import dataclasses
import json
import types
import typing
from typing import Any

import ml_collections

from bert_jax.errors import UserError, did_you_mean


def knob(default: Any, meaning: str) -> Any:
    """A dataclass field with its one-line meaning, which `--help` and the documentation print."""
    return dataclasses.field(default=default, metadata={"meaning": meaning})


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The architecture alone: with the weights, all that an export needs."""

    vocab_size: int = knob(0, "tokens in the vocabulary; 0 takes the corpus's")
    hidden_size: int = knob(768, "width of the residual stream")
    num_layers: int = knob(12, "transformer blocks")
    num_heads: int = knob(12, "attention heads; must divide hidden_size")
    mlp_size: int = knob(3072, "inner width of the feed-forward block")
    max_positions: int = knob(512, "learned position embeddings: the longest row the model can read")
    num_token_types: int = knob(2, "segments: 2 for sentence pairs")
    activation: str = knob("gelu", "'gelu' (erf, Hugging Face's BERT) or 'gelu_tanh' (Google's BERT since 2019)")
    layer_norm_epsilon: float = knob(1e-12, "added to the variance under the root")
    dropout: float = knob(0.1, "after the embeddings and on both sublayer outputs")
    attention_dropout: float = knob(0.1, "on the attention probabilities")
    initializer_range: float = knob(0.02, "standard deviation of the truncated normal at the start")


@dataclasses.dataclass(frozen=True)
class ComputeConfig:
    """How the architecture is computed; changes speed and rounding, never what is learned."""

    dtype: str = knob("float32", "of matrix products: 'float32' or 'bfloat16' (parameters stay float32)")
    scan_layers: bool = knob(True, "compile one block and scan it over the layers; False unrolls them")
    remat: bool = knob(False, "recompute each block in the backward pass: less memory, a third more work")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """From the prepared corpus to rows."""

    corpus: str = knob("", "directory made by `prepare`")
    next_sentence: bool = knob(True, "rows are sentence pairs, half of them random; False: one segment, no NSP")
    short_probability: float = knob(0.1, "share of rows whose target length is drawn at random")
    mask_probability: float = knob(0.15, "share of a row's tokens to predict")
    mask_token_share: float = knob(0.8, "of those, replaced by [MASK]")
    random_token_share: float = knob(0.1, "of those, replaced by a random token; the rest keep theirs")
    threads: int = knob(2, "threads that build batches")
    prefetch: int = knob(4, "batches built ahead of the step")


@dataclasses.dataclass(frozen=True)
class PhaseConfig:
    """One stretch of the run at one sequence length; 0 takes the value of `train` or `optimizer`."""

    length: int = knob(128, "tokens in a row")
    share: float = knob(1.0, "of train.steps")
    batch_size: int = knob(0, "rows a step")
    accumulation: int = knob(0, "micro-batches a step")
    peak_learning_rate: float = knob(0.0, "if set, the schedule starts afresh in this phase")
    warmup_share: float = knob(0.0, "of this phase's steps; only with its own peak_learning_rate")


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How long, how much at a time."""

    steps: int = knob(1_000_000, "optimizer steps of the whole run")
    batch_size: int = knob(256, "rows a step, over all devices and hosts")
    accumulation: int = knob(1, "micro-batches that a step is computed in")
    phases: tuple[PhaseConfig, ...] = knob((PhaseConfig(),), "in order; the shares add up to 1")
    log_every: int = knob(100, "steps between two lines of metrics")
    max_bad_steps: int = knob(20, "skipped steps in a row (loss or gradient not finite) that stop the run")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW or LAMB, warmup and decay."""

    name: str = knob("adamw", "'adamw' or 'lamb'")
    peak_learning_rate: float = knob(1e-4, "at the end of warmup")
    warmup_share: float = knob(0.01, "of train.steps")
    schedule: str = knob("bert", "'bert': decay counts from step 0, warmup replaces it; 'optax': from the peak")
    decay_power: float = knob(1.0, "1: linear to zero; NVIDIA's LAMB takes 0.5")
    beta1: float = knob(0.9, "decay of the first moment")
    beta2: float = knob(0.999, "decay of the second moment")
    epsilon: float = knob(1e-6, "added outside the root")
    weight_decay: float = knob(0.01, "decoupled; LayerNorms and biases are exempt")
    bias_correction: bool = knob(True, "False is the original BERT's Adam")
    clip_norm: float = knob(1.0, "of the global gradient norm; 0: no clipping")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis; one of them may be -1, which takes what is left."""

    data: int = knob(-1, "copies of the model")
    fsdp: int = knob(1, "shards of parameters and optimizer state")
    tensor: int = knob(1, "shards of heads, feed-forward and vocabulary")


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Held-out evaluation during training."""

    every: int = knob(10_000, "steps between two evaluations")
    rows: int = knob(10_000, "rows of the held-out documents, at most one epoch of them")
    batch_size: int = knob(256, "rows an evaluation step")


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """What survives."""

    every: int = knob(1_000, "steps between two checkpoints")
    keep: int = knob(3, "newest checkpoints to keep")
    keep_period: int = knob(0, "also keep every checkpoint at a multiple of this step, for ever; 0: none")


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole run."""

    seed: int = knob(0, "of the parameters, the rows and the dropout")
    model: EncoderConfig = knob(EncoderConfig(), "architecture")
    compute: ComputeConfig = knob(ComputeConfig(), "precision and compilation")
    data: DataConfig = knob(DataConfig(), "rows")
    train: TrainConfig = knob(TrainConfig(), "steps and phases")
    optimizer: OptimizerConfig = knob(OptimizerConfig(), "update")
    mesh: MeshConfig = knob(MeshConfig(), "devices")
    evaluate: EvaluateConfig = knob(EvaluateConfig(), "held-out rows")
    checkpoint: CheckpointConfig = knob(CheckpointConfig(), "saving")


# Keys that may differ between a run and its resumption: they move no number.
FREE_TO_CHANGE = ("compute.scan_layers", "data.corpus", "data.threads", "data.prefetch", "train.log_every", "train.max_bad_steps",
                  "evaluate", "checkpoint", "mesh")  # fmt: skip


def default_config() -> ml_collections.ConfigDict:
    """All defaults as a mutable `ConfigDict`, for a recipe to change."""
    return ml_collections.ConfigDict(dataclasses.asdict(Config()), convert_dict=True)


def phases(*rows: dict[str, Any]) -> tuple[ml_collections.ConfigDict, ...]:
    """`train.phases` from one dict a phase, each over the defaults of `PhaseConfig`."""
    return tuple(ml_collections.ConfigDict(dataclasses.asdict(PhaseConfig()) | row) for row in rows)
