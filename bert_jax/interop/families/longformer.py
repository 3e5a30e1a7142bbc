"""Longformer (Beltagy et al. 2020): RoBERTa with sliding-window attention and global tokens.

Global tokens have separate query, key and value projections. In transformers, the class of a model decides which tokens
are global; here, the head decides (models/heads.py). A masked-token model has no global tokens, but its files also
contain the global projections.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.interop.families.base import Family, Field, Spelling, bert_fields, named_modules
from bert_jax.interop.families.roberta import roberta_family

WINDOW, LAYERS = "attention_window", "num_hidden_layers"
WINDOWS = "attention_windows"  # a field of no file: the windows of all layers if windows differ; WINDOW is the widest


def longformer_family() -> Family:
    """Return the row of FAMILIES for longformer."""
    base = roberta_family("Longformer", 30522, "longformer")
    fields = bert_fields(hidden_dropout_prob=Field("dropout", 0.1, also=("classifier_dropout",)))
    del fields["classifier_dropout"]
    names = {f"{name}_global": f"{name}_global" for name in ("query", "key", "value")}
    projections = named_modules("encoder/layers/attention", "longformer.encoder.layer.{layer}.attention.self", names)
    return dataclasses.replace(
        base,
        encoder=(*base.encoder, *projections),
        fields=fields
        | {
            WINDOW: Field("local_window", 512),
            WINDOWS: Field("local_windows", None),
            "sep_token_id": Field("separator_id", 2),
        },
        constants={**base.constants} | {"global_every": 0},
        fixed={**base.fixed} | {"attention_mode": "longformer", "ignore_attention_mask": False},
        indifferent=frozenset({"onnx_export"}),
        spelling=Spelling(frozenset(), read_window_fields, write_window_fields),
        token_ids={"separator_id": "sep"},
    )


def read_window_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields with the widest window as WINDOW; if windows differ, WINDOWS holds the window of each layer."""
    if WINDOWS in fields:
        raise UserError(f"{where}: unknown field '{WINDOWS}'; did you mean '{WINDOW}'?")
    windows, layers = fields.get(WINDOW, 512), fields.get(LAYERS, 12)
    if isinstance(windows, list) and len(windows) != layers:
        raise UserError(f"{where}: {WINDOW} has {len(windows)} numbers, but {LAYERS} is {layers!r}")
    for window in windows if isinstance(windows, list) else [windows]:
        if type(window) is not int:
            raise UserError(f"{where}: {WINDOW} is {window!r}, not an integer")
        if window % 2 or window < 2:
            raise UserError(f"{where}: {WINDOW} is {window}; it must be even, and at least 2")
    if not isinstance(windows, list):
        return {**fields, WINDOW: windows}
    if any(max(windows) % window for window in windows):
        raise UserError(f"{where}: {WINDOW} is {windows}; transformers needs a widest that is a multiple of each")
    return {**fields, WINDOW: max(windows), WINDOWS: windows if min(windows) < max(windows) else None}


def write_window_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with a list of each layer's window as WINDOW, the form that transformers writes."""
    windows = fields[WINDOWS] or (fields[WINDOW],) * fields[LAYERS]
    return {name: value for name, value in fields.items() if name != WINDOWS} | {WINDOW: list(windows)}
