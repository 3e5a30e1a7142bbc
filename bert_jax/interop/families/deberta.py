"""DeBERTa, version 3 (He et al. 2021 and 2023): disentangled attention.

Only the variant of version 3 and mDeBERTa can be read. This variant has both relative-position terms (c2p and p2c), and
a table of relative positions with a LayerNorm. The query and key projections of tokens also project this table. In
training, transformers also applies dropout to the table of relative positions, and bert_jax does not. At inference,
transformers and bert_jax give equal results.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    FIXED,
    Family,
    Field,
    ModelClass,
    NamedModule,
    Spelling,
    bare_classes,
    bert_encoder,
    bert_fields,
    bert_masked_head,
    masked_head,
    task_classes,
    tied_decoder_names,
)

ROWS, FARTHEST, LENGTH = "position_buckets", "max_relative_positions", "max_position_embeddings"
# If any of these fields has another value, transformers builds another model.
REQUIRED = {
    "relative_attention": True,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
}
TERMS = "pos_att_type"
BOTH = ("p2c", "c2p")


def deberta_family() -> Family:
    """Return the row of FAMILIES for deberta-v2, which is also the name that transformers has for version 3."""
    # Names of the masked-token head in published files; transformers uses these names if legacy=False.
    published = masked_head(*(f"lm_predictions.lm_head.{name}" for name in ("dense", "LayerNorm", "bias")))
    fields = bert_fields(
        vocab_size=Field("vocab_size", 128100),
        hidden_size=Field("hidden_size", 1536),
        num_hidden_layers=Field("num_layers", 24),
        num_attention_heads=Field("num_heads", 24),
        intermediate_size=Field("mlp_size", 6144),
        type_vocab_size=Field("num_token_types", 0),
        layer_norm_eps=Field("layer_norm_epsilon", 1e-7),
        cls_dropout=Field("classifier_dropout", None),
        pooler_hidden_act=Field("pooler_activation", "gelu", ACTIVATIONS),
        position_buckets=Field("relative_buckets", None),
        max_relative_positions=Field("relative_max_distance", None),
    )
    return Family(
        prefix="deberta",
        encoder=(
            *(
                module._replace(name=module.name + "_proj") if ".self." in module.name else module
                for module in bert_encoder("deberta")
            ),
            NamedModule("encoder/distances/table", "deberta.encoder.rel_embeddings.weight", "array"),
            NamedModule("encoder/distances/norm", "deberta.encoder.LayerNorm", "norm"),
        ),
        classes=(
            ModelClass("DebertaV2ForMaskedLM", ("masked_token",), bert_masked_head()),
            ModelClass("DebertaV2ForMaskedLM", ("masked_token",), published),
            *task_classes("DebertaV2", NamedModule("pooler", "pooler.dense")),
            *bare_classes("DebertaV2Model"),
        ),
        tied=tied_decoder_names("cls.predictions", "deberta.embeddings"),
        fields={name: field for name, field in fields.items() if name != "classifier_dropout"},
        constants={"positions": "disentangled"},
        fixed=FIXED | {"pooler_dropout": 0, "conv_kernel_size": 0},
        indifferent=frozenset({"legacy"}),  # selects only the names of the masked-token head
        spelling=Spelling(
            frozenset({*REQUIRED, TERMS, "pooler_hidden_size"}), read_attention_fields, write_attention_fields
        ),
        # Parts of the pretraining in published files: the replaced-token head, which has a norm that our head lacks,
        # the table of absolute positions, and a second table of tokens. transformers reads none of these parts.
        ignored=("mask_predictions.", "embeddings.position_embeddings.", "embeddings.word_embeddings._weight"),
    )


def read_attention_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of the table: ROWS is the number of rows of the relative-position table, two per bucket.

    FARTHEST is the distance beyond which all positions share a row.
    """
    values = dict(fields)
    for name, value in REQUIRED.items():
        if values.pop(name, None) != value:
            raise UserError(f"{where}: {name} is {fields.get(name)!r}; only {value!r} can be read")
    terms = values.pop(TERMS, None)
    named = terms.lower().split("|") if isinstance(terms, str) else terms
    if not isinstance(named, list) or sorted(map(str, named)) != sorted(BOTH):
        raise UserError(f"{where}: {TERMS} is {terms!r}; only 'p2c|c2p' can be read")
    buckets, farthest = values.get(ROWS), values.get(FARTHEST, -1)
    if type(buckets) is not int or not 4 <= buckets < 2**30:
        raise UserError(f"{where}: {ROWS} is {buckets!r}; only numbers from 4 on can be read")
    if values.pop("pooler_hidden_size", width := values.get("hidden_size", 1536)) != width:
        raise UserError(f"{where}: pooler_hidden_size is not hidden_size, {width!r}")
    unlimited = isinstance(farthest, int) and farthest < 1
    return values | {ROWS: 2 * buckets, FARTHEST: values.get(LENGTH, 512) if unlimited else farthest}


def write_attention_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a file: ROWS is the number of buckets, half the rows of the relative-position table."""
    return {
        **fields,
        **REQUIRED,
        TERMS: [*BOTH],
        ROWS: fields[ROWS] // 2,
        FARTHEST: -1 if fields[FARTHEST] == fields[LENGTH] else fields[FARTHEST],
        "pooler_hidden_size": fields["hidden_size"],
        "pooler_dropout": 0,
    }
