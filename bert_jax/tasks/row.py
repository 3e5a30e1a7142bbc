"""A row, which is one input of a model and what it should say to it; rows as the arrays of a batch."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Example = Mapping[str, Any]  # as the readers give it: "id" and what its kind of task has
Batch = dict[str, np.ndarray]

# Kind of task -> key of an example's label.
LABEL = {
    "classification": "label",
    "regression": "label",
    "tagging": "labels",
    "span": "answers",
    "choice": "label",
}
# Key of `Row.targets` -> key and dtype in a batch, one number a row.
NUMBERS = {
    "label": ("labels", np.int32),
    "value": ("values", np.float32),
    "start": ("starts", np.int32),
    "end": ("ends", np.int32),
}


class Row(NamedTuple):
    """One input; an example has several where its text is longer than a row."""

    input_ids: np.ndarray | list[np.ndarray]  # int32 [n] with special tokens, no padding; a list of them, one a choice
    second: int | list[int]  # index at which the second text begins, n where there is none; one a choice
    example: int  # index of the example
    targets: Mapping[str, Any]  # label | value | labels int32 [n], -1 = not counted | start and end; {}: unlabelled
    context_offsets: np.ndarray | None = None  # span: int32 [n, 2], characters of the context; (-1, -1) elsewhere
    max_context: np.ndarray | None = None  # span: bool [n], no other window shows more around this token
    words: np.ndarray | None = None  # tagging: int32 [n], the word that is predicted at this token; -1 elsewhere

    @property
    def choices(self) -> list[tuple[np.ndarray, int]]:
        """Each input with the index of its second text: one, or one a choice."""
        if isinstance(self.input_ids, list):
            assert isinstance(self.second, list)
            return list(zip(self.input_ids, self.second, strict=True))
        assert isinstance(self.second, int)
        return [(self.input_ids, self.second)]

    @property
    def length(self) -> int:
        """Tokens, of the longest choice: what a bucket has to hold."""
        return max(len(ids) for ids, _ in self.choices)


def collate(rows: Sequence[Row], length: int, num_token_types: int, pad_id: int, batch_size: int) -> Batch:
    """The rows as C-contiguous arrays, completed by filler rows, which are the first row with a weight of 0.

    Args:
        rows: 1 to `batch_size`, of one kind, all labelled or none.
        length: every row is padded to it.
        num_token_types: from 2 on, the second text and the [SEP] after it are of type 1.
        pad_id: token of the padding.
        batch_size: rows of the batch.

    Returns:
        input_ids, token_type_ids, attention_mask: int32 `[batch, length]`, `[batch, choices, length]` for choices.
        example_weights: float32 `[batch]`.
        labels, starts, ends int32 `[batch]`, values float32 `[batch]`, token_labels int32 and token_weights float32
        `[batch, length]`: those that the rows have targets for.

    Raises:
        ValueError: no row, more than `batch_size`, or one longer than `length`.
    """
    if not 0 < len(rows) <= batch_size:
        raise ValueError(f"{len(rows)} rows do not make a batch of {batch_size}")
    filled = [*rows, *[rows[0]] * (batch_size - len(rows))]
    inputs, seconds = zip(*(choice for row in filled for choice in row.choices), strict=True)
    lengths = np.array([len(ids) for ids in inputs])
    if lengths.max() > length:
        raise ValueError(f"a row of {lengths.max()} tokens does not fit into {length}")
    position = np.arange(length)
    present = position < lengths[:, None]
    input_ids = np.full(present.shape, pad_id, np.int32)
    input_ids[present] = np.concatenate(inputs)
    in_second = present & (position >= np.array(seconds)[:, None]) & (num_token_types > 1)
    shape = (batch_size, *([len(rows[0].input_ids)] if isinstance(rows[0].input_ids, list) else []), length)
    weights = (np.arange(batch_size) < len(rows)).astype(np.float32)
    batch = {
        "input_ids": input_ids.reshape(shape),
        "token_type_ids": in_second.astype(np.int32).reshape(shape),
        "attention_mask": present.astype(np.int32).reshape(shape),
        "example_weights": weights,
    }
    for key in rows[0].targets.keys() & NUMBERS.keys():
        name, dtype = NUMBERS[key]
        batch[name] = np.array([row.targets[key] for row in filled], dtype)
    if "labels" in rows[0].targets:
        labels = np.full(present.shape, -1, np.int32)
        labels[present] = np.concatenate([row.targets["labels"] for row in filled])
        batch["token_labels"] = np.maximum(labels, 0)
        batch["token_weights"] = (labels >= 0).astype(np.float32) * weights[:, None]
    return batch
