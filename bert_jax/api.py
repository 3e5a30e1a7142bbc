"""Functions of the Python API that start or open runs; they take a config in any form."""

import contextlib
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import ml_collections

from bert_jax.checkpoints.architecture import read_run_config
from bert_jax.config import (
    Config,
    FinetuneConfig,
    PretrainConfig,
    RecipeName,
    read_config,
    resolve,
    with_vocab_size,
)
from bert_jax.console import Console, notebook_table
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.finetuning import finetune as finetuning
from bert_jax.finetuning.own_labels import OwnFile, choices_text, recipe_for_own_file
from bert_jax.loaded_model import LoadedModel, load
from bert_jax.objectives.base import Batch
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.pretraining import pretrain as pretraining
from bert_jax.pretraining.budget.plan import config_for_budget
from bert_jax.pretraining.data import sequence_rules, training_batches
from bert_jax.pretraining.snapshots import ALL_PREPARED
from bert_jax.pretraining.text import DataAndPreparation, text_as_corpus
from bert_jax.reports.run.record import Training, read_runs
from bert_jax.reports.run.warnings import RunSummary, summarize_run
from bert_jax.training.metrics import read_metrics
from bert_jax.training.plan import open_session
from bert_jax.training.remote_workdir import local_copy
from bert_jax.training.schedules import Phase, plan_phases
from bert_jax.training.workdir import read_run

AnyConfig = TypeVar("AnyConfig", PretrainConfig, FinetuneConfig)
Overrides = Mapping[str, Any]  # {"train.steps": 9}


@dataclasses.dataclass(frozen=True)
class PretrainRun:
    """The result of `pretrain`; the result is false if a signal ended the run early."""

    directory: pathlib.Path  # work directory, with the checkpoints and metrics.jsonl
    finished: bool  # False: a signal ended the run, whose state is saved; the same call resumes the run
    metrics: Mapping[str, float]  # last evaluation on held-out documents, or the last training step without evaluation

    def __bool__(self) -> bool:
        return self.finished

    def load(self) -> LoadedModel:
        """Return the model of the newest checkpoint."""
        return load(self.directory)


class OpenRun(NamedTuple):
    """The state of a work directory when `open_run` read it."""

    directory: pathlib.Path
    config: Config
    trainings: tuple[Training, ...]  # with `lines` of metrics and `checkpoints`; `finetune` may have several
    summary: RunSummary  # three sentences, and warnings

    def __repr__(self) -> str:
        return f"<OpenRun {self.directory}: {self.summary.sentences[1]}>"

    def _repr_html_(self) -> str:
        """Return the run as an HTML table for notebooks."""
        checkpoints = {f"{step:,}": None for training in self.trainings for step in training.checkpoints}
        sentences = zip(("what", "how far", "health"), self.summary.sentences, strict=True)
        rows = {"directory": self.directory, **dict(sentences), "looks wrong": "; ".join(self.summary.warnings)}
        return notebook_table(rows | {"checkpoints": ", ".join(checkpoints)})


def open_run(workdir: str | os.PathLike[str]) -> OpenRun:
    """Read config, metrics and checkpoints of a work directory of `pretrain` or `finetune`; the run may be unfinished.

    Raises:
        UserError: the directory holds no run, or no metrics yet.
    """
    (run,) = read_runs([local_copy(workdir)])
    config, _ = read_run(run.path)
    return OpenRun(run.path, config, run.trainings, summarize_run(run))


def pretrain(
    config: RecipeName | ml_collections.ConfigDict | PretrainConfig,
    workdir: str | os.PathLike[str],
    overrides: Overrides | None = None,
    console: Console | None = None,
    budget: str | None = None,
) -> PretrainRun:
    """Run or resume a pretraining in `workdir`; return the run, which has its last metrics and loads the model.

    Args:
        config: a recipe by file or name, a `ConfigDict` such as `pretrain_config()`, or a frozen config.
        workdir: work directory of the run, which `load` and `export` read.
        overrides: values by key that replace values of a recipe: `{"data.corpus": "corpus/", "train.steps": 9}`.
        console: printer of progress; None: a console on stderr.
        budget: a time, a number of tokens or FLOPs, such as "30m" or "50M tokens". The budget determines model size,
            batch size, number of steps, and intervals of evaluations, checkpoints and log lines. The chosen values
            replace the values of `config`. Only intervals in `overrides` stay, because the values of a user and the
            values of a recipe look alike in a `ConfigDict` or a frozen config.

    Raises:
        UserError: the config, the corpus, the directory or the devices do not fit each other; nothing is written.
    """
    if not isinstance(budget, str | None):
        raise UserError(f"budget is {budget!r}; give a text such as '30m' or '50M tokens'")
    directory, console = local_copy(workdir), console or Console()
    frozen = as_config(PretrainConfig, config, overrides, directory)
    made = (
        contextlib.nullcontext(DataAndPreparation(frozen.data, ALL_PREPARED))
        if frozen.data.text is None
        else text_as_corpus(frozen.data, frozen.model.vocab_size, console)
    )
    with made as (data, preparation):
        frozen = dataclasses.replace(frozen, data=data)
        if budget is not None:
            frozen = config_for_budget(frozen, budget, directory, console, tuple(overrides or ()))
        with open_session(console, frozen.watchdog) as session:
            finished = pretraining.pretrain_in_directory(frozen, directory, session, preparation)
    return PretrainRun(directory, finished is not None, _last_metrics(directory))


def _last_metrics(directory: pathlib.Path) -> dict[str, float]:
    """Return the last line of metrics.jsonl with metrics of held-out documents; else the last line."""
    lines = read_metrics(directory / "metrics.jsonl")
    chosen = [line for line in lines if line["split"] == "heldout"] or lines
    return {name: value for name, value in chosen[-1].items() if name != "split"} if chosen else {}


def finetune(
    config: RecipeName | ml_collections.ConfigDict | FinetuneConfig,
    workdir: str | os.PathLike[str],
    overrides: Overrides | None = None,
    console: Console | None = None,
) -> dict[str, Any] | None:
    """Train `config.task` with each learning rate and seed; return the content of `results.json`.

    Arguments and errors are as for `pretrain`. If a signal ends the training early, return None; the same call then
    resumes the training.
    """
    frozen = as_config(FinetuneConfig, config, overrides)
    with open_session(console or Console(), frozen.watchdog) as session:
        return finetuning.finetune_in_directory(frozen, local_copy(workdir), session)


def finetune_on_file(
    data: str | os.PathLike[str],
    workdir: str | os.PathLike[str],
    *,
    text: str | Sequence[str],
    label: str | Sequence[str],
    init_from: str | os.PathLike[str],
    kind: str | None = None,
    label_separator: str | None = None,
    delimiter: str | None = None,
    dev: str | os.PathLike[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    dev_fraction: float | None = None,
    skip_unlabeled: bool = False,
    recipe: RecipeName | None = None,
    overrides: Overrides | None = None,
    console: Console | None = None,
) -> dict[str, Any] | None:
    """Train a model on a file with texts and labels, as `bert-jax finetune --data` does; return `results.json`.

    An argument that is None is chosen from the file, and printed. If a signal ends the training early, return None; the
    same call then resumes the training.

    Args:
        data: .csv, .tsv, .jsonl, .json or .parquet file with a row for each text.
        workdir: work directory of the run, which `load` and `export` read.
        text: column of the text, or both columns of a text pair.
        label: column of the label, or columns that hold 0 or 1 for a label each.
        init_from: directory of the weights to start from, or OWNER/NAME of the Hub.
        kind: kind of task, such as "regression".
        label_separator: character between the labels of a text that has several labels.
        delimiter: character between columns.
        dev: file of the dev set.
        test: file of a test set, which the best model predicts; if it has labels, the model is scored on it.
        dev_fraction: fraction of `data` that is held out as the dev set, by label.
        skip_unlabeled: leave out and count rows without a label.
        recipe: recipe by file or name; None: the recipe of the kind of task.
        overrides: values by key that replace values of the recipe: `{"task.epochs": 2.0}`.
        console: printer of progress; None: a console on stderr.

    Raises:
        UserError: the file, the config, the weights or the devices do not fit each other; nothing is written.
    """
    _check_argument_types(data=data, workdir=workdir, init_from=init_from)
    columns = {"text": [text] if isinstance(text, str) else text, "label": [label] if isinstance(label, str) else label}
    for name, value in columns.items():
        if not (isinstance(value, Sequence) and value and all(isinstance(column, str) and column for column in value)):
            raise UserError(f"{name}={value!r}: give the name of a column, or a list of names")
    optional = {"kind": kind, "label_separator": label_separator, "delimiter": delimiter, "dev": dev, "test": test}
    _check_argument_types(**{name: value for name, value in optional.items() if value is not None})
    words = [f"--config.init_from={os.fspath(init_from)}", *override_words(overrides)]
    if overrides and "init_from" in overrides:
        raise UserError("init_from is given twice, also in overrides")
    console = console or Console()
    file = OwnFile(
        path=os.fspath(data),
        text=tuple(columns["text"]),
        label=tuple(columns["label"]),
        kind=kind,
        label_separator=label_separator,
        delimiter=delimiter,
        dev=None if dev is None else os.fspath(dev),
        test=None if test is None else os.fspath(test),
        dev_fraction=dev_fraction,
        skip_unlabeled=skip_unlabeled,
    )
    described = recipe_for_own_file(file, recipe, words)
    config = read_config(FinetuneConfig, described.recipe, described.overrides)
    console.say(described.content)
    console.say(choices_text(config.task, described.recipe, described.default_metric))
    return finetune(config, workdir, console=console)


def make_batches(
    config: RecipeName | ml_collections.ConfigDict | PretrainConfig, phase: int = 0, step: int | None = None
) -> Generator[Batch, None, None]:
    """Yield the training batches of `config.data.corpus` endlessly, as a run on one host reads them.

    Args:
        config: as for `pretrain`; its vocabulary size is None or the vocabulary size of the corpus.
        phase: index of the phase that sets the sequence length and the batch size.
        step: step of the run, within the phase, whose batch is yielded first; None: the first step of the phase.

    Raises:
        UserError: a field has a wrong value or no effect, there is no corpus, the config does not fit the corpus, there
            is no such phase, or `step` is outside of the phase.
    """
    config = as_config(PretrainConfig, config)
    if not config.data.corpus:
        raise UserError("no corpus: set config.data.corpus to a directory made by `prepare`")
    corpus = open_mixture(config.data.corpus)
    config = with_vocab_size(config, corpus.vocab_size)
    phases = plan_phases(config.train)
    stages = [used for used in phases if used.index == phase]
    if not stages:
        known = ", ".join(dict.fromkeys(str(used.index) for used in phases))
        raise UserError(f"phase {phase}: the config has no such phase with steps; the phases with steps are {known}")
    begin, end = stages[0].begin, stages[-1].end
    step = begin if step is None else step
    if not begin <= step < end:
        raise UserError(f"step {step}: phase {phase} has the steps from {begin} to {end - 1}")
    rules = sequence_rules(config, corpus.tokenizer())
    batches = training_batches(corpus, rules, phases, BatchBlocks((0,), 1))
    return _batches_of_stages(batches, [stage for stage in stages if step < stage.end], step)


def _batches_of_stages(
    batches: Callable[[Phase, int], Generator[Batch, None, None]], stages: Sequence[Phase], step: int
) -> Generator[Batch, None, None]:
    """Yield the batches from `step` on through the stages of a phase; the last stage has no end."""
    for stage in stages[:-1]:
        with contextlib.closing(batches(stage, step)) as stage_batches:
            yield from itertools.islice(stage_batches, stage.end - step)
        step = stage.end
    yield from batches(stages[-1], step)


def as_config(
    kind: type[AnyConfig],
    config: RecipeName | ml_collections.ConfigDict | AnyConfig,
    overrides: Overrides | None = None,
    run: pathlib.Path | None = None,
) -> AnyConfig:
    """Return the frozen, checked config of a recipe with overrides, of a `ConfigDict` or of a frozen config.

    `run` is the work directory of a run that may have begun.
    """
    words = override_words(overrides)
    if isinstance(config, str | os.PathLike):
        return read_run_config(kind, config, words, run)
    if overrides:
        raise UserError("overrides are for a recipe; change the ConfigDict, or use dataclasses.replace")
    if not isinstance(config, ml_collections.ConfigDict | kind):
        raise UserError(f"config is a {type(config).__name__}; give a {kind.__name__}, a ConfigDict or a recipe")
    return resolve(kind, config)


def _check_argument_types(**arguments: object) -> None:
    """Raise UserError for an argument that is neither a text nor a path, or that is empty."""
    for name, value in arguments.items():
        if not isinstance(value, str | os.PathLike) or value == "":
            raise UserError(f"{name}={value!r}: give a text that is not empty, or a path")


def override_words(overrides: Overrides | None) -> list[str]:
    """Return values by key as the words `--config.KEY=VALUE` of the command line; raise UserError for another type."""
    if not isinstance(overrides, Mapping | None):
        raise UserError(f"overrides is a {type(overrides).__name__}; give a dict such as {{'train.steps': 9}}")
    return [f"--config.{key}={value}" for key, value in (overrides or {}).items()]
