"""Functions that read the architecture of a model directory without the weights, for `--config.model=from_init`."""

import dataclasses
import os
import typing
from collections.abc import Sequence

from bert_jax.config import EncoderConfig, FinetuneConfig, PretrainConfig, RecipeName, read_config
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface.model_config import read_model_config
from bert_jax.interop.huggingface.peft import CONFIG as PEFT_CONFIG
from bert_jax.interop.huggingface.peft import base_model_directory
from bert_jax.interop.sentence_modules import read_sentence_modules
from bert_jax.objectives import OBJECTIVES
from bert_jax.training import workdir
from bert_jax.training.checkpoint import saved_steps
from bert_jax.training.remote_workdir import checkpoints_directory, local_copy
from bert_jax.training.schedules import model_after_step

FROM_INIT = "--config.model=from_init"
AnyConfig = typing.TypeVar("AnyConfig", bound=PretrainConfig | FinetuneConfig)


def read_architecture(path: str | os.PathLike[str]) -> EncoderConfig:
    """Return the architecture of a directory of transformers or `peft`, or of a work directory of `pretrain`.

    The function neither reads weights nor starts JAX. A run has the architecture of its newest checkpoint. UserError is
    raised if the directory describes no architecture.
    """
    directory = workdir.resolve_model_dir(path)
    sentences = read_sentence_modules(directory)
    directory = directory / (sentences.folder if sentences else "")
    if (directory / PEFT_CONFIG).is_file():
        directory = base_model_directory(directory)
    if (directory / "config.json").is_file():
        return read_model_config(directory / "config.json").encoder
    config = workdir.read_run(directory)[0] if (directory / "run.json").is_file() else None
    if isinstance(config, PretrainConfig):
        steps = saved_steps(checkpoints_directory(directory))
        return model_after_step(config.model, config.train, max(steps, default=config.train.steps))
    absent = "no config.json" if directory.is_dir() else "no such directory"
    raise UserError(f"{path}: describes no architecture ({absent}); give a directory of `export` or transformers")


def with_attention(config: EncoderConfig, causal: bool) -> EncoderConfig:
    """Return the architecture with causal or bidirectional attention, in the family that has this attention."""
    if config.causal == causal:
        return config
    twins = {name: family.bidirectional for name, family in FAMILIES.items() if family.bidirectional}
    if causal:
        twins = {bidirectional: name for name, bidirectional in twins.items()}
    return dataclasses.replace(config, causal=causal, family=twins.get(config.family, config.family))


def read_run_config(
    kind: type[AnyConfig],
    recipe: RecipeName | None,
    overrides: Sequence[str],
    run: str | os.PathLike[str] | None = None,
) -> AnyConfig:
    """Return the config of a run, as `read_config` does, but accept the override `--config.model=from_init`.

    The override `--config.model=from_init` takes all fields of `config.model` except `vocab_size` from the architecture
    of `config.init_from`. If `run` is the work directory of a run that has begun, the fields come from the recorded
    architecture of the run, because the initial weights may have been moved. The tokenizer of the corpus determines
    `vocab_size`, because the tables of the weights may have unused rows. The objective determines whether attention is
    causal. Overrides of single fields of `config.model` also apply.

    Raises:
        UserError: `read_config` raises it, or `config.init_from` is not set or describes no architecture.
    """
    is_pretraining: bool = kind is PretrainConfig
    if not is_pretraining or FROM_INIT not in overrides:
        return read_config(kind, recipe, overrides)
    others = [override for override in overrides if override != FROM_INIT]
    config = read_config(kind, recipe, [word for word in others if not word.startswith("--config.model.")])
    if not config.init_from:
        raise UserError(f"{FROM_INIT} needs weights: give --config.init_from=DIR, or OWNER/NAME of the Hub")
    directory = None if run is None else local_copy(run)
    recorded = workdir.read_run(directory)[0] if directory and (directory / "run.json").is_file() else None
    architecture = recorded.model if isinstance(recorded, PretrainConfig) else read_architecture(config.init_from)
    if isinstance(config, PretrainConfig) and config.objective in OBJECTIVES:
        architecture = with_attention(architecture, OBJECTIVES[config.objective].causal)
    fields = dataclasses.asdict(architecture) | {"vocab_size": None}
    return read_config(kind, recipe, [*(f"--config.model.{name}={value}" for name, value in fields.items()), *others])
