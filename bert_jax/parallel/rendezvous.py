"""Who is there: before JAX starts, process 0 hears every other process once, and says who is missing.

It listens on the port that JAX's coordinator will take over. The connections stay: the watchdog speaks through them.
A message is one line of JSON.
"""

import json
import socket
import time
from typing import Any, NamedTuple

from bert_jax.parallel.relay import connect

Message = dict[str, Any]
LONGEST = 1 << 20  # bytes of a message
PATIENCE = 10.0  # seconds that process 0 has to answer what it heard


class Peers(NamedTuple):
    """One process among several, and where they meet."""

    coordinator: str  # HOST:PORT of process 0
    num_processes: int
    process_id: int
    local_device_ids: list[int] | None = None  # None: all of this machine's devices


class PeerTimeout(Exception):
    """A process that did not answer, in words."""


class PeerMismatch(Exception):
    """Processes that contradict each other, in words."""


class Link:
    """Messages to and from another process."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._received = b""

    def send(self, message: Message) -> None:
        """OSError where the other process is gone, TimeoutError where it does not take what it is sent."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, size: int = 1 << 16) -> list[Message]:
        """The messages in the next `size` bytes, waiting for one byte; EOFError where the other process is gone."""
        try:
            data = self.socket.recv(size)
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError from error
        if not data or len(self._received) > LONGEST:
            raise EOFError
        *whole, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in whole]

    def first(self, seconds: float) -> Message:
        """The first message and nothing behind it; TimeoutError after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            if messages := self.receive(1):
                return messages[0]


class Membership(NamedTuple):
    """Who answered."""

    hosts: tuple[str, ...]  # host name of each process
    links: dict[int, Link]  # of process 0: to every other; of any other: to process 0


def rendezvous(peers: Peers, seconds: float) -> Membership:
    """Wait until every process is there.

    Raises PeerTimeout where one is not after `seconds` (0: wait for ever), PeerMismatch where two contradict each other.
    """
    seconds = seconds or 1e9
    return _listen(peers, seconds) if peers.process_id == 0 else _answer(peers, seconds)


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
                    hello = link.first(5.0)
                    number, host = int(hello["process_id"]), str(hello["host"])
                    wanted = int(hello["num_processes"])
                except (TimeoutError, EOFError, ValueError, KeyError, TypeError):  # a stranger
                    sock.close()
                    continue
                if wanted != count:
                    raise PeerMismatch(
                        f"process {number} ({host}) was started with --num_processes {wanted}, process 0 "
                        f"({hosts[0]}) with {count}; give all of them the same"
                    )
                if number in hosts or not 0 < number < count:
                    raise PeerMismatch(
                        f"a second process {number} on {host}, beside the one on {hosts.get(number)}; "
                        "give each its own --process_id"
                    )
                hosts[number], links[number] = host, link
    except TimeoutError as error:
        absent = [str(number) for number in range(count) if number not in hosts]
        which = f"process {absent[0]}" if len(absent) == 1 else f"processes {', '.join(absent)}"
        raise _told(
            links,
            PeerTimeout(
                f"{which} of {count} never started, within {seconds:g} s of process 0 (config.watchdog.start_seconds)"
            ),
        ) from error
    except PeerMismatch as error:
        raise _told(links, error) from error
    roll = tuple(hosts[number] for number in range(count))
    for link in links.values():
        link.send({"hosts": roll})
    return Membership(roll, links)


def _told(links: dict[int, Link], error: PeerTimeout | PeerMismatch) -> PeerTimeout | PeerMismatch:
    """The error, once those who answered know of it."""
    for link in links.values():
        try:
            link.send({"absent" if isinstance(error, PeerTimeout) else "refused": str(error)})
        except OSError:
            continue
    return error


def _answer(peers: Peers, seconds: float) -> Membership:
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
        answer = link.first(seconds + PATIENCE)  # process 0 may have begun to wait later than this one
    except (TimeoutError, EOFError) as error:
        raise PeerTimeout(f"{coordinator} stopped before all processes were there") from error
    if "absent" in answer:
        raise PeerTimeout(answer["absent"])
    if "refused" in answer:
        raise PeerMismatch(answer["refused"])
    return Membership(tuple(answer["hosts"]), {0: link})


def _server(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)
