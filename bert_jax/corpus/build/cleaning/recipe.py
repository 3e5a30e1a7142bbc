"""The recipe of a cleaning: a TOML file -> rules with their parameters, in the order of the file."""

import math
import os
import pathlib
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.dedup_decisions import REMOVED_COPIES
from bert_jax.errors import UserError, did_you_mean, nearest
from bert_jax.files import Paths, list_paths
from bert_jax.readers import find_files

PACKAGE = (
    pathlib.Path(__file__).resolve().parents[3]
)  # the folder bert_jax; an import of bert_jax.config would load libraries of training
# Type of a parameter -> its name in messages, and a test whether a TOML value has the type.
_PARAMETER_TYPES: dict[Any, tuple[str, Any]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a finite number", lambda value: _is_finite_number(value)),
    str: ("a text in quotes", lambda value: isinstance(value, str)),
    Sequence[str]: ("a list of texts", lambda value: _is_list_of(value, lambda item: isinstance(item, str))),
    tuple[tuple[int, float]]: (
        "a list of pairs, such as [[2, 0.2], [3, 0.18]]",
        lambda value: _is_list_of(value, _is_count_and_number),
    ),
}
# Types of datatrove's parameters; TOML has no null, and 0 or -1 turns a threshold off.
_PARAMETER_TYPES |= {
    int | None: _PARAMETER_TYPES[int],
    float | None: _PARAMETER_TYPES[float],
    list[str] | None: _PARAMETER_TYPES[Sequence[str]],
    tuple[str, ...] | None: _PARAMETER_TYPES[Sequence[str]],
}
_DEDUPLICATE, _AGAINST = "deduplicate", "against"
_CONTAMINATION, _FILES = "contamination", "files"  # a rule, and the name of its parameter with file names
_MAX_BYTES = 1 << 20
LIBRARIES = ("datatrove", "ftfy", "py3langid", "spacy")  # other versions of these packages may give other results


class Step(NamedTuple):
    """A rule, by its name in `rules.RULES`, and all of its parameters."""

    rule: str
    parameters: Mapping[str, Any]


class Recipe(NamedTuple):
    """A recipe of cleaning.

    Attributes:
        name: path of the file.
        steps: rules with their parameters, in order.
        deduplicate: value of the option `deduplicate` of `prepare`.
        against: corpora whose documents are removed as copies: absolute directories, and URLs.
    """

    name: str
    steps: tuple[Step, ...]
    deduplicate: str = "none"
    against: tuple[str, ...] = ()

    def identity(self, against_fingerprints: Sequence[str]) -> dict[str, Any]:
        """Return everything that the result of the recipe depends on, except `deduplicate`, as JSON.

        `against_fingerprints` are the fingerprints of the corpora `against`.
        """
        steps = [
            [step.rule, dict(step.parameters), RULES[step.rule].versions(**step.parameters)] for step in self.steps
        ]
        corpora = [list(pair) for pair in zip(self.against, against_fingerprints, strict=True)]
        return {"steps": steps, "versions": [version_of(name) for name in LIBRARIES], "against": corpora}

    def for_manifest(self) -> dict[str, Any]:
        """Return the entries of a corpus's manifest about the recipe, as JSON."""
        rules = {step.rule: dict(step.parameters) for step in self.steps}
        return {"rules": rules, **({"against": list(self.against)} if self.against else {})}


def read_recipe_if_given(recipe: str | os.PathLike[str] | None, evaluation_files: Paths | None = None) -> Recipe | None:
    """Return the recipe of a cleaning, as `read_recipe`, or None if no recipe is given.

    Raises:
        UserError: `read_recipe` raises it, or only evaluation files are given.
    """
    if recipe is not None:
        return read_recipe(recipe, evaluation_files)
    if evaluation_files:
        raise UserError("--evaluation_files: only a recipe of cleaning looks for their texts; give --clean RECIPE")
    return None


def read_recipe(recipe: str | os.PathLike[str], evaluation_files: Paths | None = None) -> Recipe:
    """Read and check the recipe of a cleaning.

    Args:
        recipe: path of a file, or name of a file in configs/clean, such as `web`.
        evaluation_files: files, directories or globs for the rule `contamination`, in place of its parameter `files`.
            The rule is added to a recipe without this rule. None: the files that the recipe names, which must be below
            the directory of the recipe.

    Raises:
        UserError: the recipe does not exist, or is not TOML; an unknown rule or parameter; a parameter of the wrong
            type; a missing package; an evaluation file that is not below the directory of the recipe.
    """
    path = _find_recipe(os.fspath(recipe))
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"{path}: more than {_MAX_BYTES:,} bytes; give a recipe of cleaning")
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UserError(f"{path}: cannot be read as TOML ({error}); fix it") from None
    deduplicate = tables.pop(_DEDUPLICATE, "none")
    if deduplicate not in [*REMOVED_COPIES]:  # a list, since TOML may give a value that cannot be a key of a dict
        raise UserError(f"{path}: {_DEDUPLICATE}: give one of {', '.join(REMOVED_COPIES)}")
    against = tables.pop(_AGAINST, [])
    if not _is_list_of(against, lambda item: isinstance(item, str)):
        raise UserError(f"{path}: {_AGAINST}: {against!r} is not a list of corpora, each a directory made by `prepare`")
    if against and not REMOVED_COPIES[deduplicate]:
        raise UserError(
            f'{path}: {_AGAINST} needs {_DEDUPLICATE} = "exact" or "near" before it, the definition of a copy'
        )
    rule = tables.setdefault(_CONTAMINATION, {}) if evaluation_files else tables.get(_CONTAMINATION)
    if isinstance(rule, dict):
        if evaluation_files:
            rule[_FILES] = [*map(_make_absolute, list_paths(evaluation_files))]
        elif _is_list_of(rule.get(_FILES), lambda item: isinstance(item, str)):
            rule[_FILES] = _check_files_below_recipe(path, rule[_FILES])
    steps = tuple(make_cleaning_step(f"{path}", name, given) for name, given in tables.items())
    return Recipe(str(path), steps, deduplicate, tuple(map(_make_absolute, against)))


def _make_absolute(path: str) -> str:
    """Return a path as an absolute path, which an append from another directory also finds; return a URL unchanged."""
    return path if "://" in path or path.startswith("tfds:") else os.path.abspath(path)


def _check_files_below_recipe(recipe: pathlib.Path, names: Sequence[str]) -> list[str]:
    """Return the paths of evaluation files that a recipe names, relative to its directory.

    A stranger may have written the recipe, and the result of the cleaning shows words of the evaluation files. An
    evaluation file outside of the recipe's directory, or a link to such a file, is therefore refused.
    """
    directory, where = os.path.realpath(recipe.parent), f"{recipe}: [{_CONTAMINATION}] {_FILES}"
    paths = [os.path.abspath(os.path.join(os.path.dirname(recipe), name)) for name in names]
    for name, path in zip(names, paths, strict=True):
        if "://" in name or name.startswith("tfds:"):
            raise UserError(f"{where}: {name} is no local file; copy it to this machine, and name the copy")
        try:
            files = find_files([path])
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        for file in files:
            if os.path.commonpath([directory, os.path.realpath(file)]) != directory:
                raise UserError(
                    f"{where}: {name} is not below {directory}; if you trust the recipe, add --evaluation_files "
                    f" {shlex.join(map(os.path.normpath, paths))}"
                )
    return paths


def make_cleaning_step(path: str, rule: str, given: Any) -> Step:
    """Return a rule with the parameters `given`, and defaults otherwise; raise UserError for a wrong parameter."""
    if rule not in RULES:
        raise UserError(f"{path}: there is no rule '{rule}'{did_you_mean(rule, [*RULES, _DEDUPLICATE, _AGAINST])}")
    if not isinstance(given, dict):
        raise UserError(f"{path}: {rule} is a rule; write it as a table, [{rule}], with its parameters below")
    known = RULES[rule].parameters()
    for name, value in given.items():
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UserError(f"{path}: [{rule}] has no parameter '{name}'{did_you_mean(name, known)} ({has})")
        description, accepts = _PARAMETER_TYPES[known[name].annotation]
        is_default = value is None and known[name].default is None  # None comes from null in a corpus's manifest
        if not is_default and not accepts(value):
            raise UserError(f"{path}: [{rule}] {name}: {value!r} is not {description}")
    missing = [name for name, parameter in known.items() if parameter.default is parameter.empty and name not in given]
    if missing:
        raise UserError(f"{path}: [{rule}] needs the parameter '{missing[0]}'")
    parameters = {name: _lists_to_tuples(given.get(name, parameter.default)) for name, parameter in known.items()}
    try:
        RULES[rule].check(**parameters)
    except UserError as error:
        raise UserError(f"{path}: {'' if str(error).startswith('[') else f'[{rule}] '}{error}") from None
    return Step(rule, parameters)


def version_of(library: str) -> str:
    """Return the version of an installed package; '' if it is missing."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _find_recipe(recipe: str) -> pathlib.Path:
    """Return the path of a recipe, from its path or its name; raise UserError if it does not exist."""
    path = pathlib.Path(recipe)
    if path.is_file():
        return path
    known = {
        file.stem: file
        for folder in (PACKAGE / "configs", PACKAGE.parent / "configs")  # the folder in a wheel, and in a checkout
        for file in sorted(folder.glob("clean/*.toml"))
    }
    if file := known.get(path.name.removesuffix(".toml")):
        return file
    near = nearest(path.stem, known)
    raise UserError(
        f"{recipe}: no such file or recipe of cleaning{f'; did you mean {near!r}?' if near else ''} "
        f"(recipes: {', '.join(known)})"
    )


def _is_list_of(value: Any, accepts: Callable[[Any], bool]) -> bool:
    """Return whether a value is a list of items that `accepts` accepts."""
    return isinstance(value, list) and all(map(accepts, value))


def _is_count_and_number(value: Any) -> bool:
    """Return whether a value is a list of two items: a positive whole number and a finite number."""
    return _is_list_of(value, _is_finite_number) and len(value) == 2 and isinstance(value[0], int) and value[0] > 0


def _lists_to_tuples(value: Any) -> Any:
    """Return a value with tuples in place of lists, so that the value is hashable."""
    return tuple(map(_lists_to_tuples, value)) if isinstance(value, list) else value


def _is_finite_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
