"""`bert-jax report`: one or several runs as one HTML file."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.reports.html.chart import charts_side_by_side
from bert_jax.reports.html.markup import Html, collapsible, element, page, section, small_paragraph
from bert_jax.reports.run.cost import AssumedPower
from bert_jax.reports.run.curves import comparison_charts, notes_on_curves, training_charts
from bert_jax.reports.run.label_sections import label_section
from bert_jax.reports.run.predictions import predictions_section
from bert_jax.reports.run.record import Run, Training, read_runs
from bert_jax.reports.run.sections import (
    corpus_section,
    cost_section,
    dev_score_table,
    find_run_corpus,
    last_values_section,
    reproduction_section,
    settings_section,
    use_section,
)
from bert_jax.reports.run.warnings import RunSummary, summarize_run

NUM_SEQUENCES = 20
MIN_SEQUENCES = 3


def report_page(
    workdirs: Sequence[pathlib.Path], console: Console, assumed: AssumedPower, num_sequences: int = NUM_SEQUENCES
) -> str:
    """Return the HTML page about one or several work directories.

    Args:
        workdirs: work directories of `pretrain` or `finetune`.
        console: console for messages about checkpoints.
        assumed: assumptions for the estimates of energy and CO2.
        num_sequences: number of sequences with predictions over all runs, but at least `MIN_SEQUENCES` per run; 0: no
        sequences.

    Raises:
        UserError: a directory holds no run, or no metrics yet, or an assumption is not above 0.
    """
    for name, value in assumed._asdict().items():
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"--{name} {value:g}: give a number above 0")
    runs = read_runs(workdirs)
    num_each = num_sequences and max(MIN_SEQUENCES, num_sequences // len(runs))
    if len(runs) == 1:
        (run,) = runs
        title = run.label
        parts = [*_summary_html(summarize_run(run)), dev_score_table(run.results), *_curve_sections(run)]
        parts += _remaining_sections(run, num_each, assumed, console)
    else:
        title = f"{len(runs)} runs: {', '.join(run.label for run in runs)}"
        folds = []
        for run in runs:
            summary, sections = summarize_run(run), _remaining_sections(run, num_each, assumed, console)
            head = f"{run.label}: {summary.verdict}"
            folds.append(collapsible(head, *_summary_html(summary), dev_score_table(run.results), *sections))
        trainings = [training for run in runs for training in _trainings_with_run_label(run)]
        parts = [*_comparison_sections(trainings), section("Each run", *folds)]
    return page(title, element("h1", title), *parts, command="report")


def _summary_html(summary: RunSummary) -> list[Html]:
    warnings = element("ul", *(element("li", warning) for warning in summary.warnings))
    return [
        element("p", summary.verdict, class_="bad" if summary.warnings else "good"),
        *(element("p", sentence, class_="lead") for sentence in summary.sentences),
        warnings if summary.warnings else Html(""),
    ]


def _trainings_with_run_label(run: Run) -> list[Training]:
    """Return the trainings of a run, with labels that contain the name of the run."""
    many = len(run.trainings) > 1
    return [
        dataclasses.replace(training, label=f"{run.label}/{training.label}" if many else run.label)
        for training in run.trainings
    ]


def _curve_sections(run: Run) -> list[Html]:
    """Return the sections with the curves of a single run and their last values."""
    if len(run.trainings) > 1:
        return _comparison_sections(run.trainings)
    (training,), facts = run.trainings, run.pretraining
    notes = [small_paragraph(text) for text in notes_on_curves(facts, training)] if facts else []
    charts = training_charts(training, facts.phases if facts else ())
    return [section("Curves", charts_side_by_side(charts.values()), *notes), last_values_section(run.trainings)]


def _comparison_sections(trainings: Sequence[Training]) -> list[Html]:
    charts = comparison_charts(trainings)
    return [section("Curves", charts_side_by_side(charts.values())), last_values_section(trainings)]


def _remaining_sections(run: Run, num_sequences: int, assumed: AssumedPower, console: Console) -> list[Html]:
    """Return the sections of a run that follow its curves: corpus, sequences, settings, cost and commands."""
    if facts := run.pretraining:
        step = run.trainings[0].last_step
        mixture = find_run_corpus(facts.data.corpus or "", run.fingerprint.get("corpus"))
        parts = [corpus_section(facts, step, mixture)]
        if num_sequences:
            parts.append(predictions_section(run.path, facts, run.seed, step, mixture, num_sequences, console))
    else:
        text = "A fine-tuning run has a task instead of a corpus and masks; its answers lie in predictions/."
        parts = [section("Corpus and sequences", small_paragraph(text))]
    return [
        label_section(run),
        *parts,
        settings_section(run.settings),
        cost_section(run, assumed),
        use_section(run),
        reproduction_section(run),
    ]
