"""Speed of a training step on one accelerator in bfloat16: of pretraining and of fine-tuning.

A step is the forward pass, the loss, the backward pass, clipping to norm 1 and AdamW on float32 parameters; the state
is donated. MFU is the FLOP/s of matrix products (`models.model_flops`) divided by the peak of the data sheet; a packed
sequence is counted as one example of full length.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchmarks.device.report import LeftOutError, Result
from benchmarks.random_batch import Batch, packed, random_batch
from bert_jax.config import (
    ComputeConfig,
    Config,
    EncoderConfig,
    FinetuneConfig,
    MeshConfig,
    PretrainConfig,
    finetune_config,
    pretrain_config,
    resolve,
)
from bert_jax.config.presets import PRESETS
from bert_jax.models import make_model, model_flops
from bert_jax.models.attention import KERNELS
from bert_jax.objectives import make_objective
from bert_jax.objectives.base import Objective
from bert_jax.parallel.chips import peak_flops
from bert_jax.parallel.platform import compiler_options
from bert_jax.parallel.sharding import make_mesh
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step

Run = Callable[[int], None]  # runs a number of steps and waits for the last


class Repeats(NamedTuple):
    """Time `steps` steps that are dispatched together; repeat this `stretches` times, and return the median."""

    warmup: int = 5
    steps: int = 20
    stretches: int = 5


class Step(NamedTuple):
    """Settings of a step to time."""

    size: str  # a row of PRESETS
    sequences: int
    seq_len: int
    by: str = "auto"  # attention kernel of our step; "torch" or "torch compiled": a step of transformers
    attention_dropout: bool = True  # True: the rate of the architecture; False: none
    packed: bool = False  # four examples in each sequence
    task: bool = False  # fine-tuning with two classes, not pretraining
    scanned: bool = False  # layers in a loop: compiles in a third of the time, a third slower on an H100
    layers: int | None = None  # number of layers, with a vocabulary of 512, to try the command; None: the whole model

    @property
    def name(self) -> str:
        """Name of the step in the table of results."""
        none = "" if self.attention_dropout else ", no attention dropout"
        suffix = f"{', packed' * self.packed}{', fine-tuning' * self.task}{', scanned layers' * self.scanned}{none}"
        return f"{self.size} {self.sequences}x{self.seq_len}{suffix}, {self.by}"

    @property
    def config(self) -> EncoderConfig:
        """Architecture of the model."""
        config = PRESETS[self.size]
        if not self.attention_dropout:
            config = dataclasses.replace(config, attention_dropout=0.0)
        return dataclasses.replace(config, num_layers=self.layers, vocab_size=512) if self.layers else config

    @property
    def num_predictions(self) -> int:
        """Number of masked tokens per sequence."""
        return 0 if self.task else round(0.15 * self.seq_len) + 1

    def batch(self) -> Batch:
        """Return the batch that the step reads."""
        made = random_batch(self.config, self.sequences, self.seq_len, self.num_predictions)
        if self.task:
            labels = made["next_sentence_labels"]
            keys = ("input_ids", "token_type_ids", "attention_mask", "example_weights")
            return {key: made[key] for key in keys} | {"labels": labels}
        if not self.config.num_token_types:
            del made["next_sentence_labels"]
        return packed(made) if self.packed else made


def ours(step: Step) -> Run:
    """Return a function that runs steps as `pretrain` or `finetune` does."""
    batch, compute = step.batch(), ComputeConfig(dtype="bfloat16", scan_layers=step.scanned, attention=step.by)
    config: Config
    objective: Objective
    if step.task:
        from bert_jax.objectives.tasks import make_task_objective, task_head  # these need tokenizers

        config = dataclasses.replace(resolve(FinetuneConfig, finetune_config()), compute=compute)
        phases: tuple[Phase, ...] = (Phase(end=1_000, seq_len=step.seq_len, batch_size=step.sequences),)
        kind = "sequence_classification"
        objective = make_task_objective(
            make_model(step.config, compute, (task_head(kind, 2),)), kind, freeze_encoder=False
        )
    else:
        default = resolve(PretrainConfig, pretrain_config())
        pairs = default.data.sentence_pairs if "next_sentence_labels" in batch else "full_sentences"
        data = dataclasses.replace(default.data, sentence_pairs=pairs)
        pretrain = dataclasses.replace(default, model=step.config, compute=compute, data=data)
        config, phases, objective = pretrain, plan_phases(pretrain.train), make_objective(pretrain)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    state = jax.jit(functools.partial(init_state, config.seed, objective, optimizer))()
    placed = {name: jnp.asarray(x) for name, x in batch.items()}
    rate = functools.partial(learning_rate, config.optimizer, phases)
    update = functools.partial(train_step, objective, optimizer, rate, phases[0].grad_accum_steps)
    options = compiler_options(make_mesh(MeshConfig(), jax.devices()[:1]))
    compiled = jax.jit(update, donate_argnums=0).lower(state, placed).compile(options)

    def run(steps: int) -> None:
        nonlocal state
        metrics: Any = None
        for _ in range(steps):
            state, metrics = compiled(state, placed)
        jax.block_until_ready(metrics)

    return run


def theirs(step: Step) -> Run:
    """Return a function that runs steps of transformers."""
    from benchmarks.device.torch_steps import torch_step

    return torch_step(step.config, step.batch(), jax.devices()[0].platform, step.by == "torch compiled")


def time_step(step: Step, repeats: Repeats) -> Iterator[Result]:
    """Time a step and yield its result."""
    device = jax.devices()[0]
    by_torch = step.by.startswith("torch")
    if not by_torch:
        kernel = KERNELS[step.by]
        if step.by != "auto" and not (device.platform in kernel.platforms and kernel.available()):
            raise LeftOutError(f"no kernel for a {device.platform}")
    with jax.set_mesh(make_mesh(MeshConfig(), [device])):  # as in `pretrain`, so that activations have a sharding
        begin = time.perf_counter()
        run = theirs(step) if by_torch else ours(step)
        run(repeats.warmup)
        ready, times = time.perf_counter() - begin, []
        for _ in range(repeats.stretches):
            begin = time.perf_counter()
            run(repeats.steps)
            times.append((time.perf_counter() - begin) / repeats.steps)
    seconds = statistics.median(times)
    flops = step.sequences * model_flops(step.config, step.seq_len, step.num_predictions)
    yield Result(
        step.name,
        ms=1e3 * seconds,
        tokens_per_second=step.sequences * step.seq_len / seconds,
        mfu=flops / seconds / peak if (peak := _peak()) else None,
        ready_seconds=ready,
    )


@functools.cache
def _peak() -> float | None:
    """Return the FLOP/s of the data sheet; the FLOP/s of a CPU are measured once."""
    return peak_flops()
