"""Weights, task and sets of a fine-tuning run, checked against each other before anything is written."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.batches.order import Order
from bert_jax.checkpoints.load_model import Weights, digest_of_config_and_params, read_weights
from bert_jax.config import (
    AdapterConfig,
    ComputeConfig,
    EncoderConfig,
    FinetuneTrainConfig,
    TaskConfig,
    no_effect_error,
)
from bert_jax.console import Console
from bert_jax.errors import UserError, did_you_mean
from bert_jax.finetuning.pairs import (
    changed_token_rules_warning,
    check_equal_texts_have_dropout,
    check_matryoshka_sizes,
    select_training_pairs,
    with_prompts_of_weights,
)
from bert_jax.finetuning.task_data import (
    TaskSplit,
    count_labels,
    is_labeled,
    read_split,
    score_names,
    splits_digest,
)
from bert_jax.finetuning.teacher import TaskTeacher, read_task_teacher
from bert_jax.finetuning.training_sets import order_of_batches, settings_of_sets
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface.model import check_token_ids, load_matching_tokenizer
from bert_jax.interop.huggingface.model_config import model_config_fields
from bert_jax.interop.huggingface.peft import make_adapter
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.interop.tensors import WITHOUT_PARAMETERS, heads_as_stored, model_class_for_heads
from bert_jax.models import Adapter, Model, draw_missing, make_model
from bert_jax.models.adapters import with_adapter
from bert_jax.models.heads import OF_PRETRAINING, OF_TASKS
from bert_jax.objectives.base import Objective
from bert_jax.objectives.frozen_encoder import with_frozen_encoder
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.scoring.ranking import MEASURES
from bert_jax.scoring.retrieval_files import Collection, collection_digest, read_collection
from bert_jax.tasks.batching import Feed, choose_buckets
from bert_jax.tasks.class_weights import SCHEMES, add_label_weights, label_weights, oversample_rare_labels
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.labels import labels_text, match_head_rows_to_labels
from bert_jax.tasks.late_interaction import check_unread_tokens, token_rules
from bert_jax.tasks.reading.examples import SPLITS, existing_sets
from bert_jax.tasks.table import resolve_task
from bert_jax.tasks.task import Task
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import Tokenizer
from bert_jax.training.schedules import Phase

MAX_NARROW_WIDTH = 256  # maximum width of an encoder for which the learning rates of the recipes are too low
MIN_NARROW_RATE = 3e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskInputs:
    """The inputs of all trainings of a run: task, weights, sets."""

    task: Task
    settings: TaskConfig  # settings of the task, with the values that follow from labels and tokenizer
    weights: Weights  # initial weights, with the head of the task
    architecture: EncoderConfig  # architecture of the weights, with the dropout of this run
    teacher: TaskTeacher | None
    tokenizer: Tokenizer
    train: tuple[TaskSplit, ...]  # one or more sets; the examples of a batch are of one set
    dev: tuple[TaskSplit, ...]
    test: tuple[TaskSplit, ...]
    metric: str  # the score that chooses the best model
    adapter: Adapter | None  # None: all weights are trained
    collection: Collection | None  # collection of config.task.retrieval

    @property
    def architectures(self) -> tuple[EncoderConfig, ...]:
        """Architectures that read each batch: the architecture of the model, and of its teacher if it has a teacher."""
        return (self.weights.config, *([self.teacher.config] if self.teacher else []))

    @property
    def fingerprint(self) -> dict[str, str]:
        """Digests of the inputs; a resumed training must have equal digests."""
        digests = {
            "task": splits_digest((*self.train, *self.dev)),
            "tokenizer": self.tokenizer.sha256,
            "weights": digest_of_config_and_params(self.weights),
        }
        digests |= {"retrieval": collection_digest(self.collection)} if self.collection else {}
        return digests | ({"teacher": self.teacher.digest} if self.teacher else {})


def read_task_inputs(
    init_from: str | None,
    settings: TaskConfig,
    train: FinetuneTrainConfig,
    freeze_encoder: bool,
    seed: int,
    console: Console,
    adapter: AdapterConfig | None = None,
) -> TaskInputs:
    """Return the weights, teacher and sets of a task; raise UserError if they contradict each other or the settings.

    Args:
        init_from: model directory to start from.
        settings: settings of the task.
        train: settings of the training, such as the batch size.
        freeze_encoder: True to train only the heads.
        seed: seed for the random initialization of missing weights.
        console: prints lines about truncated and omitted examples, and about the teacher.
        adapter: settings of an adapter; None: all weights are trained.
    """
    if not init_from:
        raise UserError(
            "no weights to start from: give --init_from MODEL, a directory or OWNER/NAME of the Hugging Face Hub"
        )
    task = resolve_task(settings)
    kind, head = KINDS[task.kind], task_head(task.kind, len(task.labels), settings)
    refuse_settings_of_other_kinds(settings, task.kind)
    if settings.oversample and settings.class_weights in SCHEMES:
        raise UserError(
            f"config.task.oversample=True and config.task.class_weights={settings.class_weights} both correct the "
            "numbers of examples of the labels; give one of them"
        )
    if kind.loss.whole_batch and train.batch_size < 2:
        raise UserError(
            f"task '{task.name}' learns from the other pairs of a batch: set config.train.batch_size to 2 or more"
        )

    # Weights and tokenizer.
    rng = jax.random.key(seed)
    # A head of pretraining cannot start from random weights.
    rng_of_head = None if heads_as_stored((head,))[0].name in OF_PRETRAINING else rng
    weights = _with_classifier_rows_by_label(read_weights(init_from, (head,), rng_of_head, console), task.labels)
    model_class_for_heads(weights.config, weights.heads)  # refuses heads with which no model can be exported
    if kind.loss.whole_batch:
        _check_sentence_modules(weights)
        check_matryoshka_sizes(settings.matryoshka_sizes, head.classes or weights.config.hidden_size)
        if VECTOR_HEADS[settings.vector_head].has_token_vectors:
            check_unread_tokens(token_rules(settings), weights.config, str(init_from))
    if settings.bilstm and head.name not in OF_TASKS:
        raise no_effect_error("config.task.bilstm", f"{task.kind}, which reads the encoder alone", False)
    if freeze_encoder and head.name in WITHOUT_PARAMETERS and not settings.bilstm:
        raise UserError(
            f"config.optimizer.freeze_encoder leaves nothing to train: {task.kind} has no weights of its own"
        )
    # Each word is encoded as a word inside a sentence, as the encoder read words in pretraining.
    tokenizer = load_matching_tokenizer(weights.directory, weights.config)
    tokenizer = dataclasses.replace(tokenizer, spaces_words=True)
    check_token_ids(tokenizer, weights.config, weights.directory)
    if settings.max_seq_len > weights.config.max_positions:
        raise UserError(
            f"config.task.max_seq_len={settings.max_seq_len}, but {weights.directory} reads "
            f"{weights.config.max_positions} tokens; set config.task.max_seq_len={weights.config.max_positions}"
        )
    settings = kind.fill_settings(settings, task.labels, tokenizer)
    if kind.loss.whole_batch and weights.sentences:
        settings = with_prompts_of_weights(settings, weights.sentences, console)
        if warning := changed_token_rules_warning(settings, weights.sentences):
            console.say(warning)
    if settings.bilstm:
        weights = _with_bilstm(weights, tokenizer, rng)
    if adapter and adapter.rank is not None:
        _check_adapter_settings(init_from, weights.adapter_directory is not None, settings, freeze_encoder)
    teacher = read_task_teacher(settings, task, head, weights.config, tokenizer, console)

    # The sets of the task.
    names = {split: existing_sets(task, settings, split) for split in SPLITS}
    for split in ("train", "dev"):
        if not names[split]:
            raise UserError(
                f"task '{task.name}': no {split} set in {settings.data or '.'}; name a file in config.task.{split}"
            )
    train_sets = _read_training_sets(task, settings, tokenizer, console)
    dev, test = (
        tuple(read_split(task, settings, name, tokenizer, console) for name in names[split])
        for split in ("dev", "test")
    )
    if not task.published:
        _warn_about_shared_texts(task.name, train_sets, (*dev, *test), console)
        if contradicting := count_contradicting_texts(task, train_sets):
            console.say(
                f"{task.name} train: warning: {contradicting:,} texts occur with different labels (as the model "
                "reads them, truncated); correct the data, or read more tokens (config.task.max_seq_len)"
            )
    collection, split_of_judgments = None, ""
    if settings.retrieval:
        split_of_judgments = settings.retrieval_split or _split_for_evaluations(pathlib.Path(settings.retrieval))
        collection = read_collection(pathlib.Path(settings.retrieval), split_of_judgments)
    # Raises the errors of test scores before training.
    score_names(task, [split for split in test if is_labeled(task, split)])
    metric, known = settings.metric or task.best, score_names(task, dev) + [*(MEASURES if collection else ())]
    if metric not in known:
        raise UserError(f"config.task.metric={metric} is none of {', '.join(known)}{did_you_mean(metric, known)}")
    if collection:
        chooses = split_of_judgments == "test" and metric in MEASURES
        console.say(
            f"each evaluation searches {settings.retrieval}, with the judgments of its split '{split_of_judgments}'"
            + ("; warning: test data choose the best model; to avoid this, add qrels/dev.tsv" if chooses else "")
        )
    dropouts = ("dropout", "attention_dropout", "classifier_dropout") if settings.dropout is not None else ()
    architecture = dataclasses.replace(weights.config, **dict.fromkeys(dropouts, settings.dropout))
    if kind.loss.whole_batch:
        for train_set in train_sets:
            check_equal_texts_have_dropout(train_set, architecture)
    return TaskInputs(
        task=task,
        settings=settings,
        weights=weights,
        architecture=architecture,
        teacher=teacher,
        tokenizer=tokenizer,
        train=tuple(
            _with_balanced_labels(task, settings, select_training_pairs(settings, split, console), console)
            for split in train_sets
        ),
        dev=dev,
        test=test,
        metric=metric,
        adapter=make_adapter(weights.config, adapter or AdapterConfig()),
        collection=collection,
    )


def _read_training_sets(
    task: Task, settings: TaskConfig, tokenizer: Tokenizer, console: Console
) -> tuple[TaskSplit, ...]:
    """Return the training sets; if there are several, name each by its file, and print a line for each file."""
    of_sets = settings_of_sets(settings, KINDS[task.kind])
    if len(of_sets) == 1:
        return (read_split(task, of_sets[0], "train", tokenizer, console),)
    splits = []
    for of_set in of_sets:
        assert of_set.train
        console.say(f"{task.name} train: {of_set.train}")
        splits.append(read_split(task, of_set, "train", tokenizer, console)._replace(name=of_set.train))
    return tuple(splits)


def _split_for_evaluations(directory: pathlib.Path) -> str:
    """Return the split of a collection whose judgments evaluations read: dev if it has judgments, else test."""
    paths = [directory / "qrels" / "dev.tsv", *(directory / "qrels").glob("dev-*.parquet")]
    return "dev" if any(path.is_file() for path in paths) else "test"


def task_model(inputs: TaskInputs, compute: ComputeConfig) -> Model:
    """Return the encoder with the task's head, and with the adapter of the run."""
    model = make_model(inputs.architecture, compute, inputs.weights.heads)
    return with_adapter(model, inputs.adapter) if inputs.adapter else model


def objective_of_task(
    inputs: TaskInputs, settings: TaskConfig, compute: ComputeConfig, freeze_encoder: bool, num_steps: int
) -> Objective:
    """Return the loss of the task for the encoder with the task's head; with an adapter, the encoder is frozen.

    `num_steps` is the number of steps of the training.
    """
    teacher = None
    if inputs.teacher:
        teacher = make_model(inputs.teacher.config, compute, inputs.weights.heads)
    objective = make_task_objective(
        task_model(inputs, compute), inputs.task.kind, freeze_encoder, settings, teacher, num_steps
    )
    return with_frozen_encoder(objective, inputs.architecture.num_layers) if inputs.adapter else objective


def describe_adapter(inputs: TaskInputs, objective: Objective) -> str:
    """Return a line of text about an adapter and the number of weights that it trains."""
    assert inputs.adapter
    trained, frozen = (
        sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))
        for shapes in (objective.shapes, inputs.weights.params["encoder"])
    )
    names = ", ".join(target.name.rpartition("{layer}.")[2] for target in inputs.adapter.targets)
    without_peft = (
        "; `peft` opens only a head of a task over an exported model of transformers, so the adapter is merged into "
        "model/ alone"
    )
    return (
        f"training an adapter of rank {inputs.adapter.rank} beside {names}, and the head: {trained:,} of "
        f"{trained + frozen:,} weights{'' if peft_can_open(inputs.weights) else without_peft}"
    )


def peft_can_open(weights: Weights) -> bool:
    """Return whether `peft` can open an adapter of the weights, which need a config.json and the head of a task."""
    return (
        (weights.directory / "config.json").is_file()
        and FAMILIES[weights.config.family].in_transformers
        and heads_as_stored(weights.heads)[0].name not in OF_PRETRAINING
    )


class PlannedTraining(NamedTuple):
    """The settings of batches, the single phase of a fine-tuning, and the order of the batches of its training sets."""

    feed: Feed
    phase: Phase
    order: Order


def plan_training(inputs: TaskInputs, settings: TaskConfig, train: FinetuneTrainConfig) -> PlannedTraining:
    """Return the settings of padded batches, the single phase of a training, and the order of its batches.

    The phase has `settings.epochs` passes over the training sets.

    The lengths of the labeled sets determine the lengths that batches are padded to, so every sequence fits.
    """
    lengths = np.array([features.length for split in (*inputs.train, *inputs.dev) for features in split.features])
    longest = max(
        features.length for split in (*inputs.train, *inputs.dev, *inputs.test) for features in split.features
    )
    max_positions = inputs.weights.config.max_positions
    buckets = tuple(sorted(settings.buckets or ())) or choose_buckets(lengths, longest, settings.epochs)
    if buckets[0] < 1 or not longest <= buckets[-1] <= max_positions:
        raise UserError(
            f"config.task.buckets={settings.buckets}: the last must lie from {longest}, the longest sequence, to "
            f"{max_positions}, the longest that the model reads"
        )
    # A student without token types ignores the token types that its teacher needs.
    num_token_types = max(model.num_token_types for model in inputs.architectures)
    feed = Feed(buckets, train.batch_size, num_token_types, inputs.tokenizer.pad_id)
    sizes = [len(split.features) for split in inputs.train]
    order = order_of_batches(sizes, train.batch_size, settings.train_weights)
    phase = Phase(
        end=max(1, round(settings.epochs * order.num_per_epoch)),
        seq_len=buckets[-1],
        batch_size=train.batch_size,
        grad_accum_steps=train.grad_accum_steps,
    )
    return PlannedTraining(feed, phase, order)


def small_encoder_warning(architecture: EncoderConfig, rates: Sequence[float]) -> str:
    """Return a warning if the encoder is narrow and each learning rate suits a BERT-base, otherwise an empty text."""
    if architecture.hidden_size > MAX_NARROW_WIDTH or max(rates) >= MIN_NARROW_RATE:
        return ""
    return (
        f"warning: a learning rate of {max(rates):g} is for encoders of the size of BERT-base; an encoder of width "
        f"{architecture.hidden_size} needs more: try --config.optimizer.peak_learning_rate=1e-3"
    )


def learning_rates_to_try(rates: tuple[float, ...] | None, peak_learning_rate: float) -> tuple[float, ...]:
    """Return the learning rates to try; raise UserError for equal rates, since a training would be counted twice."""
    rates = rates or (peak_learning_rate,)
    names = [f"{rate:g}" for rate in rates]
    if len(set(names)) < len(names) or min(rates) < 0:
        raise UserError(f"config.task.learning_rates={rates}: give each once, and none below 0")
    return rates


def _with_balanced_labels(task: Task, settings: TaskConfig, train: TaskSplit, console: Console) -> TaskSplit:
    """Return the training set with class weights and repeated examples of rare labels, if the settings ask for this."""
    kind, features = KINDS[task.kind], train.features
    if settings.oversample:
        features = oversample_rare_labels(kind, train.examples, features)
        console.say(f"{task.name} train: {len(train.features):,} inputs become {len(features):,} by oversampling")
    if settings.class_weights:
        counts = count_labels(kind, train.examples)
        exclusive = not kind.problem
        total = counts.total() if exclusive else len(train.examples)
        weights = label_weights(settings.class_weights, task.labels, counts, total, exclusive)
        shown = labels_text([f"'{name}' {weight:.3g}" for name, weight in zip(task.labels, weights, strict=True)])
        console.say(f"{task.name} train: weights of the labels in the loss: {shown}")
        features = add_label_weights(kind, features, weights)
    return train._replace(features=features)


def refuse_settings_of_other_kinds(settings: TaskConfig, kind: str) -> None:
    """Raise UserError for a setting of the user that only other kinds of tasks read."""
    fields = {field.name: field.default for field in dataclasses.fields(TaskConfig)}
    for name in sorted({name for other in KINDS.values() for name in other.settings} - {*KINDS[kind].settings}):
        if getattr(settings, name) != fields[name]:
            raise no_effect_error(f"config.task.{name}", f"config.task.kind={kind}", fields[name])


def _warn_about_shared_texts(
    task: str, train_sets: Sequence[TaskSplit], other_sets: Sequence[TaskSplit], console: Console
) -> None:
    """Print how many inputs of the dev and test sets are also in a training set."""

    trained = {key for split in train_sets for key in _token_bytes_of_inputs(split)}
    for split in other_sets:
        if shared := sum(key in trained for key in _token_bytes_of_inputs(split)):
            console.say(
                f"{task} {split.name}: warning: {shared:,} of {len(split.features):,} texts are also in the training "
                "set (as the model reads them, truncated), so that their scores say little about new texts"
            )


def count_contradicting_texts(task: Task, splits: Sequence[TaskSplit]) -> int:
    """Return the number of texts that occur with different labels, or with different sets of labels."""
    kind, labels = KINDS[task.kind], dict[bytes, set[bytes]]()
    for split in splits if task.labels and not kind.reads_words else ():
        for key, features in zip(_token_bytes_of_inputs(split), split.features, strict=True):
            label = np.asarray(split.examples[features.example][kind.label])
            labels.setdefault(key, set()).add(label.tobytes())
    return sum(len(of_text) > 1 for of_text in labels.values())


def _token_bytes_of_inputs(split: TaskSplit) -> list[bytes]:
    """Return the token ids of each input, as bytes."""
    return [b"|".join(ids.tobytes() for ids, _ in features.sequences) for features in split.features]


def _check_adapter_settings(init_from: str, is_adapter: bool, settings: TaskConfig, freeze_encoder: bool) -> None:
    """Raise UserError for settings that have no effect with an adapter, and for weights that are an adapter."""
    if freeze_encoder:
        raise no_effect_error(
            "config.optimizer.freeze_encoder", "config.adapter.rank, which freezes the encoder", False
        )
    if settings.random_weights:
        raise UserError("config.adapter.rank with config.task.random_weights: an adapter changes trained weights")
    if is_adapter:
        raise UserError(
            f"config.init_from={init_from} is an adapter, and `peft` opens no adapter of an adapter; merge it with "
            "`bert-jax export`, and start from the output"
        )


def _with_classifier_rows_by_label(weights: Weights, labels: tuple[str, ...]) -> Weights:
    """Return the weights with the rows of a trained classifier in the order of `labels`, matched by name.

    If the labels of the trained head have no names, the rows keep their order.
    """
    if not labels or not weights.labels:
        return weights
    rows = np.array(match_head_rows_to_labels(labels, weights.labels))
    axes = make_model(weights.config, ComputeConfig(), weights.heads).logical_axes

    def with_rows_in_label_order(x: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
        return np.take(x, rows, names.index("classes")) if "classes" in names else x

    params = {part: jax.tree.map(with_rows_in_label_order, tree, axes[part]) for part, tree in weights.params.items()}
    return dataclasses.replace(weights, params=params, labels=tuple(weights.labels[row] for row in rows))


def describe_continued_head(labels: tuple[str, ...], weights: Weights) -> str:
    """Return a text that pairs each label of the task with its row of the trained head; "" for a new head."""
    if (
        not labels
        or not weights.heads[0].classes
        or any(path.startswith(weights.heads[0].name) for path in weights.new)
    ):
        return ""
    if not weights.labels:
        return "the labels of the trained head have no names; label 0 of the task continues its label 0, and so on"
    pairs = [f"{old} -> {new}" for old, new in zip(weights.labels, labels, strict=True)]
    equal = sum(old.casefold() == new.casefold() for old, new in zip(weights.labels, labels, strict=True))
    by = "by name" if equal == len(labels) else f"{equal} of {len(labels)} by name, the others in order"
    return f"the trained head continues, label by label ({by}): {labels_text(pairs)}"


def _check_sentence_modules(weights: Weights) -> None:
    """Raise UserError for a directory of sentence-transformers that this task cannot train."""
    present = weights.sentences or SentenceModules()
    trained = {"pooling": "mean", "lower_case": False, "default_prompt": None}
    for name, value in trained.items():
        if getattr(present, name) != value:
            raise UserError(
                f"{weights.directory}: a directory of sentence-transformers with {name} {getattr(present, name)!r}; "
                "only means of the tokens of the plain text are trained. Without modules.json its encoder is read alone"
            )


def _with_bilstm(weights: Weights, tokenizer: Tokenizer, rng: jax.Array) -> Weights:
    """Return the weights with a BiLSTM below the heads; a BiLSTM that the weights lack is initialized randomly.

    Raises UserError if the architecture cannot be written with a BiLSTM.
    """
    config = dataclasses.replace(weights.config, bilstm=True)
    model_config_fields(config, tokenizer.pad_id, "config.task.bilstm")
    params = draw_missing(config, weights.heads, weights.params, rng)
    new = weights.new + tuple(params.keys() - weights.params.keys())
    return dataclasses.replace(weights, config=config, params=params, new=new)
