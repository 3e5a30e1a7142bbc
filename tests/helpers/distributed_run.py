"""Run by test_distributed.py as one of several processes: short training runs, each in WORKDIR/NAME.

python tests/helpers/distributed_run.py WORKDIR RUNS COORDINATOR NUM_PROCESSES PROCESS_ID

RUNS is JSON: {"NAME": {"mesh": [4, 1, 1], "grad_accum_steps": 2, "steps": 12, "stop_at": 6}, ...}; mesh is required.
Each process writes the numbers of the sequences that it made to WORKDIR/NAME.sequences.NUM_PROCESSES.PROCESS_ID.json, a
list per step.
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
from bert_jax.parallel.joining import find_peers, joined_processes
from bert_jax.parallel.preemption import Interrupt
from bert_jax.training.plan import Data, Heldout, Session
from bert_jax.training.schedules import Phase
from tests.helpers.mesh_run import STEPS, mesh_config
from tests.helpers.synthetic import random_batch, synthetic_data, train


def run_config(run: dict[str, Any]) -> PretrainConfig:
    """The small model of mesh_run.py; a checkpoint only where the run stops."""
    config = mesh_config(run["mesh"], run.get("grad_accum_steps", 1))
    return dataclasses.replace(config, train=dataclasses.replace(config.train, steps=run.get("steps", STEPS)))


def sliced_data(config: PretrainConfig, asked: dict[int, list[int]], stop_at: int | None) -> Data:
    """Random sequences; each process makes only its own. The last process gets SIGTERM before step `stop_at`."""
    blocks, num_blocks = sharding.batch_blocks(sharding.make_mesh(config.mesh))

    def own(first: int, batch_size: int) -> list[int]:
        size = batch_size // num_blocks
        return [first + block * size + i for block in blocks for i in range(size)]

    def made(numbers: list[int], seq_len: int) -> dict[str, np.ndarray]:
        sequences = [random_batch(number, 1, seq_len) for number in numbers]
        return {name: np.concatenate([one[name] for one in sequences]) for name in sequences[0]}

    def batches(phase: Phase, step: int) -> Generator[dict[str, np.ndarray], None, None]:
        while True:
            if step == stop_at and jax.process_index() == jax.process_count() - 1:
                signal.raise_signal(signal.SIGTERM)
            asked[step] = own(phase.first_sequence(step), phase.batch_size)
            yield made(asked[step], phase.seq_len)
            step += 1

    def heldout(phase: Phase) -> Generator[dict[str, np.ndarray], None, None]:
        size = config.evaluate.batch_size
        return (made(own(10**6 + i * size, size), phase.seq_len) for i in range(2))

    return dataclasses.replace(synthetic_data(config), batches=batches, heldout=Heldout(heldout, lambda phase: 2))


def main(workdir: str, runs: str, coordinator: str, num_processes: str, process_id: str) -> None:
    """Train all runs in turn, in one set of processes; only the last run may be stopped."""
    peers = find_peers(coordinator, int(num_processes), int(process_id))
    console = Console(silent=process_id != "0")
    with Interrupt() as interrupt, joined_processes(peers, WatchdogConfig(), interrupt, "test") as watchdog:
        session = Session(console=console, interrupt=interrupt, watchdog=watchdog)
        for name, run in json.loads(runs).items():
            config = run_config(run)
            place = pathlib.Path(workdir) / name
            place.mkdir(exist_ok=True)
            asked: dict[int, list[int]] = {}
            data = sliced_data(config, asked, run.get("stop_at"))
            done = train(config, data, place, session=session)
            assert done == ("stop_at" not in run), name
            record = pathlib.Path(workdir) / f"{name}.sequences.{num_processes}.{process_id}.json"
            record.write_text(json.dumps(asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
