"""Observe how the other processes of a JAX run end when one process is killed, with `jax_enable_recoverability`.

    python benchmarks/coordinator_death.py [--trials 10] [--processes 3]

For each moment of the run and each killed process, prints the state of the other processes after 4 seconds: alive, or
their exit status. Process 0 is the coordinator. The conclusion is in docs/decisions/0008-relay.md.
"""

import argparse
import collections
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS = 4.0


def collective_forever() -> None:
    """Run reductions over all processes, one after another."""
    run, x = _reduction()
    while True:
        x = run(x)
        x.block_until_ready()


def compile_forever() -> None:
    """Compile programs, one after another."""
    import jax
    import jax.numpy as jnp

    def chain(offset: int) -> Callable[[jax.Array], jax.Array]:
        def apply(x: jax.Array) -> jax.Array:
            for step in range(150):
                x = jnp.sin(x) * (offset + step) + jnp.cumsum(x)
            return x

        return apply

    offset = 0
    while True:
        offset += 1
        jax.jit(chain(offset)).lower(jnp.ones(8)).compile()


def sleep_forever() -> None:
    """Do nothing."""
    time.sleep(1e6)


MOMENTS = {"idle": sleep_forever, "collective": collective_forever, "compile": compile_forever}


def _reduction() -> tuple[Callable[..., Any], object]:
    import jax
    import numpy as np

    count = jax.process_count()
    mesh = jax.make_mesh((count,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("all"))
    x = jax.make_array_from_callback((count,), split, lambda _: np.ones(1, np.float32))
    return jax.jit(lambda x: x * 0 + x.sum() / count, out_shardings=split), x


def work(moment: str, address: str, count: int, process_id: int) -> None:
    """Join the run as one process, and repeat the given activity: a reduction, a compilation or a sleep."""
    import jax

    jax.config.update("jax_enable_recoverability", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        address, count, process_id, cluster_detection_method="deactivate", heartbeat_timeout_seconds=1000
    )
    try:
        run, x = _reduction()
        run(x).block_until_ready()
        print("ready", flush=True)
        MOMENTS[moment]()
    except Exception:
        time.sleep(1e6)  # an error that Python sees does not end the process


def trial(moment: str, victim: int, count: int, delay: float) -> list[str]:
    """Kill the victim `delay` seconds after all processes are ready; return how each other process ended."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--work", moment, address, str(count), str(process_id)],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "NPROC": "16", "JAX_COMPILATION_CACHE_DIR": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for process_id in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout
            assert any(line == b"ready\n" for line in process.stdout)  # gloo prints lines as well
        time.sleep(delay)
        processes[victim].send_signal(signal.SIGKILL)
        time.sleep(SECONDS)
        statuses = [process.poll() for process_id, process in enumerate(processes) if process_id != victim]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return ["alive" if status is None else f"status {status}" for status in statuses]


def main() -> None:
    """Print how often the other processes ended in each state, for each moment and victim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        moment, address, count, process_id = options.work
        work(moment, address, int(count), int(process_id))
    for moment in MOMENTS:
        for victim in (0, 1):
            fates: collections.Counter[str] = collections.Counter()
            for index in range(options.trials):
                fates.update(trial(moment, victim, options.processes, 0.5 + 0.3 * index))
            fate_counts = ", ".join(f"{count} x {fate}" for fate, count in fates.items())
            print(f"{moment}, killed: process {victim}: the others: {fate_counts}", flush=True)


if __name__ == "__main__":
    main()
