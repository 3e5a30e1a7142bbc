"""The fields of a run's configuration: default, meaning and range of each, as frozen dataclasses.

`PretrainConfig` and `FinetuneConfig` are the two roots. They share the parts that both read, and neither has a field
that it ignores. A field that may be None says what None means.

run.py        the roots
encoder.py    the architecture, and how it is computed
data.py       from the prepared corpus to training sequences
objectives.py a section for each objective that reads more than these
training.py   steps, batches, phases; the update; devices; what is measured, saved and watched
task.py       the task to fine-tune on
field.py      what a field says of itself
"""

from bert_jax.config.schema.data import DataConfig
from bert_jax.config.schema.encoder import ComputeConfig, EncoderConfig, spelled_out
from bert_jax.config.schema.objectives import DistillationConfig, ReplacedTokensConfig
from bert_jax.config.schema.run import Config, FinetuneConfig, PretrainConfig
from bert_jax.config.schema.task import TaskConfig
from bert_jax.config.schema.training import (
    CheckpointConfig,
    EvaluateConfig,
    FinetuneEvaluateConfig,
    FinetuneTrainConfig,
    MeshConfig,
    OptimizerConfig,
    PhaseConfig,
    TrainConfig,
    WatchdogConfig,
)

__all__ = [
    "CheckpointConfig",
    "ComputeConfig",
    "Config",
    "DataConfig",
    "DistillationConfig",
    "EncoderConfig",
    "EvaluateConfig",
    "FinetuneConfig",
    "FinetuneEvaluateConfig",
    "FinetuneTrainConfig",
    "MeshConfig",
    "OptimizerConfig",
    "PhaseConfig",
    "PretrainConfig",
    "ReplacedTokensConfig",
    "TaskConfig",
    "TrainConfig",
    "WatchdogConfig",
    "spelled_out",
]
