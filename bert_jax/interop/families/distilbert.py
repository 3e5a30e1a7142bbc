"""DistilBERT (Sanh et al. 2019)."""

from bert_jax.interop.families.base import (
    ACTIVATIONS,
    FIXED,
    Family,
    Field,
    ModelClass,
    Module,
    masked_head,
    task_classes,
)


def distilbert() -> Family:
    """Return the row of distilbert."""
    embeddings, layer = "distilbert.embeddings", "distilbert.transformer.layer.{layer}"
    pooler = Module("pooler", "pre_classifier")
    return Family(
        prefix="distilbert",
        encoder=(
            Module("encoder/embeddings/token", f"{embeddings}.word_embeddings.weight", "array", vocabulary=True),
            Module("encoder/embeddings/position", f"{embeddings}.position_embeddings.weight", "array"),
            Module("encoder/embeddings/norm", f"{embeddings}.LayerNorm", "norm"),
            Module("encoder/layers/attention/query", f"{layer}.attention.q_lin"),
            Module("encoder/layers/attention/key", f"{layer}.attention.k_lin"),
            Module("encoder/layers/attention/value", f"{layer}.attention.v_lin"),
            Module("encoder/layers/attention/output", f"{layer}.attention.out_lin"),
            Module("encoder/layers/attention_norm", f"{layer}.sa_layer_norm", "norm"),
            Module("encoder/layers/mlp_up", f"{layer}.ffn.lin1"),
            Module("encoder/layers/mlp_down", f"{layer}.ffn.lin2"),
            Module("encoder/layers/mlp_norm", f"{layer}.output_layer_norm", "norm"),
        ),
        classes=(
            ModelClass(
                "DistilBertForMaskedLM",
                ("masked_token",),
                masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
            ),
            *task_classes(
                "DistilBert",
                (pooler, Module("sequence_classification", "classifier")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("DistilBertModel", (), ()),
        ),
        tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
        fields={
            "vocab_size": Field("vocab_size", 30522),
            "dim": Field("hidden_size", 768),
            "n_layers": Field("num_layers", 6),
            "n_heads": Field("num_heads", 12),
            "hidden_dim": Field("mlp_size", 3072),
            "activation": Field("activation", "gelu", ACTIVATIONS),
            "max_position_embeddings": Field("max_positions", 512),
            "dropout": Field("dropout", 0.1),
            "attention_dropout": Field("attention_dropout", 0.1),
            "seq_classif_dropout": Field("classifier_dropout", 0.2),
            "initializer_range": Field("initializer_range", 0.02),
        },
        constants={"num_token_types": 0, "layer_norm_epsilon": 1e-12, "pooler_activation": "relu"},
        fixed=FIXED | {"tie_weights_": True},
        # The position table starts as sinusoids or at random; it is in the file either way.
        indifferent=frozenset({"sinusoidal_pos_embds", "qa_dropout"}),
    )
