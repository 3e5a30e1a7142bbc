"""Configuration: every field of a run, recipes, and the published values that recipes start from.

checks.py        fields that do not fit each other, or that a run would not read
find_recipe.py   where a recipe is: a file, or a name in configs/
free_fields.py   what a resumed run may change
load.py          recipe + overrides -> a frozen config, or an error that names the key
presets.py       published architectures: add a row to PRESETS
recipes.py       published training settings, which configs/ starts from: add a function
schema.py        A field of a config
suggestions.py   which key was meant: add a spelling of another trainer to ALIASES
write_recipe.py  a config as the recipe that gives it: what differs from the defaults
"""

from bert_jax.config.checks import check_warmup
from bert_jax.config.free_fields import FREE_IN_THE_FUTURE
from bert_jax.config.load import (
    check_choices,
    differences,
    fields_of,
    finetune_config,
    flatten,
    from_json,
    from_values,
    index_form,
    phases,
    pretrain_config,
    read_config,
    resolve,
    table_of,
    to_json,
    with_vocab_size,
)
from bert_jax.config.schema import (
    CheckpointConfig,
    ComputeConfig,
    Config,
    DataConfig,
    DistillationConfig,
    EncoderConfig,
    EvaluateConfig,
    FinetuneConfig,
    FinetuneEvaluateConfig,
    FinetuneTrainConfig,
    MeshConfig,
    OptimizerConfig,
    PhaseConfig,
    PretrainConfig,
    ReplacedTokensConfig,
    TaskConfig,
    TrainConfig,
    WatchdogConfig,
    spelled_out,
)

__all__ = [
    "FREE_IN_THE_FUTURE",
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
    "check_choices",
    "check_warmup",
    "differences",
    "fields_of",
    "finetune_config",
    "flatten",
    "from_json",
    "from_values",
    "index_form",
    "phases",
    "pretrain_config",
    "read_config",
    "resolve",
    "spelled_out",
    "table_of",
    "to_json",
    "with_vocab_size",
]
