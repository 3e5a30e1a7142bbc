"""Which tokens attention reads in long sequences: windows, and tokens beside them."""

import dataclasses
import math
from collections import Counter

import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models.attention.inputs import NO_LIMIT, GlobalTokens, Surroundings, Window


def local_window(config: EncoderConfig) -> Window:
    """Return the window of the local layers of a model that has some."""
    window, every, number = config.local_window, config.global_every, config.num_layers
    assert window
    if config.local_windows:
        layers = tuple(Counter(size // 2 for size in config.local_windows).items())
    else:  # by arithmetic, not layer by layer: a config.json may claim any number of layers
        whole = -(-number // every) if every else 0
        layers = ((NO_LIMIT, whole), (window // 2, number - whole))
    return Window(window // 2, always=every == 0, layers=layers)


def with_columns(surroundings: Surroundings, beside: int, at_most: bool) -> Surroundings:
    """Return them with the columns of global tokens, which chunks read; `at_most`: there are never more."""
    window, tokens = surroundings.window, surroundings.global_tokens
    assert window
    assert tokens
    window = dataclasses.replace(window, beside=min(beside, tokens.chosen.shape[1]), all_beside=at_most)
    _, columns = jax.lax.top_k(tokens.chosen.astype(jnp.int32), window.beside)  # of equal values the first
    return surroundings._replace(window=window, global_tokens=tokens._replace(columns=columns))


def block_sparse(surroundings: Surroundings, size: int, random_blocks: int) -> Surroundings:
    """Return the surroundings of block-sparse attention (Zaheer et al. 2020, BigBird), as transformers computes it.

    The first and the last block of `size` tokens are global. The others read these, their own block and those beside
    it, and as random blocks, which transformers draws in training alone, the first block again: its keys count
    `1 + random_blocks` times. Up to `5 + 2 * random_blocks` blocks all tokens read all.

    Raises:
        UserError: longer sequences are packed: the pattern is that of one text.
    """
    length, fewest = surroundings.mask.shape[1], 5 + 2 * random_blocks
    if isinstance(length, int) and length <= fewest * size:
        return surroundings
    if surroundings.segments is not None:
        raise UserError(
            f"packed sequences of {length} tokens: block-sparse attention above {fewest * size} reads one text; set "
            "config.data.packing=1"
        )
    block = jnp.arange(length) // size
    all_global = block[-1] < fewest  # of a symbolic length, which may be short
    chosen = (block == 0) | (block == block[-1]) | all_global
    extra = jnp.where(block == 0, math.log(1 + random_blocks), 0.0)
    shape = surroundings.mask.shape
    tokens = GlobalTokens(jnp.broadcast_to(chosen, shape), jnp.broadcast_to(extra, shape))
    found = surroundings._replace(reach=size, window=Window(size, size), global_tokens=tokens)
    return with_columns(found, 2 * size, at_most=True) if isinstance(length, int) else found
