"""The command `bert-jax report`, which shows one or several runs in one HTML file."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from bert_jax.console import Console
from bert_jax.errors import check_positive
from bert_jax.parallel.chips import CHIPS
from bert_jax.reports.html.chart import Chart, charts_by_axis_html
from bert_jax.reports.html.markup import Html, collapsible, element, page, section, small_paragraph, verdict_html
from bert_jax.reports.run.cost import AssumedPower, compute_run_cost
from bert_jax.reports.run.curves import (
    UTILIZATION,
    comparison_charts,
    horizontal_axes,
    notes_on_curves,
    training_charts,
)
from bert_jax.reports.run.label_sections import label_section
from bert_jax.reports.run.predictions import predictions_section
from bert_jax.reports.run.record import Run, Training, read_runs
from bert_jax.reports.run.sections import (
    corpus_section,
    cost_section,
    find_run_corpus,
    last_values_section,
    model_use_section,
    reproduction_section,
    score_section,
    settings_section,
)
from bert_jax.reports.run.tiles import run_tiles, tiles_html, tiles_table
from bert_jax.reports.run.warnings import RunSummary, comparison_warnings, summarize_run
from bert_jax.training.metrics import Line

NUM_SEQUENCES = 20
MIN_SEQUENCES = 3
NO_PEAK = (
    "Model FLOPs utilization is left out: this device has no published peak, and a peak that a run measures is too low "
    "while other programs run."
)


def report_page(
    workdirs: Sequence[pathlib.Path], console: Console, assumed: AssumedPower, num_sequences: int = NUM_SEQUENCES
) -> str:
    """Return the HTML page about one or several work directories.

    Args:
        workdirs: work directories of `pretrain` or `finetune`.
        console: console for messages about checkpoints.
        assumed: assumptions for the estimates of energy and CO2.
        num_sequences: total number of sequences with predictions, which is divided among the runs; a run has at least
            `MIN_SEQUENCES`; 0: no sequences.

    Raises:
        UserError: a directory holds no run or has no metrics yet, or an assumed value is not above 0.
    """
    check_positive(assumed._asdict())
    runs = [_without_unreliable_utilization(run) for run in read_runs(workdirs)]
    num_each = num_sequences and max(MIN_SEQUENCES, num_sequences // len(runs))
    if len(runs) == 1:
        (run,) = runs
        title = run.label
        parts = [*_overview(run, assumed), *_finetuning_sections(run), *_curve_sections(run)]
        parts += _sections_after_curves(run, num_each, assumed, console)
    else:
        title = f"{len(runs)} runs: {', '.join(run.label for run in runs)}"
        folds = []
        for run in runs:
            sections = [*_finetuning_sections(run), *_sections_after_curves(run, num_each, assumed, console)]
            head = f"{run.label}: {summarize_run(run).verdict}"
            folds.append(collapsible(head, *_overview(run, assumed), *sections))
        parts = [*_comparison_overview(runs, assumed), *_comparison_sections(runs), section("Each run", *folds)]
    return page(title, element("h1", title), *parts, command="report")


def _without_unreliable_utilization(run: Run) -> Run:
    """Return the run without FLOPs utilization if its device has no published peak.

    The peak FLOPs of a CPU are measured at the start of a run. If other programs run at that time, the measured peak is
    too low.
    """
    if run.machine.get("device_kind") in CHIPS:
        return run
    trainings = [
        dataclasses.replace(training, lines=[_line_without_metric(line, UTILIZATION) for line in training.lines])
        for training in run.trainings
    ]
    return dataclasses.replace(run, trainings=tuple(trainings))


def _line_without_metric(line: Line, name: str) -> Line:
    return {key: value for key, value in line.items() if key != name}


def _overview(run: Run, assumed: AssumedPower) -> list[Html]:
    """Return the tiles of a run, its health with the reasons, and a collapsed summary in sentences."""
    summary = summarize_run(run)
    return [
        tiles_html(run_tiles(run, compute_run_cost(run, assumed))),
        _health_html(summary),
        collapsible("The run in sentences", *(element("p", sentence) for sentence in summary.sentences)),
    ]


def _health_html(summary: RunSummary) -> Html:
    """Return the verdict on a run, and its reasons: the warnings, or the checks that passed."""
    reasons = summary.warnings or (f"{summary.checked.capitalize()}.",)
    return verdict_html(summary.verdict, bool(summary.warnings), reasons)


def _comparison_overview(runs: Sequence[Run], assumed: AssumedPower) -> list[Html]:
    """Return warnings about runs that cannot be compared, and a table with the tiles of all runs."""
    warnings = comparison_warnings(runs)
    rows = [(run.label, summarize_run(run).verdict, run_tiles(run, compute_run_cost(run, assumed))) for run in runs]
    return [verdict_html("⚠ not comparable", True, warnings) if warnings else Html(""), tiles_table(rows)]


def _trainings_with_run_label(run: Run) -> list[Training]:
    """Return the trainings of a run; the label of each training contains the name of the run."""
    many = len(run.trainings) > 1
    return [
        dataclasses.replace(training, label=f"{run.label}/{training.label}" if many else run.label)
        for training in run.trainings
    ]


def _finetuning_sections(run: Run) -> list[Html]:
    """Return the sections on the scores and the labels of a fine-tuning run; [] for a pretraining run."""
    return [part for part in (label_section(run), score_section(run.results)) if part]


def _curve_sections(run: Run) -> list[Html]:
    """Return the sections of a single run that show its curves and the last values of the metrics."""
    (training, *others), facts = run.trainings, run.pretraining
    axes = horizontal_axes(run.trainings, [facts] * len(run.trainings))
    notes = [small_paragraph(text) for text in notes_on_curves(facts, training)] if facts else []
    if run.machine.get("device_kind") not in CHIPS:
        notes.append(small_paragraph(NO_PEAK))
    phases = facts.phases if facts else ()
    charts = {
        name: comparison_charts(run.trainings, axis) if others else training_charts(training, phases, axis)
        for name, axis in axes.items()
    }
    return _curve_section(charts, notes) + [last_values_section(run.trainings)]


def _comparison_sections(runs: Sequence[Run]) -> list[Html]:
    """Return the sections of several runs that show their curves and the last values of the metrics."""
    pairs = [(training, run.pretraining) for run in runs for training in _trainings_with_run_label(run)]
    trainings = [training for training, _ in pairs]
    axes = horizontal_axes(trainings, [facts for _, facts in pairs])
    charts = {name: comparison_charts(trainings, axis) for name, axis in axes.items()}
    return _curve_section(charts, []) + [last_values_section(trainings)]


def _curve_section(charts: Mapping[str, Mapping[str, Chart]], notes: Sequence[Html]) -> list[Html]:
    """Return a section with charts, given by axis and metric; the notes are below the charts."""
    return [
        section("Curves", charts_by_axis_html({name: list(group.values()) for name, group in charts.items()}), *notes)
    ]


def _sections_after_curves(run: Run, num_sequences: int, assumed: AssumedPower, console: Console) -> list[Html]:
    """Return the sections of the page after the curves of a run: corpus, sequences, settings, cost and commands."""
    if facts := run.pretraining:
        step = run.trainings[0].last_step
        mixture = find_run_corpus(facts.data.corpus or "", run.fingerprint.get("corpus"))
        parts = [corpus_section(facts, step, mixture)]
        if num_sequences:
            parts.append(predictions_section(run.path, facts, run.seed, step, mixture, num_sequences, console))
    else:
        parts = [
            section(
                "Answers",
                small_paragraph("The answers of the best model to the dev and test sets are in predictions/."),
            )
        ]
    return [
        *parts,
        settings_section(run.settings),
        cost_section(run, assumed),
        model_use_section(run),
        reproduction_section(run),
    ]
