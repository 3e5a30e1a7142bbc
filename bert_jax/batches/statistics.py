"""Statistics of a corpus and of its sequences: lengths, tokens, duplicates, masks, pairs.

Lengths of documents come from the index. Figures that need the text read all of it up to a limit of tokens, and beyond
the limit a sample, the same every time; each result says how much was read.
"""

import hashlib
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.layout import ReadableSplit, running_total
from bert_jax.batches.masking import MAX_WORD_TOKENS, Vocabulary
from bert_jax.batches.pipeline import Sequences, Symbols, make_sequences
from bert_jax.config import DataConfig
from bert_jax.corpus.store import Split

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

MAX_TOKENS_READ = 200_000_000  # for each of the two results that read the text: a few seconds
MAX_COVERED_TOKENS = 4_000_000  # whose sequences of two epochs are made: a few seconds
MAX_ENTROPY_TOKENS = 20_000_000  # for the unigram entropy, which a run computes each time it starts
DECODED_RECORDS = 64
NUM_SEQUENCES = 4096
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_RECORDS_AT_ONCE = 512
_SEQUENCES_AT_ONCE = 256


class Distribution(NamedTuple):
    """A distribution of lengths: `quantiles` at `QUANTILES`; `doublings[i]` lengths are from 2**i to 2**(i + 1) - 1."""

    number: int
    mean: float
    quantiles: tuple[int, ...]
    doublings: tuple[int, ...]


class Tokens(NamedTuple):
    """Tokens of the training text.

    `records`: records read, of `num_records`. `counts` int64 [vocab_size]: occurrences of each token, `tokens` in all.
    `sentences`: lengths of sentences. `unknown`: fraction of unknown tokens. `tokens_per_word` and
    `characters_per_word` count the tokens that the vocabulary lets begin a word as words; white space is not counted.
    `joined`: fraction of the tokens in words of several tokens, which are masked together. `long_words`: in words of
    more than MAX_WORD_TOKENS tokens, which are masked token by token. `joined_by_vocabulary` and
    `long_words_by_vocabulary`: the same without the words of a segmenter; None where there is none.
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


class Duplicates(NamedTuple):
    """Documents with the same ids as another document.

    `train` and `heldout`: documents compared, all of them where `exact`. `repeated`: training documents equal to an
    earlier training document. `leaked`: held-out documents equal to a training document.
    """

    exact: bool
    train: int
    repeated: int
    heldout: int
    leaked: int


class SequenceFigures(NamedTuple):
    """Figures of the first `num_sequences` sequences of `seq_len` tokens; an epoch has `num_per_epoch`.

    `fill`: fraction of tokens that are not padding. `examples`: examples per sequence. `predicted`: fraction of real
    tokens to predict; `masked`, `random` and `kept` are fractions of these (a random token that equals the original
    counts as kept). `labelled`: fraction of pairs with label 1, None without pairs. `idle`: fraction of sequences
    without a prediction.
    """

    seq_len: int
    num_sequences: int
    num_per_epoch: int
    fill: float
    examples: float
    predicted: float
    masked: float
    random: float
    kept: float
    labelled: float | None
    idle: float


def distribution(lengths: np.ndarray) -> Distribution:
    """Return the distribution of int64 [any] lengths."""
    values, counts = np.unique(lengths, return_counts=True)
    return _distribution(values, counts)


def _distribution(values: np.ndarray, counts: np.ndarray) -> Distribution:
    """Return the distribution of ascending `values` with `counts`; a quantile is the least value that reaches it."""
    number = int(counts.sum())
    if not number:
        return Distribution(0, 0.0, (0,) * len(QUANTILES), ())
    reached = np.cumsum(counts)
    indexes = np.searchsorted(reached, np.maximum(1, np.ceil(np.array(QUANTILES) * number)))
    _, exponents = np.frexp(values)  # v is below 2**exponent, and not below half of that
    doublings = np.bincount(np.maximum(exponents - 1, 0), counts).astype(np.int64)
    return Distribution(
        number, float((values * counts).sum() / number), tuple(values[indexes].tolist()), tuple(doublings.tolist())
    )


def document_sizes(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and sentences of each document, int64 [documents] each."""
    tokens, sentences = (running_total(each) for each in (split.tokens_per_record, split.sentences_per_record))
    return np.diff(tokens[split.first_record]), np.diff(sentences[split.first_record])


def token_figures(split: Split, tokenizer: "Tokenizer", limit: int = MAX_TOKENS_READ) -> Tokens:
    """Return counts over all records or, where they have more than `limit` tokens, over a random sample of `limit`."""
    records = sample(split.tokens_per_record, limit)
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    lengths = np.zeros(1, np.int64)
    marked, unmarked = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for first in range(0, len(records), _RECORDS_AT_ONCE):
        chosen = records[first : first + _RECORDS_AT_ONCE]
        tokens, sentences, _, begins = split.read_words(chosen, tokenizer.continues)
        counts += np.bincount(tokens, minlength=len(counts))
        records_begin = running_total(split.tokens_per_record[chosen])
        marked += _masked_together(begins, records_begin)
        if split.has_words:
            unmarked += _masked_together(~tokenizer.continues[tokens], records_begin)
        found = np.bincount(sentences, minlength=len(lengths))
        found[: len(lengths)] += lengths
        lengths = found
    seen = int(counts.sum())
    decoded = records[np.linspace(0, len(records), min(len(records), DECODED_RECORDS), endpoint=False).astype(int)]
    tokens, *_ = split.read(decoded)
    characters, words = 0, int((~tokenizer.continues[tokens]).sum())
    for ids in np.split(tokens, np.cumsum(split.tokens_per_record[decoded])[:-1]):
        characters += len("".join(tokenizer.decode(ids.tolist()).split()))
    return Tokens(
        records=len(records),
        num_records=split.num_records,
        tokens=seen,
        counts=counts,
        sentences=_distribution(np.arange(len(lengths)), lengths),
        unknown=float(counts[tokenizer.unk_id] / max(1, seen)),
        tokens_per_word=seen / max(1, int(counts[~tokenizer.continues].sum())),
        characters_per_word=characters / max(1, words),
        joined=float(marked[0] / max(1, seen)),
        long_words=float(marked[1] / max(1, seen)),
        joined_by_vocabulary=float(unmarked[0] / max(1, seen)) if split.has_words else None,
        long_words_by_vocabulary=float(unmarked[1] / max(1, seen)) if split.has_words else None,
    )


def _masked_together(begins: np.ndarray, records_begin: np.ndarray) -> np.ndarray:
    """Return the tokens in words of 2 to MAX_WORD_TOKENS tokens, and in longer ones, int64 [2].

    Args:
        begins: bool [tokens], whether a word begins.
        records_begin: int64 [records + 1], where a record and so a word begins, and the end.
    """
    begins = np.append(begins, True)
    begins[records_begin] = True
    sizes = np.diff(np.flatnonzero(begins))
    long = sizes > MAX_WORD_TOKENS
    return np.array([sizes[(sizes > 1) & ~long].sum(), sizes[long].sum()])


def unigram_entropy(split: Split, vocab_size: int) -> float:
    """Return the entropy of `token_fractions` in nats: what a model that reads no context cannot beat."""
    fractions = token_fractions(split, vocab_size)
    fractions = fractions[fractions > 0]
    return -math.fsum(fractions * np.log(fractions))


def token_fractions(split: Split, vocab_size: int, limit: int = MAX_ENTROPY_TOKENS) -> np.ndarray:
    """Return how often each token occurs in a split, as a fraction of all: float64 `[vocab_size]`.

    Of a split with more than `limit` tokens a random sample of records is read, the same each time.
    """
    records, counts = sample(split.tokens_per_record, limit), np.zeros(vocab_size, np.int64)
    for first in range(0, len(records), _RECORDS_AT_ONCE):
        tokens, *_ = split.read(records[first : first + _RECORDS_AT_ONCE])
        counts += np.bincount(tokens, minlength=vocab_size)
    return counts / counts.sum()


def find_duplicates(train: Split, heldout: Split, limit: int = MAX_TOKENS_READ) -> Duplicates:
    """Count documents with equal ids, found by a hash of 128 bits.

    Equal documents have equal numbers of tokens and sentences, so only documents that share both numbers with another
    are read. Where those have more than `limit` tokens, a random part of the pairs of numbers is read.
    """
    split = Split.join([train, heldout])
    tokens, sentences = document_sizes(split)
    if not len(tokens):
        return Duplicates(True, 0, 0, 0, 0)
    _, shape, count = np.unique(tokens * (sentences.max() + 1) + sentences, return_inverse=True, return_counts=True)
    cost = np.bincount(shape, np.where(count[shape] > 1, tokens, 0)).astype(np.int64)
    taken = np.zeros(len(cost), bool)
    taken[sample(cost, limit)] = True
    compared = taken[shape]
    read = np.flatnonzero(compared & (count[shape] > 1))
    _, content = np.unique(_digests(split, read), axis=0, return_inverse=True)
    content = content.ravel()  # numpy 2.0.0 returns [n, 1]
    in_train = read < train.num_documents
    known = np.bincount(content[in_train], minlength=int(content.max(initial=-1)) + 1) > 0
    return Duplicates(
        exact=bool(taken.all()),
        train=int(compared[: train.num_documents].sum()),
        repeated=int(in_train.sum() - known.sum()),
        heldout=int(compared[train.num_documents :].sum()),
        leaked=int(known[content[~in_train]].sum()),
    )


def _digests(split: Split, documents: np.ndarray) -> np.ndarray:
    """Return hashes of the ids of documents, uint64 [documents, 2]; few records are in memory at a time."""
    first, count = split.first_record[documents], np.diff(split.first_record)[documents]
    starts = running_total(count)
    records = np.repeat(first - starts[:-1], count) + np.arange(starts[-1])
    last = np.zeros(len(records), bool)
    last[starts[1:] - 1] = True
    found, hasher = bytearray(), hashlib.blake2b(digest_size=16)
    for begin in range(0, len(records), _RECORDS_AT_ONCE):
        chosen = records[begin : begin + _RECORDS_AT_ONCE]
        data = split.read(chosen)[0].view(np.uint8)
        ends = (np.cumsum(split.tokens_per_record[chosen]) * split.dtype.itemsize).tolist()
        start = 0
        for end, is_last in zip(ends, last[begin : begin + _RECORDS_AT_ONCE].tolist(), strict=True):
            hasher.update(data[start:end].data)
            start = end
            if is_last:
                found += hasher.digest()
                hasher = hashlib.blake2b(digest_size=16)
    return np.frombuffer(bytes(found), np.uint64).reshape(-1, 2)


def sample(cost: np.ndarray, limit: int) -> np.ndarray:
    """Return ascending int64 [chosen] items that cost at most `limit` together, and at least one; all if they fit."""
    if cost.sum() <= limit:
        return np.arange(len(cost))
    order = np.random.default_rng(0).permutation(len(cost))
    return np.sort(order[: max(1, int(np.searchsorted(np.cumsum(cost[order]), limit, side="right")))])


def sequence_figures(sequences: Sequences, mask_id: int, number: int = NUM_SEQUENCES) -> SequenceFigures:
    """Return figures of the first `number` sequences, at most an epoch; they are a sample, as their order is random."""
    number = min(number, sequences.num_per_epoch)
    real = predictions = masked = kept = idle = examples = 0
    labels: int | None = None
    seq_len = 0
    for first in range(0, number, _SEQUENCES_AT_ONCE):
        batch = sequences.batch(np.arange(first, min(first + _SEQUENCES_AT_ONCE, number)))
        seq_len = batch["input_ids"].shape[1]
        wanted = batch["masked_weights"] > 0
        read = np.take_along_axis(batch["input_ids"], batch["masked_positions"], axis=1)
        real += int(batch["attention_mask"].sum())
        predictions += int(wanted.sum())
        masked += int((wanted & (read == mask_id)).sum())
        kept += int((wanted & (read == batch["masked_labels"])).sum())
        idle += int((~wanted.any(axis=1)).sum())
        examples += int(batch["example_weights"].sum())
        if "next_sentence_labels" in batch:
            labels = (labels or 0) + int(batch["next_sentence_labels"].sum())
    at_least_1 = max(1, predictions)
    return SequenceFigures(
        seq_len=seq_len,
        num_sequences=number,
        num_per_epoch=sequences.num_per_epoch,
        fill=real / (number * seq_len),
        examples=examples / number,
        predicted=predictions / real,
        masked=masked / at_least_1,
        random=(predictions - masked - kept) / at_least_1,
        kept=kept / at_least_1,
        labelled=None if labels is None else labels / examples,
        idle=idle / number,
    )


def coverage(
    split: ReadableSplit, separators: int, seq_len: int, config: DataConfig, limit: int = MAX_COVERED_TOKENS
) -> tuple[float, float]:
    """Return the fractions of the tokens that are in a sequence of the first epoch, and of the first two.

    Each source is read once per epoch, whatever its weight, but for those of weight 0. Of a split with more than
    `limit` tokens about so many are read, from the beginning of each source.

    Args:
        split: `corpus.Split`.
        separators: number of [SEP]s between the texts of a pair.
        seq_len: tokens per sequence.
        config: how sequences are built, and the sources that have no weight.
        limit: in tokens.

    Raises:
        UserError: as `make_sequences`.
    """
    weights = config.weights or (1.0,) * (len(split.source_documents) - 1)
    numbered = _NumberedTokens(split, limit, np.array(weights) > 0)
    vocab_size = _FIRST_NUMBER + numbered.num_tokens
    symbols = Symbols(0, 1, 2, separators, Vocabulary(vocab_size, 3, np.zeros(0, bool)))
    fields = ("sentence_pairs", "packing", "short_seq_probability", "dupe_factor")
    sequences = make_sequences(
        numbered, symbols, seq_len, 0, DataConfig(**{name: getattr(config, name) for name in fields})
    )
    found, read = [], np.zeros(vocab_size, bool)
    for epoch in range(2):
        numbers = epoch * sequences.num_per_epoch + np.arange(sequences.num_per_epoch)
        for part in np.array_split(numbers, -(-len(numbers) // _SEQUENCES_AT_ONCE)):
            batch = sequences.batch(part)
            hidden = np.nonzero(batch["masked_weights"])
            batch["input_ids"][hidden[0], batch["masked_positions"][hidden]] = batch["masked_labels"][hidden]
            read[batch["input_ids"]] = True
        found.append(float(read[_FIRST_NUMBER:].mean()))
    return found[0], found[1]


_FIRST_NUMBER = 4  # below it are special tokens


class _NumberedTokens:
    """About `limit` tokens of a split, from the beginning of each source; their ids are _FIRST_NUMBER and so on.

    `is_read` bool [sources]: the others are left empty.
    """

    def __init__(self, split: ReadableSplit, limit: int, is_read: np.ndarray):
        start = running_total(split.tokens_per_record)
        begins = np.zeros(len(start) - 1, bool)
        begins[split.first_record[:-1]] = True
        source_record = split.first_record[split.source_documents]
        source_tokens = np.diff(start[source_record])
        before = start[:-1] - np.repeat(start[source_record[:-1]], np.diff(source_record))
        part = min(1.0, limit / max(1, int(start[-1])))
        kept = before < np.repeat(part * source_tokens, np.diff(source_record))
        for first in split.source_documents[:-1].tolist():  # a pair needs two documents
            kept[split.first_record[first : min(first + 2, len(split.first_record) - 1)]] = True
        kept &= np.repeat(is_read, np.diff(source_record))
        self._split, self._records = split, np.flatnonzero(kept)
        self.tokens_per_record = split.tokens_per_record[kept]
        self.sentences_per_record = split.sentences_per_record[kept]
        self.first_record = np.append(np.flatnonzero(begins[kept]), len(self._records))
        self.source_documents = running_total(begins & kept)[source_record]
        self._start = running_total(self.tokens_per_record)
        self.num_tokens = int(self._start[-1])

    def read(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the given records, as `Split.read`."""
        _, lengths, sentences = self._split.read(self._records[records])
        sizes = self.tokens_per_record[records]
        shift = self._start[records] + _FIRST_NUMBER - running_total(sizes)[:-1]
        return np.repeat(shift, sizes) + np.arange(sizes.sum()), lengths, sentences
