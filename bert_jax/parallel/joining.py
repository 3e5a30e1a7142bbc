"""Several processes as one run: they find each other, start JAX together and end together."""

import contextlib
import os
import sys
from collections.abc import Iterator

import jax
from jax.experimental import multihost_utils

from bert_jax.config import WatchdogConfig
from bert_jax.errors import UserError, lack_of
from bert_jax.parallel import clusters
from bert_jax.parallel.platform import check_platform
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.relay import Process, relay
from bert_jax.parallel.rendezvous import PeerMismatch, Peers, PeerTimeout, rendezvous
from bert_jax.parallel.watchdog import LOST, Watchdog


def find_peers(coordinator: str | None, num_processes: int | None, process_id: int | None) -> Peers | None:
    """Return the peers that the command line names, or that a cluster's environment describes; None for one process.

    BERT_JAX_TOKEN in the environment is their token.

    Raises:
        UserError: some of the options are missing, contradict each other, or the environment is malformed.
    """
    given = {"--coordinator": coordinator, "--num_processes": num_processes, "--process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        try:
            found = clusters.detect()
            return found._replace(token=_token()) if found else None
        except (KeyError, ValueError) as error:
            raise UserError(
                f"the environment of the cluster is malformed ({type(error).__name__}: {error}); "
                f"pass {', '.join(given)} instead"
            ) from error
    if missing or coordinator is None or num_processes is None or process_id is None:
        raise UserError(f"{' and '.join(missing)} missing: pass all of {', '.join(given)}, or none of them")
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"--coordinator {coordinator}: expected HOST:PORT, the address of process 0")
    if num_processes < 1:
        raise UserError(f"--num_processes {num_processes}: must be at least 1")
    if not 0 <= process_id < num_processes:
        raise UserError(
            f"--process_id {process_id} with --num_processes {num_processes}: must be from 0 to {num_processes - 1}"
        )
    return Peers(coordinator, num_processes, process_id, token=_token()) if num_processes > 1 else None


def _token() -> str:
    return os.environ.get("BERT_JAX_TOKEN", "")


FOREVER = 1 << 20  # seconds, 12 days: JAX takes no None


@contextlib.contextmanager
def joined(
    peers: Peers | None, config: WatchdogConfig, interrupt: Interrupt, verb: str, less: str = ""
) -> Iterator[Watchdog]:
    """Join this process with its peers and watch over all of them. Enter it before anything uses a device.

    An exception in one process ends all of them: with status 2 for a UserError and for a lack of memory (`less` is
    advice), 130 for Ctrl-C, 124 for a lost process, 1 for a bug.
    """
    if peers is None:
        check_platform()
        watchdog = Watchdog(config)
        try:
            yield watchdog
        finally:
            watchdog.close()
        return
    try:
        membership = rendezvous(peers, config.start_seconds)
    except PeerMismatch as error:
        raise UserError(str(error)) from error
    except PeerTimeout as error:
        print(f"bert-jax {verb}: {error}", file=sys.stderr)
        sys.exit(LOST)
    watchdog = Watchdog(config, peers.process_id, membership)
    try:
        relaying = _start_jax(peers, config)
        interrupt.use_preemption_service()
        check_platform()
        watchdog.meet()
        multihost_utils.sync_global_devices("start")  # `sharding.connect` says why
        yield watchdog
        watchdog.stage("save")  # the other processes may still be writing
        jax.distributed.shutdown()
        if relaying:
            relaying.communicate()
    except UserError as error:
        print(f"bert-jax {verb}: {error}", file=sys.stderr)
        watchdog.fail(str(error), error.status)
    except KeyboardInterrupt:
        print(f"bert-jax {verb}: interrupted", file=sys.stderr)
        watchdog.fail("interrupted", 130)
    except Exception as error:
        if lack := lack_of(error, less):
            print(f"bert-jax {verb}: {lack}", file=sys.stderr)
            watchdog.fail(lack, 2)
        watchdog.fail_with_traceback(error)
    watchdog.close()


def _start_jax(peers: Peers, config: WatchdogConfig) -> Process | None:
    """Call `jax.distributed.initialize`, with limits so long that the watchdog reports a lost process first.

    Returns the relay of JAX's connection to the coordinator (None in process 0); it must live as long as this process.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # ignored on other platforms
    host, _, port = peers.coordinator.rpartition(":")
    address, relaying = f"127.0.0.1:{port}", None
    start, *others = (
        FOREVER if limit is None else int(limit)
        for limit in (config.start_seconds, config.compile_seconds, config.step_seconds, config.save_seconds)
    )
    if peers.process_id > 0:
        address, relaying = relay(host.strip("[]"), int(port), start)
    jax.distributed.initialize(
        address,
        peers.num_processes,
        peers.process_id,
        peers.local_device_ids,
        cluster_detection_method="deactivate",
        initialization_timeout=start + 60,
        heartbeat_timeout_seconds=max(start, *others) + 100,
        shutdown_timeout_seconds=others[-1] + 100,
    )
    return relaying
