"""The figures of a corpus as text and as JSON."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.batches.masking import MAX_WORD_TOKENS
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.corpus.statistics import QUANTILES, Distribution
from bert_jax.reports.corpus.checks import Report, Source
from bert_jax.reports.corpus.sequences_text import (
    Example,
    example_lines,
    legend,
    paint,
    plain_text,
    printable,
    vocabulary_entry,
    wrapped,
)

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

MOST_FREQUENT = 20
KEPT_SPACE = "\xa0"  # no line is broken here
BARS = " ▁▂▃▄▅▆▇█"
SHOWN_QUANTILES = {0.0: "min", 0.05: "5%", 0.5: "median", 0.95: "95%", 1.0: "max"}


def report_lines(report: Report, tokenizer: "Tokenizer", width: int, color: bool) -> list[str]:
    """Return the figures in blocks: size, preparation, lengths, vocabulary, sequences."""
    blocks = {
        "text": _sizes(report.sources),
        "preparation": _preparation(report, width),
        "lengths": _lengths(report),
        "vocabulary": _vocabulary(report, tokenizer, width),
        "sequences": _sequences(report, width),
    }
    lines = []
    for title, block in blocks.items():
        lines += [paint(title, "title", color), *(f"  {line}".rstrip() for line in block), ""]
    return lines


def warning_lines(warnings: Mapping[str, str], width: int, color: bool) -> list[str]:
    """Return the warnings, or a line that there are none."""
    if not warnings:
        return [paint("no warnings", "kept", color), ""]
    lines = [paint("warnings", "random", color)]
    for line in warnings.values():
        lines += textwrap.wrap(line, width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
    return [*lines, ""]


def sequences_lines(
    shown: Mapping[int, Sequence[Example]],
    num_per_epoch: int,
    seq_len: int,
    sentence_pairs: str,
    width: int,
    color: bool,
) -> list[str]:
    """Return sequences as text under a legend; `shown` maps their numbers to their examples."""
    lines = wrapped(legend(), width, color)
    for number, examples in shown.items():
        pieces = [piece for example in examples for text in example.texts for piece in text]
        kinds = {style: sum(piece.style == style for piece in pieces) for style in ("mask", "random", "kept")}
        epoch, index = divmod(number, num_per_epoch)
        about = (
            f" ({index + 1:,} of {num_per_epoch:,} in epoch {epoch + 1:,}; {seq_len} tokens, {sum(kinds.values())} to "
            f"predict: {kinds['mask']} hidden, {kinds['random']} random, {kinds['kept']} kept)"
        )
        lines += ["", *wrapped([(f"sequence {number:,}", "title"), (about, "text")], width, color)]
        lines += example_lines(examples, sentence_pairs, width, color)
    return lines


def as_json(
    report: Report, tokenizer: "Tokenizer", warnings: Mapping[str, str], shown: Mapping[int, Sequence[Example]]
) -> dict[str, Any]:
    """Return plain values for JSON: counts, and fractions from 0 to 1."""
    tokens = dict(vars(report.tokens))
    del tokens["counts"]
    return {
        "sources": [source._asdict() for source in report.sources],
        "tokenizer": report.tokenizer,
        "document_tokens": _distribution_json(report.documents),
        "document_sentences": _distribution_json(report.sentences_per_document),
        "sentence_tokens": _distribution_json(tokens.pop("sentences")),
        "one_sentence_fraction": report.one_sentence,
        "tokens": tokens,
        "most_frequent": [
            {"token": token, "fraction": fraction} for token, fraction in _most_frequent(report, tokenizer)
        ],
        "vocabulary_unused": report.unused,
        "duplicates": report.duplicates._asdict(),
        "leaks": report.leaks._asdict(),
        "sequences": report.sequences and vars(report.sequences),
        "no_sequences": report.no_sequences,
        "coverage": report.coverage and {"one epoch": report.coverage[0], "two epochs": report.coverage[1]},
        "warnings": dict(warnings),
        "examples": [
            {"sequence": number, "label": example.label, "texts": [plain_text(text) for text in example.texts]}
            for number, examples in shown.items()
            for example in examples
        ],
    }


def _distribution_json(found: Distribution) -> dict[str, Any]:
    return {
        "number": found.number,
        "mean": found.mean,
        "quantiles": {f"{each:g}": value for each, value in zip(QUANTILES, found.quantiles, strict=True)},
        "from_powers_of_two": {str(1 << power): number for power, number in enumerate(found.doublings)},
    }


def _sizes(sources: Sequence[Source]) -> list[str]:
    many = len(sources) > 1
    head = ["", "documents", "sentences", "tokens", *(["of the tokens", "of the sequences", "epochs"] if many else [])]
    table = [head]
    for split in ("train", "heldout"):
        found = [getattr(source, split) for source in sources]
        total = [f"{sum(each[unit] for each in found):,}" for unit in ("documents", "sentences", "tokens")]
        table.append([split, *total, *([""] * 3 if many else [])])
        if many and split == "train":
            for source, each in zip(sources, found, strict=True):
                sequences = "-" if source.sequences_fraction is None else f"{source.sequences_fraction:.2%}"
                own = [f"{each[unit]:,}" for unit in ("documents", "sentences", "tokens")]
                epochs = "-" if source.epochs is None else f"{source.epochs:,.2f}"
                table.append([f"  {source.name}", *own, f"{source.tokens_fraction:.2%}", sequences, epochs])
    return _table(table)


def _preparation(report: Report, width: int) -> list[str]:
    # Imported here: these load the libraries that prepare text.
    from bert_jax.corpus.build.sentences import NO_LANGUAGE
    from bert_jax.corpus.build.summary import format_changes, sentence_rule
    from bert_jax.readers.rejections import describe_rejections

    lines = []
    for source in report.sources:
        language, segmenter = source.prepared["language"], source.prepared["segmenter"]
        rule = "every line is a sentence" if language == NO_LANGUAGE else f"sentences split as in '{language}'"
        rule = rule if segmenter == "none" else sentence_rule(language, segmenter)
        name = f"{source.name}: " if len(report.sources) > 1 else ""
        cut = source.prepared["sentences_split"]
        lines.append(
            f"{name}{source.prepared['in']:,} documents in = {source.prepared['stored']:,} stored + "
            f"{sum(source.rejected.values()):,} rejected"
            + (f" ({describe_rejections(source.rejected)})" if source.rejected else "")
            + (f"; {cut:,} overlong sentence{'s' * (cut != 1)} cut" if cut else "")
            + f"; {rule}"
        )
        lost = source.prepared.get("unknown_character_fraction")  # the first manifests lack it
        lost_text = "" if lost is None else f"characters lost in unknown tokens: {_percent(lost)}; "
        lines.append(f"{name}{lost_text}{format_changes(source.prepared)}")
    found = report.duplicates
    copies = f"{found.repeated:,} of {found.train:,} training documents ({found.repeated / found.train:.1%})"
    lines.append(
        f"copies of an earlier document: {copies}"
        + (f"; {found.leaked:,} of {found.heldout:,} held-out documents are in training too" if found.heldout else "")
        + ("" if found.exact else " (a sample)")
    )
    if (leaks := report.leaks).heldout:
        lines.append(
            f"near copies across the split: {leaks.near:,} of {leaks.heldout:,} held-out documents, compared with "
            f"{leaks.train:,} training documents"
        )
    return _filled(lines, width)


def _lengths(report: Report) -> list[str]:
    rows = {
        "tokens per document": report.documents,
        "sentences per document": report.sentences_per_document,
        "tokens per sentence": report.tokens.sentences,
    }
    table = [["", *SHOWN_QUANTILES.values(), "mean"]]
    bars = [["", "from", "histogram, one bar per doubling", "below"]]
    for name, found in rows.items():
        values = dict(zip(QUANTILES, found.quantiles, strict=True))
        table.append([name, *(f"{values[each]:,}" for each in SHOWN_QUANTILES), f"{found.mean:,.1f}"])
        bars.append([name, *_bars(found)])
    return [*_table(table), *_table(bars, left=(0, 2, 3))]


def _bars(found: Distribution) -> tuple[str, str, str]:
    """Where the first bar begins, one bar per doubling of the length, where the last bar ends."""
    counts = np.array(found.doublings)
    first = int(np.flatnonzero(counts)[0])
    heights = np.ceil(counts[first:] / counts.max() * (len(BARS) - 1)).astype(int)  # a count above 0 has a visible bar
    return f"{1 << first:,}", "".join(BARS[height] for height in heights), f"{1 << len(counts):,}"


def _vocabulary(report: Report, tokenizer: "Tokenizer", width: int) -> list[str]:
    case, tokens = "uncased" if report.tokenizer["lowercase"] else "cased", report.tokens
    seen = "all tokens" if tokens.records == tokens.num_records else f"a sample of {tokens.tokens:,} tokens"
    frequent = "  ".join(f"{token}{KEPT_SPACE}{part:.1%}" for token, part in _most_frequent(report, tokenizer))
    return _filled(
        [
            f"{tokenizer.kind.name}, {case}, {len(tokens.counts):,} tokens, {report.unused:,} of them never used "
            f"({report.unused / len(tokens.counts):.1%}); counted over {seen}",
            f"{tokens.characters_per_word / tokens.tokens_per_word:.2f} characters per token; "
            f"{tokens.tokens_per_word:.2f} tokens per word of {tokens.characters_per_word:.1f} characters; "
            f"{_percent(tokens.unknown)} unknown",
            *_words(report),
            f"most frequent:  {frequent}",
        ],
        width,
    )


def _words(report: Report) -> list[str]:
    """What whole-word masking masks together, with and without the words of a segmenter."""
    tokens, names = report.tokens, dict.fromkeys(source.prepared["segmenter"] for source in report.sources)

    def line(joined: float, long_words: float) -> str:
        return (
            f"{_percent(joined)} of the tokens in words of several tokens, which whole-word masking masks together; "
            f"{_percent(long_words)} in words of more than {MAX_WORD_TOKENS} tokens, which it masks token by token"
        )

    if tokens.joined_by_vocabulary is None or tokens.long_words_by_vocabulary is None:
        return [line(tokens.joined, tokens.long_words)]
    found = ", ".join(name for name in names if name != "none")
    return [
        f"words by {found}: {line(tokens.joined, tokens.long_words)}",
        f"words by the vocabulary alone: {_percent(tokens.joined_by_vocabulary)} and "
        f"{_percent(tokens.long_words_by_vocabulary)}",
    ]


def _most_frequent(report: Report, tokenizer: "Tokenizer") -> list[tuple[str, float]]:
    """Tokens as the vocabulary spells them, with their fractions of all tokens."""
    counts = report.tokens.counts
    order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
    return [
        (printable(vocabulary_entry(number, tokenizer)), float(counts[number] / report.tokens.tokens))
        for number in order.tolist()
        if counts[number]
    ]


def _sequences(report: Report, width: int) -> list[str]:
    figures, data = report.sequences, report.data
    if figures is None:
        return _filled([f"none: {report.no_sequences}"], width)
    number, per_epoch = figures.num_sequences, figures.num_per_epoch
    seen = f"the first {number:,} of {per_epoch:,}" if number < per_epoch else f"all {number:,}"
    lines = [
        f"seq_len {figures.seq_len}, sentence_pairs {data.sentence_pairs}, masking {data.masking}, packing "
        f"{data.packing}; figures of {seen} sequences of an epoch",
        f"{figures.fill:.1%} full, {figures.examples:.2f} example{'s' * (figures.examples != 1)} per sequence",
        f"{figures.predicted:.2%} of the tokens to predict: {figures.masked:.1%} hidden, {figures.random:.1%} replaced "
        f"at random, {figures.kept:.1%} kept; {_percent(figures.idle)} of the sequences without any",
    ]
    if report.coverage:
        one, two = report.coverage
        lines.append(f"{one:.2%} of the tokens are in a sequence of an epoch, {two:.2%} in one of two epochs")
    meanings = SENTENCE_PAIRS[data.sentence_pairs].label_meanings
    if figures.labelled is not None and meanings:
        lines.append(f"{figures.labelled:.1%} of the pairs have label 1: {meanings[1]}")
    return _filled(lines, width)


def _percent(fraction: float) -> str:
    """A percentage with two decimals, or with one significant digit where those would be 0."""
    return f"{fraction:.2%}" if fraction >= 1e-4 else f"{100 * fraction:.1g}%"


def _filled(lines: Sequence[str], width: int) -> list[str]:
    found = [
        part
        for line in lines
        for part in textwrap.wrap(line, width - 2, subsequent_indent="  ", break_on_hyphens=False)
    ]
    return [line.replace(KEPT_SPACE, " ") for line in found]


def _table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(size) if number in left else cell.rjust(size)
            for number, (cell, size) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
