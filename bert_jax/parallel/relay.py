"""A relay process that keeps JAX's connection open when the coordinator dies.

JAX's client aborts its process (SIGABRT) as soon as its connection to the coordinator closes, even with
`jax_enable_recoverability` (docs/decisions/0008-relay.md). Without a relay, no message could name the lost process. So
JAX's client connects through this relay, which keeps the client's connection open. The relay is a process and not a
thread, because some calls of JAX hold the GIL while waiting for the coordinator.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

Process = subprocess.Popen[bytes]
TRY_SECONDS = 2.0  # limit for a connection


class Relay(NamedTuple):
    """The local address of a relay, and its process."""

    address: str
    process: Process


def start_relay_process(host: str, port: int, seconds: float) -> Relay:
    """Start a relay to `host:port`.

    If the remote side does not listen yet, a connection waits for `seconds` at most.

    Returns:
        the local address for the client, and the relay's process, which ends when this process ends.
    """
    command = [sys.executable, "-I", __file__, host, str(port), str(seconds)]
    # In a separate session, the relay gets no signals to the process group. It ends when its input ends.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    return Relay(f"127.0.0.1:{int(process.stdout.readline())}", process)


def run_relay(host: str, port: int, seconds: float) -> None:
    """Relay every connection to `host:port` until stdin ends; print the local port."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)

    def accept_connections() -> None:
        while True:
            local, _ = server.accept()
            threading.Thread(target=relay_connection, args=(local,), daemon=True).start()

    def relay_connection(local: socket.socket) -> None:
        try:
            remote = connect_with_retries(host, port, seconds)
        except TimeoutError:
            return  # the watchdog reports the lost coordinator
        for sock in (local, remote):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_copy_bytes, args=(local, remote), daemon=True).start()
        _copy_bytes(remote, local)
        threading.Event().wait()  # the remote side is closed: keep the local one open

    threading.Thread(target=accept_connections, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def connect_with_retries(
    host: str, port: int, seconds: float, check_stop: Callable[[], None] = lambda: None
) -> socket.socket:
    """Return a connection to `host:port`, and try again until the port listens.

    Args:
        host, port: the address.
        seconds: time after which no further try is made.
        check_stop: function that is called before each try, at least every `TRY_SECONDS`; it may raise an exception.

    Raises:
        TimeoutError: the last try failed.
    """
    end = time.monotonic() + seconds
    while True:
        check_stop()
        try:
            sock = socket.create_connection((host, port), timeout=TRY_SECONDS)
        except OSError as error:
            if time.monotonic() > end:
                raise TimeoutError(f"{host}:{port} does not answer ({error})") from error
            time.sleep(0.2)
            continue
        sock.settimeout(None)
        return sock


def _copy_bytes(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes from one socket to another until either is closed."""
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass


if __name__ == "__main__":
    run_relay(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
