"""MobileBERT (Sun et al. 2020): narrow blocks in a wide residual stream, without normalization.

Only the published variant can be read: it has trigram embeddings, a second bottleneck for the queries and keys of a
block, and norms that only scale and shift. The norm of the masked-token head is always a LayerNorm.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.config.encoder import MAX_MLPS
from bert_jax.errors import UserError
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    FIXED,
    VOCABULARY,
    Family,
    Field,
    ModelClass,
    NamedModule,
    Spelling,
    bare_classes,
    bert_encoder,
    bert_fields,
    bert_masked_head,
    named_modules,
    task_classes,
    tied_decoder_names,
)

WIDTH, SAME_WIDTH = "intra_bottleneck_size", "true_hidden_size"


def mobilebert_family() -> Family:
    """Return the row of FAMILIES for mobilebert."""
    pooler, next_sentence = (
        NamedModule("pooler", "mobilebert.pooler.dense"),
        NamedModule("next_sentence", "cls.seq_relationship"),
    )
    masked = (
        *bert_masked_head(),
        NamedModule("masked_token/extra_table/kernel", "cls.predictions.dense.weight", VOCABULARY),
    )
    maps = {"input": "bottleneck.input", "attention_input": "bottleneck.attention", "output": "output.bottleneck"}
    linear = {ours: f"{theirs}.dense" for ours, theirs in maps.items()}
    norms = {f"{ours}_norm": f"{theirs}.LayerNorm" for ours, theirs in maps.items()}
    for index in range(MAX_MLPS - 1):  # the MLPs before the last MLP
        ours, theirs = f"mlp_{index}", f"ffn.{index}"
        linear |= {f"{ours}/mlp_up": f"{theirs}.intermediate.dense", f"{ours}/mlp_down": f"{theirs}.output.dense"}
        norms[f"{ours}/mlp_norm"] = f"{theirs}.output.LayerNorm"
    layer = "mobilebert.encoder.layer.{layer}"
    return Family(
        prefix="mobilebert",
        encoder=(
            *bert_encoder("mobilebert"),
            NamedModule("encoder/embeddings/projection", "mobilebert.embeddings.embedding_transformation"),
            *named_modules("encoder/layers", layer, linear),
            *named_modules("encoder/layers", layer, norms, "norm"),
        ),
        classes=(
            ModelClass("MobileBertForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, next_sentence)),
            ModelClass("MobileBertForMaskedLM", ("masked_token",), masked),
            ModelClass("MobileBertForNextSentencePrediction", ("next_sentence",), (pooler, next_sentence)),
            *task_classes("MobileBert", pooler),
            *bare_classes("MobileBertModel", pooler),
        ),
        tied=tied_decoder_names("cls.predictions", "mobilebert.embeddings"),
        fields=bert_fields(
            hidden_size=Field("hidden_size", 512),
            num_hidden_layers=Field("num_layers", 24),
            num_attention_heads=Field("num_heads", 4),
            intermediate_size=Field("mlp_size", 512),
            hidden_act=Field("activation", "relu", ACTIVATIONS),
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
        spelling=Spelling(frozenset({SAME_WIDTH}), read_width_fields, dict),
    )


def read_width_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields without `true_hidden_size`, which follows from the other fields."""
    values = dict(fields)
    if values.pop(SAME_WIDTH, width := values.get(WIDTH, 128)) != width:
        raise UserError(f"{where}: {SAME_WIDTH} is {fields[SAME_WIDTH]!r}; only {WIDTH}, {width!r}, can be read")
    return values
