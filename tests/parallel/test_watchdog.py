"""The watchdog of a single process, and the rendezvous of two, without JAX."""

import concurrent.futures
import pathlib
import socket
import subprocess
import sys

import pytest

from bert_jax.parallel.processes.rendezvous import PeerMismatch, Peers, PeerTimeout, rendezvous

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = """
import time
from bert_jax.config import WatchdogConfig
from bert_jax.parallel.watchdog import Watchdog

watchdog = Watchdog(WatchdogConfig(None, None, {limit}, None))
watchdog.stage("step", 1)
time.sleep(3)
watchdog.close()
print("finished")
"""


def run(limit: float | None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN.format(limit=limit)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_stage_beyond_its_limit_ends_the_run() -> None:
    done = run(0.2)
    assert (done.returncode, done.stdout) == (124, "")
    assert done.stderr == "bert-jax: step 1 took longer than config.watchdog.step_seconds=0.2\n"


def test_without_limits_it_waits() -> None:
    done = run(None)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")


def address() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{sock.getsockname()[1]}"


def test_processes_find_each_other_without_a_limit() -> None:
    coordinator = address()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda number: rendezvous(Peers(coordinator, 3, number), None), range(3)))
    assert [sorted(membership.links) for membership in found] == [[1, 2], [0], [0]]
    assert {membership.hosts for membership in found} == {(socket.gethostname(),) * 3}
    found[0].links[2].send({"step": 7})
    assert found[2].links[0].receive() == [{"step": 7}]
    for membership in found:
        for link in membership.links.values():
            link.socket.close()


def test_processes_that_disagree_about_their_number_are_refused() -> None:
    coordinator = address()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        started = [pool.submit(rendezvous, Peers(coordinator, count, number), 60) for number, count in ((0, 2), (1, 3))]
        for one in started:
            with pytest.raises(PeerMismatch, match=r"process 1 \(.+\) was started with --num_processes 3, process 0 "):
                one.result()


def test_a_missing_process_is_named() -> None:
    with pytest.raises(PeerTimeout, match=r"process 1 of 2 never started, within 0.2 s of process 0"):
        rendezvous(Peers(address(), 2, 0), 0.2)
