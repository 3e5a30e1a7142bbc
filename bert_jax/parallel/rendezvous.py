"""Rendezvous: before JAX starts, all processes connect to process 0, which reports missing processes.

Process 0 listens on the port that JAX's coordinator uses later. The watchdog uses the connections afterwards. A message
is one line of JSON. If the first message of a connection lacks the run's token, process 0 closes and counts the
connection, and keeps waiting for the processes of the run.
"""

import contextlib
import hmac
import json
import queue
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.parallel.relay import connect_with_retries

Message = dict[str, Any]
MAX_MESSAGE_BYTES = 1 << 20
HELLO_SECONDS = 5.0  # limit for the first message of a connection
ANSWER_SECONDS = 10.0  # limit for the answer of process 0
FOREVER = 1e9  # seconds


class Peers(NamedTuple):
    """The processes of a run: their meeting address, their number, and the rank of this process."""

    coordinator: str  # HOST:PORT of process 0
    num_processes: int
    process_id: int
    local_device_ids: list[int] | None = None  # None: all devices of this machine
    token: str = ""  # a secret of the processes of this run


class PeerTimeout(Exception):
    """A process did not answer in time."""


class PeerMismatch(Exception):
    """Two processes have contradicting options."""


class Link:
    """A connection that carries messages to and from another process."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._received = b""

    def send(self, message: Message) -> None:
        """Send a message; raise OSError if the peer is gone, TimeoutError if the peer does not read."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, size: int = 1 << 16) -> list[Message]:
        """Wait for data, and return the messages in at most `size` bytes; raise EOFError if the peer is gone."""
        try:
            data = self.socket.recv(size)
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError from error
        if not data or len(self._received) > MAX_MESSAGE_BYTES:
            raise EOFError
        *lines, self._received = (self._received + data).split(b"\n")
        try:
            return [strict_json.parse(line.decode()) for line in lines]
        except ValueError as error:
            raise EOFError from error  # no process of this program sends such a line

    def receive_first(self, seconds: float) -> Message:
        """Return the first message and read nothing after it; raise TimeoutError after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            if messages := self.receive(1):
                return messages[0]


class Membership(NamedTuple):
    """The host names of all processes, and the open connections to them."""

    hosts: tuple[str, ...]  # host name of each process
    links: dict[int, Link]  # process -> connection: process 0 has all others, every other process has process 0


def rendezvous(peers: Peers, seconds: float | None) -> Membership:
    """Wait for all processes of a run, for `seconds` at most; None waits forever.

    Raises:
        PeerTimeout: a process is missing after `seconds`.
        PeerMismatch: two processes disagree about the number of processes, or have the same number.
    """
    seconds = FOREVER if seconds is None else seconds
    return _gather_hellos(peers, seconds) if peers.process_id == 0 else _join_process_0(peers, seconds)


def _gather_hellos(peers: Peers, seconds: float) -> Membership:
    """Return the membership in process 0, which waits for a connection from every other process."""
    count = peers.num_processes
    hosts, links, strangers = {0: socket.gethostname()}, dict[int, Link](), 0
    end = time.monotonic() + seconds
    with _incoming_hellos(int(peers.coordinator.rpartition(":")[2])) as arrivals:
        while len(hosts) < count:
            try:
                link, hello = arrivals.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty as error:
                timeout = PeerTimeout(_missing_message(hosts, count, seconds, strangers))
                _send_error_and_close(links.values(), timeout)
                raise timeout from error
            if hello is None or not hmac.compare_digest(_token_bytes(hello.token), _token_bytes(peers.token)):
                link.socket.close()
                strangers += 1
            elif wrong := _contradiction_message(hello, hosts, count):
                mismatch = PeerMismatch(wrong)
                _send_error_and_close([*links.values(), link], mismatch)
                raise mismatch
            else:
                hosts[hello.process_id], links[hello.process_id] = hello.host, link
    host_names = tuple(hosts[process_id] for process_id in range(count))
    for link in links.values():
        link.send({"hosts": host_names})
    return Membership(host_names, links)


class Hello(NamedTuple):
    """The first message that a process sends to process 0."""

    process_id: int
    num_processes: int
    host: str
    token: str


@contextlib.contextmanager
def _incoming_hellos(port: int) -> Iterator[queue.SimpleQueue[tuple[Link, Hello | None]]]:
    """Yield a queue of the connections to a port, each with its `Hello`, or None for any other first message."""
    arrivals, ended = queue.SimpleQueue[tuple[Link, Hello | None]](), threading.Event()

    def greet(link: Link) -> None:
        try:
            message = link.receive_first(HELLO_SECONDS)
        except (TimeoutError, EOFError):
            message = {}
        if ended.is_set():
            return link.socket.close()
        types = [type(message.get(name)) for name in Hello._fields] if isinstance(message, dict) else []
        arrivals.put((link, Hello(**message) if types == [int, int, str, str] and len(message) == 4 else None))

    def accept() -> None:
        with contextlib.suppress(OSError):  # at the end
            while True:
                threading.Thread(target=greet, args=(Link(server.accept()[0]),), daemon=True).start()

    with _listening_socket(port) as server:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield arrivals
        finally:
            server.shutdown(socket.SHUT_RDWR)  # wakes `accept`: the port must be free for JAX
            thread.join()
            ended.set()
            while not arrivals.empty():
                arrivals.get()[0].socket.close()


def _contradiction_message(hello: Hello, hosts: dict[int, str], count: int) -> str:
    """Return a message if a process contradicts the options of the other processes, otherwise ''."""
    process_id = hello.process_id
    if hello.num_processes != count:
        return (
            f"process {process_id} ({hello.host}) was started with --num_processes {hello.num_processes}, process 0 "
            f"({hosts[0]}) with {count}; pass the same number to all of them"
        )
    if process_id in hosts or not 0 < process_id < count:
        return (
            f"two processes have --process_id {process_id}, on {hello.host} and on {hosts.get(process_id)}; "
            "pass a different number to each"
        )
    return ""


def _missing_message(hosts: dict[int, str], count: int, seconds: float, strangers: int) -> str:
    """Return the message about the processes that did not connect in time."""
    absent = [str(process_id) for process_id in range(count) if process_id not in hosts]
    which = f"process {absent[0]}" if len(absent) == 1 else f"processes {', '.join(absent)}"
    text = f"{which} of {count} never started, within {seconds:g} s of process 0 (config.watchdog.start_seconds)"
    return f"{text}; {strangers} other connections had not the run's BERT_JAX_TOKEN" if strangers else text


def _send_error_and_close(links: Iterable[Link], error: PeerTimeout | PeerMismatch) -> None:
    """Send the error to all connected processes, and close their connections."""
    for link in links:
        with contextlib.suppress(OSError), link.socket:
            link.send({"timeout" if isinstance(error, PeerTimeout) else "mismatch": str(error)})


def _token_bytes(token: str) -> bytes:
    """Return the bytes of a token; tokens from JSON or the environment may hold halves of surrogate pairs."""
    return token.encode(errors="surrogatepass")


def _join_process_0(peers: Peers, seconds: float) -> Membership:
    """Connect to process 0, and return the membership. Every process except process 0 calls this function."""
    host, _, port = peers.coordinator.rpartition(":")
    coordinator = f"process 0 (the coordinator, {peers.coordinator})"
    try:
        link = Link(connect_with_retries(host.strip("[]"), int(port), seconds))
    except TimeoutError as error:
        raise PeerTimeout(
            f"{coordinator} never started, within {seconds:g} s (config.watchdog.start_seconds)"
        ) from error
    hello = Hello(peers.process_id, peers.num_processes, socket.gethostname(), peers.token)
    link.send(hello._asdict())
    try:
        answer = link.receive_first(seconds + ANSWER_SECONDS)  # process 0 may have started later than this process
    except (TimeoutError, EOFError) as error:
        link.socket.close()
        raise PeerTimeout(
            f"{coordinator} closed the connection: it stopped before all processes were present, or its BERT_JAX_TOKEN "
            "is different"
        ) from error
    if "hosts" not in answer:
        link.socket.close()
        raise PeerTimeout(answer["timeout"]) if "timeout" in answer else PeerMismatch(answer["mismatch"])
    return Membership(tuple(answer["hosts"]), {0: link})


def _listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on a port, for IPv4 and, where the host has it, IPv6."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)
