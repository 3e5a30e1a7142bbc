"""BigBird (Zaheer et al. 2020): BERT with block-sparse attention for sequences of more than a few blocks.

In training, transformers draws random blocks; at inference, copies of the first block replace the random blocks. In
bert_jax, training and inference both follow the inference of transformers. The question-answering head has an MLP.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    BEGIN_AND_END,
    CLASSIFICATION_HEAD,
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
    named_modules,
    task_classes,
    tied_decoder_names,
)

TYPE, SPARSE, FULL = "attention_type", "block_sparse", "original_full"
SIZE, RANDOM = "block_size", "num_random_blocks"
DEFAULTS = {TYPE: SPARSE, SIZE: 64, RANDOM: 3}


def big_bird_family() -> Family:
    """Return the row of FAMILIES for big_bird."""
    pooler, next_sentence = NamedModule("pooler", "bert.pooler"), NamedModule("next_sentence", "cls.seq_relationship")
    masked = bert_masked_head()
    linear = {"mlp_up": "intermediate.dense", "mlp_down": "output.dense", "output": "qa_outputs"}
    answers = (
        *named_modules("question_answering", "qa_classifier", linear),
        NamedModule("question_answering/mlp_norm", "qa_classifier.output.LayerNorm", "norm"),
    )
    return Family(
        prefix="bert",
        encoder=bert_encoder("bert"),
        classes=(
            ModelClass("BigBirdForPreTraining", ("masked_token", "next_sentence"), (*masked, pooler, next_sentence)),
            ModelClass("BigBirdForMaskedLM", ("masked_token",), masked),
            *task_classes("BigBird", pooler, CLASSIFICATION_HEAD, answers),
            *bare_classes("BigBirdModel", pooler),
        ),
        tied=tied_decoder_names("cls.predictions", "bert.embeddings"),
        fields=bert_fields(
            vocab_size=Field("vocab_size", 50358),
            hidden_act=Field("activation", "gelu_new", ACTIVATIONS, also=("sequence_activation",)),
            max_position_embeddings=Field("max_positions", 4096),
        )
        | {
            SIZE: Field("block_size", None),
            RANDOM: Field("random_blocks", 0),
            "sep_token_id": Field("question_separator_id", 66),
        },
        constants={},
        fixed=FIXED | {"use_bias": True, "rescale_embeddings": False},
        spelling=Spelling(frozenset({TYPE}), read_attention_type_fields, write_attention_type_fields),
        special_ids=BEGIN_AND_END,
        token_ids={"question_separator_id": "sep"},
    )


def read_attention_type_fields(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields of the table; for full attention, the block size is None and there are no random blocks."""
    values = {**DEFAULTS, **fields}
    attention_type = values.pop(TYPE)
    if attention_type not in (SPARSE, FULL):
        raise UserError(f"{where}: {TYPE} is {attention_type!r}, none of {SPARSE}, {FULL}")
    if values[SIZE] is None:  # a file must not have None, which means full attention in the table
        raise UserError(f"{where}: {SIZE} is None, not an integer")
    return values | ({SIZE: None, RANDOM: 0} if attention_type == FULL else {})


def write_attention_type_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the attention type; full attention gets the default values of the block fields."""
    if fields[SIZE] is None:
        return {**fields, TYPE: FULL, SIZE: DEFAULTS[SIZE], RANDOM: DEFAULTS[RANDOM]}
    return {**fields, TYPE: SPARSE}
