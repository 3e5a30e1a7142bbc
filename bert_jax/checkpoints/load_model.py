"""Open any model directory: weights, and with `open_model` the tokenizer, checked against each other.

A directory is one of `export` or of transformers, a work directory of `finetune` (its best model) or of `pretrain`
(its newest undamaged checkpoint), or a TensorFlow checkpoint of Google's BERT. Restoring needs no objective and no
optimizer.
"""

import hashlib
import os
import pathlib
from typing import NamedTuple

import jax
import numpy as np

from bert_jax import files
from bert_jax.config import ComputeConfig, EncoderConfig, PretrainConfig, to_json
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop import google_tf, huggingface
from bert_jax.interop.directory import CARD
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.sentence_modules import SentenceModules, read_sentence_modules
from bert_jax.interop.tensors import advice_without, shared_parts
from bert_jax.models import HEADS, Head, Params, draw_missing, make_model
from bert_jax.objectives import OBJECTIVES
from bert_jax.tokenizer import Tokenizer, load_tokenizer
from bert_jax.training import workdir
from bert_jax.training.checkpoint import Checkpoints, CorruptCheckpointError, saved_steps
from bert_jax.training.remote_workdir import checkpoints_in


class Weights(NamedTuple):
    """A model as it was found."""

    config: EncoderConfig
    heads: tuple[Head, ...]
    params: Params  # of make_model(config, ..., heads): float32 numpy arrays
    labels: tuple[str, ...]  # of a head with classes; () where they have no names
    new: tuple[str, ...]  # parameters that were missing and are random
    unused: tuple[str, ...]  # parameters or tensors that no wanted head has
    directory: pathlib.Path  # of its tokenizer
    sentences: SentenceModules | None = None  # of a directory of sentence-transformers
    step: int | None = None  # of a checkpoint of `pretrain`


class OpenModel(NamedTuple):
    """A model that is ready to use, with its tokenizer."""

    config: EncoderConfig
    heads: tuple[Head, ...]
    params: Params  # of make_model(config, ..., heads), on the first device of this process
    labels: tuple[str, ...]
    tokenizer: Tokenizer
    directory: pathlib.Path  # of the tokenizer, and of what an export keeps beside the model
    sentences: SentenceModules = SentenceModules()  # how texts become vectors


def open_model(place: str | os.PathLike[str], wanted: tuple[Head, ...] | None = None) -> OpenModel:
    """Return the model of a directory with its own heads, or with the `wanted` ones, and its tokenizer.

    Raises UserError where either cannot be read, where the model lacks a head, and where the tokenizer is that of
    another model.
    """
    found = read_weights(place, wanted)
    tokenizer = load_tokenizer(found.directory)
    if tokenizer.vocab_size > found.config.vocab_size:
        raise UserError(
            f"{found.directory}: the tokenizer has {tokenizer.vocab_size} tokens, the model "
            f"{found.config.vocab_size}; it is the tokenizer of another model, export again"
        )
    params = jax.device_put(found.params, jax.local_devices()[0])
    sentences = found.sentences or SentenceModules()
    return OpenModel(found.config, found.heads, params, found.labels, tokenizer, found.directory, sentences)


def read_weights(
    place: str | os.PathLike[str],
    wanted: tuple[Head, ...] | None = None,
    rng: jax.Array | None = None,
    console: Console | None = None,
    step: int | None = None,
    part: str | None = None,
) -> Weights:
    """Return the model in a directory, whoever wrote it.

    Args:
        place: a directory as above; for a TensorFlow checkpoint also its path without a suffix.
        wanted: the heads to load; None: those that are there.
        rng: draws the wanted heads that are missing; None: a missing head is refused.
        console: where the step of a checkpoint and damaged checkpoints are reported; None: stderr.
        step: of a work directory of `pretrain`; None: the newest undamaged checkpoint.
        part: of such a directory, another model that the run trains, such as "generator"; None: `config.model`'s.

    Raises:
        UserError: no model is there, it is damaged, or it lacks a wanted head and there is no `rng`.
    """
    console = console or Console()
    directory = workdir.resolve_model_dir(place)
    files.check_sums(directory, [name for name in files.read_sums(directory) if name != CARD])
    if part is not None and not (directory / "run.json").is_file():
        raise UserError(f"{directory}: no work directory of `pretrain`, so it has no {part} beside a model")
    sentences = read_sentence_modules(directory)
    directory = directory / (sentences.folder if sentences else "")
    if step is None and (directory / "config.json").is_file():
        return Weights(*huggingface.load_model(directory, wanted, rng), directory, sentences)
    folder = directory if directory.is_dir() else directory.parent
    if (folder / google_tf.CONFIG).is_file():
        if step is not None:
            raise UserError(f"--step {step} is of a work directory; for a checkpoint of Google give its path")
        return _with_heads(Weights(*google_tf.load_google(directory), folder), wanted, rng, directory)
    if (directory / "runs").is_dir():
        raise UserError(f"{directory}: this `finetune` has not ended, so it has no model/ yet; run it to its end")
    if step is not None or (directory / "run.json").is_file():
        return _with_heads(_of_run(directory, step, part, console), wanted, rng, directory)
    raise UserError(
        f"{directory}: no model here (no config.json); give a directory of `export` or of transformers, or a work "
        "directory of `pretrain` or `finetune`"
    )


def weights_digest(params: Params) -> str:
    """Return the SHA-256 of the encoder's parameters, in hex: the same for a run and for its export."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params["encoder"]):
        found.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}".encode())
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()


def restore_params(directory: pathlib.Path, step: int | None, console: Console) -> tuple[PretrainConfig, int, Params]:
    """Return config, step and parameters (numpy arrays) of a pretraining run: their moving average where it has one.

    `step` None: the newest undamaged checkpoint. Raises UserError where there is none, where that of `step` is missing
    or damaged, and where run.json or the tokenizer is not that of the checkpoint.
    """
    config, fingerprint = workdir.read_run(directory)
    if not isinstance(config, PretrainConfig):
        raise UserError(f"{directory}: a run of `finetune`; give the work directory of a `pretrain`")
    if not saved_steps(checkpoints_in(directory)):
        raise UserError(f"{directory}: no checkpoint yet")
    checkpoints = Checkpoints(directory, config.checkpoint, read_only=True)
    try:
        if step is None:
            found = checkpoints.newest(checkpoints.restore_params, console.say)
            if found is None:
                raise UserError(f"{directory}: no checkpoint yet")
            step, params, record = found
        elif step not in checkpoints.steps():
            raise UserError(f"{directory}: no checkpoint of step {step}; there are {checkpoints.steps()}")
        else:
            params, record = checkpoints.restore_params(step)
    except CorruptCheckpointError as error:
        raise UserError(f"{directory}: the checkpoint of step {step} is damaged ({error})") from error
    finally:
        checkpoints.close()
    workdir.check_record(directory, to_json(config), fingerprint, record)
    return config, step, params


def has_part(place: str | os.PathLike[str], part: str) -> bool:
    """Return whether `place` is a work directory of `pretrain` whose run trains this beside its model."""
    directory = workdir.resolve_model_dir(place)
    if not (directory / "run.json").is_file():
        return False
    config, _ = workdir.read_run(directory)
    return isinstance(config, PretrainConfig) and part in OBJECTIVES[config.objective].auxiliary(
        config.model, config.replaced_tokens
    )


def _of_run(directory: pathlib.Path, step: int | None, part: str | None, console: Console) -> Weights:
    """A pretraining run with the heads that its parameters have, or another model that it trains."""
    config, step, params = restore_params(directory, step, console)
    parts = OBJECTIVES[config.objective].auxiliary(config.model, config.replaced_tokens)
    if part is not None and part not in parts:
        there = f"it trains {', '.join(parts)}" if parts else f"{config.objective} trains one model"
        raise UserError(f"{directory}: no {part} here; {there}")
    console.say(f"weights of step {step:,} of {directory}")
    if part is None:
        heads = tuple(Head(name) for name in HEADS if name in params and name not in parts)
        shapes = make_model(config.model, ComputeConfig(), heads).shapes
        own = {name: params[name] for name in shapes}  # not what an objective learns beside the model
        return Weights(config.model, heads, own, (), (), (), directory / "tokenizer", step=step)
    found = parts[part]
    return Weights(
        found.config, found.heads, found.from_run_tree(params), (), (), (), directory / "tokenizer", step=step
    )


def _with_heads(found: Weights, wanted: tuple[Head, ...] | None, rng: jax.Array | None, place: pathlib.Path) -> Weights:
    """The model with the wanted heads: missing ones are drawn, others are left out."""
    if wanted is None:
        return found
    shapes = make_model(found.config, ComputeConfig(), wanted).shapes
    shared = shared_parts(found.params, FAMILIES[found.config.family], shapes.keys() - found.params.keys())
    found = found._replace(params={**found.params, **shared})
    missing = tuple(name for name in shapes if name not in found.params)
    if missing and rng is None:
        names = {name.split("/")[0] for name in missing}
        raise UserError(f"{place} has no {', '.join(sorted(names))}: {advice_without(names)}")
    kept = {name: found.params[name] for name in shapes if name in found.params}
    params = kept if rng is None else draw_missing(found.config, wanted, kept, rng)
    unused = tuple(name for name in found.params if name not in shapes)
    return found._replace(heads=wanted, params=params, new=missing, unused=found.unused + unused)


def digest(weights: Weights) -> str:
    """Return the SHA-256 of what was read, in hex; a resumed run must have started from the same weights."""
    found = hashlib.sha256(repr(weights.config).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights.params):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name not in weights.new and name.split("/")[0] not in weights.new:
            found.update(name.encode() + np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()
