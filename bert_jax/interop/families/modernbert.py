"""ModernBERT (Warner et al. 2024): a pre-norm encoder with rotary positions, gated MLPs and local attention.

The decoder (Ettin: Weller et al. 2025) has ModernBERT's blocks with causal attention.

transformers applies dropout at other places of a block than bert_jax: inside the MLP, and to the output of the
attention, at the rate `attention_dropout`. Rates above 0 are read and written unchanged, so training differs from
transformers. At inference, transformers and bert_jax give equal results.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    BEGIN_AND_END,
    FIXED,
    VOCABULARY,
    Family,
    Field,
    ModelClass,
    NamedModule,
    Spelling,
    bare_classes,
    fused_qkv,
    masked_head,
    named_modules,
)

GLOBAL, LOCAL = "full_attention", "sliding_attention"
EVERY, WINDOW, BASE, LOCAL_BASE = (
    "global_attn_every_n_layers",
    "local_attention",
    "global_rope_theta",
    "local_rope_theta",
)
DEFAULTS = {EVERY: 3, WINDOW: 128, BASE: 160_000.0, LOCAL_BASE: 10_000.0}
LAYER_FIELDS = frozenset({"layer_types", "rope_parameters"})  # fields in the form of transformers 5
NUM_LAYERS = 22
POOLINGS = {"cls": "first", "mean": "mean"}


def modernbert_family() -> Family:
    """Return the row of FAMILIES for modernbert."""
    layer, masked = "model.layers.{layer}", masked_head("head.dense", "head.norm", "decoder.bias")
    head = (NamedModule("pooler", "head.dense"), NamedModule("pooler/norm", "head.norm", "norm"))
    return Family(
        prefix="model",
        encoder=(
            NamedModule("encoder/embeddings/token", "model.embeddings.tok_embeddings.weight", VOCABULARY),
            NamedModule("encoder/embeddings/norm", "model.embeddings.norm", "norm"),
            NamedModule("encoder/layers/attention_norm", f"{layer}.attn_norm", "norm", first_layer=1),
            *fused_qkv(f"{layer}.attn.Wqkv"),
            *named_modules("encoder/layers", layer, {"attention/output": "attn.Wo", "mlp_down": "mlp.Wo"}),
            NamedModule("encoder/layers/mlp_norm", f"{layer}.mlp_norm", "norm"),
            NamedModule("encoder/layers/mlp_gate", f"{layer}.mlp.Wi", part=(0, 2)),  # input of the activation
            NamedModule("encoder/layers/mlp_up", f"{layer}.mlp.Wi", part=(1, 2)),
            NamedModule("encoder/final_norm", "model.final_norm", "norm"),
        ),
        classes=(
            ModelClass("ModernBertForMaskedLM", ("masked_token",), masked),
            *(
                ModelClass(f"ModernBertFor{name}", (ours,), (*head, NamedModule(ours, "classifier")))
                for name, ours in (
                    ("SequenceClassification", "sequence_classification"),
                    ("MultipleChoice", "multiple_choice"),
                    ("TokenClassification", "token_classification"),
                    ("QuestionAnswering", "question_answering"),
                    ("SequenceClassification", "next_sentence"),  # no class is named after this head
                )
            ),
            *bare_classes("ModernBertModel"),
        ),
        tied={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
        fields={
            "vocab_size": Field("vocab_size", 50368),
            "hidden_size": Field("hidden_size", 768),
            "num_hidden_layers": Field("num_layers", NUM_LAYERS),
            "num_attention_heads": Field("num_heads", 12),
            "intermediate_size": Field("mlp_size", 1152),
            "hidden_activation": Field("activation", "gelu", ACTIVATIONS),
            "max_position_embeddings": Field("max_positions", 8192),
            "norm_eps": Field("layer_norm_epsilon", 1e-5),
            "norm_bias": Field("norm_bias", False),
            "attention_bias": Field("attention_bias", False),
            "mlp_bias": Field("mlp_bias", False),
            EVERY: Field("global_every", DEFAULTS[EVERY]),
            WINDOW: Field("local_window", None),
            BASE: Field("rotary_base", DEFAULTS[BASE]),
            LOCAL_BASE: Field("local_rotary_base", None),
            "embedding_dropout": Field("dropout", 0.0),
            "mlp_dropout": Field("dropout", 0.0),
            "attention_dropout": Field("attention_dropout", 0.0),
            "classifier_dropout": Field("classifier_dropout", 0.0),
            "classifier_bias": Field("head_bias", False),
            "classifier_activation": Field("masked_activation", "gelu", ACTIVATIONS, also=("pooler_activation",)),
            "classifier_pooling": Field("pooling", "cls", POOLINGS),
            "initializer_range": Field("initializer_range", 0.02),
        },
        constants={
            "num_token_types": 0,
            "norm_position": "pre",
            "final_norm": True,
            "first_attention_norm": False,
            "positions": "rotary",
            "mlp": "gated",
            "pooler_norm": True,
            "pooler_on_tokens": True,
            "initialization": "depth_scaled",
        },
        fixed={name: value for name, value in FIXED.items() if name != "position_embedding_type"}
        | {"decoder_bias": True, "rope_scaling": None},
        # initializer_cutoff_factor concerns random weights, sparse_prediction the losses of torch. transformers reads
        # norm_eps, not layer_norm_eps, and no position_embedding_type.
        indifferent=frozenset(
            {"cls_token_id", "initializer_cutoff_factor", "layer_norm_eps", "position_embedding_type"}
            | {"sparse_prediction"}
            | {"deterministic_flash_attn", "reference_compile", "repad_logits_with_grad", "sparse_pred_ignore_index"}
        ),
        written={"initializer_cutoff_factor": 2.0},  # Text Embeddings Inference needs this field
        spelling=Spelling(LAYER_FIELDS, read_layer_fields, write_layer_fields),
        shared=frozenset({"head.dense", "head.norm"}),
        special_ids=BEGIN_AND_END | {"cls_token_id": "cls", "sep_token_id": "sep"},
    )


def modernbert_decoder_family() -> Family:
    """Return the row of FAMILIES for modernbert-decoder."""
    family, layer = modernbert_family(), "model.layers.{layer}"
    names = {f"attention/{name}": f"attn.{name[0]}_proj" for name in ("query", "key", "value")}
    return dataclasses.replace(
        family,
        encoder=(
            *(module for module in family.encoder if "Wqkv" not in module.name),
            *named_modules("encoder/layers", layer, names),
        ),
        classes=(
            ModelClass(
                "ModernBertDecoderForCausalLM",
                ("next_token",),
                masked_head("lm_head.dense", "lm_head.norm", "decoder.bias", "next_token"),
            ),
            *bare_classes("ModernBertDecoderModel"),
        ),
        fields={name: field for name, field in family.fields.items() if name != "classifier_pooling"},
        constants={**family.constants, "causal": True},
        indifferent=family.indifferent | {"sliding_window"},  # this field is computed from local_attention
        spelling=Spelling(LAYER_FIELDS, read_decoder_layer_fields, write_decoder_layer_fields),
        shared=frozenset(),
        bidirectional="modernbert",
    )


def read_decoder_layer_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the result of `read_layer_fields` for a decoder.

    In transformers, a query of a decoder reads `local_attention // 2` keys, the key of its own token included. So its
    window has one key less on each side than the window of a ModernBERT.
    """
    values = read_layer_fields(fields, where)
    return values | {WINDOW: values[WINDOW] - 2} if isinstance(values[WINDOW], int) else values


def write_decoder_layer_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `write_layer_fields` for a decoder."""
    window = fields[WINDOW]
    return write_layer_fields(fields if window is None else {**fields, WINDOW: window + 2})


def read_layer_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields with global layers, windows and rotary bases in the form of transformers 4.

    The given fields may have the form of version 4 or 5 of transformers. In the result, `local_attention` and
    `local_rope_theta` are None if no layer is local. The field `local_rope_theta` is also None if local and global
    layers have equal bases.
    """
    values = {**DEFAULTS, **fields}
    if (types := values.pop("layer_types", None)) is not None:
        values[EVERY] = _global_layer_interval(types, fields, where)
    elif values[EVERY] == 0:
        raise UserError(f"{where}: {EVERY} is 0; it must lie from 1, or layer_types say that every layer is local")
    parameters = values.pop("rope_parameters", None) or {}
    if not isinstance(parameters, dict) or parameters.keys() - {GLOBAL, LOCAL}:
        raise UserError(f"{where}: rope_parameters is not a table of {GLOBAL} and {LOCAL}")
    for name, kind in ((BASE, GLOBAL), (LOCAL_BASE, LOCAL)):
        of_kind = parameters.get(kind) or {}
        if not isinstance(of_kind, dict) or of_kind.keys() - {"rope_type", "rope_theta"}:
            raise UserError(f"{where}: rope_parameters of {kind} are not rope_type and rope_theta alone")
        if of_kind.get("rope_type", "default") != "default":
            raise UserError(f"{where}: rope_type is {of_kind['rope_type']!r}; only 'default' can be read")
        if fields.get(name) is not None and of_kind.get("rope_theta", fields[name]) != fields[name]:
            raise UserError(f"{where}: {name} is {fields[name]!r}, but rope_parameters say {of_kind['rope_theta']!r}")
        values[name] = of_kind.get("rope_theta", values[name])
    if values[WINDOW] is None:  # a file must not have None, which means below that no layer is local
        raise UserError(f"{where}: {WINDOW} is None, not an integer")
    if values[EVERY] == 1 or values.get("num_hidden_layers") == 1:
        values |= {EVERY: 1, WINDOW: None, LOCAL_BASE: None}
    if values[LOCAL_BASE] == values[BASE]:
        values[LOCAL_BASE] = None
    return values


def _global_layer_interval(types: Any, fields: Mapping[str, Any], where: str) -> int:
    """Return n if layers 0, n, 2n, ... of `types` are the global layers; 0 if no layer is global.

    If the file states n as well, return the stated n; raise UserError if this n contradicts `types`.
    """
    if not isinstance(types, list) or not types or any(kind not in (GLOBAL, LOCAL) for kind in types):
        raise UserError(f"{where}: layer_types is not a list of {GLOBAL} and {LOCAL}")
    if len(types) != (layers := fields.get("num_hidden_layers", NUM_LAYERS)):
        raise UserError(f"{where}: layer_types names {len(types)} layers, but num_hidden_layers is {layers!r}")
    second = next((i for i, kind in enumerate(types) if i and kind == GLOBAL), len(types)) if GLOBAL in types else 0
    every = fields.get(EVERY, second)
    if not isinstance(every, int) or every < 0 or types != _layer_types(every, len(types)):
        if types == _layer_types(second, len(types)):
            raise UserError(f"{where}: layer_types contradict {EVERY}={every!r}")
        raise UserError(f"{where}: only every n-th of layer_types, from the first on, may be {GLOBAL}")
    return every


def _layer_types(every: int, num_layers: int) -> list[str]:
    """Return the type of each layer: layers 0, n, 2n, ... are global for n = `every`; no layer is global for 0."""
    return [GLOBAL if every and i % every == 0 else LOCAL for i in range(num_layers)]


def write_layer_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in the forms of transformers 4 and 5, so that version 4 does not fall back to its defaults."""
    values = dict(fields)
    if values[WINDOW] is None:
        values |= {EVERY: 1, WINDOW: DEFAULTS[WINDOW]}
    if values[LOCAL_BASE] is None:
        values[LOCAL_BASE] = values[BASE]
    return values | {
        "layer_types": _layer_types(values[EVERY], values["num_hidden_layers"]),
        "rope_parameters": {
            GLOBAL: {"rope_type": "default", "rope_theta": values[BASE]},
            LOCAL: {"rope_type": "default", "rope_theta": values[LOCAL_BASE]},
        },
    }
