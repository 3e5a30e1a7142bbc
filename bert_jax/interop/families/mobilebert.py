"""MobileBERT (Sun et al. 2020): narrow blocks in a wide residual stream, without normalization.

Read are files with trigrams, with a bottleneck of their own for queries and keys, and without statistics in norms, as
published. The norm of the masked-token head is always a LayerNorm.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.config.schema import MOST_MLPS
from bert_jax.errors import UserError
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    FIXED,
    Family,
    Field,
    ModelClass,
    Module,
    Spelling,
    bert_encoder,
    bert_fields,
    masked_head,
    task_classes,
)

WIDTH, SAME_WIDTH = "intra_bottleneck_size", "true_hidden_size"


def mobilebert() -> Family:
    """Return the row of mobilebert."""
    pooler, next_sentence = Module("pooler", "mobilebert.pooler.dense"), Module("next_sentence", "cls.seq_relationship")
    transform = "cls.predictions.transform"
    masked = (
        *masked_head(f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias"),
        Module("masked_token/extra_table", "cls.predictions.dense", vocabulary=True),
    )
    return Family(
        prefix="mobilebert",
        encoder=(
            *bert_encoder("mobilebert"),
            Module("encoder/embeddings/projection", "mobilebert.embeddings.embedding_transformation"),
            *_bottleneck("input", "bottleneck.input"),
            *_bottleneck("attention_input", "bottleneck.attention"),
            *_bottleneck("output", "output.bottleneck"),
            *(module for number in range(MOST_MLPS - 1) for module in _mlp(number)),
        ),
        classes=(
            ModelClass("MobileBertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, next_sentence)),
            ModelClass("MobileBertForMaskedLM", ("masked_token",), masked),
            ModelClass("MobileBertForNextSentencePrediction", ("next_sentence",), (pooler, next_sentence)),
            *task_classes(
                "MobileBert",
                (pooler, Module("sequence_classification", "classifier")),
                (pooler, Module("multiple_choice", "classifier")),
            ),
            ModelClass("MobileBertModel", ("pooled",), (pooler,)),
            ModelClass("MobileBertModel", (), ()),
        ),
        tied={
            "cls.predictions.decoder.weight": "mobilebert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        fields=bert_fields(
            hidden_size=Field("hidden_size", 512),
            num_hidden_layers=Field("num_layers", 24),
            num_attention_heads=Field("num_heads", 4),
            intermediate_size=Field("mlp_size", 512),
            hidden_act=Field("activation", "relu", ACTIVATIONS | {"relu": "relu"}),
            hidden_dropout_prob=Field("dropout", 0.0),
            embedding_size=Field("embedding_size", 128),
            intra_bottleneck_size=Field("bottleneck_size", 128),
            num_feedforward_networks=Field("bottleneck_mlps", 4),
            classifier_activation=Field("pooler_dense", True),
        ),
        constants={
            "trigram_embeddings": True,
            "norm": "no_norm",
            "masked_norm": "layer_norm",
            "masked_extra_table": True,
        },
        fixed=FIXED
        | {"trigram_input": True, "use_bottleneck": True, "normalization_type": "no_norm"}
        | {"use_bottleneck_attention": False, "key_query_shared_bottleneck": True},
        spelling=Spelling(frozenset({SAME_WIDTH}), _read, dict),
    )


def _bottleneck(ours: str, theirs: str) -> tuple[Module, ...]:
    """A map between the two widths, and its norm."""
    name = f"mobilebert.encoder.layer.{{layer}}.{theirs}"
    return (
        Module(f"encoder/layers/{ours}", f"{name}.dense"),
        Module(f"encoder/layers/{ours}_norm", f"{name}.LayerNorm", "norm"),
    )


def _mlp(number: int) -> tuple[Module, ...]:
    """An MLP before the last."""
    ours, theirs = f"encoder/layers/mlp_{number}", f"mobilebert.encoder.layer.{{layer}}.ffn.{number}"
    return (
        Module(f"{ours}/mlp_up", f"{theirs}.intermediate.dense"),
        Module(f"{ours}/mlp_down", f"{theirs}.output.dense"),
        Module(f"{ours}/mlp_norm", f"{theirs}.output.LayerNorm", "norm"),
    )


def _read(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields without `true_hidden_size`, which follows from the others."""
    found = dict(fields)
    if found.pop(SAME_WIDTH, width := found.get(WIDTH, 128)) != width:
        raise UserError(f"{where}: {SAME_WIDTH} is {fields[SAME_WIDTH]!r}; only {WIDTH}, {width!r}, can be read")
    return found
