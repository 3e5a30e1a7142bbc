"""Several processes as one run: they find each other, start JAX together and end together."""

import contextlib
import os
import sys
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils

from bert_jax.config import WatchdogConfig
from bert_jax.errors import UserError, file_error, interrupt_status_and_message, resource_error_message, shown
from bert_jax.parallel import clusters
from bert_jax.parallel.platform import check_platform
from bert_jax.parallel.preemption import STOPPED_BEFORE_STEP, Interrupt
from bert_jax.parallel.relay import Process, start_relay_process
from bert_jax.parallel.rendezvous import (
    PeerMismatch,
    Peers,
    PeerStopped,
    PeerTimeout,
    listening_address,
    loopback_address,
    rendezvous,
)
from bert_jax.parallel.watchdog import LOST, Watchdog

OPTIONS = ("--coordinator", "--num_processes", "--process_id")


def find_peers(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Peers | None:
    """Return the peers from the command line or from a cluster's environment; None for a run of one process.

    A run of one process needs no other option, and ignores the environment of the cluster. The token of the peers is
    BERT_JAX_TOKEN in the environment.

    Raises:
        UserError: some of the options are missing or contradict each other, the environment is malformed, or a run of
            several hosts has no token.
    """
    if num_processes == 1 and coordinator is None and not process_id:
        return None
    if (coordinator, num_processes, process_id) != (None, None, None):
        peers = _peers_of_options(coordinator, num_processes, process_id)
    else:
        try:
            peers = clusters.detect_peers()
        except (KeyError, ValueError) as error:
            raise UserError(
                f"the environment of the cluster does not tell the processes of the run ({type(error).__name__}: "
                f"{error}); pass {', '.join(OPTIONS)} instead, or --num_processes 1 alone for a run of this process"
            ) from error
    return _with_run_token(peers) if peers else None


def _peers_of_options(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Peers | None:
    """Return the peers that the command line names, or None for one process; raise UserError for wrong options."""
    values = zip(OPTIONS, (coordinator, num_processes, process_id), strict=True)
    missing = [name for name, value in values if value is None]
    if missing or coordinator is None or num_processes is None or process_id is None:
        raise UserError(f"{' and '.join(missing)} missing: pass all of {', '.join(OPTIONS)}, or none of them")
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"--coordinator {coordinator}: expected HOST:PORT, the address of process 0")
    if num_processes < 1:
        raise UserError(f"--num_processes {num_processes}: must be at least 1")
    if not 0 <= process_id < num_processes:
        raise UserError(
            f"--process_id {process_id} with --num_processes {num_processes}: must be from 0 to {num_processes - 1}"
        )
    return Peers(coordinator, num_processes, process_id) if num_processes > 1 else None


def _with_run_token(peers: Peers) -> Peers:
    """Return the peers with the token of the environment; raise UserError if a run of several hosts has no token."""
    token = os.environ.get("BERT_JAX_TOKEN", "")
    if not token and not loopback_address(peers.coordinator.rpartition(":")[0]):
        raise UserError(
            f"BERT_JAX_TOKEN is not set, and anyone who reaches {peers.coordinator} could join the run\n"
            "print a secret: python3 -c 'import secrets; print(secrets.token_hex())'; then in each process: "
            "export BERT_JAX_TOKEN=SECRET"
        )
    return peers._replace(token=token)


FOREVER = 1 << 20  # seconds (12 days) in place of no limit, because JAX accepts no None


@contextlib.contextmanager
def joined_processes(
    peers: Peers | None, limits: WatchdogConfig, interrupt: Interrupt, verb: str, memory_advice: str = ""
) -> Iterator[Watchdog]:
    """Join this process with its peers, and yield its watchdog. Enter the context before any use of a device.

    An exception in one process ends all processes. The exit status is 2 for a UserError or a lack of memory, 130 for
    Ctrl-C, 124 for a lost process, and 1 for a bug. A signal before all processes are present ends the present
    processes with exit status 0.
    """
    if peers is not None:
        with _joined_peers(peers, limits, interrupt, verb, memory_advice) as watchdog:
            yield watchdog
        return
    check_platform()
    with contextlib.closing(Watchdog(limits)) as watchdog:
        yield watchdog


@contextlib.contextmanager
def _joined_peers(
    peers: Peers, limits: WatchdogConfig, interrupt: Interrupt, verb: str, memory_advice: str
) -> Iterator[Watchdog]:
    """Join this process with the peers, as `joined_processes` does."""

    def check_stop() -> None:
        if interrupt.received:
            raise PeerStopped(f"{interrupt.received}: {STOPPED_BEFORE_STEP}")

    try:
        membership = rendezvous(peers, limits.start_seconds, check_stop)
    except PeerStopped as error:
        print(shown(str(error)), file=sys.stderr)
        sys.exit(0)
    except PeerMismatch as error:
        raise UserError(str(error)) from error
    except PeerTimeout as error:
        print(f"bert-jax {verb}: {shown(str(error))}", file=sys.stderr)
        sys.exit(LOST)
    watchdog = Watchdog(limits, peers.process_id, membership)
    try:
        relay = _start_jax(peers, limits)
        interrupt.use_preemption_service()
        check_platform()
        watchdog.wait_for_all()
        multihost_utils.sync_global_devices("start")  # the docstring of `sharding.warm_up_collectives` gives the reason
        yield watchdog
        watchdog.enter_stage("save")  # the other processes may still be writing
        jax.distributed.shutdown()
        if relay:
            relay.communicate()
    except UserError as error:
        print(f"bert-jax {verb}: {error}", file=sys.stderr)
        watchdog.end_all(str(error), error.status)
    except KeyboardInterrupt as interrupt:
        status, message = interrupt_status_and_message(interrupt)
        print(f"bert-jax {verb}: {message}", file=sys.stderr)
        watchdog.end_all(message, status)
    except OSError as error:
        if not error.errno:
            watchdog.end_all_with_traceback(error)
        worded = file_error(error)
        print(f"bert-jax {verb}: {worded}", file=sys.stderr)
        watchdog.end_all(str(worded), worded.status)
    except Exception as error:  # every exception must also end the other processes
        if message := resource_error_message(error, memory_advice):
            print(f"bert-jax {verb}: {message}", file=sys.stderr)
            watchdog.end_all(message, 2)
        watchdog.end_all_with_traceback(error)
    watchdog.close()


def _start_jax(peers: Peers, limits: WatchdogConfig) -> Process | None:
    """Call `jax.distributed.initialize`, with such long time limits that the watchdog reports a lost process first.

    Return the relay of JAX's connection to the coordinator (None in process 0); the relay must live as long as this
    process.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # other platforms ignore this option
    host, _, port = peers.coordinator.rpartition(":")
    loopback = listening_address(peers)
    loopback = f"[{loopback}]" if ":" in loopback else loopback
    address, relay = f"{loopback or '127.0.0.1'}:{port}", None
    stages = (limits.start_seconds, limits.compile_seconds, limits.step_seconds, limits.save_seconds)
    seconds = [FOREVER if limit is None else int(limit) for limit in stages]
    if peers.process_id > 0:
        address, relay = start_relay_process(host.strip("[]"), int(port), seconds[0])
    jax.distributed.initialize(
        address,
        peers.num_processes,
        peers.process_id,
        peers.local_device_ids,
        coordinator_bind_address=address if loopback else None,  # only processes of this machine can connect
        cluster_detection_method="deactivate",
        initialization_timeout=seconds[0] + 60,
        heartbeat_timeout_seconds=max(seconds) + 100,
        shutdown_timeout_seconds=seconds[-1] + 100,
    )
    return relay
