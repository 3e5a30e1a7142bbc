"""Held-out metrics of a pretraining run."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator

import jax

from bert_jax.checkpoints.load_model import restore_params
from bert_jax.config import MeshConfig, PretrainConfig
from bert_jax.console import Console
from bert_jax.corpus.mixture import open_mixture
from bert_jax.corpus.statistics import unigram_entropy
from bert_jax.errors import UserError
from bert_jax.models import Head
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.objectives.base import Batch, Objective, Params
from bert_jax.parallel import sharding
from bert_jax.pretraining.data import corpus_data, min_documents
from bert_jax.pretraining.teacher import read_teacher
from bert_jax.scoring.score import pairs_accuracy
from bert_jax.tokenizer import Tokenizer
from bert_jax.training import workdir
from bert_jax.training.evaluation import Evaluate, make_evaluate, sized_evaluation
from bert_jax.training.schedules import plan_phases


def make_evaluation(
    config: PretrainConfig,
    objective: Objective,
    mesh: jax.sharding.Mesh,
    tokenizer: Tokenizer,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluate:
    """Return what an evaluation of a run measures: the means of its objective, and `pairs_accuracy` where asked for.

    `should_stop` is called after each batch of pairs; where it says so, their accuracy is left out.

    Raises:
        UserError: `config.evaluate.pairs` is not in a format, or the objective trains no masked-token head.
    """
    measure = make_evaluate(objective, mesh)
    if config.evaluate.pairs is None:
        return measure
    if Head("masked_token") not in OBJECTIVES[config.objective].heads(config):
        raise UserError(f"config.evaluate.pairs: {config.objective} trains no masked-token head; set it to None")
    settings = config.evaluate.pairs, config.evaluate.num_pairs
    accuracy = pairs_accuracy(config.model, config.compute.dtype, mesh, tokenizer, *settings, should_stop)

    def evaluation(params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        found = measure(params, frozen, batches)
        of_pairs = accuracy(params)
        return found if of_pairs is None else found | {"pairs_accuracy": of_pairs}

    return evaluation


def evaluate(
    directory: pathlib.Path, step: int | None, console: Console, other: pathlib.Path | None = None
) -> dict[str, float | int]:
    """Return the held-out metrics of a checkpoint, with the unigram entropy to compare them with (nats per token).

    Args:
        directory: work directory of `pretrain`.
        step: of the checkpoint; None: the newest undamaged one.
        console: for progress.
        other: a corpus to read instead of the run's: its held-out documents, or all where it holds none out.

    Raises:
        UserError: no run or checkpoint there, another corpus than the run was trained on, nothing held out, an
            `other` of another tokenizer, or another teacher than the run's.
    """
    config, step, params = restore_params(directory, step, console)
    _, fingerprint = workdir.read_run(directory)
    assert config.data.corpus
    corpus = open_mixture(str(other or config.data.corpus), progress=console.progress)
    if other is None and corpus.fingerprint != fingerprint["corpus"]:
        raise UserError(f"{config.data.corpus} is not the corpus that {directory} was trained on")
    if corpus.tokenizer_sha256 != fingerprint["tokenizer"]:
        raise UserError(f"{other}: prepared with another tokenizer than {config.data.corpus}; prepare it with that one")
    split = "train" if other and not corpus.split("heldout").num_documents else "heldout"
    mesh = sharding.make_mesh(MeshConfig())  # of the devices present, not of those that trained
    size = sized_evaluation(config, mesh).evaluate.batch_size
    assert size
    whole = -(-size // mesh.size) * mesh.size  # rows that fill it up weigh nothing
    config = dataclasses.replace(config, evaluate=dataclasses.replace(config.evaluate, batch_size=whole))
    if other is not None:  # how the run mixed its own corpora does not apply
        mixed = dataclasses.replace(config.data, weights=None, smoothing=1.0, max_epochs=None, snapshots=None)
        config = dataclasses.replace(config, data=mixed)
    data = corpus_data(config, corpus, sharding.batch_blocks(mesh), split)
    if data.heldout is None or data.num_heldout is None:
        raise UserError(
            f"{other or config.data.corpus} has too few held-out documents to evaluate on; "
            "prepare it again with a higher --heldout_fraction, or from more documents"
        )
    try:
        teacher = read_teacher(config, corpus.tokenizer(), console)
    except UserError as error:
        moved = f"`bert-jax pretrain --workdir {directory}` with its new place, as when it is resumed, records it"
        raise UserError(f"{error}; if it was moved, {moved}") from None
    if teacher.fingerprint.get("teacher") != fingerprint.get("teacher"):
        raise UserError(f"{config.distillation.teacher} is not the model that {directory} learned from")
    objective, phases = make_objective(config, teacher.config), plan_phases(config.train)
    phase = next((phase for phase in phases if step <= phase.end), phases[-1])
    measure = make_evaluation(config, objective, mesh, corpus.tokenizer())
    with jax.set_mesh(mesh):
        params = jax.device_put(params, sharding.shardings(objective.logical_axes, mesh))
        frozen = jax.device_put(teacher.params, sharding.shardings(objective.frozen_axes, mesh))
        found = measure(params, frozen, _counted(data.heldout(phase), data.num_heldout(phase), console))
    held = corpus.split(split, min_documents(config))
    entropy = unigram_entropy(held, corpus.vocab_size)
    return (
        {"step": step, "seq_len": phase.seq_len, "documents": held.num_documents} | found | {"unigram_entropy": entropy}
    )


def _counted(batches: Iterable[Batch], total: int, console: Console) -> Iterator[Batch]:
    """The batches, with a progress line."""
    for number, batch in enumerate(batches, 1):
        console.progress("evaluating", number, total, "batches")
        yield batch
