"""Run by test_distributed.py as one of several processes: short runs of `fit`, each in WORKDIR/NAME.

python tests/distributed_run.py WORKDIR RUNS COORDINATOR NUM_PROCESSES PROCESS_ID

RUNS is JSON: {"NAME": {"mesh": [4, 1, 1], "grad_accum_steps": 2, "steps": 20, "stop_at": 10}, ...}; mesh is required.
Each process writes the rows that it made to WORKDIR/NAME.rows.NUM_PROCESSES.PROCESS_ID.json, a list for each step.
"""

import dataclasses
import json
import pathlib
import signal
import sys
from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from bert_jax.config import PretrainConfig, WatchdogConfig
from bert_jax.console import Console
from bert_jax.parallel import sharding
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.processes import find_peers, joined
from bert_jax.training.loop import Data
from bert_jax.training.schedules import Phase
from tests.mesh_run import STEPS, mesh_config
from tests.synthetic import random_batch, train


def run_config(run: dict[str, Any]) -> PretrainConfig:
    """The small model of mesh_run.py; a checkpoint only where the run stops."""
    config = mesh_config(run["mesh"], run.get("grad_accum_steps", 1))
    return dataclasses.replace(config, train=dataclasses.replace(config.train, steps=run.get("steps", STEPS)))


def sliced_data(config: PretrainConfig, asked: dict[int, list[int]], stop_at: int | None) -> Data:
    """Random rows, of which each process makes its share alone; the last process gets SIGTERM before `stop_at`."""
    blocks, of = sharding.batch_share(sharding.make_mesh(config.mesh))

    def share(first_row: int, rows: int) -> list[int]:
        size = rows // of
        return [first_row + block * size + i for block in blocks for i in range(size)]

    def made(numbers: list[int], length: int) -> dict[str, np.ndarray]:
        rows = [random_batch(number, 1, length) for number in numbers]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def batches(phase: Phase, step: int) -> Generator[dict[str, np.ndarray], None, None]:
        while True:
            if step == stop_at and jax.process_index() == jax.process_count() - 1:
                signal.raise_signal(signal.SIGTERM)
            asked[step] = share(phase.first_sequence(step), phase.batch_size)
            yield made(asked[step], phase.seq_len)
            step += 1

    def heldout(phase: Phase) -> Generator[dict[str, np.ndarray], None, None]:
        size = config.evaluate.batch_size
        return (made(share(10**6 + i * size, size), phase.seq_len) for i in range(2))

    return Data(batches, heldout, {"corpus": "synthetic", "tokenizer": "none"})


def main(workdir: str, runs: str, coordinator: str, num_processes: str, process_id: str) -> None:
    """Every run, one after the other, in one set of processes; only the last may be stopped."""
    peers = find_peers(coordinator, int(num_processes), int(process_id))
    console = Console(silent=process_id != "0")
    with Interrupt() as interrupt, joined(peers, WatchdogConfig(), interrupt, "test") as watchdog:
        for name, run in json.loads(runs).items():
            config = run_config(run)
            place = pathlib.Path(workdir) / name
            place.mkdir(exist_ok=True)
            asked: dict[int, list[int]] = {}
            data = sliced_data(config, asked, run.get("stop_at"))
            done = train(config, data, place, console=console, interrupt=interrupt, watchdog=watchdog)
            assert done == ("stop_at" not in run), name
            rows = pathlib.Path(workdir) / f"{name}.rows.{num_processes}.{process_id}.json"
            rows.write_text(json.dumps(asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
