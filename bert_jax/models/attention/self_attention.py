"""The attention layer of the encoder."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import EncoderConfig
from bert_jax.models.attention.inputs import AtDistances, AttentionInputs, Joint, Surroundings, attention_inputs, joined
from bert_jax.models.attention.kernels import KERNELS
from bert_jax.models.attention.xla import probabilities, read_by
from bert_jax.models.layers import Biased, Linear, deviations, keep, lookup
from bert_jax.models.norms import Norm, rms_norm
from bert_jax.models.positions import POSITIONS, Distances
from bert_jax.parallel.platform import traced_platform
from bert_jax.parallel.sharding import constrain

WEIGHTS = "intermediates"  # the collection that gets the attention weights of a layer, where it is asked for
PROBES = "probes"  # the collection with what is added to them for a gradient by them, where it is asked for
MAPS = ("query", "key", "value")
OF_GLOBAL = tuple(f"{name}_global" for name in MAPS)  # the maps of global tokens; without these, unused


class SelfAttention(nn.Module):
    """`x` `[batch, length, width]` -> the same, of which `num_heads` divides the width; its bias is still to be added.

    `seed`: uint32 `[2]`, of the dropout on the probabilities, or None. `read`: `[batch, length, any]`, what the values
    are made of; None: `x`, as queries and keys.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    kernel: str  # compute.attention

    @nn.compact
    def __call__(
        self, x: jax.Array, surroundings: Surroundings, seed: jax.Array | None, read: jax.Array | None = None
    ) -> Biased:
        config, width = self.config, x.shape[-1]
        rate = 0.0 if seed is None else config.attention_dropout
        inputs = self._inputs(x, x if read is None else read, surroundings, seed, rate)
        if self._shows_weights():
            weights = probabilities(inputs)
            self.sow(WEIGHTS, "weights", weights)
            context = read_by(weights + self.get_variable(PROBES, "weights", 0.0), inputs)
        else:
            context = keep(KERNELS[self.kernel].attend(inputs, rate))
        return self._linear("output", (width, width), ("heads", "embed"), deviations(config).output).biased(context)

    def _shows_weights(self) -> bool:
        return self.is_mutable_collection(WEIGHTS) and not self.is_initializing()

    def _inputs(
        self, x: jax.Array, read: jax.Array, surroundings: Surroundings, seed: jax.Array | None, rate: float
    ) -> AttentionInputs:
        """What the kernel reads, with queries, keys and values in the form that it prefers."""
        config = self.config
        query, key, value = maps = self._maps(MAPS, x.shape[-1], read.shape[-1])

        def assembled(q: jax.Array, k: jax.Array, v: jax.Array, *more: Any) -> AttentionInputs:
            return attention_inputs(q, k, v, surroundings, config.num_heads, seed if rate else None, *more)

        if read is x and self._may_be_joint(surroundings):
            like = assembled(*(x.astype(self.dtype),) * 3)
            if KERNELS[self.kernel].joint(like, rate):
                return joined(like, self._joint(x, maps))
        q, k = (self._turned(_by_heads(one(x)), name, surroundings) for one, name in ((query, "query"), (key, "key")))
        v = keep(_by_heads(value(read)))
        distances = _at_distances(query, key, surroundings.distances) if surroundings.distances else None
        tokens = surroundings.global_tokens
        if tokens is not None:
            own = (q, k, v) if config.separator_id is None else self._of_global(x, read, surroundings)
            tokens = tokens._replace(q=own[0], k=own[1], v=own[2])
        return assembled(q, k, v, distances, tokens)

    def _linear(self, name: str, sizes: tuple[int, int], axes: tuple[str, str], stddev: float) -> Linear:
        return Linear(sizes, axes, stddev, self.dtype, self.config.attention_bias, name=name)

    def _maps(self, names: tuple[str, ...], width: int, values: int) -> list[Linear]:
        """Of queries, keys and values; the latter read vectors of the width `values`."""
        inputs = zip(names, (width, width, values), strict=True)
        return [
            self._linear(name, (one, width), ("embed", "heads"), deviations(self.config).inner) for name, one in inputs
        ]

    def _may_be_joint(self, surroundings: Surroundings) -> bool:
        """Whether a GPU's kernel may add the biases, since queries and keys are read without another change."""
        config, rotate = self.config, POSITIONS[self.config.positions].rotate
        others = (rotate, config.query_key_norm, surroundings.distances, surroundings.global_tokens)
        return traced_platform() == "gpu" and config.attention_bias and not any(others) and not self._shows_weights()

    def _joint(self, x: jax.Array, maps: list[Linear]) -> Joint:
        """Queries, keys and values by one product; their parts are views for a kernel, where XLA would copy each."""
        kernels, biases = zip(*(one.arrays() for one in maps), strict=True)
        kernel = keep(jnp.stack(kernels, axis=1))
        products = jnp.einsum("blw,wmh->blmh", x.astype(self.dtype), kernel)
        return Joint(keep(constrain(products, "batch", "length", "maps", "heads")), jnp.stack(biases))

    def _of_global(self, x: jax.Array, read: jax.Array, surroundings: Surroundings) -> tuple[jax.Array, ...]:
        """Queries, keys and values of global tokens, by maps of their own."""
        query, key, value = self._maps(OF_GLOBAL, x.shape[-1], read.shape[-1])
        q, k = (
            self._turned(_by_heads(one(x)), name, surroundings)
            for one, name in zip((query, key), OF_GLOBAL[:2], strict=True)
        )
        return q, k, keep(_by_heads(value(read)))

    def _turned(self, x: jax.Array, name: str, surroundings: Surroundings) -> jax.Array:
        """Queries or keys as the kernel reads them: normalized, then rotated, where the architecture says so."""
        config, rotate = self.config, POSITIONS[self.config.positions].rotate
        if config.query_key_norm:
            heads = x.reshape(*x.shape[:2], config.num_heads, -1)
            norm = Norm(rms_norm, config.layer_norm_epsilon, self.dtype, bias=False, name=f"{name}_norm")
            x = norm(heads).reshape(x.shape)
        # Kept as read: a rotation's gradient needs the angles alone, and a norm keeps its own result.
        return keep(rotate(config, x, surroundings.angles) if rotate else x)


def _by_heads(x: jax.Array) -> jax.Array:
    return constrain(x, "batch", "length", "heads")


def _at_distances(query: Linear, key: Linear, embedded: Distances) -> AtDistances:
    """The embeddings through the maps of the layer's own tokens; few rows, each read at many distances."""

    def at(linear: Linear, rows: jax.Array) -> jax.Array:
        return lookup(rows[None], linear(embedded.table[None])[0])[0].astype(linear.dtype)

    return AtDistances(at(key, embedded.of_keys), at(query, embedded.of_queries))
