"""The charts of one training, or of several on top of each other."""

from collections.abc import Sequence

from bert_jax.batches.masking import evaluated_data, phase_rates
from bert_jax.config import PretrainConfig
from bert_jax.config.schema import WITH_MUON
from bert_jax.reports.html.chart import Chart, Line, Marks, charts, draw
from bert_jax.reports.html.markup import Html
from bert_jax.reports.plots import MASKED_LOSS, panel_titles
from bert_jax.reports.run.record import Point, Run, Training
from bert_jax.training.schedules import Phase

SPLITS = {"heldout": "held out", "train": "training"}
# Metrics of a line that are no curve: they are the settings of the line, or are drawn as levels.
NOT_CURVES = ("step", "split", "seq_len", "batch_size", "loss", "unigram_entropy", "ema_decay")
SPEED = {
    "tokens_per_second": "tokens per second",
    "model_flops_utilization": "model FLOPs utilization",
    "input_wait_fraction": "time spent waiting for input",
    "memory_bytes": "memory (bytes)",
}
FRACTIONS = ("model_flops_utilization", "input_wait_fraction")
NO_MARKS = Marks()
LOG_FROM = 30.0  # highest over lowest value from which a gradient norm is drawn on a logarithmic axis


def curves_of(run: Run, training: Training) -> Html:
    """Return the charts of one training: training and held-out lines, with phases, checkpoints and restarts."""
    marks = marks_of(training, run.phases)
    found = []
    for name, title in titles([training]).items():
        lines = []
        if points := training.points(name, "train"):
            lines.append(Line("training", points, 0, thin=True))
        if points := training.points(name, "heldout"):
            lines.append(Line("held out", points, 1, dots=True))
        entropy = training.last("unigram_entropy", "train") if name == MASKED_LOSS else None
        levels = [] if entropy is None else [("unigram entropy", entropy)]
        found.append(draw(_chart(name, title, lines, marks, levels)))
    return charts(found)


def curves_together(trainings: Sequence[Training]) -> Html:
    """Return a chart per metric with a line per training: held out where there is such a line, else of training."""
    found = []
    for name, title in titles(trainings).items():
        split = next((split for split in SPLITS if any(one.points(name, split) for one in trainings)), "train")
        lines = [
            Line(training.label, points, look, dots=split == "heldout", thin=split == "train")
            for look, training in enumerate(trainings)
            if (points := training.points(name, split))
        ]
        found.append(draw(_chart(name, f"{title}, {SPLITS[split]}", lines)))
    return charts(found)


def titles(trainings: Sequence[Training]) -> dict[str, str]:
    """Return the titles of all curves by the names of their metrics: losses, accuracies and scores, then the rest."""
    names = dict.fromkeys(name for one in trainings for split in SPLITS for name in one.names(split))
    scores = dict.fromkeys(name for one in trainings for name in one.names("heldout") if name not in NOT_CURVES)
    known = panel_titles(names)
    losses = {name: title for name, title in known.items() if name.endswith(("_loss", "_accuracy"))}
    if not any(name.endswith("_loss") for name in losses) and "loss" in names:
        losses = {"loss": "loss (nats)"} | losses
    others = {name: name.replace("_", " ") for name in scores if name not in known}
    if "accuracy" in names:
        others = {"accuracy": "accuracy"} | others
    return losses | others | known | {name: title for name, title in SPEED.items() if name in names}


def notes_on_curves(run: Run) -> list[str]:
    """Return what a reader must know to compare the lines of a pretraining run: masks, and the rates of Muon."""
    config = run.config
    if not isinstance(config, PretrainConfig):
        return []
    rates = [rate for phase in config.train.phases for rate in phase_rates(config.data, phase)]
    notes, optimizer = list[str](), config.optimizer
    asked = evaluated_data(config.data).mask_probability
    if set(rates) - {asked} and MASKED_LOSS in run.trainings[0].names("heldout"):
        span = " to ".join(dict.fromkeys(f"{rate:.0%}" for rate in (rates[0], rates[-1])))
        notes.append(
            f"Training asks for {span} of the tokens, the evaluation always for {asked:.0%}. The more are masked, "
            "the harder each is: the two lines are not of the same task."
        )
    if optimizer.name in WITH_MUON.values and optimizer.peak_learning_rate:
        times = optimizer.muon_learning_rate / optimizer.peak_learning_rate
        notes.append(f"The learning rate is that of vectors and tables; Muon's matrices have {times:g} times as much.")
    return notes


def marks_of(training: Training, phases: Sequence[Phase]) -> Marks:
    """Return phases that have begun, checkpoints on disk, and the steps after which the run was started again."""
    return Marks(
        [(one.begin, one.end, f"{one.seq_len} tokens") for one in phases if one.begin < training.last_step],
        training.checkpoints,
        [session.first_step - 1 for session in training.sessions[1:]],
    )


def _chart(
    name: str, title: str, lines: list[Line], marks: Marks = NO_MARKS, levels: Sequence[tuple[str, float]] = ()
) -> Chart:
    percent = "accuracy" in name or name in FRACTIONS
    return Chart(
        f"{title} (log scale)" if (log := _needs_log(name, [line.points for line in lines])) else title,
        lines,
        levels,
        marks,
        percent=percent,
        log=log,
        from_zero=name in SPEED or name == "learning_rate",
    )


def _needs_log(name: str, curves: Sequence[Sequence[Point]]) -> bool:
    values = [value for points in curves for _, value in points if value is not None]
    return name == "grad_norm" and bool(values) and min(values) > 0 and max(values) / min(values) > LOG_FROM
