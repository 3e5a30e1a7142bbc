"""Weights to start from or to use: a run's checkpoint, an export, or a directory of Hugging Face or Google."""

import dataclasses
import hashlib
import os
import pathlib
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig, PretrainConfig
from bert_jax.console import Console
from bert_jax.data.sequences.sampling import SENTENCE_PAIRS
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface import model as huggingface
from bert_jax.interop.huggingface.model_config import fields_of
from bert_jax.models import Head, Params, make_model
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.parallel import sharding
from bert_jax.training import workdir
from bert_jax.training.checkpoint import Checkpoints, CorruptCheckpointError
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.step import abstract_state, state_shardings


class Weights(NamedTuple):
    """A model as it was found."""

    config: EncoderConfig
    heads: tuple[Head, ...]
    params: Params  # of make_model(config, ..., heads), float32
    labels: tuple[str, ...]  # of a head that classifies; () where unnamed
    new: tuple[str, ...]  # parameters that were not there and are random
    unused: tuple[str, ...]  # what was there and no wanted head has
    directory: pathlib.Path  # where its tokenizer lies


def check_exportable(config: PretrainConfig, padding_id: int) -> None:
    """Raise UserError before training where `transformers` has no model like the one to be trained.

    That is where its family lacks the heads of the objective, or cannot express something else in `config.model`.
    """
    wanted, family = {head.name for head in OBJECTIVES[config.objective].heads(config)}, FAMILIES[config.model.family]
    possible = [set(one.heads) for one in family.classes]
    if wanted not in possible:
        fits = [
            name
            for name in SENTENCE_PAIRS
            if {head.name for head in OBJECTIVES[config.objective].heads(_with_pairs(config, name))} in possible
        ]
        raise UserError(
            f"config.model.family={config.model.family} has no head for "
            f"config.data.sentence_pairs={config.data.sentence_pairs}; choose one of {', '.join(fits)}"
        )
    if family.follow_padding and config.model.position_offset != padding_id + 1:
        raise UserError(
            f"config.model.position_offset={config.model.position_offset}: {config.model.family} counts positions from "
            f"the id of its padding + 1; with this tokenizer set it to {padding_id + 1}"
        )
    fields_of(config.model, padding_id, "config.model")


def _with_pairs(config: PretrainConfig, sentence_pairs: str) -> PretrainConfig:
    return dataclasses.replace(config, data=dataclasses.replace(config.data, sentence_pairs=sentence_pairs))


def digest(weights: Weights) -> str:
    """SHA-256 of what was read, in hex: a run that goes on must have started from the same."""
    found = hashlib.sha256(repr(weights.config).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights.params):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name not in weights.new and name.split("/")[0] not in weights.new:
            found.update(name.encode() + np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


def read_weights(
    place: str | os.PathLike[str], wanted: tuple[Head, ...] | None, rng: jax.Array | None, console: Console
) -> Weights:
    """The model in a directory: of `pretrain`, `finetune` or `export`, or saved by `transformers`.

    `wanted` and `rng` as in `huggingface.load_model`. Raises UserError for a directory that holds none.
    """
    directory = workdir.model_in(pathlib.Path(place))
    if (directory / "config.json").is_file():
        return Weights(*huggingface.load_model(directory, wanted, rng), directory)
    if (directory / "runs").is_dir():
        raise UserError(f"{directory}: this `finetune` has not ended, so it has no model/ yet; run it to its end")
    if (directory / "run.json").is_file():
        return _of_run(directory, wanted, rng, console)
    raise UserError(
        f"{directory}: no model here; give a work directory of `pretrain` or `finetune`, a directory made by `export`, "
        "or one of transformers with config.json and model.safetensors"
    )


def _of_run(
    directory: pathlib.Path, wanted: tuple[Head, ...] | None, rng: jax.Array | None, console: Console
) -> Weights:
    if jax.process_count() > 1:
        raise UserError(f"{directory}: several processes start from an export; make one with `bert-jax export`")
    config, step, params = restore_params(directory, None, console)
    console.say(f"weights of step {step:,} of {directory}")
    heads = OBJECTIVES[config.objective].heads(config) if wanted is None else wanted
    shapes = jax.eval_shape(make_model(config.model, ComputeConfig(), heads).init, jax.random.key(0))
    new = tuple(name for name in shapes if name not in params)
    if new:
        if rng is None:
            raise UserError(f"{directory} has no {', '.join(new)}: it is of `pretrain`; fine-tune it first")
        model = make_model(config.model, ComputeConfig(), heads)
        drawn = jax.jit(lambda rng: {name: model.init(rng)[name] for name in new})(rng)
        params = params | jax.device_get(drawn)
    unused = tuple(name for name in params if name not in shapes)
    kept = {name: params[name] for name in shapes}
    return Weights(config.model, heads, kept, (), new, unused, directory / "tokenizer")


def restore_params(directory: pathlib.Path, step: int | None, console: Console) -> tuple[PretrainConfig, int, Params]:
    """Config, step and parameters (in numpy arrays) of a run: of `step`, or of its newest undamaged checkpoint."""
    config, _ = workdir.read_run(directory)
    assert isinstance(config, PretrainConfig)
    objective = make_objective(config)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), sharding.AXES)
    abstract = abstract_state(*state_shardings(config, objective, optimizer, mesh))
    if not (directory / "checkpoints").is_dir():
        raise UserError(f"{directory}: no checkpoint yet")
    checkpoints = Checkpoints(directory, config.checkpoint, read_only=True)
    try:
        if step is None:
            found = checkpoints.newest(abstract, console.say)
            if found is None:
                raise UserError(f"{directory}: no checkpoint yet")
            step, state, _ = found
        elif step not in checkpoints.steps():
            raise UserError(f"{directory}: no checkpoint of step {step}; there are {checkpoints.steps()}")
        else:
            state, _ = checkpoints.restore(step, abstract)
    except CorruptCheckpointError as error:
        raise UserError(f"{directory}: the checkpoint of step {step} is damaged ({error})") from error
    finally:
        checkpoints.close()
    return config, step, jax.device_get(state.params)


def describe_start(found: Weights, console: Console) -> None:
    """What was taken, and what was not there: a head that is new is random, and nobody shall find that out later."""
    console.say(f"starting from the {found.config.family} in {found.directory}")
    if found.new:
        console.say(f"newly initialised, at random: {', '.join(found.new)}")
    if found.unused:
        console.say(f"not used: {', '.join(found.unused)}")
