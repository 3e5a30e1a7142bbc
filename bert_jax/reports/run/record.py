"""What a work directory holds, read without trusting it: a report of a damaged run is still a report."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.config import Config, PretrainConfig
from bert_jax.errors import UserError
from bert_jax.training.checkpoint import saved_steps
from bert_jax.training.metrics import Line, damaged_lines, read_metrics
from bert_jax.training.remote_workdir import checkpoints_in
from bert_jax.training.schedules import Phase, plan_phases
from bert_jax.training.tensorboard import RunStart, read_starts
from bert_jax.training.workdir import read_machine, read_run

Point = tuple[float, float | None]  # step and value
LARGEST = 1e300


class Training(NamedTuple):
    """One training: that of a `pretrain` work directory, or one learning rate and seed of a `finetune`."""

    label: str
    lines: list[Line]
    sessions: list[RunStart]
    checkpoints: list[int]  # steps on disk
    damaged: int = 0  # lines of its metrics that cannot be read

    @property
    def last_step(self) -> int:
        """The last step with a line of metrics."""
        return max((line["step"] for line in self.lines), default=0)

    def points(self, name: str, split: str) -> list[Point]:
        """Return a metric by step; None where it was not finite."""
        return [(line["step"], line[name]) for line in self.lines if line["split"] == split and name in line]

    def last(self, name: str, split: str) -> float | None:
        """Return the last finite value of a metric."""
        return next((value for _, value in reversed(self.points(name, split)) if value is not None), None)

    def names(self, split: str) -> list[str]:
        """Return the metrics of a split, in the order of the file."""
        return list(dict.fromkeys(name for line in self.lines if line["split"] == split for name in line))


class Run(NamedTuple):
    """A work directory."""

    place: pathlib.Path
    label: str
    config: Config
    fingerprint: dict[str, str]
    machine: dict[str, str | int]  # {}: not recorded
    trainings: tuple[Training, ...]
    results: dict[str, Any]  # of a `finetune` that has ended; else {}

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of pretraining; fine-tuning has none."""
        return plan_phases(self.config.train) if isinstance(self.config, PretrainConfig) else ()


def read_runs(places: Sequence[pathlib.Path]) -> tuple[Run, ...]:
    """Return the runs of work directories, each with a label of its own; UserError where one holds no run."""
    resolved = [place.resolve() for place in places]
    for place in resolved:
        if resolved.count(place) > 1:
            raise UserError(f"{place} is given twice")
    if len(resolved) == 1:
        (only,) = resolved
        return (_read_run(only, "/".join(only.parts[-2:]).lstrip("/")),)
    parent = os.path.commonpath([place.parent for place in resolved])
    return tuple(_read_run(place, os.path.relpath(place, parent)) for place in resolved)


def _read_run(place: pathlib.Path, label: str) -> Run:
    config, fingerprint = read_run(place)
    directories = sorted(one for one in (place / "runs").glob("*") if one.is_dir()) or [place]
    trainings = tuple(_read_training(one, one.name if one != place else label) for one in directories)
    if not any(training.lines for training in trainings):
        raise UserError(f"{place}: no metrics yet; train for a few steps first")
    fingerprint = {str(name): str(value) for name, value in fingerprint.items()}
    return Run(place, label, config, fingerprint, read_machine(place), trainings, _read_results(place))


def _read_training(place: pathlib.Path, label: str) -> Training:
    path = place / "metrics.jsonl"
    lines = [{name: _finite(value) for name, value in line.items()} for line in read_metrics(path)]
    checkpoints = sorted(saved_steps(checkpoints_in(place)))
    return Training(label, lines, read_starts(place), checkpoints, len(damaged_lines(path)))


def _finite(value: Any) -> Any:
    """A value of a line; None for a number that is not finite, or too large to be drawn."""
    return value if isinstance(value, str) or (value is not None and abs(value) < LARGEST) else None


def _read_results(place: pathlib.Path) -> dict[str, Any]:
    try:
        found = strict_json.parse((place / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
