"""ALBERT (Lan et al. 2020)."""

from bert_jax.interop.families.base import (
    ACTIVATIONS,
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


def albert() -> Family:
    """Return the row of albert."""
    embeddings = "albert.embeddings"
    layer = "albert.encoder.albert_layer_groups.{layer}.albert_layers.0"  # one group, of one layer, used for all
    pooler, order = Module("pooler", "albert.pooler"), Module("next_sentence", "sop_classifier.classifier")
    masked = masked_head("predictions.dense", "predictions.LayerNorm", "predictions.bias")
    fields = bert_fields(
        vocab_size=Field("vocab_size", 30000),
        embedding_size=Field("embedding_size", 128),
        hidden_size=Field("hidden_size", 4096),
        num_attention_heads=Field("num_heads", 64),
        intermediate_size=Field("mlp_size", 16384),
        hidden_act=Field("activation", "gelu_new", ACTIVATIONS),
        hidden_dropout_prob=Field("dropout", 0.0),
        attention_probs_dropout_prob=Field("attention_dropout", 0.0),
        classifier_dropout_prob=Field("classifier_dropout", 0.1),
    )
    del fields["classifier_dropout"]
    return Family(
        prefix="albert",
        encoder=(
            Module("encoder/embeddings/token", f"{embeddings}.word_embeddings.weight", "array", vocabulary=True),
            Module("encoder/embeddings/position", f"{embeddings}.position_embeddings.weight", "array"),
            Module("encoder/embeddings/token_type", f"{embeddings}.token_type_embeddings.weight", "array"),
            Module("encoder/embeddings/norm", f"{embeddings}.LayerNorm", "norm"),
            Module("encoder/projection", "albert.encoder.embedding_hidden_mapping_in"),
            Module("encoder/layers/attention/query", f"{layer}.attention.query"),
            Module("encoder/layers/attention/key", f"{layer}.attention.key"),
            Module("encoder/layers/attention/value", f"{layer}.attention.value"),
            Module("encoder/layers/attention/output", f"{layer}.attention.dense"),
            Module("encoder/layers/attention_norm", f"{layer}.attention.LayerNorm", "norm"),
            Module("encoder/layers/mlp_up", f"{layer}.ffn"),
            Module("encoder/layers/mlp_down", f"{layer}.ffn_output"),
            Module("encoder/layers/mlp_norm", f"{layer}.full_layer_layer_norm", "norm"),
        ),
        classes=(
            ModelClass("AlbertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, order)),
            ModelClass("AlbertForMaskedLM", ("masked_token",), masked),
            *task_classes(
                "Albert",
                (pooler, Module("sequence_classification", "classifier")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("AlbertModel", ("pooled",), (pooler,)),
            ModelClass("AlbertModel", (), ()),
        ),
        tied={
            "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
            "predictions.decoder.bias": "predictions.bias",
        },
        fields=fields,
        constants={"share_layers": True},
        fixed=FIXED
        | {"num_hidden_groups": 1, "inner_group_num": 1}
        | {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1},
        project_equal=True,
        special_ids=BEGIN_AND_END,
    )
