"""The inputs of a model, which are made from the examples of a task."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

Encoded = TypeVar("Encoded")

IN_NO_WINDOW = "questions_with_an_answer_in_no_window"  # name of a count of question answering
SPELLED = "texts_with_spelled_special_tokens"  # count of inputs whose text spells [PAD], [CLS], [SEP] or [MASK]
UNKNOWN = "texts_of_mostly_unknown_tokens"  # count of inputs with mostly unknown tokens; absent if it is 0
CHUNK = 1_000  # texts per call of the tokenizer library, to bound its memory
_NONE: Mapping[str, Any] = MappingProxyType({})


class TokenSequence(NamedTuple):
    """The token ids of a sequence, and the index of its first token with token type 1."""

    ids: np.ndarray
    type_1_start: int


class Features(NamedTuple):
    """An input of a model; an example whose text is longer than a sequence has several inputs."""

    # Token ids with special tokens and without padding, int32 [n]; for an example with choices, an array per choice.
    input_ids: np.ndarray | list[np.ndarray]
    # Index of the first token of type 1, or n if there is none; for an example with choices, an index per choice.
    type_1_start: int | list[int]
    example: int  # index of the example
    # Key in the batch -> target, with the dtype of the batch. A target is a number, an array [n] with a number for each
    # token (of all choices), or an array [1, ...]. An unlabeled example has only targets that the head reads as inputs.
    targets: Mapping[str, Any] = _NONE
    alignment: Mapping[str, np.ndarray] = _NONE  # arrays [n, ...] that map tokens back to the example

    @property
    def sequences(self) -> list[TokenSequence]:
        """The token sequences of the input: a single sequence, or one sequence for each choice."""
        if isinstance(self.input_ids, list):
            assert isinstance(self.type_1_start, list)
            return [TokenSequence(*sequence) for sequence in zip(self.input_ids, self.type_1_start, strict=True)]
        assert isinstance(self.type_1_start, int)
        return [TokenSequence(self.input_ids, self.type_1_start)]

    @property
    def length(self) -> int:
        """Number of tokens of the input's sequence or, with several choices, of the longest choice."""
        return max(len(ids) for ids, _ in self.sequences)

    @property
    def num_tokens(self) -> int:
        """Total number of tokens in all sequences of the input."""
        return sum(len(ids) for ids, _ in self.sequences)


def encode_distinct(texts: Iterable[str], encode: Callable[[Sequence[str]], list[Encoded]]) -> dict[str, Encoded]:
    """Return a dict from each text to its encoding; a repeated text, such as a shared context, is encoded only once.

    Args:
        texts: texts in any order, perhaps with repetitions.
        encode: a method of `Tokenizer` that takes a batch of texts.
    """
    distinct = list(dict.fromkeys(texts))
    chunks = (distinct[start : start + CHUNK] for start in range(0, len(distinct), CHUNK))
    return {text: encoded for chunk in chunks for text, encoded in zip(chunk, encode(chunk), strict=True)}


class FeaturesAndCounts(NamedTuple):
    """The features of examples, and the counts of each kind of truncation and of each kind of split."""

    features: list[Features]
    counts: dict[str, int]
