"""The recipe that repeats a run: a Python file with the fields that differ from the defaults."""

import dataclasses
from typing import Any, NamedTuple

from bert_jax.config.load import flatten, to_json
from bert_jax.config.phase import PhaseConfig
from bert_jax.config.schema import Config, PretrainConfig

MAX_LINE = 100


class ValueAndDefault(NamedTuple):
    """The value and the default of a config field."""

    value: Any
    default: Any


def values_and_defaults(config: Config) -> dict[str, ValueAndDefault]:
    """Return dotted key -> (value, default) for each field; the default of a phase's field is in `PhaseConfig`."""
    defaults = flatten(to_json(type(config)()))

    def default_of(key: str) -> Any:
        return getattr(PhaseConfig(), key.rpartition(".")[2]) if key.startswith("train.phases.") else defaults.get(key)

    return {key: ValueAndDefault(value, default_of(key)) for key, value in flatten(to_json(config)).items()}


def recipe_text(config: Config) -> str:
    """Return the Python text of a recipe whose config equals `config`, for `bert-jax pretrain --config FILE`."""
    start = "pretrain_config" if isinstance(config, PretrainConfig) else "finetune_config"
    defaults = to_json(type(config)())
    lines, imports = list[str](), [start]
    for name, value in to_json(config).items():
        if not isinstance(value, dict):
            if value != defaults[name] and name != "recipe":
                lines.append(f"config.{name} = {value!r}")
            continue
        fields = {key: item for key, item in value.items() if key != "phases" and item != defaults[name][key]}
        if fields:
            lines += _call_lines(f"config.{name}.update", [f"{key}={item!r}" for key, item in fields.items()])
        if value.get("phases", ()) != defaults[name].get("phases", ()):
            imports.insert(0, "phases")
            phase_defaults = dataclasses.asdict(PhaseConfig())
            phases = [
                {key: item for key, item in phase.items() if item != phase_defaults[key] or key == "seq_len"}
                for phase in value["phases"]
            ]
            lines += _call_lines(f"config.{name}.phases = phases", [repr(phase) for phase in phases])
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"from bert_jax.config import {', '.join(imports)}\n\n\n"
        f"def get_config():\n    config = {start}()\n{body}    return config\n"
    )


def _call_lines(function: str, arguments: list[str]) -> list[str]:
    """Return the lines of a function call; a long call has a line for each argument."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= MAX_LINE:
        return [line]
    return [f"{function}(", *(f"    {argument}," for argument in arguments), ")"]
