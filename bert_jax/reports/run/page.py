"""`bert-jax report`: one run or several as one HTML file."""

import math
import pathlib
from collections.abc import Sequence

from bert_jax import __version__
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.reports.html.markup import Html, element, folded, page, section
from bert_jax.reports.html.style import STYLE
from bert_jax.reports.run import sections
from bert_jax.reports.run.curves import curves_of, curves_together, notes_on_curves
from bert_jax.reports.run.predictions import sequences_section
from bert_jax.reports.run.record import Run, Training, read_runs
from bert_jax.reports.run.warnings import summarize

NUM_SEQUENCES = 20
MIN_SEQUENCES = 3
ASSUMED = sections.Assumed()


def report_page(
    workdirs: Sequence[pathlib.Path],
    console: Console,
    assumed: sections.Assumed = ASSUMED,
    num_sequences: int = NUM_SEQUENCES,
) -> str:
    """Return the page about one work directory, or about several next to each other: an HTML file.

    Args:
        workdirs: of `pretrain` or `finetune`.
        console: for what is said about checkpoints.
        assumed: what energy and CO2 are estimated with.
        num_sequences: with the model's guesses, of all runs together, and at least `MIN_SEQUENCES` of each; 0: none.

    Raises:
        UserError: a directory holds no run, or no metrics yet; an assumption is not above 0.
    """
    for name, value in assumed._asdict().items():
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"--{name} {value:g}: give a number above 0")
    runs = read_runs(workdirs)
    number = num_sequences and max(MIN_SEQUENCES, num_sequences // len(runs))
    if len(runs) == 1:
        (run,) = runs
        title = run.label
        parts = [element("h1", title), *_head(run), *_body(run, number, assumed, console)]
    else:
        title = f"{len(runs)} runs: {', '.join(run.label for run in runs)}"
        each = [
            folded(f"{run.label}: {verdict(run)}", *_head(run), *_body(run, number, assumed, console, curves=False))
            for run in runs
        ]
        together = [training for run in runs for training in labeled(run)]
        parts = [element("h1", title), *_comparison(together), section("Each run", *each)]
    foot = element("p", f"Written by bert-jax report, version {__version__}.", class_="note")
    return page(title, STYLE, *parts, foot)


def labeled(run: Run) -> list[Training]:
    """Return the trainings of a run, with its name in their labels."""
    if len(run.trainings) == 1:
        return [run.trainings[0]._replace(label=run.label)]
    return [training._replace(label=f"{run.label}/{training.label}") for training in run.trainings]


def verdict(run: Run) -> str:
    """Return in two words whether a run looks healthy."""
    return "⚠ look at this" if summarize(run).signs else "✓ looks healthy"


def _head(run: Run) -> list[Html]:
    found = summarize(run)
    return [
        element("p", verdict(run), class_="bad" if found.signs else "good"),
        *(element("p", sentence, class_="lead") for sentence in found.sentences),
        element("ul", *(element("li", sign) for sign in found.signs)) if found.signs else Html(""),
    ]


def _body(run: Run, number: int, assumed: sections.Assumed, console: Console, curves: bool = True) -> list[Html]:
    """All sections below the sentences; `curves` False where they are drawn together with those of other runs."""
    parts = [sections.results_table(run)]
    if curves and len(run.trainings) == 1:
        notes = [element("p", note, class_="note") for note in notes_on_curves(run)]
        parts += [section("Curves", curves_of(run, run.trainings[0]), *notes), *_numbers(run.trainings)]
    elif curves:
        parts += _comparison(run.trainings)
    if run.phases:
        corpus = sections.find_corpus(run)
        parts.append(sections.corpus_section(run, corpus))
        parts += [sequences_section(run, corpus, number, console)] if number else []
    else:
        why = "A fine-tuning run has a task instead of a corpus and masks; its answers lie in predictions/."
        parts.append(section("Corpus and sequences", element("p", why, class_="note")))
    return [
        *parts,
        sections.settings_section(run.config),
        sections.cost_section(run, assumed),
        sections.use_section(run),
        sections.reproduction_section(run),
    ]


def _comparison(trainings: Sequence[Training]) -> list[Html]:
    return [section("Curves", curves_together(trainings)), *_numbers(trainings)]


def _numbers(trainings: Sequence[Training]) -> list[Html]:
    return [section("At the end", sections.end_values(trainings), sections.evaluations(trainings))]
