"""DistilBERT (Sanh et al. 2019)."""

from bert_jax.interop.families.base import (
    ACTIVATIONS,
    FIXED,
    Family,
    Field,
    ModelClass,
    NamedModule,
    bare_classes,
    bert_embeddings,
    masked_head,
    named_modules,
    task_classes,
)


def distilbert_family() -> Family:
    """Return the row of FAMILIES for distilbert."""
    layer = "distilbert.transformer.layer.{layer}"
    linear = {
        "attention/query": "attention.q_lin",
        "attention/key": "attention.k_lin",
        "attention/value": "attention.v_lin",
        "attention/output": "attention.out_lin",
        "mlp_up": "ffn.lin1",
        "mlp_down": "ffn.lin2",
    }
    norms = {"attention_norm": "sa_layer_norm", "mlp_norm": "output_layer_norm"}
    masked = masked_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")
    return Family(
        prefix="distilbert",
        encoder=(
            *bert_embeddings("distilbert.embeddings"),
            *named_modules("encoder/layers", layer, linear),
            *named_modules("encoder/layers", layer, norms, "norm"),
        ),
        classes=(
            ModelClass("DistilBertForMaskedLM", ("masked_token",), masked),
            *task_classes("DistilBert", NamedModule("pooler", "pre_classifier")),
            *bare_classes("DistilBertModel"),
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
        aliases={"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
        # sinusoidal_pos_embds selects initial values of the position table; the file holds the final values.
        indifferent=frozenset({"sinusoidal_pos_embds", "qa_dropout"}),
    )
