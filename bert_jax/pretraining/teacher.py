"""The teacher of a distillation: a model that the run reads and never changes."""

import dataclasses
import types
from collections.abc import Mapping
from typing import NamedTuple

from bert_jax.checkpoints.load_model import digest, read_weights
from bert_jax.config import EncoderConfig, PretrainConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.models import PRESETS, Head, Params
from bert_jax.objectives import OBJECTIVES
from bert_jax.tokenizer import Tokenizer, load_tokenizer


class Teacher(NamedTuple):
    """What a run needs of its teacher; without one, None and nothing."""

    config: EncoderConfig | None = None
    params: Params | tuple[()] = ()
    fingerprint: Mapping[str, str] = types.MappingProxyType({})


def read_teacher(config: PretrainConfig, tokenizer: Tokenizer, console: Console) -> Teacher:
    """Return the teacher of a run, with the head of masked tokens.

    Raises UserError where it has another vocabulary than the corpus, fewer positions than a phase, or no such head.
    """
    place = OBJECTIVES[config.objective].teacher(config)
    if place is None:
        return Teacher()
    try:
        found = read_weights(place, (Head("masked_token"),), console=console)
    except UserError as error:
        raise UserError(f"the teacher, config.distillation.teacher: {error}") from None
    if load_tokenizer(found.directory).tokens != tokenizer.tokens:
        raise UserError(
            f"{config.data.corpus} was prepared with another vocabulary than config.distillation.teacher={place}; "
            f"prepare it again with --tokenizer {found.directory}"
        )
    longest = max(phase.seq_len for phase in config.train.phases)
    if longest > found.config.max_positions:
        raise UserError(
            f"config.distillation.teacher={place} reads {found.config.max_positions} tokens, and a phase has "
            f"sequences of {longest}; lower its seq_len, or choose another teacher"
        )
    return Teacher(found.config, found.params, {"teacher": digest(found)})


def teacher_architecture(config: PretrainConfig) -> EncoderConfig | None:
    """Return the architecture alone, for a dry run: of a directory, or a preset with the vocabulary of the run."""
    place = OBJECTIVES[config.objective].teacher(config)
    if place in PRESETS:
        return dataclasses.replace(PRESETS[place], vocab_size=config.model.vocab_size)
    return None if place is None else read_weights(place, (Head("masked_token"),)).config
