"""The teacher of a distillation: a model that the run reads and never changes."""

import dataclasses
import types
from collections.abc import Mapping
from typing import NamedTuple

from bert_jax.checkpoints.load_model import digest_of_config_and_params, read_weights
from bert_jax.checkpoints.unused_rows import without_unused_rows
from bert_jax.config import EncoderConfig
from bert_jax.console import Console
from bert_jax.errors import UserError, with_message
from bert_jax.models import PRESETS, Head, Params
from bert_jax.tokenizer import Tokenizer, load_tokenizer


class Teacher(NamedTuple):
    """The architecture, the parameters and the digest of a teacher; all are empty if a run has no teacher."""

    config: EncoderConfig | None = None
    params: Params | tuple[()] = ()
    fingerprint: Mapping[str, str] = types.MappingProxyType({})


def read_teacher(path: str | None, tokenizer: Tokenizer, max_seq_len: int, corpus: str, console: Console) -> Teacher:
    """Return the teacher of a distillation, with its masked-token head; `Teacher()` if `path` is None.

    `max_seq_len` is the length of the run's longest sequences, and `corpus` names the corpus in messages. Raise
    UserError if the vocabulary of the teacher differs from the vocabulary of the corpus, if the teacher has fewer
    positions than a phase needs, or if the teacher has no masked-token head.
    """
    if path is None:  # an objective that needs a teacher raises the error
        return Teacher()
    try:
        weights = read_weights(path, (Head("masked_token"),), console=console)
    except UserError as error:
        raise with_message(error, f"the teacher, config.distillation.teacher: {error}") from None
    if load_tokenizer(weights.directory).tokens != tokenizer.tokens:
        raise UserError(
            f"{corpus} was prepared with another vocabulary than config.distillation.teacher={path}; "
            f"prepare it again with --tokenizer {weights.directory}"
        )
    if max_seq_len > weights.config.max_positions:
        raise UserError(
            f"config.distillation.teacher={path} reads {weights.config.max_positions} tokens, and a phase has "
            f"sequences of {max_seq_len}; lower its seq_len, or choose another teacher"
        )
    weights = without_unused_rows(weights, tokenizer.vocab_size, console)
    return Teacher(weights.config, weights.params, {"teacher": digest_of_config_and_params(weights)})


def read_teacher_architecture(path: str | None, vocab_size: int) -> EncoderConfig | None:
    """Return the architecture of a teacher for a dry run; `path` is a model directory or the name of a preset.

    A preset gets the run's vocabulary size. A model directory gets this size only if its tables have more rows.
    """
    if path is None:
        return None
    if path in PRESETS:
        return dataclasses.replace(PRESETS[path], vocab_size=vocab_size)
    config = read_weights(path, (Head("masked_token"),)).config
    return dataclasses.replace(config, vocab_size=min(config.vocab_size, vocab_size))  # unused rows are left out
