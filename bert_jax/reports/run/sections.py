"""Sections of the page of a run: corpus, last values, settings, cost, and commands to use or repeat the run."""

import os
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.console import format_metric
from bert_jax.corpus.copies import count_duplicates
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.corpus.statistics import QUANTILES, document_sizes, length_distribution
from bert_jax.errors import UserError, shown
from bert_jax.reports.html.chart import number_text
from bert_jax.reports.html.markup import Html, collapsible, element, section, small_paragraph, table
from bert_jax.reports.next_commands import commands_for_finetuned_model, commands_for_pretrained_model, masked_sentence
from bert_jax.reports.run.cost import NOT_VERSIONS, AssumedPower, cost_rows
from bert_jax.reports.run.curves import FRACTIONS, NOT_CURVES, SPLITS, curve_titles, metric_unit
from bert_jax.reports.run.record import FinetuningResults, PretrainingFacts, Run, Setting, Training
from bert_jax.tokenizer import load_tokenizer

MAX_EVALUATIONS = 200  # rows of the table of evaluations
MAX_FIRST_TOKENS = 40  # tokens of the first document that are shown
MAX_COMPARED_TOKENS = 10_000_000  # tokens that the search for copies reads; a larger corpus is sampled
MAX_UNFOLDED_SETTINGS = 12
QUANTILE_NAMES = {0.0: "shortest", 0.05: "5 %", 0.5: "median", 0.95: "95 %", 1.0: "longest"}
RESULT_TITLES = {"run": "training", "learning_rate": "learning rate", "seed": "seed", "step": "best step"}


def find_run_corpus(corpus: str, fingerprint: str | None) -> Mixture | str:
    """Return the training corpus of a run, or the reason for its absence."""
    if "://" in corpus:
        return f"{corpus} is a URL, and a report loads nothing"
    try:
        mixture = open_mixture(corpus)
    except (UserError, OSError) as error:
        return f"not found: {error}"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"{corpus} cannot be read ({type(error).__name__}: {error})"
    if mixture.fingerprint != fingerprint:
        return f"{corpus} is not the corpus that this run was trained on: its fingerprint differs"
    return mixture


def corpus_section(facts: PretrainingFacts, last_step: int, mixture: Mixture | str) -> Html:
    """Return the section on the corpus: sizes, epochs, rejections, duplicates, leaks and lengths of documents."""
    if isinstance(mixture, str):
        return section("Corpus", small_paragraph(f"The corpus is not shown: {mixture}."))
    rows = []
    for corpus in mixture.corpora:
        documents, language = corpus.manifest["documents"], corpus.manifest["settings"]["language"]
        rejected = ", ".join(f"{count:,} {reason}" for reason, count in documents["rejected"].items()) or "none"
        stored = f"{documents['stored']:,} of {documents['in']:,}"
        for name in ("train", "heldout"):
            split = corpus.split(name)
            sizes = (f"{size:,}" for size in (split.num_documents, split.num_sentences, split.num_tokens))
            rows.append((os.path.basename(str(corpus.directory)), name, *sizes, stored, rejected, language))
    head = ("corpus", "split", "documents", "sentences", "tokens", "stored of read", "rejected", "language")
    lengths, _ = document_sizes(mixture.split("train"))
    sizes_of_documents = length_distribution(lengths)
    by_quantile = dict(zip(QUANTILES, sizes_of_documents.quantiles, strict=True))
    quantiles = [(name, f"{by_quantile[quantile]:,}") for quantile, name in QUANTILE_NAMES.items()]
    tokenizer = mixture.corpora[0].manifest["tokenizer"]
    num_tokens = sum(corpus.split("train").num_tokens for corpus in mixture.corpora)
    epochs = np.format_float_positional(
        facts.tokens_read(last_step) / num_tokens, precision=3, fractional=False, trim="-"
    )
    count = facts.data.snapshots
    turns = f"They are the first of {count} snapshots, which the run reads in turn. " if count else ""
    return section(
        "Corpus",
        element(
            "p",
            f"The run has read at most {epochs} times the {num_tokens:,} tokens of the training documents: padding "
            f"counts. {turns}The run is evaluated on the documents that are held out.",
        ),
        _beginning_of_first_document(mixture),
        table(head, rows, "corpus"),
        _duplicates_note(mixture),
        element(
            "p",
            f"Tokenizer: {tokenizer['kind']} with {tokenizer['vocab_size']:,} tokens"
            f"{', lowercase' if tokenizer.get('lowercase') else ''}. A training document has "
            f"{sizes_of_documents.mean:,.0f} tokens on average.",
        ),
        table(("tokens of a training document", "tokens"), quantiles, "lengths of documents"),
    )


def _beginning_of_first_document(mixture: Mixture) -> Html:
    """Return the beginning of the first training document as HTML, for readers who do not know the corpus."""
    try:
        tokens, _, _ = mixture.corpora[0].split("train").read(np.array([0]))
        text = mixture.tokenizer().decode(tokens[:MAX_FIRST_TOKENS].tolist())
    except UserError as error:
        return small_paragraph(f"No text is shown: {error}.")
    return element("p", "The first training document begins: ", element("bdi", text), " ...")


def _duplicates_note(mixture: Mixture) -> Html:
    """Return a paragraph on duplicate training documents, and on held-out documents that are in the training split."""
    try:
        copies = count_duplicates(mixture.split("train"), mixture.split("heldout"), MAX_COMPARED_TOKENS)
    except UserError as error:
        return small_paragraph(f"Copies are not counted: {error}.")
    text = f"{copies.repeated:,} of {copies.train:,} training documents are copies of an earlier document"
    if copies.heldout:
        text += f"; {copies.leaked:,} of {copies.heldout:,} held-out documents are training documents too"
    return element("p", f"{text}{'' if copies.exact else ' (a sample)'}.")


def last_values_section(trainings: Sequence[Training]) -> Html:
    """Return the section with the last values of all metrics, and a collapsed table of every evaluation.

    For a single training, a row of the table is a metric. For several trainings, a row of the table is a training.
    """
    titles = curve_titles(trainings)
    if len(trainings) == 1:
        (training,) = trainings
        head: tuple[str, ...] = ("", "training", "held out")
        rows = [("last step", f"{training.last_step:,}", "")]
        rows += [
            (title, _format_last_value(training, name, "train"), _format_last_value(training, name, "heldout"))
            for name, title in titles.items()
        ]
        return section("At the end", table(head, rows, "values at the end"), _evaluation_table(trainings))
    columns = {"last step": [f"{training.last_step:,}" for training in trainings]}
    for name, title in titles.items():
        for split, split_title in SPLITS.items():
            cells = [_format_last_value(training, name, split) for training in trainings]
            if any(cells):
                columns[f"{title}, {split_title}"] = cells
    by_training = zip([training.label for training in trainings], *columns.values(), strict=True)
    values = table(("training", *columns), by_training, "values at the end")
    return section("At the end", values, _evaluation_table(trainings))


def _format_last_value(training: Training, name: str, split: str) -> str:
    return _format_metric_value(name, training.last(name, split))


def _format_metric_value(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name == "learning_rate":
        return f"{value:.3g}"
    if name in FRACTIONS:
        return f"{value:.1%}"
    if metric_unit(name) == "bytes":
        return number_text(value, "bytes")
    return f"{value:,.0f}" if abs(value) >= 1000 else format_metric(name, float(value))


def _evaluation_table(trainings: Sequence[Training]) -> Html:
    """Return a collapsible table of the evaluations, with at most `MAX_EVALUATIONS`, chosen evenly."""
    lines = [(training.label, line) for training in trainings for line in training.lines if line["split"] == "heldout"]
    if not lines:
        return Html("")
    names = dict.fromkeys(name for _, line in lines for name in line if name not in NOT_CURVES)
    indexes = np.unique(np.linspace(0, len(lines) - 1, min(len(lines), MAX_EVALUATIONS)).astype(int)).tolist()
    rows = [
        (label, f"{line['step']:,}", *(_format_metric_value(name, line.get(name)) for name in names))
        for label, line in (lines[index] for index in indexes)
    ]
    count = f"{len(rows)} of {len(lines):,}" if len(rows) < len(lines) else f"{len(lines)}"
    head = ("training", "step", *(name.replace("_", " ") for name in names))
    return collapsible(f"Evaluations as numbers ({count})", table(head, rows, "evaluations"))


def settings_section(settings: Sequence[Setting]) -> Html:
    """Return the section on settings, with fields that differ from the defaults; all other fields are collapsed."""
    head = ("field", "value", "default", "meaning")
    differing = [setting[:4] for setting in settings if setting.differs]
    others = [setting[:4] for setting in settings if not setting.differs]
    return section(
        "Settings",
        element("p", f"{len(differing)} fields differ from the defaults."),
        collapsible(
            "Fields that differ",
            table(head, differing, "fields that differ", class_="changed"),
            open_=len(differing) <= MAX_UNFOLDED_SETTINGS,
        ),
        collapsible(f"The {len(others)} fields at their defaults", table(head, others, "fields at their defaults")),
    )


def cost_section(run: Run, assumed: AssumedPower) -> Html:
    """Return the section on cost, a table with the result of `cost_rows`."""
    rows, how_known = cost_rows(run, assumed)
    return section("Cost", table((), rows, "cost"), small_paragraph(how_known))


def model_use_section(run: Run) -> Html:
    """Return the section with the directory of the model, and with commands for the use of the model."""
    path = shown(str(run.path))
    if not (run.pretraining or run.results):
        return section("Use it", small_paragraph("A fine-tuned model is there when the run has ended."))
    try:
        tokenizer = load_tokenizer(run.path / "tokenizer")
    except UserError as error:
        return section("Use it", small_paragraph(f"No commands: {error}."))
    if run.pretraining:
        mixture = find_run_corpus(run.pretraining.data.corpus or "", run.fingerprint.get("corpus"))
        text = masked_sentence(mixture if isinstance(mixture, Mixture) else None, tokenizer)
        has_heldout = any(line["split"] == "heldout" for line in run.trainings[0].lines)
        commands = commands_for_pretrained_model(path, run.pretraining.heads, text, has_heldout, run.recipe_file)
    else:
        commands = commands_for_finetuned_model(path, run.kind, run.vector_head)
    return section("Use it", element("p", f"The model is in {path}."), element("pre", "\n".join(commands), tabindex=0))


def reproduction_section(run: Run) -> Html:
    """Return the section on how to repeat the run: recipe, command, versions, seed and fingerprints."""
    command = f"bert-jax {run.verb} --config recipe.py --workdir {shlex.quote(run.path.name + '-again')}"
    rows: list[tuple[str, object]] = [("seed", run.seed)]
    rows += [(f"fingerprint of the {name}", value) for name, value in run.fingerprint.items()]
    versions = [(f"version of {name}", value) for name, value in run.machine.items() if name not in NOT_VERSIONS]
    rows += versions or [("versions", "not recorded")]
    return section(
        "Train it again",
        element("p", "With this file as ", element("code", "recipe.py"), ":"),
        element("pre", run.recipe, tabindex=0),
        element("pre", command, tabindex=0),
        table((), rows, "versions and fingerprints"),
    )


def score_section(results: FinetuningResults | None) -> Html:
    """Return the section with the dev scores of each training of `finetune`, and the test scores of the best model.

    Without results, return an empty text.
    """
    if results is None:
        return Html("")
    names = dict.fromkeys(name for training in results.trainings for name in training["scores"])
    rows = [[*map(training.get, RESULT_TITLES), *map(training["scores"].get, names)] for training in results.trainings]
    tables = [_score_table("dev scores", [*RESULT_TITLES.values(), *names], rows)]
    for name, scores in results.test.items():
        tables.append(_score_table(f"{name} scores", ["", *scores], [["best model", *scores.values()]]))
    return section("Scores", *tables)


def _score_table(caption: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> Html:
    """Return a table of scores, whose head may have names of metrics; None is a score that is not finite."""
    cells = [[f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row] for row in rows]
    return table([name.replace("_", " ") for name in head], cells, caption)
