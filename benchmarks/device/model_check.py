"""Check logits of whole models, and losses of 20 training steps, on the device against the CPU.

An error is the norm of the difference divided by the norm of the CPU's float32 result. Matrix products have the highest
precision.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.device.report import Result
from benchmarks.random_batch import Batch, packed, random_batch
from bert_jax.config import ComputeConfig, EncoderConfig, PretrainConfig, pretrain_config, resolve
from bert_jax.config.presets import PRESETS
from bert_jax.models import Head, make_model
from bert_jax.objectives import make_objective
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step

BOUNDS = {"float32": 1e-4, "bfloat16": 2e-2}  # the significand of a bfloat16 number has 8 bits
STEPS, BATCH, VOCAB = 20, 8, 512


class CheckSize(NamedTuple):
    """Models and sequence length of the checks; ModernBERT's sequences are twice as long, to exceed its windows."""

    bert: str = "mini"
    modern: str = "modern_mini"
    seq_len: int = 128


def error(actual: list[jax.Array], expected: list[jax.Array]) -> float:
    """Return the largest relative error over the arrays."""
    pairs = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in zip(actual, expected, strict=True)]
    return max(float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in pairs)


def compared(name: str, compute: Callable[[ComputeConfig], list[jax.Array]]) -> Iterator[Result]:
    """Yield the error of `compute` on the device for each dtype; `compute` builds all of its arrays itself.

    The attention on the CPU is set to XLA's; `auto` would choose the accelerator's kernel.
    """
    with jax.default_matmul_precision("highest"):
        with jax.default_device(jax.devices("cpu")[0]):
            expected = jax.device_get(compute(ComputeConfig(attention="xla")))
        for dtype, bound in BOUNDS.items():
            yield Result(f"{name}, {dtype}", error(compute(ComputeConfig(dtype=dtype)), expected), bound)


def cases(size: CheckSize) -> dict[str, tuple[EncoderConfig, Batch]]:
    """Return architectures and batches by name: BERT padded and packed, ModernBERT with windows."""
    bert, modern = (dataclasses.replace(PRESETS[name], vocab_size=VOCAB) for name in (size.bert, size.modern))
    length = size.seq_len
    short, long = (random_batch(bert, BATCH, n, n // 8) for n in (length, 2 * length))
    ends = np.random.default_rng(0).integers(length // 2, length + 1, (BATCH, 1))
    padded = short | {"attention_mask": (np.arange(length) < ends).astype(np.int32)}
    return {"BERT, padded": (bert, padded), "BERT, packed": (bert, packed(short)), "ModernBERT": (modern, long)}


def logits(config: EncoderConfig, batch: Batch, compute: ComputeConfig) -> list[jax.Array]:
    """Return the logits of the masked tokens, computed by a model with random weights."""
    model = make_model(config, compute, (Head("masked_token"),))
    params = jax.jit(model.init)(jax.random.key(0))
    placed = {name: jnp.asarray(x) for name, x in batch.items()}
    return jax.tree.leaves(jax.jit(lambda params, batch: model.apply(params, batch, None))(params, placed))


def check_logits(size: CheckSize) -> Iterator[Result]:
    """Yield the errors of the logits of each case."""
    for name, (config, batch) in cases(size).items():
        yield from compared(f"logits of {name}", functools.partial(logits, config, batch))


def losses(size: CheckSize, dropout: float, compute: ComputeConfig) -> list[jax.Array]:
    """Return the losses of the first steps of a small model on one batch."""
    config = dataclasses.replace(PRESETS[size.bert], vocab_size=VOCAB, dropout=dropout, attention_dropout=dropout)
    default = resolve(PretrainConfig, pretrain_config())
    optimization = dataclasses.replace(default.optimizer, peak_learning_rate=1e-3, warmup_fraction=0.0, warmup_steps=2)
    run = dataclasses.replace(default, model=config, compute=compute, optimizer=optimization)
    objective, phases = make_objective(run), plan_phases(run.train)
    optimizer = make_optimizer(run.optimizer, objective.logical_axes, objective.sections)
    batch = random_batch(config, BATCH, size.seq_len, size.seq_len // 8)
    state = jax.jit(functools.partial(init_state, run.seed, objective, optimizer))()
    step = jax.jit(
        functools.partial(
            train_step,
            objective,
            optimizer,
            functools.partial(learning_rate, run.optimizer, phases),
            phases[0].grad_accum_steps,
        )
    )
    step_losses = []
    for _ in range(STEPS):
        state, metrics = step(state, batch)
        mean = metrics["means"]["mlm_loss"]
        step_losses.append(mean.total / mean.weight)
    return [jnp.stack(step_losses)]


def check_training(size: CheckSize) -> Iterator[Result]:
    """Yield the errors of the losses, without and with dropout."""
    for dropout in (0.0, 0.1):
        yield from compared(f"losses of {STEPS} steps, dropout {dropout:g}", functools.partial(losses, size, dropout))
