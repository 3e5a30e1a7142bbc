"""The fields of a run's configuration, as frozen dataclasses: default, meaning, range, and what reads each.

`PretrainConfig` and `FinetuneConfig`, at the end, are the two roots. A field that may be None says what None means.
"""

import dataclasses

from bert_jax.config.encoder import ComputeConfig, EncoderConfig
from bert_jax.config.field import (
    ABOVE_0,
    ABOVE_0_BELOW_1,
    ABOVE_0_TO_1,
    AT_LEAST_0,
    AT_LEAST_1,
    FROM_0_BELOW_1,
    FROM_0_TO_1,
    ReadBy,
    field,
)

# What several fields need.
WITH_MASKS = ReadBy("objective", row_property="has_masks")
WITH_MUON = ReadBy("name", values=("muon",))
WITH_PEAK = ReadBy("peak_learning_rate", not_values=(None,))
WITH_TEACHER = ReadBy("teacher", not_values=(None, ""))


# From the prepared corpus to training sequences.
@dataclasses.dataclass(frozen=True)
class DataConfig:
    """From the prepared corpus to training sequences."""

    corpus: str | None = field(
        None,
        "directory made by `prepare`; several, separated by commas, or a glob pattern, are mixed; DIR@FINGERPRINT is a "
        "snapshot of one that has grown",
    )
    text: str | None = field(None, "inputs of `prepare`, separated by commas, in place of a corpus, for a first trial")
    tokenizer: str | None = field(None, "directory of the tokenizer of `text`; None: a WordPiece trained on it")
    snapshots: int | None = field(None, "snapshots to read in turn; None: 1, or more of a long `text`", AT_LEAST_1)
    weights: tuple[float, ...] | None = field(
        None, "sampling weight per corpus of a mixture; None: proportional to size, smoothed"
    )
    smoothing: float = field(
        1.0,
        "exponent of the sizes: 1 as they are, 0.7 as multilingual BERT, 0 all equal",
        FROM_0_TO_1,
        read_by=ReadBy("weights", values=(None,)),
    )
    max_epochs: int | None = field(
        None, "maximum times that an epoch of a mixture reads each of its corpora; None: no limit", AT_LEAST_1
    )
    sentence_pairs: str = field(
        "next_sentence",
        "how a sequence is built from sentences",
        table="bert_jax.batches.sentence_pairs.SENTENCE_PAIRS",
    )
    packing: int = field(1, "maximum number of examples packed into one sequence; 1: no packing", AT_LEAST_1)
    short_seq_probability: float = field(
        0.1,
        "fraction of pairs whose target length is drawn at random",
        FROM_0_TO_1,
        read_by=ReadBy("sentence_pairs", row_property="has_pairs"),
    )
    masking: str = field("token", "unit that is masked", table="bert_jax.batches.masking.MASKINGS", read_by=WITH_MASKS)
    mask_probability: float = field(
        0.15,
        "fraction of the tokens of a sequence to predict; evaluation has 15 %, 80-10-10",
        ABOVE_0_TO_1,
        read_by=WITH_MASKS,
        replaced_by_phase="mask_probability",
    )
    mask_token_fraction: float = field(
        0.8,
        "fraction of the predicted tokens replaced by [MASK]",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
        replaced_by_phase="mask_token_fraction",
    )
    random_token_fraction: float = field(
        0.1,
        "fraction of the predicted tokens replaced by a random token; the rest stay",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
        replaced_by_phase="random_token_fraction",
    )
    max_span_length: int | None = field(
        None,
        "maximum number of words masked together; None: as published, 3 for ngram, 10 for span",
        AT_LEAST_1,
        read_by=ReadBy("masking", values=("ngram", "span")),
    )
    span_end_probability: float = field(
        0.2,
        "probability that a span ends after each of its words",
        ABOVE_0_TO_1,
        read_by=ReadBy("masking", values=("span",)),
    )
    dupe_factor: int | None = field(
        None, "epochs after which the same sequences return, 10 in the original; None: never", AT_LEAST_1
    )
    num_threads: int = field(2, "threads that build batches", AT_LEAST_1)
    prefetch: int = field(4, "batches built ahead of the step", AT_LEAST_1)


# What single objectives read, a section each.
@dataclasses.dataclass(frozen=True)
class ReplacedTokensConfig:
    """The generator beside the encoder, for the objective of that name."""

    generator_size: float = field(
        0.25, "width of the generator's blocks relative to the model's; as many blocks, the same tables", ABOVE_0_TO_1
    )
    generator_from: str | None = field(
        None, "weights of the generator to start from; None: those beside init_from's, otherwise random ones"
    )
    weight: float = field(50.0, "weight of the replaced tokens' loss; that of the generator is 1", ABOVE_0)


@dataclasses.dataclass(frozen=True)
class DistillationConfig:
    """The teacher, and what is learned from it beside the masked tokens, whose weight is 1."""

    teacher: str | None = field(
        None, "directory of the model to learn from, of any family; `compile` also takes a preset such as base"
    )
    temperature: float = field(2.0, "temperature of both softmaxes where probabilities are compared", ABOVE_0)
    soft_weight: float = field(2.5, "weight of the teacher's probabilities; 5 against 2 as published", AT_LEAST_0)
    cosine_weight: float = field(
        0.5, "weight of the angle between the last hidden states; 1 against 2 as published; 0: none", AT_LEAST_0
    )
    hidden_weight: float = field(
        0.0,
        "weight of the squared difference of hidden states, layer by layer; of another width through a learned map",
        AT_LEAST_0,
    )
    attention_weight: float = field(
        0.0, "weight of the divergence of each head's attention, layer by layer; needs as many heads", AT_LEAST_0
    )
    copy_layers: bool = field(True, "start from layers of the teacher, evenly spaced; False: random weights")


# Steps, batches and phases; the update; devices; what is measured, saved and watched.
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
    warmup_fraction: float = field(
        0.0,
        "warmup as a fraction of this phase's steps, with its own peak",
        FROM_0_TO_1,
        read_by=WITH_PEAK,
        replaced_by="warmup_steps",
    )
    warmup_steps: int | None = field(None, "warmup in steps; None: warmup_fraction", AT_LEAST_0, read_by=WITH_PEAK)
    mask_probability: float | None = field(
        None,
        "fraction of the tokens to predict; None: data.mask_probability. Evaluation has 15 %",
        ABOVE_0_TO_1,
        read_by=WITH_MASKS,
    )
    mask_probability_end: float | None = field(
        None,
        "fraction that mask_probability changes to, linearly, by the end of the phase; None: it stays",
        ABOVE_0_TO_1,
        read_by=WITH_MASKS,
    )
    mask_token_fraction: float | None = field(
        None,
        "fraction of the predicted tokens replaced by [MASK]; None: data.mask_token_fraction",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
    )
    random_token_fraction: float | None = field(
        None, "fraction replaced by a random token; None: data.random_token_fraction", FROM_0_TO_1, read_by=WITH_MASKS
    )


@dataclasses.dataclass(frozen=True)
class FinetuneTrainConfig:
    """How much at a time."""

    batch_size: int = field(
        256, "sequences per step, over all devices and hosts", AT_LEAST_1, replaced_by_phase="batch_size"
    )
    grad_accum_steps: int = field(
        1, "micro-batches that a step is computed in", AT_LEAST_1, replaced_by_phase="grad_accum_steps"
    )
    log_every: int = field(100, "steps between two lines of metrics", AT_LEAST_1)
    tracker: str | None = field(
        None,
        "service that gets the metrics beside TensorBoard; None: none",
        table="bert_jax.training.trackers.TRACKERS",
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
    peak_learning_rate: float = field(
        1e-4,
        "learning rate at the end of warmup",
        AT_LEAST_0,
        replaced_by="task.learning_rates",
        replaced_by_phase="peak_learning_rate",
        still_read_by=WITH_MUON,
    )
    warmup_fraction: float = field(
        0.01,
        "warmup as a fraction of the steps",
        FROM_0_TO_1,
        replaced_by="warmup_steps",
        replaced_by_phase="peak_learning_rate",
    )
    warmup_steps: int | None = field(
        None, "warmup in steps; None: warmup_fraction", AT_LEAST_0, replaced_by_phase="peak_learning_rate"
    )
    schedule: str = field("bert", "learning-rate schedule", table="bert_jax.training.schedules.SCHEDULES")
    decay_power: float = field(
        1.0,
        "power of the decay: 1 is linear; 0.5 in NVIDIA's LAMB, and 1 - sqrt in warmup_stable_decay",
        AT_LEAST_0,
        read_by=ReadBy("schedule", values=("bert", "electra", "linear", "warmup_stable_decay")),
    )
    decay_fraction: float = field(
        0.2,
        "warmup_stable_decay: fraction of the steps, at the end, in which the rate falls",
        FROM_0_TO_1,
        read_by=ReadBy("schedule", values=("warmup_stable_decay",)),
    )
    beta1: float = field(0.9, "decay of the first moment", FROM_0_BELOW_1)
    beta2: float = field(0.999, "decay of the second moment", FROM_0_BELOW_1)
    epsilon: float = field(1e-6, "constant added to the root of the second moment", ABOVE_0)
    muon_learning_rate: float = field(
        0.02,
        "muon: peak for the matrices of the blocks, scaled by the schedule as peak_learning_rate is",
        AT_LEAST_0,
        read_by=WITH_MUON,
    )
    momentum: float = field(
        0.95, "muon: decay of the momentum that is orthogonalized", FROM_0_BELOW_1, read_by=WITH_MUON
    )
    nesterov: bool = field(True, "muon: Nesterov momentum", read_by=WITH_MUON)
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
    """Checkpoint frequency and retention."""

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


# The task to fine-tune on.
@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """A trace of some steps by jax.profiler, in the work directory; it changes no number."""

    steps: str | None = field(
        None, "steps to trace, as FIRST:END, counted from 0 and without END, such as 10:13; None: no trace"
    )


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """The task to fine-tune on, its files, and how the best of several trainings is chosen."""

    name: str | None = field(None, "task from bert_jax/tasks/table.py, such as mrpc or squad2, or custom")
    kind: str | None = field(None, "kind of a custom task", table="bert_jax.tasks.kinds.KINDS")
    data: str | None = field(None, "directory of the published files, plain or .gz; or tfds:NAME, tfds:NAME@DATA_DIR")
    train: str | None = field(None, "training file, relative to data or absolute; None: the published name")
    dev: str | None = field(None, "development file; None: the published name")
    test: str | None = field(None, "file to predict at the end; None: the published name")
    columns: str | None = field(None, "columns of a custom task: 'text=sentence1,text_pair=sentence2,label=gold'")
    labels: str | None = field(None, "labels of a custom task: 'no,yes'; None: those of the training file, sorted")
    metric: str | None = field(None, "metric that chooses the best checkpoint; None: the task's own")
    max_seq_len: int = field(128, "maximum tokens per sequence", AT_LEAST_1)
    buckets: tuple[int, ...] | None = field(
        None, "lengths that sequences are padded to, one program each; None: chosen from the data"
    )
    doc_stride: int = field(128, "tokens from one window of a long context to the next", AT_LEAST_1)
    max_query_length: int = field(64, "maximum tokens of a question; longer ones are cut and counted", AT_LEAST_1)
    max_answer_length: int = field(30, "maximum tokens of an answer", AT_LEAST_1)
    skip_unusable_answers: bool = field(
        False, "leave out training questions whose answers are not at their place, and count them; False: refuse them"
    )
    positive_from: float = field(4.0, "similarity: smallest label of a positive pair, in training")
    temperature: float = field(0.05, "similarity: temperature of the cosines", ABOVE_0)
    n_best: int = field(20, "number of answers kept per question", AT_LEAST_1)
    epochs: float = field(3.0, "passes over the training set", ABOVE_0)
    num_seeds: int = field(1, "trainings that differ only in the seed, from config.seed on", AT_LEAST_1)
    learning_rates: tuple[float, ...] | None = field(
        None, "learning rates to try, each with each seed; None: optimizer.peak_learning_rate"
    )
    patience: int | None = field(
        None, "evaluations without a new best after which a training stops early; None: never", AT_LEAST_1
    )
    dropout: float | None = field(
        None, "dropout rate of encoder and head; None: as the weights were trained with", FROM_0_BELOW_1
    )
    teacher: str | None = field(None, "directory of a model fine-tuned on the task, to learn from beside the labels")
    soft_fraction: float = field(
        0.5, "fraction of the loss that compares with the teacher's outputs", FROM_0_TO_1, read_by=WITH_TEACHER
    )
    soft_temperature: float = field(
        2.0, "temperature of both softmaxes where these are probabilities", ABOVE_0, read_by=WITH_TEACHER
    )
    bilstm: bool = field(
        False, "add two bidirectional LSTM layers between encoder and head; needs model.family=research (BERT, table 5)"
    )
    random_weights: bool = field(
        False, "start from random weights, with the architecture and tokenizer of init_from (a baseline)"
    )


# The roots: a whole run of pretraining or of fine-tuning.
@dataclasses.dataclass(frozen=True)
class _SharedConfig:
    """What pretraining and fine-tuning both read."""

    seed: int = field(0, "seed of parameters, sequences and dropout", AT_LEAST_0)
    init_from: str | None = field(
        None, "weights to start from: an export, a work directory, or a Hugging Face directory; None: random ones"
    )
    compute: ComputeConfig = field(ComputeConfig(), "precision and compilation")
    optimizer: OptimizerConfig = field(OptimizerConfig(), "update")
    mesh: MeshConfig = field(MeshConfig(), "devices")
    checkpoint: CheckpointConfig = field(CheckpointConfig(), "saving")
    watchdog: WatchdogConfig = field(WatchdogConfig(), "hangs and lost processes")
    profile: ProfileConfig = field(ProfileConfig(), "trace of some steps")


@dataclasses.dataclass(frozen=True)
class PretrainConfig(_SharedConfig):
    """A whole pretraining run."""

    objective: str = field("masked_tokens", "training objective", table="bert_jax.objectives.OBJECTIVES")
    model: EncoderConfig = field(EncoderConfig(), "architecture")
    data: DataConfig = field(DataConfig(), "sequences")
    replaced_tokens: ReplacedTokensConfig = field(
        ReplacedTokensConfig(),
        "generator of objective=replaced_tokens",
        read_by=ReadBy("objective", values=("replaced_tokens",)),
    )
    distillation: DistillationConfig = field(
        DistillationConfig(), "teacher of objective=distillation", read_by=ReadBy("objective", values=("distillation",))
    )
    train: TrainConfig = field(TrainConfig(), "steps and phases")
    evaluate: EvaluateConfig = field(EvaluateConfig(), "held-out evaluation")


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(_SharedConfig):
    """A whole fine-tuning run."""

    task: TaskConfig = field(TaskConfig(), "task and data")
    train: FinetuneTrainConfig = field(FinetuneTrainConfig(batch_size=32), "batches")
    evaluate: FinetuneEvaluateConfig = field(FinetuneEvaluateConfig(), "evaluation on the dev sets")


Config = PretrainConfig | FinetuneConfig
