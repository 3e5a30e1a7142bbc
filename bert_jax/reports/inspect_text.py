"""The figures of a corpus for a person and for a program."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax.data.sources.rejections import describe_rejections
from bert_jax.data.preparation.encoding import NO_LANGUAGE
from bert_jax.data.statistics import QUANTILES, Distribution
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.reports.corpus_checks import Report, Source
from bert_jax.reports.sequences_text import Example, entry, legend, paint, plain_text, printable, row_lines, wrapped

MOST_FREQUENT = 20
KEPT_SPACE = "\xa0"  # where no line is broken
BARS = " ▁▂▃▄▅▆▇█"
SHOWN = {0.0: "least", 0.05: "5%", 0.5: "median", 0.95: "95%", 1.0: "most"}  # of `QUANTILES`
LABELLED = {"next_sentence": "a random second text", "sentence_order": "a changed order"}


def report_lines(report: Report, tokenizer: Tokenizer, width: int, colour: bool) -> list[str]:
    """The figures, a block each: size, preparation, lengths, vocabulary, rows."""
    blocks = {
        "text": _sizes(report.sources),
        "preparation": _preparation(report, width),
        "lengths": _lengths(report),
        "vocabulary": _vocabulary(report, tokenizer, width),
        "rows": _rows(report, width),
    }
    lines = []
    for title, block in blocks.items():
        lines += [paint(title, "title", colour), *(f"  {line}".rstrip() for line in block), ""]
    return lines


def warning_lines(warnings: Mapping[str, str], width: int, colour: bool) -> list[str]:
    """The warnings, or that there are none."""
    if not warnings:
        return [paint("no warnings", "kept", colour), ""]
    lines = [paint("warnings", "random", colour)]
    for line in warnings.values():
        lines += textwrap.wrap(line, width, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
    return [*lines, ""]


def rows_lines(
    shown: Mapping[int, Sequence[Example]], per_epoch: int, length: int, pairing: str, width: int, colour: bool
) -> list[str]:
    """Rows as text under a legend."""
    lines = wrapped(legend(), width, colour)
    for number, examples in shown.items():
        pieces = [piece for example in examples for part in example.parts for piece in part]
        kinds = {style: sum(piece.style == style for piece in pieces) for style in ("mask", "random", "kept")}
        about = (
            f" (epoch {number // per_epoch + 1:,}, row {number % per_epoch + 1:,} of {per_epoch:,}; {length} tokens "
            f"long, {sum(kinds.values())} to predict: {kinds['mask']} hidden, {kinds['random']} random, "
            f"{kinds['kept']} kept)"
        )
        lines += ["", *wrapped([(f"row {number:,}", "title"), (about, "text")], width, colour)]
        lines += row_lines(examples, pairing, width, colour)
    return lines


def as_json(
    report: Report, tokenizer: Tokenizer, warnings: Mapping[str, str], shown: Mapping[int, Sequence[Example]]
) -> dict[str, Any]:
    """Plain values: counts, and shares from 0 to 1."""
    tokens = report.tokens._asdict()
    del tokens["counts"]
    return {
        "sources": [source._asdict() for source in report.sources],
        "tokenizer": report.tokenizer,
        "document_tokens": _distribution_json(report.documents),
        "document_sentences": _distribution_json(report.sentences_a_document),
        "sentence_tokens": _distribution_json(tokens.pop("sentences")),
        "one_sentence_share": report.one_sentence,
        "tokens": tokens,
        "most_frequent": [{"token": token, "share": share} for token, share in _frequent(report, tokenizer)],
        "vocabulary_unused": report.unused,
        "duplicates": report.duplicates._asdict(),
        "rows": report.rows and report.rows._asdict(),
        "no_rows": report.no_rows,
        "warnings": dict(warnings),
        "examples": [
            {"row": number, "label": example.label, "texts": [plain_text(part) for part in example.parts]}
            for number, examples in shown.items()
            for example in examples
        ],
    }


def _distribution_json(found: Distribution) -> dict[str, Any]:
    return {
        "number": found.number,
        "mean": found.mean,
        "quantiles": {f"{share:g}": value for share, value in zip(QUANTILES, found.quantiles, strict=True)},
        "from_powers_of_two": {str(1 << power): number for power, number in enumerate(found.doublings)},
    }


def _sizes(sources: Sequence[Source]) -> list[str]:
    many = len(sources) > 1
    head = ["", "documents", "sentences", "tokens", *(["of the tokens", "of the rows"] if many else [])]
    table = [head]
    for split in ("train", "heldout"):
        found = [getattr(source, split) for source in sources]
        total = [f"{sum(each[unit] for each in found):,}" for unit in ("documents", "sentences", "tokens")]
        table.append([split, *total, *([""] * 2 if many else [])])
        if many and split == "train":
            for source, each in zip(sources, found, strict=True):
                rows = "-" if source.rows_share is None else f"{source.rows_share:.2%}"
                own = [f"{each[unit]:,}" for unit in ("documents", "sentences", "tokens")]
                table.append([f"  {source.name}", *own, f"{source.tokens_share:.2%}", rows])
    return _table(table)


def _preparation(report: Report, width: int) -> list[str]:
    lines = []
    for source in report.sources:
        language = source.prepared["language"]
        name = f"{source.name}: " if len(report.sources) > 1 else ""
        cut = source.prepared["sentences_split"]
        lines.append(
            f"{name}{source.prepared['in']:,} documents in = {source.prepared['stored']:,} stored + "
            f"{sum(source.rejected.values()):,} rejected"
            + (f" ({describe_rejections(source.rejected)})" if source.rejected else "")
            + (f"; {cut:,} overlong sentence{'s' * (cut != 1)} cut" if cut else "")
            + ("; a line is a sentence" if language == NO_LANGUAGE else f"; sentences by the rules of '{language}'")
        )
    found = report.duplicates
    copies = f"{found.repeated:,} of {found.train:,} training documents ({found.repeated / found.train:.1%})"
    lines.append(
        f"repeat an earlier one word for word: {copies}"
        + (f"; {found.leaked:,} of {found.heldout:,} held-out ones are trained on too" if found.heldout else "")
        + ("" if found.exact else " (a sample)")
    )
    return _filled(lines, width)


def _lengths(report: Report) -> list[str]:
    rows = {
        "tokens a document": report.documents,
        "sentences a document": report.sentences_a_document,
        "tokens a sentence": report.tokens.sentences,
    }
    table = [["", *SHOWN.values(), "mean"]]
    bars = [["", "from", "histogram, a bar a doubling", "below"]]
    for name, found in rows.items():
        values = dict(zip(QUANTILES, found.quantiles, strict=True))
        table.append([name, *(f"{values[share]:,}" for share in SHOWN), f"{found.mean:,.1f}"])
        bars.append([name, *_bars(found)])
    return [*_table(table), *_table(bars, left=(0, 2, 3))]


def _bars(found: Distribution) -> tuple[str, str, str]:
    """Where the first bar begins, a bar a doubling of the length, where the last one ends."""
    counts = np.array(found.doublings)
    first = int(np.flatnonzero(counts)[0])
    heights = np.ceil(counts[first:] / counts.max() * (len(BARS) - 1)).astype(int)  # what is there at all is seen
    return f"{1 << first:,}", "".join(BARS[height] for height in heights), f"{1 << len(counts):,}"


def _vocabulary(report: Report, tokenizer: Tokenizer, width: int) -> list[str]:
    facts, tokens = report.tokenizer, report.tokens
    seen = "all tokens" if tokens.records == tokens.of_records else f"{tokens.tokens:,} tokens, a sample"
    frequent = "  ".join(f"{token}{KEPT_SPACE}{share:.1%}" for token, share in _frequent(report, tokenizer))
    return _filled(
        [
            f"{tokenizer.kind.name}, {'uncased' if facts['lowercase'] else 'cased'}, {len(tokens.counts):,} tokens, "
            f"{report.unused:,} of them never used ({report.unused / len(tokens.counts):.1%}); counted over {seen}",
            f"{tokens.characters_a_word / tokens.pieces_a_word:.2f} characters a token; "
            f"{tokens.pieces_a_word:.2f} tokens a word as the vocabulary parts them, of {tokens.characters_a_word:.1f} "
            "characters; "
            f"{_percent(tokens.unknown)} unknown",
            f"most frequent:  {frequent}",
        ],
        width,
    )


def _frequent(report: Report, tokenizer: Tokenizer) -> list[tuple[str, float]]:
    """Tokens as the vocabulary spells them, with their shares."""
    counts = report.tokens.counts
    order = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
    return [
        (printable(entry(number, tokenizer)), float(counts[number] / report.tokens.tokens))
        for number in order.tolist()
        if counts[number]
    ]


def _rows(report: Report, width: int) -> list[str]:
    rows, data = report.rows, report.data
    if rows is None:
        return _filled([f"none: {report.no_rows}"], width)
    seen = f"{rows.rows:,} of the {rows.per_epoch:,} rows of an epoch"
    lines = [
        f"{rows.length} tokens long, pairing {data.sentence_pairs}, masking {data.masking}, packing {data.packing}; these "
        f"figures: {seen if rows.rows < rows.per_epoch else f'all {rows.rows:,} rows of an epoch'}",
        f"{rows.fill:.1%} full, {rows.examples:.2f} example{'s' * (rows.examples != 1)} a row",
        f"{rows.predicted:.2%} of the tokens to predict: {rows.masked:.1%} hidden, {rows.random:.1%} replaced at "
        f"random, {rows.kept:.1%} left as they are; {_percent(rows.idle)} of the rows without any",
    ]
    if rows.labelled is not None:
        lines.append(f"{rows.labelled:.1%} of the pairs have {LABELLED[data.sentence_pairs]} (label 1)")
    return _filled(lines, width)


def _percent(share: float) -> str:
    """As precise as it takes to tell a small share from none."""
    return f"{share:.2%}" if share >= 1e-4 else f"{100 * share:.1g}%"


def _filled(lines: Sequence[str], width: int) -> list[str]:
    found = [part for line in lines for part in textwrap.wrap(line, width - 2, subsequent_indent="  ")]
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
