"""NomicBERT (Nussbaum et al. 2024): BERT, including its token types, with rotary positions and gated MLPs.

Tensors have the names of the published files, which transformers 5 reads and writes. The modules of transformers have
other names, which `peft` writes into the files of adapters. These modules split the fused tensor of queries, keys and
values.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    FIXED,
    Family,
    Field,
    ModelClass,
    NamedModule,
    Spelling,
    bare_classes,
    bert_embeddings,
    bert_fields,
    fused_qkv,
    masked_head,
    named_modules,
    tied_decoder_names,
)

BASE = 1_000.0


def nomic_bert_family() -> Family:
    """Return the row of FAMILIES for nomic_bert."""
    layer, transform = "nomic_bert.encoder.layers.{layer}", "cls.predictions.transform"
    module = "nomic_bert.layers.{layer}"
    linear = {
        "attention/output": "attn.out_proj",
        "mlp_gate": "mlp.fc12",
        "mlp_up": "mlp.fc11",
        "mlp_down": "mlp.fc2",
    }
    pooler, tokens = NamedModule("pooler", "nomic_bert.pooler.dense"), NamedModule("token_classification", "classifier")
    return Family(
        prefix="nomic_bert",
        encoder=(
            *(module for module in bert_embeddings("nomic_bert.embeddings") if module.kind != "norm"),
            NamedModule("encoder/embeddings/norm", "nomic_bert.emb_ln", "norm"),
            *fused_qkv(f"{layer}.attn.Wqkv"),
            *named_modules("encoder/layers", layer, linear),
            *named_modules("encoder/layers", layer, {"attention_norm": "norm1", "mlp_norm": "norm2"}, "norm"),
        ),
        classes=(
            ModelClass(
                "NomicBertForMaskedLM",
                ("masked_token",),
                masked_head(f"{transform}.dense", f"{transform}.layer_norm", "cls.predictions.bias"),
            ),
            *(
                ModelClass("NomicBertForSequenceClassification", (ours,), (pooler, NamedModule(ours, "classifier")))
                for ours in ("sequence_classification", "next_sentence")  # no class is named after the second head
            ),
            ModelClass("NomicBertForTokenClassification", ("token_classification",), (tokens,)),
            *bare_classes("NomicBertModel", pooler),
        ),
        tied=tied_decoder_names("cls.predictions", "nomic_bert.embeddings"),
        fields=bert_fields(
            vocab_size=Field("vocab_size", 30528),
            hidden_act=Field("activation", "silu", ACTIVATIONS),
            max_position_embeddings=Field("max_positions", 2048),
            hidden_dropout_prob=Field("dropout", 0.0),
            attention_probs_dropout_prob=Field("attention_dropout", 0.0),
        )
        | {"rope_theta": Field("rotary_base", BASE), "head_dim": Field("head_size", None)},
        constants={"positions": "rotary", "mlp": "gated", "attention_bias": False, "mlp_bias": False},
        fixed=FIXED | {"rope_scaling": None, "partial_rotary_factor": 1.0},
        ignored=(".inv_freq",),  # a buffer of rotary positions in the files of earlier programs
        spelling=Spelling(frozenset({"rope_parameters"}), read_rope_fields, write_rope_fields),
        peft_names={
            "nomic_bert.emb_ln": ("nomic_bert.embeddings.LayerNorm",),
            f"{layer}.attn.Wqkv": tuple(f"{module}.self_attn.{name}_proj" for name in "qkv"),
            f"{layer}.attn.out_proj": (f"{module}.self_attn.o_proj",),
            f"{layer}.mlp.fc11": (f"{module}.mlp.up_proj",),
            f"{layer}.mlp.fc12": (f"{module}.mlp.gate_proj",),
            f"{layer}.mlp.fc2": (f"{module}.mlp.down_proj",),
            f"{layer}.norm1": (f"{module}.post_attention_layernorm",),
            f"{layer}.norm2": (f"{module}.post_mlp_layernorm",),
        },
    )


def read_rope_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields with `rope_theta` in place of `rope_parameters`; a default `head_dim` becomes None."""
    values = dict(fields)
    rope = values.pop("rope_parameters", None) or {}
    if not isinstance(rope, dict) or rope.keys() - {"rope_type", "rope_theta"}:
        raise UserError(f"{where}: rope_parameters are not rope_type and rope_theta alone")
    if rope.get("rope_type", "default") != "default":
        raise UserError(f"{where}: rope_type is {rope['rope_type']!r}; only 'default' can be read")
    hidden, heads = values.get("hidden_size", 768), values.get("num_attention_heads", 12)
    if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 and values.get("head_dim") == hidden / heads:
        values["head_dim"] = None
    return values | {"rope_theta": rope.get("rope_theta", values.get("rope_theta", BASE))}


def write_rope_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with `rope_parameters`, and `head_dim` unless it is the default."""
    values = {name: value for name, value in fields.items() if name != "head_dim" or value is not None}
    return values | {"rope_parameters": {"rope_type": "default", "rope_theta": values.pop("rope_theta")}}
