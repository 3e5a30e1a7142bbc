"""What in a corpus or in its rows will hurt a training, each in a line with what to do about it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.config import DataConfig
from bert_jax.data.sequences.sampling import SENTENCE_PAIRS
from bert_jax.data.statistics import Distribution, Duplicates, RowFigures, Tokens

NEARLY_ALL_RANDOM = 0.75  # of the pairs; half of them should be
ONE_SENTENCE = 0.5  # of the documents
MANY_DUPLICATES = 0.05  # of the documents
LEAKED = 0.01  # of the held-out documents
MANY_UNKNOWN = 0.01  # of the tokens
MANY_PIECES = 2.5  # a word
LONG_WORDS = 12  # characters, on average: a script without spaces, of which a word is no measure
LARGE_PART_UNUSED = 0.5  # of the vocabulary
LOW_FILL = 0.7
SHORTEST = 8  # tokens of an example that is worth a place in a row
BOUND_BY_PACKING = 0.8  # examples a row, of those that packing allows: fewer are bound by their lengths
IDLE = 0.01  # of the rows


class Source(NamedTuple):
    """A corpus, alone or one of a mixture. `prepared` is from its manifest; `tokens_share` and `rows_share` of all."""

    name: str
    train: dict[str, int]
    heldout: dict[str, int]
    prepared: dict[str, Any]
    rejected: dict[str, int]
    tokens_share: float
    rows_share: float | None


class Report(NamedTuple):
    """All that is known; `rows` is None where the text cannot be made into rows, for the reason `no_rows`."""

    sources: tuple[Source, ...]
    tokenizer: dict[str, str | int | bool]
    documents: Distribution
    sentences_a_document: Distribution
    one_sentence: float
    tokens: Tokens
    unused: int
    duplicates: Duplicates
    rows: RowFigures | None
    no_rows: str
    data: DataConfig


def warnings(report: Report) -> dict[str, str]:
    """The lines of `CHECKS` and `ROW_CHECKS` that say something, by name."""
    found = {name: line for name, check in CHECKS.items() if (line := check(report))}
    return found | (row_warnings(report.rows, report.data) if report.rows else {})


def row_warnings(rows: RowFigures, data: DataConfig) -> dict[str, str]:
    """The lines of `ROW_CHECKS` that say something, by name."""
    return {name: line for name, check in ROW_CHECKS.items() if (line := check(rows, data))}


def _one_document(report: Report) -> str:
    alone = [source.name for source in report.sources if source.train["documents"] == 1]
    if not alone:
        return ""
    pairs = "next-sentence pairs need two, and " if report.data.sentence_pairs == "next_sentence" else ""
    return (
        f"{', '.join(alone)}: one training document; {pairs}none can be held out: prepare "
        "it again with --documents blank-line or line, or from more files"
    )


def _nothing_held_out(report: Report) -> str:
    least = SENTENCE_PAIRS[report.data.sentence_pairs].documents
    bare = [source for source in report.sources if source.heldout["documents"] < least]
    if not bare:
        return ""
    number = max(source.heldout["documents"] for source in bare)
    held = f"{number} held-out document, and pairs need {least}" if number else "no held-out document"
    return (
        f"{', '.join(source.name for source in bare)}: {held}, so nothing to evaluate on: prepare it again from more "
        "documents, or with a larger --heldout_fraction"
    )


def _random_pairs(rows: RowFigures, data: DataConfig) -> str:
    if data.sentence_pairs != "next_sentence" or (rows.labelled or 0) <= NEARLY_ALL_RANDOM:
        return ""
    return (
        f"{rows.labelled:.0%} of the pairs are random ones (half should be), so the label says little: join lines that "
        "belong together into documents, make rows longer, or set --config.data.sentence_pairs=full_sentences"
    )


def _one_sentence(report: Report) -> str:
    if SENTENCE_PAIRS[report.data.sentence_pairs].parts == 1 or report.one_sentence <= ONE_SENTENCE:
        return ""
    return (
        f"{report.one_sentence:.0%} of the documents are one sentence, which has no next one: join lines that belong "
        "together (--documents blank-line or file), or set --config.data.sentence_pairs=full_sentences"
    )


def _duplicates(report: Report) -> str:
    found = report.duplicates
    if found.repeated <= MANY_DUPLICATES * found.train:
        return ""
    return (
        f"{found.repeated / found.train:.0%} of the training documents repeat another word for word: remove the copies "
        "from the text and prepare it again, or they are learned by heart"
    )


def _leaked(report: Report) -> str:
    found = report.duplicates
    if found.leaked <= LEAKED * found.heldout:
        return ""
    return (
        f"{found.leaked / found.heldout:.0%} of the held-out documents are also trained on, so the evaluation is too "
        "good: remove the copies, or prepare texts that overlap as one corpus"
    )


def _unknown(report: Report) -> str:
    if report.tokens.unknown <= MANY_UNKNOWN:
        return ""
    return (
        f"{report.tokens.unknown:.1%} of the tokens are unknown: train a vocabulary on this text with `tokenizer`, or "
        "take one of its language, and prepare again"
    )


def _many_pieces(report: Report) -> str:
    tokens = report.tokens
    if len(report.sources) > 1 or tokens.pieces_a_word <= MANY_PIECES or tokens.characters_a_word > LONG_WORDS:
        return ""
    return (
        f"{tokens.pieces_a_word:.1f} tokens a word: usual for languages of long words, as Korean or Finnish; else the "
        "vocabulary does not fit this text: train one on it with `tokenizer`, or a larger one"
    )


def _unused(report: Report) -> str:
    share = report.unused / len(report.tokens.counts)
    if share <= LARGE_PART_UNUSED:
        return ""
    return (
        f"{share:.0%} of the vocabulary never occurs: its embeddings cost memory and learn nothing; train a smaller "
        "one on this text, or give more text"
    )


def _mostly_empty(rows: RowFigures, data: DataConfig) -> str:
    if rows.fill >= LOW_FILL:
        return ""
    padding = f"rows are {1 - rows.fill:.0%} padding, which costs as much as text"
    if rows.examples < BOUND_BY_PACKING * data.packing:
        return f"{padding}: no more examples fit in one; take another length, of which texts fill several or a half"
    packing = min(data.packing * math.ceil(1 / rows.fill) * 2, rows.length // SHORTEST)
    return f"{padding}: put several examples in a row with --config.data.packing={packing}, or make rows shorter"


def _idle(rows: RowFigures, data: DataConfig) -> str:
    if rows.idle <= IDLE:
        return ""
    return (
        f"{rows.idle:.1%} of the rows have nothing to predict: their words are longer than the budget; "
        "put more in a row with --config.data.packing, or set --config.data.masking=token"
    )


CHECKS: dict[str, Callable[[Report], str]] = {
    "one_document": _one_document,
    "nothing_held_out": _nothing_held_out,
    "one_sentence": _one_sentence,
    "duplicates": _duplicates,
    "leaked": _leaked,
    "unknown": _unknown,
    "many_pieces": _many_pieces,
    "unused": _unused,
}
ROW_CHECKS: dict[str, Callable[[RowFigures, DataConfig], str]] = {
    "random_pairs": _random_pairs,
    "mostly_empty": _mostly_empty,
    "idle": _idle,
}
