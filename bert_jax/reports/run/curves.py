"""The charts of one training, or of several trainings in shared charts, for the page and for `bert-jax plot`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.reports.html.chart import Chart, Curve, Marks
from bert_jax.reports.html.point_values import Point
from bert_jax.reports.run.cost import DURATIONS
from bert_jax.reports.run.record import PretrainingFacts, Training
from bert_jax.training.metrics import WEIGHTED
from bert_jax.training.plateau import MASKED_LOSS
from bert_jax.training.schedules import Phase

SPLITS = {"heldout": "held out", "train": "training"}
# Metrics without a curve: they are settings of a line of metrics, or are drawn as levels.
NOT_CURVES = ("step", "split", "seq_len", "batch_size", "loss", "unigram_loss", "ema_decay")
# The title of a loss or an accuracy of an objective comes from the words before its ending.
OBJECTIVE_ENDINGS = ("_loss", "_accuracy")
OBJECTIVE_WORDS = {"mlm": "masked-token", "nsp": "next-sentence", "sop": "sentence-order", "replaced": "replaced-token"}
OPTIMIZATION = {"learning_rate": "learning rate", "grad_norm": "gradient norm"}
UTILIZATION = "model_flops_utilization"
SPEED = {
    "tokens_per_second": "tokens per second",
    UTILIZATION: "model FLOPs utilization",
    "input_wait_fraction": "time spent waiting for input",
    "memory_bytes": "memory",
}
HOUR = 3600.0
# Unit of the time axis -> seconds of the shortest run that has this unit.
TIMES = {"days": 48 * HOUR, "hours": 2 * HOUR, "minutes": 120.0, "seconds": 0.0}
FRACTIONS = (UTILIZATION, "input_wait_fraction")
LOG_FROM = 30.0  # ratio of highest to lowest gradient norm from which on the axis is logarithmic


class XAxis(NamedTuple):
    """A horizontal axis: its title, and for each training a function that converts a step to a value of the axis."""

    title: str
    positions: Sequence[Callable[[float], float]]


STEPS = XAxis("step", (float,))


def horizontal_axes(trainings: Sequence[Training], facts: Sequence[PretrainingFacts | None]) -> dict[str, XAxis]:
    """Return the horizontal axes that all trainings have: steps, and for pretraining runs also tokens and time.

    The axis of tokens includes padding. The axis of time has the time of training steps, without evaluations and
    saving.
    """
    axes = {"steps": XAxis("step", [lambda step: step] * len(trainings))}
    pretrainings = [each for each in facts if each]
    if len(pretrainings) < len(trainings):
        return axes
    axes["tokens"] = XAxis("tokens", [_step_to_token_count(each) for each in pretrainings])
    clocks = [_step_to_training_seconds(*each) for each in zip(trainings, pretrainings, strict=True)]
    if len(timed := [clock for clock in clocks if clock]) == len(clocks):
        longest = max(clock(training.last_step) for clock, training in zip(timed, trainings, strict=True))
        unit = next(unit for unit, shortest in TIMES.items() if longest >= shortest)
        axes["time"] = XAxis(unit, [_scale_clock(clock, DURATIONS[unit]) for clock in timed])
    return axes


def _step_to_token_count(facts: PretrainingFacts) -> Callable[[float], float]:
    """Return a function that converts a step to the number of tokens that the run has read up to this step."""
    return lambda step: facts.tokens_read(int(step))


def _scale_clock(clock: Callable[[float], float], duration: float) -> Callable[[float], float]:
    """Return a function that calls `clock` and returns the time in units of `duration` seconds."""
    return lambda step: clock(step) / duration


def _step_to_training_seconds(training: Training, facts: PretrainingFacts) -> Callable[[float], float] | None:
    """Return a function from a step to the seconds of training up to this step; None if no speed is recorded."""
    speeds = [(step, speed) for step, speed in training.points("tokens_per_second", "train") if speed]
    if not speeds:
        return None
    steps = [0, *(step for step, _ in speeds)]
    seconds = np.diff([facts.tokens_read(int(step)) for step in steps]) / [speed for _, speed in speeds]
    known_steps, known_seconds = np.array(steps, float), np.array([0.0, *np.cumsum(seconds)])
    return lambda step: float(np.interp(step, known_steps, known_seconds))


def training_charts(training: Training, phases: Sequence[Phase] = (), axis: XAxis = STEPS) -> dict[str, Chart]:
    """Return a chart per metric of a training, with training and held-out curves, phases, checkpoints and restarts."""
    (position_of,) = axis.positions
    begun = [phase for phase in phases if phase.begin < training.last_step]
    marks = Marks(
        [(position_of(phase.begin), position_of(phase.end), f"{phase.seq_len} tokens") for phase in begun],
        [position_of(step) for step in training.checkpoints],
        [position_of(session.first_step - 1) for session in training.sessions[1:]],
    )
    charts = {}
    for name, title in curve_titles([training]).items():
        curves = []
        if points := training.points(name, "train"):
            curves.append(Curve("training", _points_on_axis(points, position_of), 0, dots=True, thin=True))
        if points := training.points(name, "heldout"):
            curves.append(Curve("held out", _points_on_axis(points, position_of), 1, dots=True))
        references = (
            [training.last("unigram_loss", split) for split in ("heldout", "train")] if name == MASKED_LOSS else []
        )
        levels = [("unigram loss", reference) for reference in references if reference is not None][:1]
        charts[name] = _make_chart(name, title, axis.title, curves, marks, levels)
    return charts


def _points_on_axis(points: Sequence[Point], position_of: Callable[[float], float]) -> list[Point]:
    return [(position_of(step), value) for step, value in points]


def comparison_charts(trainings: Sequence[Training], axis: XAxis) -> dict[str, Chart]:
    """Return a chart for each metric with a curve for each training; held-out values are preferred."""
    charts = {}
    for name, title in curve_titles(trainings).items():
        has_heldout = any(training.points(name, "heldout") for training in trainings)
        split = "heldout" if has_heldout else "train"
        curves = [
            Curve(training.label, _points_on_axis(points, position_of), look, dots=True, thin=not has_heldout)
            for look, (training, position_of) in enumerate(zip(trainings, axis.positions, strict=True))
            if (points := training.points(name, split))
        ]
        charts[name] = _make_chart(name, f"{title}, {SPLITS[split]}", axis.title, curves)
    return charts


def curve_titles(trainings: Sequence[Training]) -> dict[str, str]:
    """Return a dict from metric to title of its curves: losses and accuracies, scores, then optimization and speed."""
    named = (name for training in trainings for split in SPLITS for name in training.names(split))
    names = dict.fromkeys(name for name in named if name == "loss" or name not in NOT_CURVES)
    titles = dict[str, str]()
    for prefix in dict.fromkeys(name.rpartition("_")[0] for name in names if name.endswith(OBJECTIVE_ENDINGS)):
        words = OBJECTIVE_WORDS.get(prefix, prefix.replace("_", " "))
        unit = "weighted" if f"{prefix}_loss" in WEIGHTED else "nats"
        titles |= {f"{prefix}_loss": f"{words} loss ({unit})", f"{prefix}_accuracy": f"{words} accuracy"}
    if not any(name.endswith("_loss") for name in names):
        titles = {"loss": "loss (nats)"} | titles
    scores = dict.fromkeys(name for training in trainings for name in training.names("heldout"))
    known = titles | OPTIMIZATION
    titles |= {"accuracy": "accuracy"}
    titles |= {name: name.replace("_", " ") for name in scores if name not in known and name not in NOT_CURVES}
    return {name: title for name, title in (titles | OPTIMIZATION | SPEED).items() if name in names}


def notes_on_curves(facts: PretrainingFacts, training: Training) -> list[str]:
    """Return notes on masking rates of training that differ from the evaluation, and on the learning rates of Muon."""
    notes, rates = list[str](), facts.mask_rates
    eval_rate = facts.eval_data[0].mask_probability
    if set(rates) - {eval_rate} and MASKED_LOSS in training.names("heldout"):
        span = " to ".join(dict.fromkeys(f"{rate:.0%}" for rate in (rates[0], rates[-1])))
        notes.append(
            f"Training asks for {span} of the tokens, the evaluation always for {eval_rate:.0%}. With more masked "
            "tokens each token is harder to predict, so the two lines belong to different tasks."
        )
    if facts.matrix_rate_ratio is not None:
        notes.append(
            "The learning rate is the rate of vectors and tables; the rate of Muon's matrices is "
            f"{facts.matrix_rate_ratio:g} times as high."
        )
    return notes


def _make_chart(
    name: str,
    title: str,
    x_title: str,
    curves: Sequence[Curve],
    marks: Marks | None = None,
    levels: Sequence[tuple[str, float]] = (),
) -> Chart:
    values = [value for curve in curves for _, value in curve.points if value is not None]
    log = name == "grad_norm" and bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM
    return Chart(
        title=f"{title} (log scale)" if log else title,
        curves=curves,
        levels=levels,
        marks=marks or Marks(),
        unit=metric_unit(name),
        log=log,
        from_zero=name in SPEED or name == "learning_rate",
        x_title=x_title,
    )


def metric_unit(name: str) -> str:
    """Return the unit of a metric as an argument for `number_text`: "%", "bytes" or ""."""
    if "accuracy" in name or name in FRACTIONS:
        return "%"
    return "bytes" if name.endswith("_bytes") else ""
