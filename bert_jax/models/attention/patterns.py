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

    The first and the last block of `size` tokens are global. A token of any other block attends to the global blocks,
    to its block and to the two neighboring blocks. The library transformers draws random blocks only in training. At
    inference, copies of the first block replace the random blocks, so the keys of the first block are counted `1 +
    random_blocks` times. In sequences of up to `5 + 2 * random_blocks` blocks, all tokens attend to all tokens.

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
    block = jnp.arange(length) // size
    all_global = block[-1] < min_blocks  # a symbolic length may be short
    is_global = (block == 0) | (block == block[-1]) | all_global
    score_bias = jnp.where(block == 0, math.log(1 + random_blocks), 0.0)
    shape = metadata.mask.shape
    sparse = dataclasses.replace(
        metadata,
        radius=size,
        window=WindowSpec(radius=size, block_size=size),
        global_tokens=GlobalTokens(
            mask=jnp.broadcast_to(is_global, shape), score_bias=jnp.broadcast_to(score_bias, shape)
        ),
    )
    return with_gathered_tokens(sparse, 2 * size, gathers_all=True) if isinstance(length, int) else sparse
