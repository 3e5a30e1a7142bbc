"""Several processes as one: how they find each other, start JAX together and end together."""

import contextlib
import os
import sys
from collections.abc import Iterator

import jax

from bert_jax.config import WatchdogConfig
from bert_jax.errors import UserError
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.relay import Process, relay
from bert_jax.parallel.rendezvous import PeerMismatch, Peers, PeerTimeout, rendezvous
from bert_jax.parallel.watchdog import LOST, Watchdog


def find_peers(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Peers | None:
    """The peers that the command line names, or that JAX detects; None where this process is alone.

    JAX knows Slurm, Open MPI, Cloud TPU and GKE by their environment, and without one of them asks nobody. Its rule for
    Kubernetes holds for every pod, so it is asked only in an indexed job (`JOB_COMPLETION_INDEX`).

    Raises UserError where some of the options are missing, or do not fit together.
    """
    given = {"--coordinator": coordinator, "--num_processes": num_processes, "--process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return _detected()
    if missing or coordinator is None or num_processes is None or process_id is None:
        raise UserError(f"{' and '.join(missing)} missing: give all of {', '.join(given)}, or none")
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"--coordinator {coordinator}: write HOST:PORT, where process 0 can be reached")
    if not 0 <= process_id < num_processes:
        raise UserError(
            f"--process_id {process_id} of --num_processes {num_processes}: ids run from 0 to {num_processes - 1}"
            if num_processes > 0
            else f"--num_processes {num_processes}: at least 1"
        )
    return Peers(coordinator, num_processes, process_id) if num_processes > 1 else None


def _detected() -> Peers | None:
    from jax._src.clusters import ClusterEnv  # what `jax.distributed.initialize()` asks; there is no public name

    for environment in ClusterEnv._cluster_types:
        if environment.opt_in_only_method or (environment.name == "k8s" and "JOB_COMPLETION_INDEX" not in os.environ):
            continue
        if environment.is_env_present():
            if environment.get_process_count() < 2:
                return None
            port = os.environ.get("JAX_COORDINATOR_PORT")
            coordinator = environment.get_coordinator_address(timeout_secs=300, override_coordinator_port=port)
            local = environment.get_local_process_id()
            devices = None if local is None else [local]
            return Peers(coordinator, environment.get_process_count(), environment.get_process_id(), devices)
    return None


@contextlib.contextmanager
def joined(peers: Peers | None, config: WatchdogConfig, interrupt: Interrupt, verb: str) -> Iterator[Watchdog]:
    """This process as one of its peers, watched over; to be entered before anything touches a device.

    Where one process leaves with an exception, all end: with status 2 for a UserError, with 124 where a process is
    lost, with 1 for a fault of the program.
    """
    if peers is None:
        watchdog = Watchdog(config)
        try:
            yield watchdog
        finally:
            watchdog.close()
        return
    try:
        roll = rendezvous(peers, config.start_seconds)
    except PeerMismatch as error:
        raise UserError(str(error)) from error
    except PeerTimeout as error:
        print(f"bert-jax {verb}: {error}", file=sys.stderr)
        sys.exit(LOST)
    watchdog = Watchdog(config, peers.process_id, roll)
    try:
        relaying = _start_jax(peers, config)
        interrupt.together()
        yield watchdog
        watchdog.stage("save")  # the others may still be writing
        jax.distributed.shutdown()
        if relaying:
            relaying.communicate()
    except UserError as error:
        print(f"bert-jax {verb}: {error}", file=sys.stderr)
        watchdog.fail(str(error), 2)
    except KeyboardInterrupt:
        print(f"bert-jax {verb}: interrupted", file=sys.stderr)
        watchdog.fail("interrupted", 130)
    except Exception as error:
        watchdog.explain(error)
    watchdog.close()


def _start_jax(peers: Peers, config: WatchdogConfig) -> Process | None:
    """`jax.distributed.initialize`, so that nothing of JAX ends a process before the watchdog has said why.

    Returns the relay that JAX talks through, but in process 0; it must live as long as this process.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # of no meaning to other platforms
    host, _, port = peers.coordinator.rpartition(":")
    address, relaying = f"127.0.0.1:{port}", None
    patience = int(config.start_seconds) or 1 << 20
    longest = max(config.start_seconds, config.compile_seconds, config.step_seconds, config.save_seconds)
    if peers.process_id > 0:
        address, relaying = relay(host.strip("[]"), int(port), patience)
    jax.distributed.initialize(
        address,
        peers.num_processes,
        peers.process_id,
        peers.local_device_ids,
        cluster_detection_method="deactivate",
        initialization_timeout=patience + 60,
        heartbeat_timeout_seconds=int(longest) + 100,
        shutdown_timeout_seconds=int(config.save_seconds) + 100,
    )
    return relaying
