"""BERT (Devlin et al. 2018)."""

from bert_jax.interop.families.base import (
    FIXED,
    Family,
    Field,
    ModelClass,
    NamedModule,
    bare_classes,
    bert_encoder,
    bert_fields,
    bert_masked_head,
    task_classes,
    tied_decoder_names,
)


def bert_family() -> Family:
    """Return the row of FAMILIES for bert."""
    pooler, next_sentence = (
        NamedModule("pooler", "bert.pooler.dense"),
        NamedModule("next_sentence", "cls.seq_relationship"),
    )
    masked = bert_masked_head()
    return Family(
        prefix="bert",
        encoder=bert_encoder("bert"),
        classes=(
            ModelClass("BertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, next_sentence)),
            ModelClass("BertForMaskedLM", ("masked_token",), masked),
            ModelClass("BertForNextSentencePrediction", ("next_sentence",), (pooler, next_sentence)),
            ModelClass("BertLMHeadModel", ("next_token",), bert_masked_head("next_token")),
            *task_classes("Bert", pooler),
            *bare_classes("BertModel", pooler),
        ),
        tied=tied_decoder_names("cls.predictions", "bert.embeddings"),
        fields=bert_fields(is_decoder=Field("causal", False)),
        constants={},
        fixed={name: value for name, value in FIXED.items() if name != "is_decoder"},
    )
