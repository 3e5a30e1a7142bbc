"""A corpus as an HTML page: figures, warnings, filters, and sequences in several pages."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.pipeline import Sequences
from bert_jax.reports.corpus.checks import corpus_warnings
from bert_jax.reports.corpus.figures import CorpusFigures, CorpusSource
from bert_jax.reports.corpus.inspect_text import figures_lines
from bert_jax.reports.corpus.sequences import ShownSequence, legend_of_marks, sequence_for_page
from bert_jax.reports.html.markup import Html, collapsible, element, page, section, small_paragraph, table, verdict_html

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

NUM_SEQUENCES = 100  # sequences on the page, about as many of each source
PER_PAGE = 10
NUM_SEARCHED = 100_000  # sequences that are searched for sequences of small sources
NO_WARNINGS = (
    "No check of documents, vocabulary and sequences has a warning. A warning below a sequence is about this sequence."
)
TEXT_WIDTH = 100  # columns of the lines with figures


class PageFilter(NamedTuple):
    """A filter of sequences: its title, the names of its values, and for each sequence the indexes of its values."""

    title: str
    letter: str  # first letter of the CSS class of a value
    names: Sequence[str]
    values: Sequence[Sequence[int]]


def inspect_page(figures: CorpusFigures, tokenizer: "Tokenizer", sequences: Sequences | None, first_number: int) -> str:
    """Return an HTML page of a corpus or mixture.

    Args:
        figures: figures of the corpus.
        tokenizer: tokenizer of the corpus.
        sequences: sequences with two token types; None: there are no sequences, for the reason in
            `figures.no_sequences`.
        first_number: number of the first sequence that may be shown.
    """
    warnings = list(corpus_warnings(figures).values())
    title = ", ".join(source.name for source in figures.sources)
    filters, parts = list[PageFilter](), [small_paragraph(figures.no_sequences)]
    if sequences:
        filters, parts = _filters_and_parts(figures, tokenizer, sequences, first_number)
    lines = figures_lines(figures, tokenizer, TEXT_WIDTH, False)
    return page(
        f"Corpus: {title}",
        element("h1", title),
        verdict_html("⚠ look at this" if warnings else "✓ looks healthy", bool(warnings), warnings or [NO_WARNINGS]),
        section("Sources", _source_table(figures.sources)),
        collapsible("All figures", element("pre", "\n".join(lines), tabindex=0)),
        section("Sequences", *parts),
        command="inspect",
        style="".join(_filter_style_rules(filters)),
    )


def _source_table(sources: Sequence[CorpusSource]) -> Html:
    head = ("corpus", "language", "documents", "tokens", "held out", "stored of read", "rejected", "of the sequences")
    rows = []
    for source in sources:
        rejected = ", ".join(f"{count:,} {reason}" for reason, count in source.rejected.items()) or "none"
        stored = f"{source.prepared['stored']:,} of {source.prepared['in']:,}"
        sizes = (f"{source.train['documents']:,}", f"{source.train['tokens']:,}", f"{source.heldout['documents']:,}")
        fraction = "" if source.sequences_fraction is None else f"{source.sequences_fraction:.2%}"
        rows.append((source.name, source.prepared["language"], *sizes, stored, rejected, fraction))
    return table(head, rows, "sources")


class _FiltersAndParts(NamedTuple):
    """The filters of the section on sequences, and the HTML parts of this section."""

    filters: list[PageFilter]
    parts: list[Html]


def _filters_and_parts(
    figures: CorpusFigures, tokenizer: "Tokenizer", sequences: Sequences, first_number: int
) -> _FiltersAndParts:
    """Return the filters of the page, and the HTML of its section on sequences."""
    numbers, sources = _choose_sequences(sequences, len(figures.sources), first_number)
    batch = sequences.batch(numbers)
    begins_word = sequences.begins_word(numbers) if sequences.begins_word else [None] * len(numbers)
    shown = [sequence_for_page(batch, row, figures.data, tokenizer, begins_word[row]) for row in range(len(numbers))]
    names = [source.name for source in figures.sources]
    language_of = [str(source.prepared["language"]) for source in figures.sources]
    languages = list(dict.fromkeys(language_of))
    warnings = list(dict.fromkeys(warning for sequence in shown for warning in sequence.warnings))
    filters = [
        PageFilter("Source", "s", names, [[source] for source in sources]),
        PageFilter("Language", "l", languages, [[languages.index(language_of[source])] for source in sources]),
        PageFilter("Warning", "w", warnings, [[warnings.index(name) for name in seq.warnings] for seq in shown]),
    ]
    cards = [
        _sequence_card(row, sequence_number, f"{names[source]}, {language_of[source]}", sequence, filters)
        for row, (sequence_number, source, sequence) in enumerate(zip(numbers.tolist(), sources, shown, strict=True))
    ]
    begins = range(0, len(cards), PER_PAGE)
    pages = [
        element("div", *cards[begin : begin + PER_PAGE], class_=f"page p{index}") for index, begin in enumerate(begins)
    ]
    each = "" if len(names) == 1 else ", about as many of each source"
    introduction = (
        f"{len(cards)} sequences of {batch['input_ids'].shape[1]} tokens, from number {first_number:,} on{each}; an "
        f"epoch has {sequences.num_per_epoch:,}. A filter applies to all pages."
    )
    # A filter by source or language needs two names; a filter by warning needs only one name.
    selects = [_filter_select(filter_) for filter_ in filters if len(filter_.names) > (filter_.letter != "w")]
    labels = [f"{begin + 1} to {min(begin + PER_PAGE, len(cards))}" for begin in begins]
    return _FiltersAndParts(
        filters,
        [
            element("p", introduction),
            legend_of_marks(tokenizer),
            element("div", *selects, _page_radios(labels), class_="filters"),
            *pages,
            element("p", class_="shown note"),
        ],
    )


class _ChosenSequences(NamedTuple):
    """The numbers of the chosen sequences, and the source of each sequence."""

    numbers: np.ndarray
    sources: list[int]


def _choose_sequences(sequences: Sequences, num_sources: int, first_number: int) -> _ChosenSequences:
    """Return the numbers of about `NUM_SEQUENCES` sequences, chosen evenly from all sources, and their sources."""
    numbers = np.arange(first_number, first_number + (NUM_SEQUENCES if num_sources == 1 else NUM_SEARCHED))
    sources = sequences.source_of(numbers)
    num_each = max(1, NUM_SEQUENCES // num_sources)
    chosen = np.sort(np.concatenate([np.flatnonzero(sources == source)[:num_each] for source in range(num_sources)]))
    return _ChosenSequences(numbers[chosen], sources[chosen].tolist())


def _sequence_card(
    row: int, sequence_number: int, source: str, sequence: ShownSequence, filters: Sequence[PageFilter]
) -> Html:
    classes = [f"{filter_.letter}{value}" for filter_ in filters for value in filter_.values[row]]
    warnings = [element("span", f"⚠ {warning}", class_="bad") for warning in sequence.warnings]
    return element(
        "div",
        element("h3", f"Sequence {sequence_number:,}"),
        small_paragraph(f"{source}; {sequence.figures}"),
        element("p", *warnings) if warnings else "",
        sequence.body,
        class_=" ".join(["card", *classes]),
    )


def _filter_select(filter_: PageFilter) -> Html:
    counts = [sum(value in values for values in filter_.values) for value in range(len(filter_.names))]
    options = [
        element("option", f"{name} ({count})", class_=f"filter {filter_.letter}{value}")
        for value, (name, count) in enumerate(zip(filter_.names, counts, strict=True))
    ]
    return element("label", f"{filter_.title} ", element("select", element("option", "all"), *options))


def _page_radios(labels: Sequence[str]) -> Html:
    buttons = [
        element("label", element("input", type="radio", name="page", id=f"p{index}", checked=index == 0), label)
        for index, label in enumerate(labels)
    ]
    return element("fieldset", element("legend", "Page"), *buttons, class_="pages")


def _filter_style_rules(filters: Sequence[PageFilter]) -> Iterable[str]:
    """Yield style rules that show the chosen page or, if a filter is on, the matching sequences of all pages.

    A browser that does not know the selector `:has` shows all sequences.
    """
    if not filters:
        return
    num_pages = -(-len(filters[0].values) // PER_PAGE)
    yield "@supports selector(:has(a)){.page{display:none}"
    yield from (f"main:has(#p{index}:checked) .p{index}{{display:block}}" for index in range(num_pages))
    yield "main:has(option.filter:checked) .page{display:block}main:has(option.filter:checked) .pages{display:none}"
    for filter_ in filters:
        for name in (f"{filter_.letter}{value}" for value in range(len(filter_.names))):
            yield f"main:has(option.{name}:checked) .card:not(.{name}){{display:none}}"
    yield "}@supports not selector(:has(a)){.filters{display:none}}"
