"""BERT (Devlin et al. 2018)."""

from bert_jax.interop.families.base import (
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


def bert() -> Family:
    """Return the row of bert."""
    pooler, next_sentence = Module("pooler", "bert.pooler.dense"), Module("next_sentence", "cls.seq_relationship")
    transform = "cls.predictions.transform"
    masked, following = (
        masked_head(f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias", head)
        for head in ("masked_token", "next_token")
    )
    return Family(
        prefix="bert",
        encoder=bert_encoder("bert"),
        classes=(
            ModelClass("BertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, next_sentence)),
            ModelClass("BertForMaskedLM", ("masked_token",), masked),
            ModelClass("BertForNextSentencePrediction", ("next_sentence",), (pooler, next_sentence)),
            ModelClass("BertLMHeadModel", ("next_token",), following),
            *task_classes(
                "Bert",
                (pooler, Module("sequence_classification", "classifier")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("BertModel", ("pooled",), (pooler,)),
            ModelClass("BertModel", (), ()),
        ),
        tied={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        fields=bert_fields(is_decoder=Field("causal", False)),
        constants={},
        fixed={name: value for name, value in FIXED.items() if name != "is_decoder"},
    )
