"""The initial weights of a pretraining run, and a check that its model can be exported."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import jax
import numpy as np

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.checkpoints.architecture import read_architecture, with_attention
from bert_jax.checkpoints.growth import SIZES, grow_weights, with_size_of
from bert_jax.checkpoints.load_model import Weights, read_weights, trains_auxiliary_model
from bert_jax.checkpoints.longer_positions import with_longer_positions
from bert_jax.checkpoints.unused_rows import without_unused_rows
from bert_jax.config import EncoderConfig, fill_inherited_fields, flatten, no_effect_error
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface.model_config import model_config_fields
from bert_jax.interop.tensors import largest_class_of_heads
from bert_jax.models import Head, Params, draw_missing
from bert_jax.objectives import OBJECTIVES, AuxiliaryModel
from bert_jax.objectives.distillation import copied_teacher_layers, student_params_from_teacher
from bert_jax.tokenizer import Tokenizer, load_tokenizer

# Head of a bidirectional model -> head of a causal model with equal parameters, and the inverse mapping.
OTHER_ATTENTION = {"masked_token": "next_token", "next_token": "masked_token"}
MAX_NAMED = 1  # maximum number of differences that a message names
# Texts that show how a tokenizer treats upper case, accents, spaces, ligatures and ideographs.
SPELLINGS = ("This Text, THAT text", "Über naïve cafés", "two  spaces\tand a-dash", "ﬁne ①", "東京 and 서울")
# Fields of an architecture that continued training may change.
MAY_DIFFER = ("dropout", "attention_dropout", "classifier_dropout", "initializer_range", "initialization")


def check_exportable(model: EncoderConfig, objective: str, sentence_pairs: str, special_ids: Mapping[str, int]) -> None:
    """Raise UserError if `transformers` cannot express the model; call this function before training.

    A model cannot be expressed if its family in transformers lacks a head of the objective, or has no field for a
    setting of `model`. `special_ids` are the ids of the tokenizer's special tokens by role, such as pad and sep.
    """
    family = FAMILIES[model.family]

    def has_class(sentence_pairs: str) -> bool:
        return (
            largest_class_of_heads(family, {head.name for head in OBJECTIVES[objective].heads(sentence_pairs)})
            is not None
        )

    if not has_class(sentence_pairs):
        fits = [name for name in SENTENCE_PAIRS if has_class(name)]
        advice = f"choose one of {', '.join(fits)}" if fits else "choose another config.model.family"
        raise UserError(
            f"config.model.family={model.family} has no head for config.objective={objective} with "
            f"config.data.sentence_pairs={sentence_pairs}; {advice}"
        )
    padding_id = special_ids["pad"]
    if family.follow_padding and model.position_offset != padding_id + 1:
        raise UserError(
            f"config.model.position_offset={model.position_offset}: {model.family} counts positions from "
            f"the id of its padding + 1; with this tokenizer set it to {padding_id + 1}"
        )
    for name, role in family.token_ids.items():
        if getattr(model, name) != special_ids[role]:
            raise UserError(
                f"config.model.{name}={getattr(model, name)}: set it to {special_ids[role]}, the id of [SEP] in "
                "this tokenizer"
            )
    model_config_fields(model, padding_id, "config.model")


def keep_original_init(key: str, init_from: str | None, original: str | None, console: Console) -> str | None:
    """Return `original`, the initial weights of a resumed run; print a line if `init_from` names other weights.

    The run resumes from a checkpoint, so the path of its initial weights is only recorded. The printed line names
    `init_from` by the config key `key`.
    """
    if init_from and init_from != original:
        console.say(
            f"config.{key}={init_from} has no effect: the run resumes; it began from {original or 'random weights'}"
        )
    return original


def copy_teacher_layers(
    params: Params, teacher: EncoderConfig, model: EncoderConfig, path: str | None, console: Console
) -> Params:
    """Return the initial parameters of a student, with evenly spaced layers copied from its teacher.

    `params` are the parameters of the teacher, and `path` is its directory, for a line on the console.
    """
    student = student_params_from_teacher(params, teacher, model)
    layers = ", ".join(map(str, copied_teacher_layers(model.num_layers, teacher.num_layers)))
    console.say(f"starting from the layers {layers} of {path}")
    return student


def read_initial_weights(
    init_from: str,
    model: EncoderConfig,
    heads: tuple[Head, ...],
    auxiliary: Mapping[str, AuxiliaryModel],
    *,
    grow: bool,
    seed: int,
    tokenizer: Tokenizer,
    corpus: str,
    console: Console,
) -> Params:
    """Return the parameters of `init_from` for continued pretraining, with the parameters of auxiliary models.

    Args:
        init_from: a model directory.
        model: architecture of the run.
        heads: heads that the run trains; missing heads are initialized randomly.
        auxiliary: the auxiliary models that the run trains, by name.
        grow: whether smaller weights grow to the size of the run's architecture.
        seed: seed of random weights.
        tokenizer: tokenizer of the corpus.
        corpus: name of the corpus, for messages.
        console: console that prints lines about the weights.

    Raises:
        UserError: the architecture or the vocabulary of the weights differs from the run's, or the weights cannot grow.
    """
    weights = _read_weights_with_attention(init_from, heads, model.causal, jax.random.key(seed), console)
    _check_tokenizer(weights, init_from, tokenizer, corpus, console)

    def fit(weights: Weights, wanted: EncoderConfig, where: str, name: str) -> Weights:
        weights = without_unused_rows(weights, tokenizer.vocab_size, console)
        weights = with_longer_positions(weights, wanted, console)
        grown = with_size_of(weights.config, wanted) if grow else weights.config
        _check_architecture(grown, wanted, where, name)
        return weights if grown == weights.config else grow_weights(weights, grown, where, name, seed, console)

    if grow and with_size_of(weights.config, model) == weights.config:
        raise no_effect_error("config.grow", f"weights that have the size of config.model ({init_from})", False)
    weights = fit(weights, model, f"--config.init_from={init_from}", "config.model")
    print_initial_weights_summary(init_from, weights, console.say)
    params, key = weights.params, jax.random.fold_in(jax.random.key(seed), 1)
    for name, part in auxiliary.items():
        path = part.init_from or init_from
        if not part.init_from and not trains_auxiliary_model(path, name):
            console.say(f"randomly initialized: the {name}")
            part_params = part.sharing.begin(params, draw_missing(part.config, part.heads, {}, key))
        else:
            weights = read_weights(path, part.heads, key, console, part=None if part.init_from else name)
            if part.init_from:
                _check_tokenizer(weights, path, tokenizer, corpus, console)
            try:
                weights = fit(weights, part.config, f"the {name} in {path}", name)
            except UserError as error:
                raise UserError(
                    f"{error}; config.model and config.replaced_tokens decide the architecture of the {name}"
                ) from None
            print_initial_weights_summary(path, weights, console.say)
            part_params = weights.params
        params = part.sharing.join(params, part_params)
        is_kept = functools.partial(np.allclose, atol=1e-6)  # tables that are stored as differences are rounded
        if not jax.tree.all(jax.tree.map(is_kept, part.sharing.split(params).auxiliary, part_params)):
            source = path if part.init_from else f"the {name} in {path}"
            console.say(f"not used: the embeddings of {source}, which differ; the {name} reads the model's")
    return params


def _check_tokenizer(weights: Weights, path: str, tokenizer: Tokenizer, corpus: str, console: Console) -> None:
    """Raise UserError if weights have another vocabulary than a corpus; warn if only the splitting of texts differs."""
    of_weights = load_tokenizer(weights.directory)
    if of_weights.tokens != tokenizer.tokens:
        raise UserError(
            f"{corpus} was prepared with another vocabulary than {path}; prepare it again with --tokenizer "
            f"{weights.directory}, or give the weights its vocabulary (`bert-jax vocabulary`)"
        )
    if any(of_weights.encode(text) != tokenizer.encode(text) for text in SPELLINGS):
        console.say(
            f"warning: the tokenizers of {corpus} and {path} have equal tokens but split texts in different ways, "
            "for example in lower case; to use the tokenizer of the weights, prepare the corpus again with --tokenizer "
            f"{weights.directory}"
        )


def _read_weights_with_attention(
    path: str, heads: tuple[Head, ...], causal: bool, rng: jax.Array, console: Console
) -> Weights:
    """Return the weights at `path`, with causal or bidirectional attention, whichever attention they have there.

    Causal and bidirectional models have equal parameters; the head that predicts next tokens becomes the head that
    predicts masked tokens, or the reverse. The other arguments are as in `read_weights`.
    """
    try:
        differs = read_architecture(path).causal != causal
    except UserError:  # the path has a bidirectional checkpoint of Google, or no model, which `read_weights` reports
        differs = causal
    if not differs:
        return read_weights(path, heads, rng, console)
    stored_heads = tuple(head._replace(name=OTHER_ATTENTION.get(head.name, head.name)) for head in heads)
    weights = read_weights(path, stored_heads, rng, console)

    def renamed(parameter: str) -> str:
        name, slash, rest = parameter.partition("/")
        return OTHER_ATTENTION.get(name, name) + slash + rest

    changes = [f"attention becomes {'causal' if causal else 'bidirectional'}"]
    changes += [
        f"the head {old.name} becomes {new.name}" for old, new in zip(stored_heads, heads, strict=True) if old != new
    ]
    console.say(f"{path}: {', and '.join(changes)}")
    return dataclasses.replace(
        weights,
        config=with_attention(weights.config, causal),
        heads=heads,
        params={renamed(name): part for name, part in weights.params.items()},
        new=tuple(map(renamed, weights.new)),
    )


def _check_architecture(present: EncoderConfig, wanted: EncoderConfig, where: str, name: str) -> None:
    """Raise UserError if the architecture of weights differs from `wanted` in a field that must not change.

    In the message, `where` names the weights, and `name` is the prefix of the keys of the wanted architecture.
    """
    theirs = flatten(dataclasses.asdict(fill_inherited_fields(present)))
    wrong = {
        key: f"{name}.{key}={value} (weights: {theirs[key]})"
        for key, value in flatten(dataclasses.asdict(fill_inherited_fields(wanted))).items()
        if value != theirs[key] and key not in MAY_DIFFER
    }
    if wrong:
        others = f", and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
        fix = "; --config.model=from_init takes the architecture of the weights" if name == "config.model" else ""
        if fix and wrong.keys() <= {*SIZES}:
            fix += ", and --config.grow=True grows smaller weights"
        raise UserError(f"{where} has another architecture: {', '.join([*wrong.values()][:MAX_NAMED])}{others}{fix}")


def print_initial_weights_summary(path: str, weights: Weights, say: Callable[[str], None]) -> None:
    """Print the family of the initial weights, and the names of randomly initialized weights and of unused weights."""
    say(f"starting from the {weights.config.family} in {path}")
    if weights.new:
        say(f"randomly initialized: {', '.join(weights.new)}")
    if weights.unused:
        say(f"not used: {', '.join(weights.unused)}")
