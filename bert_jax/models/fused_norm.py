"""Layer norm of `x + dropout(product + bias)` by a single kernel on GPUs, in Pallas for Triton.

XLA needs three kernels for this norm, and four for its gradient. In this kernel, a program computes one token, or, in
the backward pass, some tokens of a sequence. A program reads and writes each array once, and writes partial sums over
its tokens. The dropout mask equals the mask of dropout.py, element by element. Statistics and sums are float32.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from bert_jax.models.dropout import keep_mask
from bert_jax.models.layers import save_for_backward
from bert_jax.parallel.sharding import partition_spec

MAX_CHUNKS = 8  # maximum number of slices of features, each a power of 2; a program holds its tokens in registers
MAX_CHUNK, MIN_CHUNK = 1024, 64
MAX_BLOCK = 32  # tokens of a program in the backward pass

# Logical axes of the arrays that kernels read and write.
HIDDEN, TOKENS = ("batch", "length", "features"), ("batch", "length")
FEATURES, KEYS = ("features",), ("batch", "key_words")
SUMS = ("batch", "length", "features", "features")  # float32 [batch, blocks of tokens, 3, features]


def fits_sum_norm(width: int) -> bool:
    """Return whether the kernel supports vectors of `width` features."""
    chunk = math.gcd(width, MAX_CHUNK)
    return chunk >= MIN_CHUNK and width <= MAX_CHUNKS * chunk


@functools.partial(jax.custom_vjp, nondiff_argnums=(6, 7))
def sum_norm(
    x: jax.Array,
    product: jax.Array,
    bias: jax.Array,
    keys: jax.Array,
    scale: jax.Array,
    shift: jax.Array,
    rate: float,
    epsilon: float,
) -> jax.Array:
    """Return the normalized sum, multiplied by `scale`, plus `shift`, in the shape of `x`.

    Args:
        x: `[batch, length, features]`.
        product: `[batch, length, features]`.
        bias: `[features]`.
        keys: dropout keys of each sequence (dropout.row_keys), uint32 `[batch, 2]`.
        scale: float32 `[features]`.
        shift: float32 `[features]`.
        rate: dropout rate.
        epsilon: constant added to variances.
    """
    arrays = (x, product, bias, keys, scale, shift)
    return _forward_on_mesh(arrays, (HIDDEN,), rate, epsilon)[0]


def _forward_and_save(*arguments: Any) -> tuple[jax.Array, Any]:
    """Return the result of `sum_norm`, and the arrays for the backward pass."""
    *arrays, rate, epsilon = arguments
    out, *saved = map(save_for_backward, _forward_on_mesh(arrays, (HIDDEN, HIDDEN, TOKENS, TOKENS), rate, epsilon))
    _, _, bias, keys, scale, _ = arrays
    return out, (*saved, keys, scale, bias)


def _backward_from_saved(rate: float, _: float, residuals: Any, gradient: jax.Array) -> tuple[jax.Array | None, ...]:
    """Return the gradients of the array arguments of `sum_norm`."""
    *saved, bias = residuals
    axes = (HIDDEN, HIDDEN, TOKENS, TOKENS, KEYS, FEATURES)
    written = (HIDDEN, HIDDEN, SUMS) if rate else (HIDDEN, SUMS)
    *input_gradients, sums = _call_on_mesh(
        functools.partial(sum_norm_backward, rate=rate), axes, written, gradient, *saved
    )
    d_scale, d_shift, d_bias = sums.sum(axis=(0, 1))
    return input_gradients[0], input_gradients[-1], d_bias.astype(bias.dtype), None, d_scale, d_shift


sum_norm.defvjp(_forward_and_save, _backward_from_saved)


def _forward_on_mesh(arrays: Sequence[jax.Array], written: Any, rate: float, epsilon: float) -> Any:
    """Call `sum_norm_forward` on each device for its tokens; `written` are the axes of the outputs."""
    kernel = functools.partial(sum_norm_forward, rate=rate, epsilon=epsilon, num_outputs=len(written))
    return _call_on_mesh(kernel, (HIDDEN, HIDDEN, FEATURES, KEYS, FEATURES, FEATURES), written, *arrays)


def _call_on_mesh(kernel: Callable[..., Any], axes: Any, out_axes: Any, *arrays: jax.Array) -> Any:
    """Call `kernel` on each device for its tokens; `axes` and `out_axes` name the axes of each array."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel(*arrays)
    specs, out_specs = (tuple(map(partition_spec, names)) for names in (axes, out_axes))
    automatic = set(mesh.axis_names) - set(mesh.manual_axes)
    call = jax.shard_map(kernel, in_specs=specs, out_specs=out_specs, axis_names=automatic, check_vma=False)
    return call(*arrays)


def sum_norm_forward(
    x: jax.Array,
    product: jax.Array,
    bias: jax.Array,
    keys: jax.Array,
    scale: jax.Array,
    shift: jax.Array,
    rate: float,
    epsilon: float,
    num_outputs: int = 4,
    interpret: bool = False,
) -> tuple[jax.Array, ...]:
    """Return the first `num_outputs` of (result, sum, means of the sum, inverse standard deviations of the sum)."""
    batch, length, _ = x.shape
    of_tokens = jax.ShapeDtypeStruct((batch, length), jnp.float32)
    reads = [("tokens", x), ("tokens", product), ("vector", bias), ("key", keys), ("vector", scale), ("vector", shift)]
    writes = [("tokens", x), ("tokens", x), ("numbers", of_tokens), ("numbers", of_tokens)][:num_outputs]
    kernel = functools.partial(_forward_kernel, rate=rate, epsilon=epsilon)
    return _run_per_block(kernel, "sum_norm_forward", 1, reads, writes, interpret)


def sum_norm_backward(
    gradient: jax.Array,
    total: jax.Array,
    mean: jax.Array,
    inverse: jax.Array,
    keys: jax.Array,
    scale: jax.Array,
    rate: float,
    interpret: bool = False,
) -> tuple[jax.Array, ...]:
    """Return the gradient of x, the gradient of the product if there is dropout, and partial sums of other gradients.

    The partial sums are over blocks of tokens, and are the gradients of scale, shift and bias, float32 `[batch, blocks,
    3, features]`.
    """
    batch, length, width = total.shape
    block = math.gcd(length, MAX_BLOCK)
    sums = jax.ShapeDtypeStruct((batch, length // block, 3, width), jnp.float32)
    reads = [("tokens", gradient), ("tokens", total), ("numbers", mean), ("numbers", inverse)]
    reads += [("key", keys), ("vector", scale)]
    writes = [*[("tokens", total)] * (2 if rate else 1), ("sums", sums)]
    kernel = functools.partial(_backward_kernel, rate=rate)
    return _run_per_block(kernel, "sum_norm_backward", block, reads, writes, interpret)


def _run_per_block(
    kernel: Callable[..., None],
    name: str,
    block: int,
    reads: Sequence[tuple[str, Any]],
    writes: Sequence[tuple[str, Any]],
    interpret: bool,
) -> Any:
    """Run a program of one warp for each block of tokens; `reads` and `writes` list pairs (key of `specs`, array)."""
    batch, length, width = reads[0][1].shape
    specs = {
        "tokens": pl.BlockSpec((None, block, width), lambda i, row: (row, i, 0)),
        "numbers": pl.BlockSpec((None, block), lambda i, row: (row, i)),
        "vector": pl.BlockSpec((width,), lambda i, row: (0,)),
        "key": pl.BlockSpec((None, 2), lambda i, row: (row, 0)),
        "sums": pl.BlockSpec((None, None, 3, width), lambda i, row: (row, i, 0, 0)),
    }
    return pl.pallas_call(
        kernel,
        grid=(length // block, batch),
        in_specs=[specs[kind] for kind, _ in reads],
        out_specs=tuple(specs[kind] for kind, _ in writes),
        out_shape=tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for _, x in writes),
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=interpret,
        name=name,
    )(*(x for _, x in reads))


def _feature_slices(width: int) -> list[Any]:
    """Return the slices of features into which a program divides a token."""
    size = math.gcd(width, MAX_CHUNK)
    return [pl.ds(begin, size) for begin in range(0, width, size)]


def _dropout_of_chunk(x: jax.Array, token: Any, chunk: Any, width: int, keys: Any, rate: float) -> jax.Array:
    """Apply dropout to a chunk of features; `token` is the index of a token in its sequence."""
    if rate == 0:
        return x
    index = (token * width + chunk.start + jax.lax.iota(jnp.int32, chunk.size)).astype(jnp.uint32)
    return jnp.where(keep_mask(index, keys[0], keys[1], rate), x * (1 / (1 - rate)), 0.0)


def _forward_kernel(*refs: Any, rate: float, epsilon: float) -> None:
    """Write the normalized vector of a token, and the arrays for the backward pass."""
    x, product, bias, keys, scale, shift, out, *saved = refs
    width, token, totals = x.shape[-1], pl.program_id(0), []
    chunks = _feature_slices(width)
    for chunk in chunks:
        added = product[0, chunk].astype(jnp.float32) + bias[chunk].astype(jnp.float32)
        total = x[0, chunk].astype(jnp.float32) + _dropout_of_chunk(added, token, chunk, width, keys, rate)
        totals.append(total.astype(x.dtype).astype(jnp.float32))  # rounded as in the array that the backward pass reads
    mean = sum(total.sum() for total in totals) / width
    variance = sum(jnp.square(total - mean).sum() for total in totals) / width
    inverse = jax.lax.rsqrt(variance + epsilon)
    for chunk, total in zip(chunks, totals, strict=True):
        out[0, chunk] = ((total - mean) * inverse * scale[chunk] + shift[chunk]).astype(out.dtype)
    if saved:
        total_of, mean_of, inverse_of = saved
        mean_of[0], inverse_of[0] = mean, inverse
        for chunk, total in zip(chunks, totals, strict=True):
            total_of[0, chunk] = total.astype(x.dtype)


def _backward_kernel(*refs: Any, rate: float) -> None:
    """Write the gradients of a block of tokens, and its sums of the gradients of scale, shift and bias."""
    gradient, total, mean, inverse, keys, scale, *gradients, sums = refs
    (block, width), begin = total.shape, pl.program_id(0) * total.shape[0]
    chunks = _feature_slices(width)

    def add_token_gradients(token: Any, state: Any) -> Any:
        units, scaled, sums_now = [], [], []
        for chunk, (d_scale, d_shift, d_bias) in zip(chunks, state, strict=True):
            unit = (total[token, chunk].astype(jnp.float32) - mean[token]) * inverse[token]
            g = gradient[token, chunk].astype(jnp.float32)
            units.append(unit)
            scaled.append(g * scale[chunk])
            sums_now.append((d_scale + g * unit, d_shift + g, d_bias))
        gradient_mean = sum(g.sum() for g in scaled) / width
        product_mean = sum((g * unit).sum() for g, unit in zip(scaled, units, strict=True)) / width
        for i, (chunk, unit, g) in enumerate(zip(chunks, units, scaled, strict=True)):
            dx = (g - gradient_mean - unit * product_mean) * inverse[token]
            d_product = _dropout_of_chunk(dx, begin + token, chunk, width, keys, rate)
            for ref, value in zip(gradients, (dx, d_product), strict=False):  # a single ref if both gradients are equal
                ref[token, chunk] = value.astype(ref.dtype)
            sums_now[i] = (*sums_now[i][:2], sums_now[i][2] + d_product)
        return sums_now

    zero = jnp.zeros((chunks[0].size,), jnp.float32)
    state = jax.lax.fori_loop(0, block, add_token_gradients, [(zero, zero, zero) for _ in chunks])
    for chunk, chunk_sums in zip(chunks, state, strict=True):
        for i, value in enumerate(chunk_sums):
            sums[i, chunk] = value
