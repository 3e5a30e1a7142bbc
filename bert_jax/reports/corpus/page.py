"""A corpus as one HTML page: figures, warnings, filters, sequences page by page."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax import __version__
from bert_jax.batches.pipeline import Sequences
from bert_jax.reports.corpus.checks import Report, warnings
from bert_jax.reports.corpus.inspect_text import report_lines
from bert_jax.reports.corpus.sequences import Shown, legend, show_sequence
from bert_jax.reports.html.markup import Html, element, folded, page, section, table
from bert_jax.reports.html.style import STYLE

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

NUM_SEQUENCES = 100  # shown, about as many of each source
PER_PAGE = 10
NUM_SEARCHED = 100_000  # sequences among which those of small sources are looked for
COLUMNS = 100  # of the figures as text


class Filter(NamedTuple):
    """A choice: its title, a name for each value, and the values that each shown sequence has, as indexes of names."""

    title: str
    letter: str  # begins the class of a value
    names: Sequence[str]
    values: Sequence[Sequence[int]]


def inspect_page(report: Report, tokenizer: "Tokenizer", sequences: Sequences | None, first: int) -> str:
    """Return an HTML page of a corpus or mixture.

    Args:
        report: its figures.
        tokenizer: of the corpus.
        sequences: of two token types; None: there are none.
        first: number of the first sequence that may be shown.
    """
    found = warnings(report)
    title = ", ".join(source.name for source in report.sources)
    filters, parts = _sequences(report, tokenizer, sequences, first) if sequences else ([], [])
    nothing = element("p", report.no_sequences, class_="note")
    return page(
        f"Corpus: {title}",
        STYLE + "".join(_rules(filters)),
        element("h1", title),
        element(
            "p", f"⚠ {len(found)} likely problems" if found else "✓ no warnings", class_="bad" if found else "good"
        ),
        element("ul", *(element("li", line) for line in found.values())) if found else "",
        section("Sources", _sources(report)),
        folded("All figures", element("pre", "\n".join(report_lines(report, tokenizer, COLUMNS, False)), tabindex=0)),
        section("Sequences", *(parts or [nothing])),
        element("p", f"Written by bert-jax inspect, version {__version__}.", class_="note"),
    )


def _sources(report: Report) -> Html:
    head = ("corpus", "language", "documents", "tokens", "held out", "stored of read", "rejected", "of the sequences")
    rows = []
    for source in report.sources:
        rejected = ", ".join(f"{count:,} {why}" for why, count in source.rejected.items()) or "none"
        stored = f"{source.prepared['stored']:,} of {source.prepared['in']:,}"
        sizes = (f"{source.train['documents']:,}", f"{source.train['tokens']:,}", f"{source.heldout['documents']:,}")
        fraction = "" if source.sequences_fraction is None else f"{source.sequences_fraction:.2%}"
        rows.append((source.name, source.prepared["language"], *sizes, stored, rejected, fraction))
    return table(head, rows, "sources")


def _sequences(
    report: Report, tokenizer: "Tokenizer", sequences: Sequences, first: int
) -> tuple[list[Filter], list[Html]]:
    numbers, sources = _chosen(sequences, len(report.sources), first)
    batch = sequences.batch(numbers)
    words = sequences.begins_word(numbers) if sequences.begins_word else [None] * len(numbers)
    shown = [show_sequence(batch, row, report.data, tokenizer, words[row]) for row in range(len(numbers))]
    names = [source.name for source in report.sources]
    spoken = [str(source.prepared["language"]) for source in report.sources]
    languages, signs = list(dict.fromkeys(spoken)), list(dict.fromkeys(sign for one in shown for sign in one.signs))
    filters = [
        Filter("Source", "s", names, [[source] for source in sources]),
        Filter("Language", "l", languages, [[languages.index(spoken[source])] for source in sources]),
        Filter("Warning", "w", signs, [[signs.index(sign) for sign in one.signs] for one in shown]),
    ]
    cards = [
        _card(row, number, f"{names[source]}, {spoken[source]}", one, filters)
        for row, (number, source, one) in enumerate(zip(numbers.tolist(), sources, shown, strict=True))
    ]
    begins = range(0, len(cards), PER_PAGE)
    pages = [element("div", *cards[begin : begin + PER_PAGE], class_=f"page p{at}") for at, begin in enumerate(begins)]
    each = "" if len(names) == 1 else ", about as many of each source"
    seq_len = batch["input_ids"].shape[1]
    said = (
        f"{len(cards)} sequences of {seq_len} tokens, from number {first:,} on{each}; an epoch has "
        f"{sequences.num_per_epoch:,}. A filter applies to all pages."
    )
    chosen = [_select(one) for one in filters if len(one.names) > (one.letter != "w")]
    labels = [f"{begin + 1} to {min(begin + PER_PAGE, len(cards))}" for begin in begins]
    return filters, [
        element("p", said),
        legend(tokenizer),
        element("div", *chosen, _radios(labels), class_="filters"),
        *pages,
        element("p", class_="shown note"),
    ]


def _chosen(sequences: Sequences, num_sources: int, first: int) -> tuple[np.ndarray, list[int]]:
    """Numbers int64 [any] from `first` on, about `NUM_SEQUENCES`, as many of each source; and their sources."""
    numbers = np.arange(first, first + (NUM_SEQUENCES if num_sources == 1 else NUM_SEARCHED))
    sources = sequences.source_of(numbers)
    each = max(1, NUM_SEQUENCES // num_sources)
    found = np.sort(np.concatenate([np.flatnonzero(sources == source)[:each] for source in range(num_sources)]))
    return numbers[found], sources[found].tolist()


def _card(row: int, number: int, source: str, shown: Shown, filters: Sequence[Filter]) -> Html:
    classes = [f"{one.letter}{value}" for one in filters for value in one.values[row]]
    return element(
        "div",
        element("h3", f"Sequence {number:,}"),
        element("p", f"{source}; {shown.figures}", class_="note"),
        element("p", *(element("span", f"⚠ {sign}", class_="bad") for sign in shown.signs)) if shown.signs else "",
        shown.body,
        class_=" ".join(["card", *classes]),
    )


def _select(chosen: Filter) -> Html:
    counts = [sum(at in values for values in chosen.values) for at in range(len(chosen.names))]
    options = [
        element("option", f"{name} ({count})", class_=f"one {chosen.letter}{at}")
        for at, (name, count) in enumerate(zip(chosen.names, counts, strict=True))
    ]
    return element("label", f"{chosen.title} ", element("select", element("option", "all"), *options))


def _radios(labels: Sequence[str]) -> Html:
    buttons = [
        element("label", element("input", type="radio", name="page", id=f"p{at}", checked=at == 0), label)
        for at, label in enumerate(labels)
    ]
    return element("fieldset", element("legend", "Page"), *buttons, class_="pages")


def _rules(filters: Sequence[Filter]) -> Iterable[str]:
    """Style rules that show the chosen page, or with a filter the sequences of all pages that it leaves.

    A browser without `:has` shows all of them.
    """
    if not filters:
        return
    number = -(-len(filters[0].values) // PER_PAGE)
    yield "@supports selector(:has(a)){.page{display:none}"
    yield from (f"main:has(#p{at}:checked) .p{at}{{display:block}}" for at in range(number))
    yield "main:has(option.one:checked) .page{display:block}main:has(option.one:checked) .pages{display:none}"
    for one in filters:
        for name in (f"{one.letter}{at}" for at in range(len(one.names))):
            yield f"main:has(option.{name}:checked) .card:not(.{name}){{display:none}}"
    yield "}@supports not selector(:has(a)){.filters{display:none}}"
