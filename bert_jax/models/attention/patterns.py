"""Attention patterns for long sequences: windows and global tokens."""

import dataclasses
import math
from collections import Counter

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention.inputs import NO_LIMIT, AttentionMetadata, GlobalTokens, WindowSpec


def local_window_spec(config: EncoderConfig) -> WindowSpec:
    """Return the window of the local layers; the model must have local layers."""
    width, every, num_layers = config.local_window, config.global_every, config.num_layers
    assert width
    if config.local_windows:
        radius_counts = tuple(Counter(width // 2 for width in config.local_windows).items())
    else:  # arithmetic instead of a loop over layers, because a config.json may claim any number of layers
        num_global = -(-num_layers // every) if every else 0
        radius_counts = ((NO_LIMIT, num_global), (width // 2, num_layers - num_global))
    return WindowSpec(radius=width // 2, every_layer=every == 0, radius_counts=radius_counts)


def with_gathered_tokens(metadata: AttentionMetadata, num_gathered: int, gathers_all: bool) -> AttentionMetadata:
    """Return the metadata with the columns of `num_gathered` global tokens; if `gathers_all`, no sequence has more."""
    window, tokens = metadata.window, metadata.global_tokens
    assert window
    assert tokens
    num_gathered = min(num_gathered, tokens.mask.shape[1])
    _, columns = jax.lax.top_k(tokens.mask.astype(jnp.int32), num_gathered)  # top_k takes the first of equal values
    return dataclasses.replace(
        metadata,
        window=dataclasses.replace(window, num_gathered=num_gathered, gathers_all=gathers_all),
        global_tokens=dataclasses.replace(tokens, columns=columns),
    )


def block_sparse_metadata(metadata: AttentionMetadata, size: int, random_blocks: int) -> AttentionMetadata:
    """Return the metadata of block-sparse attention (Zaheer et al. 2020, BigBird), as transformers computes it.

    The first and the last block of `size` tokens of a sequence are global. A token of any other block attends to the
    global blocks, to its block and to the two neighboring blocks. The library transformers draws random blocks only in
    training. At inference, copies of the first block replace the random blocks, so the keys of the first block are
    counted `1 + random_blocks` times. If the length is at most `5 + 2 * random_blocks` blocks, all tokens attend to all
    tokens; a symbolic length is compared for each sequence, without its padding. In transformers, the last block is the
    last block with padding, so the outputs are equal for a sequence alone.

    Raises:
        UserError: sequences are packed and long enough for sparse attention, which is defined only for single texts.
    """
    length, min_blocks = metadata.mask.shape[1], 5 + 2 * random_blocks
    if isinstance(length, int) and length <= min_blocks * size:
        return metadata
    if metadata.segments is not None:
        raise UserError(
            f"packed sequences of {length} tokens: block-sparse attention above {min_blocks * size} reads one text; "
            "set config.data.packing=1"
        )
    column = jnp.arange(length)
    block = column // size
    num_tokens = jnp.max(jnp.where(metadata.mask != 0, column + 1, 1), axis=1, keepdims=True)  # [sequences, 1]
    is_global = (block == 0) | (block == (num_tokens - 1) // size)
    if not isinstance(length, int):  # a symbolic length may be short
        is_global |= num_tokens <= min_blocks * size
    score_bias = jnp.where(block == 0, math.log(1 + random_blocks), 0.0)
    sparse = dataclasses.replace(
        metadata,
        radius=size,
        window=WindowSpec(radius=size, block_size=size),
        global_tokens=GlobalTokens(mask=is_global, score_bias=jnp.broadcast_to(score_bias, is_global.shape)),
    )
    return with_gathered_tokens(sparse, 2 * size, gathers_all=True) if isinstance(length, int) else sparse
