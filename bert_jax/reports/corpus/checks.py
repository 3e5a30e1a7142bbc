"""Likely problems of a corpus and of its sequences, each as a line that says what to do about it."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.batches.masking import MASKINGS, MAX_WORD_TOKENS
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.batches.statistics import SequenceFigures
from bert_jax.config import DataConfig
from bert_jax.corpus.copies import Duplicates, Leaks
from bert_jax.corpus.statistics import Distribution, TokenFigures

# Limits, as fractions; a check warns beyond them.
MAX_RANDOM_PAIRS = 0.75  # of the pairs; half of them should be random
MAX_ONE_SENTENCE = 0.5  # of the documents
MAX_DUPLICATES = 0.05  # of the documents
MAX_LEAKED = 0.01  # of the held-out documents
MAX_UNKNOWN = 0.01  # of the tokens
MAX_UNUSED = 0.5  # of the vocabulary
MAX_IDLE = 0.01  # of the sequences
MAX_LONG_WORDS = 0.5  # of the tokens, in words that are masked token by token
MIN_FILL = 0.7  # of a sequence
FILLED_BY_PACKING = 0.8  # of the examples that packing allows; with fewer, their lengths are the limit

MAX_EPOCHS = 10  # times that an epoch of a mixture reads a corpus
MAX_TOKENS_PER_WORD = 2.5
MAX_WORD_CHARACTERS = 12  # on average; more means a script without spaces, in which tokens per word say nothing
MIN_PACKED_TOKENS = 8  # length of the shortest example that is worth packing


class Source(NamedTuple):
    """A corpus, alone or in a mixture.

    `train` and `heldout`: numbers of documents, sentences and tokens. `prepared`: from the manifest. `rejected`: number
    of documents by reason. `tokens_fraction` and `sequences_fraction`: of the mixture. `epochs`: times that an epoch of
    the mixture reads the corpus. `changes`: a warning about characters that the tokenizer changes, or "".
    """

    name: str
    train: dict[str, int]
    heldout: dict[str, int]
    prepared: dict[str, Any]
    rejected: dict[str, int]
    tokens_fraction: float
    sequences_fraction: float | None
    epochs: float | None
    changes: str = ""


class Report(NamedTuple):
    """All figures of a corpus or mixture.

    `one_sentence`: fraction of documents of one sentence. `unused`: vocabulary entries that never occur. `sequences` is
    None where the corpus has too few documents, and `no_sequences` then says so. `coverage`: fractions of the tokens
    that are in a sequence of an epoch, and of two.
    """

    sources: tuple[Source, ...]
    tokenizer: dict[str, str | int | bool]
    documents: Distribution
    sentences_per_document: Distribution
    one_sentence: float
    tokens: TokenFigures
    unused: int
    duplicates: Duplicates
    leaks: Leaks
    sequences: SequenceFigures | None
    no_sequences: str
    coverage: tuple[float, float] | None
    data: DataConfig


def warnings(report: Report) -> dict[str, str]:
    """Return the warnings of `CHECKS` and `SEQUENCE_CHECKS`, by name of the check."""
    found = {name: line for name, check in CHECKS.items() if (line := check(report))}
    return found | (sequence_warnings(report.sequences, report.data) if report.sequences else {})


def sequence_warnings(figures: SequenceFigures, data: DataConfig) -> dict[str, str]:
    """Return the warnings of `SEQUENCE_CHECKS`, by name of the check."""
    return {name: line for name, check in SEQUENCE_CHECKS.items() if (line := check(figures, data))}


def _one_document(report: Report) -> str:
    alone = [source.name for source in report.sources if source.train["documents"] == 1]
    if not alone:
        return ""
    needed = SENTENCE_PAIRS[report.data.sentence_pairs].min_documents
    pairs = f"sentence_pairs={report.data.sentence_pairs} needs {needed}, and " if needed > 1 else ""
    return (
        f"{', '.join(alone)}: one training document; {pairs}none can be held out. Prepare it again with "
        "--documents blank-line or line, or from more files"
    )


def _nothing_held_out(report: Report) -> str:
    needed = SENTENCE_PAIRS[report.data.sentence_pairs].min_documents
    lacking = [source for source in report.sources if source.heldout["documents"] < needed]
    if not lacking:
        return ""
    number = max(source.heldout["documents"] for source in lacking)
    held = f"{number} held-out document, and pairs need {needed}" if number else "no held-out document"
    return (
        f"{', '.join(source.name for source in lacking)}: {held}, so nothing to evaluate on. Prepare it again from "
        "more documents, or with a larger --heldout_fraction"
    )


def _random_pairs(figures: SequenceFigures, data: DataConfig) -> str:
    has_random = SENTENCE_PAIRS[data.sentence_pairs].min_documents > 1  # second texts from other documents
    if not has_random or (figures.labelled or 0) <= MAX_RANDOM_PAIRS:
        return ""
    return (
        f"{figures.labelled:.0%} of the pairs are random ones (half should be), so the label says little. Join lines "
        "that belong together into documents, make sequences longer, or set "
        "--config.data.sentence_pairs=full_sentences"
    )


def _one_sentence(report: Report) -> str:
    if SENTENCE_PAIRS[report.data.sentence_pairs].num_texts == 1 or report.one_sentence <= MAX_ONE_SENTENCE:
        return ""
    return (
        f"{report.one_sentence:.0%} of the documents have one sentence, so there is no next sentence. Join lines that "
        "belong together (--documents blank-line or file), or set --config.data.sentence_pairs=full_sentences"
    )


def _duplicates(report: Report) -> str:
    found = report.duplicates
    if found.repeated <= MAX_DUPLICATES * found.train:
        return ""
    return (
        f"{found.repeated / found.train:.0%} of the training documents are copies of another, which a model memorizes. "
        "Prepare the text again with --deduplicate exact or near"
    )


def _leaked(report: Report) -> str:
    copies, near = report.duplicates, report.leaks
    fraction = max(copies.leaked / max(1, copies.heldout), near.near / max(1, near.heldout))
    if fraction <= MAX_LEAKED:
        return ""
    return (
        f"{fraction:.0%} of the held-out documents are also training documents, or nearly, so the evaluation "
        "is too good. Prepare the text again with --deduplicate near, and texts that overlap as one corpus"
    )


def _unknown(report: Report) -> str:
    if report.tokens.unknown <= MAX_UNKNOWN:
        return ""
    return (
        f"{report.tokens.unknown:.1%} of the tokens are unknown. Train a vocabulary on this text with `tokenizer`, or "
        "use one of its language, and prepare again"
    )


def _changes(report: Report) -> str:
    found = [(source.name, source.changes) for source in report.sources if source.changes]
    return ". ".join(f"{name}: {line}" if len(report.sources) > 1 else line for name, line in found)


def _many_tokens_per_word(report: Report) -> str:
    tokens = report.tokens
    if tokens.tokens_per_word <= MAX_TOKENS_PER_WORD or tokens.characters_per_word > MAX_WORD_CHARACTERS:
        return ""
    if len(report.sources) > 1:  # of a mixture of languages, an average says little
        return ""
    return (
        f"{tokens.tokens_per_word:.1f} tokens per word. This is usual for languages of long words, such as Korean or "
        "Finnish; otherwise the vocabulary does not fit this text: train one on it with `tokenizer`, or a larger one"
    )


def _unused(report: Report) -> str:
    fraction = report.unused / len(report.tokens.counts)
    if fraction <= MAX_UNUSED:
        return ""
    return (
        f"{fraction:.0%} of the vocabulary never occurs; its embeddings cost memory and learn nothing. Train a smaller "
        "vocabulary on this text, or add text"
    )


def _mostly_padding(figures: SequenceFigures, data: DataConfig) -> str:
    if figures.fill >= MIN_FILL:
        return ""
    padding = f"sequences are {1 - figures.fill:.0%} padding, which costs as much as text"
    if figures.examples < FILLED_BY_PACKING * data.packing:
        return f"{padding}. No more examples fit; choose another length, which several texts or half a text fill"
    packing = min(data.packing * math.ceil(1 / figures.fill) * 2, figures.seq_len // MIN_PACKED_TOKENS)
    return f"{padding}. Pack several examples into one with --config.data.packing={packing}, or make sequences shorter"


def _idle(figures: SequenceFigures, data: DataConfig) -> str:
    if figures.idle <= MAX_IDLE:
        return ""
    return (
        f"{figures.idle:.1%} of the sequences have nothing to predict: each of their words has more tokens than may be "
        "masked. Pack several examples with --config.data.packing, or set --config.data.masking=token"
    )


def _long_words(report: Report) -> str:
    fraction = report.tokens.long_words
    if not MASKINGS[report.data.masking].whole_words or fraction <= MAX_LONG_WORDS:
        return ""
    return (
        f"{fraction:.0%} of the tokens are in words of more than {MAX_WORD_TOKENS} tokens, which are masked token by "
        f"token: masking={report.data.masking} hides no whole words of a script without spaces. Prepare such text "
        "again with --segmenter"
    )


def _many_epochs(report: Report) -> str:
    often = [source for source in report.sources if (source.epochs or 0) > MAX_EPOCHS]
    if not often:
        return ""
    named = ", ".join(f"{source.name} {source.epochs:,.0f} times" for source in often)
    return f"an epoch reads {named}. Limit it with --config.data.max_epochs=4, or change the weights or the smoothing"


CHECKS: dict[str, Callable[[Report], str]] = {
    "one_document": _one_document,
    "nothing_held_out": _nothing_held_out,
    "one_sentence": _one_sentence,
    "duplicates": _duplicates,
    "leaked": _leaked,
    "unknown": _unknown,
    "changes": _changes,
    "many_tokens_per_word": _many_tokens_per_word,
    "unused": _unused,
    "long_words": _long_words,
    "many_epochs": _many_epochs,
}
SEQUENCE_CHECKS: dict[str, Callable[[SequenceFigures, DataConfig], str]] = {
    "random_pairs": _random_pairs,
    "mostly_padding": _mostly_padding,
    "idle": _idle,
}
