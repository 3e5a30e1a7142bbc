"""Held-out data for a compressed model: the dev set of its task, or masked tokens of held-out documents."""

import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batches.iteration import batches
from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.checkpoints.load_model import Weights, read_task_file, task_file_path
from bert_jax.config import ComputeConfig, DataConfig, EncoderConfig, TaskConfig, section_from_values
from bert_jax.console import Console
from bert_jax.convert.prune import Loss
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.finetuning.task_data import TaskSplit, read_split, score_names
from bert_jax.models import Head, Params, make_model
from bert_jax.objectives.base import Batch, Rngs
from bert_jax.objectives.losses import cross_entropy
from bert_jax.objectives.tasks import make_task_objective
from bert_jax.parallel.sharding import SINGLE_HOST
from bert_jax.scoring.ranking import MEASURES
from bert_jax.tasks.batching import Feed, collate_batches, doubling_buckets
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.prediction_batches import plan_prediction_batches
from bert_jax.tasks.reading.data_sets import PREFIX
from bert_jax.tasks.reading.examples import existing_sets
from bert_jax.tasks.reading.files import find_task_files
from bert_jax.tasks.scoring import score_predictions
from bert_jax.tasks.table import resolve_task
from bert_jax.tokenizer import load_tokenizer

BATCH, SEQ_LEN, SEQUENCES = 32, 128, 512
DRAWS = 200  # number of bootstrap draws
MASKED = "mlm_logits"

Runner = Callable[[Batch], dict[str, np.ndarray]]  # a batch -> the outputs of the head
Outputs = Sequence[dict[str, np.ndarray]]  # the outputs for each batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalSet:
    """Held-out data, and the score of models that have equal inputs and outputs on these data."""

    metric: str  # name of the score
    sign: int  # 1: a higher score is better; -1: a lower score
    num_units: int  # examples or sequences that are scored
    outputs: tuple[str, ...]  # names of the head's outputs that are scored
    batches: Sequence[Batch]  # batches on which models are scored
    scorer: Callable[[Outputs], Callable[[np.ndarray], float]]  # outputs -> (indices of units -> score of these units)
    training_examples: Callable[[], Batch]  # returns the examples on which the importance of parts is measured
    loss: Callable[[EncoderConfig], Loss]


class ScoreComparison(NamedTuple):
    """Scores before and after, the lost score, and half the width of the lost score's 95 % confidence interval."""

    before: float
    after: float
    lost: float
    margin: float


def compare_scores(eval_set: EvalSet, before: Runner, after: Runner) -> ScoreComparison:
    """Return the scores before and after, and the lost score with a margin of 1.96 sigma of paired bootstrap draws.

    The margin is NaN for fewer than two units. Draws without a score are left out: NoAns_f1, for example, needs a
    question without an answer.
    """
    score_before, score_after = (eval_set.scorer([run(batch) for batch in eval_set.batches]) for run in (before, after))
    rng, num_units = np.random.default_rng(0), eval_set.num_units
    draws = [rng.integers(0, num_units, num_units) for _ in range(DRAWS)]
    differences = np.array([score_after(draw) - score_before(draw) for draw in draws])
    differences = differences[np.isfinite(differences)]
    spread = np.std(differences, ddof=1) if num_units > 1 and len(differences) > 1 else np.nan
    scores = score_before(np.arange(num_units)), score_after(np.arange(num_units))
    return ScoreComparison(*scores, eval_set.sign * (scores[0] - scores[1]), 1.96 * float(spread))


def eval_set_of(weights: Weights, data: str | None, num_examples: int, console: Console) -> EvalSet:
    """Return the dev set of a fine-tuned model's task, or masked held-out sequences of a pretrained model's corpus.

    Args:
        weights: a model with the head of a task, or with a masked-token head.
        data: directory of the task's files, or the file of a task that holds out its dev set (None: the files that
            `finetune` read); or a corpus of `prepare`.
        num_examples: number of training examples or sequences on which the importance of parts is measured.
        console: console that prints defects of the data.

    Raises:
        UserError: `data` is missing, or fits no head of the model.
    """
    if task_file_path(weights).is_file():
        return task_eval_set(weights, data, num_examples, console)
    if Head("masked_token") not in weights.heads:
        raise UserError(
            f"{weights.directory}: the model was not fine-tuned by bert-jax and has no head for masked tokens"
        )
    if data is None:
        raise UserError(
            "a pretrained model is measured on a corpus; give --data CORPUS, prepared with the model's tokenizer"
        )
    return corpus_eval_set(weights, pathlib.Path(data), num_examples)


class DevSetAndMetric(NamedTuple):
    """The name of a dev set, and the name of a metric without the suffix of this set."""

    dev_set: str
    metric: str


def dev_set_and_metric(dev_sets: Sequence[str], metric: str) -> DevSetAndMetric:
    """Return the dev set that a metric such as accuracy_mismatched names, else the first dev set."""
    for name in dev_sets:
        if (suffix := name.removeprefix("dev")) and metric.endswith(suffix):
            return DevSetAndMetric(name, metric.removesuffix(suffix))
    return DevSetAndMetric(dev_sets[0], metric)


def task_eval_set(weights: Weights, data: str | None, num_examples: int, console: Console) -> EvalSet:
    """Return the dev set of the task that a model was fine-tuned on, with the metric of the training.

    If the task has two dev sets, the name of the metric chooses the set. If the metric is a score of retrieval, the
    usual metric replaces this score.
    """
    path = task_file_path(weights)
    described = read_task_file(path)
    settings = section_from_values(TaskConfig, described["config"], str(path))
    settings = _settings_with_data(settings, data)
    task = resolve_task(settings, weights.labels or described.get("labels", ()))
    kind, tokenizer = KINDS[task.kind], load_tokenizer(weights.directory)
    if kind.head not in {head.name for head in weights.heads}:
        raise UserError(f"{path}: a model of {task.kind} has no head to measure; compress the pretrained model instead")

    def read_split_of_task(split: str) -> TaskSplit:
        return read_split(task, settings, (*existing_sets(task, settings, split), split)[0], tokenizer, console)

    def training_examples() -> Batch:
        features = read_split_of_task("train").features
        sample = [features[n] for n in np.random.default_rng(0).permutation(len(features))[:num_examples]]
        max_length = max(example.length for example in sample)
        return _indexed_batches(weights, sample, len(sample), (max_length,), tokenizer.pad_id)[0][1]

    if task.best in MEASURES:
        task = dataclasses.replace(task, best=resolve_task(dataclasses.replace(settings, metric=None)).best)
    chosen = dev_set_and_metric((*existing_sets(task, settings, "dev"), "dev"), task.best)
    dev = read_split(task, settings, chosen.dev_set, tokenizer, console)
    if task.best not in score_names(task, (dev,)):
        raise UserError(f"{task.best}: not defined on the examples of {chosen.dev_set}; give other examples as --data")
    buckets = doubling_buckets(max(example.length for example in dev.features))
    indexed_batches = _indexed_batches(weights, dev.features, BATCH, buckets, tokenizer.pad_id)
    threshold = described.get("null_threshold") if task.impossible else described.get("thresholds")

    def example_scorer(outputs: Outputs) -> Callable[[np.ndarray], float]:
        by_input: list[dict[str, np.ndarray]] = [{} for _ in dev.features]
        for (indices, _), arrays in zip(indexed_batches, outputs, strict=True):
            for row, index in enumerate(indices):
                by_input[index] = {name: x[row] for name, x in arrays.items()}
        values = kind.predict(dev.examples, dev.features, by_input, settings, threshold).values

        def score(draw: np.ndarray) -> float:
            scores = score_predictions(task, [dev.examples[n] for n in draw], [values[n] for n in draw])
            return scores.get(chosen.metric, math.nan)

        return score

    def make_example_loss(config: EncoderConfig) -> Loss:
        objective = make_task_objective(make_model(config, ComputeConfig(), weights.heads), task.kind, False, settings)

        def example_loss(params: Params, example: Batch) -> jax.Array:
            rngs = Rngs(None, jax.random.key(0))
            return objective.loss(params, (), example, rngs, objective.normalizers(example))[0]

        return example_loss

    return EvalSet(
        metric=task.best,
        sign=1,
        num_units=len(dev.examples),
        outputs=tuple(output for output, _ in kind.loss.targets),
        batches=[batch for _, batch in indexed_batches],
        scorer=example_scorer,
        training_examples=training_examples,
        loss=make_example_loss,
    )


def _settings_with_data(settings: TaskConfig, data: str | None) -> TaskConfig:
    """Return the settings of a trained task, with its files in `data`.

    Args:
        settings: settings of the training.
        data: directory with the files of the training, under their names; or the training file, if the dev set is held
            out of it; or a data set of TFDS. None: the files are at the paths of the training.

    Raises:
        UserError: `data` or the file of the dev set is absent, or a single file cannot replace the files of the task.
    """
    holds_out_dev = settings.dev_fraction is not None
    if (data or settings.data or "").startswith(PREFIX):
        return dataclasses.replace(settings, data=data or settings.data)
    if data is None:
        if settings.data and not os.path.isdir(settings.data):
            raise UserError(f"{settings.data}: the data of the task is not here; give its directory as --data")
    elif os.path.isfile(data):
        if not (settings.train and holds_out_dev):
            raise UserError(f"--data {data}: a file, but the task has several; give the directory of the files")
        settings = dataclasses.replace(settings, data=None, train=os.path.abspath(data))
    elif os.path.isdir(data):
        settings = _settings_with_directory(settings, data)
    else:
        raise UserError(f"--data {data}: no such file or directory")
    path_of_dev = settings.train if holds_out_dev else settings.dev
    if path_of_dev and not find_task_files(settings.data or "", "", (path_of_dev,)):
        raise UserError(
            f"{os.path.join(settings.data or '', path_of_dev)}: no such file; give the "
            f"{'file' if holds_out_dev else 'directory of the files'} of the task as --data"
        )
    return settings


def _settings_with_directory(settings: TaskConfig, directory: str) -> TaskConfig:
    """Return the settings with the training files and the dev file in `directory`; refuse files with equal names."""
    has_several = settings.kind is not None and KINDS[settings.kind].loss.whole_batch
    trained_on = [name.strip() for name in (settings.train or "").split(",")] if has_several else [settings.train or ""]
    names: dict[str, str] = {}  # path in training -> path below the directory
    for path in (*trained_on, settings.dev or ""):
        is_below = not os.path.isabs(path) and find_task_files(directory, "", (path,))
        names[path] = path if is_below else os.path.basename(path)
    if len(set(names.values())) < len(names):
        raise UserError(f"--data {directory}: several files of the task had the same name in different directories")
    train = ",".join(names[path] for path in trained_on)
    return dataclasses.replace(settings, data=directory, train=train or None, dev=names[settings.dev or ""] or None)


def corpus_eval_set(weights: Weights, corpus: pathlib.Path, num_examples: int) -> EvalSet:
    """Return up to 512 held-out sequences of 128 tokens, masked as in evaluation; the score is the loss in nats."""
    mixture, tokenizer = open_mixture(str(corpus)), load_tokenizer(weights.directory)
    if mixture.tokenizer_sha256 != tokenizer.sha256:
        raise UserError(
            f"{corpus}: the corpus was prepared with another tokenizer; prepare it with the tokenizer of the model"
        )
    if not mixture.split("heldout").num_documents:
        raise UserError(f"{corpus}: no held-out documents; prepare it again with a --heldout_fraction")
    data, length = DataConfig(sentence_pairs="full_sentences"), min(SEQ_LEN, weights.config.max_positions)
    symbols = special_ids_and_vocabulary(mixture.tokenizer())

    def first_batches(split: str, num_sequences: int, size: int) -> list[Batch]:
        source = make_sequences(mixture.split(split), symbols, length, 0, data, weights.config.num_token_types)
        stop = min(num_sequences, source.num_per_epoch)
        with contextlib.closing(batches(source, 0, size, num_threads=0, stop=stop)) as iterator:
            return list(iterator)

    heldout = first_batches("heldout", SEQUENCES, BATCH)
    has_masked = np.concatenate([batch["masked_weights"].sum(1) for batch in heldout]) > 0

    def sequence_scorer(outputs: Outputs) -> Callable[[np.ndarray], float]:
        pairs = [_masked_losses(arrays[MASKED], batch) for arrays, batch in zip(outputs, heldout, strict=True)]
        losses, counts = (np.concatenate(arrays)[has_masked] for arrays in zip(*pairs, strict=True))
        return lambda draw: float(losses[draw].sum() / counts[draw].sum())

    def make_example_loss(config: EncoderConfig) -> Loss:
        model = make_model(config, ComputeConfig(), weights.heads)

        def example_loss(params: Params, example: Batch) -> jax.Array:
            losses, counts = _masked_losses(model.apply(params, example, None)[MASKED], example)
            return losses.sum() / jnp.maximum(counts.sum(), 1.0)

        return example_loss

    return EvalSet(
        metric="masked-token loss",
        sign=-1,
        num_units=int(has_masked.sum()),
        outputs=(MASKED,),
        batches=heldout,
        scorer=sequence_scorer,
        training_examples=lambda: first_batches("train", num_examples, num_examples)[0],
        loss=make_example_loss,
    )


class _IndexedBatch(NamedTuple):
    """A batch, and the indices of its inputs."""

    indices: np.ndarray
    batch: Batch


def _indexed_batches(
    weights: Weights, features: Sequence[Features], size: int, buckets: tuple[int, ...], pad_id: int
) -> list[_IndexedBatch]:
    """Return batches of features; each batch has the indices of its inputs."""
    feed = Feed(buckets, size, weights.config.num_token_types, pad_id)
    # Pruning needs padded sequences.
    plan = plan_prediction_batches(feed, features, None, weights.config.max_dense_length)
    batches = collate_batches(feed, features, plan, SINGLE_HOST)
    return [_IndexedBatch(part.indices, batch) for part, batch in zip(plan, batches, strict=True)]


class _LossesAndCounts(NamedTuple):
    """The sum of the losses of each sequence, and the number of its masked tokens."""

    losses: jax.Array
    num_masked: jax.Array


def _masked_losses(logits: np.ndarray | jax.Array, batch: Batch) -> _LossesAndCounts:
    """Return the sum of the losses of each sequence, and the number of its masked tokens."""
    weights = jnp.asarray(batch["masked_weights"], jnp.float32)
    flat = jnp.asarray(logits).reshape(-1, logits.shape[-1])
    losses, _ = cross_entropy(flat, jnp.asarray(batch["masked_labels"]).reshape(-1))
    return _LossesAndCounts((losses.reshape(weights.shape) * weights).sum(1), weights.sum(1))
