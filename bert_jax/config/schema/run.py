"""The roots: a whole run of pretraining or of fine-tuning."""

import dataclasses

from bert_jax.config.schema.data import DataConfig
from bert_jax.config.schema.encoder import ComputeConfig, EncoderConfig
from bert_jax.config.schema.field import AT_LEAST_0, field
from bert_jax.config.schema.objectives import DistillationConfig, ReplacedTokensConfig
from bert_jax.config.schema.task import TaskConfig
from bert_jax.config.schema.training import (
    CheckpointConfig,
    EvaluateConfig,
    FinetuneEvaluateConfig,
    FinetuneTrainConfig,
    MeshConfig,
    OptimizerConfig,
    TrainConfig,
    WatchdogConfig,
)


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


@dataclasses.dataclass(frozen=True)
class PretrainConfig(_SharedConfig):
    """A whole pretraining run."""

    objective: str = field("masked_tokens", "training objective", table="bert_jax.objectives.OBJECTIVES")
    model: EncoderConfig = field(EncoderConfig(), "architecture")
    data: DataConfig = field(DataConfig(), "sequences")
    replaced_tokens: ReplacedTokensConfig = field(ReplacedTokensConfig(), "generator of objective=replaced_tokens")
    distillation: DistillationConfig = field(DistillationConfig(), "teacher of objective=distillation")
    train: TrainConfig = field(TrainConfig(), "steps and phases")
    evaluate: EvaluateConfig = field(EvaluateConfig(), "held-out evaluation")


@dataclasses.dataclass(frozen=True)
class FinetuneConfig(_SharedConfig):
    """A whole fine-tuning run."""

    task: TaskConfig = field(TaskConfig(), "task and data")
    train: FinetuneTrainConfig = field(FinetuneTrainConfig(batch_size=32), "batches")
    evaluate: FinetuneEvaluateConfig = field(FinetuneEvaluateConfig(), "evaluation on the dev sets")


Config = PretrainConfig | FinetuneConfig
