"""A recipe, which is a TOML file -> the rules of a cleaning with their parameters, in the order of the file."""

import inspect
import math
import os
import pathlib
import tomllib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from importlib import metadata
from typing import Any
from typing import NamedTuple

from bert_jax.corpus.manifest import read_manifest
from bert_jax.corpus.manifest import split_snapshot
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.dedup_decisions import DEDUPLICATION
from bert_jax.corpus.build.dedup_decisions import NEAR_COPIES
from bert_jax.errors import UserError
from bert_jax.errors import did_you_mean
from bert_jax.errors import nearest

PACKAGE = pathlib.Path(__file__).resolve().parents[3]  # bert_jax; bert_jax.config would load what only training needs
# Kinds of parameters: the words for them, and whether a value of TOML is one.
_KINDS: dict[Any, tuple[str, Any]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: ("a finite number", lambda value: _is_number(value)),
    str: ("a text in quotes", lambda value: isinstance(value, str)),
    Sequence[str]: ("a list of texts", lambda value: _is_list(value, lambda item: isinstance(item, str))),
    Sequence[float]: ("a list of finite numbers", lambda value: _is_list(value, _is_number)),
}
_DEDUPLICATE, _AGAINST = "deduplicate", "against"
_MAX_BYTES = 1 << 20
LIBRARIES = ("ftfy", "py3langid")  # another version may clean otherwise


class Step(NamedTuple):
    """A row of `rules.table.RULES`, and all of its parameters."""

    rule: str
    parameters: Mapping[str, Any]


class Recipe(NamedTuple):
    """What a cleaning does.

    Attributes:
        name: of its file.
        steps: in order.
        deduplicate: as the option of `prepare`.
        against: corpora whose documents are removed, too.
    """

    name: str
    steps: tuple[Step, ...]
    deduplicate: str = "none"
    against: tuple[str, ...] = ()

    def identity(self) -> dict[str, Any]:
        """Return everything that its result depends on, as JSON, but for `deduplicate`."""
        steps = [
            [step.rule, dict(step.parameters), RULES[step.rule].versions(**step.parameters)] for step in self.steps
        ]
        corpora = [[place, _fingerprint(place)] for place in self.against]
        return {"steps": steps, "versions": [version_of(name) for name in LIBRARIES], "against": corpora}

    def description(self) -> dict[str, Any]:
        """Return what a manifest says."""
        rules = {step.rule: dict(step.parameters) for step in self.steps}
        return {"rules": rules, **({"against": list(self.against)} if self.against else {})}


def read_recipe(recipe: str | os.PathLike[str]) -> Recipe:
    """Read and check a recipe.

    Args:
        recipe: a file, or the name of a file in configs/clean, such as `web`.

    Raises:
        UserError: no such file; not TOML; an unknown rule or parameter, or one of another type; a package that is
            missing.
    """
    path = _find(os.fspath(recipe))
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"{path}: more than {_MAX_BYTES:,} bytes; give a recipe of cleaning")
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UserError(f"{path}: cannot be read as TOML ({error}); fix it") from None
    deduplicate = found.pop(_DEDUPLICATE, "none")
    if deduplicate not in DEDUPLICATION:
        raise UserError(f"{path}: {_DEDUPLICATE}: give one of {', '.join(DEDUPLICATION)}")
    against = found.pop(_AGAINST, [])
    if not _is_list(against, lambda item: isinstance(item, str)):
        raise UserError(f"{path}: {_AGAINST}: {against!r} is not a list of corpora, each a directory made by `prepare`")
    if against and deduplicate not in NEAR_COPIES:
        raise UserError(
            f'{path}: {_AGAINST} needs {_DEDUPLICATE} = "exact" or "near" before it, which says what is a copy'
        )
    steps = tuple(make_step(f"{path}", name, given) for name, given in found.items())
    return Recipe(str(path), steps, deduplicate, tuple(against))


def parameters_of(rule: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of a rule, which are the keyword-only arguments of its function."""
    found = inspect.signature(RULES[rule].apply).parameters
    return {name: one for name, one in found.items() if one.kind is one.KEYWORD_ONLY}


def make_step(path: str, rule: str, given: Any) -> Step:
    """Return a rule with the parameters of its table; UserError, which names `path`, where it has others."""
    if rule not in RULES:
        raise UserError(f"{path}: there is no rule '{rule}'{did_you_mean(rule, [*RULES, _DEDUPLICATE, _AGAINST])}")
    if not isinstance(given, dict):
        raise UserError(f"{path}: {rule} is a rule; write it as a table, [{rule}], with its parameters below")
    known = parameters_of(rule)
    for name, value in given.items():
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise UserError(f"{path}: [{rule}] has no parameter '{name}'{did_you_mean(name, known)} ({has})")
        words, is_one = _KINDS[known[name].annotation]
        if not is_one(value):
            raise UserError(f"{path}: [{rule}] {name}: {value!r} is not {words}")
    missing = [name for name, one in known.items() if one.default is one.empty and name not in given]
    if missing:
        raise UserError(f"{path}: [{rule}] needs the parameter '{missing[0]}'")
    parameters = {name: given.get(name, one.default) for name, one in known.items()}
    try:
        RULES[rule].check(**parameters)
    except UserError as error:
        raise UserError(f"{path}: {'' if str(error).startswith('[') else f'[{rule}] '}{error}") from None
    return Step(rule, parameters)


def version_of(library: str) -> str:
    """Return the version of a package; '' where it is missing."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _find(recipe: str) -> pathlib.Path:
    path = pathlib.Path(recipe)
    if path.is_file():
        return path
    known = {
        found.stem: found
        for folder in (PACKAGE / "configs", PACKAGE.parent / "configs")  # in a wheel, in a checkout
        for found in sorted(folder.glob("clean/*.toml"))
    }
    if found := known.get(path.name.removesuffix(".toml")):
        return found
    near = nearest(path.stem, known)
    raise UserError(
        f"{recipe}: no such file or recipe of cleaning{f'; did you mean {near}?' if near else ''} "
        f"(recipes: {', '.join(known)})"
    )


def _fingerprint(place: str) -> str:
    directory, snapshot = split_snapshot(place)
    return str(read_manifest(pathlib.Path(directory), snapshot)["fingerprint"])


def _is_list(value: Any, is_one: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(is_one, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
