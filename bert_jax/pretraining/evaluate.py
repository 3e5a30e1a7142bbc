"""Held-out metrics of a pretraining run: `bert-jax evaluate`, and the evaluations during a run."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator

import jax

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.checkpoints.load_model import restore_run
from bert_jax.config import EncoderConfig, MeshConfig, check_run_table_rows, section_of_phase
from bert_jax.console import Console
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.corpus.statistics import token_counts, unigram_loss
from bert_jax.corpus.store import Split
from bert_jax.errors import UserError, with_message
from bert_jax.models import Head
from bert_jax.objectives import OBJECTIVES, make_objective, predicts_masks
from bert_jax.objectives.base import Batch, Params
from bert_jax.parallel import sharding
from bert_jax.pretraining.data import SequenceRules, heldout_batches, passes_per_source, sequence_rules
from bert_jax.pretraining.teacher import Teacher, read_teacher
from bert_jax.scoring.score import make_pairs_accuracy
from bert_jax.tokenizer import Tokenizer
from bert_jax.training import workdir
from bert_jax.training.evaluation import Evaluate, evaluation_batch_size, make_evaluate
from bert_jax.training.schedules import Phase, phase_after_step, plan_phases


def with_pairs_accuracy(
    evaluate: Evaluate,
    mesh: jax.sharding.Mesh,
    model: EncoderConfig,
    dtype: str,
    heads: tuple[Head, ...],
    pairs: str,
    num_pairs: int,
    tokenizer: Tokenizer,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluate:
    """Return `evaluate` with the additional metric `pairs_accuracy`, the accuracy on minimal pairs.

    Args:
        evaluate: evaluation function of the run, which returns means of the objective's metrics.
        mesh: mesh of the run.
        model: architecture of the run.
        dtype: dtype of matrix products.
        heads: heads that the run trains.
        pairs, num_pairs: values of these fields of `config.evaluate`.
        tokenizer: tokenizer of the corpus.
        should_stop: called after each batch of pairs; if it returns True, the metric `pairs_accuracy` is left out.

    Raises:
        UserError: `config.evaluate.pairs` has an unknown format, or the objective trains no masked-token head.
    """
    if Head("masked_token") not in heads:
        raise UserError("config.evaluate.pairs: this objective trains no masked-token head; set it to None")
    accuracy = make_pairs_accuracy(model, dtype, mesh, tokenizer, pairs, num_pairs, should_stop)

    def evaluate_with_pairs(params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        means, pairs_mean = evaluate(params, frozen, batches), accuracy(params)
        return means if pairs_mean is None else means | {"pairs_accuracy": pairs_mean}

    return evaluate_with_pairs


def evaluate_checkpoint(
    directory: pathlib.Path, step: int | None, console: Console, other_corpus: str | None = None
) -> dict[str, float | int]:
    """Return the held-out metrics of a checkpoint, and the unigram loss (nats) for comparison.

    Args:
        directory: work directory of `pretrain`.
        step: step of the checkpoint; None: the newest undamaged checkpoint.
        console: console that prints progress.
        other_corpus: a directory or URL of a corpus to evaluate on, by its held-out documents, or by all documents if
            none are held out; None: the corpus that the run evaluates on.

    Raises:
        UserError: `directory` has no run or no checkpoint; the corpus or the teacher has changed since the training; no
            documents are held out; or the corpus was prepared with a different tokenizer.
    """
    # Open the inputs: config and parameters of the run, its corpus or `other_corpus`, its tokenizer, its teacher.
    recorded, fingerprint = workdir.read_run(directory)
    check_run_table_rows(recorded, directory)
    config, step, params = restore_run(directory, step, console)
    assert config.data.corpus
    other_corpus = config.evaluate.corpus if other_corpus is None else other_corpus
    corpus_name, data = config.data.corpus if other_corpus is None else other_corpus, config.data
    corpus = open_mixture(corpus_name, progress=console.progress)
    if other_corpus is None and corpus.fingerprint != fingerprint["corpus"]:
        raise UserError(f"{config.data.corpus} is not the corpus that {directory} was trained on")
    check_corpus_tokenizer(corpus_name, corpus, config.data.corpus, fingerprint["tokenizer"])
    if other_corpus is not None:  # the weights of the run's corpora do not apply to another corpus
        data = dataclasses.replace(data, weights=None, smoothing=1.0, max_epochs=None, snapshots=None)
    tokenizer, phases, row = corpus.tokenizer(), plan_phases(config.train), OBJECTIVES[config.objective]
    max_seq_len, teacher_path = max(phase.seq_len for phase in phases), config.distillation.teacher

    # Make the data: held-out batches on the devices present, which may differ from the devices of the training.
    mesh = sharding.make_mesh(MeshConfig())
    min_documents = SENTENCE_PAIRS[data.sentence_pairs].min_documents
    split = (
        corpus.split("heldout", min_documents)
        if other_corpus is None
        else heldout_or_all_documents(corpus, min_documents)
    )
    if split.num_documents < min_documents:
        raise UserError(
            f"{corpus_name} has too few held-out documents to evaluate on; "
            "prepare it again with a higher --heldout_fraction, or from more documents"
        )
    rules = sequence_rules(dataclasses.replace(config, data=data), tokenizer)
    batch_size = config.evaluate.batch_size or evaluation_batch_size(max_seq_len, mesh)
    heldout = heldout_batches(
        split,
        rules,
        sharding.batch_blocks(mesh),
        num_sequences=config.evaluate.num_sequences,
        batch_size=-(-batch_size // mesh.size) * mesh.size,  # filler rows have weight 0
        eval_uses_training_masks=row.eval_uses_training_masks,
    )
    phase = phase_after_step(phases, step)

    # Make the objective, with its teacher, and its evaluation.
    teacher = Teacher()
    try:
        if row.has_teacher:
            teacher = read_teacher(teacher_path, tokenizer, max_seq_len, config.data.corpus, console)
    except UserError as error:
        moved = f"resume with `bert-jax pretrain --workdir {directory}` and the new path, which the run then records"
        raise with_message(error, f"{error}; if it was moved, {moved}") from None
    if teacher.fingerprint.get("teacher") != fingerprint.get("teacher"):
        raise UserError(f"{teacher_path} is not the model that {directory} learned from")
    objective = make_objective(config, teacher.config)
    settings = config.train.phases[phase.index]
    measure = make_evaluate(objective.evaluated_phases.get(phase.index, objective), mesh)
    if (pairs := config.evaluate.pairs) is not None and predicts_masks(settings):
        heads, dtype = row.heads(data.sentence_pairs), config.compute.dtype
        model = section_of_phase(config.model, settings)
        measure = with_pairs_accuracy(measure, mesh, model, dtype, heads, pairs, config.evaluate.num_pairs, tokenizer)

    # Evaluate.
    with jax.set_mesh(mesh):
        params = jax.device_put(params, sharding.named_shardings(objective.logical_axes, mesh))
        frozen = jax.device_put(teacher.params, sharding.named_shardings(objective.frozen_axes, mesh))
        batches = _with_progress(heldout.batches(phase), heldout.num_batches(phase), console)
        metrics = measure(params, frozen, batches)
    about = {"step": step, "seq_len": phase.seq_len, "documents": split.num_documents}
    rules = sequence_rules(config, tokenizer)
    return about | metrics | _unigram_loss_of_run(config.data.corpus, rules, phases, split, console)


def evaluation_documents(
    path: str, corpus: Mixture, trained_on: str, tokenizer_sha256: str, min_documents: int
) -> Split:
    """Return the documents of the evaluation corpus, which is opened from `config.evaluate.corpus=path`.

    Raise UserError if the tokenizer of this corpus differs from the tokenizer of `trained_on`, the corpus of the run,
    or if this corpus has fewer than `min_documents` documents.
    """
    check_corpus_tokenizer(path, corpus, trained_on, tokenizer_sha256)
    split = heldout_or_all_documents(corpus, min_documents)
    if split.num_documents < min_documents:
        raise UserError(f"config.evaluate.corpus={path}: too few documents to evaluate on; prepare more text")
    return split


def heldout_or_all_documents(corpus: Mixture, min_documents: int) -> Split:
    """Return the held-out documents of a corpus, or all documents if none are held out."""
    return corpus.split("heldout" if corpus.split("heldout").num_documents else "train", min_documents)


def check_corpus_tokenizer(path: str, corpus: Mixture, trained_on: str, tokenizer_sha256: str) -> None:
    """Raise UserError if the tokenizer of a corpus differs from the tokenizer of `trained_on`, the run's corpus."""
    if corpus.tokenizer_sha256 != tokenizer_sha256:
        raise UserError(
            f"{path}: prepared with another tokenizer than {trained_on}; prepare it again with this tokenizer"
        )


def _unigram_loss_of_run(
    corpus: str, rules: SequenceRules, phases: tuple[Phase, ...], heldout: Split, console: Console
) -> dict[str, float]:
    """Return the unigram loss on `heldout`, by the token counts of the training text; {} if the text is missing.

    Args:
        corpus: corpora of the run.
        rules: settings for the sequences of the run.
        phases: phases of the run.
        heldout: the text of the evaluation.
        console: console that prints a line if the training text is missing.
    """
    vocab_size = rules.symbols.vocabulary.size
    try:
        train = open_mixture(corpus).split("train")
    except UserError as error:
        console.say(f"no unigram loss: it needs the corpus of the run: {error}")
        return {}
    counts = token_counts(train, vocab_size, passes_per_source(train, rules, phases))
    return {"unigram_loss": unigram_loss(counts, token_counts(heldout, vocab_size))}


def _with_progress(batches: Iterable[Batch], total: int, console: Console) -> Iterator[Batch]:
    """Yield the batches, and print the progress on the console."""
    for index, batch in enumerate(batches, 1):
        console.progress("evaluating", index, total, "batches")
        yield batch
