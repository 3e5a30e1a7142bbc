"""Check each attention kernel of the device against XLA on the CPU: context and gradients, in each supported dtype."""

import dataclasses
import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device.model_check import BOUNDS, error
from benchmarks.device.report import Result
from bert_jax.models.attention import KERNELS, AttentionInputs
from bert_jax.models.attention.inputs import FusedQKV, with_fused_qkv
from bert_jax.models.dropout import row_keys

BATCH, LENGTH, HEADS, FEATURES = 8, 128, 4, 64
RATES = (0.0, 0.1)
CASES = ("inputs", "padded", "packed", "window")


def kernels_here() -> dict[str, tuple[str, ...]]:
    """Return the kernels that run on this device, and their dtypes; `auto` and `xla` run on every device."""
    platform = jax.devices()[0].platform
    made = {name: row for name, row in KERNELS.items() if row.platforms == (platform,) and row.available()}
    return {"auto": tuple(BOUNDS), "xla": tuple(BOUNDS)} | {name: row.dtypes for name, row in made.items()}


def inputs_of(case: str) -> AttentionInputs:
    """Return float32 inputs of a kernel: sequences without padding, padded, packed, or with a window."""
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(BATCH, LENGTH, HEADS * FEATURES)), jnp.float32) for _ in range(3))
    keys = jnp.stack(row_keys(jnp.array([3, 9], jnp.uint32), BATCH * HEADS), -1).reshape(BATCH, HEADS, 2)
    column = np.arange(LENGTH)
    mask = jnp.ones((BATCH, LENGTH), jnp.int32)
    inputs = AttentionInputs(q=q, k=k, v=v, mask=mask, segments=None, dropout_keys=keys)
    if case == "padded":
        return dataclasses.replace(inputs, mask=jnp.asarray(column < rng.integers(1, LENGTH, (BATCH, 1)), jnp.int32))
    if case == "packed":
        starts = np.sort(rng.integers(1, LENGTH, (BATCH, 3, 1)), axis=1)
        return dataclasses.replace(inputs, segments=jnp.asarray(1 + (column >= starts).sum(1), jnp.int32))
    return dataclasses.replace(inputs, radius=16) if case == "window" else inputs


def attention(kernel: str, rate: float, dtype: str, joint: bool, inputs: AttentionInputs) -> list[jax.Array]:
    """Return the float32 context and the gradients of q, k and v, without padding.

    If `joint` is True, q, k and v are in one array.
    """
    real = inputs.mask[:, :, None]

    def context(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        q, k, v = (x.astype(dtype) for x in (q, k, v))
        given = dataclasses.replace(inputs, q=q, k=k, v=v)
        if joint:
            biases = jnp.asarray([[1.0], [2.0], [-1.0]], dtype) * jnp.ones(q.shape[-1], dtype)
            given = with_fused_qkv(inputs, FusedQKV(jnp.stack([q, k, v], axis=2) - biases, biases))
        return KERNELS[kernel].attend(given, rate).astype(jnp.float32) * real

    output, pull = jax.vjp(context, inputs.q, inputs.k, inputs.v)
    return [output, *pull(jnp.sin(jnp.arange(output.size, dtype=jnp.float32)).reshape(output.shape))]


def check_attention(case: str) -> Iterator[Result]:
    """Yield the error of each kernel and dtype: the larger error of the runs with and without dropout."""

    def compute(kernel: str, dtypes: tuple[str, ...]) -> dict[str, list[list[jax.Array]]]:
        """Compute all dropout rates of a kernel in one program, because a program takes seconds to compile."""
        inputs = inputs_of(case)
        rates = [rate for rate in RATES if not rate or KERNELS[kernel].dropout]
        ways = list(itertools.product(rates, (False, True) if kernel == "triton" else (False,)))

        def of(dtype: str, inputs: AttentionInputs) -> list[list[jax.Array]]:
            return [attention(kernel, rate, dtype, joint, inputs) for rate, joint in ways]

        reach = inputs.radius
        arrays = dataclasses.replace(inputs, radius=None)
        program = jax.jit(
            lambda arrays: {dtype: of(dtype, dataclasses.replace(arrays, radius=reach)) for dtype in dtypes}
        )
        return jax.device_get(program(arrays))

    with jax.default_matmul_precision("highest"):
        with jax.default_device(jax.devices("cpu")[0]):
            expected = dict(zip(RATES, compute("xla", ("float32",))["float32"], strict=True))
        for kernel, dtypes in kernels_here().items():
            actual = compute(kernel, dtypes)
            repeats = 2 if kernel == "triton" else 1
            right = [expected[rate] for rate in RATES for _ in range(repeats)]
            for dtype in dtypes:
                pairs = zip(actual[dtype], right, strict=False)  # a kernel without dropout has only the first rate
                worst = max(error(result, reference) for result, reference in pairs)
                yield Result(f"attention by {kernel}, {case}, {dtype}", worst, BOUNDS[dtype])
