"""The likeliest tokens at each mask of a text, with a model of any family."""

import functools
from collections.abc import Callable
from typing import TypedDict

import jax
import numpy as np

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models import Head, Params, make_model
from bert_jax.objectives.base import Batch

HEADS = (Head("masked_token"),)
MULTIPLE_OF_TOKENS, MULTIPLE_OF_MASKS = 16, 4  # texts are padded to these multiples, so that few programs are compiled


class MaskPrediction(TypedDict):
    """A token for a mask."""

    token: str
    id: int
    probability: float
    text: str  # the text with this mask filled, and all other masks unchanged


def fill_masks(model: OpenModel, text: str, top_k: int = 5, name: str = "the text") -> list[MaskPrediction]:
    """Return the `top_k` likeliest tokens of each mask in `text`: in the order of the masks, the likeliest first.

    Args:
        model: model with a masked-token head.
        text: text with masks in the spelling of the tokenizer, `[MASK]` or, for RoBERTa, `<mask>`.
        top_k: number of tokens per mask, from 1 to the size of the vocabulary.
        name: name of the text in messages.

    Raises:
        UserError: the model has no masked-token head, the text has no mask, the text has more tokens than the model
            reads, or `top_k` is out of range.
    """
    tokenizer, config = model.tokenizer, model.config
    if HEADS[0] not in model.heads:
        names = ", ".join(head.name for head in model.heads) or "no head"
        raise UserError(
            f"{model.directory}: a model with {names}, which cannot fill masks; give a model with masked_token"
        )
    if not 1 <= top_k <= tokenizer.vocab_size:
        raise UserError(f"top_k {top_k}: choose from 1 to {tokenizer.vocab_size}")
    ids = np.array(tokenizer.encode(text), np.int32)
    masks = np.flatnonzero(ids == tokenizer.mask_id).astype(np.int32)
    if not masks.size:
        mask_token = tokenizer.tokens[tokenizer.mask_id]
        foreign_mask = next((token for token in ("[MASK]", "<mask>") if token != mask_token and token in text), "")
        reason = (
            f"has {foreign_mask}, which is not the mask of this model; write {mask_token} instead"
            if foreign_mask
            else ""
        )
        raise UserError(f"{name} {reason or f'has no {mask_token}; write it where a token is missing'}")
    if ids.size > config.max_positions:
        raise UserError(f"{name} has {ids.size} tokens; this model reads {config.max_positions}")
    # Padding above the longest dense length would make the attention of a short text block-sparse.
    longest = config.max_positions if ids.size > config.max_dense_length else config.max_dense_length
    length = int(min(_rounded_up(ids.size, MULTIPLE_OF_TOKENS), config.max_positions, longest))
    batch = {
        "input_ids": _padded_row(ids, length, tokenizer.pad_id),
        "token_type_ids": np.zeros((1, length), np.int32),
        "attention_mask": _padded_row(np.ones_like(ids), length, 0),
        "masked_positions": _padded_row(masks, _rounded_up(masks.size, MULTIPLE_OF_MASKS), 0),
    }
    probabilities = np.asarray(_make_mask_probabilities_function(config, tokenizer.vocab_size)(model.params, batch))[
        : masks.size
    ]
    predictions: list[MaskPrediction] = []
    for mask, likely in zip(masks, probabilities, strict=True):
        for token in np.argsort(-likely, kind="stable")[:top_k]:
            filled = ids.copy()
            filled[mask] = token
            predictions.append(
                {
                    "token": tokenizer.tokens[token],
                    "id": int(token),
                    "probability": float(likely[token]),
                    "text": tokenizer.decode(filled[1:-1].tolist()),
                }
            )
    return predictions


@functools.lru_cache(maxsize=8)
def _make_mask_probabilities_function(config: EncoderConfig, vocab_size: int) -> Callable[[Params, Batch], jax.Array]:
    """Return a jitted function (params, batch of one text) -> probabilities, float32 `[masks, vocab_size]`."""
    model = make_model(config, ComputeConfig(), HEADS)

    def probabilities(params: Params, batch: Batch) -> jax.Array:
        return jax.nn.softmax(model.apply(params, batch, None)["mlm_logits"][0, :, :vocab_size])

    return jax.jit(probabilities)


def _rounded_up(count: int, multiple: int) -> int:
    """Return the smallest multiple of `multiple` that is not below `count`."""
    return -(-count // multiple) * multiple


def _padded_row(values: np.ndarray, length: int, padding: int) -> np.ndarray:
    """Return `values` as a batch of a single row, int32 `[1, length]`."""
    return np.pad(values, (0, length - values.size), constant_values=padding)[None]
