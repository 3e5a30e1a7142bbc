"""BigBird (Zaheer et al. 2020): BERT with block-sparse attention beyond a few blocks.

transformers draws random blocks in training, and reads the first block in their place at inference. Here both are as
its inference. Question answering has a head of its own, with an MLP.
"""

from collections.abc import Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    BEGIN_AND_END,
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

TYPE, SPARSE, FULL = "attention_type", "block_sparse", "original_full"
SIZE, RANDOM = "block_size", "num_random_blocks"
DEFAULTS = {TYPE: SPARSE, SIZE: 64, RANDOM: 3}


def big_bird() -> Family:
    """Return the row of big_bird."""
    pooler, transform = Module("pooler", "bert.pooler"), "cls.predictions.transform"
    masked = masked_head(f"{transform}.dense", f"{transform}.LayerNorm", "cls.predictions.bias")
    tasks = task_classes(
        "BigBird",
        (Module("pooler", "classifier.dense"), Module("sequence_classification", "classifier.out_proj")),
        (pooler, Module("multiple_choice", "classifier")),
    )
    answers = tuple(
        Module(f"question_answering/{ours}", f"qa_classifier.{theirs}", kind)
        for ours, theirs, kind in (
            ("mlp_up", "intermediate.dense", "linear"),
            ("mlp_down", "output.dense", "linear"),
            ("mlp_norm", "output.LayerNorm", "norm"),
            ("output", "qa_outputs", "linear"),
        )
    )
    return Family(
        prefix="bert",
        encoder=bert_encoder("bert"),
        classes=(
            ModelClass(
                "BigBirdForPreTraining",
                ("masked_token", "next_sentence"),
                (*masked, pooler, Module("next_sentence", "cls.seq_relationship")),
            ),
            ModelClass("BigBirdForMaskedLM", ("masked_token",), masked),
            *(one._replace(modules=answers) if one.heads == ("question_answering",) else one for one in tasks),
            ModelClass("BigBirdModel", ("pooled",), (pooler,)),
            ModelClass("BigBirdModel", (), ()),
        ),
        tied={
            "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
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
        spelling=Spelling(frozenset({TYPE}), read_type, write_type),
        special_ids=BEGIN_AND_END,
        token_ids={"question_separator_id": "sep"},
    )


def read_type(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the fields with blocks where these are read, and without where all tokens read all."""
    found = {**DEFAULTS, **fields}
    kind = found.pop(TYPE)
    if kind not in (SPARSE, FULL):
        raise UserError(f"{where}: {TYPE} is {kind!r}, none of {SPARSE}, {FULL}")
    if found[SIZE] is None:  # of a file; below it means that there are none
        raise UserError(f"{where}: {SIZE} is None, not an integer")
    return found | ({SIZE: None, RANDOM: 0} if kind == FULL else {})


def write_type(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the type of attention, and the default size of blocks where none are read."""
    if fields[SIZE] is None:
        return {**fields, TYPE: FULL, SIZE: DEFAULTS[SIZE], RANDOM: DEFAULTS[RANDOM]}
    return {**fields, TYPE: SPARSE}
