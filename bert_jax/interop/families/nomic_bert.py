"""NomicBERT (Nussbaum et al. 2024): BERT with rotary positions and gated MLPs, and with token types.

Tensors have the names of the published files, which transformers 5 reads and writes.
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
    Module,
    Spelling,
    bert_fields,
    masked_head,
)

BASE = 1_000.0


def nomic_bert() -> Family:
    """Return the row of nomic_bert."""
    embeddings, layer = "nomic_bert.embeddings", "nomic_bert.encoder.layers.{layer}"
    fused = (
        Module(f"encoder/layers/attention/{name}", f"{layer}.attn.Wqkv", part=part, parts=3)
        for part, name in enumerate(("query", "key", "value"))
    )
    transform = "cls.predictions.transform"
    pooler = Module("pooler", "nomic_bert.pooler.dense")
    return Family(
        prefix="nomic_bert",
        encoder=(
            Module("encoder/embeddings/token", f"{embeddings}.word_embeddings.weight", "array", vocabulary=True),
            Module("encoder/embeddings/token_type", f"{embeddings}.token_type_embeddings.weight", "array"),
            Module("encoder/embeddings/norm", "nomic_bert.emb_ln", "norm"),
            *fused,
            Module("encoder/layers/attention/output", f"{layer}.attn.out_proj"),
            Module("encoder/layers/attention_norm", f"{layer}.norm1", "norm"),
            Module("encoder/layers/mlp_gate", f"{layer}.mlp.fc12"),
            Module("encoder/layers/mlp_up", f"{layer}.mlp.fc11"),
            Module("encoder/layers/mlp_down", f"{layer}.mlp.fc2"),
            Module("encoder/layers/mlp_norm", f"{layer}.norm2", "norm"),
        ),
        classes=(
            ModelClass(
                "NomicBertForMaskedLM",
                ("masked_token",),
                masked_head(f"{transform}.dense", f"{transform}.layer_norm", "cls.predictions.bias"),
            ),
            *(
                ModelClass("NomicBertForSequenceClassification", (ours,), (pooler, Module(ours, "classifier")))
                for ours in ("sequence_classification", "next_sentence")  # as no class is called after the second
            ),
            ModelClass(
                "NomicBertForTokenClassification",
                ("token_classification",),
                (Module("token_classification", "classifier"),),
            ),
            ModelClass("NomicBertModel", ("pooled",), (pooler,)),
            ModelClass("NomicBertModel", (), ()),
        ),
        tied={
            "cls.predictions.decoder.weight": f"{embeddings}.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        fields=bert_fields(
            vocab_size=Field("vocab_size", 30528),
            hidden_act=Field("activation", "silu", ACTIVATIONS),
            max_position_embeddings=Field("max_positions", 2048),
            hidden_dropout_prob=Field("dropout", 0.0),
            attention_probs_dropout_prob=Field("attention_dropout", 0.0),
        )
        | {"rope_theta": Field("rotary_base", BASE)},
        constants={"positions": "rotary", "mlp": "gated", "attention_bias": False, "mlp_bias": False},
        fixed=FIXED,
        spelling=Spelling(frozenset({"rope_parameters", "head_dim"}), _read, _write),
    )


def _read(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields with `rope_theta` in place of `rope_parameters`."""
    found = dict(fields)
    rope = found.pop("rope_parameters", None) or {}
    if not isinstance(rope, dict) or rope.keys() - {"rope_type", "rope_theta"}:
        raise UserError(f"{where}: rope_parameters are not rope_type and rope_theta alone")
    if rope.get("rope_type", "default") != "default":
        raise UserError(f"{where}: rope_type is {rope['rope_type']!r}; only 'default' can be read")
    size, hidden, heads = (
        found.get(*one) for one in (("head_dim",), ("hidden_size", 768), ("num_attention_heads", 12))
    )
    whole = all(isinstance(number, int) for number in (size, hidden, heads))
    if size is not None and not (whole and size * heads == hidden):
        raise UserError(f"{where}: head_dim is {size!r}; only hidden_size / num_attention_heads can be read")
    return found | {"rope_theta": rope.get("rope_theta", found.get("rope_theta", BASE))}


def _write(fields: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(fields)
    return found | {"rope_parameters": {"rope_type": "default", "rope_theta": found.pop("rope_theta")}}
