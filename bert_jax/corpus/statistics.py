"""Statistics of a corpus: lengths of documents and sentences, counts of tokens and words, and the unigram loss.

Lengths of documents come from the index. Figures of the text come from the whole text or, above a limit of
tokens, from a sample with a fixed seed. Each result says how many tokens were read.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.corpus.store import ReadableSplit, Split, running_total

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

MAX_TOKENS_READ = 200_000_000  # tokens that are read for each figure of the text, in a few seconds
MAX_COUNTED_TOKENS = 20_000_000  # tokens of a split that are counted for the unigram loss, at each start of a run
DECODED_RECORDS = 64
EVALUATED_FRACTION = 0.15  # fraction of held-out tokens to predict, as in `batches.masking.data_config_for_evaluation`
MIN_PREDICTIONS = 2_000  # with fewer predictions, a good model may have a higher loss than a bad model by chance
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_RECORDS_AT_ONCE = 512


def expected_num_predictions(num_tokens: int, fraction: float = EVALUATED_FRACTION) -> int:
    """Return the expected number of predictions of an evaluation on `num_tokens` held-out tokens."""
    return round(fraction * num_tokens)


def few_predictions_warning(
    num_predictions: int, fix: str = "prepare the text again with a higher --heldout_fraction, or prepare more text"
) -> str:
    """Return a warning about an evaluation with few predictions; '' for no predictions, or enough predictions."""
    if not 0 < num_predictions < MIN_PREDICTIONS:
        return ""
    few = f"below {MIN_PREDICTIONS:,} its loss says little"
    return f"an evaluation has about {num_predictions:,} predictions; {few}; {fix}"


class Distribution(NamedTuple):
    """A distribution of lengths; `doublings[i]` is the number of lengths in [2**i, 2**(i + 1))."""

    num_lengths: int
    mean: float
    quantiles: tuple[int, ...]
    doublings: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenFigures:
    """Figures of the tokens of the training text.

    Attributes:
        records: number of records that were read, out of `num_records`.
        num_records: number of records of the split.
        tokens: number of tokens that were read.
        counts: int64 [vocab_size], occurrences of each token.
        sentences: distribution of the lengths of sentences.
        unknown: fraction of unknown tokens.
        tokens_per_word, characters_per_word: means over words; a word begins where the vocabulary marks a word start.
            White space is not counted.
        joined: fraction of the tokens that are in words of several tokens; whole-word masking masks such tokens
            together.
        long_words: fraction of the tokens that are in words too long to be masked together.
        joined_by_vocabulary, long_words_by_vocabulary: like `joined` and `long_words`, for the words that the
            vocabulary marks instead of the segmenter's words; None without a segmenter.
    """

    records: int
    num_records: int
    tokens: int
    counts: np.ndarray
    sentences: Distribution
    unknown: float
    tokens_per_word: float
    characters_per_word: float
    joined: float
    long_words: float
    joined_by_vocabulary: float | None
    long_words_by_vocabulary: float | None


def length_distribution(lengths: np.ndarray) -> Distribution:
    """Return the distribution of int64 [any] lengths."""
    values, counts = np.unique(lengths, return_counts=True)
    return _weighted_distribution(values, counts)


def _weighted_distribution(values: np.ndarray, counts: np.ndarray) -> Distribution:
    """Return the distribution of ascending `values`, where values[i] occurs counts[i] times."""
    total = int(counts.sum())
    if not total:
        return Distribution(0, 0.0, (0,) * len(QUANTILES), ())
    reached = np.cumsum(counts)
    indexes = np.searchsorted(reached, np.maximum(1, np.ceil(np.array(QUANTILES) * total)))
    _, exponents = np.frexp(values)  # 2**(exponent - 1) <= value < 2**exponent
    doublings = np.bincount(np.maximum(exponents - 1, 0), counts).astype(np.int64)
    mean = float((values * counts).sum() / total)
    return Distribution(total, mean, tuple(values[indexes].tolist()), tuple(doublings.tolist()))


class DocumentSizes(NamedTuple):
    """The numbers of tokens and of sentences of each document, int64 [documents]."""

    num_tokens: np.ndarray
    num_sentences: np.ndarray


def document_sizes(split: Split) -> DocumentSizes:
    """Return the numbers of tokens and of sentences of each document, int64 [documents] each."""
    tokens, sentences = (running_total(counts) for counts in (split.tokens_per_record, split.sentences_per_record))
    return DocumentSizes(np.diff(tokens[split.first_record]), np.diff(sentences[split.first_record]))


def token_figures(
    split: Split, tokenizer: "Tokenizer", max_word_tokens: int, limit: int = MAX_TOKENS_READ
) -> TokenFigures:
    """Return the figures of all records of a split, or of a random sample if the split has more than `limit` tokens.

    `max_word_tokens` is the number of tokens of the longest word that whole-word masking masks together.
    """
    records = random_indices_within_cost(split.tokens_per_record, limit)
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    sentence_counts = np.zeros(1, np.int64)  # number of sentences of each length
    joined, joined_by_vocabulary = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for first in range(0, len(records), _RECORDS_AT_ONCE):
        chosen = records[first : first + _RECORDS_AT_ONCE]
        tokens, lengths, _, begins_word = split.read_words(chosen, tokenizer.continues)
        counts += np.bincount(tokens, minlength=len(counts))
        record_starts = running_total(split.tokens_per_record[chosen])
        joined += _count_tokens_in_short_and_long_words(begins_word, record_starts, max_word_tokens)
        if split.has_words:
            joined_by_vocabulary += _count_tokens_in_short_and_long_words(
                ~tokenizer.continues[tokens], record_starts, max_word_tokens
            )
        new_counts = np.bincount(lengths, minlength=len(sentence_counts))
        new_counts[: len(sentence_counts)] += sentence_counts
        sentence_counts = new_counts
    num_tokens = int(counts.sum())
    decoded = records[np.linspace(0, len(records), min(len(records), DECODED_RECORDS), endpoint=False).astype(int)]
    tokens, *_ = split.read(decoded)
    characters, words = 0, int((~tokenizer.continues[tokens]).sum())
    for ids in np.split(tokens, np.cumsum(split.tokens_per_record[decoded])[:-1]):
        characters += len("".join(tokenizer.decode(ids.tolist()).split()))
    at_least_1 = max(1, num_tokens)
    return TokenFigures(
        records=len(records),
        num_records=split.num_records,
        tokens=num_tokens,
        counts=counts,
        sentences=_weighted_distribution(np.arange(len(sentence_counts)), sentence_counts),
        unknown=float(counts[tokenizer.unk_id] / at_least_1),
        tokens_per_word=num_tokens / max(1, int(counts[~tokenizer.continues].sum())),
        characters_per_word=characters / max(1, words),
        joined=float(joined[0] / at_least_1),
        long_words=float(joined[1] / at_least_1),
        joined_by_vocabulary=float(joined_by_vocabulary[0] / at_least_1) if split.has_words else None,
        long_words_by_vocabulary=float(joined_by_vocabulary[1] / at_least_1) if split.has_words else None,
    )


def _count_tokens_in_short_and_long_words(
    begins_word: np.ndarray, record_starts: np.ndarray, max_word_tokens: int
) -> np.ndarray:
    """Return the numbers of tokens in words of 2 to `max_word_tokens` tokens and in longer words, int64 [2].

    Args:
        begins_word: bool [tokens], whether a token begins a word.
        record_starts: int64 [records + 1], the index of the first token of each record, and then the number of tokens.
            The first token of a record begins a word.
        max_word_tokens: see `token_figures`.
    """
    begins_word = np.append(begins_word, True)
    begins_word[record_starts] = True
    sizes = np.diff(np.flatnonzero(begins_word))
    is_long = sizes > max_word_tokens
    return np.array([sizes[(sizes > 1) & ~is_long].sum(), sizes[is_long].sum()])


def unigram_loss(train_counts: np.ndarray, counts: np.ndarray) -> float:
    """Return the loss on a text, in nats, of a model that knows only the frequencies of the training tokens.

    The arguments are the counts of each token in the training text and in the text of the loss, `[vocab_size]` each.
    """
    return -math.fsum(counts / counts.sum() * np.log(smoothed_frequencies(train_counts)))


def smoothed_frequencies(counts: np.ndarray) -> np.ndarray:
    """Return the smoothed frequency of each token, above 0, from its count in a text; both are `[vocab_size]`.

    The frequencies are smoothed as by Witten and Bell (1991, method C): a text of n tokens with d distinct tokens has
    the weight n / (n + d), and the uniform distribution has the rest. So a token that does not occur in the text has a
    frequency above 0.
    """
    distinct = np.count_nonzero(counts)
    smoothed: np.ndarray = (counts + distinct / len(counts)) / (counts.sum() + distinct)
    return smoothed


def token_fractions(split: Split, vocab_size: int) -> np.ndarray:
    """Return the frequency of each token in a split, as a fraction of all tokens: float64 `[vocab_size]`."""
    counts = token_counts(split, vocab_size)
    return counts / counts.sum()


def token_counts(
    split: ReadableSplit, vocab_size: int, passes_per_source: np.ndarray | None = None, limit: int = MAX_COUNTED_TOKENS
) -> np.ndarray:
    """Return how often each token occurs in a split: float64 `[vocab_size]`.

    A token of source k counts `passes_per_source[k]` times (float64 `[sources]`), or once if `passes_per_source` is
    None. If the passes have more than `limit` tokens together, the counts come from a random sample of about `limit`
    tokens.
    """
    counts = np.zeros(vocab_size)
    for sample in samples_of_sources(split, passes_per_source, limit):
        for begin in range(0, len(sample.records), _RECORDS_AT_ONCE):
            tokens = split.read(sample.records[begin : begin + _RECORDS_AT_ONCE]).tokens
            counts += sample.weight * np.bincount(tokens, minlength=vocab_size)
    return counts


class SourceSample(NamedTuple):
    """Records of one source of a split, and the number of times that each of their tokens counts."""

    records: np.ndarray  # ascending indexes, int64
    weight: float


def samples_of_sources(
    split: ReadableSplit, passes_per_source: np.ndarray | None, limit: int
) -> Iterator[SourceSample]:
    """Yield a sample of each source of a split; the samples stand for about `limit` tokens of training text.

    A token of source k counts `passes_per_source[k]` times (float64 `[sources]`), or once if `passes_per_source` is
    None. If the passes have more than `limit` tokens together, a random sample of the records of each source, with a
    fixed seed, stands for the source. Sources without passes are left out.
    """
    borders = split.first_record[split.source_documents]
    num_tokens = np.array([split.tokens_per_record[begin:end].sum() for begin, end in itertools.pairwise(borders)])
    read_tokens = num_tokens * (1.0 if passes_per_source is None else passes_per_source)
    counted_tokens = read_tokens * min(1.0, limit / read_tokens.sum())
    for first, source_limit, end in zip(borders[:-1], counted_tokens, borders[1:], strict=True):
        if source_limit:
            records = first + random_indices_within_cost(split.tokens_per_record[first:end], int(source_limit))
            yield SourceSample(records, source_limit / split.tokens_per_record[records].sum())


def random_indices_within_cost(cost: np.ndarray, limit: int) -> np.ndarray:
    """Return the ascending indexes, int64, of random items that cost at most `limit` together; at least one index."""
    if cost.sum() <= limit:
        return np.arange(len(cost))
    order = np.random.default_rng(0).permutation(len(cost))
    return np.sort(order[: max(1, int(np.searchsorted(np.cumsum(cost[order]), limit, side="right")))])
