"""Functions that open any model directory: `read_weights` (weights), `open_model` (weights and tokenizer).

A model directory is an output of `export` or transformers, or a work directory of `finetune` (its best model) or
`pretrain` (its newest undamaged checkpoint), or a TensorFlow checkpoint of Google's BERT. Reading the weights needs no
objective and no optimizer.
"""

import dataclasses
import hashlib
import os
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax import files, strict_json
from bert_jax.config import ComputeConfig, EncoderConfig, PretrainConfig, check_run_table_rows, to_json
from bert_jax.config.checks import ROWS_OF_WEIGHTS
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.google_tf import CONFIG as GOOGLE_CONFIG
from bert_jax.interop.google_tf import load_google
from bert_jax.interop.huggingface import CARD, TASK_FILE, Loaded, load_model
from bert_jax.interop.huggingface.model import load_matching_tokenizer
from bert_jax.interop.huggingface.peft import CONFIG as PEFT_CONFIG
from bert_jax.interop.huggingface.peft import base_model_directory
from bert_jax.interop.huggingface.weight_files import read_dense_kernel
from bert_jax.interop.sentence_modules import SentenceModules, read_sentence_modules
from bert_jax.interop.tensors import WITHOUT_PARAMETERS, copy_shared_parts, missing_heads_advice
from bert_jax.models import HEADS, Head, Params, draw_missing, make_model
from bert_jax.objectives import OBJECTIVES, predicts_masks
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import Tokenizer
from bert_jax.training import workdir
from bert_jax.training.checkpoint import Checkpoints, CorruptCheckpointError, saved_steps
from bert_jax.training.remote_workdir import checkpoints_directory
from bert_jax.training.schedules import model_after_step, phase_settings_after_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights(Loaded):
    """The model of a directory, with the directory of its tokenizer."""

    directory: pathlib.Path
    adapter_directory: pathlib.Path | None = None  # directory of a `peft` adapter that was merged into its base model
    sentences: SentenceModules | None = None  # the modules of a directory of sentence-transformers
    step: int | None = None  # the step of a checkpoint of `pretrain`


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OpenModel:
    """A model with its tokenizer, ready to use."""

    config: EncoderConfig
    heads: tuple[Head, ...]
    params: Params = dataclasses.field(repr=False)  # of make_model(config, ..., heads), on this process's first device
    labels: tuple[str, ...]
    problem: str = ""  # problem type of a classifier, see `Loaded.problem`
    activation: str = ""  # for the score of a CrossEncoder: a row of CROSS_ENCODER_ACTIVATIONS; '' for other models
    tokenizer: Tokenizer = dataclasses.field(repr=False)
    directory: pathlib.Path  # the directory of the tokenizer and further files
    adapter_directory: pathlib.Path | None = None  # directory of a `peft` adapter that was merged into its base model
    sentences: SentenceModules = SentenceModules()  # the steps from texts to vectors
    describes_vectors: bool = False  # whether the files of the directory give these steps


def open_model(path: str | os.PathLike[str], wanted: tuple[Head, ...] | None = None) -> OpenModel:
    """Return the model of a directory and its tokenizer; the model has all heads, or the `wanted` heads.

    Raise UserError if the model or the tokenizer cannot be read, the model lacks a head, or the tokenizer belongs to
    another model.
    """
    weights = read_weights(path, wanted)
    tokenizer = load_matching_tokenizer(weights.directory, weights.config)
    return OpenModel(
        config=weights.config,
        heads=weights.heads,
        params=jax.device_put(weights.params, jax.local_devices()[0]),
        labels=weights.labels,
        problem=weights.problem,
        activation=weights.activation,
        tokenizer=tokenizer,
        directory=weights.directory,
        adapter_directory=weights.adapter_directory,
        sentences=weights.sentences or SentenceModules(),
        describes_vectors=weights.sentences is not None and not weights.sentences.activation,
    )


def read_weights(
    path: str | os.PathLike[str],
    wanted: tuple[Head, ...] | None = None,
    rng: jax.Array | None = None,
    console: Console | None = None,
    step: int | None = None,
    part: str | None = None,
) -> Weights:
    """Return the model of a directory of any kind that the docstring of this module lists.

    Args:
        path: the directory; for a TensorFlow checkpoint, also the path of the checkpoint without a suffix.
        wanted: the heads to load; None: all heads of the directory. If only `hidden_states` is wanted, and the
            directory is a model of sentence-transformers, the head that makes its sentence vectors is added.
        rng: random key that initializes missing heads; None: a missing head is an error.
        console: console that prints the step of a checkpoint, and damaged checkpoints; None: a console on stderr.
        step: step of the checkpoint in a work directory of `pretrain`; None: the newest undamaged checkpoint.
        part: an auxiliary model that a run of `pretrain` trains, such as "generator"; None: the model of
            `config.model`.

    Raises:
        UserError: the directory has no model or is damaged, or the model lacks a wanted head and `rng` is None.
    """
    console = console or Console()
    directory = workdir.resolve_model_dir(path)
    if directory.is_file() and not (directory.parent / GOOGLE_CONFIG).is_file():
        raise UserError(f"{directory}: a file; give the directory of the model, {directory.parent}")
    files.check_sums(directory, [name for name in files.read_sums(directory) if name != CARD])
    if part is not None and not (directory / "run.json").is_file():
        raise UserError(f"{directory}: not a work directory of `pretrain`, so it holds a model but no {part}")
    sentences = read_sentence_modules(directory)
    projection = read_dense_kernel(directory / sentences.projection) if sentences and sentences.projection else None
    directory = directory / (sentences.folder if sentences else "")
    if sentences and wanted == (Head("hidden_states"),):
        wanted += _vector_heads(sentences)
    is_adapter = (directory / PEFT_CONFIG).is_file()
    if step is None and (is_adapter or (directory / "config.json").is_file()):
        loaded = load_model(directory, wanted, rng, projection)
        for note in loaded.notes:
            console.say(note)
        if sentences and sentences.activation and "sequence_classification" in {head.name for head in loaded.heads}:
            loaded = dataclasses.replace(loaded, activation=sentences.activation)
        if is_adapter:
            return Weights(
                **vars(_with_task_of_adapter(directory, loaded)),
                directory=_tokenizer_of_adapter(directory),
                adapter_directory=directory,
                sentences=sentences,
            )
        return Weights(**vars(loaded), directory=directory, sentences=sentences)
    folder = directory if directory.is_dir() else directory.parent
    if (folder / GOOGLE_CONFIG).is_file():
        if step is not None:
            raise UserError(
                f"--step {step} chooses a checkpoint of a work directory; for a checkpoint of Google, give its path"
            )
        return _select_and_initialize_heads(
            Weights(**vars(load_google(directory)), directory=folder), wanted, rng, directory
        )
    if (directory / "runs").is_dir():
        raise UserError(
            f"{directory}: this run of `finetune` has not ended, so it has no model/ yet; repeat its command"
        )
    if step is not None or (directory / "run.json").is_file():
        return _select_and_initialize_heads(_weights_of_run(directory, step, part, console), wanted, rng, directory)
    if not directory.exists():
        raise UserError(
            f"{directory}: no model here (no such directory); give a directory of `pretrain`, `finetune`, `export` or "
            "transformers, or a name of the Hub as OWNER/NAME"
        )
    raise UserError(
        f"{directory}: no model here (no config.json); give a directory of `export` or of transformers, or a work "
        "directory of `pretrain` or `finetune`"
    )


def _vector_heads(sentences: SentenceModules) -> tuple[Head, ...]:
    """Return the head that makes the sentence vectors; () if this head has no parameters."""
    name = VECTOR_HEADS[sentences.vector_head].head
    return () if name in WITHOUT_PARAMETERS else (Head(name, sentences.vector_width),)


def _with_task_of_adapter(directory: pathlib.Path, loaded: Loaded) -> Loaded:
    """Return the merged model of a `peft` directory as the adapter's task file describes it.

    The kind of the task gives the problem type and the activation. The labels are the labels of the task, if the head
    has as many classes. A head that is not in the adapter has no task.
    """
    if loaded.new:
        return loaded
    task = read_task_file(directory / TASK_FILE)
    kind, labels = KINDS.get(str(task.get("kind"))), tuple(task.get("labels", ()))
    if kind and kind.head in {head.name for head in loaded.heads}:
        loaded = dataclasses.replace(loaded, problem=kind.problem, activation=kind.activation)
    if labels and len(labels) in {head.classes for head in loaded.heads}:
        loaded = dataclasses.replace(loaded, labels=labels)
    return loaded


def _tokenizer_of_adapter(directory: pathlib.Path) -> pathlib.Path:
    """Return the directory that has the tokenizer of a `peft` directory, which is this directory or its base model."""
    return directory if (directory / "tokenizer_config.json").is_file() else base_model_directory(directory)


def task_file_path(model: Weights | OpenModel) -> pathlib.Path:
    """Return the path of the task file of a model, or of its adapter; the file may be absent.

    The tokenizer of an adapter may be in the directory of the base model, whose task is another task.
    """
    return (model.adapter_directory or model.directory) / TASK_FILE


def read_task_file(path: pathlib.Path) -> dict[str, Any]:
    """Return the object in a task file, or {} if the file is absent; raise UserError as `strict_json.read_object` does.

    The size limit is large, because a task file may have many labels.
    """
    return strict_json.read_object(path, strict_json.MAX_TABLE_BYTES) if path.is_file() else {}


def weights_digest(params: Params) -> str:
    """Return the hex SHA-256 of the encoder's parameters, which is equal for a run and its export."""
    sha256 = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params["encoder"]):
        sha256.update(f"{jax.tree_util.keystr(path)} {leaf.shape} {leaf.dtype}".encode())
        sha256.update(np.asarray(leaf).tobytes())
    return sha256.hexdigest()


class RestoredRun(NamedTuple):
    """Config, checkpoint step and parameters of a pretraining run."""

    config: PretrainConfig
    step: int
    params: Params


def restore_run(directory: pathlib.Path, step: int | None, console: Console) -> RestoredRun:
    """Return config, step and parameters of a pretraining run; with a moving average, the averaged parameters.

    If `step` is None, take the newest undamaged checkpoint. Raise UserError if no checkpoint exists, if the checkpoint
    of `step` is missing or damaged, or if run.json or the tokenizer belongs to another run than the checkpoint.
    """
    config, fingerprint = workdir.read_run(directory)
    if not isinstance(config, PretrainConfig):
        raise UserError(
            f"{directory}: a run of `finetune`, whose scores `bert-jax report` shows; to score it on a file, run "
            f"`bert-jax score --model {directory} --labeled FILE`"
        )
    check_run_table_rows(config, directory, ROWS_OF_WEIGHTS)
    if not saved_steps(checkpoints_directory(directory)):
        raise UserError(f"{directory}: no checkpoint yet")
    checkpoints = Checkpoints(directory, config.checkpoint, read_only=True)
    try:
        if step is None:
            newest = checkpoints.restore_newest(checkpoints.restore_params, console.say)
            if newest is None:
                raise UserError(f"{directory}: no checkpoint yet")
            step, params, record = newest
        elif step not in checkpoints.complete_steps():
            raise UserError(
                f"{directory}: no checkpoint of step {step}; there are the steps {checkpoints.complete_steps()}"
            )
        else:
            params, record = checkpoints.restore_params(step)
    except CorruptCheckpointError as error:
        raise UserError(f"{directory}: the checkpoint of step {step} is damaged ({error})") from error
    finally:
        checkpoints.close()
    workdir.check_run_matches_record(directory, to_json(config), fingerprint, record)
    return RestoredRun(config, step, params)


def trains_auxiliary_model(path: str | os.PathLike[str], part: str) -> bool:
    """Return True if `path` is the work directory of a `pretrain` run that trains the auxiliary model `part`."""
    directory = workdir.resolve_model_dir(path)
    if not (directory / "run.json").is_file():
        return False
    config, _ = workdir.read_run(directory)
    check_run_table_rows(config, directory, ROWS_OF_WEIGHTS)
    return isinstance(config, PretrainConfig) and part in OBJECTIVES[config.objective].auxiliary(
        config.model, config.replaced_tokens
    )


def _weights_of_run(directory: pathlib.Path, step: int | None, part: str | None, console: Console) -> Weights:
    """Return the model of a pretraining run with all trained heads, or an auxiliary model of the run."""
    config, step, params = restore_run(directory, step, console)
    model = model_after_step(config.model, config.train, step)
    parts = OBJECTIVES[config.objective].auxiliary(model, config.replaced_tokens)
    if part is not None and part not in parts:
        trained = f"it trains {', '.join(parts)}" if parts else f"{config.objective} trains one model"
        raise UserError(f"{directory}: no {part} here; {trained}")
    console.say(f"weights of step {step:,} of {directory}")
    if not predicts_masks(phase_settings_after_step(config.train, step)):
        console.say(
            f"warning: step {step:,} lies in a left_to_right phase: its masked-token head predicts next tokens and "
            "does not fill masks; a later phase trains it to fill them"
        )
    if part is None:
        for auxiliary in parts.values():
            params = auxiliary.sharing.split(params).model
        encoder, heads = model, tuple(Head(name) for name in HEADS if name in params and name not in parts)
        # An objective may have further parameters.
        params = {name: params[name] for name in make_model(encoder, ComputeConfig(), heads).shapes}
    else:
        encoder, heads, params = parts[part].config, parts[part].heads, parts[part].sharing.split(params).auxiliary
    return Weights(config=encoder, heads=heads, params=params, directory=directory / "tokenizer", step=step)


def _select_and_initialize_heads(
    weights: Weights, wanted: tuple[Head, ...] | None, rng: jax.Array | None, path: pathlib.Path
) -> Weights:
    """Return the model with the wanted heads; initialize missing heads, and leave out unwanted heads."""
    if wanted is None:
        return weights
    shapes = make_model(weights.config, ComputeConfig(), wanted).shapes
    shared = copy_shared_parts(weights.params, FAMILIES[weights.config.family], shapes.keys() - weights.params.keys())
    params = {**weights.params, **shared}
    missing = tuple(name for name in shapes if name not in params)
    if missing and rng is None:
        present = [head.name for head in weights.heads]
        raise UserError(f"{path} has no {', '.join(sorted(missing))}: {missing_heads_advice(missing, present)}")
    unused = tuple(name for name in params if name not in shapes)
    params = {name: params[name] for name in shapes if name in params}
    return dataclasses.replace(
        weights,
        heads=wanted,
        params=params if rng is None else draw_missing(weights.config, wanted, params, rng),
        new=missing,
        unused=weights.unused + unused,
    )


def digest_of_config_and_params(weights: Weights) -> str:
    """Return the hex SHA-256 of config and loaded parameters; the digest must be equal when a run resumes."""
    sha256 = hashlib.sha256(repr(weights.config).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(weights.params):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if name not in weights.new and name.split("/")[0] not in weights.new:
            sha256.update(name.encode() + np.ascontiguousarray(leaf).tobytes())
    return sha256.hexdigest()
