"""What in a corpus or in its rows will hurt a training, each in a line with what to do about it."""

import math
from collections.abc import Callable
from typing import NamedTuple

from bert_jax.config import DataConfig
from bert_jax.data.rows.sampling import PAIRINGS
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
IDLE = 0.01  # of the rows


class Source(NamedTuple):
    """A corpus, alone or one of a mixture. `prepared` is from its manifest; `tokens_share` and `rows_share` of all."""

    name: str
    train: dict[str, int]
    heldout: dict[str, int]
    prepared: dict[str, int]
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


class Check(NamedTuple):
    """`says` a line where something is wrong, else ''."""

    name: str
    says: Callable[[Report], str]


def warnings(report: Report) -> dict[str, str]:
    """The lines of `CHECKS` that hold, by name."""
    return {check.name: line for check in CHECKS if (line := check.says(report))}


def _one_document(report: Report) -> str:
    alone = [source.name for source in report.sources if source.train["documents"] == 1]
    if not alone:
        return ""
    return (
        f"{', '.join(alone)}: one training document; next-sentence pairs need two, and none can be held out: prepare "
        "it again with --documents blank-line or line, or from more files"
    )


def _nothing_held_out(report: Report) -> str:
    bare = [source.name for source in report.sources if not source.heldout["documents"]]
    if not bare:
        return ""
    return (
        f"{', '.join(bare)}: no held-out document, so nothing to evaluate on: prepare it again from more documents, or "
        "with a larger --heldout_share"
    )


def _random_pairs(report: Report) -> str:
    rows = report.rows
    if report.data.pairing != "next_sentence" or not rows or (rows.labelled or 0) <= NEARLY_ALL_RANDOM:
        return ""
    return (
        f"{rows.labelled:.0%} of the pairs are random ones (half should be), so the label says little: join lines that "
        "belong together into documents, make rows longer, or set --config.data.pairing=full_sentences"
    )


def _one_sentence(report: Report) -> str:
    if PAIRINGS[report.data.pairing].parts == 1 or report.one_sentence <= ONE_SENTENCE:
        return ""
    return (
        f"{report.one_sentence:.0%} of the documents are one sentence, which has no next one: join lines that belong "
        "together (--documents blank-line or file), or set --config.data.pairing=full_sentences"
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
        f"{tokens.pieces_a_word:.1f} tokens a word: the vocabulary does not fit this text; train one on it with "
        "`tokenizer`, or a larger one"
    )


def _unused(report: Report) -> str:
    share = report.unused / len(report.tokens.counts)
    if share <= LARGE_PART_UNUSED:
        return ""
    return (
        f"{share:.0%} of the vocabulary never occurs: its embeddings cost memory and learn nothing; train a smaller "
        "one on this text, or give more text"
    )


def _mostly_empty(report: Report) -> str:
    if not report.rows or report.rows.fill >= LOW_FILL:
        return ""
    packing = report.data.packing * math.ceil(1 / report.rows.fill) * 2
    return (
        f"rows are {1 - report.rows.fill:.0%} padding, which costs as much as text: put several examples in a row with "
        f"--config.data.packing={packing}, or make rows shorter"
    )


def _idle(report: Report) -> str:
    if not report.rows or report.rows.idle <= IDLE:
        return ""
    return (
        f"{report.rows.idle:.1%} of the rows have nothing to predict: their words are longer than the budget; "
        "put more in a row with --config.data.packing, or set --config.data.masking=token"
    )


CHECKS = (
    Check("one_document", _one_document),
    Check("nothing_held_out", _nothing_held_out),
    Check("random_pairs", _random_pairs),
    Check("one_sentence", _one_sentence),
    Check("duplicates", _duplicates),
    Check("leaked", _leaked),
    Check("unknown", _unknown),
    Check("many_pieces", _many_pieces),
    Check("unused", _unused),
    Check("mostly_empty", _mostly_empty),
    Check("idle", _idle),
)
