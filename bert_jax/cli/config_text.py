"""Output of `bert-jax config`: the recipes, or every field of a recipe with value, default and meaning."""

import ast
import dataclasses
import shutil
import textwrap
import types
from collections.abc import Sequence
from typing import Any

from bert_jax.config import FinetuneConfig, PretrainConfig, command_line_key, fields_of, read_config, table_of_field
from bert_jax.config.load import config_class_of_recipe, range_in_words, recipes, with_first_phase_index
from bert_jax.config.write_recipe import values_and_defaults

VERB_OF = {PretrainConfig: "pretrain", FinetuneConfig: "finetune"}
WIDTHS = 60, 120  # columns, minimum and maximum


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrintedField:
    """A field of a config, for printing."""

    key: str  # such as train.phases[0].seq_len
    value: Any
    default: Any
    meaning: str
    takes: str  # allowed values: "one of bert, roberta", "at least 1", or ""


def config_text(recipe: str | None, overrides: Sequence[str]) -> str:
    """Return the fields of a recipe as text; without a recipe, return the defaults and the recipes.

    Raises:
        UserError: the recipe or an override is wrong (see `read_config`).
    """
    if recipe is None and not overrides:
        pretraining, finetuning = (_fields_to_print(kind, None, ()) for kind in (PretrainConfig, FinetuneConfig))
        shared = {(field.key, field.default) for field in pretraining}
        finetuning = [field for field in finetuning if (field.key, field.default) not in shared]
        return (
            f"defaults of pretrain:\n{_format_fields(pretraining)}\n\n"
            f"defaults of finetune, where they are different:\n{_format_fields(finetuning)}\n\n"
            f"recipes:\n{_recipe_list()}\n\n`bert-jax config RECIPE` prints the fields of a recipe"
        )
    kind = _config_class(recipe, overrides)
    fields = _fields_to_print(kind, recipe, overrides)
    changed = sum(field.value != field.default for field in fields)
    return (
        f"{recipe or 'defaults'}, for `bert-jax {VERB_OF[kind]}`; "
        f"* marks {changed} fields that differ from their default\n{_format_fields(fields)}"
    )


def config_json(recipe: str | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Return the fields as JSON values; without a recipe, also return the names of the recipes."""
    kind = _config_class(recipe, overrides)
    fields = [dataclasses.asdict(field) for field in _fields_to_print(kind, recipe, overrides)]
    described: dict[str, Any] = {"verb": VERB_OF[kind], "recipe": recipe, "fields": fields}
    return described if recipe else described | {"recipes": list(recipes())}


def _config_class(recipe: str | None, overrides: Sequence[str]) -> Any:
    """Return the class of a recipe's config; without a recipe, return the class that has the keys of the overrides."""
    if recipe:
        return config_class_of_recipe(recipe)
    keys = {override.removeprefix("--config.").partition("=")[0] for override in overrides}
    known, known_in_finetuning = ({field.key for field in fields_of(kind)} for kind in (PretrainConfig, FinetuneConfig))
    return FinetuneConfig if keys & (known_in_finetuning - known) else PretrainConfig


def _fields_to_print(config_class: Any, recipe: str | None, overrides: Sequence[str]) -> list[PrintedField]:
    """Return the fields of a recipe's config, which has the class `config_class`."""
    described = {key: (field, inner) for key, field, inner in fields_of(config_class)}
    fields = []
    for key, (value, default) in values_and_defaults(read_config(config_class, recipe, overrides)).items():
        field, inner = described[with_first_phase_index(command_line_key(key))]
        meaning, takes = field.metadata["meaning"], _allowed_values_text(field, inner)
        fields.append(
            PrintedField(key=command_line_key(key), value=value, default=default, meaning=meaning, takes=takes)
        )
    return fields


def _allowed_values_text(field: "dataclasses.Field[Any]", inner: Any) -> str:
    """Return the allowed values of a field, in words."""
    allowed = field.metadata["allowed"]
    none = " or None" if isinstance(inner, types.UnionType) else ""
    if field.metadata["table"]:
        return f"one of {', '.join(table_of_field(field))}{none}"
    if not allowed:
        return ""
    return f"one of {', '.join(allowed)}" if isinstance(allowed[0], str) else f"must {range_in_words(*allowed)}{none}"


def _recipe_list() -> str:
    """Return every recipe with the first paragraph of its docstring."""
    lines = []
    for name, path in recipes().items():
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines += [f"  {name}", *_indented_lines(docstring.partition("\n\n")[0])]
    return "\n".join(lines)


def _format_fields(fields: Sequence[PrintedField]) -> str:
    """Return two or more lines for each field: value and default, then meaning and allowed values."""
    lines = []
    for field in fields:
        mark, default = ("*", f"   (default {field.default})") if field.value != field.default else (" ", "")
        lines.append(f"{mark} {field.key} = {field.value}{default}")
        lines += _indented_lines(f"{field.meaning}; {field.takes}" if field.takes else field.meaning)
    return "\n".join(lines)


def _indented_lines(text: str) -> list[str]:
    width = min(max(WIDTHS[0], shutil.get_terminal_size().columns), WIDTHS[1])
    return textwrap.wrap(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False)
