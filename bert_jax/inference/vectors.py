"""Vectors of texts in the memory of the host: arrays, or the terms of sparse vectors.

Each kind has a length, and `vectors[indices]` is an array float32 `[indices, ...]`, as the rows of SCORES compare them.
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

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Return the vectors of some texts with their zeros, float32 `[indices, width]`."""
        array = np.zeros((len(indices), self.width), np.float32)
        for row, index in enumerate(indices):
            terms = slice(*self.offsets[index : index + 2])
            array[row, self.ids[terms]] = self.weights[terms]
        return array

    @classmethod
    def from_rows(cls, rows: Iterable[np.ndarray], width: int) -> Self:
        """Return the terms of the vectors `[width]` of texts."""
        ids, weights = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
        for row in rows:
            ids.append(np.flatnonzero(row).astype(np.int32))
            weights.append(row[ids[-1]])
        offsets = np.cumsum([len(terms) for terms in ids], dtype=np.int64)
        return cls(np.concatenate(ids), np.concatenate(weights), offsets, width)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the vectors of all parts."""
        ends = np.cumsum([part.offsets[-1] for part in parts])
        begins = [part.offsets[:-1] + end - part.offsets[-1] for part, end in zip(parts, ends, strict=True)]
        ids, weights = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ids", "weights"))
        return cls(ids, weights, np.concatenate([*begins, ends[-1:]]), parts[0].width)


TextVectors = np.ndarray | SparseVectors


def join_vectors(parts: Sequence[Any]) -> TextVectors:
    """Return the vectors of all parts, TextVectors of one kind."""
    kind = type(parts[0])
    return np.concatenate(parts) if kind is np.ndarray else kind.joined(parts)
