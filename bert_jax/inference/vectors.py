"""Vectors of texts in the memory of the host: arrays, the terms of sparse vectors, or vectors of tokens.

`len(vectors)` is the number of texts. `vectors[indices]` is an array, float32 `[indices, ...]`, because the functions
in SCORES compare arrays.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np


@dataclasses.dataclass(frozen=True)
class SparseVectors:
    """The terms of sparse vectors; the terms of text i are at `offsets[i]:offsets[i + 1]`.

    Attributes:
        ids: int32 `[terms]`, ids of the tokens with a weight above 0, in ascending order for each text.
        weights: float32 `[terms]`.
        offsets: int64 `[texts + 1]`.
        width: size of the vocabulary.
    """

    ids: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray
    width: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, indices: int | np.ndarray) -> np.ndarray:
        """Return the dense vector of a text, float32 `[width]`, or of several texts, float32 `[indices, width]`."""
        if isinstance(indices, int | np.integer):
            vector: np.ndarray = self[np.array([indices])][0]
            return vector
        array = np.zeros((len(indices), self.width), np.float32)
        for row, index in enumerate(range(len(self))[int(index)] for index in indices):
            terms = slice(*self.offsets[index : index + 2])
            array[row, self.ids[terms]] = self.weights[terms]
        return array

    @classmethod
    def from_rows(cls, rows: Iterable[np.ndarray], width: int) -> Self:
        """Return the sparse vectors of texts, from a dense vector `[width]` of each text."""
        ids, weights = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
        for row in rows:
            ids.append(np.flatnonzero(row).astype(np.int32))
            weights.append(row[ids[-1]])
        offsets = np.cumsum([len(terms) for terms in ids], dtype=np.int64)
        return cls(np.concatenate(ids), np.concatenate(weights), offsets, width)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the vectors of all parts, one part after another."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        ids, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "weights"))
        return cls(ids, weights, np.cumsum(np.append(0, lengths), dtype=np.int64), parts[0].width)


@dataclasses.dataclass(frozen=True)
class TokenVectors:
    """Vectors of tokens; the tokens of text i are at `offsets[i]:offsets[i + 1]`.

    Attributes:
        vectors: float32 `[tokens, width]`.
        offsets: int64 `[texts + 1]`.
    """

    vectors: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, indices: int | np.ndarray) -> np.ndarray:
        """Return the vectors of a text, float32 `[tokens, width]`.

        For several texts, return their vectors, float32 `[indices, tokens of the longest text, width]`, padded with 0.
        """
        if isinstance(indices, int | np.integer):
            index = range(len(self))[int(indices)]
            return self.vectors[slice(*self.offsets[index : index + 2])]
        longest = max(int(np.diff(self.offsets).max(initial=0)), 1)
        array = np.zeros((len(indices), longest, self.vectors.shape[1]), np.float32)
        for row, index in enumerate(range(len(self))[int(index)] for index in indices):
            of_text = self.vectors[slice(*self.offsets[index : index + 2])]
            array[row, : len(of_text)] = of_text
        return array

    @classmethod
    def from_rows(cls, rows: Sequence[np.ndarray], width: int) -> Self:
        """Return the vectors of texts, from an array `[tokens, width]` for each text."""
        offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return cls(np.concatenate([np.zeros((0, width), np.float32), *rows]), offsets)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the vectors of all parts, one part after another."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        offsets = np.cumsum(np.append(0, lengths), dtype=np.int64)
        return cls(np.concatenate([part.vectors for part in parts]), offsets)


TextVectors = np.ndarray | SparseVectors | TokenVectors


def join_vectors(parts: Sequence[Any]) -> TextVectors:
    """Return the vectors of all parts together; all parts have the same type."""
    kind = type(parts[0])
    return np.concatenate(parts) if kind is np.ndarray else kind.joined(parts)


def mean_numbers_per_text(vectors: TextVectors) -> float:
    """Return how many numbers a text has in `vectors`, as the mean over the texts.

    A dense vector has as many numbers as its width, a sparse vector has its weights above 0, and vectors of tokens have
    the width for each token.
    """
    if isinstance(vectors, SparseVectors):
        return len(vectors.weights) / max(1, len(vectors))
    array = vectors if isinstance(vectors, np.ndarray) else vectors.vectors
    return array.size / max(1, len(vectors))
