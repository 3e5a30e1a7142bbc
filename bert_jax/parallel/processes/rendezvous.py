"""Rendezvous: before JAX starts, every process connects to process 0, which reports the processes that are missing.

Process 0 listens on the port that JAX's coordinator takes over later. The connections stay open for the watchdog.
A message is one line of JSON.
"""

import contextlib
import json
import socket
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from bert_jax.parallel.processes.relay import connect

Message = dict[str, Any]
MAX_MESSAGE_BYTES = 1 << 20
HELLO_SECONDS = 5.0  # limit for the first message of a connection
ANSWER_SECONDS = 10.0  # limit for the answer of process 0
FOREVER = 1e9  # seconds


class Peers(NamedTuple):
    """The processes of a run: where they meet, how many they are, and which of them this one is."""

    coordinator: str  # HOST:PORT of process 0
    num_processes: int
    process_id: int
    local_device_ids: list[int] | None = None  # None: all devices of this machine


class PeerTimeout(Exception):
    """A process did not answer in time."""


class PeerMismatch(Exception):
    """Two processes contradict each other."""


class Link:
    """A connection that carries messages to and from another process."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._received = b""

    def send(self, message: Message) -> None:
        """Send a message; raise OSError if the other process is gone, TimeoutError if it does not read."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, size: int = 1 << 16) -> list[Message]:
        """Return the messages in the next `size` bytes, after at least one byte; raise EOFError if the peer is gone."""
        try:
            data = self.socket.recv(size)
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError from error
        if not data or len(self._received) > MAX_MESSAGE_BYTES:
            raise EOFError
        *whole, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def receive_first(self, seconds: float) -> Message:
        """Return the first message and read nothing after it; raise TimeoutError after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            if messages := self.receive(1):
                return messages[0]


class Membership(NamedTuple):
    """The processes that answered."""

    hosts: tuple[str, ...]  # host name of each process
    links: dict[int, Link]  # in process 0: to every other process; in any other: to process 0


def rendezvous(peers: Peers, seconds: float | None) -> Membership:
    """Wait until every process is present; None waits forever.

    Raises:
        PeerTimeout: a process is missing after `seconds`.
        PeerMismatch: two processes disagree about the number of processes, or have the same number.
    """
    seconds = FOREVER if seconds is None else seconds
    return _listen(peers, seconds) if peers.process_id == 0 else _connect(peers, seconds)


def _listen(peers: Peers, seconds: float) -> Membership:
    count = peers.num_processes
    hosts, links = {0: socket.gethostname()}, dict[int, Link]()
    end = time.monotonic() + seconds
    port = int(peers.coordinator.rpartition(":")[2])
    try:
        with _server(port) as server:
            while len(hosts) < count:
                server.settimeout(max(0.01, end - time.monotonic()))
                sock, _ = server.accept()
                link = Link(sock)
                try:
                    hello = link.receive_first(HELLO_SECONDS)
                    number, host = int(hello["process_id"]), str(hello["host"])
                    num_processes = int(hello["num_processes"])
                except (TimeoutError, EOFError, ValueError, KeyError, TypeError):  # not a process of ours
                    sock.close()
                    continue
                if num_processes != count:
                    raise PeerMismatch(
                        f"process {number} ({host}) was started with --num_processes {num_processes}, process 0 "
                        f"({hosts[0]}) with {count}; pass the same number to all of them"
                    )
                if number in hosts or not 0 < number < count:
                    raise PeerMismatch(
                        f"two processes have --process_id {number}, on {host} and on {hosts.get(number)}; "
                        "pass a different one to each"
                    )
                hosts[number], links[number] = host, link
    except TimeoutError as error:
        absent = [str(number) for number in range(count) if number not in hosts]
        which = f"process {absent[0]}" if len(absent) == 1 else f"processes {', '.join(absent)}"
        timeout = PeerTimeout(
            f"{which} of {count} never started, within {seconds:g} s of process 0 (config.watchdog.start_seconds)"
        )
        _report(links.values(), timeout)
        raise timeout from error
    except PeerMismatch as error:
        _report([*links.values(), link], error)
        raise
    names = tuple(hosts[number] for number in range(count))
    for link in links.values():
        link.send({"hosts": names})
    return Membership(names, links)


def _report(links: Iterable[Link], error: PeerTimeout | PeerMismatch) -> None:
    """Send the error to the processes that did answer, and close their connections."""
    for link in links:
        with contextlib.suppress(OSError), link.socket:
            link.send({"timeout" if isinstance(error, PeerTimeout) else "mismatch": str(error)})


def _connect(peers: Peers, seconds: float) -> Membership:
    host, _, port = peers.coordinator.rpartition(":")
    coordinator = f"process 0 (the coordinator, {peers.coordinator})"
    try:
        link = Link(connect(host.strip("[]"), int(port), seconds))
    except TimeoutError as error:
        raise PeerTimeout(
            f"{coordinator} never started, within {seconds:g} s (config.watchdog.start_seconds)"
        ) from error
    link.send({"process_id": peers.process_id, "num_processes": peers.num_processes, "host": socket.gethostname()})
    try:
        answer = link.receive_first(seconds + ANSWER_SECONDS)  # process 0 may have started later than this one
    except (TimeoutError, EOFError) as error:
        raise PeerTimeout(f"{coordinator} stopped before all processes were present") from error
    if "hosts" not in answer:
        link.socket.close()
        raise PeerTimeout(answer["timeout"]) if "timeout" in answer else PeerMismatch(answer["mismatch"])
    return Membership(tuple(answer["hosts"]), {0: link})


def _server(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)
