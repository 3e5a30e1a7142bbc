"""Architectures that transformers does not have: any combination of fields of `EncoderConfig`, under our names.

A directory of this family has the files that directories of other families have; bert_jax can read such a directory,
but transformers refuses the directory.
"""

import dataclasses
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, cast

from bert_jax.config import EncoderConfig
from bert_jax.config.encoder import MAX_MLPS
from bert_jax.interop.families.base import VOCABULARY, Family, Field, ModelClass, NamedModule, bare_classes, masked_head
from bert_jax.models.heads import DIRECTIONS, LSTM_LAYERS

# All MLPs but the last in a block with a bottleneck.
_INNER_MLPS = tuple(f"layers/mlp_{index}" for index in range(MAX_MLPS - 1))
_BOTTLENECK = ("layers/input", "layers/attention_input", "layers/output")
_PROJECTIONS = ("query", "key", "value", "query_global", "key_global", "value_global")
# Kind of a module -> paths of the encoder's modules of this kind.
_ENCODER = {
    VOCABULARY: ("embeddings/token",),
    "array": ("embeddings/position", "embeddings/token_type", "position_bias/table", "distances/table"),
    "linear": (
        *("projection", "embeddings/projection", "layers/attention/output", *_BOTTLENECK),
        *(f"layers/attention/{name}" for name in _PROJECTIONS),
        *(f"{mlp}/mlp_{part}" for mlp in ("layers", *_INNER_MLPS) for part in ("gate", "up", "down")),
    ),
    "norm": (
        *("embeddings/norm", "distances/norm", "layers/attention_norm", "layers/mlp_norm", "final_norm"),
        *(f"{path}_norm" for path in _BOTTLENECK),
        *(f"{path}/mlp_norm" for path in _INNER_MLPS),
        *(f"layers/attention/{name}_norm" for name in _PROJECTIONS if "value" not in name),
    ),
}
_POOLER = (NamedModule("pooler", "pooler"), NamedModule("pooler/norm", "pooler.norm", "norm"))
_BILSTM = tuple(
    NamedModule(f"bilstm/{direction}_{layer}/{path}", f"bilstm.{direction}_{layer}.{name}", kind)
    for direction in DIRECTIONS
    for layer in range(LSTM_LAYERS)
    for path, name, kind in (("input", "input", "linear"), ("recurrent", "recurrent.weight", "array"))
)
_ANSWERS = tuple(
    NamedModule(f"question_answering/{name}", f"question_answering.{name}", "norm" if name == "mlp_norm" else "linear")
    for name in ("mlp_up", "mlp_down", "mlp_norm", "output")
)
_TASKS = ("sequence_classification", "multiple_choice", "token_classification", "question_answering")
_HEADS = {
    **{
        head: (
            *masked_head(f"{head}.dense", f"{head}.norm", f"{head}.bias", head),
            NamedModule(f"{head}/extra_table/kernel", f"{head}.extra_table.weight", VOCABULARY),
        )
        for head in ("masked_token", "next_token")
    },
    "replaced_token": tuple(
        NamedModule(f"replaced_token/{name}", f"replaced_token.{name}") for name in ("dense", "output")
    ),
    "next_sentence": (NamedModule("next_sentence", "next_sentence"),),
    **{name: (*_BILSTM, NamedModule(name, name)) for name in _TASKS},
    "question_answering": (*_BILSTM, NamedModule("question_answering", "question_answering"), *_ANSWERS),
}


def research_family() -> Family:
    """Return the row of FAMILIES for research."""
    return Family(
        prefix="encoder",
        encoder=tuple(
            NamedModule(f"encoder/{path}", _tensor_name(path), kind)
            for kind, paths in _ENCODER.items()
            for path in paths
        ),
        classes=(
            _model_class_with_heads("masked_token", "next_sentence"),
            *map(_model_class_with_heads, _HEADS),
            ModelClass("pooled", ("pooled",), _POOLER),
            *bare_classes("encoder"),
        ),
        tied={},
        fields={
            field.name: _json_field(field) for field in dataclasses.fields(EncoderConfig) if field.name != "family"
        },
        constants={},
        fixed={"tie_word_embeddings": True},
        in_transformers=False,
    )


def _tensor_name(path: str) -> str:
    """Return the name that a module of the encoder has in a file."""
    return f"encoder/{path}".replace("layers/", "layers/{layer}/").replace("/", ".")


def _model_class_with_heads(*heads: str) -> ModelClass:
    """Return the model class that has these heads."""
    return ModelClass(" + ".join(heads), heads, (*_POOLER, *(module for head in heads for module in _HEADS[head])))


class _RowNames(Mapping[str, str]):
    """The name of each row of a table, mapped to itself; a recipe may add rows after this module is imported."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> str:
        if name not in self._table:
            raise KeyError(name)
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _json_field(field: "dataclasses.Field[Any]") -> Field:
    """Return a field of `EncoderConfig` as a field of `config.json` with equal name and values."""
    table, default = field.metadata.get("table"), cast(int | float | str | None, field.default)
    return Field(field.name, default, _RowNames(pkgutil.resolve_name(table)) if table else None)
