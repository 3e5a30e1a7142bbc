"""What a position scheme consists of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from bert_jax.config import EncoderConfig

Embed = Callable[[int, jax.Array | None], jax.Array]


class Distances(NamedTuple):
    """Embeddings of distances, and the row of each distance from `-length` to `length - 1`, to the right."""

    table: jax.Array  # float32 [rows, hidden]
    of_keys: jax.Array  # int32 [2 * length], of a key from the query that reads it
    of_queries: jax.Array  # int32 [2 * length], of a query from the key that reads it


class PositionScheme(NamedTuple):
    """A row of POSITIONS: up to four parts, None where the scheme does not have it.

    `embed(module, config)`: makes the parameters of the scheme in the setup of the embeddings, and returns a function
    of the length and the segments, whose result is added to the token embeddings: float32 `[length, width]` or
    `[batch, length, width]`.
    `rotate(config, x, angles)`: transforms the queries and the keys of each layer, `[batch, length, heads * head_dim]`.
    `angles(config, base, length, segments)`: what `rotate` reads, a tree of arrays; computed once for all layers, with
    the base of global and with that of local blocks.
    `bias(module, config, length)`: float32 `[heads, length, length]` by query and key, added to the scores; computed
    once for all layers, with parameters that they share.
    `distances(module, config, length)`: embeddings of distances, which each layer's own queries and keys read; their
    table is shared by all layers.

    `segments`: int32 `[batch, length]` of packed sequences, whose positions restart; None where nothing is packed.
    """

    embed: Callable[[nn.Module, EncoderConfig], Embed] | None = None
    rotate: Callable[[EncoderConfig, jax.Array, Any], jax.Array] | None = None
    angles: Callable[[EncoderConfig, float, int, jax.Array | None], Any] | None = None
    bias: Callable[[nn.Module, EncoderConfig, int], jax.Array] | None = None
    distances: Callable[[nn.Module, EncoderConfig, int], Distances] | None = None

    @property
    def changes_scores(self) -> bool:
        """Whether a kernel must add to the scores."""
        return self.bias is not None or self.distances is not None
