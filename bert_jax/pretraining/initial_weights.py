"""The weights that a run starts from, and whether the model it trains can be exported."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.checkpoints.load_model import Weights, has_part, read_weights
from bert_jax.checkpoints.longer_positions import with_longer_positions
from bert_jax.config import EncoderConfig, PretrainConfig, fill_inherited_fields, flatten
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface.model_config import model_config_fields
from bert_jax.interop.tensors import largest_class
from bert_jax.models import Params, draw_missing
from bert_jax.objectives import OBJECTIVES, Part
from bert_jax.objectives.distillation import layers_of, student_of
from bert_jax.pretraining.teacher import Teacher
from bert_jax.tokenizer import Tokenizer, load_tokenizer

# Fields of an architecture that continued training may change.
MAY_DIFFER = ("dropout", "attention_dropout", "classifier_dropout", "initializer_range", "initialization")


def check_exportable(config: PretrainConfig, special_ids: Mapping[str, int]) -> None:
    """Raise UserError before training where `transformers` has no model like the one to be trained.

    That is where its family lacks a head of the objective, or cannot express something else in `config.model`.
    `special_ids` are the tokenizer's: pad, sep.
    """
    family = FAMILIES[config.model.family]

    def is_possible(config: PretrainConfig) -> bool:
        return largest_class(family, {head.name for head in OBJECTIVES[config.objective].heads(config)}) is not None

    if not is_possible(config):
        fits = [name for name in SENTENCE_PAIRS if is_possible(_with_pairs(config, name))]
        advice = f"choose one of {', '.join(fits)}" if fits else "choose another config.model.family"
        raise UserError(
            f"config.model.family={config.model.family} has no head for config.objective={config.objective} with "
            f"config.data.sentence_pairs={config.data.sentence_pairs}; {advice}"
        )
    padding_id = special_ids["pad"]
    if family.follow_padding and config.model.position_offset != padding_id + 1:
        raise UserError(
            f"config.model.position_offset={config.model.position_offset}: {config.model.family} counts positions from "
            f"the id of its padding + 1; with this tokenizer set it to {padding_id + 1}"
        )
    for name, role in family.token_ids.items():
        if getattr(config.model, name) != special_ids[role]:
            raise UserError(
                f"config.model.{name}={getattr(config.model, name)}: set it to {special_ids[role]}, the id of [SEP] in "
                "this tokenizer"
            )
    model_config_fields(config.model, padding_id, "config.model")


def _with_pairs(config: PretrainConfig, sentence_pairs: str) -> PretrainConfig:
    return dataclasses.replace(config, data=dataclasses.replace(config.data, sentence_pairs=sentence_pairs))


def from_elsewhere(config: PretrainConfig) -> bool:
    """Whether a run starts from trained weights, its own or a teacher's."""
    teacher = OBJECTIVES[config.objective].teacher(config)
    return bool(config.init_from) or (teacher is not None and config.distillation.copy_layers)


def as_begun(config: PretrainConfig, begun: PretrainConfig, console: Console) -> PretrainConfig:
    """Return the config of a resumed run with the start that it had, which its checkpoints have replaced since.

    A line says so where another start is asked for.
    """
    generator = dataclasses.replace(config.replaced_tokens, generator_from=begun.replaced_tokens.generator_from)
    for name, now, then in (
        ("init_from", config.init_from, begun.init_from),
        ("replaced_tokens.generator_from", config.replaced_tokens.generator_from, generator.generator_from),
    ):
        if now and now != then:
            console.say(f"config.{name}={now} has no effect: the run resumes; it began from {then or 'random weights'}")
    return dataclasses.replace(config, init_from=begun.init_from, replaced_tokens=generator)


def starting_weights(
    config: PretrainConfig, tokenizer: Tokenizer, console: Console, teacher: Teacher | None = None
) -> Params | None:
    """Return the parameters of `config.init_from`, for continued pretraining, or a teacher's; None: random ones.

    Raises UserError where their architecture or vocabulary is not that of `config.model`.
    """
    row = OBJECTIVES[config.objective]
    parts = row.parts(config)
    if not config.init_from:
        if any(part.init_from for part in parts.values()):
            raise UserError(
                "config.replaced_tokens.generator_from needs config.init_from: a generator reads the model's embeddings"
            )
        if teacher and teacher.config and config.distillation.copy_layers:
            student = student_of(dict(teacher.params), teacher.config, config)
            layers = ", ".join(map(str, layers_of(config.model, teacher.config)))
            console.say(f"starting from the layers {layers} of {config.distillation.teacher}")
            return student
        return None
    found = read_weights(config.init_from, row.heads(config), jax.random.key(config.seed), console)
    found = with_longer_positions(found, config.model, console)
    _check_architecture(found, config.model, f"--config.init_from={config.init_from}", "config.model")
    if load_tokenizer(found.directory).tokens != tokenizer.tokens:
        raise UserError(
            f"{config.data.corpus} was prepared with another vocabulary than {config.init_from}; "
            f"prepare it again with --tokenizer {found.directory}"
        )
    describe_start(config.init_from, found, console)
    params = found.params
    for name, part in parts.items():
        weights = _part_weights(name, part, config, console)
        params = params | {name: part.own(weights)}
        if part.init_from and not _equal(part.whole(params), weights):
            console.say(f"not used: the embeddings of {part.init_from}, which differ; the {name} reads the model's")
    return params


def _equal(ours: Params, theirs: Params) -> bool:
    return jax.tree.all(jax.tree.map(np.array_equal, ours, theirs))


def _part_weights(name: str, part: Part, config: PretrainConfig, console: Console) -> Params:
    """The weights that a part starts from."""
    key, place = jax.random.fold_in(jax.random.key(config.seed), 1), part.init_from or str(config.init_from)
    if part.init_from:
        found = read_weights(part.init_from, part.heads, key, console)
    elif has_part(place, name):
        found = read_weights(place, part.heads, key, console, part=name)
    else:
        console.say(f"randomly initialized: the {name}")
        return draw_missing(part.config, part.heads, {}, key)
    found = with_longer_positions(found, part.config, console)
    _check_architecture(found, part.config, f"the {name} in {place}", name)
    describe_start(place, found, console)
    return found.params


def _check_architecture(found: Weights, wanted: EncoderConfig, where: str, name: str) -> None:
    theirs = flatten(dataclasses.asdict(fill_inherited_fields(found.config)))
    wrong = [
        f"{name}.{key}={value} (there {theirs[key]})"
        for key, value in flatten(dataclasses.asdict(fill_inherited_fields(wanted))).items()
        if value != theirs[key] and key not in MAY_DIFFER
    ]
    if wrong:
        raise UserError(f"{where} has another architecture: {', '.join(wrong)}")


def describe_start(place: str | None, found: Weights, console: Console) -> None:
    """Print which weights were read from `place`, which were missing and are random, and which are not used."""
    console.say(f"starting from the {found.config.family} in {place}")
    if found.new:
        console.say(f"randomly initialized: {', '.join(found.new)}")
    if found.unused:
        console.say(f"not used: {', '.join(found.unused)}")
