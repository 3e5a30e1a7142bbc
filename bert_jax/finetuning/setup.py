"""Weights, task and data of a fine-tuning run, checked against each other before anything is written."""

import dataclasses
import math
import os
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.checkpoints.load_model import Weights, read_weights
from bert_jax.checkpoints.load_model import digest as weights_digest
from bert_jax.config import EncoderConfig, FinetuneConfig, TaskConfig, check_warmup, no_effect
from bert_jax.console import Console
from bert_jax.errors import UserError, did_you_mean
from bert_jax.finetuning.task_data import Part, digest, read_part, score_names
from bert_jax.finetuning.teacher import TaskTeacher, read_task_teacher
from bert_jax.interop.huggingface.model_config import model_config_fields
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.interop.tensors import WITHOUT_PARAMETERS, class_of
from bert_jax.models import Model, draw_missing, make_model
from bert_jax.models.heads import OF_TASKS
from bert_jax.objectives.base import Objective
from bert_jax.objectives.tasks import finetuning, head
from bert_jax.tasks.batching import Feed, choose_buckets
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.reading.examples import SPLITS, existing_sets
from bert_jax.tasks.table import resolve_task
from bert_jax.tasks.task import Task
from bert_jax.tokenizer import Tokenizer, load_tokenizer
from bert_jax.training.schedules import Phase


class Setup(NamedTuple):
    """What all trainings of one call share."""

    config: FinetuneConfig
    task: Task
    start: Weights
    architecture: EncoderConfig  # of start, with the dropout of this run
    teacher: TaskTeacher | None
    tokenizer: Tokenizer
    train: Part
    dev: tuple[Part, ...]
    test: tuple[Part, ...]
    feed: Feed
    evaluation_feed: Feed
    phases: tuple[Phase, ...]
    metric: str  # the score that chooses the best

    @property
    def fingerprint(self) -> dict[str, str]:
        """What a resumed training must find again."""
        taught = {"teacher": self.teacher.digest} if self.teacher else {}
        return {
            "task": digest((self.train, *self.dev)),
            "tokenizer": self.tokenizer.sha256,
            "weights": weights_digest(self.start),
            **taught,
        }


def task_model(setup: Setup, architecture: EncoderConfig | None = None) -> Model:
    """Return the encoder with the head of the task; `architecture` is the teacher's, or by default the trained one."""
    task_head = head(setup.task.kind, len(setup.task.labels))
    return make_model(architecture or setup.architecture, setup.config.compute, (task_head,))


def task_objective(setup: Setup) -> Objective:
    """Return the loss of the task."""
    teacher = task_model(setup, setup.teacher.config) if setup.teacher else None
    settings = setup.config.task
    return finetuning(task_model(setup), setup.task.kind, setup.config.optimizer.freeze_encoder, settings, teacher)


def prepare_task(config: FinetuneConfig, console: Console) -> Setup:
    """Return weights, task and data; UserError where they do not fit each other."""
    settings = config.task
    if not config.init_from:
        raise UserError("no weights: give --config.init_from=DIR: an export, a work directory, or one of transformers")
    task = resolve_task(settings)
    if KINDS[task.kind].loss.whole_batch and (config.train.grad_accum_steps > 1 or config.train.batch_size < 2):
        raise UserError(
            f"task '{task.name}' learns from the other pairs of a batch: set config.train.batch_size to 2 or more, and "
            "config.train.grad_accum_steps=1"
        )
    task_head = head(task.kind, len(task.labels))
    rng = jax.random.key(config.seed)
    start = read_weights(config.init_from, (task_head,), rng, console)
    class_of(start.config, start.heads)  # the best model is written as one
    if KINDS[task.kind].head == "sentence_embedding":
        _check_sentences(start)
    if settings.bilstm and task_head.name not in OF_TASKS:
        raise no_effect("config.task.bilstm", f"{task.kind}, which reads the encoder alone", False)
    if config.optimizer.freeze_encoder and task_head.name in WITHOUT_PARAMETERS and not settings.bilstm:
        raise UserError(
            f"config.optimizer.freeze_encoder leaves nothing to train: {task.kind} has no weights of its own"
        )
    tokenizer = load_tokenizer(start.directory)
    _check_weights(start, tokenizer, settings)
    if settings.bilstm:
        start = _with_bilstm(start, tokenizer, rng)
    teacher = read_task_teacher(settings, task, task_head, start.config, tokenizer, console)
    parts = {split: existing_sets(task, settings, split) for split in SPLITS}
    for split in ("train", "dev"):
        if not parts[split]:
            raise UserError(
                f"task '{task.name}': no {split} set in {settings.data or '.'}; name a file in config.task.{split}"
            )
    (train,), dev, test = (
        tuple(read_part(task, settings, name, tokenizer, console) for name in names) for names in parts.values()
    )
    train = _positives(settings, train, console)
    metric = settings.metric or task.best
    known = score_names(task, dev)
    if metric not in known:
        raise UserError(f"config.task.metric={metric} is none of {', '.join(known)}{did_you_mean(metric, known)}")
    buckets = _buckets(settings, (train, *dev), test, start.config.max_positions)
    # A model without token types does not read those that another one needs.
    token_types = max(start.config.num_token_types, teacher.config.num_token_types if teacher else 0)
    feed = Feed(buckets, config.train.batch_size, token_types, tokenizer.pad_id)
    per_epoch = math.ceil(len(train.features) / feed.batch_size)
    steps = max(1, round(settings.epochs * per_epoch))
    check_warmup(config.optimizer, steps)
    config = dataclasses.replace(
        config,
        init_from=config.init_from if "://" in config.init_from else os.path.abspath(config.init_from),
        evaluate=dataclasses.replace(config.evaluate, every=config.evaluate.every or per_epoch),
        checkpoint=dataclasses.replace(config.checkpoint, every=config.checkpoint.every or per_epoch),
    )
    console.say(
        f"task {task.name}: {len(train.examples):,} examples in train, "
        + ", ".join(f"{len(part.examples):,} in {part.name}" for part in dev)
        + f"; {steps:,} steps of {feed.batch_size} sequences, of up to {', '.join(map(str, buckets))} tokens"
    )
    return Setup(
        config=config,
        task=task,
        start=start,
        architecture=_with_dropout(start.config, settings.dropout),
        teacher=teacher,
        tokenizer=tokenizer,
        train=train,
        dev=dev,
        test=test,
        feed=feed,
        evaluation_feed=feed._replace(batch_size=config.evaluate.batch_size),
        phases=(Phase(0, steps, 0, buckets[-1], feed.batch_size, config.train.grad_accum_steps),),
        metric=metric,
    )


def _positives(settings: TaskConfig, train: Part, console: Console) -> Part:
    """The set with the training pairs alone that belong together; UserError where they have no negatives.

    Kinds of tasks without negatives keep all examples.
    """
    if "positives" not in train.features[0].targets:
        return train
    kept = [one for one in train.features if one.targets["positives"]]
    pairs, left_out = len(train.features), len(train.features) - len(kept)
    why = f"their label is below config.task.positive_from={settings.positive_from:g}"
    if not kept:
        raise UserError(f"all {pairs:,} training pairs are left out: {why}; for labels of 0 and 1, set it to 1")
    if left_out:
        console.say(f"{left_out:,} of {pairs:,} training pairs are left out: {why}")
    texts = {tuple(ids.tobytes() for ids, _ in one.sequences[:2]) for one in kept}
    firsts, seconds = map(set, zip(*texts, strict=True))
    if len(texts) == len(firsts) * len(seconds) and len(kept[0].sequences) < 3:
        raise UserError(
            f"task.train has no negatives: each second text is right for each first one ({len(texts):,} distinct pairs "
            f"belong together); give more pairs, or a `negative` text with each"
        )
    examples = [train.examples[one.example] for one in kept]
    return train._replace(examples=examples, features=[one._replace(example=n) for n, one in enumerate(kept)])


def _check_sentences(start: Weights) -> None:
    """Refuse a directory of sentence-transformers whose vectors are not those that this task trains."""
    asked = start.sentences or SentenceModules()
    trained = {"pooling": "mean", "lower_case": False, "default_prompt": None}
    for name, value in trained.items():
        if getattr(asked, name) != value:
            raise UserError(
                f"{start.directory}: a directory of sentence-transformers with {name} {getattr(asked, name)!r}; only "
                "means of the tokens of the plain text are trained. Without modules.json its encoder is read alone"
            )


def learning_rates(config: FinetuneConfig) -> tuple[float, ...]:
    """Return the learning rates to try; UserError where two are the same, as a run would count twice."""
    found = config.task.learning_rates or (config.optimizer.peak_learning_rate,)
    names = [f"{rate:g}" for rate in found]
    if len(set(names)) < len(names) or min(found) < 0:
        raise UserError(f"config.task.learning_rates={found}: give each once, and none below 0")
    return found


def _with_bilstm(start: Weights, tokenizer: Tokenizer, rng: jax.Array) -> Weights:
    """The model with two recurrent layers below its heads, random unless it has them; UserError without research."""
    config = dataclasses.replace(start.config, bilstm=True)
    model_config_fields(config, tokenizer.pad_id, "config.task.bilstm")
    params = draw_missing(config, start.heads, start.params, rng)
    new = start.new + tuple(params.keys() - start.params.keys())
    return dataclasses.replace(start, config=config, params=params, new=new)


def _with_dropout(config: EncoderConfig, rate: float | None) -> EncoderConfig:
    if rate is None:
        return config
    return dataclasses.replace(config, dropout=rate, attention_dropout=rate, classifier_dropout=rate)


def _buckets(
    settings: TaskConfig, parts: tuple[Part, ...], test: tuple[Part, ...], max_positions: int
) -> tuple[int, ...]:
    """The lengths to pad to, chosen by the sequences of `parts`, so that the longest one of all sets fits."""
    lengths = np.array([one.length for part in parts for one in part.features])
    longest = max(one.length for part in (*parts, *test) for one in part.features)
    buckets = tuple(sorted(settings.buckets or ())) or choose_buckets(lengths, longest, settings.epochs)
    if buckets[0] < 1 or not longest <= buckets[-1] <= max_positions:
        raise UserError(
            f"config.task.buckets={settings.buckets}: the last must lie from {longest}, the longest sequence, to "
            f"{max_positions}, the longest that the model reads"
        )
    return buckets


def _check_weights(start: Weights, tokenizer: Tokenizer, settings: TaskConfig) -> None:
    if tokenizer.vocab_size > start.config.vocab_size:
        raise UserError(
            f"{start.directory}: its tokenizer has {tokenizer.vocab_size:,} tokens, its model "
            f"{start.config.vocab_size:,}; use the tokenizer that the model was trained with"
        )
    if settings.max_seq_len > start.config.max_positions:
        raise UserError(
            f"config.task.max_seq_len={settings.max_seq_len}, but the model reads {start.config.max_positions} tokens"
        )
