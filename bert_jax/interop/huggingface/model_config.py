"""The file `config.json`: the architecture, the class of the model, and the labels of its head."""

import dataclasses
import json
import pathlib
import types
import typing
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.config import EncoderConfig, fields_of
from bert_jax.config.field import MAX_NUMBER
from bert_jax.errors import UserError, nearest
from bert_jax.interop.families import FAMILIES, INDIFFERENT, LABELS, Family, Field
from bert_jax.interop.sentence_modules import parse_cross_encoder_activation

PROBLEMS = ("", "regression", "single_label_classification", "multi_label_classification")
INITIALIZATION = EncoderConfig().initialization  # without effect on weights that are read from a file
DEFAULT_CLASSES = 2  # number of classes that transformers assumes for a file without labels
MAX_NAMED = 2  # maximum number of fields in the message about an architecture that a family cannot express


class Labels(NamedTuple):
    """The fields of a `config.json` about the outputs of a head that classifies."""

    names: tuple[str, ...] = ()  # in the order of ids; () if there are no names or only transformers' default names
    classes: int = DEFAULT_CLASSES
    problem: str = ""  # problem_type; '' if the file has no problem_type
    activation: str = ""  # activation of a CrossEncoder's score, in CROSS_ENCODER_ACTIVATIONS; '' for other models
    notes: tuple[str, ...] = ()  # lines for the user


class ModelConfig(NamedTuple):
    """The content of a `config.json`: architecture, model class and labels."""

    encoder: EncoderConfig
    architecture: str  # the class of the model; '' if the file names no class
    labels: Labels | UserError  # an error in the labels is raised only if a classification head is read
    unknown: tuple[str, ...]  # fields that neither transformers nor this project reads, each with a suggestion


def read_model_config(path: pathlib.Path) -> ModelConfig:
    """Return the content of a `config.json`: architecture, model class and labels.

    Raises `UserError` for a field that contradicts another field or asks for an unsupported architecture.
    """
    # The size limit is large, because the file of a classifier with 10^5 labels has each name twice.
    return parse_model_config(strict_json.read_object(path, strict_json.MAX_TABLE_BYTES), str(path))


def parse_model_config(fields: Mapping[str, Any], where: str) -> ModelConfig:
    """Return the `ModelConfig` of the given fields; error messages call their file `where`."""
    if "auto_map" in fields:
        raise UserError(
            f"{where} names Python code of the model (auto_map); bert_jax does not run such code, so it "
            "cannot read the model"
        )
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        problem = f"model_type is {kind!r}" if kind else "there is no 'model_type'"
        raise UserError(f"{where}: {problem}; these can be read: {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    for name, value in family.fixed.items():
        if name in fields and fields[name] != value:
            raise UserError(f"{where}: {name} is {fields[name]!r}; only {value!r} can be read")
    fields = _without_aliases(fields, family.aliases, where)
    known = {*family.fields, *family.fixed, *family.indifferent, *INDIFFERENT, *LABELS}
    if family.spelling:
        known |= family.spelling.names
    unknown = tuple(f"'{name}'{_suggestion(name, known)}" for name in fields if name not in known)
    if unknown and not family.in_transformers:
        raise UserError(f"{where}: unknown field {unknown[0]}")
    return ModelConfig(
        _parse_encoder(kind, family, fields, where),
        _parse_architecture(fields, where),
        _labels_or_error(fields, where),
        unknown,
    )


def model_config_fields(config: EncoderConfig, padding_id: int, where: str) -> dict[str, Any]:
    """Return the fields of `config.json` for an architecture, from which `parse_model_config` reads this architecture.

    Raises `UserError` if the family's file cannot express the architecture: transformers would build another model.
    """
    family = FAMILIES[config.family]
    fields: dict[str, Any] = {theirs: getattr(config, field.name) for theirs, field in family.fields.items()}

    def refuse_inexpressible(values: Mapping[str, Any], expressed: Mapping[str, Collection[Any]]) -> None:
        different = [
            f"model.{name}={value!r} (it has {' or '.join(map(repr, dict.fromkeys(expressed[name])))})"
            for name, value in values.items()
            if value not in expressed[name]
        ]
        if different:
            further = f" and {len(different) - MAX_NAMED} further values" if len(different) > MAX_NAMED else ""
            raise UserError(
                f"{where}: no {config.family} of transformers has {', '.join(different[:MAX_NAMED])}{further}; "
                "choose another model.family; model.family=research allows all, in directories for bert_jax alone"
            )

    for theirs, field in family.fields.items():
        if field.values is not None:
            or_null = [None] if field.default is None else []
            refuse_inexpressible({field.name: fields[theirs]}, {field.name: [*field.values.values(), *or_null]})
            fields[theirs] = next((name for name, ours in field.values.items() if ours == fields[theirs]), None)
        if field.name == "embedding_size":
            fields[theirs] = config.embedding_size or config.hidden_size
        if field.name == "max_positions" and family.follow_padding:
            fields[theirs] = config.max_positions + config.position_offset
    if family.spelling:
        fields = family.spelling.write(fields)
    fields |= family.written
    fields |= {"model_type": config.family, "pad_token_id": padding_id, "tie_word_embeddings": True, "dtype": "float32"}
    wanted, parsed = (
        dataclasses.asdict(_normalized_config(encoder))
        for encoder in (config, _parse_encoder(config.family, family, fields, where))
    )
    refuse_inexpressible(wanted, {name: [value] for name, value in parsed.items()})
    return fields


def family_has_config_field(family: str, name: str) -> bool:
    """Return whether the `config.json` of a family has the field `name` of `EncoderConfig`."""
    return any(name in (field.name, *field.also) for field in FAMILIES[family].fields.values())


def label_fields(labels: tuple[str, ...], classes: int) -> dict[str, Any]:
    """Return `id2label`, `label2id` and `num_labels`; if `labels` is empty, the names are the defaults of transformers.

    Text Embeddings Inference reads the number of a ModernBERT's labels only from `num_labels`.
    """
    names = labels or _default_labels(classes)
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
        "num_labels": len(names),
    }


def model_config_text(fields: Mapping[str, Any]) -> str:
    """Return the content of the file `config.json` as text."""
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"


def _default_labels(classes: int) -> tuple[str, ...]:
    """Return the names that transformers gives to labels without names."""
    return tuple(f"LABEL_{i}" for i in range(classes))


def _normalized_config(config: EncoderConfig) -> EncoderConfig:
    """Return the config in a normal form: configs of equal architectures become equal; the initialization is reset."""
    every, base = min(config.global_every, config.num_layers), config.local_rotary_base
    is_local = every != 1 and config.local_window is not None
    return dataclasses.replace(
        config,
        head_size=config.head_size if config.attention_width != config.block_width else None,
        masked_activation=config.masked_activation or config.activation,
        local_window=config.local_window if is_local else None,
        local_windows=config.local_windows if {*(config.local_windows or ())} - {config.local_window} else None,
        global_every=every if is_local else 1,
        local_rotary_base=base if is_local and base != config.rotary_base else None,
        initialization=INITIALIZATION,
    )


def _parse_encoder(kind: str, family: Family, fields: Mapping[str, Any], where: str) -> EncoderConfig:
    """Return the architecture of these fields; raise UserError for a missing, contradictory or wrong value."""
    if "vocab_size" not in fields:
        raise UserError(f"{where}: 'vocab_size' is missing")
    if family.spelling:
        fields = family.spelling.read(fields, where)
    values: dict[str, Any] = {}
    first_names: dict[str, str] = {}
    advice = "" if family.in_transformers else "; if a recipe adds this row, give the recipe: --recipe FILE"
    for theirs, field in family.fields.items():
        value = fields.get(theirs, field.default)
        if (value, field.default) != (None, None):
            _check_field_value(theirs, value, field, where, advice)
        if values.get(field.name, value) != value:
            contradiction = f"{first_names[field.name]} is {values[field.name]!r}"
            raise UserError(f"{where}: {theirs} is {value!r}, but {contradiction}; only equal values can be read")
        first_names.setdefault(field.name, theirs)
        for name in (field.name, *field.also):
            values[name] = value if field.values is None or value is None else field.values[value]
            values[name] = tuple(value) if isinstance(value, list) else values[name]
    if values["classifier_dropout"] is None:
        values["classifier_dropout"] = values["dropout"]
    if not family.project_equal and values.get("embedding_size") == values["hidden_size"]:
        values["embedding_size"] = None
    if family.follow_padding:
        padding = fields.get("pad_token_id", 1)
        if isinstance(padding, bool) or not isinstance(padding, int) or not 0 <= padding < values["max_positions"] - 1:
            raise UserError(f"{where}: pad_token_id is {padding!r}; the positions, which follow it, need a number")
        values["position_offset"] = padding + 1
        values["max_positions"] -= padding + 1
    return EncoderConfig(family=kind, **values, **family.constants)


def _check_field_value(theirs: str, value: Any, table_field: Field, where: str, advice: str) -> None:
    """Raise UserError if a value does not have the type and range of its field in `EncoderConfig`.

    `advice` is printed about a value that is no row of a table.
    """
    if table_field.values is not None:
        if not isinstance(value, str) or value not in table_field.values:
            raise UserError(f"{where}: {theirs} is {value!r}, none of {', '.join(table_field.values)}{advice}")
        return
    field, annotation = next(
        (field, kind) for name, field, kind in fields_of(EncoderConfig) if name == table_field.name
    )
    kind = typing.get_args(annotation)[0] if isinstance(annotation, types.UnionType) else annotation
    if kind is bool:
        if not isinstance(value, bool):
            raise UserError(f"{where}: {theirs} is {value!r}, not true or false")
        return
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)) or not value or any(type(item) is not int for item in value):
            raise UserError(f"{where}: {theirs} is {value!r}, not a list of integers")
        return
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise UserError(f"{where}: {theirs} is {value!r}, not {'a number' if kind is float else 'an integer'}")
    lowest, highest = field.metadata["allowed"]
    highest = min(highest, 2**31 - 1 if kind is int else MAX_NUMBER)
    if not lowest <= value <= highest:
        raise UserError(f"{where}: {theirs} is {value!r}; it must lie from {lowest:g} to {highest:g}")


def _parse_architecture(fields: Mapping[str, Any], where: str) -> str:
    """Return the class of the model; '' if the file names no class."""
    names = fields.get("architectures") or []
    if not isinstance(names, list) or len(names) > 1 or not all(isinstance(name, str) for name in names):
        raise UserError(f"{where}: architectures is {names!r}, not a list of one name")
    return names[0] if names else ""


def _suggestion(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests a known name of similar spelling; '' if no known name is similar to `name`."""
    near = nearest(name, known, cutoff=0.9)
    return f" (did you mean '{near}'?)" if near else ""


def _without_aliases(fields: Mapping[str, Any], aliases: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the fields with each alias replaced by its name; raise UserError if alias and name have two values."""
    values = dict(fields)
    for alias, name in aliases.items():
        if alias in values and values.setdefault(name, values[alias]) != values.pop(alias):
            raise UserError(f"{where}: {alias} is {fields[alias]!r}, but {name} is {fields[name]!r}")
    return values


def _labels_or_error(fields: Mapping[str, Any], where: str) -> Labels | UserError:
    """Return the labels, or the error in the labels: a bare encoder can be read in spite of the error."""
    try:
        return _parse_labels(fields, where)
    except UserError as error:
        return error


def _parse_labels(fields: Mapping[str, Any], where: str) -> Labels:
    """Return the labels and the other fields about a head's outputs; raise UserError if these fields disagree."""
    names, classes, notes = _parse_label_names(fields, where)
    problem = fields.get("problem_type") or ""
    if problem not in PROBLEMS:
        raise UserError(f"{where}: problem_type is {problem!r}, none of {', '.join(filter(None, PROBLEMS))}")
    if problem == "single_label_classification" and classes == 1:
        raise UserError(f"{where}: problem_type is '{problem}', but there is one label")
    return Labels(names, classes, problem, _parse_activation(fields, where), notes)


def _parse_activation(fields: Mapping[str, Any], where: str) -> str:
    """Return the activation of a CrossEncoder, which sentence-transformers 2 to 5 write into `config.json`."""
    stored, name = fields.get("sentence_transformers"), fields.get("sbert_ce_default_activation_function")
    if isinstance(stored, dict):
        name = stored.get("activation_fn", name)
    return "" if name is None else parse_cross_encoder_activation(name, where)


class _LabelNames(NamedTuple):
    """Label names, the number of labels, and notes on fields that `id2label` overrules."""

    names: tuple[str, ...]
    num_labels: int
    notes: tuple[str, ...]


def _parse_label_names(fields: Mapping[str, Any], where: str) -> _LabelNames:
    """Return the label names (() without names), the label count, and notes on fields that `id2label` overrules."""
    forward, backward = fields.get("id2label"), fields.get("label2id")
    counts = {name: fields[name] for name in ("num_labels", "_num_labels") if fields.get(name) is not None}
    if forward is None:
        if backward:
            raise UserError(f"{where}: there is a label2id, but no id2label")
        numbers = set(counts.values())
        if len(numbers) > 1 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in numbers):
            raise UserError(f"{where}: {' and '.join(f'{name} is {n!r}' for name, n in counts.items())}")
        return _LabelNames((), numbers.pop() if numbers else DEFAULT_CLASSES, ())
    if not isinstance(forward, dict) or not forward or any(isinstance(x, (dict, list)) for x in forward.values()):
        raise UserError(f"{where}: id2label is not a table of numbers and names")
    if sorted(forward) != sorted(str(i) for i in range(len(forward))):
        raise UserError(f"{where}: the numbers in id2label are not 0 to {len(forward) - 1}")
    labels = tuple(str(forward[str(i)]) for i in range(len(forward)))
    for name, count in counts.items():
        if count != len(labels):
            raise UserError(f"{where}: {name} is {count!r}, but id2label has {len(labels)} names")
    is_unnamed = labels == _default_labels(len(labels))
    is_inverse = backward in (None, {name: i for i, name in enumerate(labels)})
    note = f"{where}: label2id is not the inverse of id2label; id2label is read"
    return _LabelNames(() if is_unnamed else labels, len(labels), () if is_unnamed or is_inverse else (note,))
