"""Parts that all modules use: parameters, linear maps, activations, and marks of arrays that the backward pass needs.

The parameters of blocks are stacked on a leading axis `layers`. The function `unstack_layers` splits stacked parameters
for programs with unrolled layers.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.models.dropout import dropout
from bert_jax.models.init import matrix_initializer
from bert_jax.parallel.platform import traced_platform

SAVED = "saved"
Factors = tuple[jax.Array, jax.Array]  # the factors of a matrix product
ADAPTER, LOW_RANK = "adapter", "low_rank"  # the collection with the terms of an adapter, and the name of a term


def save_for_backward(x: jax.Array) -> jax.Array:
    """Mark an array to save for the backward pass, which recomputes the other arrays of a block (encoder.py)."""
    return cast(jax.Array, checkpoint_name(x, SAVED))


def save_on_gpu(x: jax.Array) -> jax.Array:
    """Mark an array to save on GPUs, where XLA would otherwise write the recomputed array to memory."""
    return save_for_backward(x) if traced_platform() == "gpu" else x


def save_except_on_gpu(x: jax.Array) -> jax.Array:
    """Mark an array to save on platforms other than GPUs."""
    return x if traced_platform() == "gpu" else save_for_backward(x)


def logical_param(
    module: nn.Module, name: str, init: Callable[..., jax.Array], shape: tuple[int, ...], axes: tuple[str, ...]
) -> jax.Array:
    """Return a float32 parameter of `module` whose axes carry logical names.

    Raises:
        ValueError: the parameter exists with another shape.
    """
    if module.has_variable("params", name):
        # Linen would trace `init` to check the shape, which takes a fifth of the time to trace a step.
        value: jax.Array = nn.meta.unbox(module.get_variable("params", name))  # the value is boxed during init
        if value.shape != shape:
            raise ValueError(f"{'/'.join(module.path)}/{name} has the shape {value.shape}, the model needs {shape}")
        return value
    # Inside a module, Linen returns the array, although the annotation names the box with the axis names.
    return cast(jax.Array, module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32))


def gelu(x: jax.Array) -> jax.Array:
    """Return the exact GELU of `x`, computed by erf, because erf is cheaper than the erfc of `jax.nn.gelu`."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


def dtype_between_products(dtype: jnp.dtype) -> jnp.dtype:
    """Return the dtype of the arrays between matrix products, whose factors have the dtype `dtype`.

    On a CPU, the dtype is float32, because bfloat16 is faster than float32 only in matrix products.
    """
    return jnp.dtype("float32") if traced_platform() == "cpu" else dtype


def product(x: jax.Array, kernel: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Return the matrix product `[rows, outputs]` of `[rows, inputs]` and `[inputs, outputs]`, with factors in `dtype`.

    On a CPU, the product is float32.
    """
    if dtype == jnp.bfloat16 and traced_platform() == "cpu":
        return _rounded_product(x.astype(jnp.float32), kernel.astype(jnp.float32))
    return x.astype(dtype) @ kernel.astype(dtype)


@jax.custom_vjp
def _rounded_product(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Return the float32 product of two float32 matrices, which are rounded to bfloat16."""
    # XLA uses the bfloat16 instructions of the CPU only if the results are float32.
    return jnp.matmul(x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def _product_forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Factors]:
    return _rounded_product(x, kernel), (x, kernel)


def _product_backward(factors: Factors, gradient: jax.Array) -> Factors:
    x, kernel = factors
    return _rounded_product(gradient, kernel.T), _sum_of_outer_products(x, gradient)


def _sum_of_outer_products(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return `x.T @ y`, float32, with both factors rounded to bfloat16."""
    if x.shape[1] > y.shape[1]:  # XLA transposes the first factor in memory, so the narrower factor comes first
        return _sum_of_outer_products(y, x).T
    # A sum over two axes, pairs of rows and the rows of a pair, uses the instructions for bfloat16; a sum over one axis
    # does not. Without the barrier, XLA may move a transposition into the sum, and fail.
    pairs = (
        jnp.pad(factor, ((0, len(factor) % 2), (0, 0))).astype(jnp.bfloat16).reshape(-1, 2, factor.shape[1])
        for factor in (x, y)
    )
    result: jax.Array = jax.lax.optimization_barrier(
        jnp.einsum("rpi,rpj->ij", *pairs, preferred_element_type=jnp.float32)
    )
    return result


_rounded_product.defvjp(_product_forward, _product_backward)


class Biased(NamedTuple):
    """A product, and a bias that is not added yet; a kernel may add the bias together with the next operation."""

    product: jax.Array
    bias: jax.Array | None


def add_bias(x: jax.Array | Biased) -> jax.Array:
    """Return the sum of a product and its bias; return an array unchanged."""
    if not isinstance(x, Biased):
        return x
    return x.product if x.bias is None else x.product + x.bias


@functools.partial(jax.tree_util.register_dataclass, data_fields=["a", "b", "seed"], meta_fields=["dropout"])
@dataclasses.dataclass(frozen=True)
class LowRank:
    """The term `dropout(x) @ a @ b` that an adapter adds to a linear map (models/adapters.py)."""

    a: jax.Array  # float32 [inputs, rank]; before a scan over layers, [layers, inputs, rank]
    b: jax.Array  # float32 [rank, outputs], with the scale of the adapter
    seed: jax.Array | None  # uint32 [2]; None: no dropout
    dropout: float

    def low_rank_product(self, x: jax.Array, dtype: jnp.dtype) -> jax.Array:
        """Return the term of an input `[batch, ..., inputs]`, in `dtype`; on a CPU, in float32."""
        rows = dropout(x, self.dropout, self.seed).reshape(-1, x.shape[-1])
        y = product(product(rows, self.a, dtype), self.b, dtype)
        return y.reshape(*x.shape[:-1], y.shape[-1])


class KernelAndBias(NamedTuple):
    """The matrix and the bias of a linear map."""

    kernel: jax.Array
    bias: jax.Array | None


class Linear(nn.Module):
    """A linear map `x @ kernel + bias` in `dtype`, with float32 parameters; `shape` and `axes` describe the kernel."""

    shape: tuple[int, int]
    axes: tuple[str, str]
    stddev: float
    dtype: jnp.dtype
    bias: bool = True
    identity: float = 0.0  # added to the diagonal of the initial kernel
    save_product: bool = False  # whether GPUs save the product for the backward pass, which adds the bias again

    @nn.compact
    def kernel_and_bias(self) -> KernelAndBias:
        """Return kernel and bias in `dtype`; on a CPU, in float32."""
        dtype = dtype_between_products(self.dtype)
        kernel = logical_param(self, "kernel", matrix_initializer(self.stddev, self.identity), self.shape, self.axes)
        if not self.bias:
            return KernelAndBias(kernel.astype(dtype), None)
        bias = logical_param(self, "bias", nn.initializers.zeros, self.shape[1:], self.axes[1:])
        return KernelAndBias(kernel.astype(dtype), bias.astype(dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        return add_bias(self.product_and_bias(x))

    def has_adapter(self) -> bool:
        """Return whether an adapter adds a term to the product."""
        return self.has_variable(ADAPTER, LOW_RANK)

    def product_and_bias(self, x: jax.Array) -> Biased:
        """Return the matrix product and the bias of the linear map, without adding the bias to the product."""
        kernel, bias = self.kernel_and_bias()
        # As a product of two matrices: XLA's gradient of a contraction over more axes is half as fast on CPU.
        y = product(x.reshape(-1, self.shape[0]), kernel, self.dtype)
        y = y.reshape(*x.shape[:-1], self.shape[1])
        if self.has_adapter():
            y = y + self.get_variable(ADAPTER, LOW_RANK).low_rank_product(x, self.dtype)
        return Biased(save_on_gpu(y) if self.save_product else y, bias)


def rows_by_one_hot_product(rows: jax.Array, table: jax.Array) -> jax.Array:
    """Return rows of a small `table` by a product, because the gradient of an indexed read would be a slow scatter."""
    one_hot = jax.nn.one_hot(rows, len(table), dtype=jnp.float32)
    return jnp.einsum("blt,th->blh", one_hot, table, precision=jax.lax.Precision.HIGHEST)


def cast_kernels(stacked: Any, dtype: jnp.dtype) -> Any:
    """Return stacked parameters with kernels cast to `dtype`, so that their gradients are stacked in `dtype`, too."""
    return jax.tree.map(lambda p: p.astype(dtype) if p.ndim == 3 else p, stacked)


def unstack_layers(tree: Any, num_layers: int, dtype: jnp.dtype) -> list[Any]:
    """Return the slices of stacked parameters along the leading axis, with kernels in `dtype`."""
    leaves, structure = jax.tree.flatten(tree)
    layers = zip(*(_cast_layer_slices(leaf, dtype) for leaf in leaves), strict=True) if leaves else [()] * num_layers
    return [jax.tree.unflatten(structure, layer) for layer in layers]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _cast_layer_slices(p: jax.Array, dtype: jnp.dtype) -> list[jax.Array]:
    """Split `p` by layer and cast each slice; the backward pass stacks the slice gradients, then casts to float32."""
    return _split_and_cast(p, dtype)[0]


def _split_and_cast(p: jax.Array, dtype: jnp.dtype) -> tuple[list[jax.Array], jax.Array]:
    """Return the slices, and an empty array of the dtype of `p` for the backward pass."""
    slices = jax.lax.split(p, (1,) * len(p))
    return [save_on_gpu(cast_kernels(x, dtype)[0]) for x in slices], jnp.zeros((), p.dtype)


def _stack_gradients(_: jnp.dtype, dtype_holder: jax.Array, gradients: list[jax.Array]) -> tuple[jax.Array]:
    return (jnp.stack(gradients).astype(dtype_holder.dtype),)


_cast_layer_slices.defvjp(_split_and_cast, _stack_gradients)
