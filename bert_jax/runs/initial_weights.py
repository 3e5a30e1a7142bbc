"""The weights that a run starts from, and whether the model it trains can be exported."""

import dataclasses
import hashlib

import jax
import numpy as np

from bert_jax.config import PretrainConfig
from bert_jax.console import Console
from bert_jax.data.sequences.sentence_pairs import SENTENCE_PAIRS
from bert_jax.errors import UserError
from bert_jax.inference.load import Weights
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface.model_config import model_config_fields
from bert_jax.interop.tensors import class_for
from bert_jax.objectives import OBJECTIVES


def check_exportable(config: PretrainConfig, padding_id: int) -> None:
    """Raise UserError before training where `transformers` has no model like the one to be trained.

    That is where its family lacks a head of the objective, or cannot express something else in `config.model`.
    """
    family = FAMILIES[config.model.family]
    if not family.classes:  # nor is it meant to be exported so
        return

    def is_possible(config: PretrainConfig) -> bool:
        return class_for(family, {head.name for head in OBJECTIVES[config.objective].heads(config)}) is not None

    if not is_possible(config):
        fits = [name for name in SENTENCE_PAIRS if is_possible(_with_pairs(config, name))]
        advice = f"choose one of {', '.join(fits)}" if fits else "choose another config.model.family"
        raise UserError(
            f"config.model.family={config.model.family} has no head for config.objective={config.objective} with "
            f"config.data.sentence_pairs={config.data.sentence_pairs}; {advice}"
        )
    if family.follow_padding and config.model.position_offset != padding_id + 1:
        raise UserError(
            f"config.model.position_offset={config.model.position_offset}: {config.model.family} counts positions from "
            f"the id of its padding + 1; with this tokenizer set it to {padding_id + 1}"
        )
    model_config_fields(config.model, padding_id, "config.model")


def _with_pairs(config: PretrainConfig, sentence_pairs: str) -> PretrainConfig:
    return dataclasses.replace(config, data=dataclasses.replace(config.data, sentence_pairs=sentence_pairs))


def digest(weights: Weights) -> str:
    """Return the SHA-256 of what was read, in hex; a resumed run must have started from the same weights."""
    found = hashlib.sha256(repr(weights.config).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights.params):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name not in weights.new and name.split("/")[0] not in weights.new:
            found.update(name.encode() + np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


def describe_start(place: str | None, found: Weights, console: Console) -> None:
    """Print which weights were read from `place`, which were missing and are random, and which are not used."""
    console.say(f"starting from the {found.config.family} in {place}")
    if found.new:
        console.say(f"randomly initialized: {', '.join(found.new)}")
    if found.unused:
        console.say(f"not used: {', '.join(found.unused)}")
