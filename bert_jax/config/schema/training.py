"""Steps, batches and phases; the update; devices; what is measured, saved and watched."""

import dataclasses

from bert_jax.config.schema.field import (
    ABOVE_0,
    ABOVE_0_BELOW_1,
    ABOVE_0_TO_1,
    AT_LEAST_0,
    AT_LEAST_1,
    FROM_0_BELOW_1,
    FROM_0_TO_1,
    field,
)


@dataclasses.dataclass(frozen=True)
class PhaseConfig:
    """One stretch of the run; None takes the value of `train`, `optimizer` or `data`."""

    seq_len: int = field(128, "tokens per sequence", AT_LEAST_1)
    fraction: float = field(1.0, "fraction of train.steps", FROM_0_TO_1)
    batch_size: int | None = field(None, "sequences per step; None: train.batch_size", AT_LEAST_1)
    grad_accum_steps: int | None = field(None, "micro-batches per step; None: train.grad_accum_steps", AT_LEAST_1)
    peak_learning_rate: float | None = field(
        None, "peak of a schedule of this phase's own; None: the run's schedule continues", AT_LEAST_0
    )
    warmup_fraction: float = field(0.0, "warmup as a fraction of this phase's steps, with its own peak", FROM_0_TO_1)
    warmup_steps: int | None = field(None, "warmup in steps; None: warmup_fraction", AT_LEAST_0)
    mask_probability: float | None = field(
        None, "fraction of the tokens to predict; None: data.mask_probability. Evaluation has 15 %", ABOVE_0_TO_1
    )
    mask_probability_end: float | None = field(
        None,
        "fraction that mask_probability changes to, linearly, by the end of the phase; None: it stays",
        ABOVE_0_TO_1,
    )
    mask_token_fraction: float | None = field(
        None, "fraction of the predicted tokens replaced by [MASK]; None: data.mask_token_fraction", FROM_0_TO_1
    )
    random_token_fraction: float | None = field(
        None, "fraction replaced by a random token; None: data.random_token_fraction", FROM_0_TO_1
    )


@dataclasses.dataclass(frozen=True)
class FinetuneTrainConfig:
    """How much at a time."""

    batch_size: int = field(256, "sequences per step, over all devices and hosts", AT_LEAST_1)
    grad_accum_steps: int = field(1, "micro-batches that a step is computed in", AT_LEAST_1)
    log_every: int = field(100, "steps between two lines of metrics", AT_LEAST_1)
    tracker: str | None = field(
        None,
        "service that gets the metrics beside TensorBoard; None: none",
        table="bert_jax.training.trackers.services.TRACKERS",
    )
    max_skipped_steps: int = field(
        20, "consecutive steps with a loss or gradient that is not finite, after which the run stops", AT_LEAST_1
    )


@dataclasses.dataclass(frozen=True)
class TrainConfig(FinetuneTrainConfig):
    """How long, and how much at a time."""

    steps: int = field(1_000_000, "optimizer steps of the whole run", AT_LEAST_1)
    phases: tuple[PhaseConfig, ...] = field((PhaseConfig(),), "phases in order; their fractions add up to 1")
    plateau_steps: int | None = field(
        None,
        "steps after which a loss that is still at the unigram entropy is reported; None: the warmup and a twentieth "
        "of the run, at least 300 steps",
        AT_LEAST_1,
    )
    z_loss: float = field(
        0.0, "weight of the squared log of the masked tokens' softmax normalizer; PaLM has 1e-4", AT_LEAST_0
    )


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The update: optimizer, warmup and decay."""

    name: str = field("adamw", "optimizer", table="bert_jax.training.optimizers.OPTIMIZERS")
    peak_learning_rate: float = field(1e-4, "learning rate at the end of warmup", AT_LEAST_0)
    warmup_fraction: float = field(0.01, "warmup as a fraction of the steps", FROM_0_TO_1)
    warmup_steps: int | None = field(None, "warmup in steps; None: warmup_fraction", AT_LEAST_0)
    schedule: str = field("bert", "learning-rate schedule", table="bert_jax.training.schedules.SCHEDULES")
    decay_power: float = field(
        1.0, "power of the decay: 1 is linear; 0.5 in NVIDIA's LAMB, and 1 - sqrt in warmup_stable_decay", AT_LEAST_0
    )
    decay_fraction: float = field(
        0.2, "warmup_stable_decay: fraction of the steps, at the end, in which the rate falls", FROM_0_TO_1
    )
    beta1: float = field(0.9, "decay of the first moment", FROM_0_BELOW_1)
    beta2: float = field(0.999, "decay of the second moment", FROM_0_BELOW_1)
    epsilon: float = field(1e-6, "constant added to the root of the second moment", ABOVE_0)
    muon_learning_rate: float = field(
        0.02, "muon: peak for the matrices of the blocks, scaled by the schedule as peak_learning_rate is", AT_LEAST_0
    )
    momentum: float = field(0.95, "muon: decay of the momentum that is orthogonalized", FROM_0_BELOW_1)
    nesterov: bool = field(True, "muon: Nesterov momentum")
    weight_decay: float = field(0.01, "decoupled weight decay; norms and biases are exempt", AT_LEAST_0)
    bias_correction: bool = field(True, "Adam's bias correction; the original BERT has none")
    clip_norm: float | None = field(1.0, "maximum global norm of the gradient; None: no clipping", ABOVE_0)
    layer_decay: float = field(
        1.0, "learning rate of a layer relative to the next one up; ELECTRA fine-tunes with 0.8", ABOVE_0_TO_1
    )
    freeze_encoder: bool = field(False, "train the heads alone")
    ema_decay: float | None = field(
        None,
        "decay of a moving average of the weights, which is evaluated and exported; None: no average",
        ABOVE_0_BELOW_1,
    )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis; one of them may be -1, which takes the rest."""

    data: int = field(-1, "data-parallel copies of the model; -1: the remaining devices")
    fsdp: int = field(1, "shards of parameters and optimizer state")
    tensor: int = field(1, "shards of heads, MLP and vocabulary")


@dataclasses.dataclass(frozen=True)
class FinetuneEvaluateConfig:
    """Evaluation on the dev sets during training."""

    every: int | None = field(None, "steps between two evaluations; None: after each epoch", AT_LEAST_1)
    batch_size: int = field(64, "sequences per evaluation step", AT_LEAST_1)


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Held-out evaluation during training."""

    every: int | None = field(10_000, "steps between two evaluations; None: only at the end", AT_LEAST_1)
    batch_size: int | None = field(
        None,
        "sequences per evaluation step; None: as many as have 32,768 tokens on each device, at most 256 in all, but at "
        "least one a device",
        AT_LEAST_1,
    )
    num_sequences: int = field(10_000, "sequences of the held-out documents, at most one epoch of them", AT_LEAST_1)
    pairs: str | None = field(
        None,
        "minimal pairs that evaluations score too (docs/score.md): a file, a directory, or zorro_small, which comes "
        "with the package; None: none",
    )
    num_pairs: int = field(230, "number of these pairs, spread over the paradigms", AT_LEAST_1)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """What survives."""

    every: int | None = field(
        1_000, "steps between two checkpoints; None: only at the end, in fine-tuning after each epoch", AT_LEAST_1
    )
    max_time_fraction: float | None = field(
        0.01,
        "maximum fraction of the time for extra checkpoints between these steps, every 10 s at most; the newest is "
        "kept; None: no extra checkpoints",
        ABOVE_0_TO_1,
    )
    keep: int = field(3, "number of newest checkpoints of `every` to keep; without `every`, of all", AT_LEAST_1)
    keep_period: int | None = field(
        None, "checkpoints at multiples of this step are kept forever; None: none are", AT_LEAST_1
    )


@dataclasses.dataclass(frozen=True)
class WatchdogConfig:
    """Seconds without progress after which a run ends with status 124 and says why; None: it waits forever."""

    start_seconds: float | None = field(
        1_800.0, "limit for finding all processes, for opening the data and for reading a checkpoint", ABOVE_0
    )
    compile_seconds: float | None = field(3_600.0, "limit for compiling one program", ABOVE_0)
    step_seconds: float | None = field(900.0, "limit for one step, or one batch of an evaluation", ABOVE_0)
    save_seconds: float | None = field(1_800.0, "limit for writing one checkpoint", ABOVE_0)
