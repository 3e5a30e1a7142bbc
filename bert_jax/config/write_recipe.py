"""The recipe that trains a run again: a Python file with what differs from the defaults."""

import dataclasses
from typing import Any

from bert_jax.config.load import flatten, to_json
from bert_jax.config.schema import Config, PhaseConfig, PretrainConfig

MAX_LINE = 100


def defaults_of(config: Config) -> Config:
    """Return the defaults of a config's kind."""
    return type(config)()


def changed(config: Config) -> dict[str, tuple[Any, Any]]:
    """Return dotted key -> (value, default) of each field that differs; a phase differs from `PhaseConfig()`."""
    values, usual = flatten(to_json(config)), flatten(to_json(defaults_of(config)))
    return {key: (value, default) for key, value in values.items() if value != (default := default_of(key, usual))}


def default_of(key: str, defaults: dict[str, Any]) -> Any:
    """Return the default of a dotted key; a second phase has those of `PhaseConfig`."""
    if key.startswith("train.phases."):
        return getattr(PhaseConfig(), key.rpartition(".")[2])
    return defaults.get(key)


def recipe_text(config: Config) -> str:
    """Return a recipe whose config equals `config`: `bert-jax pretrain --config FILE` reads it."""
    pretraining = isinstance(config, PretrainConfig)
    start = "pretrain_config" if pretraining else "finetune_config"
    values, usual = to_json(config), to_json(defaults_of(config))
    lines = []
    for name, value in values.items():
        if not isinstance(value, dict):
            if value != usual[name]:
                lines.append(f"config.{name} = {value!r}")
            continue
        fields = {key: one for key, one in value.items() if key != "phases" and one != usual[name][key]}
        if fields:
            lines += _call(f"config.{name}.update", [f"{key}={one!r}" for key, one in fields.items()])
    uses = [start]
    if isinstance(config, PretrainConfig) and config.train.phases != type(config)().train.phases:
        uses.insert(0, "phases")
        default = dataclasses.asdict(PhaseConfig())
        phases = [
            {key: one for key, one in dataclasses.asdict(phase).items() if one != default[key] or key == "seq_len"}
            for phase in config.train.phases
        ]
        lines += _call("config.train.phases = phases", [repr(phase) for phase in phases])
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"from bert_jax.config import {', '.join(uses)}\n\n\n"
        f"def get_config():\n    config = {start}()\n{body}    return config\n"
    )


def _call(function: str, arguments: list[str]) -> list[str]:
    """The lines of a call; a long one has a line per argument."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= MAX_LINE:
        return [line]
    return [f"{function}(", *(f"    {argument}," for argument in arguments), ")"]
