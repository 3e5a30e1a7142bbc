"""A connection that outlives its other end.

JAX's client ends its process by SIGABRT at the instant at which the connection to the coordinator closes, before
anyone can say which process was lost. So it talks through this relay, which keeps its side open. The relay is a process
of its own: some calls of JAX wait for the coordinator with Python's lock in their hands, and would stop a thread.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

Process = subprocess.Popen[bytes]


def relay(host: str, port: int, seconds: float) -> tuple[str, Process]:
    """Start to relay to `host:port`; the local address to connect to, and the process, which ends with this one.

    What connects before the other end listens waits for it, `seconds` at most.
    """
    command = [sys.executable, "-I", __file__, host, str(port), str(seconds)]
    # In a session of its own, so that a signal to the group does not reach it; it ends where its input does.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    return f"127.0.0.1:{int(process.stdout.readline())}", process


def main(host: str, port: int, seconds: float) -> None:
    """Relay every connection until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)

    def serve() -> None:
        while True:
            near, _ = server.accept()
            threading.Thread(target=join, args=(near,), daemon=True).start()

    def join(near: socket.socket) -> None:
        try:
            far = connect(host, port, seconds)
        except TimeoutError:
            return  # the watchdog says it
        for sock in (near, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_copy, args=(near, far), daemon=True).start()
        _copy(far, near)
        threading.Event().wait()  # the far end is gone: hold the near one

    threading.Thread(target=serve, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to what may not listen yet; TimeoutError after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=5)
        except OSError as error:
            if time.monotonic() > end:
                raise TimeoutError(f"{host}:{port} does not answer ({error})") from error
            time.sleep(0.2)
            continue
        sock.settimeout(None)
        return sock


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
