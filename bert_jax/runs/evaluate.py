"""Held-out metrics of a pretraining run."""

import math
import pathlib
from collections.abc import Iterable, Iterator

import jax
import numpy as np

from bert_jax.config import MeshConfig
from bert_jax.console import Console
from bert_jax.data.corpus import Split
from bert_jax.data.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.inference.load import restore_params
from bert_jax.objectives import make_objective
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.runs.corpus_data import corpus_data
from bert_jax.training import workdir
from bert_jax.training.evaluation import make_evaluate
from bert_jax.training.schedules import plan_phases


def evaluate(directory: pathlib.Path, step: int | None, console: Console) -> dict[str, float | int]:
    """Return the held-out metrics of a checkpoint, with the unigram entropy to compare them with (nats per token).

    Args:
        directory: work directory of `pretrain`.
        step: of the checkpoint; None: the newest undamaged one.
        console: for progress.

    Raises:
        UserError: no run or checkpoint there, another corpus than the run was trained on, or nothing held out.
    """
    config, step, params = restore_params(directory, step, console)
    _, fingerprint = workdir.read_run(directory)
    assert config.data.corpus
    corpus = open_mixture(config.data.corpus)
    if corpus.fingerprint != fingerprint["corpus"]:
        raise UserError(f"{config.data.corpus} is not the corpus that {directory} was trained on")
    mesh = sharding.make_mesh(MeshConfig())  # of the devices present, not of those that trained
    sharding.check_batch(mesh, config.evaluate.batch_size, name="config.evaluate.batch_size")
    data = corpus_data(config, corpus, sharding.batch_blocks(mesh))
    if data.heldout is None:
        raise UserError(
            f"{config.data.corpus} has too few held-out documents to evaluate on; "
            "prepare it again with a higher --heldout_fraction, or from more documents"
        )
    objective, phases = make_objective(config), plan_phases(config.train)
    phase = next((phase for phase in phases if step <= phase.end), phases[-1])
    with jax.set_mesh(mesh):
        params = jax.device_put(params, sharding.shardings(objective.logical_axes, mesh))
        found = make_evaluate(objective, mesh)(params, (), _counted(data.heldout(phase), console))
    held = corpus.split("heldout")
    entropy = unigram_entropy(held, corpus.vocab_size)
    return (
        {"step": step, "seq_len": phase.seq_len, "documents": held.num_documents} | found | {"unigram_entropy": entropy}
    )


def _counted(batches: Iterable[Batch], console: Console) -> Iterator[Batch]:
    """The batches, with a progress line."""
    for number, batch in enumerate(batches, 1):
        console.progress("evaluating", number, unit="batches")
        yield batch


def unigram_entropy(split: Split, vocab_size: int) -> float:
    """Return the entropy of the split's token frequencies in nats: what a model that reads no context cannot beat."""
    counts = np.zeros(vocab_size, np.int64)
    for first in range(0, split.num_records, 1024):
        tokens, *_ = split.read(np.arange(first, min(first + 1024, split.num_records)))
        counts += np.bincount(tokens, minlength=vocab_size)
    shares = counts[counts > 0] / counts.sum()
    return -math.fsum(shares * np.log(shares))
