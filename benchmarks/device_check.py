"""Does the accelerator compute what the CPU computes? Attention, and 20 training steps, in float32 and bfloat16.

    make bench-device        # or: python benchmarks/device_check.py

Errors are norms of differences over norms of the CPU's float32 results, at the highest precision of products. Exit
status 1 where one is too large: 1e-4 in float32, 2e-2 in bfloat16 (a bfloat16 number has 8 bits).
"""

import dataclasses
import functools
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig, PretrainConfig, pretrain_config, resolve
from bert_jax.config.presets import PRESETS
from bert_jax.models.attention import KERNELS, AttentionInputs
from bert_jax.models.attention.inputs import Joint, joined
from bert_jax.models.dropout import row_keys
from bert_jax.objectives import make_objective
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import init_state, train_step

BOUNDS = {"float32": 1e-4, "bfloat16": 2e-2}
STEPS = 20
BATCH, LENGTH, HEADS, FEATURES = 8, 128, 4, 64


def cases() -> dict[str, AttentionInputs]:
    """Return inputs of a kernel, float32: whole sequences, padded, packed, and with a window."""
    rng = np.random.default_rng(0)
    q, k, v = (jnp.asarray(rng.normal(size=(BATCH, LENGTH, HEADS * FEATURES)), jnp.float32) for _ in range(3))
    keys = jnp.stack(row_keys(jnp.array([3, 9], jnp.uint32), BATCH * HEADS), -1).reshape(BATCH, HEADS, 2)
    column = np.arange(LENGTH)
    whole = AttentionInputs(q, k, v, jnp.ones((BATCH, LENGTH), jnp.int32), None, keys)
    padded = whole._replace(mask=jnp.asarray(column < rng.integers(1, LENGTH, (BATCH, 1)), jnp.int32))
    starts = np.sort(rng.integers(1, LENGTH, (BATCH, 3, 1)), axis=1)
    packed = whole._replace(segments=jnp.asarray(1 + (column >= starts).sum(1), jnp.int32))
    return {"whole": whole, "padded": padded, "packed": packed, "window": whole._replace(reach=16)}


def attention(kernel: str, rate: float, dtype: str, joint: bool, inputs: AttentionInputs) -> list[jax.Array]:
    """Return context and gradients of q, k and v, float32; those of padding are left out. `joint`: in one array."""
    real = inputs.mask[:, :, None]

    def context(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        q, k, v = (x.astype(dtype) for x in (q, k, v))
        given = inputs._replace(q=q, k=k, v=v)
        if joint:
            biases = jnp.asarray([[1.0], [2.0], [-1.0]], dtype) * jnp.ones(q.shape[-1], dtype)
            given = joined(inputs, Joint(jnp.stack([q, k, v], axis=2) - biases, biases))
        return KERNELS[kernel].attend(given, rate).astype(jnp.float32) * real

    found, pull = jax.vjp(context, inputs.q, inputs.k, inputs.v)
    return [found, *pull(jnp.sin(jnp.arange(found.size, dtype=jnp.float32)).reshape(found.shape))]


def losses(dtype: str, dropout: float) -> list[jax.Array]:
    """Return the losses of the first steps of a small model on one batch."""
    config = dataclasses.replace(PRESETS["mini"], vocab_size=512, dropout=dropout, attention_dropout=dropout)
    default = resolve(PretrainConfig, pretrain_config())
    optimization = dataclasses.replace(default.optimizer, peak_learning_rate=1e-3, warmup_fraction=0.0, warmup_steps=2)
    run = dataclasses.replace(default, model=config, compute=ComputeConfig(dtype=dtype), optimizer=optimization)
    objective, phases = make_objective(run), plan_phases(run.train)
    optimizer = make_optimizer(run.optimizer, objective.logical_axes, objective.sections)
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(5, 512, (BATCH, LENGTH), np.int32),
        "token_type_ids": np.zeros((BATCH, LENGTH), np.int32),
        "attention_mask": np.ones((BATCH, LENGTH), np.int32),
        "masked_positions": np.tile(np.arange(0, LENGTH, 8, dtype=np.int32), (BATCH, 1)),
        "masked_labels": rng.integers(5, 512, (BATCH, LENGTH // 8), np.int32),
        "masked_weights": np.ones((BATCH, LENGTH // 8), np.float32),
        "next_sentence_labels": rng.integers(0, 2, BATCH, np.int32),
        "example_weights": np.ones(BATCH, np.float32),
    }
    state = jax.jit(functools.partial(init_state, run, objective, optimizer))()
    step = jax.jit(functools.partial(train_step, run, objective, optimizer, phases, phases[0]))
    found = []
    for _ in range(STEPS):
        state, metrics = step(state, batch)
        mean = metrics["means"]["mlm_loss"]
        found.append(mean.total / mean.weight)
    return [jnp.stack(found)]


def error(found: list[jax.Array], expected: list[jax.Array]) -> float:
    """Return the largest relative error of the arrays."""
    pairs = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in zip(found, expected, strict=True)]
    return max(float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in pairs)


def main() -> None:
    """Print a table of errors."""
    device, cpu = jax.devices()[0], jax.devices("cpu")[0]
    print(f"{device.device_kind} against the CPU, JAX {jax.__version__}")
    print("| what | type | relative error |\n| --- | --- | --- |")
    failed = False

    def report(what: str, dtype: str, found: list[jax.Array], expected: list[jax.Array]) -> None:
        nonlocal failed
        value = error(found, expected)
        failed |= not value <= BOUNDS[dtype]
        print(f"| {what} | {dtype} | {value:.1e} |", flush=True)

    with jax.default_matmul_precision("highest"):
        for name, inputs in cases().items():
            for rate in (0.0, 0.1):
                exact = functools.partial(attention, "xla", rate, "float32", False)
                with jax.default_device(cpu):
                    expected = jax.device_get(jax.jit(exact)(jax.device_put(inputs, cpu)))
                for kernel, row in KERNELS.items():
                    if kernel != "auto" and (row.platforms != (device.platform,) or (rate and not row.dropout)):
                        continue
                    dtypes = BOUNDS if kernel == "auto" else row.dtypes
                    for dtype, joint in itertools.product(dtypes, (False, True) if kernel == "triton" else (False,)):
                        compiled = jax.jit(functools.partial(attention, kernel, rate, dtype, joint))
                        found = compiled(jax.device_put(inputs, device))
                        words = f"attention by {kernel}{', joint' if joint else ''}, {name}, dropout {rate:g}"
                        report(words, dtype, found, expected)
        for dropout in (0.0, 0.1):
            with jax.default_device(cpu):
                expected = jax.device_get(losses("float32", dropout))
            for dtype in BOUNDS:
                report(f"losses of {STEPS} steps, dropout {dropout:g}", dtype, losses(dtype, dropout), expected)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
