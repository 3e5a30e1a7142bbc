"""RoBERTa (Liu et al. 2019), and models that have its architecture but other class names.

XLM-RoBERTa (Conneau et al. 2020) reads 100 languages; CamemBERT (Martin et al. 2020) reads French. Both models have a
SentencePiece vocabulary.
"""

from bert_jax.interop.families.base import (
    BEGIN_AND_END,
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
    task_classes,
    tied_decoder_names,
)


def roberta_family(classes: str, vocab_size: int, prefix: str = "roberta") -> Family:
    """Return the row of FAMILIES for a RoBERTa whose class names begin with `classes`.

    The argument `vocab_size` is the default of transformers.
    """
    pooler = NamedModule("pooler", f"{prefix}.pooler.dense")
    masked = masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
    return Family(
        prefix=prefix,
        encoder=bert_encoder(prefix),
        classes=(
            ModelClass(f"{classes}ForMaskedLM", ("masked_token",), masked),
            *task_classes(classes, pooler, CLASSIFICATION_HEAD),
            *bare_classes(f"{classes}Model", pooler),
        ),
        tied=tied_decoder_names("lm_head", f"{prefix}.embeddings"),
        fields=bert_fields(vocab_size=Field("vocab_size", vocab_size)),
        constants={"masked_activation": "gelu", "pooler_dropout": True},
        fixed=FIXED,
        follow_padding=True,
        special_ids=BEGIN_AND_END,
    )
