"""RoBERTa (Liu et al. 2019), and the models that have its architecture and classes of their own names.

XLM-RoBERTa (Conneau et al. 2020) reads 100 languages, CamemBERT (Martin et al. 2020) French; both by SentencePiece.
"""

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


def roberta(classes: str, vocab_size: int, prefix: str = "roberta") -> Family:
    """Return the row of RoBERTa with the names of `classes` and the default vocabulary of transformers."""
    pooler = Module("pooler", f"{prefix}.pooler.dense")
    return Family(
        prefix=prefix,
        encoder=bert_encoder(prefix),
        classes=(
            ModelClass(
                f"{classes}ForMaskedLM",
                ("masked_token",),
                masked_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            ),
            *task_classes(
                classes,
                (Module("pooler", "classifier.dense"), Module("sequence_classification", "classifier.out_proj")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass(f"{classes}Model", ("pooled",), (pooler,)),
            ModelClass(f"{classes}Model", (), ()),
        ),
        tied={
            "lm_head.decoder.weight": f"{prefix}.embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        fields=bert_fields(vocab_size=Field("vocab_size", vocab_size)),
        constants={"masked_activation": "gelu", "pooler_dropout": True},
        fixed=FIXED,
        follow_padding=True,
        special_ids=BEGIN_AND_END,
    )
