"""Check that a training which is resumed from a checkpoint ends with the bits of an uninterrupted training.

Both trainings run the loop of bert_jax on all devices, with `compute.deterministic`, dropout and bfloat16. The
compilation cache is off: programs are compiled again after the resumption, so that a choice of kernels by timing would
be noticed.
"""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from benchmarks.device.model_check import CheckSize
from benchmarks.device.report import Result
from benchmarks.random_batch import Batch, random_batch
from bert_jax import config as c
from bert_jax.config import ComputeConfig, PretrainConfig
from bert_jax.config.presets import PRESETS
from bert_jax.console import Console
from bert_jax.objectives import make_objective
from bert_jax.parallel import sharding
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.loop import fit
from bert_jax.training.plan import Data, Plan, open_session
from bert_jax.training.schedules import Phase, plan_phases
from bert_jax.training.start import initial_state, open_checkpoints, restore_start
from bert_jax.training.step import abstract_state

STEPS, SAVED = 12, 6


def run_config(size: CheckSize) -> PretrainConfig:
    """Return the config of a small run with eight sequences per device."""
    made = c.pretrain_config()
    phases = c.phases({"seq_len": size.seq_len, "fraction": 1.0})
    batch_size = 8 * jax.device_count()
    made.train.update(steps=STEPS, batch_size=batch_size, log_every=STEPS, phases=phases)
    made.evaluate.batch_size = batch_size  # unused, but checked: divisible by the devices
    made.optimizer.update(warmup_fraction=0.0, peak_learning_rate=1e-3)
    made.checkpoint.update(every=SAVED, max_time_fraction=None)
    model = dataclasses.replace(PRESETS[size.bert], vocab_size=512)
    compute = ComputeConfig(dtype="bfloat16", deterministic=True)
    return dataclasses.replace(c.resolve(PretrainConfig, made), model=model, compute=compute)


def train(config: PretrainConfig, workdir: pathlib.Path) -> list[Any]:
    """Train from the newest checkpoint of `workdir` to the last step; return all arrays of the last state."""
    objective = make_objective(config)

    def batches(phase: Phase, step: int) -> Generator[Batch, None, None]:
        while True:
            batch = random_batch(config.model, phase.batch_size, phase.seq_len, phase.seq_len // 8)
            yield batch | {"input_ids": (batch["input_ids"] + step) % config.model.vocab_size}
            step += 1

    plan = Plan(
        workdir=workdir,
        root=workdir,
        recorded_config=c.to_json(config),
        fingerprint={"corpus": "random", "tokenizer": "none"},
        seed=config.seed,
        objective=objective,
        phases=plan_phases(config.train),
        mesh=sharding.make_mesh(config.mesh),
        optimizer=config.optimizer,
        compute=config.compute,
        train=config.train,
        evaluate_every=None,
        evaluate_first=False,
        checkpoint=config.checkpoint,
        profiled_steps=None,
    )
    with open_session(Console(silent=True), config.watchdog) as session, open_checkpoints(plan, session) as checkpoints:
        assert checkpoints
        start = restore_start(plan, checkpoints, session.console) or initial_state(plan, None)
        fit(plan, Data(batches=batches), start, checkpoints, session)
    abstract = abstract_state(*plan.state_layout)
    reader = Checkpoints(workdir, config.checkpoint, read_only=True)
    state, _ = reader.restore(config.train.steps, abstract)
    reader.close()
    return jax.device_get(jax.tree.leaves(state))


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Turn off the compilation cache on disk inside of this context."""

    def use_cache(use: bool) -> None:
        jax.config.update("jax_enable_compilation_cache", use)
        compilation_cache.reset_cache()  # JAX reads the option only at its first compilation

    use_cache(False)
    try:
        yield
    finally:
        use_cache(True)


def check_resume(size: CheckSize) -> Iterator[Result]:
    """Yield the number of arrays that differ between the two trainings."""
    config = run_config(size)
    with without_cache(), tempfile.TemporaryDirectory() as directory:
        workdir, again = pathlib.Path(directory, "whole"), pathlib.Path(directory, "resumed")
        workdir.mkdir()
        uninterrupted = train(config, workdir)
        shutil.copytree(workdir, again)
        shutil.rmtree(again / "checkpoints" / str(STEPS))
        jax.clear_caches()
        resumed = train(config, again)
    unlike = sum(x.tobytes() != y.tobytes() for x, y in zip(uninterrupted, resumed, strict=True))
    yield Result(f"resumed at step {SAVED} of {STEPS}: arrays with other bits", float(unlike), 0.0)
