"""ALBERT (Lan et al. 2020)."""

from bert_jax.interop.families.base import (
    ACTIVATIONS,
    BEGIN_AND_END,
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


def albert_family() -> Family:
    """Return the row of FAMILIES for albert."""
    # The file has one group of one layer, which the model uses for all layers.
    layer = "albert.encoder.albert_layer_groups.{layer}.albert_layers.0"
    linear = {
        "attention/query": "attention.query",
        "attention/key": "attention.key",
        "attention/value": "attention.value",
        "attention/output": "attention.dense",
        "mlp_up": "ffn",
        "mlp_down": "ffn_output",
    }
    norms = {"attention_norm": "attention.LayerNorm", "mlp_norm": "full_layer_layer_norm"}
    pooler, order = NamedModule("pooler", "albert.pooler"), NamedModule("next_sentence", "sop_classifier.classifier")
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
            *bert_embeddings("albert.embeddings"),
            NamedModule("encoder/projection", "albert.encoder.embedding_hidden_mapping_in"),
            *named_modules("encoder/layers", layer, linear),
            *named_modules("encoder/layers", layer, norms, "norm"),
        ),
        classes=(
            ModelClass("AlbertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, order)),
            ModelClass("AlbertForMaskedLM", ("masked_token",), masked),
            *task_classes("Albert", pooler),
            *bare_classes("AlbertModel", pooler),
        ),
        tied=tied_decoder_names("predictions", "albert.embeddings"),
        fields=fields,
        constants={"share_layers": True},
        fixed=FIXED
        | {"num_hidden_groups": 1, "inner_group_num": 1}
        | {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1},
        project_equal=True,
        special_ids=BEGIN_AND_END,
    )
