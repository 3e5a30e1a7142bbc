"""RoBERTa (Liu et al. 2019)."""

from bert_jax.interop.families.base import (
    BEGIN_AND_END,
    FIXED,
    Family,
    Field,
    ModelClass,
    Module,
    bert_encoder,
    bert_fields,
    masked_head,
    task_classes,
)


def roberta() -> Family:
    """Return the row of roberta."""
    pooler = Module("pooler", "roberta.pooler.dense")
    return Family(
        prefix="roberta",
        encoder=bert_encoder("roberta"),
        classes=(
            ModelClass(
                "RobertaForMaskedLM",
                ("masked_token",),
                masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            ),
            *task_classes(
                "Roberta",
                (Module("pooler", "classifier.dense"), Module("sequence_classification", "classifier.out_proj")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("RobertaModel", ("pooled",), (pooler,)),
            ModelClass("RobertaModel", (), ()),
        ),
        tied={
            "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        fields=bert_fields(vocab_size=Field("vocab_size", 50265)),
        constants={"masked_activation": "gelu", "pooler_dropout": True},
        fixed=FIXED,
        follow_padding=True,
        special_ids=BEGIN_AND_END,
    )
