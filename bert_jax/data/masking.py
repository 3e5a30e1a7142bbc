"""Masked-language-model targets: a pure function of (ids, seed, row number).

After google-research/bert, create_pretraining_data.py, with the masks drawn anew for each row number instead of once.
"""

import math
from typing import NamedTuple

import numpy as np

from bert_jax.config import DataConfig
from bert_jax.data.hashing import Stream, integers, random_bits, uniform

_POSITION_BITS = np.uint64(16)


class Masked(NamedTuple):
    """Ids to read and what to predict; `predictions` is `max_predictions`.

    `input_ids` int32 [rows, length]; `positions` int32 [rows, predictions], ascending; `labels` int32 and `weights`
    float32 [rows, predictions]. Unused predictions come last, with position, label and weight 0.
    """

    input_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    weights: np.ndarray


def max_predictions(length: int, mask_probability: float) -> int:
    """Predictions of a full row: 20 at length 128 and 77 at 512 with the usual 15 %."""
    return math.ceil(mask_probability * length)


def mask_tokens(
    input_ids: np.ndarray,
    maskable: np.ndarray,
    lengths: np.ndarray,
    rows: np.ndarray,
    *,
    seed: int,
    config: DataConfig,
    vocab_size: int,
    mask_id: int,
) -> Masked:
    """Chooses tokens to predict and hides them: 80 % [MASK], 10 % a random token, 10 % as they are.

    A row predicts `mask_probability` times its length, special tokens included, rounded half to even, at least 1 and
    at most its maskable tokens, chosen uniformly without replacement.

    Args:
        input_ids: int32 [rows, length]; not changed.
        maskable: bool [rows, length], False for [CLS], [SEP] and padding; at least one True a row.
        lengths: int [rows], tokens that are not padding.
        rows: int64 [rows], row numbers; another number gives other masks.
        seed: of the run.
        config: `mask_probability`, `mask_token_share`, `random_token_share`.
        vocab_size: the random tokens are uniform over all of it, as in the original.
        mask_id: of [MASK].
    """
    count = max_predictions(input_ids.shape[1], config.mask_probability)
    wanted = np.maximum(1, np.rint(config.mask_probability * lengths)).astype(np.int64)
    wanted = np.minimum(wanted, maskable.sum(axis=1))
    positions, used = _choose(maskable, wanted, count, random_bits(seed, Stream.MASK_POSITION, rows))

    lines = np.arange(len(rows))[:, None]
    labels = np.where(used, input_ids[lines, positions], 0)
    kind = uniform(random_bits(seed, Stream.MASK_KIND, rows[:, None], positions))
    token = integers(random_bits(seed, Stream.MASK_TOKEN, rows[:, None], positions), vocab_size)
    replaced = np.where(kind < config.mask_token_share + config.random_token_share, token, labels)
    replaced = np.where(kind < config.mask_token_share, mask_id, replaced)
    masked = input_ids.copy()
    line, prediction = np.nonzero(used)
    masked[line, positions[line, prediction]] = replaced[line, prediction]
    return Masked(masked, positions, labels, used.astype(np.float32))


def _choose(maskable: np.ndarray, wanted: np.ndarray, count: int, seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Uniformly `wanted` int64 [rows] of the maskable positions: int32 [rows, count] ascending, and which are used."""
    length = maskable.shape[1]
    # The low bits of a key are its position: the smallest keys, sorted, are a random draw without ties.
    keys = random_bits(seeds[:, None], np.arange(length))
    keys >>= _POSITION_BITS
    keys <<= _POSITION_BITS
    keys |= np.arange(length, dtype=np.uint64)
    keys[~maskable] = np.iinfo(np.uint64).max
    if count < length:
        keys = np.partition(keys, count - 1, axis=1)[:, :count]
    keys = np.sort(keys, axis=1)
    used = np.arange(count) < wanted[:, None]
    positions = np.where(used, keys & np.uint64((1 << 16) - 1), 1 << 16).astype(np.int32)
    positions.sort(axis=1)
    positions[~used] = 0
    return positions, used
