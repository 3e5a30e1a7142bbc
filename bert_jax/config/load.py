"""Functions that read a recipe (a file or a name) and overrides, and return a frozen config.

A recipe (`configs/NAME.py`, in the checkout and in the wheel) calls `pretrain_config()` or `finetune_config()`, changes
fields and returns the result.
`resolve` checks this result against the dataclasses of schema.py: an unknown key or a wrong type is an error that names
the key.
"""

import dataclasses
import math
import numbers
import os
import pathlib
import re
import runpy
import sys
import textwrap
import traceback
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import ml_collections
from absl import flags
from ml_collections import config_dict, config_flags

from bert_jax.config.checks import (
    check_pretraining,
    field_values,
    refuse_empty_paths,
    refuse_fields_without_effect,
    unmet_conditions,
)
from bert_jax.config.field import FROM_0_BELOW_1, MAX_NUMBER, MAX_WHOLE_NUMBER, MIN_POSITIVE
from bert_jax.config.free_fields import FREE_TO_CHANGE
from bert_jax.config.phase import PhaseConfig
from bert_jax.config.schema import Config, FinetuneConfig, PretrainConfig
from bert_jax.config.suggestions import suggestion_text
from bert_jax.errors import UserError, nearest

MAX_CAUSE = 300  # characters of the error of a recipe that a message cites; a locked ConfigDict lists all its fields
PACKAGE = pathlib.Path(__file__).resolve().parents[1]
IN_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", tuple: "a tuple like (1, 2)"}
AnyConfig = TypeVar("AnyConfig", bound=Config)
RecipeName = str | os.PathLike[str]  # a file or a name that `find_recipe` knows

_NUMBERS = {int: numbers.Integral, float: numbers.Real}  # abstract class of the numbers of each type


def pretrain_config(
    recipe: RecipeName | None = None, overrides: Mapping[str, Any] | None = None
) -> ml_collections.ConfigDict:
    """Return a recipe, or all defaults of a pretraining run, as a mutable `ConfigDict`.

    Args:
        recipe: a file or a name that `find_recipe` knows, such as `small_cpu`; None: the defaults, which a recipe
            changes.
        overrides: values by key that replace values of the recipe: `{"train.steps": 9}`.

    Raises:
        UserError: no recipe has this name, the recipe is for fine-tuning, or `overrides` has an unknown key.
    """
    return _config_with_values(PretrainConfig, recipe, overrides or {})


def finetune_config(
    recipe: RecipeName | None = None, overrides: Mapping[str, Any] | None = None
) -> ml_collections.ConfigDict:
    """Return a recipe, such as `glue`, or all defaults of a fine-tuning run, as `pretrain_config` does."""
    return _config_with_values(FinetuneConfig, recipe, overrides or {})


def _config_with_values(
    kind: type[AnyConfig], recipe: RecipeName | None, overrides: Mapping[str, Any]
) -> ml_collections.ConfigDict:
    """Return a recipe or the defaults with other values; raise UserError for an unknown key or a wrong value."""
    config = _recipe_or_defaults(kind, recipe)
    known = _known_keys(config)
    texts = {key for key, _, inner in fields_of(kind) if _type_without_none(inner) is str}
    for key, value in overrides.items():
        if key not in known:
            raise UserError(f"config has no key '{key}'{suggestion_text(key, known)}")
        if isinstance(value, Collection) and not isinstance(value, str) and with_first_phase_index(key) in texts:
            raise UserError(f"config.{key}={value!r:.60}: give {IN_WORDS[str]}, such as 'a,b'")
    return _with_overrides(kind, config, {key: str(value) for key, value in overrides.items()})


def _known_keys(config: ml_collections.ConfigDict) -> list[str]:
    """Return the keys of a config as the command line spells them."""
    return [command_line_key(key) for key in flatten(_as_plain_values(config))]


def _recipe_or_defaults(kind: type[AnyConfig], recipe: RecipeName | None) -> ml_collections.ConfigDict:
    """Return a recipe, or the defaults, as a `ConfigDict`; raise UserError for a recipe of the other kind of run."""
    config = run_recipe(recipe) if recipe else _as_config_dict(kind())
    if (recipe_class := _config_class_of(config)) is not kind:  # otherwise, an error about unknown keys would follow
        work, verb = ("fine-tuning", "finetune") if recipe_class is FinetuneConfig else ("pretraining", "pretrain")
        raise UserError(f"--config={find_recipe(recipe or '')} is a {work} recipe; run it with `bert-jax {verb}`")
    return config


def phases(*values: dict[str, Any]) -> tuple[ml_collections.ConfigDict, ...]:
    """Return `train.phases`; each argument is a dict for a phase, and changes defaults of `PhaseConfig`."""
    built = []
    for changes in values:
        phase = _as_config_dict(PhaseConfig())
        phase.update(changes)
        built.append(phase)
    return tuple(built)


def read_config(kind: type[AnyConfig], recipe: RecipeName | None, overrides: Sequence[str] = ()) -> AnyConfig:
    """Return the config of a recipe with overrides.

    Args:
        kind: `PretrainConfig` or `FinetuneConfig`.
        recipe: a file or a name that `find_recipe` knows; None: the defaults.
        overrides: words such as `--config.train.steps=9` or `--config.train.phases[0].seq_len=64`.

    Raises:
        UserError: the file is no recipe, or a recipe of the other kind; or an override names no key, has a wrong type
        or has no effect.
    """
    config = _recipe_or_defaults(kind, recipe)
    known = _known_keys(config)
    values: dict[str, str] = {}
    for override in overrides:
        key, equals, values[key] = override.removeprefix("--config.").partition("=")
        if not override.startswith("--config."):
            raise UserError(_unknown_option_message(override, known))
        if key not in known:
            raise UserError(f"config has no key '{key}'{suggestion_text(key, known)}")
        if not equals:
            raise UserError(f"{override}: write {override}=VALUE")
    built = resolve(kind, _with_overrides(kind, config, values), values)
    return dataclasses.replace(built, recipe=_path_of_user_recipe(recipe)) if recipe and built.recipe is None else built


def config_class_of_recipe(recipe: RecipeName) -> type[PretrainConfig] | type[FinetuneConfig]:
    """Return the class of the config that a recipe makes; raise UserError for a file that is no recipe."""
    return _config_class_of(run_recipe(recipe))


def command_line_key(key: str) -> str:
    """Return a dotted key of `flatten` in the spelling of the command line: `train.phases[0].seq_len`."""
    return re.sub(r"\.(\d+)", r"[\1]", key)


def with_first_phase_index(key: str) -> str:
    """Return a key with the index of the first phase, as in the keys of `fields_of`: `train.phases[0].seq_len`."""
    return re.sub(r"\[\d+\]", "[0]", key)


def resolve(kind: type[AnyConfig], config: ml_collections.ConfigDict, given: Collection[str] = ()) -> AnyConfig:
    """Return the frozen, checked config of a `ConfigDict`; a frozen config is checked again.

    Dataclasses check no values, so a config of `dataclasses.replace` may have values that no reader of run.json
    accepts.

    The function raises UserError, which names the key, for an unknown key or a wrong value. `given` has the keys on the
    command line; a key that has no effect, because another field has a value, is an error.
    """
    built = section_from_values(kind, _as_plain_values(config), "config")
    refuse_empty_paths(built)
    refuse_fields_without_effect(built, given=given, with_tables=False)
    if isinstance(built, PretrainConfig):
        check_pretraining(built)
    return typing.cast(AnyConfig, built)


def with_vocab_size(config: PretrainConfig, vocab_size: int) -> PretrainConfig:
    """Return the config with the vocabulary size of its tokenizer; raise UserError if the config has another size."""
    if config.model.vocab_size not in (None, vocab_size):
        raise UserError(
            f"config.model.vocab_size={config.model.vocab_size}, but the corpus was prepared with a vocabulary of "
            f"{vocab_size}; set it to {vocab_size}, or leave it out"
        )
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=vocab_size))


def to_json(config: Config) -> dict[str, Any]:
    """Return the config as plain JSON values; `from_json` is the inverse function."""
    return dataclasses.asdict(config)


def from_json(values: dict[str, Any]) -> Config:
    """Return the config that `to_json` wrote; raise UserError for keys of another version of bert_jax."""
    kind = FinetuneConfig if "task" in values and "data" not in values else PretrainConfig
    return typing.cast(Config, section_from_values(kind, values, "config"))


def flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested dicts and lists of dicts as a flat dict with dotted keys, such as `train.phases.0.seq_len`."""
    is_section = isinstance(values, dict) or (
        isinstance(values, list | tuple) and any(isinstance(value, dict) for value in values)
    )
    if not is_section:
        return {prefix: values}
    flat: dict[str, Any] = {}
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def values_that_hosts_share(values: dict[str, Any], without: Sequence[str] = ()) -> dict[str, str]:
    """Return `config.KEY` -> value as text, for the keys whose values must be equal on all hosts of a run.

    `without` has further keys that are left out. The path of a recipe may differ between hosts; its fields may not.
    """
    left_out = {"recipe", *without}
    return {f"config.{key}": str(value) for key, value in flatten(values).items() if key not in left_out}


def config_differences(saved: dict[str, Any], wanted: dict[str, Any], also_free: tuple[str, ...] = ()) -> list[str]:
    """Return a line for each key that differs between two configs and changes the results of a run.

    An earlier version may have recorded a field without effect, although such a field is refused today; the value of
    such a field may differ.

    Args:
        saved: a config as `to_json` writes it.
        wanted: another config as `to_json` writes it.
        also_free: further keys, or prefixes of keys, that may differ, in addition to `FREE_TO_CHANGE`.
    """
    old, new = flatten(saved), flatten(wanted)
    free = tuple(key + "." for key in FREE_TO_CHANGE + also_free)
    settings = {setting.key: setting for setting in field_values(from_json(saved), "config")}
    unread = {unmet.setting.key for unmet in unmet_conditions(settings, "config")}
    return [
        f"{key}: {old.get(key)} -> {new.get(key)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
        and not f"{key}.".startswith(free)
        and f"config.{command_line_key(key)}" not in unread
    ]


def section_from_values(kind: Any, values: Any, path: str) -> Any:
    """Return nested dicts as a config or section of schema.py; raise UserError with a wrong key below `path`."""
    known = [key for key, _, _ in fields_of(kind)]
    for key in map(command_line_key, flatten(values) if isinstance(values, dict) else ()):
        if with_first_phase_index(key) not in known and not any(
            name.startswith((f"{key}.", f"{key}[")) for name in known
        ):
            raise UserError(f"{path} has no key '{key}'{suggestion_text(key, known)}")
    return _build_value(kind, values, path)


def _build_value(kind: Any, value: Any, path: str) -> Any:
    """Check a value and convert it to the type `kind`: a dataclass of schema.py, a tuple, a scalar, or None."""
    if isinstance(kind, types.UnionType):  # the type is `T | None`
        if value is None:
            return None
        kind = typing.get_args(kind)[0]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        if not isinstance(value, dict):
            raise UserError(f"{path}={value!r} must be a section with the keys {', '.join(hints)}")
        return kind(  # type: ignore[operator]
            **{
                field.name: _build_field(field, hints[field.name], value[field.name], f"{path}.{field.name}")
                for field in dataclasses.fields(kind)
                if field.name in value
            }
        )
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{path}={value!r} must be a tuple, such as (1, 2)")
        if not value:
            raise UserError(f"{path} is empty; give at least one value")
        return tuple(_build_value(typing.get_args(kind)[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if kind in _NUMBERS and type(value) not in (bool, int, float) and isinstance(value, _NUMBERS[kind]):
        value = kind(value)  # a number of NumPy
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise UserError(f"{path}={value!r}: give {IN_WORDS[kind]}")
    if kind is int and not -MAX_WHOLE_NUMBER <= value <= MAX_WHOLE_NUMBER:
        raise UserError(f"{path}={value!r:.40}: give a whole number up to {MAX_WHOLE_NUMBER}")
    if kind is float and not -MAX_NUMBER <= value <= MAX_NUMBER:
        raise UserError(f"{path}={value!r:.40}: give a finite number, up to {MAX_NUMBER:g}")
    return float(value) if kind is float else value


def _build_field(field: "dataclasses.Field[Any]", kind: Any, value: Any, path: str) -> Any:
    """Check the value of a field and convert it to the type `kind`; raise UserError if the value is not allowed."""
    if value is None and field.default is None:
        return None
    built, allowed = _build_value(kind, value, path), field.metadata["allowed"]
    if built is None or not allowed:
        return built
    if isinstance(allowed[0], str):
        if built not in allowed:
            raise UserError(f"{path}={built!r}: choose from {', '.join(allowed)}")
    elif not allowed[0] <= built <= allowed[1]:
        unset = ", or None" if isinstance(kind, types.UnionType) else ""
        raise UserError(f"{path}={built!r} must {range_in_words(*allowed)}{unset}")
    return built


class ConfigField(NamedTuple):
    """A field of a config class, with its dotted key and its type."""

    key: str
    field: "dataclasses.Field[Any]"
    type: Any


def fields_of(kind: Any, path: str = "") -> Iterator[ConfigField]:
    """Yield (dotted key, field, type) of every field of a config class; a phase has keys `train.phases[0].NAME`."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, inner = f"{path}{field.name}", hints[field.name]
        if dataclasses.is_dataclass(inner):
            yield from fields_of(inner, f"{key}.")
        elif typing.get_origin(inner) is tuple and dataclasses.is_dataclass(typing.get_args(inner)[0]):
            yield from fields_of(typing.get_args(inner)[0], f"{key}[0].")
        else:
            yield ConfigField(key, field, inner)


def _as_config_dict(config: Any) -> ml_collections.ConfigDict:
    """Return a config dataclass as a ConfigDict.

    A field whose value is None keeps its type, so that the command line can set it.
    """
    values = {}
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, kind = getattr(config, field.name), hints[field.name]
        if dataclasses.is_dataclass(value):
            values[field.name] = _as_config_dict(value)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            values[field.name] = tuple(_as_config_dict(part) for part in value)
        elif isinstance(kind, types.UnionType) or value is None:
            values[field.name] = config_dict.FieldReference(value, field_type=_type_without_none(kind))
        else:
            values[field.name] = value
    return ml_collections.ConfigDict(values)


def _type_without_none(kind: Any) -> type:
    """Return the type `T` for `T | None`, and the type `tuple` for `tuple[T, ...]`."""
    if isinstance(kind, types.UnionType):
        kind = typing.get_args(kind)[0]
    return typing.cast(type, typing.get_origin(kind) or kind)


def _unknown_option_message(override: str, known: Collection[str]) -> str:
    """Return the message for an override that does not begin with `--config.`."""
    name, equals, value = override.lstrip("-").partition("=")
    key = name.removeprefix("config.")
    if key in known:
        return f"'{override}' is not an option; write --config.{key}{equals}{value}"
    return f"'{override}' is not an option{suggestion_text(name, known)}"


def _config_class_of(config: ml_collections.ConfigDict) -> type[PretrainConfig] | type[FinetuneConfig]:
    return FinetuneConfig if "task" in config else PretrainConfig


class _UnprintedConfigDict(ml_collections.ConfigDict):
    """A `ConfigDict` whose text is empty, because the text, which absl makes for its help, takes too much time."""

    def __str__(self) -> str:
        return ""


def _with_overrides(
    kind: type, config: ml_collections.ConfigDict, values: Mapping[str, str]
) -> ml_collections.ConfigDict:
    """Return a config with new values by key; the flag parser of ml_collections reads the values except None."""
    parsed = flags.FlagValues()
    argv = ["bert_jax", *(f"--config.{key}={value}" for key, value in values.items() if value != "None")]
    unprinted = _UnprintedConfigDict(config)
    config_flags.DEFINE_config_dict("config", unprinted, flag_values=parsed, sys_argv=argv)
    try:
        parsed(argv)
    except flags.IllegalFlagValueError as error:
        key = str(error).removeprefix("flag --config.").partition("=")[0]
        wanted = next(
            (_type_without_none(inner) for name, _, inner in fields_of(kind) if name == with_first_phase_index(key)),
            object,
        )
        raise UserError(f"--config.{key}={values[key]}: give {IN_WORDS.get(wanted, 'another value')}") from error
    except Exception as error:  # ml_collections raises errors of many types
        raise UserError(f"the options of the config do not fit ({type(error).__name__}: {error})") from error
    for key in (key for key, value in values.items() if value == "None"):
        config_flags.config_path.set_value(key, parsed.config, None)
    return ml_collections.ConfigDict(parsed.config)


def recipes() -> dict[str, pathlib.Path]:
    """Return name -> file of the recipes that come with bert_jax, such as `demo` and `finetune/glue`."""
    for folder in (PACKAGE / "configs", PACKAGE.parent / "configs"):  # the folder in a wheel, and in a checkout
        if folder.is_dir():
            files = sorted(path for path in folder.rglob("*.py") if path.stem != "__init__")
            return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}
    return {}


class RecipeFile(NamedTuple):
    """The file of a recipe, and the argument of its `get_config` with a colon before it; "" without an argument."""

    path: str
    argument: str

    def __str__(self) -> str:
        return self.path + self.argument


def find_recipe(recipe: RecipeName) -> RecipeFile:
    """Return the file and the argument of a recipe.

    Args:
        recipe: `my/recipe.py`, `demo`, `finetune/glue` or `glue`; each may end in an argument, as `bert:tiny` does. The
            path of a file may have colons.

    Raises:
        UserError: neither a file nor a recipe has this name.
    """
    recipe = os.fspath(recipe)
    names = (recipe[: match.start()] for match in re.finditer(":|$", recipe))
    name = next((name for name in names if pathlib.Path(name).is_file()), None)
    if name is not None:
        return RecipeFile(name, recipe.removeprefix(name))
    name, colon, argument = recipe.partition(":")
    known = recipes()
    short = {known_name.rpartition("/")[2]: path for known_name, path in reversed(known.items())}
    wanted = name.removesuffix(".py").removeprefix("configs/").replace("-", "_")
    path = known.get(wanted) or short.get(wanted)
    if path:
        return RecipeFile(str(path), colon + argument)
    near = nearest(pathlib.Path(name).stem, short)
    suggestion = f"did you mean '{near}'?" if near else "such as small_cpu, bert_base or finetune/glue;"
    raise UserError(f"--config={recipe}: no such file or recipe; {suggestion} `bert-jax config` lists all")


def _path_of_user_recipe(recipe: RecipeName) -> str | None:
    """Return the absolute path and the argument of a user's recipe; None for a recipe that comes with bert_jax."""
    file = find_recipe(recipe)
    absolute = pathlib.Path(file.path).resolve()
    return None if absolute in recipes().values() else f"{absolute}{file.argument}"


def run_recipe(recipe: RecipeName) -> ml_collections.ConfigDict:
    """Return the result of a recipe's get_config(), called with the argument after the colon, if any.

    If the recipe adds rows to tables (a masking rule, an optimizer), the rows exist in this process. The recipe may
    import modules that are in its directory.
    """
    file = find_recipe(recipe)
    directory = str(pathlib.Path(file.path).resolve().parent)
    known = set(sys.modules)
    sys.path.append(directory)  # at the end, so that no file in the directory replaces an installed package
    try:
        functions = runpy.run_path(file.path)
        if "get_config" not in functions:
            raise UserError(f"--config={file}: has no function get_config(); a recipe is a Python file with it")
        config = functions["get_config"](*[file.argument[1:]] if file.argument else [])
    except UserError:
        raise
    except Exception as error:  # a recipe is a program, which may raise any error
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"line {frame.lineno}, " for frame in frames if frame.filename == file.path]
        where = lines[-1] if lines else ""
        cause = textwrap.shorten(f"{type(error).__name__}: {error}", MAX_CAUSE, placeholder=" ...")
        raise UserError(f"--config={file}: get_config() does not run ({where}{cause})") from error
    finally:
        if sys.path[-1] == directory:
            sys.path.pop()
        _forget_modules(directory, sys.modules.keys() - known)
    if not isinstance(config, ml_collections.ConfigDict):
        raise UserError(f"--config={file}: its get_config() must return an ml_collections.ConfigDict")
    return config


def add_table_rows_of_recipe(recipe: RecipeName | None) -> None:
    """Run a recipe, which may add rows to tables for this process; do nothing if `recipe` is None."""
    if recipe is not None:
        run_recipe(recipe)


def _forget_modules(directory: str, names: Collection[str]) -> None:
    """Forget the modules that lie directly in a directory, so that a later recipe does not get these modules."""
    files = {
        name: (os.path.join(directory, f"{name}.py"), os.path.join(directory, name, "__init__.py")) for name in names
    }
    in_directory = {name for name in names if getattr(sys.modules[name], "__file__", None) in files[name]}
    for name in names:
        if name.partition(".")[0] in in_directory:
            del sys.modules[name]


def _as_plain_values(config: Any) -> Any:
    """Return a config as dicts, tuples and scalars (`ConfigDict.to_dict` stops at tuples)."""
    if isinstance(config, PretrainConfig | FinetuneConfig):
        return to_json(config)
    if isinstance(config, ml_collections.ConfigDict):
        try:
            return {key: _as_plain_values(value) for key, value in config.items()}
        except config_dict.RequiredValueError:  # the parser of ml_collections cannot give such a field a value
            raise UserError("a field is a required_placeholder; set it, or use config_dict.placeholder") from None
    return tuple(_as_plain_values(value) for value in config) if isinstance(config, list | tuple) else config


def range_in_words(lowest: float, highest: float) -> str:
    """Return a range as a verb phrase, such as `be at least 1`, `be above 0 and at most 1` or `lie from 0 to 1`."""
    below = "below " if highest == FROM_0_BELOW_1[1] else ""
    if lowest == MIN_POSITIVE:
        return "be above 0" if highest == math.inf else f"be above 0 and {below or 'at most '}{highest:g}"
    return f"be at least {lowest:g}" if highest == math.inf else f"lie from {lowest:g} to {below}{highest:.10g}"
