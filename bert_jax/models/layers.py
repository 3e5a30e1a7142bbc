"""The small parts: linear map, activations, initializations, lookup, parameters with logical axes and their stacks."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from bert_jax.config import EncoderConfig
from bert_jax.parallel.platform import traced_platform

# BERT's: a normal cut at two standard deviations and not rescaled, so the effective deviation is 0.88 of the nominal.
kernel_init = jax.nn.initializers.truncated_normal

KEPT = "kept"


def keep(x: jax.Array) -> jax.Array:
    """Mark an array to keep for the backward pass; the rest of a block is cheap to compute again (encoder.py)."""
    return cast(jax.Array, checkpoint_name(x, KEPT))


def keep_on_gpu(x: jax.Array) -> jax.Array:
    """Mark an array to keep on GPUs, where XLA writes it to memory again to compute with it again."""
    return keep(x) if traced_platform() == "gpu" else x


def keep_elsewhere(x: jax.Array) -> jax.Array:
    """Mark an array to keep on platforms other than GPUs."""
    return x if traced_platform() == "gpu" else keep(x)


def gelu(x: jax.Array) -> jax.Array:
    """Return `x` times the normal distribution function of `x`, by erf: cheaper than the erfc of `jax.nn.gelu`."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": gelu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


class Deviations(NamedTuple):
    """A row of INITIALIZATIONS for one architecture: standard deviations of its normal distributions."""

    inner: float  # of tables, and of matrices that read the residual stream
    output: float  # of the matrices at the end of attention and MLP, which write to it
    dense: float  # of the dense layer in a head
    identity: float = 0.0  # added to the diagonal of that layer
    neighbors: bool = False  # heads of the first block start by reading neighbors (starts/neighbors.py)
    matches: bool = False  # and the last of them by reading the token in the other text (starts/matches.py)


def normal(config: EncoderConfig) -> Deviations:
    """BERT's: the same for all."""
    return Deviations(*(config.initializer_range,) * 3)


def depth_scaled(config: EncoderConfig) -> Deviations:
    """In outputs and heads over the root of the number of sublayers, `2 * num_layers` (ModernBERT).

    The sum of all sublayers' outputs then starts as large as one of them (Radford et al. 2019).
    """
    scaled = config.initializer_range / math.sqrt(2 * config.num_layers)
    return Deviations(config.initializer_range, scaled, scaled)


def identity_head(config: EncoderConfig) -> Deviations:
    """As `depth_scaled`, and the dense layer of heads starts as the identity.

    A random one hides from the blocks, for hundreds of steps, which of their features the token table reads.
    """
    return depth_scaled(config)._replace(dense=0.0, identity=1.0)


def neighbors(config: EncoderConfig) -> Deviations:
    """As `identity_head`, and heads of the first block start by reading the tokens beside theirs (starts/)."""
    return identity_head(config)._replace(neighbors=True)


def matches(config: EncoderConfig) -> Deviations:
    """As `neighbors`, and the last head of the first block starts by reading its token in the other text of a pair."""
    return neighbors(config)._replace(matches=True)


INITIALIZATIONS: dict[str, Callable[[EncoderConfig], Deviations]] = {
    "normal": normal,
    "depth_scaled": depth_scaled,
    "identity_head": identity_head,
    "neighbors": neighbors,
    "matches": matches,
}


def deviations(config: EncoderConfig) -> Deviations:
    """Return the standard deviations that `model.initialization` chooses."""
    return INITIALIZATIONS[config.initialization](config)


def _kernel_init(stddev: float, identity: float) -> Callable[..., jax.Array]:
    normal = kernel_init(stddev)

    def init(rng: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
        return normal(rng, shape, dtype) + identity * jnp.eye(shape[0], shape[1], dtype=dtype)

    return init if identity else normal


class Biased(NamedTuple):
    """A product, and the bias that is still to be added; a kernel may do that with what follows."""

    product: jax.Array
    bias: jax.Array | None


def whole(x: jax.Array | Biased) -> jax.Array:
    """Return the sum of a product and its bias; an array as it is."""
    if not isinstance(x, Biased):
        return x
    return x.product if x.bias is None else x.product + x.bias


class Linear(nn.Module):
    """`x @ kernel + bias` in `dtype`, parameters float32; `shape` and `axes` are the kernel's sizes and names."""

    shape: tuple[int, int]
    axes: tuple[str, str]
    stddev: float
    dtype: jnp.dtype
    bias: bool = True
    identity: float = 0.0  # on the diagonal of the kernel at the start
    keep_product: bool = False  # on GPUs, for the backward pass, which adds the bias again

    @nn.compact
    def arrays(self) -> tuple[jax.Array, jax.Array | None]:
        """Return kernel and bias in `dtype`."""
        kernel = param(self, "kernel", _kernel_init(self.stddev, self.identity), self.shape, self.axes)
        if not self.bias:
            return kernel.astype(self.dtype), None
        bias = param(self, "bias", nn.initializers.zeros, self.shape[1:], self.axes[1:])
        return kernel.astype(self.dtype), bias.astype(self.dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        return whole(self.biased(x))

    def biased(self, x: jax.Array) -> Biased:
        """Return the product and the bias apart."""
        kernel, bias = self.arrays()
        # As a product of two matrices: XLA's gradient of a contraction over more axes is half as fast on CPU.
        y = x.astype(self.dtype).reshape(-1, self.shape[0]) @ kernel
        y = y.reshape(*x.shape[:-1], self.shape[1])
        return Biased(keep_on_gpu(y) if self.keep_product else y, bias)


def table_width(config: EncoderConfig) -> int:
    """Return the width of the token table."""
    return config.embedding_size or config.hidden_size


def sum_width(config: EncoderConfig) -> int:
    """Return the width in which embeddings are added: of the tables of positions and token types."""
    return config.hidden_size if config.trigram_embeddings else table_width(config)


def block_width(config: EncoderConfig) -> int:
    """Return the width of attention and MLPs in a block."""
    return config.bottleneck_size or config.hidden_size


def masked_width(config: EncoderConfig) -> int:
    """Return the width of the vectors that the masked-token head compares with its tables."""
    return config.hidden_size if config.masked_extra_table else table_width(config)


def projection_shape(config: EncoderConfig) -> tuple[int, int] | None:
    """Return the shape of the matrix that projects embeddings to hidden_size; None where there is none."""
    if config.trigram_embeddings:
        return 3 * table_width(config), config.hidden_size
    return (config.embedding_size, config.hidden_size) if config.embedding_size else None


def over_vocabulary(init: Callable[..., jax.Array], vocab_size: int) -> Callable[..., jax.Array]:
    """Return an initialization of tables over the padded vocabulary: rows drawn by `init`, zeros in the padding."""

    def padded(rng: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
        real = init(rng, (vocab_size, shape[1]), dtype)
        return jnp.zeros(shape, dtype).at[:vocab_size].set(real)

    return padded


def lookup(numbers: jax.Array, table: jax.Array) -> jax.Array:
    """Return rows of `table` as a product, because the gradient of a lookup in so few rows is a slow scatter."""
    chosen = jax.nn.one_hot(numbers, len(table), dtype=jnp.float32)
    return jnp.einsum("blt,th->blh", chosen, table, precision=jax.lax.Precision.HIGHEST)


def param(
    module: nn.Module, name: str, init: Callable[..., jax.Array], shape: tuple[int, ...], axes: tuple[str, ...]
) -> jax.Array:
    """Return a float32 parameter of `module` whose axes carry logical names."""
    # Inside of a module linen hands out the array itself; its annotation says the box with the names.
    return cast(jax.Array, module.param(name, nn.with_logical_partitioning(init, axes), shape, jnp.float32))


def cast_kernels(stacked: Any, dtype: jnp.dtype) -> Any:
    """Return stacked parameters with kernels in the dtype they are used in: their gradients are stacked in it, too."""
    return jax.tree.map(lambda p: p.astype(dtype) if p.ndim == 3 else p, stacked)


def unstack(tree: Any, number: int, dtype: jnp.dtype) -> list[Any]:
    """Return the `number` slices of stacked parameters along the leading axis, with kernels in `dtype`."""
    leaves, structure = jax.tree.flatten(tree)
    slices = zip(*(_slices(leaf, dtype) for leaf in leaves), strict=True) if leaves else [()] * number
    return [jax.tree.unflatten(structure, one) for one in slices]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _slices(p: jax.Array, dtype: jnp.dtype) -> list[jax.Array]:
    """Those of `p`, each cast alone, and kept; their gradients are stacked as they are, then widened."""
    return _cut(p, dtype)[0]


def _cut(p: jax.Array, dtype: jnp.dtype) -> tuple[list[jax.Array], jax.Array]:
    parts = jax.lax.split(p, (1,) * len(p))
    return [keep_on_gpu(cast_kernels(part, dtype)[0]) for part in parts], jnp.zeros((), p.dtype)


def _stack(_: jnp.dtype, like: jax.Array, gradients: list[jax.Array]) -> tuple[jax.Array]:
    return (jnp.stack(gradients).astype(like.dtype),)


_slices.defvjp(_cut, _stack)
