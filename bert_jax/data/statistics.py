"""What a corpus and the rows made of it are like, in numbers: lengths, tokens, duplicates, masks, pairs.

Lengths of documents come from the index, whole. What must be read is read whole up to a limit of tokens, and beyond it
is a sample, the same every time; each result says how much it has seen.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from bert_jax.data.corpus import Split
from bert_jax.data.sequences.layout import running_total
from bert_jax.data.sequences.pipeline import Rows
from bert_jax.data.tokenizer import Tokenizer

READ_TOKENS = 200_000_000  # of a corpus, for each of the two results that read it: a few seconds
DECODED_RECORDS = 64
ROWS = 4096
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_AT_ONCE = 512  # records in memory
_ROWS_AT_ONCE = 256


class Distribution(NamedTuple):
    """Of lengths: `quantiles` at `QUANTILES`; `doublings[i]` of them lie from 2**i to 2**(i + 1) - 1."""

    number: int
    mean: float
    quantiles: tuple[int, ...]
    doublings: tuple[int, ...]


class Tokens(NamedTuple):
    """Of the training text. `records` read of how many there are; `counts` int64 [vocab_size] of the `tokens` in them.

    `sentences`: their lengths; `unknown`: share of the tokens; `pieces_a_word`: tokens over those that begin a word,
    and `characters_a_word` likewise, white space left out.
    """

    records: int
    of_records: int
    tokens: int
    counts: np.ndarray
    sentences: Distribution
    unknown: float
    pieces_a_word: float
    characters_a_word: float


class Duplicates(NamedTuple):
    """Documents whose ids are those of another. Looked at were `train` and `heldout` documents, all or a sample.

    `repeated` training documents say again what one before them said; `leaked` held-out ones what a training one says.
    """

    exact: bool
    train: int
    repeated: int
    heldout: int
    leaked: int


class RowFigures(NamedTuple):
    """Of `rows` rows of `length` tokens; an epoch has `per_epoch`.

    `fill`: share of real tokens, not padding; `examples`: a row; `predicted`: share of the real tokens to predict, and
    of those `masked`, `random` and `kept` as they are (a random token that happens to be the right one is kept too);
    `labelled`: share of pairs whose label is 1, None without pairs; `idle`: share of rows without a prediction.
    """

    length: int
    rows: int
    per_epoch: int
    fill: float
    examples: float
    predicted: float
    masked: float
    random: float
    kept: float
    labelled: float | None
    idle: float


def distribution(lengths: np.ndarray) -> Distribution:
    """Of int64 [any] lengths."""
    values, counts = np.unique(lengths, return_counts=True)
    return _distribution(values, counts)


def _distribution(values: np.ndarray, counts: np.ndarray) -> Distribution:
    """Of ascending `values`, each as often as `counts` says; a quantile is the least value that reaches its share."""
    number = int(counts.sum())
    if not number:
        return Distribution(0, 0.0, (0,) * len(QUANTILES), ())
    reached = np.cumsum(counts)
    places = np.searchsorted(reached, np.maximum(1, np.ceil(np.array(QUANTILES) * number)))
    _, exponents = np.frexp(values)  # v is below 2**exponent, and not below half of that
    doublings = np.bincount(np.maximum(exponents - 1, 0), counts).astype(np.int64)
    return Distribution(
        number, float((values * counts).sum() / number), tuple(values[places].tolist()), tuple(doublings.tolist())
    )


def document_sizes(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and sentences of each document; int64 [documents] both."""
    tokens, sentences = (running_total(each) for each in (split.tokens_per_record, split.sentences_per_record))
    return np.diff(tokens[split.first_record]), np.diff(sentences[split.first_record])


def token_figures(split: Split, tokenizer: Tokenizer, limit: int = READ_TOKENS) -> Tokens:
    """Counts over all records, or, where they have more than `limit` tokens, over a random sample of so many."""
    records = _sample(split.tokens_per_record, limit)
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    lengths = np.zeros(1, np.int64)
    for first in range(0, len(records), _AT_ONCE):
        tokens, sentences, _ = split.read(records[first : first + _AT_ONCE])
        counts += np.bincount(tokens, minlength=len(counts))
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
        of_records=split.num_records,
        tokens=seen,
        counts=counts,
        sentences=_distribution(np.arange(len(lengths)), lengths),
        unknown=float(counts[tokenizer.unk_id] / max(1, seen)),
        pieces_a_word=seen / max(1, int(counts[~tokenizer.continues].sum())),
        characters_a_word=characters / max(1, words),
    )


def duplicates(train: Split, heldout: Split, limit: int = READ_TOKENS) -> Duplicates:
    """Documents of equal ids, found by a hash of 128 bits.

    Equal documents have equally many tokens and sentences, so one that is alone with these numbers is not read. Where
    the others have more than `limit` tokens, documents of random pairs of such numbers are taken, all or none of each.
    """
    split = Split.join([train, heldout])
    tokens, sentences = document_sizes(split)
    if not len(tokens):
        return Duplicates(True, 0, 0, 0, 0)
    _, shape, alike = np.unique(tokens * (sentences.max() + 1) + sentences, return_inverse=True, return_counts=True)
    cost = np.bincount(shape, np.where(alike[shape] > 1, tokens, 0)).astype(np.int64)
    taken = np.zeros(len(cost), bool)
    taken[_sample(cost, limit)] = True
    looked_at = taken[shape]
    read = np.flatnonzero(looked_at & (alike[shape] > 1))
    _, content = np.unique(_digests(split, read), axis=0, return_inverse=True)
    content = content.ravel()  # numpy 2.0.0 has it [n, 1]
    in_train = read < train.num_documents
    known = np.bincount(content[in_train], minlength=int(content.max(initial=-1)) + 1) > 0
    return Duplicates(
        exact=bool(taken.all()),
        train=int(looked_at[: train.num_documents].sum()),
        repeated=int(in_train.sum() - known.sum()),
        heldout=int(looked_at[train.num_documents :].sum()),
        leaked=int(known[content[~in_train]].sum()),
    )


def _digests(split: Split, documents: np.ndarray) -> np.ndarray:
    """Hashes of the ids of documents, uint64 [documents, 2]; however long one is, few records are in memory."""
    first, count = split.first_record[documents], np.diff(split.first_record)[documents]
    starts = running_total(count)
    records = np.repeat(first - starts[:-1], count) + np.arange(starts[-1])
    last = np.zeros(len(records), bool)
    last[starts[1:] - 1] = True
    found, hasher = bytearray(), hashlib.blake2b(digest_size=16)
    for begin in range(0, len(records), _AT_ONCE):
        chosen = records[begin : begin + _AT_ONCE]
        data = split.read(chosen)[0].view(np.uint8)
        ends = (np.cumsum(split.tokens_per_record[chosen]) * split.dtype.itemsize).tolist()
        start = 0
        for end, is_last in zip(ends, last[begin : begin + _AT_ONCE].tolist(), strict=True):
            hasher.update(data[start:end].data)
            start = end
            if is_last:
                found += hasher.digest()
                hasher = hashlib.blake2b(digest_size=16)
    return np.frombuffer(bytes(found), np.uint64).reshape(-1, 2)


def _sample(cost: np.ndarray, limit: int) -> np.ndarray:
    """Ascending int64 [chosen] of items that cost `limit` together at most, at least one: all if they fit."""
    if cost.sum() <= limit:
        return np.arange(len(cost))
    order = np.random.default_rng(0).permutation(len(cost))
    return np.sort(order[: max(1, int(np.searchsorted(np.cumsum(cost[order]), limit, side="right")))])


def row_figures(rows: Rows, mask_id: int, number: int = ROWS) -> RowFigures:
    """Of the first `number` rows, or the first epoch if that is fewer: their order is random, so they are a sample."""
    number = min(number, rows.per_epoch)
    real = predictions = masked = kept = idle = examples = 0
    labels: int | None = None
    length = 0
    for first in range(0, number, _ROWS_AT_ONCE):
        batch = rows.batch(np.arange(first, min(first + _ROWS_AT_ONCE, number)))
        length = batch["input_ids"].shape[1]
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
    some = max(1, predictions)
    return RowFigures(
        length=length,
        rows=number,
        per_epoch=rows.per_epoch,
        fill=real / (number * length),
        examples=examples / number,
        predicted=predictions / real,
        masked=masked / some,
        random=(predictions - masked - kept) / some,
        kept=kept / some,
        labelled=None if labels is None else labels / examples,
        idle=idle / number,
    )
