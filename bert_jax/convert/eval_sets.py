"""What a compressed model is measured on: the dev set of its task, or masked tokens of held-out documents."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import strict_json
from bert_jax.batches.iteration import batches
from bert_jax.batches.pipeline import make_sequences, symbols_of
from bert_jax.checkpoints.load_model import Weights
from bert_jax.config import ComputeConfig, DataConfig, EncoderConfig, TaskConfig, from_values
from bert_jax.console import Console
from bert_jax.convert.prune import Loss
from bert_jax.convert.runners import Runner
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.finetuning.task_data import TaskSplit, read_split
from bert_jax.interop.directory import TASK_FILE
from bert_jax.models import Head, Params, make_model
from bert_jax.objectives.base import Batch, Rngs
from bert_jax.objectives.losses import cross_entropy
from bert_jax.objectives.tasks import make_task_objective
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.tasks.batching import Feed, collate_batches, fixed_buckets, plan_evaluation
from bert_jax.tasks.custom import NAME
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.reading.examples import existing_sets
from bert_jax.tasks.scoring import score
from bert_jax.tasks.table import resolve_task
from bert_jax.tokenizer import load_tokenizer

BATCH, SEQ_LEN, SEQUENCES = 32, 128, 512
DRAWS = 200  # of the bootstrap
MASKED = "mlm_logits"
HERE = BatchBlocks(blocks=(0,), num_blocks=1)


class Yardstick(NamedTuple):
    """A measure of models with the same inputs and outputs."""

    metric: str  # name of the score
    sign: int  # 1: higher is better; -1: lower is
    units: int  # how many examples or sequences are scored
    outputs: tuple[str, ...]  # of the head
    batches: Sequence[Batch]  # to score
    # The outputs of all batches -> a function: numbers of units, with repetitions -> their score.
    scorer: Callable[[Sequence[dict[str, np.ndarray]]], Callable[[np.ndarray], float]]
    examples: Callable[[], Batch]  # from the training set, to weigh parts by
    loss: Callable[[EncoderConfig], Loss]


class Lost(NamedTuple):
    """Two scores and by how much the second is worse, with half the width of its 95 % confidence interval."""

    before: float
    after: float
    lost: float
    margin: float


def compare(yardstick: Yardstick, before: Runner, after: Runner) -> Lost:
    """Return what a model lost: the interval is 1.96 standard deviations over paired bootstrap draws of the units."""
    first, second = (yardstick.scorer([run(batch) for batch in yardstick.batches]) for run in (before, after))
    every, rng = np.arange(yardstick.units), np.random.default_rng(0)
    draws = [rng.integers(0, yardstick.units, yardstick.units) for _ in range(DRAWS)]
    spread = np.std([second(drawn) - first(drawn) for drawn in draws], ddof=1)
    scores = first(every), second(every)
    return Lost(*scores, yardstick.sign * (scores[0] - scores[1]), 1.96 * float(spread))


def yardstick_of(found: Weights, data: str | None, count: int, console: Console) -> Yardstick:
    """Return the dev set of a fine-tuned model's task, or masked tokens of a pretrained model's corpus.

    Args:
        found: a model with the head of a task, or of masked tokens.
        data: directory of the task's files (None: where `finetune` read them), or a corpus of `prepare`.
        count: training examples or sequences to weigh parts by.
        console: prints what the data lacks.

    Raises:
        UserError: `data` fits no head of the model, or is missing.
    """
    if (found.directory / TASK_FILE).is_file():
        return task_yardstick(found, data, count, console)
    if Head("masked_token") not in found.heads:
        raise UserError(f"{found.directory}: neither fine-tuned by bert-jax nor with a head for masked tokens")
    if data is None:
        raise UserError("a pretrained model is measured on a corpus: --data CORPUS, prepared with its tokenizer")
    return corpus_yardstick(found, pathlib.Path(data), count)


def task_yardstick(found: Weights, data: str | None, count: int, console: Console) -> Yardstick:
    """Return the dev set of the task that a model was fine-tuned on; its first one where it has two."""
    path = found.directory / TASK_FILE
    described = strict_json.read_object(path)
    settings = from_values(TaskConfig, described["config"], str(path))
    if not data and settings.data and "tfds:" not in settings.data and not pathlib.Path(settings.data).is_dir():
        raise UserError(f"{settings.data}: the data of the task is not here; give its directory as --data")
    settings = dataclasses.replace(settings, data=data or settings.data)
    if settings.name == NAME and found.labels:
        settings = dataclasses.replace(settings, labels=",".join(found.labels))
    task = resolve_task(settings)
    kind, tokenizer = KINDS[task.kind], load_tokenizer(found.directory)
    if kind.head not in {head.name for head in found.heads}:
        raise UserError(f"{path}: a model of {task.kind} has no head to measure; compress the model it started from")

    def part(split: str) -> TaskSplit:
        return read_split(task, settings, (*existing_sets(task, settings, split), split)[0], tokenizer, console)

    def examples() -> Batch:
        features = part("train").features
        shown = [features[n] for n in np.random.default_rng(0).permutation(len(features))[:count]]
        return _batches(found, shown, len(shown), (max(one.length for one in shown),), tokenizer.pad_id)[0][1]

    dev = part("dev")
    buckets = fixed_buckets(max(one.length for one in dev.features))
    planned = _batches(found, dev.features, BATCH, buckets, tokenizer.pad_id)
    threshold = described.get("null_threshold") if task.impossible else None

    def scorer(outputs: Sequence[dict[str, np.ndarray]]) -> Callable[[np.ndarray], float]:
        by_input: list[dict[str, np.ndarray]] = [{} for _ in dev.features]
        for (indices, _), found in zip(planned, outputs, strict=True):
            for row, number in enumerate(indices):
                by_input[number] = {name: x[row] for name, x in found.items()}
        values = kind.predict(dev.examples, dev.features, by_input, settings, threshold).values
        return lambda drawn: score(task, [dev.examples[n] for n in drawn], [values[n] for n in drawn])[task.best]

    def loss(config: EncoderConfig) -> Loss:
        objective = make_task_objective(make_model(config, ComputeConfig(), found.heads), task.kind, False, settings)

        def of_one(params: Params, example: Batch) -> jax.Array:
            rngs = Rngs(None, jax.random.key(0))
            return objective.loss(params, (), example, rngs, objective.normalizers(example))[0]

        return of_one

    outputs = tuple(output for output, _ in kind.loss.targets)
    shown_batches = [batch for _, batch in planned]
    return Yardstick(task.best, 1, len(dev.examples), outputs, shown_batches, scorer, examples, loss)


def corpus_yardstick(found: Weights, corpus: pathlib.Path, count: int) -> Yardstick:
    """Return the masked-token loss, in nats, of up to 512 held-out sequences of 128 tokens, masks as in evaluation."""
    mixture, tokenizer = open_mixture(str(corpus)), load_tokenizer(found.directory)
    if mixture.tokenizer_sha256 != tokenizer.sha256:
        raise UserError(f"{corpus}: prepared with another tokenizer than the model's; prepare it with that one")
    held = mixture.split("heldout")
    if not held.num_documents:
        raise UserError(f"{corpus}: no held-out documents; prepare it again with a --heldout_fraction")
    data, length = DataConfig(sentence_pairs="full_sentences"), min(SEQ_LEN, found.config.max_positions)
    symbols = symbols_of(mixture.tokenizer())

    def drawn(split: str, stop: int, size: int) -> list[Batch]:
        source = make_sequences(mixture.split(split), symbols, length, 0, data, found.config.num_token_types)
        made = batches(source, 0, size, num_threads=0, stop=min(stop, source.num_per_epoch))
        with contextlib.closing(made):
            return list(made)

    heldout = drawn("heldout", SEQUENCES, BATCH)
    real = np.concatenate([batch["masked_weights"].sum(1) for batch in heldout]) > 0

    def scorer(outputs: Sequence[dict[str, np.ndarray]]) -> Callable[[np.ndarray], float]:
        pairs = [_masked_losses(found[MASKED], batch) for found, batch in zip(outputs, heldout, strict=True)]
        losses, weights = (np.concatenate(arrays)[real] for arrays in zip(*pairs, strict=True))
        return lambda drawn: float(losses[drawn].sum() / weights[drawn].sum())

    def loss(config: EncoderConfig) -> Loss:
        model = make_model(config, ComputeConfig(), found.heads)

        def of_one(params: Params, example: Batch) -> jax.Array:
            losses, weights = _masked_losses(model.apply(params, example, None)[MASKED], example)
            return losses.sum() / jnp.maximum(weights.sum(), 1.0)

        return of_one

    name, units = "masked-token loss", int(real.sum())
    return Yardstick(name, -1, units, (MASKED,), heldout, scorer, lambda: drawn("train", count, count)[0], loss)


def _batches(
    found: Weights, features: Sequence[Features], size: int, buckets: tuple[int, ...], pad_id: int
) -> list[tuple[np.ndarray, Batch]]:
    """The inputs as batches, with their numbers."""
    feed = Feed(buckets, size, found.config.num_token_types, pad_id)
    planned = plan_evaluation(feed, features)
    return list(zip((one.indices for one in planned), collate_batches(feed, features, planned, HERE), strict=True))


def _masked_losses(logits: np.ndarray | jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """The sum of the losses of each sequence, and the number of its masked tokens."""
    weights = jnp.asarray(batch["masked_weights"], jnp.float32)
    flat = jnp.asarray(logits).reshape(-1, logits.shape[-1])
    losses, _ = cross_entropy(flat, jnp.asarray(batch["masked_labels"]).reshape(-1))
    return (losses.reshape(weights.shape) * weights).sum(1), weights.sum(1)
