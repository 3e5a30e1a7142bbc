"""Multi-head self-attention (Vaswani et al. 2017) as in BERT: every position reads every unpadded one.

In packed rows it reads those of its own segment alone.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models import fused_attention
from bert_jax.models.dropout import keep_mask, row_keys
from bert_jax.models.layers import Linear, keep
from bert_jax.parallel.sharding import constrain, partition_spec

MASKED_SCORE = -1e9  # far below any score; finite, so that a row of padding alone gives no NaN
KERNELS = ("auto", "xla", "cudnn")  # values of compute.attention


class SelfAttention(nn.Module):
    """`x` `[batch, length, hidden]`, `mask` int32 `[batch, length]` (1 = may be read) -> `[batch, length, hidden]`.

    `segments`: of packed rows, as in `attend`.
    """

    config: EncoderConfig
    dtype: jnp.dtype
    kernel: str  # compute.attention

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array, segments: jax.Array | None, seed: jax.Array | None) -> jax.Array:
        config, hidden = self.config, self.config.hidden_size
        linear = functools.partial(Linear, (hidden, hidden), stddev=config.initializer_range, dtype=self.dtype)
        q, k, v = (
            keep(constrain(linear(axes=("embed", "heads"), name=name)(x), "batch", "length", "heads"))
            for name in ("query", "key", "value")
        )
        context = attend(q, k, v, mask, segments, config.num_heads, config.attention_dropout, seed, self.kernel)
        return linear(axes=("heads", "embed"), name="output")(keep(context))


def kernel_used(config: EncoderConfig, compute: ComputeConfig, platform: str) -> str:
    """Which attention training runs on 'cpu', 'gpu' or 'tpu', and why not a faster one, in a line."""
    if compute.attention == "cudnn":
        return "cuDNN"
    if platform == "tpu" and compute.attention == "auto":
        if fused_attention.fits(8, config.hidden_size, config.num_heads):
            return f"one fused kernel for rows of up to {fused_attention.MAX_LENGTH:,} tokens, a multiple of 8"
        return "XLA (the fused kernel wants heads of a multiple of 8 columns)"
    if platform != "gpu":
        return "XLA"
    missing = [
        words
        for words, there in (
            ("config.compute.attention=cudnn", False),
            ("config.compute.dtype=bfloat16", compute.dtype == "bfloat16"),
            ("config.model.attention_dropout=0", config.attention_dropout == 0),
        )
        if not there
    ]
    return f"XLA (cuDNN's kernel is used with {', '.join(missing)})"


def attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    heads: int,
    rate: float,
    seed: jax.Array | None,
    kernel: str = "auto",
) -> jax.Array:
    """Softmax attention with dropout of `rate` on the probabilities; the softmax is float32.

    `q`, `k`, `v`: `[batch, length, heads * head_dim]`; `mask`: int32 `[batch, length]`, on the keys; result as `q`.
    `segments`: int32 `[batch, length]`, 0 for padding: a query reads the keys of its own number alone; None: every key.
    The backward pass computes the probabilities again. `kernel` is `compute.attention`.
    """
    batch, length, width = q.shape
    if kernel == "cudnn":
        q, k, v = (x.reshape(batch, length, heads, width // heads) for x in (q, k, v))
        readable = jnp.broadcast_to(_readable(mask, segments), (batch, 1, length, length))
        context = jax.nn.dot_product_attention(q, k, v, mask=readable, implementation="cudnn")
        return context.reshape(batch, length, width)
    keys = jnp.zeros((batch, heads, 2), jnp.uint32)
    if seed is None:
        rate = 0.0
    elif rate > 0:
        # A key for the dropout of each head of each row, whatever device computes it: the same masks on every mesh.
        keys = jnp.stack(row_keys(seed, batch * heads), axis=-1).reshape(keys.shape)
    if kernel == "xla":
        return jax.checkpoint(functools.partial(_forward, rate=rate))(q, k, v, mask, segments, keys)[0]
    return _attend(q, k, v, mask, segments, keys, rate)


Arrays = tuple[Any, ...]  # jax.Array, or None for the segments of rows that are not packed


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def _attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    keys: jax.Array,
    rate: float,
) -> jax.Array:
    return _attend_forward(q, k, v, mask, segments, keys, rate)[0]


def _attend_forward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    keys: jax.Array,
    rate: float,
) -> tuple[jax.Array, Arrays]:
    arrays = (q, k, v, mask, segments, keys)
    (context,) = _on_platform(fused_attention.forward, _forward, rate, *arrays)
    return context, arrays


def _attend_backward(rate: float, arrays: Arrays, gradient: jax.Array) -> Arrays:
    return *_on_platform(fused_attention.backward, _backward, rate, *arrays, gradient), None, None, None


_attend.defvjp(_attend_forward, _attend_backward)


def _on_platform(fused: Callable[..., Arrays], plain: Callable[..., Arrays], rate: float, *arrays: Any) -> Arrays:
    """The fused kernel on a TPU, each device on its rows and heads; what XLA makes of `plain` elsewhere."""
    q, keys = arrays[0], arrays[5]
    if not fused_attention.fits(q.shape[1], q.shape[2], keys.shape[1]):
        return plain(*arrays, rate=rate)

    def kernel(*arrays: Any) -> Arrays:
        call = functools.partial(fused, rate=rate)
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            return call(*arrays)
        wide, mask = partition_spec(("batch", "length", "heads")), partition_spec(("batch", "length"))
        per_head = partition_spec(("batch", "heads", "key_words"))
        in_specs = (wide, wide, wide, mask, mask, per_head, wide)[: len(arrays)]
        axes = set(mesh.axis_names) - set(mesh.manual_axes)
        over_mesh = jax.shard_map(call, in_specs=in_specs, out_specs=wide, axis_names=axes, check_vma=False)
        return cast(Arrays, over_mesh(*arrays))

    return cast(Arrays, jax.lax.platform_dependent(*arrays, tpu=kernel, default=functools.partial(plain, rate=rate)))


def _readable(mask: jax.Array, segments: jax.Array | None) -> jax.Array:
    """bool `[batch, 1, length or 1, length]`: which keys a query may read."""
    unpadded = mask[:, None, None, :] != 0
    return unpadded if segments is None else unpadded & (segments[:, None, :, None] == segments[:, None, None, :])


def _forward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    keys: jax.Array,
    *,
    rate: float,
) -> tuple[jax.Array]:
    batch, length, width = q.shape
    heads = keys.shape[1]
    q, k, v = (x.reshape(batch, length, heads, width // heads) for x in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    scores = jnp.where(_readable(mask, segments), scores, MASKED_SCORE)
    probabilities = jax.nn.softmax(scores)
    if rate > 0:
        index = jnp.arange(length * length, dtype=jnp.uint32).reshape(length, length)
        kept = keep_mask(index, keys[:, :, 0, None, None], keys[:, :, 1, None, None], rate)
        probabilities = jnp.where(kept, probabilities / (1 - rate), 0.0)
    return (jnp.einsum("bhqk,bkhd->bqhd", probabilities.astype(v.dtype), v).reshape(batch, length, width),)


def _backward(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    mask: jax.Array,
    segments: jax.Array | None,
    keys: jax.Array,
    gradient: jax.Array,
    *,
    rate: float,
) -> Arrays:
    _, gradients = jax.vjp(lambda q, k, v: _forward(q, k, v, mask, segments, keys, rate=rate), q, k, v)
    return cast(Arrays, gradients((gradient,)))
