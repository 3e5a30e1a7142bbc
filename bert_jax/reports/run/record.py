"""A reader of work directories that tolerates damaged files, so that a damaged run has a report, too."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.batches.masking import data_config_for_evaluation, data_config_of_phase, phase_mask_rates
from bert_jax.config import (
    DataConfig,
    EncoderConfig,
    FinetuneConfig,
    PretrainConfig,
    TaskConfig,
    check_run_table_rows,
    fields_of,
)
from bert_jax.config.checks import ROWS_OF_WEIGHTS
from bert_jax.config.schema import WITH_MUON
from bert_jax.config.write_recipe import recipe_text, values_and_defaults
from bert_jax.console import format_metric
from bert_jax.errors import UserError
from bert_jax.files import read_file
from bert_jax.models import Head
from bert_jax.objectives import OBJECTIVES, predicts_masks
from bert_jax.readers import data_sets
from bert_jax.readers.hub import parse_hub_name
from bert_jax.reports.html.point_values import Point
from bert_jax.tasks.table import kind_of_task
from bert_jax.training.checkpoint import saved_steps
from bert_jax.training.metrics import Line, read_metrics_and_damage
from bert_jax.training.plateau import MASKED_LOSS, Plateau, expected_end_of_plateau, has_plateau
from bert_jax.training.remote_workdir import checkpoints_directory
from bert_jax.training.schedules import Phase, plan_phases
from bert_jax.training.tensorboard import RunStart, read_run_starts
from bert_jax.training.workdir import read_recorded_machine_info, read_run

MAX_VALUE = 1e300  # a larger number cannot be drawn
_NAMES_OF_MODELS = ("init_from", "teacher", "generator_from", "tokenizer")  # fields of models or tokenizers


class MainMetrics(NamedTuple):
    """The names of the loss and of the accuracy that describe a pretraining."""

    loss: str
    accuracy: str
    predicted: str  # the tokens that the model predicts


MAIN_METRICS = (
    MainMetrics(MASKED_LOSS, "mlm_accuracy", "tokens to predict"),
    MainMetrics("next_token_loss", "next_token_accuracy", "next tokens"),
)
OTHER_METRICS = MainMetrics("loss", "", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A training of a run: the whole run of `pretrain`, or one learning rate and seed of a run of `finetune`."""

    label: str
    lines: list[Line]
    sessions: list[RunStart]
    checkpoints: list[int]  # steps of the checkpoints on disk
    num_damaged: int  # lines of metrics.jsonl that cannot be read
    left_plateau_at: int | None = None  # first step whose loss is clearly below the unigram loss

    @property
    def last_step(self) -> int:
        """The last step that has a line in the file of metrics."""
        return max((line["step"] for line in self.lines), default=0)

    def points(self, name: str, split: str) -> list[Point]:
        """Return the points (step, value) of a metric; a value that was not finite is None."""
        return [(line["step"], line[name]) for line in self.lines if line["split"] == split and name in line]

    def last(self, name: str, split: str) -> float | None:
        """Return the last finite value of a metric."""
        return next((value for _, value in reversed(self.points(name, split)) if value is not None), None)

    def main_metrics(self, split: str) -> MainMetrics:
        """Return the names of the loss and of the accuracy that the last line of metrics of a split has."""
        last = next((line for line in reversed(self.lines) if line["split"] == split), {})
        return next((names for names in MAIN_METRICS if names.loss in last), OTHER_METRICS)

    def names(self, split: str) -> list[str]:
        """Return the names of the metrics of a split, in the order of the file."""
        return list(dict.fromkeys(name for line in self.lines if line["split"] == split for name in line))


class FinetuningResults(NamedTuple):
    """The content of results.json, which a run of `finetune` writes at the end."""

    metric: str  # metric that chose the best training
    best: dict[str, Any]  # learning rate, seed, step and scores of the best training
    mean: dict[str, Any]  # learning rate -> metric -> "mean" and "standard_deviation" over the seeds
    trainings: list[dict[str, Any]]
    test: dict[str, dict[str, float | None]]  # name of a labeled test set -> scores of the best model; None: not finite

    @property
    def num_seeds(self) -> int:
        """The number of trainings per learning rate."""
        return len(self.trainings) // len(self.mean)

    def mean_and_deviation(self, metric: str) -> str:
        """Return a text with mean and standard deviation of a metric over the seeds of the best learning rate."""
        figures = self.mean[f"{self.best['learning_rate']:g}"][metric]
        return " ± ".join(format_metric(metric, figures[name]) for name in ("mean", "standard_deviation"))


class Setting(NamedTuple):
    """A field of the config of a run, whose key, value, default and meaning are texts."""

    key: str
    value: str
    default: str
    meaning: str
    differs: bool  # True if the value differs from the default


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingFacts:
    """Values of a pretraining config that the report uses."""

    model: EncoderConfig
    heads: tuple[Head, ...]
    objective: str
    data: DataConfig
    phases: tuple[Phase, ...]
    predicts_masks: tuple[bool, ...]  # for each phase of config.train.phases; False: it predicts next tokens
    eval_data: tuple[DataConfig, ...]  # data config of an evaluation, for each phase
    num_eval_sequences: int
    mask_rates: tuple[float, ...]  # masking rates at the beginning and at the end of each phase
    matrix_rate_ratio: (
        float | None
    )  # learning rate of matrices over the rate of vectors; None: the optimizer has one rate
    plateau_end: int | None  # step by which the loss should be below the unigram loss; None: it is not checked

    def tokens_read(self, step: int) -> int:
        """Return the number of training tokens up to a step, with padding."""
        return sum(
            max(0, min(step, phase.end) - phase.begin) * phase.batch_size * phase.seq_len for phase in self.phases
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """The content of a work directory."""

    path: pathlib.Path
    label: str
    fingerprint: dict[str, str]
    machine: dict[str, str | int]  # {}: not recorded
    trainings: tuple[Training, ...]
    results: FinetuningResults | None  # results of a `finetune`; None before its end
    seed: int
    init_from: str  # "": random weights
    settings: tuple[Setting, ...]
    recipe: str
    recipe_file: str | None  # file of the user's recipe; None: a recipe that comes with bert_jax
    published_recipe: str  # recipe with names of directories and files in place of their paths
    pretraining: PretrainingFacts | None  # None: a fine-tuning
    task: str = ""  # name of the task of a fine-tuning
    kind: str = ""  # kind of the task of a fine-tuning
    vector_head: str = ""  # config.task.vector_head of a fine-tuning
    random_weights: bool = False  # the fine-tuning started from random weights

    @property
    def verb(self) -> str:
        """The verb of bert-jax that trains the recipe of the run."""
        return "pretrain" if self.pretraining else "finetune"


def read_runs(workdirs: Sequence[pathlib.Path]) -> tuple[Run, ...]:
    """Return the runs of work directories, with unique labels; raise UserError if a directory holds no metrics."""
    paths = [pathlib.Path(os.path.realpath(workdir)) for workdir in workdirs]
    for path in paths:
        if paths.count(path) > 1:
            raise UserError(f"{path} is given twice")
    parent = os.path.commonpath([path.parent for path in paths])
    single = "/".join(paths[0].parts[-2:]).lstrip("/")
    runs = tuple(read_workdir(path, os.path.relpath(path, parent) if len(paths) > 1 else single) for path in paths)
    for run in runs:
        if not any(training.lines for training in run.trainings):
            raise UserError(f"{run.path}: no metrics yet; train for a few steps first")
        check_run_table_rows(read_run(run.path).config, run.path)  # to show sequences, as the run masks them
    return runs


def read_workdir(path: pathlib.Path, label: str = "") -> Run:
    """Return the run of a work directory, which may lack metrics; raise UserError if the directory holds no run."""
    config, fingerprint = read_run(path)
    check_run_table_rows(config, path, ROWS_OF_WEIGHTS)
    directories = sorted(directory for directory in (path / "runs").glob("*") if directory.is_dir()) or [path]
    trainings = [read_training(directory, directory.name if directory != path else label) for directory in directories]
    pretraining, task = None, config.task if isinstance(config, FinetuneConfig) else TaskConfig()
    if isinstance(config, PretrainConfig):
        pretraining = _pretraining_facts(config)
        trainings = [
            dataclasses.replace(training, left_plateau_at=_left_plateau_at(config, pretraining.phases, training))
            for training in trainings
        ]
    meanings = {key: field.metadata["meaning"] for key, field, _ in fields_of(type(config))}
    settings = []
    for key, (value, default) in values_and_defaults(config).items():
        field = f"train.phases[0].{key.rpartition('.')[2]}" if key.startswith("train.phases.") else key
        settings.append(Setting(key, f"{value}", f"{default}", meanings.get(field, ""), value != default))
    return Run(
        path=path,
        label=label,
        fingerprint=fingerprint,
        machine=read_recorded_machine_info(path),
        trainings=tuple(trainings),
        results=_read_results(path),
        seed=config.seed,
        init_from=config.init_from or "",
        settings=tuple(settings),
        recipe=recipe_text(config),
        recipe_file=config.recipe,
        published_recipe=recipe_text(_with_published_paths(config)),
        pretraining=pretraining,
        task=task.name or "",
        kind=kind_of_task(task.name, task.kind),
        vector_head=task.vector_head,
        random_weights=task.random_weights,
    )


def read_training(path: pathlib.Path, label: str) -> Training:
    """Return the training in a directory, read from metrics.jsonl; without this file, the training has no lines."""
    read, damaged = read_metrics_and_damage(path / "metrics.jsonl")
    lines = [{name: _finite_value_or_none(value) for name, value in line.items()} for line in read]
    last_step = max((line["step"] for line in lines), default=0)
    return Training(
        label=label,
        lines=lines,
        # Without the starts of a finished run, which trained nothing.
        sessions=[start for start in read_run_starts(path) if start.first_step <= max(1, last_step)],
        checkpoints=sorted(saved_steps(checkpoints_directory(path))),
        num_damaged=len(damaged),
    )


def _pretraining_facts(config: PretrainConfig) -> PretrainingFacts:
    """Return the values that the report needs from a pretraining config."""
    phases, optimizer, settings = plan_phases(config.train), config.optimizer, config.train.used_phases.values()
    uses_training_masks = OBJECTIVES[config.objective].eval_uses_training_masks
    plateau_end = min(expected_end_of_plateau(config.train.plateau_steps, optimizer, phases), phases[-1].end)
    copies_teacher_layers = OBJECTIVES[config.objective].has_teacher and config.distillation.copy_layers
    begins_above = has_plateau(
        config.init_from, copies_teacher_layers, config.corpus_vectors, map(predicts_masks, settings)
    )
    has_two_rates = optimizer.name in WITH_MUON.values and optimizer.peak_learning_rate
    return PretrainingFacts(
        model=config.model,
        heads=OBJECTIVES[config.objective].heads(config.data.sentence_pairs),
        objective=config.objective,
        data=config.data,
        phases=phases,
        predicts_masks=tuple(map(predicts_masks, config.train.phases)),
        eval_data=tuple(
            data_config_for_evaluation(data_config_of_phase(config.data, phase), uses_training_masks)
            for phase in config.train.phases
        ),
        num_eval_sequences=config.evaluate.num_sequences,
        mask_rates=tuple(rate for phase in settings for rate in phase_mask_rates(config.data, phase)),
        matrix_rate_ratio=optimizer.muon_learning_rate / optimizer.peak_learning_rate if has_two_rates else None,
        plateau_end=plateau_end if begins_above or config.train.plateau_steps is not None else None,
    )


def _left_plateau_at(config: PretrainConfig, phases: tuple[Phase, ...], training: Training) -> int | None:
    """Return the step at which the loss fell clearly below the unigram loss; None if no such step is known."""
    plateau = Plateau(phases[-1].end, phases[-1].end, ())
    for line in training.lines:
        plateau.remarks(line)
    return plateau.left_at


def _finite_value_or_none(value: Any) -> Any:
    """Return a value from a line of metrics; None if the value is a number that is not finite or too large to draw."""
    return value if isinstance(value, str) or (value is not None and abs(value) < MAX_VALUE) else None


def _read_results(path: pathlib.Path) -> FinetuningResults | None:
    """Return the results of a fine-tuning run; None if the run has not ended, or if results.json is damaged."""
    try:
        values = strict_json.parse(read_file(path / "results.json", strict_json.MAX_BYTES).decode())
        results = FinetuningResults(
            values["metric"], values["best"], values["mean"], values["runs"], values.get("test", {})
        )
        scores_of_sets = [training["scores"] for training in (results.best, *results.trainings)]
        for scores in (*scores_of_sets, *results.test.values()):
            sum(score for score in scores.values() if score is not None)  # an error if a score is no number
        for metric in {results.metric, *results.best["scores"]}:
            results.mean_and_deviation(metric)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return results


def _with_published_paths(section: Any) -> Any:
    """Return a config, or a section of a config, with `published_paths` in the fields that hold paths."""
    changes = {}
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            changes[field.name] = _with_published_paths(value)
        elif value and field.metadata["is_path"]:
            changes[field.name] = published_paths(value, may_be_on_hub=field.name in _NAMES_OF_MODELS)
    return dataclasses.replace(section, **changes)


def published_paths(paths: str, may_be_on_hub: bool = True) -> str:
    """Return paths, separated by commas, without their directories; names of data sets stay complete.

    With `may_be_on_hub`, OWNER/NAME stays complete, too, unless it is a directory.
    """
    return ",".join(_published_path(path, may_be_on_hub) for path in paths.split(","))


def _published_path(path: str, may_be_on_hub: bool) -> str:
    path = path.strip()
    if path.startswith(data_sets.PREFIX):
        data_set = data_sets.parse_data_set_name(path)
        return f"{data_sets.PREFIX}{data_set.name}{f'#{data_set.split}' if data_set.split else ''}"
    return path if may_be_on_hub and parse_hub_name(path) else os.path.basename(path.rstrip("/")) or path
