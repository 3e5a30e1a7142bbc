"""The fields of a run's configuration, as frozen dataclasses with default, meaning, range and conditions.

`PretrainConfig` and `FinetuneConfig`, at the end of the file, are the two roots. If a field may be None, the meaning of
the field explains None.
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
    NUM_STEPS,
    SEED,
    ReadBy,
    field,
)
from bert_jax.config.phase import WITH_MASKS, PhaseConfig
from bert_jax.config.task import AdapterConfig, TaskConfig

# Condition of several fields.
WITH_MUON = ReadBy("name", values=("muon",))


# Corpus and training sequences.
@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The prepared corpus, and the rules that make training sequences from it."""

    corpus: str | None = field(
        None,
        "corpus directory made by `prepare`; several directories, separated by commas, or a glob pattern, are mixed; "
        "DIR@FINGERPRINT is a snapshot of a corpus that has grown",
        is_path=True,
    )
    text: str | None = field(
        None,
        "text inputs as for `prepare --input`, separated by commas; a first trial can use them instead of a corpus",
        is_path=True,
    )
    tokenizer: str | None = field(
        None,
        "directory of the tokenizer for `data.text`; None: a WordPiece tokenizer trained on the text",
        read_by=ReadBy("text", not_values=(None,)),
        is_path=True,
    )
    snapshots: int | None = field(
        None,
        "number of growing snapshots of the corpus that the run reads one after the other; None: 1, or more "
        "for a long `data.text`",
        AT_LEAST_1,
    )
    weights: tuple[float, ...] | None = field(
        None,
        "sampling weight of each corpus of a mixture; None: the sizes of the corpora, with data.smoothing",
        replaced_by_phase="weights",
    )
    smoothing: float = field(
        1.0,
        "exponent on the corpus sizes in a mixture: 1 keeps the proportions, 0.7 is multilingual BERT's value, 0 "
        "gives equal fractions",
        FROM_0_TO_1,
        read_by=ReadBy("weights", values=(None,)),
        replaced_by_phase="smoothing",
    )
    max_epochs: int | None = field(
        None, "maximum number of times that an epoch of a mixture reads each corpus; None: no limit", AT_LEAST_1
    )
    sentence_pairs: str = field(
        "next_sentence",
        "rule that builds a sequence from sentences",
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
        "fraction of the tokens of a sequence to predict; evaluation always predicts 15 %, of which 80 % are "
        "[MASK], 10 % random and 10 % unchanged",
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
    rarity_power: float = field(
        0.0,
        "power of rarity: the tokens to predict are drawn in proportion to (frequency in the training text) ** "
        "-rarity_power; 0: uniformly; evaluation draws uniformly",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
        replaced_by_phase="rarity_power",
    )
    max_span_length: int | None = field(
        None,
        "maximum number of words in a masked span; None: the published value, 3 for ngram and 10 for span",
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
        None,
        "number of epochs after which the sequences repeat; 10 in the original BERT; None: they never repeat",
        AT_LEAST_1,
    )
    num_threads: int = field(2, "number of threads that build batches", AT_LEAST_1)
    prefetch: int = field(4, "number of batches that are built before the step needs them", AT_LEAST_1)


# Settings of single objectives, a section each.
@dataclasses.dataclass(frozen=True)
class ReplacedTokensConfig:
    """The generator that is trained together with the encoder, for objective=replaced_tokens."""

    generator_size: float = field(
        0.25,
        "width of the generator, relative to the model; the embedding tables of both are equally wide",
        ABOVE_0_TO_1,
    )
    generator_layers: int | None = field(
        None, "number of blocks of the generator; None: as many as the model has", AT_LEAST_1
    )
    embedding_sharing: str = field(
        "tied",
        "embedding tables of the model: tied: the generator's; disentangled: the generator's, without a gradient, "
        "plus a trained difference (DeBERTa-v3)",
        table="bert_jax.objectives.replaced_tokens.EMBEDDING_SHARINGS",
    )
    generator_from: str | None = field(
        None,
        "weights from which the generator starts; None: the generator in the work directory init_from, "
        "otherwise random weights",
        is_path=True,
    )
    weight: float = field(
        50.0, "weight of the loss of replaced tokens; the weight of the generator's loss is 1", ABOVE_0
    )


@dataclasses.dataclass(frozen=True)
class DistillationConfig:
    """The teacher, and the weights of the loss terms; the loss of masked tokens has weight 1."""

    teacher: str | None = field(
        None,
        "model directory of the teacher, of any family; `compile` also takes the name of a preset, such as base",
        is_path=True,
    )
    temperature: float = field(
        2.0, "temperature of the teacher's and the student's softmax when their probabilities are compared", ABOVE_0
    )
    soft_weight: float = field(
        2.5,
        "loss weight of the teacher's probabilities; masked tokens have weight 1, so 2.5 is DistilBERT's ratio "
        "of 5 to 2",
        AT_LEAST_0,
    )
    cosine_weight: float = field(
        0.5,
        "loss weight of the angle between the last hidden states; masked tokens have weight 1, so 0.5 is "
        "DistilBERT's ratio of 1 to 2",
        AT_LEAST_0,
    )
    hidden_weight: float = field(
        0.0,
        "loss weight of the squared difference of hidden states in each layer; if widths differ, the student "
        "learns a linear map",
        AT_LEAST_0,
    )
    attention_weight: float = field(
        0.0,
        "loss weight of the divergence of attention in each head of each layer; needs as many heads as the teacher has",
        AT_LEAST_0,
    )
    copy_layers: bool = field(
        True, "initialize the student with evenly spaced layers of the teacher; False: random weights"
    )


# Steps, batches and phases; optimizer; devices; evaluation, checkpoints and watchdog.
@dataclasses.dataclass(frozen=True)
class FinetuneTrainConfig:
    """Batches and logging of a fine-tuning."""

    batch_size: int = field(
        256, "sequences per step, over all devices and hosts", AT_LEAST_1, replaced_by_phase="batch_size"
    )
    grad_accum_steps: int = field(1, "micro-batches per step", AT_LEAST_1, replaced_by_phase="grad_accum_steps")
    log_every: int = field(100, "steps between two lines of metrics; a phase also ends a line", AT_LEAST_1)
    tracker: str | None = field(
        None,
        "service that receives the metrics in addition to TensorBoard; None: no service",
        table="bert_jax.training.trackers.TRACKERS",
    )
    max_skipped_steps: int = field(
        20,
        "number of consecutive steps with a loss or gradient that is not finite, after which the run stops",
        AT_LEAST_1,
    )


@dataclasses.dataclass(frozen=True)
class TrainConfig(FinetuneTrainConfig):
    """Steps, phases and batches of a pretraining."""

    steps: int = field(1_000_000, "number of optimizer steps in the whole run", NUM_STEPS)
    phases: tuple[PhaseConfig, ...] = field((PhaseConfig(),), "phases of the run in order; their fractions add up to 1")
    plateau_steps: int | None = field(
        None,
        "step at which the run warns if the loss is still at the unigram loss; None: after the warmup and a "
        "twentieth of the run, at least 300 steps, and no warning for a run from trained weights",
        AT_LEAST_1,
        read_by=ReadBy("objective", not_values=("left_to_right",)),
    )
    z_loss: float = field(
        0.0,
        "loss weight of the squared logarithm of the softmax normalizer (z-loss), over the predicted tokens; "
        "PaLM uses 1e-4",
        AT_LEAST_0,
    )

    @property
    def used_phases(self) -> dict[int, PhaseConfig]:
        """The phases with a fraction above 0, by their index in `phases`."""
        return {index: phase for index, phase in enumerate(self.phases) if phase.fraction}


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
        FROM_0_BELOW_1,
        replaced_by="warmup_steps",
        replaced_by_phase="peak_learning_rate",
    )
    warmup_steps: int | None = field(
        None, "warmup in steps; None: optimizer.warmup_fraction", AT_LEAST_0, replaced_by_phase="peak_learning_rate"
    )
    schedule: str = field("bert", "learning-rate schedule", table="bert_jax.training.schedules.SCHEDULES")
    decay_power: float = field(
        1.0,
        "exponent of the learning-rate decay: 1 is linear; 0.5 is NVIDIA's value for LAMB, and gives 1 - sqrt(t) "
        "in warmup_stable_decay",
        AT_LEAST_0,
        read_by=ReadBy("schedule", values=("bert", "electra", "linear", "warmup_stable_decay")),
    )
    decay_fraction: float = field(
        0.2,
        "warmup_stable_decay: fraction of the steps, at the end of the run, in which the learning rate falls",
        FROM_0_TO_1,
        read_by=ReadBy("schedule", values=("warmup_stable_decay",)),
        replaced_by_phase="decay_fraction",
    )
    beta1: float = field(0.9, "decay rate of Adam's first moment", FROM_0_BELOW_1)
    beta2: float = field(0.999, "decay rate of Adam's second moment", FROM_0_BELOW_1)
    epsilon: float = field(1e-6, "constant added to the square root of Adam's second moment", ABOVE_0)
    muon_learning_rate: float = field(
        0.02,
        "muon: peak learning rate of the matrices of the blocks; it follows the schedule of peak_learning_rate",
        AT_LEAST_0,
        read_by=WITH_MUON,
    )
    momentum: float = field(
        0.95, "muon: decay rate of the momentum that is orthogonalized", FROM_0_BELOW_1, read_by=WITH_MUON
    )
    nesterov: bool = field(True, "muon: Nesterov momentum", read_by=WITH_MUON)
    weight_decay: float = field(
        0.01, "decoupled weight decay; norms and biases do not decay", AT_LEAST_0, replaced_by_phase="weight_decay"
    )
    bias_correction: bool = field(True, "bias correction in Adam; the original BERT has none")
    clip_norm: float | None = field(1.0, "maximum global norm of the gradient; None: no clipping", ABOVE_0)
    layer_decay: float = field(
        1.0,
        "ratio of a layer's learning rate to the rate of the layer above it; ELECTRA fine-tunes with 0.8",
        ABOVE_0_TO_1,
        read_by=ReadBy("freeze_encoder", not_values=(True,), recipe_may_set=True),
    )
    freeze_encoder: bool = field(False, "train only the heads, not the encoder")
    ema_decay: float | None = field(
        None,
        "decay rate of a moving average of the weights; evaluation and export use the average; None: no average",
        ABOVE_0_BELOW_1,
    )


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """The number of devices along each mesh axis; one axis may be -1, which takes the remaining devices."""

    data: int = field(-1, "number of data-parallel copies of the model; -1: the remaining devices")
    fsdp: int = field(1, "number of shards of parameters and optimizer state")
    tensor: int = field(1, "number of shards of attention heads, MLPs and vocabulary")


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
        "sequences per evaluation step; None: 32,768 tokens on each device, limited to 256 sequences over all "
        "devices, but at least one sequence per device",
        AT_LEAST_1,
    )
    corpus: str | None = field(
        None,
        "corpus to evaluate on, with the tokenizer of the run: its held-out documents, or all if it holds out none; "
        "None: the held-out documents of data.corpus",
        is_path=True,
    )
    num_sequences: int = field(
        10_000, "number of held-out sequences per evaluation, at most one epoch of the held-out documents", AT_LEAST_1
    )
    pairs: str | None = field(
        None,
        "minimal pairs that evaluations also score (docs/score.md): a file, a directory, or zorro_small, which comes "
        "with bert-jax; None: no pairs",
        is_path=True,
    )
    num_pairs: int = field(
        230,
        "number of minimal pairs to score, distributed over the paradigms",
        AT_LEAST_1,
        read_by=ReadBy("pairs", not_values=(None,)),
    )


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoint frequency and retention."""

    every: int | None = field(
        1_000, "steps between two checkpoints; None: only at the end, in fine-tuning after each epoch", AT_LEAST_1
    )
    max_time_fraction: float | None = field(
        0.01,
        "maximum fraction of the time for extra checkpoints between the checkpoints of `every`, at most one "
        "extra checkpoint per 10 s; only the newest extra checkpoint is kept; None: no extra checkpoints",
        ABOVE_0_TO_1,
    )
    keep: int = field(
        3,
        "number of newest checkpoints of `every` to keep; if `every` is None, number of newest checkpoints to keep",
        AT_LEAST_1,
    )
    keep_period: int | None = field(
        None,
        "period of permanent checkpoints: checkpoints at multiples of this step are never deleted; None: no "
        "permanent checkpoints",
        AT_LEAST_1,
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


# Traces.
@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """A trace of some steps by jax.profiler, in the work directory; the trace does not change the training."""

    steps: str | None = field(
        None, "steps to trace, as FIRST:END, from FIRST to END - 1, counted from 0, such as 10:13; None: no trace"
    )


# The roots: a run of pretraining or of fine-tuning.


@dataclasses.dataclass(frozen=True)
class _SharedConfig:
    """The fields that pretraining and fine-tuning share."""

    seed: int = field(0, "seed of parameters, sequences and dropout", SEED)
    recipe: str | None = field(
        None,
        "file of your own recipe, recorded by --config; None: a recipe that comes with bert-jax, or no recipe",
        is_path=True,
    )
    init_from: str | None = field(
        None,
        "initial weights: an export, a work directory, a Hugging Face directory, or OWNER/NAME of the Hub; None: "
        "random weights",
        is_path=True,
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
    grow: bool = field(
        False,
        "grow the smaller weights in init_from to the size of model: copies of layers make them deeper, copies of "
        "features make them wider",
        read_by=ReadBy("init_from", not_values=(None,)),
    )
    corpus_vectors: bool = field(
        False,
        "start the token table, the neighbor heads and the output bias with counts of the training text, not with "
        "random numbers and zeros",
        read_by=(
            ReadBy("init_from", values=(None,)),
            ReadBy("objective", values=("masked_tokens", "left_to_right")),
        ),
    )
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
