"""The figures, warnings and sequences of a corpus as text."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.batches.masking import MAX_WORD_TOKENS
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.console import text_table
from bert_jax.corpus.statistics import QUANTILES
from bert_jax.errors import escaped
from bert_jax.reports.corpus.examples import TEXT_NAMES, SequenceExample
from bert_jax.reports.corpus.figures import NO_SEGMENTER, CorpusFigures, CorpusSource
from bert_jax.reports.corpus.terminal import KEPT_SPACE, StyledText, paint, styled_lines, wrap_paragraphs

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

UNITS = ("documents", "sentences", "tokens")
BARS = " ▁▂▃▄▅▆▇█"
QUANTILE_NAMES = {0.0: "min", 0.05: "5%", 0.5: "median", 0.95: "95%", 1.0: "max"}
LEGEND: tuple[StyledText, ...] = (
    ("Tokens to predict, as [input|target]:", "text"),
    (" [MASK|word]", "mask"),
    (" hidden,", "text"),
    (" [other|word]", "random"),
    (" replaced at random,", "text"),
    (" [word|word]", "kept"),
    (" kept", "text"),
)
MIN_WIDTH = 8  # columns of the narrowest line of a text


def figures_lines(figures: CorpusFigures, tokenizer: "Tokenizer", width: int, color: bool) -> list[str]:
    """Return the lines of all figures: size, preparation, lengths, vocabulary, sequences."""
    blocks = {
        "text": _size_table(figures.sources),
        "preparation": wrap_paragraphs(_preparation_lines(figures), width - 2),
        "lengths": _length_tables(figures),
        "vocabulary": wrap_paragraphs(_vocabulary_lines(figures, tokenizer), width - 2),
        "sequences": wrap_paragraphs(_sequence_figure_lines(figures), width - 2),
    }
    lines = []
    for title, block in blocks.items():
        lines += [paint(title, "title", color), *(f"  {escaped(line)}".rstrip() for line in block), ""]
    return lines


def warning_lines(warnings: Mapping[str, str], width: int, color: bool) -> list[str]:
    """Return the warnings as lines, or the line "no warnings"."""
    if not warnings:
        return [paint("no warnings", "kept", color), ""]
    lines = wrap_paragraphs(list(warnings.values()), width, "  - ", "    ")
    return [paint("warnings", "random", color), *lines, ""]


def sequences_lines(
    examples: Mapping[int, Sequence[SequenceExample]],
    num_per_epoch: int,
    seq_len: int,
    sentence_pairs: str,
    width: int,
    color: bool,
) -> list[str]:
    """Return a legend and the lines of sequences; the keys of `examples` are sequence numbers."""
    lines = styled_lines(LEGEND, width, color)
    for sequence_number, sequence in examples.items():
        styles = [piece.style for example in sequence for text in example.texts for piece in text]
        num_hidden, num_random, num_kept = (styles.count(style) for style in ("mask", "random", "kept"))
        epoch, index = divmod(sequence_number, num_per_epoch)
        about = (
            f" ({index + 1:,} of {num_per_epoch:,} in epoch {epoch + 1:,}; {seq_len} tokens, "
            f"{num_hidden + num_random + num_kept} to predict: {num_hidden} hidden, {num_random} random, "
            f"{num_kept} kept)"
        )
        lines += ["", *styled_lines([(f"sequence {sequence_number:,}", "title"), (about, "text")], width, color)]
        lines += example_lines(sequence, sentence_pairs, width, color)
    return lines


def example_lines(examples: Sequence[SequenceExample], sentence_pairs: str, width: int, color: bool) -> list[str]:
    """Return lines of at most `width` columns about a sequence's examples: label, meaning of the label, and texts."""
    meanings = SENTENCE_PAIRS[sentence_pairs].label_meanings or ("", "")
    lines = []
    for rank, example in enumerate(examples, 1):
        titles = [f"example {rank} of {len(examples)}"] if len(examples) > 1 else []
        if example.label is not None:
            titles.append(f"label {example.label}: {meanings[example.label]}")
        if titles:
            title = styled_lines([(", ".join(titles), "title")], max(MIN_WIDTH, width - 2), color)
            lines += [f"  {line}" for line in title]
        for name, pieces in zip(TEXT_NAMES, example.texts, strict=False):
            head = f"  {name} " if len(example.texts) > 1 else "    "
            spans = [(piece.text, piece.style) for piece in pieces]
            for index, line in enumerate(styled_lines(spans, max(MIN_WIDTH, width - len(head)), color)):
                lines.append((" " * len(head) if index else head) + line)
    return lines


def _size_table(sources: Sequence[CorpusSource]) -> list[str]:
    """Return a table with the documents, sentences and tokens of each split and each corpus."""
    many = len(sources) > 1
    rows = [["", *UNITS, *(["of the tokens", "of the sequences", "epochs"] if many else [])]]
    for split in ("train", "heldout"):
        sizes = [getattr(source, split) for source in sources]
        total = [f"{sum(size[unit] for size in sizes):,}" for unit in UNITS]
        rows.append([split, *total, *([""] * 3 if many else [])])
        if many and split == "train":
            for source in sources:
                fraction = "-" if source.sequences_fraction is None else f"{source.sequences_fraction:.2%}"
                epochs = "-" if source.epochs is None else f"{source.epochs:,.2f}"
                cells = [f"{source.train[unit]:,}" for unit in UNITS]
                rows.append([f"  {source.name}", *cells, f"{source.tokens_fraction:.2%}", fraction, epochs])
    return text_table(rows)


def _preparation_lines(figures: CorpusFigures) -> list[str]:
    """Return lines about stored, rejected, changed and duplicate documents."""
    # These modules are imported here, because they load the libraries that prepare text.
    from bert_jax.corpus.build.summary import describe_sentence_rule, format_tokenizer_changes
    from bert_jax.corpus.languages import NO_LANGUAGE
    from bert_jax.readers.rejections import describe_rejections

    lines = []
    for source in figures.sources:
        language, segmenter, cut = (source.prepared[key] for key in ("language", "segmenter", "sentences_split"))
        if segmenter != NO_SEGMENTER:
            rule = describe_sentence_rule(language, segmenter)
        else:
            rule = "every line is a sentence" if language == NO_LANGUAGE else f"sentences split as in '{language}'"
        name = f"{source.name}: " if len(figures.sources) > 1 else ""
        lines.append(
            f"{name}{source.prepared['in']:,} documents in = {source.prepared['stored']:,} stored + "
            f"{sum(source.rejected.values()):,} rejected"
            + (f" ({describe_rejections(source.rejected)})" if source.rejected else "")
            + (f"; {cut:,} overlong sentence{'s' * (cut != 1)} cut" if cut else "")
            + f"; {rule}"
        )
        lost = _format_percent(source.prepared["unknown_character_fraction"])
        lines.append(f"{name}characters lost in unknown tokens: {lost}; {format_tokenizer_changes(source.prepared)}")
    copies, leaks = figures.duplicates, figures.leaks
    lines.append(
        f"copies of an earlier document: {copies.repeated:,} of {copies.train:,} training documents "
        f"({copies.repeated / copies.train:.1%})"
        + (
            f"; {copies.leaked:,} of {copies.heldout:,} held-out documents are in training too"
            if copies.heldout
            else ""
        )
        + ("" if copies.exact else " (a sample)")
    )
    lines.append(f"an evaluation has about {figures.num_predictions:,} predictions")
    if leaks.heldout:
        lines.append(
            f"near copies across the split: {leaks.near:,} of {leaks.heldout:,} held-out documents, compared with "
            f"{leaks.train:,} training documents"
        )
    return lines


def _length_tables(figures: CorpusFigures) -> list[str]:
    """Return quantiles and a histogram for each kind of length; each bar of a histogram covers a doubling."""
    distributions = {
        "tokens per document": figures.documents,
        "sentences per document": figures.sentences_per_document,
        "tokens per sentence": figures.tokens.sentences,
    }
    table = [["", *QUANTILE_NAMES.values(), "mean"]]
    bars = [["", "from", "histogram, one bar per doubling", "below"]]
    for name, lengths in distributions.items():
        values = dict(zip(QUANTILES, lengths.quantiles, strict=True))
        table.append([name, *(f"{values[quantile]:,}" for quantile in QUANTILE_NAMES), f"{lengths.mean:,.1f}"])
        counts = np.array(lengths.doublings)
        first = int(np.flatnonzero(counts)[0])
        # A count above 0 has a visible bar.
        heights = np.ceil(counts[first:] / counts.max() * (len(BARS) - 1)).astype(int)
        histogram = "".join(BARS[height] for height in heights)
        bars.append([name, f"{1 << first:,}", histogram, f"{1 << len(counts):,}"])
    return [*text_table(table), *text_table(bars, left=(0, 2, 3))]


def _vocabulary_lines(figures: CorpusFigures, tokenizer: "Tokenizer") -> list[str]:
    case, tokens = "uncased" if figures.tokenizer["lowercase"] else "cased", figures.tokens
    counted = "all tokens" if tokens.records == tokens.num_records else f"a sample of {tokens.tokens:,} tokens"
    frequent = "  ".join(f"{token}{KEPT_SPACE}{fraction:.1%}" for token, fraction in figures.frequent)
    return [
        f"{tokenizer.kind.name}, {case}, {len(tokens.counts):,} tokens, {figures.unused:,} of them never used "
        f"({figures.unused / len(tokens.counts):.1%}); counted over {counted}",
        f"{tokens.characters_per_word / tokens.tokens_per_word:.2f} characters per token; "
        f"{tokens.tokens_per_word:.2f} tokens per word of {tokens.characters_per_word:.1f} characters; "
        f"{_format_percent(tokens.unknown)} unknown",
        *_masked_word_lines(figures),
        f"most frequent:  {frequent}",
    ]


def _masked_word_lines(figures: CorpusFigures) -> list[str]:
    """Return lines about the tokens that whole-word masking masks together, with and without a segmenter."""
    tokens = figures.tokens
    line = (
        f"{_format_percent(tokens.joined)} of the tokens in words of several tokens, which whole-word masking masks "
        f"together; {_format_percent(tokens.long_words)} in words of more than {MAX_WORD_TOKENS} tokens, which it "
        "masks token by token"
    )
    if tokens.joined_by_vocabulary is None or tokens.long_words_by_vocabulary is None:
        return [line]
    segmenters = dict.fromkeys(source.prepared["segmenter"] for source in figures.sources)
    return [
        f"words by {', '.join(name for name in segmenters if name != NO_SEGMENTER)}: {line}",
        f"words by the vocabulary alone: {_format_percent(tokens.joined_by_vocabulary)} and "
        f"{_format_percent(tokens.long_words_by_vocabulary)}",
    ]


def _sequence_figure_lines(figures: CorpusFigures) -> list[str]:
    """Return lines about length, fill, predicted tokens and coverage of the sequences."""
    sequences, data = figures.sequences, figures.data
    if sequences is None:
        return [f"none: {figures.no_sequences}"]
    count, per_epoch = sequences.num_sequences, sequences.num_per_epoch
    counted = f"the first {count:,} of {per_epoch:,}" if count < per_epoch else f"all {count:,}"
    lines = [
        f"seq_len {sequences.seq_len}, sentence_pairs {data.sentence_pairs}, masking {data.masking}, packing "
        f"{data.packing}; figures of {counted} sequences of an epoch",
        f"{sequences.fill:.1%} full, {sequences.examples:.2f} example{'s' * (sequences.examples != 1)} per sequence",
        f"{sequences.predicted:.2%} of the tokens to predict: {sequences.masked:.1%} hidden, {sequences.random:.1%} "
        f"replaced at random, {sequences.unchanged:.1%} kept; {_format_percent(sequences.idle)} of the sequences "
        "without any",
    ]
    if figures.coverage:
        in_one, in_two = figures.coverage
        lines.append(f"{in_one:.2%} of the tokens are in a sequence of an epoch, {in_two:.2%} in one of two epochs")
    meanings = SENTENCE_PAIRS[data.sentence_pairs].label_meanings
    if sequences.positive_pairs is not None and meanings:
        lines.append(f"{sequences.positive_pairs:.1%} of the pairs have label 1: {meanings[1]}")
    return lines


def _format_percent(fraction: float) -> str:
    """Return a percentage with two decimals, or with one significant digit if two decimals would be 0."""
    return f"{fraction:.2%}" if fraction >= 1e-4 else f"{100 * fraction:.1g}%"
