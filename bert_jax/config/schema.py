"""The fields of a run's configuration as frozen dataclasses: default, meaning, range, and conditions of each.

`PretrainConfig` and `FinetuneConfig`, at the end, are the two roots. Each meaning explains None.
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

# Conditions of several fields.
WITH_MASKS = ReadBy("objective", row_property="has_masks")
WITH_MUON = ReadBy("name", values=("muon",))
WITH_PEAK = ReadBy("peak_learning_rate", not_values=(None,))
WITH_TEACHER = ReadBy("teacher", not_values=(None, ""))
WITH_ADAPTER = ReadBy("rank", not_values=(None,))


# Corpus and training sequences.
@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The prepared corpus, and how training sequences are made from it."""

    corpus: str | None = field(
        None,
        "corpus directory made by `prepare`; several directories, separated by commas, or a glob pattern, are mixed; "
        "DIR@FINGERPRINT is a snapshot of a corpus that has grown",
    )
    text: str | None = field(
        None, "text inputs as for `prepare`, separated by commas, in place of a corpus, for a first trial"
    )
    tokenizer: str | None = field(
        None, "directory of the tokenizer for `data.text`; None: a WordPiece tokenizer trained on the text"
    )
    snapshots: int | None = field(
        None, "number of corpus snapshots to read in turn; None: 1, or more for a long `data.text`", AT_LEAST_1
    )
    weights: tuple[float, ...] | None = field(
        None, "sampling weight per corpus of a mixture; None: proportional to size, smoothed"
    )
    smoothing: float = field(
        1.0,
        "exponent of the corpus sizes in a mixture: 1 as they are, 0.7 as multilingual BERT, 0 all equal",
        FROM_0_TO_1,
        read_by=ReadBy("weights", values=(None,)),
    )
    max_epochs: int | None = field(
        None, "maximum times that an epoch of a mixture reads each of its corpora; None: no limit", AT_LEAST_1
    )
    sentence_pairs: str = field(
        "next_sentence",
        "way to build a sequence from sentences",
        table="bert_jax.batches.sentence_pairs.SENTENCE_PAIRS",
    )
    packing: int = field(1, "maximum number of examples packed into one sequence; 1: no packing", AT_LEAST_1)
    short_seq_probability: float = field(
        0.1,
        "fraction of sentence pairs whose target length is drawn at random",
        FROM_0_TO_1,
        read_by=ReadBy("sentence_pairs", row_property="has_pairs"),
    )
    masking: str = field(
        "token", "unit of text that is masked together", table="bert_jax.batches.masking.MASKINGS", read_by=WITH_MASKS
    )
    mask_probability: float = field(
        0.15,
        "fraction of the tokens of a sequence to predict; evaluation uses 15 %, 80-10-10",
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
        "fraction of the predicted tokens replaced by a random token; the remaining tokens stay",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
        replaced_by_phase="random_token_fraction",
    )
    max_span_length: int | None = field(
        None,
        "maximum words of a masked span; None: as published, 3 for ngram, 10 for span",
        AT_LEAST_1,
        read_by=ReadBy("masking", values=("ngram", "span")),
    )
    span_end_probability: float = field(
        0.2,
        "probability that a masked span ends after each of its words",
        ABOVE_0_TO_1,
        read_by=ReadBy("masking", values=("span",)),
    )
    dupe_factor: int | None = field(
        None, "epochs after which the same sequences return, 10 in the original BERT; None: never", AT_LEAST_1
    )
    num_threads: int = field(2, "threads that build batches", AT_LEAST_1)
    prefetch: int = field(4, "batches built ahead of the step", AT_LEAST_1)


# Settings of single objectives, a section each.
@dataclasses.dataclass(frozen=True)
class ReplacedTokensConfig:
    """The generator that is trained beside the encoder, for objective=replaced_tokens."""

    generator_size: float = field(
        0.25,
        "width of the generator's blocks relative to the model's; number of blocks and tables are the model's",
        ABOVE_0_TO_1,
    )
    generator_from: str | None = field(
        None, "weights of the generator to start from; None: the generator beside init_from, otherwise random weights"
    )
    weight: float = field(
        50.0, "weight of the loss of replaced tokens; the weight of the generator's loss is 1", ABOVE_0
    )


@dataclasses.dataclass(frozen=True)
class DistillationConfig:
    """The teacher, and the weights of its losses; the loss of masked tokens has weight 1."""

    teacher: str | None = field(
        None, "model directory of the teacher, of any family; `compile` also takes a preset such as base"
    )
    temperature: float = field(
        2.0, "temperature of the teacher's and the student's softmax where probabilities are compared", ABOVE_0
    )
    soft_weight: float = field(
        2.5, "loss weight of the teacher's probabilities; as published, 5 against 2 of the masked tokens", AT_LEAST_0
    )
    cosine_weight: float = field(
        0.5,
        "loss weight of the angle between the last hidden states; as published, 1 against 2 of the masked tokens",
        AT_LEAST_0,
    )
    hidden_weight: float = field(
        0.0,
        "loss weight of the squared difference of hidden states, layer by layer; a learned map adapts the width",
        AT_LEAST_0,
    )
    attention_weight: float = field(
        0.0,
        "loss weight of the divergence of each head's attention, layer by layer; needs as many heads as the teacher",
        AT_LEAST_0,
    )
    copy_layers: bool = field(True, "start from evenly spaced layers of the teacher; False: from random weights")


# Steps, batches and phases; optimizer; devices; evaluation, checkpoints and watchdog.
@dataclasses.dataclass(frozen=True)
class PhaseConfig:
    """A phase of the run; None takes the value of `train`, `optimizer` or `data`."""

    seq_len: int = field(128, "tokens per sequence in this phase", AT_LEAST_1)
    fraction: float = field(1.0, "fraction of train.steps in this phase", FROM_0_TO_1)
    batch_size: int | None = field(None, "sequences per step in this phase; None: train.batch_size", AT_LEAST_1)
    grad_accum_steps: int | None = field(
        None, "micro-batches per step in this phase; None: train.grad_accum_steps", AT_LEAST_1
    )
    peak_learning_rate: float | None = field(
        None, "peak learning rate of a separate schedule for this phase; None: the run's schedule continues", AT_LEAST_0
    )
    warmup_fraction: float = field(
        0.0,
        "warmup of this phase's schedule as a fraction of the phase's steps",
        FROM_0_TO_1,
        read_by=WITH_PEAK,
        replaced_by="warmup_steps",
    )
    warmup_steps: int | None = field(
        None, "warmup of this phase's schedule in steps; None: warmup_fraction", AT_LEAST_0, read_by=WITH_PEAK
    )
    mask_probability: float | None = field(
        None,
        "fraction of the tokens to predict; None: data.mask_probability; evaluation uses 15 %",
        ABOVE_0_TO_1,
        read_by=WITH_MASKS,
    )
    mask_probability_end: float | None = field(
        None,
        "mask probability at the end of the phase, changed linearly from mask_probability; None: no change",
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
        None,
        "fraction of the predicted tokens replaced by a random token; None: data.random_token_fraction",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
    )


@dataclasses.dataclass(frozen=True)
class FinetuneTrainConfig:
    """Batches and logging of a fine-tuning."""

    batch_size: int = field(
        256, "sequences per step, over all devices and hosts", AT_LEAST_1, replaced_by_phase="batch_size"
    )
    grad_accum_steps: int = field(1, "micro-batches per step", AT_LEAST_1, replaced_by_phase="grad_accum_steps")
    log_every: int = field(100, "steps between two lines of metrics", AT_LEAST_1)
    tracker: str | None = field(
        None,
        "service that receives the metrics in addition to TensorBoard; None: no service",
        table="bert_jax.training.trackers.TRACKERS",
    )
    max_skipped_steps: int = field(
        20, "consecutive steps with a loss or gradient that is not finite, after which the run stops", AT_LEAST_1
    )


@dataclasses.dataclass(frozen=True)
class TrainConfig(FinetuneTrainConfig):
    """Steps, phases and batches of a pretraining."""

    steps: int = field(1_000_000, "optimizer steps of the whole run", AT_LEAST_1)
    phases: tuple[PhaseConfig, ...] = field((PhaseConfig(),), "phases of the run in order; their fractions add up to 1")
    plateau_steps: int | None = field(
        None,
        "steps after which a loss that is still at the unigram entropy is reported; None: the warmup and a twentieth "
        "of the run, at least 300 steps",
        AT_LEAST_1,
    )
    z_loss: float = field(
        0.0, "loss weight of the squared log of the masked-token softmax normalizer; PaLM uses 1e-4", AT_LEAST_0
    )


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer, learning-rate schedule and gradient clipping."""

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
        "warmup as a fraction of all steps",
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
        "power of the learning-rate decay: 1 is linear; 0.5 is NVIDIA's LAMB, and 1 - sqrt in warmup_stable_decay",
        AT_LEAST_0,
        read_by=ReadBy("schedule", values=("bert", "electra", "linear", "warmup_stable_decay")),
    )
    decay_fraction: float = field(
        0.2,
        "warmup_stable_decay: fraction of the steps, at the end, in which the learning rate falls",
        FROM_0_TO_1,
        read_by=ReadBy("schedule", values=("warmup_stable_decay",)),
    )
    beta1: float = field(0.9, "decay rate of Adam's first moment", FROM_0_BELOW_1)
    beta2: float = field(0.999, "decay rate of Adam's second moment", FROM_0_BELOW_1)
    epsilon: float = field(1e-6, "constant added to the square root of Adam's second moment", ABOVE_0)
    muon_learning_rate: float = field(
        0.02,
        "muon: peak learning rate of the matrices of the blocks, with the schedule of peak_learning_rate",
        AT_LEAST_0,
        read_by=WITH_MUON,
    )
    momentum: float = field(
        0.95, "muon: decay rate of the momentum that is orthogonalized", FROM_0_BELOW_1, read_by=WITH_MUON
    )
    nesterov: bool = field(True, "muon: Nesterov momentum", read_by=WITH_MUON)
    weight_decay: float = field(0.01, "decoupled weight decay; norms and biases are exempt", AT_LEAST_0)
    bias_correction: bool = field(True, "bias correction in Adam; the original BERT has none")
    clip_norm: float | None = field(1.0, "maximum global norm of the gradient; None: no clipping", ABOVE_0)
    layer_decay: float = field(
        1.0, "learning rate of a layer relative to the next layer above; ELECTRA fine-tunes with 0.8", ABOVE_0_TO_1
    )
    freeze_encoder: bool = field(False, "train only the heads, not the encoder")
    ema_decay: float | None = field(
        None,
        "decay rate of a moving average of the weights, which is evaluated and exported; None: no average",
        ABOVE_0_BELOW_1,
    )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Devices along each mesh axis; one axis may be -1, which takes the remaining devices."""

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
        "sequences per evaluation step; None: 32,768 tokens on each device, at most 256 sequences in all, but at "
        "least one per device",
        AT_LEAST_1,
    )
    num_sequences: int = field(
        10_000, "held-out sequences per evaluation, at most one epoch of the held-out documents", AT_LEAST_1
    )
    pairs: str | None = field(
        None,
        "minimal pairs that evaluations also score (docs/score.md): a file, a directory, or zorro_small, which comes "
        "with bert-jax; None: no pairs",
    )
    num_pairs: int = field(230, "number of minimal pairs to score, spread over the paradigms", AT_LEAST_1)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoint frequency and retention."""

    every: int | None = field(
        1_000, "steps between two checkpoints; None: only at the end, in fine-tuning after each epoch", AT_LEAST_1
    )
    max_time_fraction: float | None = field(
        0.01,
        "maximum fraction of the time for extra checkpoints between the checkpoints of `every`, at most one per 10 s; "
        "only the newest is kept; None: no extra checkpoints",
        ABOVE_0_TO_1,
    )
    keep: int = field(
        3, "number of newest checkpoints of `every` to keep; without `every`, of all checkpoints", AT_LEAST_1
    )
    keep_period: int | None = field(
        None, "step whose multiples have checkpoints that are kept forever; None: no such checkpoints", AT_LEAST_1
    )


@dataclasses.dataclass(frozen=True)
class WatchdogConfig:
    """Seconds without progress after which a run prints the reason and ends with status 124; None: no limit."""

    start_seconds: float | None = field(
        1_800.0, "time limit in seconds for finding all processes, opening the data and reading a checkpoint", ABOVE_0
    )
    compile_seconds: float | None = field(3_600.0, "time limit in seconds for compiling one program", ABOVE_0)
    step_seconds: float | None = field(
        900.0, "time limit in seconds for one step, or one batch of an evaluation", ABOVE_0
    )
    save_seconds: float | None = field(1_800.0, "time limit in seconds for writing one checkpoint", ABOVE_0)


# Traces, and the task to fine-tune on.
@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """A trace of some steps by jax.profiler, in the work directory; it changes no result."""

    steps: str | None = field(
        None, "steps to trace, as FIRST:END, counted from 0 and without END, such as 10:13; None: no trace"
    )


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """The task to fine-tune on, its files, and the choice of the best of several trainings."""

    name: str | None = field(None, "task from bert_jax/tasks/table.py, such as mrpc or squad2, or custom")
    kind: str | None = field(None, "kind of a custom task", table="bert_jax.tasks.kinds.KINDS")
    data: str | None = field(
        None, "directory of the task's published files, plain or .gz; or tfds:NAME, tfds:NAME@DATA_DIR"
    )
    train: str | None = field(None, "training file, relative to task.data or absolute; None: the published name")
    dev: str | None = field(None, "development file; None: the published name")
    test: str | None = field(None, "test file, predicted at the end; None: the published name")
    columns: str | None = field(None, "columns of a custom task: 'text=sentence1,text_pair=sentence2,label=gold'")
    delimiter: str | None = field(None, "character between the columns of CSV and TSV; None: found in the header")
    skip_unlabeled: bool = field(
        False, "leave out and count rows without a label; False: refuse them, with their numbers"
    )
    labels: str | None = field(None, "labels of a custom task: 'no,yes'; None: the labels of the training file, sorted")
    metric: str | None = field(None, "metric that chooses the best checkpoint; None: the metric of the task")
    max_seq_len: int = field(128, "maximum tokens per sequence", AT_LEAST_1)
    buckets: tuple[int, ...] | None = field(
        None, "lengths that sequences are padded to, one compiled program each; None: chosen from the data"
    )
    doc_stride: int = field(128, "tokens from one window of a long context to the next", AT_LEAST_1)
    max_query_length: int = field(64, "maximum tokens of a question; longer questions are cut and counted", AT_LEAST_1)
    max_answer_length: int = field(30, "maximum tokens of an answer", AT_LEAST_1)
    skip_unusable_answers: bool = field(
        False,
        "leave out and count training questions whose answer is not at its offset in the context; False: refuse them",
    )
    positive_from: float = field(4.0, "similarity: smallest label of a positive training pair")
    temperature: float = field(0.05, "similarity: temperature of the cosines", ABOVE_0)
    n_best: int = field(20, "answers kept per question in the predictions", AT_LEAST_1)
    epochs: float = field(3.0, "passes over the training set", ABOVE_0)
    num_seeds: int = field(1, "number of trainings that differ only in the seed, from config.seed on", AT_LEAST_1)
    learning_rates: tuple[float, ...] | None = field(
        None, "learning rates to try, each with each seed; None: optimizer.peak_learning_rate"
    )
    patience: int | None = field(
        None,
        "early stopping: evaluations without a new best score after which a training ends; None: never",
        AT_LEAST_1,
    )
    dropout: float | None = field(
        None, "dropout rate of encoder and head; None: the rate that the weights were trained with", FROM_0_BELOW_1
    )
    teacher: str | None = field(
        None, "directory of a teacher, fine-tuned on the task, to learn from in addition to the labels"
    )
    soft_fraction: float = field(
        0.5, "fraction of the loss that compares with the teacher's outputs", FROM_0_TO_1, read_by=WITH_TEACHER
    )
    soft_temperature: float = field(
        2.0,
        "temperature of the teacher's and the student's softmax, for tasks with probabilities",
        ABOVE_0,
        read_by=WITH_TEACHER,
    )
    bilstm: bool = field(
        False, "add two bidirectional LSTM layers between encoder and head; needs model.family=research (BERT, table 5)"
    )
    random_weights: bool = field(
        False, "start from random weights with the architecture and tokenizer of init_from (a baseline)"
    )


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """LoRA: the trained matrices beside frozen linear maps of the encoder."""

    rank: int | None = field(
        None, "rank of the matrices of LoRA; None: no adapter, all weights are trained", AT_LEAST_1
    )
    alpha: float = field(
        16.0,
        "numerator of LoRA's scale: the product of two matrices is multiplied by alpha / rank",
        ABOVE_0,
        read_by=WITH_ADAPTER,
    )
    targets: str | None = field(
        None,
        "linear maps with an adapter, by their names in transformers or the ends of these names: 'query,value'; "
        "all-linear: all of the encoder; None: the maps to queries and values",
        read_by=WITH_ADAPTER,
    )
    dropout: float = field(0.0, "dropout rate on the input of the matrices", FROM_0_BELOW_1, read_by=WITH_ADAPTER)


# The roots: a run of pretraining or of fine-tuning.
@dataclasses.dataclass(frozen=True)
class _SharedConfig:
    """The fields that pretraining and fine-tuning share."""

    seed: int = field(0, "seed of parameters, sequences and dropout", AT_LEAST_0)
    init_from: str | None = field(
        None,
        "weights to start from: an export, a work directory, a Hugging Face directory, or OWNER/NAME of the Hub; None: "
        "random weights",
    )
    compute: ComputeConfig = field(ComputeConfig(), "precision and compilation of the model")
    optimizer: OptimizerConfig = field(OptimizerConfig(), "optimizer and learning rate")
    mesh: MeshConfig = field(MeshConfig(), "devices along each mesh axis")
    checkpoint: CheckpointConfig = field(CheckpointConfig(), "checkpoint frequency and retention")
    watchdog: WatchdogConfig = field(WatchdogConfig(), "time limits for hangs and lost processes")
    profile: ProfileConfig = field(ProfileConfig(), "trace of some steps")


@dataclasses.dataclass(frozen=True)
class PretrainConfig(_SharedConfig):
    """The configuration of a pretraining run."""

    objective: str = field("masked_tokens", "training objective", table="bert_jax.objectives.OBJECTIVES")
    model: EncoderConfig = field(EncoderConfig(), "architecture of the encoder; from_init: of the weights in init_from")
    data: DataConfig = field(DataConfig(), "corpus and training sequences")
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
    """The configuration of a fine-tuning run."""

    task: TaskConfig = field(TaskConfig(), "task and data")
    adapter: AdapterConfig = field(AdapterConfig(), "LoRA in place of training all weights")
    train: FinetuneTrainConfig = field(FinetuneTrainConfig(batch_size=32), "batches and logging")
    evaluate: FinetuneEvaluateConfig = field(FinetuneEvaluateConfig(), "evaluation on the dev sets")


Config = PretrainConfig | FinetuneConfig
