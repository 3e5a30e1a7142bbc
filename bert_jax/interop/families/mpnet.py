"""MPNet (Song et al. 2020): learned positions, and T5's relative ones, whose table all layers share."""

from bert_jax.interop.families.base import (
    BEGIN_AND_END,
    FIXED,
    Family,
    Field,
    ModelClass,
    Module,
    bert_fields,
    masked_head,
    task_classes,
)

BUCKETS, PADDING = 32, 1  # transformers computes with these whatever the file says


def mpnet() -> Family:
    """Return the row of mpnet."""
    embeddings, layer = "mpnet.embeddings", "mpnet.encoder.layer.{layer}"
    pooler = Module("pooler", "mpnet.pooler.dense")
    fields = bert_fields(
        vocab_size=Field("vocab_size", 30527), hidden_dropout_prob=Field("dropout", 0.1, also=("classifier_dropout",))
    )
    return Family(
        prefix="mpnet",
        encoder=(
            Module("encoder/embeddings/token", f"{embeddings}.word_embeddings.weight", "array", vocabulary=True),
            Module("encoder/embeddings/position", f"{embeddings}.position_embeddings.weight", "array"),
            Module("encoder/embeddings/norm", f"{embeddings}.LayerNorm", "norm"),
            Module("encoder/position_bias/table", "mpnet.encoder.relative_attention_bias.weight", "array"),
            Module("encoder/layers/attention/query", f"{layer}.attention.attn.q"),
            Module("encoder/layers/attention/key", f"{layer}.attention.attn.k"),
            Module("encoder/layers/attention/value", f"{layer}.attention.attn.v"),
            Module("encoder/layers/attention/output", f"{layer}.attention.attn.o"),
            Module("encoder/layers/attention_norm", f"{layer}.attention.LayerNorm", "norm"),
            Module("encoder/layers/mlp_up", f"{layer}.intermediate.dense"),
            Module("encoder/layers/mlp_down", f"{layer}.output.dense"),
            Module("encoder/layers/mlp_norm", f"{layer}.output.LayerNorm", "norm"),
        ),
        classes=(
            ModelClass(
                "MPNetForMaskedLM",
                ("masked_token",),
                masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            ),
            *task_classes(
                "MPNet",
                (Module("pooler", "classifier.dense"), Module("sequence_classification", "classifier.out_proj")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("MPNetModel", ("pooled",), (pooler,)),
            ModelClass("MPNetModel", (), ()),
        ),
        tied={
            "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
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
        follow_padding=True,
        special_ids=BEGIN_AND_END,
    )
