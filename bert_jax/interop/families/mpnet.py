"""MPNet (Song et al. 2020): learned positions, and T5's relative positions, whose table all layers share."""

from bert_jax.interop.families.base import (
    BEGIN_AND_END,
    CLASSIFICATION_HEAD,
    FIXED,
    Family,
    Field,
    ModelClass,
    NamedModule,
    bare_classes,
    bert_embeddings,
    bert_fields,
    masked_head,
    named_modules,
    task_classes,
    tied_decoder_names,
)

BUCKETS, PADDING = 32, 1  # transformers ignores other values in the file


def mpnet_family() -> Family:
    """Return the row of FAMILIES for mpnet."""
    layer, pooler = "mpnet.encoder.layer.{layer}", NamedModule("pooler", "mpnet.pooler.dense")
    linear = {
        "attention/query": "attention.attn.q",
        "attention/key": "attention.attn.k",
        "attention/value": "attention.attn.v",
        "attention/output": "attention.attn.o",
        "mlp_up": "intermediate.dense",
        "mlp_down": "output.dense",
    }
    norms = {"attention_norm": "attention.LayerNorm", "mlp_norm": "output.LayerNorm"}
    masked = masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
    fields = bert_fields(
        vocab_size=Field("vocab_size", 30527), hidden_dropout_prob=Field("dropout", 0.1, also=("classifier_dropout",))
    )
    return Family(
        prefix="mpnet",
        encoder=(
            *bert_embeddings("mpnet.embeddings"),
            NamedModule("encoder/position_bias/table", "mpnet.encoder.relative_attention_bias.weight", "array"),
            *named_modules("encoder/layers", layer, linear),
            *named_modules("encoder/layers", layer, norms, "norm"),
        ),
        classes=(
            ModelClass("MPNetForMaskedLM", ("masked_token",), masked),
            *task_classes("MPNet", pooler, CLASSIFICATION_HEAD),
            *bare_classes("MPNetModel", pooler),
        ),
        tied=tied_decoder_names("lm_head", "mpnet.embeddings"),
        fields={name: field for name, field in fields.items() if name not in ("type_vocab_size", "classifier_dropout")},
        constants={
            "num_token_types": 0,
            "positions": "learned_relative",
            "relative_buckets": BUCKETS,
            "relative_max_distance": 128,
            "masked_activation": "gelu",
            "pooler_dropout": True,
        },
        fixed=FIXED | {"relative_attention_num_buckets": BUCKETS, "pad_token_id": PADDING},
        written={"relative_attention_num_buckets": BUCKETS},  # Text Embeddings Inference needs this field
        follow_padding=True,
        special_ids=BEGIN_AND_END,
    )
