"""Guess masked tokens with a model directory of any family."""

import pathlib
from typing import Any

import jax
import numpy as np

from bert_jax.config import ComputeConfig
from bert_jax.errors import UserError
from bert_jax.inference.load import open_model
from bert_jax.models import Head, make_model

HEADS = (Head("masked_token"),)


def fill_mask(directory: pathlib.Path, text: str, top_k: int = 5) -> list[dict[str, Any]]:
    """The `top_k` likeliest tokens of each mask in `text`, likeliest first, mask after mask.

    A mask is spelled as the tokenizer has it: `[MASK]`, in RoBERTa `<mask>`. Each guess has `token`, `id`,
    `probability` and `text` (with this mask filled, others left).
    Raises UserError for a model that was not trained to guess tokens, for a text without a mask or longer than the
    model reads, and for a `top_k` it cannot give.
    """
    config, _, params, _, tokenizer = open_model(directory, HEADS)
    if not 1 <= top_k <= tokenizer.vocab_size:
        raise UserError(f"--top_k {top_k}: choose from 1 to {tokenizer.vocab_size}")
    ids = np.array(tokenizer.encode(text), np.int32)
    masks = np.flatnonzero(ids == tokenizer.mask_id).astype(np.int32)
    if not masks.size:
        raise UserError(
            f"the text has no {tokenizer.tokens[tokenizer.mask_id]}: write it where a word is to be guessed"
        )
    if ids.size > config.max_positions:
        raise UserError(f"the text has {ids.size} tokens; this model reads {config.max_positions}")
    batch = {
        "input_ids": ids[None],
        "token_type_ids": np.zeros_like(ids)[None],
        "attention_mask": np.ones_like(ids)[None],
        "masked_positions": masks[None],
    }
    model = make_model(config, ComputeConfig(), HEADS)
    logits = jax.jit(model.apply, static_argnums=2)(params, batch, None)["mlm_logits"][0]
    probabilities = np.asarray(jax.nn.softmax(logits[:, : tokenizer.vocab_size]))
    guesses = []
    for mask, row in zip(masks, probabilities, strict=True):
        for token in np.argsort(-row, kind="stable")[:top_k]:
            filled = ids.copy()
            filled[mask] = token
            guesses.append(
                {
                    "token": tokenizer.tokens[token],
                    "id": int(token),
                    "probability": float(row[token]),
                    "text": tokenizer.decode(filled[1:-1].tolist()),
                }
            )
    return guesses
