"""Rendezvous: before JAX starts, all processes connect to process 0, which reports missing processes.

Process 0 listens on the port that JAX's coordinator uses later. After the rendezvous, the watchdog uses the connections
of the rendezvous. A message is one line of JSON. If the first message of a connection lacks the run's token, process 0
closes and counts the connection, and keeps waiting for the processes of the run.
"""

import contextlib
import hmac
import ipaddress
import json
import re
import selectors
import socket
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from bert_jax import strict_json
from bert_jax.files import allow_open_files
from bert_jax.parallel.relay import connect_with_retries

Message = dict[str, Any]
CheckStop = Callable[[], None]  # function that raises PeerStopped if this process has received a signal
MAX_MESSAGE_BYTES = 1 << 20
MAX_HELLO_BYTES = 1 << 12  # maximum bytes of the first line of a connection
HELLO_SECONDS = 5.0  # limit for the first line of a connection
MAX_ARRIVALS = 64  # maximum number of connections that wait for their first line
MIN_ARRIVAL_SECONDS = 0.05  # minimum time of a connection before another connection takes its place
JOIN_TRIES = 8  # number of tries to connect to process 0, which may close a connection without reading from it
JOIN_PAUSE = 0.2  # seconds
ANSWER_SECONDS = 10.0  # limit for the answer of process 0
FOREVER = 1e9  # seconds
FILES_AT_START = 24  # files that a process holds open before its peers connect
# A host in the coordinator's address that may mean only this machine: an IP address, or localhost.
LOCAL_HOST = re.compile(r".*:.*|[\d.]+|(.+\.)?localhost(\.localdomain)?\.?", re.IGNORECASE)
MAX_NAMED = 8  # maximum number of processes that a message names
MAX_WAIT_SECONDS = 0.5  # maximum time of a call of the operating system, between two checks for a signal
CLOSED = "closed the connection: it stopped before all processes were present, or its BERT_JAX_TOKEN is different"


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


class PeerStopped(Exception):
    """A process received a signal before all processes were present."""


class Link:
    """A connection that carries messages to and from another process."""

    def __init__(self, sock: socket.socket, received: bytes = b"") -> None:
        self.socket = sock
        self._received = received  # bytes of a message that is not complete yet

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

    def receive_first(self, seconds: float, check_stop: CheckStop) -> Any:
        """Return the first message and read nothing after it; None for a line that is no JSON.

        Raises:
            TimeoutError: no line after `seconds`. EOFError, OSError: the peer is gone, or the line of the peer has no
                end. PeerStopped: raised by `check_stop`, which is called at least every `MAX_WAIT_SECONDS`.
        """
        end, line = time.monotonic() + seconds, bytearray()
        while not line.endswith(b"\n"):
            check_stop()
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError
            self.socket.settimeout(min(left, MAX_WAIT_SECONDS))
            with contextlib.suppress(TimeoutError):
                byte = self.socket.recv(1)
                if not byte or len(line) > MAX_MESSAGE_BYTES:
                    raise EOFError
                line += byte
        try:
            return strict_json.parse(line.decode())
        except ValueError:
            return None


class Membership(NamedTuple):
    """The host names of all processes, and the open connections to them."""

    hosts: tuple[str, ...]  # host name of each process
    links: dict[int, Link]  # process -> connection; in process 0 to all other processes, elsewhere to process 0


def rendezvous(peers: Peers, seconds: float | None, check_stop: CheckStop = lambda: None) -> Membership:
    """Wait for all processes of a run, for `seconds` at most; None waits forever.

    Raises:
        PeerTimeout: a process is missing after `seconds`, or died while other processes waited.
        PeerMismatch: two processes disagree about the number of processes, or have the same number.
        PeerStopped: `check_stop` raised this error in this process, or in another process that had joined.
        UserError: the system of process 0 allows fewer open files than there are processes.
    """
    seconds = FOREVER if seconds is None else seconds
    return (_gather_processes if peers.process_id == 0 else _join_process_0)(peers, seconds, check_stop)


def _gather_processes(peers: Peers, seconds: float, check_stop: CheckStop) -> Membership:
    """Return the membership in process 0, which waits for a connection from every other process."""
    count = peers.num_processes
    allow_open_files(count, FILES_AT_START)  # the usual limit of 1,024 is too low for 1,024 connections
    hosts, links, num_strangers = {0: socket.gethostname()}, dict[int, Link](), 0
    port = int(peers.coordinator.rpartition(":")[2])
    try:
        with (
            _listening_socket(port, listening_address(peers)) as server,
            contextlib.closing(_accept_hellos(server, time.monotonic() + seconds, check_stop)) as hellos,
        ):
            for link, hello in hellos:
                if link is None or hello is None:
                    num_strangers += 1
                elif not hmac.compare_digest(_token_bytes(hello.token), _token_bytes(peers.token)):
                    num_strangers += 1
                    _send_error_and_close([link], PeerTimeout(f"process 0 ({hosts[0]}) {CLOSED}"))
                elif wrong := _contradiction_message(hello, hosts, count):
                    mismatch = PeerMismatch(wrong)
                    _send_error_and_close([link], mismatch)
                    raise mismatch
                else:
                    hosts[hello.process_id], links[hello.process_id] = hello.host, link
                if len(hosts) == count:
                    break
            else:
                raise PeerTimeout(_missing_processes_message(hosts, count, seconds, num_strangers))
    except (PeerTimeout, PeerMismatch, PeerStopped) as error:
        _send_error_and_close(links.values(), error)
        raise
    host_names = tuple(hosts[process_id] for process_id in range(count))
    for link in links.values():
        with contextlib.suppress(OSError):  # the watchdog notices a process that is gone
            link.send({"hosts": host_names})
    return Membership(host_names, links)


class Hello(NamedTuple):
    """The first message that a process sends to process 0."""

    process_id: int
    num_processes: int
    host: str
    token: str


class _Arrival(NamedTuple):
    """A connection without a complete first line: the time of its arrival, and the bytes so far."""

    time: float
    received: bytearray


def _accept_hellos(
    server: socket.socket, end: float, check_stop: CheckStop
) -> Generator[tuple[Link | None, Hello | None]]:
    """Yield each process that connects, with its `Hello`, and (None, None) for each stranger, until the time `end`.

    A connection has `HELLO_SECONDS` to send a line of at most `MAX_HELLO_BYTES`. At most `MAX_ARRIVALS` connections
    wait for their line; a further connection takes the place of the oldest connection.

    Raises:
        PeerStopped, PeerTimeout: this process received a signal, or a yielded process received a signal or died.
    """
    server.setblocking(False)
    arrivals = dict[socket.socket, _Arrival]()  # the oldest first
    with selectors.DefaultSelector() as selector:

        def remove_arrival(sock: socket.socket) -> bytearray:
            selector.unregister(sock)
            return arrivals.pop(sock).received

        selector.register(server, selectors.EVENT_READ)
        try:
            while (now := time.monotonic()) < end:
                check_stop()
                first = min((arrival.time + HELLO_SECONDS for arrival in arrivals.values()), default=end)
                keys = [key for key, _ in selector.select(min(max(0.0, min(first, end) - now), MAX_WAIT_SECONDS))]
                for key in keys:
                    if key.data:
                        _raise_departure(*key.data)
                ready = [key.fileobj for key in keys]
                for sock in [sock for sock in arrivals if sock in ready]:
                    hello = _receive_hello(sock, arrivals[sock].received)
                    if hello is None:
                        continue  # the line is incomplete
                    link = Link(sock, bytes(remove_arrival(sock)))
                    if isinstance(hello, Hello):
                        sock.settimeout(None)
                        yield link, hello
                        if sock.fileno() >= 0:  # the process has joined
                            selector.register(sock, selectors.EVENT_READ, (link, hello))
                    else:
                        sock.close()
                        yield None, None
                now = time.monotonic()
                late = [sock for sock, arrival in arrivals.items() if now > arrival.time + HELLO_SECONDS]
                oldest = next(iter(arrivals), None)
                is_full = len(arrivals) == MAX_ARRIVALS
                if oldest and is_full and not late and now > arrivals[oldest].time + MIN_ARRIVAL_SECONDS:
                    late = [oldest]
                for sock in late:
                    remove_arrival(sock)
                    sock.close()
                    yield None, None
                if server in ready and len(arrivals) < MAX_ARRIVALS:
                    with contextlib.suppress(OSError):  # the stranger is gone, or there are too many open files
                        sock = server.accept()[0]
                        sock.setblocking(False)
                        arrivals[sock] = _Arrival(now, bytearray())
                        selector.register(sock, selectors.EVENT_READ)
                elif server in ready:
                    time.sleep(MIN_ARRIVAL_SECONDS / 10)
        finally:
            for sock in arrivals:
                sock.close()


def _raise_departure(link: Link, hello: Hello) -> None:
    """Raise PeerStopped or PeerTimeout for a process that has joined and does not wait any longer."""
    label = f"process {hello.process_id} ({hello.host})"
    try:
        messages = link.receive()
    except EOFError:
        raise PeerTimeout(f"{label} died; it was waiting for the other processes") from None
    for message in messages:
        match message:
            case {"stopped": str(text)}:
                raise PeerStopped(f"{label}: {text}")


def _receive_hello(sock: socket.socket, received: bytearray) -> Hello | Literal[False] | None:
    """Add the bytes that have arrived to `received`; return the `Hello` of a complete line, and remove the line.

    Return None while the line is incomplete, and False if no process of a run sends such bytes.
    """
    try:
        data = sock.recv(MAX_HELLO_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return False
    received += data
    line, line_end, rest = received.partition(b"\n")
    if not line_end:
        return None if data and len(received) <= MAX_HELLO_BYTES else False
    received[:] = rest
    try:
        message = strict_json.parse(line.decode())
    except ValueError:
        return False
    types = [type(message.get(name)) for name in Hello._fields] if isinstance(message, dict) else []
    return Hello(**message) if types == [int, int, str, str] and len(message) == 4 else False


def _contradiction_message(hello: Hello, joined_hosts: dict[int, str], count: int) -> str:
    """Return a message if a process contradicts the options of the other processes, otherwise ''."""
    process_id = hello.process_id
    if hello.num_processes != count:
        return (
            f"process {process_id} ({hello.host}) was started with --num_processes {hello.num_processes}, process 0 "
            f"({joined_hosts[0]}) with {count}; pass the same number to all of them"
        )
    if process_id in joined_hosts or not 0 < process_id < count:
        return (
            f"two processes have --process_id {process_id}, on {hello.host} and on {joined_hosts.get(process_id)}; "
            "pass a different number to each"
        )
    return ""


def _missing_processes_message(hosts: dict[int, str], count: int, seconds: float, strangers: int) -> str:
    """Return the message about the processes that did not connect in time."""
    absent = [str(process_id) for process_id in range(count) if process_id not in hosts]
    which = f"process {absent[0]}" if len(absent) == 1 else f"processes {short_list(absent)}"
    text = f"{which} of {count} never started, within {seconds:g} s of process 0 (config.watchdog.start_seconds)"
    return f"{text}; {strangers} other connections had not the run's BERT_JAX_TOKEN" if strangers else text


def short_list(texts: Sequence[str], separator: str = ", ") -> str:
    """Return the first texts about processes, joined for a message, and the number of further texts."""
    rest = [f"and {len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else []
    return separator.join([*texts[:MAX_NAMED], *rest])


def _send_error_and_close(links: Iterable[Link], error: PeerTimeout | PeerMismatch | PeerStopped) -> None:
    """Send the error to all connected processes, and close their connections."""
    name = {PeerTimeout: "timeout", PeerMismatch: "mismatch", PeerStopped: "stopped"}[type(error)]
    for link in links:
        with contextlib.suppress(OSError), link.socket:
            link.send({name: str(error)})


def _token_bytes(token: str) -> bytes:
    """Return the bytes of a token; tokens from JSON or the environment may hold halves of surrogate pairs."""
    return token.encode(errors="surrogatepass")


def _join_process_0(peers: Peers, seconds: float, check_stop: CheckStop) -> Membership:
    """Connect to process 0, and return the membership. Every process except process 0 calls this function."""
    host, _, port = peers.coordinator.rpartition(":")
    coordinator = f"process 0 (the coordinator, {peers.coordinator})"
    hello = Hello(peers.process_id, peers.num_processes, socket.gethostname(), peers.token)
    answer: Any = None
    end = time.monotonic() + seconds
    for _ in range(JOIN_TRIES):
        try:
            link = Link(connect_with_retries(host.strip("[]"), int(port), end - time.monotonic(), check_stop))
        except TimeoutError as error:
            raise PeerTimeout(
                f"{coordinator} never started, within {seconds:g} s (config.watchdog.start_seconds)"
            ) from error
        try:
            link.send(hello._asdict())
            # Process 0 may have started later than this process.
            answer = link.receive_first(end - time.monotonic() + ANSWER_SECONDS, check_stop)
            break
        except PeerStopped as error:
            _send_error_and_close([link], error)
            raise
        except TimeoutError as error:
            link.socket.close()
            raise PeerTimeout(f"{coordinator} {CLOSED}") from error
        except (EOFError, OSError):
            link.socket.close()
            time.sleep(JOIN_PAUSE)
    else:
        raise PeerTimeout(f"{coordinator} {CLOSED}")
    match answer:
        case {"hosts": [*hosts]} if len(hosts) == peers.num_processes and all(isinstance(x, str) for x in hosts):
            link.socket.settimeout(None)
            return Membership(tuple(hosts), {0: link})
        case {"timeout": str(text)}:
            refusal: Exception = PeerTimeout(text)
        case {"mismatch": str(text)}:
            refusal = PeerMismatch(text)
        case {"stopped": str(text)}:
            refusal = PeerStopped(text)
        case _:
            refusal = PeerTimeout(
                f"{coordinator} does not answer as process 0 of a run; check the address and the port"
            )
    link.socket.close()
    raise refusal


def loopback_address(host: str) -> str:
    """Return the address of a host that has only loopback addresses, such as 127.0.0.1; "" for other hosts."""
    try:
        entries = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    addresses = sorted({str(address[0]) for *_, address in entries}, key=lambda address: ":" in address)
    return addresses[0] if all(ipaddress.ip_address(address).is_loopback for address in addresses) else ""


def listening_address(peers: Peers) -> str:
    """Return the loopback address on which process 0 listens; "" for all addresses of the machine.

    A host may know its own name only as a loopback address (127.0.1.1 in /etc/hosts of Debian), although other hosts
    reach the host by this name. If the run has a token, such a host listens on all addresses.
    """
    host = peers.coordinator.rpartition(":")[0]
    return "" if peers.token and not LOCAL_HOST.fullmatch(host) else loopback_address(host)


def _listening_socket(port: int, address: str) -> socket.socket:
    """Return a socket that listens on a port of `address`; "": on all addresses, IPv4 and, where present, IPv6."""
    if address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=1024)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", port), backlog=1024)
