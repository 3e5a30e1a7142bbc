"""A connection that outlives its other end.

JAX's client ends its process by SIGABRT at the instant at which the connection to the coordinator closes, before
anyone can say which process was lost. So it talks through this relay, which keeps its side open.
"""

import socket
import threading
import time


def relay(host: str, port: int, seconds: float) -> str:
    """Start to relay to `host:port`, in daemon threads; returns the local address to connect to.

    What connects before the other end listens waits for it, `seconds` at most.
    """
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            near, _ = server.accept()
            threading.Thread(target=join, args=(near,), daemon=True).start()

    def join(near: socket.socket) -> None:
        far = connect(host, port, seconds)
        for sock in (near, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_copy, args=(near, far), daemon=True).start()
        _copy(far, near)
        threading.Event().wait()  # the far end is gone: hold the near one

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"


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
