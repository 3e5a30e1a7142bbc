"""Configuration: every field of a run, recipes, and the published values that recipes start from.

checks.py        errors for fields that contradict each other, name no row of their table, or have no effect
encoder.py       the fields of an architecture and of its computation
field.py         the metadata of a field: meaning, range, table, and the conditions under which it has an effect
free_fields.py   the fields that a resumed run may change
load.py          recipe + overrides -> a frozen config, or an error that names the key
phase.py         the fields of a phase, and the settings of a phase
presets.py       published architectures; to add an architecture, add a row to PRESETS
recipes.py       published training settings, from which the recipes in configs/ start; to add a paper, add a function
schema.py        the fields of a run, as frozen dataclasses; to add a field, add it to its section
suggestions.py   the key that a user probably meant; to add a name that another trainer uses, add it to SPELLINGS
task.py          the fields of a task and of its adapter, as frozen dataclasses
write_recipe.py  a config as a recipe file with the fields that differ from the defaults
"""

from bert_jax.config.checks import (
    check_choices,
    check_run_table_rows,
    check_warmup,
    no_effect_error,
    refuse_fields_without_effect,
    table_of_field,
)
from bert_jax.config.encoder import ComputeConfig, EncoderConfig, fill_inherited_fields
from bert_jax.config.free_fields import MUTABLE_AFTER_CURRENT_STEP
from bert_jax.config.load import (
    RecipeName,
    command_line_key,
    config_differences,
    fields_of,
    finetune_config,
    flatten,
    from_json,
    phases,
    pretrain_config,
    read_config,
    resolve,
    section_from_values,
    to_json,
    values_that_hosts_share,
    with_vocab_size,
)
from bert_jax.config.phase import PhaseConfig, section_of_phase
from bert_jax.config.schema import (
    CheckpointConfig,
    Config,
    DataConfig,
    DistillationConfig,
    EvaluateConfig,
    FinetuneConfig,
    FinetuneEvaluateConfig,
    FinetuneTrainConfig,
    MeshConfig,
    OptimizerConfig,
    PretrainConfig,
    ProfileConfig,
    ReplacedTokensConfig,
    TrainConfig,
    WatchdogConfig,
)
from bert_jax.config.task import AdapterConfig, TaskConfig

__all__ = [
    "MUTABLE_AFTER_CURRENT_STEP",
    "AdapterConfig",
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
    "ProfileConfig",
    "RecipeName",
    "ReplacedTokensConfig",
    "TaskConfig",
    "TrainConfig",
    "WatchdogConfig",
    "check_choices",
    "check_run_table_rows",
    "check_warmup",
    "command_line_key",
    "config_differences",
    "fields_of",
    "fill_inherited_fields",
    "finetune_config",
    "flatten",
    "from_json",
    "no_effect_error",
    "phases",
    "pretrain_config",
    "read_config",
    "refuse_fields_without_effect",
    "resolve",
    "section_from_values",
    "section_of_phase",
    "table_of_field",
    "to_json",
    "values_that_hosts_share",
    "with_vocab_size",
]
