"""Hard negatives: documents that rank high for a query but do not answer it, and the rule that chooses them."""

import itertools
from collections.abc import Callable, Iterator, Sequence, Set
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.batches.hashing import Stream, random_bits
from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.inference.cross_encoder import PairScores
from bert_jax.search.bm25 import Bm25
from bert_jax.search.text_vectors import DOCUMENTS, QUERIES, similarity_of, text_vectors
from bert_jax.search.top_documents import top_documents

NUM_CONTAINING = 10  # candidates for documents that contain a positive, beside the documents that equal a text


class Candidates(NamedTuple):
    """The documents that rank highest for queries, the best first.

    Attributes:
        scores: float32 `[queries, depth]`; -inf for a document that shares no word with the query.
        indices: int64 `[queries, depth]`, positions of the documents.
        positive_scores: float32 `[queries]`, the scores of the positives.
    """

    scores: np.ndarray
    indices: np.ndarray
    positive_scores: np.ndarray


class QueryAndPositive(NamedTuple):
    """A query, and a document that answers it."""

    query: str
    positive: str


# (pairs, documents of a query) -> the candidates of each pair.
Retriever = Callable[[Sequence[QueryAndPositive], int], Candidates]
PositionOf = Callable[[str], int | None]  # text -> position of a document with this text; None: no document has it


def retriever_by_vectors(model: OpenModel, documents: np.ndarray, position_of: PositionOf) -> Retriever:
    """Return a retriever that ranks documents by the scores of their vectors.

    Args:
        model: the model of the vectors.
        documents: float32 `[documents, width]`, vectors of the documents.
        position_of: the position of the document that has a text.
    """
    scores = similarity_of(model).scores
    score_rows = jax.jit(jax.vmap(lambda query, document: scores(query[None], document[None])[0, 0]))

    def retrieve(pairs: Sequence[QueryAndPositive], depth: int) -> Candidates:
        queries = text_vectors(model, [pair.query for pair in pairs], QUERIES).vectors
        positions = {pair.positive: position_of(pair.positive) for pair in pairs}
        vectors = {text: documents[position] for text, position in positions.items() if position is not None}
        if unknown := [text for text, position in positions.items() if position is None]:
            encoded = np.asarray(text_vectors(model, unknown, DOCUMENTS).vectors)
            vectors |= dict(zip(unknown, encoded, strict=True))
        positives = np.stack([vectors[pair.positive] for pair in pairs])
        best = top_documents(queries, documents, depth, scores)
        return Candidates(best.scores, best.indices, np.asarray(score_rows(queries, positives)))

    return retrieve


def retriever_by_bm25(bm25: Bm25, position_of: PositionOf) -> Retriever:
    """Return a retriever that ranks documents by BM25; a positive that is not among the documents has the score NaN."""

    def retrieve(pairs: Sequence[QueryAndPositive], depth: int) -> Candidates:
        candidates = []
        for pair, scores in zip(pairs, bm25([pair.query for pair in pairs]), strict=True):
            best = np.argsort(-scores, kind="stable")[:depth]
            position = position_of(pair.positive)
            positive = np.asarray(np.nan if position is None else scores[position], np.float32)
            candidates.append(Candidates(np.where(scores[best] > 0, scores[best], -np.inf), best, positive))
        return Candidates(*(np.stack(arrays) for arrays in zip(*candidates, strict=True)))

    return retrieve


def without_extra_spaces(text: str) -> str:
    """Return the words of a text with single spaces between them, so that texts can be compared."""
    return " ".join(text.split())


class NegativeRule(NamedTuple):
    """The rule that chooses negatives from ranked documents.

    Attributes:
        first, end: ranks from `first` to below `end`, counted from 0 without the excluded documents.
        margin: documents whose score exceeds the score of the positive minus `margin` are skipped; None: no limit.
        num_negatives: negatives of a pair, drawn at random from the remaining documents.
        seed: seed of the draw.
    """

    first: int
    end: int
    margin: float | None
    num_negatives: int
    seed: int


class ChosenNegatives(NamedTuple):
    """The indices of the negatives of a pair, and a cross-encoder's scores of the positive and of these negatives."""

    indices: list[int]
    scores: list[float]


def retrieve_candidates(
    retrieve: Retriever,
    rule: NegativeRule,
    pairs: Sequence[QueryAndPositive],
    excluded: Sequence[Set[int]],
    documents: Sequence[str],
) -> Candidates:
    """Return the candidates of pairs: so many that each pair has all ranks of the rule, if there are as many documents.

    Documents that contain the positive are found only after the search, so the search is repeated with more candidates.
    """
    depth = rule.end + max(map(len, excluded)) + NUM_CONTAINING
    while True:
        candidates = retrieve(pairs, depth)
        rows = zip(candidates.scores[:, -1], _allowed_columns(pairs, candidates, excluded, documents), strict=True)
        if depth >= len(documents) or all(
            not np.isfinite(last) or len(list(itertools.islice(columns, rule.end))) == rule.end
            for last, columns in rows
        ):
            return candidates
        depth *= 2


def _allowed_columns(
    pairs: Sequence[QueryAndPositive], candidates: Candidates, excluded: Sequence[Set[int]], documents: Sequence[str]
) -> Iterator[Iterator[int]]:
    """Yield, for each pair, the columns of the candidates that may be negatives, as an iterator."""
    for row, (not_negative, pair) in enumerate(zip(excluded, pairs, strict=True)):
        positive = without_extra_spaces(pair.positive)
        yield (
            column
            for column, index in enumerate(candidates.indices[row])
            if index not in not_negative
            and np.isfinite(candidates.scores[row, column])
            and positive not in without_extra_spaces(documents[index])
        )


def choose_negatives(
    rule: NegativeRule,
    pair_numbers: Sequence[int],
    pairs: Sequence[QueryAndPositive],
    candidates: Candidates,
    excluded: Sequence[Set[int]],
    documents: Sequence[str],
    cross_encoder: PairScores | None = None,
) -> Iterator[ChosenNegatives | None]:
    """Yield the negatives of each pair; None for a pair with fewer documents than the rule asks for.

    With a cross-encoder, the margin applies to the scores of the cross-encoder.

    Args:
        rule: the rule.
        pair_numbers: number of each pair, on which the draw depends.
        pairs: the pairs.
        candidates: ranked documents of each query, from `retrieve_candidates`.
        excluded: for each pair, indices of the documents that answer or equal the query of the pair.
        documents: texts of all documents.
        cross_encoder: the scores of (query, document); None: no filter.
    """
    of_pairs = []
    for row, allowed_columns in enumerate(_allowed_columns(pairs, candidates, excluded, documents)):
        columns = list(itertools.islice(allowed_columns, rule.first, rule.end))
        of_pairs.append((candidates.indices[row, columns], candidates.scores[row, columns]))
    positive_scores = candidates.positive_scores
    if cross_encoder:
        texts = [(pair.query, pair.positive) for pair in pairs]
        texts += [
            (pair.query, documents[index])
            for pair, (indices, _) in zip(pairs, of_pairs, strict=True)
            for index in indices
        ]
        scores = cross_encoder(texts)
        positive_scores = scores[: len(pairs)]
        ends = np.cumsum([len(indices) for indices, _ in of_pairs])[:-1]
        of_candidates = np.split(scores[len(pairs) :], ends)
        of_pairs = [(indices, values) for (indices, _), values in zip(of_pairs, of_candidates, strict=True)]
    for pair_number, (indices, scores), positive in zip(pair_numbers, of_pairs, positive_scores, strict=True):
        passes = np.ones(len(indices), bool) if rule.margin is None else scores <= positive - rule.margin
        allowed = np.flatnonzero(passes)
        if len(allowed) < rule.num_negatives:
            yield None
            continue
        order = np.argsort(
            random_bits(rule.seed, Stream.NEGATIVES, pair_number, np.arange(len(allowed))), kind="stable"
        )
        drawn = np.sort(allowed[order[: rule.num_negatives]])  # the highest rank first
        yield ChosenNegatives(
            [int(index) for index in indices[drawn]],
            [float(positive), *(float(score) for score in scores[drawn])] if cross_encoder else [],
        )
