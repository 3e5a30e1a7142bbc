"""What `bert-jax config` prints: the recipes, and every field of one with value, default and meaning."""

import ast
import dataclasses
import re
import shutil
import textwrap
import types
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax.config import FinetuneConfig, PretrainConfig, fields_of, flatten, index_form, read_config, to_json
from bert_jax.config.find_recipe import recipes
from bert_jax.config.load import range_in_words, recipe_kind, table_of

VERB_OF = {PretrainConfig: "pretrain", FinetuneConfig: "finetune"}
WIDTHS = 60, 120  # columns, minimum and maximum


class Field(NamedTuple):
    """A field as it is printed."""

    key: str  # train.phases[0].seq_len
    value: Any
    default: Any
    meaning: str
    takes: str  # "one of bert, roberta", "at least 1", or ""


def config_text(recipe: str | None, overrides: Sequence[str]) -> str:
    """Return the fields of a recipe as text; without a recipe, the recipes and the defaults.

    Raises:
        UserError: as `read_config`.
    """
    if recipe is None and not overrides:
        pretraining = _fields(PretrainConfig, None, ())
        same = {(field.key, field.default) for field in pretraining}
        finetuning = [field for field in _fields(FinetuneConfig, None, ()) if (field.key, field.default) not in same]
        return (
            f"recipes:\n{_recipes()}\n\ndefaults of pretrain:\n{_lines(pretraining)}\n\n"
            f"defaults of finetune, where they are different:\n{_lines(finetuning)}"
        )
    kind = _kind(recipe, overrides)
    fields = _fields(kind, recipe, overrides)
    changed = sum(field.value != field.default for field in fields)
    return (
        f"{recipe or 'defaults'}, for `bert-jax {VERB_OF[kind]}`; "
        f"* marks {changed} fields that differ from their default\n{_lines(fields)}"
    )


def config_json(recipe: str | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the same as JSON values."""
    kind = _kind(recipe, overrides)
    fields = [field._asdict() for field in _fields(kind, recipe, overrides)]
    found: dict[str, Any] = {"verb": VERB_OF[kind], "recipe": recipe, "fields": fields}
    return found if recipe else found | {"recipes": list(recipes())}


def _kind(recipe: str | None, overrides: Sequence[str]) -> Any:
    if recipe:
        return recipe_kind(recipe)
    return FinetuneConfig if any(one.startswith("--config.task.") for one in overrides) else PretrainConfig


def _fields(kind: Any, recipe: str | None, overrides: Sequence[str]) -> list[Field]:
    values = {index_form(key): value for key, value in flatten(to_json(read_config(kind, recipe, overrides))).items()}
    defaults = {index_form(key): value for key, value in flatten(to_json(kind())).items()}
    described = {key: (field, inner) for key, field, inner in fields_of(kind)}
    found = []
    for key, value in values.items():
        first = re.sub(r"\[\d+\]", "[0]", key)
        field, inner = described[first]
        found.append(Field(key, value, defaults[first], field.metadata["meaning"], _takes(field, inner)))
    return found


def _takes(field: "dataclasses.Field[Any]", inner: Any) -> str:
    """What values a field takes, in words."""
    allowed = field.metadata["allowed"]
    none = " or None" if isinstance(inner, types.UnionType) else ""
    if field.metadata["table"]:
        return f"one of {', '.join(table_of(field))}{none}"
    if not allowed:
        return ""
    return f"one of {', '.join(allowed)}" if isinstance(allowed[0], str) else f"must {range_in_words(*allowed)}{none}"


def _recipes() -> str:
    """Every recipe with the first paragraph of its docstring."""
    lines = []
    for name, path in recipes().items():
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines += [f"  {name}", *_wrapped(docstring.partition("\n\n")[0])]
    return "\n".join(lines)


def _lines(fields: Sequence[Field]) -> str:
    lines = []
    for key, value, default, meaning, takes in fields:
        changed = value != default
        lines.append(f"{'*' if changed else ' '} {key} = {value}" + (f"   (default {default})" if changed else ""))
        lines += _wrapped(f"{meaning}; {takes}" if takes else meaning)
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    width = min(max(WIDTHS[0], shutil.get_terminal_size().columns), WIDTHS[1])
    return textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
