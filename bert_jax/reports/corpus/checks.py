"""Likely problems: lines with advice for a corpus and its sequences, and names of failed checks for a sequence."""

import dataclasses
import math
import unicodedata
from collections.abc import Callable

import numpy as np

from bert_jax.batches.masking import MASKINGS, MAX_WORD_TOKENS
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.batches.statistics import SequenceFigures
from bert_jax.config import DataConfig
from bert_jax.corpus.statistics import few_predictions_warning
from bert_jax.reports.corpus.examples import REPLACEMENT
from bert_jax.reports.corpus.figures import CorpusFigures

# Limits, as fractions; a check warns beyond them.
MAX_RANDOM_PAIRS = 0.75  # fraction of random pairs; half of the pairs should be random
MAX_ONE_SENTENCE = 0.5  # fraction of documents of one sentence
MAX_DUPLICATES = 0.05  # fraction of training documents that are copies
MAX_LEAKED = 0.01  # fraction of held-out documents that are also training documents
MAX_UNKNOWN = 0.01  # fraction of unknown tokens
MAX_UNUSED = 0.5  # fraction of the vocabulary that never occurs
MAX_IDLE = 0.01  # fraction of sequences with nothing to predict
MAX_LONG_WORDS = 0.5  # fraction of tokens in words that are masked token by token
MIN_FILL = 0.7  # fraction of a sequence that is no padding
FILLED_BY_PACKING = 0.8  # fraction of the examples that packing allows; if fewer examples fit, lengths are the limit

MAX_EPOCHS = 10  # maximum number of times that an epoch of a mixture reads a corpus
MAX_TOKENS_PER_WORD = 2.5
MAX_WORD_CHARACTERS = 12  # on average; longer words mean a script without spaces, where tokens per word mean little
MIN_PACKED_TOKENS = 8  # length of the shortest example that is worth packing
MIN_DISTINCT = 0.25  # fraction of distinct tokens in a sequence; boilerplate and tables have fewer
MIN_TOKENS = 32  # tokens of the shortest sequence whose words and repetitions are checked
JOINERS = "\u200c\u200d"  # invisible, but part of the spelling of Persian, of Hindi and of emoji


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceText:
    """The text of a sequence before masking, without special tokens and padding."""

    ids: np.ndarray  # int32 [tokens]
    entries: str  # the texts of the tokens, joined
    num_words: int  # tokens that begin a word
    num_unknown: int
    num_predicted: int
    fill: float  # fraction of the sequence that is no padding


def corpus_warnings(figures: CorpusFigures) -> dict[str, str]:
    """Return the warnings of the checks in `CHECKS` and `SEQUENCE_CHECKS`; the keys are the names of the checks."""
    warnings = {name: line for name, check in CHECKS.items() if (line := check(figures))}
    return warnings | (sequence_warnings(figures.sequences, figures.data) if figures.sequences else {})


def sequence_warnings(figures: SequenceFigures, data: DataConfig) -> dict[str, str]:
    """Return the warnings of the checks in `SEQUENCE_CHECKS`; the keys are the names of the checks."""
    return {name: line for name, check in SEQUENCE_CHECKS.items() if (line := check(figures, data))}


def text_warnings(text: SequenceText) -> list[str]:
    """Return the names of the checks of `TEXT_CHECKS` that a sequence fails."""
    return [name for name, fails in TEXT_CHECKS.items() if fails(text)]


def _check_one_document_corpora(figures: CorpusFigures) -> str:
    alone = [source.name for source in figures.sources if source.train["documents"] == 1]
    if not alone:
        return ""
    needed = SENTENCE_PAIRS[figures.data.sentence_pairs].min_documents
    pairs = f"sentence_pairs={figures.data.sentence_pairs} needs {needed}, and " if needed > 1 else ""
    return (
        f"{', '.join(alone)}: one training document; {pairs}none can be held out. Prepare it again with "
        "--documents blank-line or line, or from more files"
    )


def _check_nothing_held_out(figures: CorpusFigures) -> str:
    needed = SENTENCE_PAIRS[figures.data.sentence_pairs].min_documents
    lacking = [source for source in figures.sources if source.heldout["documents"] < needed]
    if not lacking:
        return ""
    most = max(source.heldout["documents"] for source in lacking)
    held = f"{most} held-out document, and pairs need {needed}" if most else "no held-out document"
    return (
        f"{', '.join(source.name for source in lacking)}: {held}, so nothing to evaluate on. Prepare it again from "
        "more documents, or with a larger --heldout_fraction"
    )


def _check_few_predictions(figures: CorpusFigures) -> str:
    return few_predictions_warning(figures.num_predictions)


def _check_random_pairs(figures: SequenceFigures, data: DataConfig) -> str:
    has_random = SENTENCE_PAIRS[data.sentence_pairs].min_documents > 1  # some second texts come from other documents
    if not has_random or (figures.positive_pairs or 0) <= MAX_RANDOM_PAIRS:
        return ""
    return (
        f"{figures.positive_pairs:.0%} of the pairs are random pairs (half should be), so the label says little. Join "
        "lines that belong together into documents, make sequences longer, or set "
        "--config.data.sentence_pairs=full_sentences"
    )


def _check_one_sentence_documents(figures: CorpusFigures) -> str:
    if SENTENCE_PAIRS[figures.data.sentence_pairs].num_texts == 1 or figures.one_sentence <= MAX_ONE_SENTENCE:
        return ""
    return (
        f"{figures.one_sentence:.0%} of the documents have one sentence, so there is no next sentence. Join lines that "
        "belong together (--documents blank-line or file), or set --config.data.sentence_pairs=full_sentences"
    )


def _check_duplicates(figures: CorpusFigures) -> str:
    copies = figures.duplicates
    if copies.repeated <= MAX_DUPLICATES * copies.train:
        return ""
    return (
        f"{copies.repeated / copies.train:.0%} of the training documents are copies of another document, which a "
        "model memorizes. Prepare the text again with --deduplicate exact or near"
    )


def _check_heldout_leaks(figures: CorpusFigures) -> str:
    copies, near = figures.duplicates, figures.leaks
    fraction = max(copies.leaked / max(1, copies.heldout), near.near / max(1, near.heldout))
    if fraction <= MAX_LEAKED:
        return ""
    return (
        f"{fraction:.0%} of the held-out documents are also training documents, or nearly, so the evaluation "
        "is too good. Prepare the text again with --deduplicate near, and texts that overlap as one corpus"
    )


def _check_unknown_tokens(figures: CorpusFigures) -> str:
    if figures.tokens.unknown <= MAX_UNKNOWN:
        return ""
    return (
        f"{figures.tokens.unknown:.1%} of the tokens are unknown. Train a vocabulary on this text with `tokenizer`, or "
        "use a vocabulary of its language, and prepare again"
    )


def _check_changed_characters(figures: CorpusFigures) -> str:
    many = len(figures.sources) > 1
    changed = [source for source in figures.sources if source.changes]
    return ". ".join(f"{source.name}: {source.changes}" if many else source.changes for source in changed)


def _check_many_tokens_per_word(figures: CorpusFigures) -> str:
    tokens = figures.tokens
    if tokens.tokens_per_word <= MAX_TOKENS_PER_WORD or tokens.characters_per_word > MAX_WORD_CHARACTERS:
        return ""
    if len(figures.sources) > 1:  # an average over a mixture of languages says little
        return ""
    return (
        f"{tokens.tokens_per_word:.1f} tokens per word. This is usual for languages of long words, such as Korean or "
        "Finnish; otherwise the vocabulary does not fit this text: train a vocabulary on it with `tokenizer`, "
        "or a larger vocabulary"
    )


def _check_unused_vocabulary(figures: CorpusFigures) -> str:
    fraction = figures.unused / len(figures.tokens.counts)
    if fraction <= MAX_UNUSED:
        return ""
    return (
        f"{fraction:.0%} of the vocabulary never occurs; its embeddings cost memory and learn nothing. Train a smaller "
        "vocabulary on this text, or add text"
    )


def _check_mostly_padding(figures: SequenceFigures, data: DataConfig) -> str:
    if figures.fill >= MIN_FILL:
        return ""
    padding = f"sequences are {1 - figures.fill:.0%} padding, which costs as much as text"
    if figures.examples < FILLED_BY_PACKING * data.packing:
        return f"{padding}. No more examples fit; choose another length, which several texts or half a text fill"
    packing = min(data.packing * math.ceil(1 / figures.fill) * 2, figures.seq_len // MIN_PACKED_TOKENS)
    return f"{padding}. Pack several examples into one with --config.data.packing={packing}, or make sequences shorter"


def _check_sequences_without_predictions(figures: SequenceFigures, data: DataConfig) -> str:
    if figures.idle <= MAX_IDLE:
        return ""
    return (
        f"{figures.idle:.1%} of the sequences have nothing to predict: each of their words has more tokens than may be "
        "masked. Pack several examples with --config.data.packing, or set --config.data.masking=token"
    )


def _check_long_words(figures: CorpusFigures) -> str:
    fraction = figures.tokens.long_words
    if not MASKINGS[figures.data.masking].whole_words or fraction <= MAX_LONG_WORDS:
        return ""
    return (
        f"{fraction:.0%} of the tokens are in words of more than {MAX_WORD_TOKENS} tokens, which are masked token by "
        f"token: masking={figures.data.masking} hides no whole words of a script without spaces. Prepare such text "
        "again with --segmenter"
    )


def _check_many_epochs(figures: CorpusFigures) -> str:
    often = [source for source in figures.sources if (source.epochs or 0) > MAX_EPOCHS]
    if not often:
        return ""
    times = ", ".join(f"{source.name} {source.epochs:,.0f} times" for source in often)
    return f"an epoch reads {times}. Limit it with --config.data.max_epochs=4, or change the weights or the smoothing"


CHECKS: dict[str, Callable[[CorpusFigures], str]] = {
    "one_document": _check_one_document_corpora,
    "nothing_held_out": _check_nothing_held_out,
    "one_sentence": _check_one_sentence_documents,
    "duplicates": _check_duplicates,
    "few_predictions": _check_few_predictions,
    "leaked": _check_heldout_leaks,
    "unknown": _check_unknown_tokens,
    "changes": _check_changed_characters,
    "many_tokens_per_word": _check_many_tokens_per_word,
    "unused": _check_unused_vocabulary,
    "long_words": _check_long_words,
    "many_epochs": _check_many_epochs,
}
SEQUENCE_CHECKS: dict[str, Callable[[SequenceFigures, DataConfig], str]] = {
    "random_pairs": _check_random_pairs,
    "mostly_padding": _check_mostly_padding,
    "idle": _check_sequences_without_predictions,
}


def is_invisible(character: str) -> bool:
    """Return whether a character, such as U+202E, is invisible but changes the look or the order of a text."""
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") and character not in JOINERS


def _has_many_tokens_per_word(text: SequenceText) -> bool:
    num_words = max(1, text.num_words)
    spaced = len(text.entries) / num_words <= MAX_WORD_CHARACTERS  # else tokens per word say nothing
    return len(text.ids) >= MIN_TOKENS and spaced and len(text.ids) / num_words > MAX_TOKENS_PER_WORD


def _repeats_itself(text: SequenceText) -> bool:
    return len(text.ids) >= MIN_TOKENS and len(np.unique(text.ids)) < MIN_DISTINCT * len(text.ids)


# Name of a problem (also a filter of the page) -> function that returns True for a sequence with this problem.
TEXT_CHECKS: dict[str, Callable[[SequenceText], bool]] = {
    "nothing to predict": lambda text: not text.num_predicted,
    "mostly padding": lambda text: text.fill < MIN_FILL,
    "unknown tokens": lambda text: text.num_unknown > 0,
    "broken characters": lambda text: REPLACEMENT in text.entries,
    "invisible characters": lambda text: any(map(is_invisible, text.entries)),
    "many tokens per word": _has_many_tokens_per_word,
    "repeats itself": _repeats_itself,
}
