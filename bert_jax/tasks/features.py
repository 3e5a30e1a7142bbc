"""Features, the inputs of a model made from an example, and batches of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

Batch = dict[str, np.ndarray]
Encoded = TypeVar("Encoded")

CHUNK = 1_000  # texts per call of the tokenizer library, to bound its memory
_NONE: Mapping[str, Any] = MappingProxyType({})


class Features(NamedTuple):
    """One input of a model; an example whose text does not fit one sequence has several."""

    input_ids: np.ndarray | list[np.ndarray]  # int32 [n] with special tokens, no padding; a list: one per choice
    second: int | list[int]  # index of the first token of the second text, n without one; a list: one per choice
    example: int  # index of the example
    # Key in the batch -> a number, or an array [n] of one number per token, with the dtype of the batch; {}: no label.
    targets: Mapping[str, Any] = _NONE
    alignment: Mapping[str, np.ndarray] = _NONE  # arrays [n, ...] that map tokens back to the example

    @property
    def sequences(self) -> list[tuple[np.ndarray, int]]:
        """Token ids and index of the second text: one pair, or one per choice."""
        if isinstance(self.input_ids, list):
            assert isinstance(self.second, list)
            return list(zip(self.input_ids, self.second, strict=True))
        assert isinstance(self.second, int)
        return [(self.input_ids, self.second)]

    @property
    def length(self) -> int:
        """Number of tokens, of the longest choice."""
        return max(len(ids) for ids, _ in self.sequences)


def collate(features: Sequence[Features], seq_len: int, num_token_types: int, pad_id: int, batch_size: int) -> Batch:
    """Return features as C-contiguous arrays. Fillers with weight 0, copies of the first one, complete the batch.

    Args:
        features: 1 to `batch_size`, of one kind, all labeled or none.
        seq_len: the length of each sequence after padding.
        num_token_types: with 2 or more, the second text and its [SEP] are of type 1.
        pad_id: token id of the padding.
        batch_size: number of features in the batch.

    Returns:
        input_ids, token_type_ids, attention_mask: int32 `[batch, seq_len]`, with choices `[batch, choices, seq_len]`.
        example_weights: float32 `[batch]`.
        The keys of `targets`: `[batch]` for a number, `[batch, seq_len]` for one number per token; 0 in padding and in
        fillers.

    Raises:
        ValueError: no features, more than `batch_size`, or a sequence longer than `seq_len`.
    """
    if not 0 < len(features) <= batch_size:
        raise ValueError(f"{len(features)} features do not make a batch of {batch_size}")
    filled = [*features, *[features[0]] * (batch_size - len(features))]
    inputs, seconds = zip(*(sequence for feature in filled for sequence in feature.sequences), strict=True)
    lengths = np.array([len(ids) for ids in inputs])
    if lengths.max() > seq_len:
        raise ValueError(f"a sequence of {lengths.max()} tokens does not fit into {seq_len}")
    position = np.arange(seq_len)
    present = position < lengths[:, None]
    input_ids = np.full(present.shape, pad_id, np.int32)
    input_ids[present] = np.concatenate(inputs)
    in_second = present & (position >= np.array(seconds)[:, None]) & (num_token_types > 1)
    choices = features[0].input_ids
    shape = (batch_size, *([len(choices)] if isinstance(choices, list) else []), seq_len)
    real = np.arange(batch_size) < len(features)
    batch = {
        "input_ids": input_ids.reshape(shape),
        "token_type_ids": in_second.astype(np.int32).reshape(shape),
        "attention_mask": present.astype(np.int32).reshape(shape),
        "example_weights": real.astype(np.float32),
    }
    for key in features[0].targets:
        values = [np.asarray(feature.targets[key]) for feature in filled]
        if values[0].ndim:
            batch[key] = np.zeros(present.shape, values[0].dtype)
            batch[key][present & real[:, None]] = np.concatenate(values[: len(features)])
        else:
            batch[key] = np.where(real, np.stack(values), 0).astype(values[0].dtype)
    return batch


def encode_distinct(texts: Iterable[str], encode: Callable[[Sequence[str]], list[Encoded]]) -> dict[str, Encoded]:
    """Return text -> its encoding. Each distinct text is encoded once: questions share contexts, pairs sentences.

    Args:
        texts: in any order, with repetitions.
        encode: a method of `Tokenizer` that takes a batch of texts.
    """
    distinct = list(dict.fromkeys(texts))
    chunks = (distinct[start : start + CHUNK] for start in range(0, len(distinct), CHUNK))
    return {text: encoded for chunk in chunks for text, encoded in zip(chunk, encode(chunk), strict=True)}
