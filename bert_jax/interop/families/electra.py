"""ELECTRA's generator and discriminator (Clark et al. 2020)."""

from bert_jax.interop.families.base import (
    CLASSIFICATION_HEAD,
    FIXED,
    Family,
    Field,
    ModelClass,
    NamedModule,
    bare_classes,
    bert_encoder,
    bert_fields,
    masked_head,
    named_modules,
    task_classes,
)


def electra_family() -> Family:
    """Return the row of FAMILIES for electra."""
    discriminator = {"dense": "dense", "output": "dense_prediction"}
    generator = masked_head("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias")
    return Family(
        prefix="electra",
        encoder=(*bert_encoder("electra"), NamedModule("encoder/projection", "electra.embeddings_project")),
        classes=(
            ModelClass(
                "ElectraForPreTraining",
                ("replaced_token",),
                named_modules("replaced_token", "discriminator_predictions", discriminator),
            ),
            ModelClass("ElectraForMaskedLM", ("masked_token",), generator),
            *task_classes("Electra", NamedModule("pooler", "sequence_summary.summary"), CLASSIFICATION_HEAD),
            *bare_classes("ElectraModel"),
        ),
        tied={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
        fields=bert_fields(
            embedding_size=Field("embedding_size", 128),
            hidden_size=Field("hidden_size", 256),
            num_attention_heads=Field("num_heads", 4),
            intermediate_size=Field("mlp_size", 1024),
        ),
        constants={"masked_activation": "gelu", "pooler_activation": "gelu", "pooler_dropout": True},
        fixed=FIXED | {"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
        indifferent=frozenset({"summary_last_dropout"}),
    )
