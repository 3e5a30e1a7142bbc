"""A recipe and its overrides -> one frozen config.

A recipe (`configs/NAME.py`) calls `pretrain_config()` or `finetune_config()`, changes what differs and returns it.
`resolve` checks the result against the dataclasses of schema/, so that an unknown key or a wrong type is refused by
name.
"""

import dataclasses
import importlib
import math
import re
import runpy
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import ml_collections
from absl import flags
from ml_collections import config_dict, config_flags

from bert_jax.config.checks import check_overrides, check_pretraining
from bert_jax.config.find_recipe import find_recipe
from bert_jax.config.free_fields import FREE_TO_CHANGE
from bert_jax.config.schema import FROM_0_BELOW_1, LARGEST, Config, FinetuneConfig, PhaseConfig, PretrainConfig
from bert_jax.config.suggestions import meant_keys
from bert_jax.errors import UserError, did_you_mean

IN_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", tuple: "a tuple like (1, 2)"}
AnyConfig = TypeVar("AnyConfig", bound=Config)


def pretrain_config() -> ml_collections.ConfigDict:
    """Return all defaults of a pretraining run as a mutable `ConfigDict`, for a recipe to change."""
    return _as_config_dict(PretrainConfig())


def finetune_config() -> ml_collections.ConfigDict:
    """Return all defaults of a fine-tuning run, likewise."""
    return _as_config_dict(FinetuneConfig())


def phases(*values: dict[str, Any]) -> tuple[ml_collections.ConfigDict, ...]:
    """Return `train.phases` from one dict per phase, each over the defaults of `PhaseConfig`."""
    found = []
    for one in values:
        phase = _as_config_dict(PhaseConfig())
        phase.update(one)
        found.append(phase)
    return tuple(found)


def read_config(kind: type[AnyConfig], recipe: str | None, overrides: Sequence[str]) -> AnyConfig:
    """Return the config of a recipe with overrides.

    Args:
        kind: `PretrainConfig` or `FinetuneConfig`, whichever the caller runs.
        recipe: a file or a name that `find_recipe` knows; None: the defaults.
        overrides: such as `--config.train.steps=9` or `--config.train.phases[0].seq_len=64`.

    Raises:
        UserError: the file is no recipe or one of the other kind, or an override names no key, does not fit its type or
            has no effect.
    """
    file = find_recipe(recipe) if recipe else None
    loaded = _load(kind, file, ())
    _check_kind(kind, loaded, file)
    known = {index_form(key): value for key, value in flatten(_plain(loaded)).items()}
    to_none = []
    for override in overrides:
        key, equals, value = override.removeprefix("--config.").partition("=")
        if not override.startswith("--config."):
            raise UserError(_not_an_option(override, known))
        if key not in known:
            raise UserError(f"config has no key '{key}'{meant_keys(key, known)}")
        if not equals:
            raise UserError(f"{override}: write {override}=VALUE")
        if value == "None":
            to_none.append(key)
    given = [one for one in overrides if not one.endswith("=None")]
    try:
        config = _load(kind, file, given)
    except flags.IllegalFlagValueError as error:
        key = str(error).removeprefix("flag --config.").partition("=")[0]
        wrong = next(one for one in overrides if one.startswith(f"--config.{key}="))
        raise UserError(f"{wrong}: give {IN_WORDS.get(_type_of(kind, key) or object, 'another value')}") from error
    for key in to_none:  # ml_collections has no spelling for it
        config_flags.config_path.set_value(key, config, None)
    resolved = resolve(kind, config)
    check_overrides(resolved, [one.removeprefix("--config.").partition("=")[0] for one in overrides])
    return resolved


def recipe_kind(recipe: str) -> type[PretrainConfig] | type[FinetuneConfig]:
    """Return the kind of config that a recipe returns; UserError where it is no recipe."""
    return FinetuneConfig if "task" in _load(PretrainConfig, find_recipe(recipe), ()) else PretrainConfig


def index_form(key: str) -> str:
    """Return a dotted key of `flatten` as the command line spells it: `train.phases[0].seq_len`."""
    return re.sub(r"\.(\d+)", r"[\1]", key)


def resolve(kind: type[AnyConfig], config: ml_collections.ConfigDict) -> AnyConfig:
    """Return the frozen config; UserError names a key that is unknown, of a wrong type or out of range."""
    values, known = _plain(config), [key for key, _, _ in fields_of(kind)]
    for key in map(index_form, flatten(values)):
        first = re.sub(r"\[\d+\]", "[0]", key)
        if first not in known and not any(one.startswith((f"{key}.", f"{key}[")) for one in known):
            raise UserError(f"config has no key '{key}'{meant_keys(key, known)}")
    built = from_values(kind, values, "config")
    if isinstance(built, PretrainConfig):
        check_pretraining(built)
    return typing.cast(AnyConfig, built)


def check_choices(config: Any, path: str = "config") -> None:
    """Raise UserError where a field names a row that its table does not have.

    `config` is a config or a part of one. The tables are in rooms above this one, so they are found by name, when a run
    starts.
    """
    for field in dataclasses.fields(config):
        value, here = getattr(config, field.name), f"{path}.{field.name}"
        if dataclasses.is_dataclass(value):
            check_choices(value, here)
        elif field.metadata["table"] and value is not None:
            known = table_of(field)
            if value not in known:
                raise UserError(f"{here}={value!r}: choose from {', '.join(known)}{did_you_mean(value, known)}")


def table_of(field: "dataclasses.Field[Any]") -> Any:
    """Return the table whose keys are the values of a field."""
    module, _, name = field.metadata["table"].rpartition(".")
    return getattr(importlib.import_module(module), name)


def with_vocab_size(config: PretrainConfig, vocab_size: int) -> PretrainConfig:
    """Return the config with the vocabulary size of its tokenizer; UserError where it has another one already."""
    if config.model.vocab_size not in (None, vocab_size):
        raise UserError(
            f"config.model.vocab_size={config.model.vocab_size}, but the corpus was prepared with a vocabulary of "
            f"{vocab_size}; set it to {vocab_size}, or leave it out"
        )
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=vocab_size))


def to_json(config: Config) -> dict[str, Any]:
    """Return the config as plain JSON values; `from_json` is its inverse."""
    return dataclasses.asdict(config)


def from_json(values: dict[str, Any]) -> Config:
    """Return the config that `to_json` wrote; UserError where its keys are those of another version."""
    kind = FinetuneConfig if "task" in values and "data" not in values else PretrainConfig
    return typing.cast(Config, from_values(kind, values, "config"))


def flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested dicts, and lists of them, as one dict with dotted keys: `train.phases.0.seq_len`."""
    whole = isinstance(values, list | tuple) and not any(isinstance(one, dict) for one in values)
    if whole or not isinstance(values, dict | list | tuple):
        return {prefix: values}
    items = values.items() if isinstance(values, dict) else enumerate(values)
    flat: dict[str, Any] = {}
    for key, value in items:
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def differences(saved: Config, wanted: Config, also_free: tuple[str, ...] = ()) -> list[str]:
    """Return one line for each key in which two configs differ so that the numbers of a run would.

    `also_free`: keys, or beginnings of keys, to leave out beside those of `FREE_TO_CHANGE`.
    """
    old, new = flatten(to_json(saved)), flatten(to_json(wanted))
    free = tuple(key + "." for key in FREE_TO_CHANGE + also_free)
    return [
        f"{key}: {old.get(key)} -> {new.get(key)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not f"{key}.".startswith(free)
    ]


def from_values(kind: Any, value: Any, path: str) -> Any:
    """Return `value` as an instance of `kind`: a dataclass of schema/, a tuple of one, a scalar, or None.

    Raises UserError, which names what is wrong after `path`.
    """
    if isinstance(kind, types.UnionType):  # `T | None`
        if value is None:
            return None
        kind = typing.get_args(kind)[0]
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, path)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{path}={value!r} must be a tuple, such as (1, 2)")
        one = typing.get_args(kind)[0]
        if not value:
            raise UserError(f"{path} is empty; give at least one value")
        return tuple(from_values(one, item, f"{path}[{i}]") for i, item in enumerate(value))
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise UserError(f"{path}={value!r}: give {IN_WORDS[kind]}")
    if kind in (int, float) and not -LARGEST <= value <= LARGEST:
        raise UserError(f"{path}={value!r:.40}: give a finite number, up to {LARGEST:g}")
    return float(value) if kind is float else value


def fields_of(kind: Any, path: str = "") -> Iterator[tuple[str, "dataclasses.Field[Any]", Any]]:
    """Yield (dotted key, field, type) of every field of a config class, phases as `train.phases[0]`."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, inner = f"{path}{field.name}", hints[field.name]
        if dataclasses.is_dataclass(inner):
            yield from fields_of(inner, f"{key}.")
        elif typing.get_origin(inner) is tuple and dataclasses.is_dataclass(typing.get_args(inner)[0]):
            yield from fields_of(typing.get_args(inner)[0], f"{key}[0].")
        else:
            yield key, field, inner


def _as_config_dict(config: Any) -> ml_collections.ConfigDict:
    """A dataclass as a ConfigDict; fields that may be None keep their type, so that the command line can set them."""
    values = {}
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, kind = getattr(config, field.name), hints[field.name]
        if dataclasses.is_dataclass(value):
            values[field.name] = _as_config_dict(value)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            values[field.name] = tuple(_as_config_dict(one) for one in value)
        elif isinstance(kind, types.UnionType) or value is None:
            values[field.name] = config_dict.FieldReference(value, field_type=_scalar(kind))
        else:
            values[field.name] = value
    return ml_collections.ConfigDict(values)


def _scalar(kind: Any) -> type:
    """The type of values of `T | None` or `tuple[T, ...]`, without what is in a tuple."""
    if isinstance(kind, types.UnionType):
        kind = typing.get_args(kind)[0]
    return typing.cast(type, typing.get_origin(kind) or kind)


def _type_of(kind: Any, key: str) -> type | None:
    wanted = re.sub(r"\[\d+\]", "[0]", key)
    return next((_scalar(inner) for name, _, inner in fields_of(kind) if name == wanted), None)


def _not_an_option(override: str, known: dict[str, Any]) -> str:
    name, equals, value = override.lstrip("-").partition("=")
    meant = name if name.startswith("config.") else f"config.{name}"
    if meant.removeprefix("config.") in known:
        return f"'{override}' is not an option; write --{meant}{equals}{value}"
    return f"'{override}' is not an option{meant_keys(name, known)}"


def _check_kind(kind: type, loaded: ml_collections.ConfigDict, file: str | None) -> None:
    """Refuse a recipe of the other kind, which no list of unknown keys would explain."""
    found = FinetuneConfig if "task" in loaded else PretrainConfig
    if found is not kind:
        verb, other = ("fine-tuning", "finetune") if found is FinetuneConfig else ("pretraining", "pretrain")
        raise UserError(f"--config={file} is a {verb} recipe; run it with `bert-jax {other}`")


def _load(kind: type, file: str | None, overrides: Sequence[str]) -> ml_collections.ConfigDict:
    """The recipe's ConfigDict, or the default one, overridden by ml_collections' own flag parser."""
    default = finetune_config if kind is FinetuneConfig else pretrain_config
    config = _run_recipe(file) if file else default()
    values = flags.FlagValues()
    argv = ["bert_jax", *overrides]
    config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
    try:
        values(argv)
    except (flags.IllegalFlagValueError, UserError):
        raise
    except Exception as error:
        raise UserError(f"the options of the config do not fit ({type(error).__name__}: {error})") from error
    return values.config


def _run_recipe(file: str) -> ml_collections.ConfigDict:
    """Return what get_config() of a recipe returns, called with the argument after the colon where there is one."""
    path, colon, argument = file.partition(":")
    try:
        config = runpy.run_path(path)["get_config"](*[argument] if colon else [])
    except UserError:
        raise
    except Exception as error:  # a recipe is a program: it may raise anything
        raise UserError(f"--config={file}: get_config() does not run ({type(error).__name__}: {error})") from error
    if not isinstance(config, ml_collections.ConfigDict):
        raise UserError(f"--config={file}: its get_config() must return an ml_collections.ConfigDict")
    return config


def _plain(config: Any) -> Any:
    """A ConfigDict as dicts, tuples and scalars (its own to_dict stops at tuples)."""
    if isinstance(config, ml_collections.ConfigDict):
        return {key: _plain(value) for key, value in config.items()}
    return tuple(_plain(value) for value in config) if isinstance(config, list | tuple) else config


def _build_dataclass(kind: Any, value: Any, path: str) -> Any:
    hints = typing.get_type_hints(kind)
    if not isinstance(value, dict):
        raise UserError(f"{path}={value!r} must be a section with the keys {', '.join(hints)}")
    for key in value:
        if key not in hints:
            raise UserError(
                f"{path} has no key '{key}'{meant_keys(f'{path}.{key}', (f'{path}.{one}' for one in hints))}"
            )
    fields = {}
    for field in dataclasses.fields(kind):
        if field.name not in value:
            continue
        here, inner = f"{path}.{field.name}", hints[field.name]
        if value[field.name] is None and field.default is None:
            continue
        fields[field.name] = built = from_values(inner, value[field.name], here)
        allowed = field.metadata["allowed"]
        if built is None or not allowed:
            continue
        if isinstance(allowed[0], str) and built not in allowed:
            raise UserError(f"{here}={built!r}: choose from {', '.join(allowed)}")
        if not isinstance(allowed[0], str) and not allowed[0] <= built <= allowed[1]:
            unset = ", or None" if isinstance(inner, types.UnionType) else ""
            raise UserError(f"{here}={built!r} must {range_in_words(*allowed)}{unset}")
    return kind(**fields)


def range_in_words(lowest: float, highest: float) -> str:
    """Return a range as a verb phrase: `be at least 1`, `lie from 0 to below 1`."""
    if highest == math.inf:
        return "be above 0" if lowest == 1e-6 else f"be at least {lowest:g}"
    return f"lie from {lowest:g} to {'below ' if highest == FROM_0_BELOW_1[1] else ''}{highest:g}"
