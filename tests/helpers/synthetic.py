"""Random rows of the documented shapes, for tests that need no text."""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_jax import config as c
from bert_jax.config import PretrainConfig
from bert_jax.console import Console
from bert_jax.objectives import Rngs, make_objective
from bert_jax.parallel import sharding
from bert_jax.training.evaluation import make_evaluate
from bert_jax.training.loop import fit
from bert_jax.training.plan import Data, Heldout, Plan, Session, open_session
from bert_jax.training.profile import profiled_steps
from bert_jax.training.schedules import Phase, plan_phases
from bert_jax.training.start import initial_state, open_checkpoints, restore_start
from bert_jax.training.step import check_divisible_by_mesh

VOCAB = 100
# A key as numpy: one of JAX would use a device, which jax.distributed.initialize must precede.
NO_DROPOUT = Rngs(dropout=None, sampling=np.zeros(2, np.uint32))


def random_batch(first_row: int, rows: int, length: int, predictions: int = 4) -> dict[str, np.ndarray]:
    """Row r depends on r alone, as the pipeline's does."""
    made = [_row(np.random.default_rng(first_row + i), length, predictions) for i in range(rows)]
    return {name: np.stack([row[name] for row in made]) for name in made[0]}


def _row(rng: np.random.Generator, length: int, predictions: int) -> dict[str, np.ndarray]:
    real = int(rng.integers(length // 2, length + 1))
    here = np.arange(length) < real
    weights = (np.arange(predictions) < rng.integers(1, predictions + 1)).astype(np.float32)
    return {
        "input_ids": np.where(here, rng.integers(5, VOCAB, length), 0).astype(np.int32),
        "token_type_ids": ((np.arange(length) >= real // 2) & here).astype(np.int32),
        "attention_mask": here.astype(np.int32),
        "masked_positions": np.sort(rng.choice(np.arange(1, real), predictions, replace=False)).astype(np.int32),
        "masked_labels": rng.integers(0, VOCAB, predictions).astype(np.int32),
        "masked_weights": weights,
        "next_sentence_labels": np.int32(rng.integers(0, 2)),
        "example_weights": np.float32(1),
    }


def packed_batch(first_row: int, rows: int, length: int, examples: int, predictions: int = 8) -> dict[str, np.ndarray]:
    """Likewise, of rows that hold from one to `examples` examples."""
    made = [_packed_row(np.random.default_rng(first_row + i), length, examples, predictions) for i in range(rows)]
    return {name: np.stack([row[name] for row in made]) for name in made[0]}


def _packed_row(rng: np.random.Generator, length: int, examples: int, predictions: int) -> dict[str, np.ndarray]:
    number = int(rng.integers(1, examples + 1))
    ends = np.sort(rng.choice(np.arange(3, length + 1), number, replace=False))
    segments = np.searchsorted(ends, np.arange(length), side="right") + 1
    segments = np.where(segments > number, 0, segments).astype(np.int32)
    here, there = segments > 0, np.arange(examples) < number
    count = min(predictions - 1, int(ends[-1]) // 2)
    positions = np.zeros(predictions, np.int32)
    positions[:count] = np.sort(rng.choice(ends[-1], count, replace=False))
    return {
        "input_ids": np.where(here, rng.integers(5, VOCAB, length), 0).astype(np.int32),
        "token_type_ids": np.where(here, rng.integers(0, 2, length), 0).astype(np.int32),
        "attention_mask": here.astype(np.int32),
        "segment_ids": segments,
        "cls_positions": np.where(there, np.resize([0, *ends], examples), 0).astype(np.int32),
        "masked_positions": positions,
        "masked_labels": rng.integers(0, VOCAB, predictions).astype(np.int32),
        "masked_weights": (np.arange(predictions) < count).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, examples).astype(np.int32),
        "example_weights": there.astype(np.float32),
    }


def unpacked(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The examples of packed rows, in their order, each in a row of its own."""
    alone = []
    for row in range(len(batch["input_ids"])):
        for example in np.flatnonzero(batch["example_weights"][row]):
            columns = np.flatnonzero(batch["segment_ids"][row] == example + 1)
            one = {name: np.zeros_like(batch[name][row]) for name in ("input_ids", "token_type_ids", "attention_mask")}
            for name in one:
                one[name][: len(columns)] = batch[name][row, columns]
            positions = batch["masked_positions"][row]
            mine = np.isin(positions, columns) & (batch["masked_weights"][row] > 0)
            one["masked_positions"] = np.where(mine, positions - columns[0], 0).astype(np.int32)
            one["masked_weights"] = mine.astype(np.float32)
            one["masked_labels"] = batch["masked_labels"][row]
            one["next_sentence_labels"] = batch["next_sentence_labels"][row, example]
            one["example_weights"] = np.float32(1)
            alone.append(one)
    return {name: np.stack([one[name] for one in alone]) for name in alone[0]}


def synthetic_data(config: PretrainConfig, heldout_batches: int = 2) -> Data:
    """An endless stream of random rows, and a short held-out set."""

    def made(first_row: int, rows: int, length: int) -> dict[str, np.ndarray]:
        packing = config.data.packing
        return random_batch(first_row, rows, length) if packing == 1 else packed_batch(first_row, rows, length, packing)

    def batches(phase: Phase, step: int) -> Iterator[dict[str, np.ndarray]]:
        while True:
            yield made(phase.first_sequence(step), phase.batch_size, phase.seq_len)
            step += 1

    def heldout(phase: Phase) -> Iterator[dict[str, np.ndarray]]:
        size = config.evaluate.batch_size
        return (made(10**6 + i * size, size, phase.seq_len) for i in range(heldout_batches))

    objective, mesh = make_objective(config), sharding.make_mesh(config.mesh)
    evaluated = Heldout(heldout, lambda phase: heldout_batches)
    return Data(batches=batches, heldout=evaluated, evaluate=make_evaluate(objective, mesh))


def tiny_config(seed: int = 0, model: dict | None = None, **train: object) -> PretrainConfig:
    """A model that compiles in seconds, in two phases of 16 and 24 tokens."""
    made = c.pretrain_config()
    made.seed = seed
    made.model.update(vocab_size=VOCAB, hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    made.model.update(model or {})
    made.train.update(steps=6, batch_size=8, log_every=1)
    made.train.phases = c.phases({"seq_len": 16, "fraction": 0.5}, {"seq_len": 24, "fraction": 0.5})
    made.optimizer.warmup_fraction = 0.0
    made.evaluate.update(every=3, batch_size=8)
    made.checkpoint.update(every=2)
    made.train.update(train)
    return c.resolve(c.PretrainConfig, made)


def plan_of(config: PretrainConfig, workdir: pathlib.Path) -> Plan:
    """The plan of a run on synthetic data."""
    return Plan(
        workdir=workdir,
        root=workdir,
        recorded_config=c.to_json(config),
        fingerprint={"corpus": "synthetic", "tokenizer": "none"},
        seed=config.seed,
        objective=make_objective(config),
        phases=plan_phases(config.train),
        mesh=sharding.make_mesh(config.mesh),
        optimizer=config.optimizer,
        compute=config.compute,
        train=config.train,
        evaluate_every=config.evaluate.every,
        evaluate_first=False,
        checkpoint=config.checkpoint,
        profiled_steps=profiled_steps(config.profile.steps, config.train.steps) if config.profile.steps else None,
    )


def train(
    config: PretrainConfig,
    data: Data,
    workdir: pathlib.Path,
    console: Console | None = None,
    session: Session | None = None,
    params: Any = None,
) -> bool:
    """Run or resume the objective and the phases of `config`."""
    if session is None:
        with open_session(console or Console(), config.watchdog) as session:
            return train(config, data, workdir, session=session, params=params)
    plan = plan_of(config, workdir)
    check_divisible_by_mesh(plan.mesh, plan.objective, plan.phases, config.evaluate.batch_size)
    with open_checkpoints(plan, session) as checkpoints:
        if checkpoints is None:
            return False
        start = restore_start(plan, checkpoints, session.console) or initial_state(plan, params)
        return fit(plan, data, start, checkpoints, session)
