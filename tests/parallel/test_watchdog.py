"""The watchdog of a single process, and the rendezvous of two, without JAX."""

import concurrent.futures
import contextlib
import json
import pathlib
import queue
import re
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable

import pytest

from bert_jax.config import WatchdogConfig
from bert_jax.parallel import rendezvous as rendezvous_module
from bert_jax.parallel import watchdog as module
from bert_jax.parallel.rendezvous import Link, Membership, PeerMismatch, Peers, PeerStopped, PeerTimeout, rendezvous
from bert_jax.parallel.watchdog import Watchdog

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = """
import time
from bert_jax.config import WatchdogConfig
from bert_jax.parallel.watchdog import Watchdog

watchdog = Watchdog(WatchdogConfig(None, None, {limit}, None))
watchdog.enter_stage("step", 1)
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


def test_work_that_goes_on_restarts_the_clock_of_its_stage() -> None:
    code = RUN.format(limit=2.0).replace(
        "time.sleep(3)", "[(time.sleep(0.5), watchdog.restart_clock()) for _ in range(8)]"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
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


def stop_at(event: threading.Event) -> Callable[[], None]:
    """A check for a signal, which arrives at the event."""

    def check_stop() -> None:
        if event.is_set():
            raise PeerStopped("SIGTERM: stopped")

    return check_stop


@pytest.mark.parametrize(
    ("stopped", "message_of_the_others"), [(0, "^SIGTERM: stopped$"), (1, r"^process 1 \(.+\): SIGTERM: stopped$")]
)
def test_a_signal_to_a_waiting_process_stops_all_that_wait(
    stopped: int, message_of_the_others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, signals, joining = address(), [threading.Event() for _ in range(3)], threading.Semaphore(0)
    contradiction = rendezvous_module._contradiction_message
    monkeypatch.setattr(
        rendezvous_module, "_contradiction_message", lambda *args: joining.release() or contradiction(*args)
    )
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [
            pool.submit(rendezvous, Peers(coordinator, 4, number), 60, stop_at(signals[number])) for number in range(3)
        ]
        for _ in (1, 2):
            assert joining.acquire(timeout=60)
        signals[stopped].set()
        for number, process in enumerate(waiting):
            with pytest.raises(PeerStopped, match="stopped" if number == stopped else message_of_the_others):
                process.result()


def test_a_signal_stops_a_process_that_waits_for_process_0() -> None:
    signal = threading.Event()
    signal.set()
    with pytest.raises(PeerStopped):
        rendezvous(Peers(address(), 2, 1), 60, stop_at(signal))


def test_a_process_that_dies_while_it_waits_ends_the_wait_of_all() -> None:
    coordinator = address()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rendezvous, Peers(coordinator, 4, 0), 60)
        hello = {"num_processes": 4, "host": "x", "token": ""}
        waiting, dying = (
            stranger(coordinator, json.dumps(hello | {"process_id": number}).encode() + b"\n") for number in (1, 2)
        )
        dying.close()
        message = "process 2 (x) died; it was waiting for the other processes"
        with pytest.raises(PeerTimeout, match=re.escape(message)):
            first.result()
    with waiting:
        assert Link(waiting).receive() == [{"timeout": message}]


def test_a_missing_process_is_named() -> None:
    with pytest.raises(PeerTimeout, match=r"process 1 of 2 never started, within 0.2 s of process 0"):
        rendezvous(Peers(address(), 2, 0), 0.2)


def test_a_message_about_a_thousand_missing_processes_is_short() -> None:
    with pytest.raises(PeerTimeout, match=r"^processes 1, 2, 3, 4, 5, 6, 7, 8, and 1015 more of 1024 never started"):
        rendezvous(Peers(address(), 1024, 0), 0.2)


FEW_FILES = """
import resource, sys
from bert_jax.parallel.rendezvous import Peers, rendezvous

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 90))  # a low hard limit is enough for this run, too
print(len(rendezvous(Peers(sys.argv[1], 60, 0), 60).links))
"""


def test_more_processes_meet_than_files_may_be_open() -> None:
    """The usual limit of open files is 1,024, and a run may have 1,024 processes."""
    coordinator = address()
    command = [sys.executable, "-c", FEW_FILES, coordinator]
    with (
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as first,
        concurrent.futures.ThreadPoolExecutor(60) as pool,
    ):
        met = list(pool.map(lambda number: rendezvous(Peers(coordinator, 60, number), 60), range(1, 60)))
        for membership in met:
            membership.links[0].socket.close()
        assert first.communicate()[0] == "59\n"


def test_process_0_does_not_wait_for_each_unreachable_process(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0

    class UnreachableSocket:
        def settimeout(self, timeout: float) -> None:
            self.timeout = timeout

        def recv(self, size: int) -> bytes:
            nonlocal seconds
            seconds += self.timeout
            raise TimeoutError

    class Exited(Exception):
        pass

    def exit_(status: int) -> None:
        raise Exited(status)

    monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: seconds))
    monkeypatch.setattr(module, "_exit", exit_)
    links = {peer: Link(UnreachableSocket()) for peer in range(1, 512)}  # type: ignore[arg-type]
    process_0 = types.SimpleNamespace(process_id=0, links=links, _broadcast=lambda message: None, _own_error="")
    with pytest.raises(Exited, match=str(module.LOST)):
        Watchdog._end_run(process_0, "half of the hosts are unreachable")  # type: ignore[arg-type]
    assert seconds < module.ANSWER + 1


STRANGERS = (
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"[]\n",
    b"[" * 100_000 + b"\n",
    b'{"process_id": 1e999, "num_processes": 2, "host": "x"}\n',
    b'{"process_id": 1, "num_processes": 2, "host": "x"}\n',
    b'{"process_id": 1, "num_processes": 7, "host": "x", "token": "of another run"}\n',
    b'{"process_id": 1, "num_processes": 2, "host": "x", "token": "\\ud800"}\n',
    b'{"process_id": true, "num_processes": 2, "host": "x", "token": "ours"}\n',
)


def stranger(coordinator: str, message: bytes) -> socket.socket:
    """A connection that sends a message and stays open; process 0 may not listen yet."""
    host, _, port = coordinator.rpartition(":")
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            sock = socket.create_connection((host, int(port)))
            with contextlib.suppress(OSError):
                sock.sendall(message)
            return sock
        time.sleep(0.01)


def test_strangers_are_ignored_and_keep_nobody_waiting() -> None:
    coordinator = address()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rendezvous, Peers(coordinator, 2, 0, token="ours"), 60)
        open_ = [stranger(coordinator, message) for message in STRANGERS]
        second = rendezvous(Peers(coordinator, 2, 1, token="ours"), 60)
        assert first.result().hosts == second.hosts
        for sock in (*open_, first.result().links[1].socket, second.links[0].socket):
            sock.close()
    with socket.create_server(("127.0.0.1", int(coordinator.rpartition(":")[2]))):
        pass  # the port is free for JAX


def test_strangers_are_counted_where_a_process_is_missing() -> None:
    coordinator = address()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rendezvous, Peers(coordinator, 2, 0, token="ours"), 2)
        with pytest.raises(PeerTimeout, match=r"closed the connection: .* or its BERT_JAX_TOKEN is different"):
            rendezvous(Peers(coordinator, 2, 1, token="theirs"), 60)
        with pytest.raises(PeerTimeout, match=r"process 1 of 2 never started.*; 1 other connections had not the run"):
            first.result()


def test_processes_meet_when_the_last_is_there() -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    links = [[Link(sock) for sock in pair] for pair in pairs]
    hosts = ("a", "b", "c")
    first = Watchdog(WatchdogConfig(), 0, Membership(hosts, {1: links[0][0], 2: links[1][0]}))
    others = [Watchdog(WatchdogConfig(), number, Membership(hosts, {0: links[number - 1][1]})) for number in (1, 2)]
    met = queue.SimpleQueue[int]()

    def meet(number: int, watchdog: Watchdog) -> None:
        watchdog.wait_for_all()
        met.put(number)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in range(2):
            early = [pool.submit(meet, number, one) for number, one in enumerate((first, others[0]))]
            with pytest.raises(queue.Empty):
                met.get(timeout=0.7)
            meet(2, others[1])
            for one in early:
                one.result(10)
            assert sorted(met.get() for _ in range(3)) == [0, 1, 2]
        list(pool.map(Watchdog.close, (first, *others)))
    for sock in sum(pairs, ()):
        sock.close()
