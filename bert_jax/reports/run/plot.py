"""The learning curves of a run as a picture, for `bert-jax plot`."""

import math
import os
import pathlib
from collections.abc import Callable, Mapping

from bert_jax.errors import UserError
from bert_jax.reports.figure import saved_figure
from bert_jax.reports.html.chart import Chart
from bert_jax.reports.run.curves import OBJECTIVE_ENDINGS, OPTIMIZATION, training_charts
from bert_jax.reports.run.record import read_training


def plot_run(workdir: pathlib.Path, output: pathlib.Path, say: Callable[[str], None] = lambda line: None) -> None:
    """Draw losses, accuracies, learning rate and gradient norm of a training into `output` (.png, .pdf or .svg).

    Args:
        workdir: directory with the metrics.jsonl of the training.
        output: picture file to create.
        say: function that is called with a message if the metrics have damaged lines.

    Raises:
        UserError: matplotlib is not installed, the run has no metrics yet, or `output` cannot be written.
    """
    training = read_training(workdir, os.path.basename(os.path.realpath(workdir)))
    if training.num_damaged:
        say(f"{workdir / 'metrics.jsonl'}: damaged lines, left out: {training.num_damaged}")
    charts = {
        name: chart
        for name, chart in training_charts(training).items()
        if name.endswith(OBJECTIVE_ENDINGS) or name in OPTIMIZATION
    }
    if not charts or not training.names("train"):
        several = f"; give one of its trainings, {workdir / 'runs'}/*, or use `report`" * (workdir / "runs").is_dir()
        reason = "no metrics yet" if pathlib.Path(workdir).is_dir() else "no such run"
        raise UserError(f"{workdir}: {reason}{several}")
    _draw_charts(charts, training.label, output)


def _draw_charts(charts: Mapping[str, Chart], title: str, output: pathlib.Path) -> None:
    """Draw each chart as a panel, in two rows of panels that are filled column by column."""
    num_columns = -(-len(charts) // 2)
    with saved_figure(output, "plot", (2, num_columns), (1 + 4 * num_columns, 6.5), dpi=110) as (figure, axes):
        for panel in axes.T.flat[len(charts) :]:
            panel.set_axis_off()
        for panel, chart in zip(axes.T.flat, charts.values(), strict=False):
            for curve in chart.curves:
                steps = [step for step, _ in curve.points]
                values = [math.nan if value is None else value for _, value in curve.points]  # leaves a gap
                form = {"marker": "o", "markersize": 4} if curve.shows_dots(len(steps)) else {"linewidth": 1}
                panel.plot(steps, values, label=curve.label, **form)
            for name, level in chart.levels:
                panel.axhline(level, color="gray", linestyle="--", linewidth=1, label=name)
            if len(panel.lines) > 1:
                panel.legend()
            panel.set_yscale("log" if chart.log else "linear")
            panel.set_title(chart.title)
            panel.set_xlabel("step")
            panel.grid(alpha=0.3)
        figure.suptitle(title)
