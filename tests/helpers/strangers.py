"""Connections of strangers to a port: silent, trickling, wrong, or closed at once."""

import contextlib
import socket
import threading
import time
from typing import ClassVar


class Strangers:
    """`count` connections of one kind to HOST:PORT, which stay while the `with` block runs."""

    KINDS = ("silent", "trickling", "wrong", "closing", "endless", "of another run")
    _FIRST_BYTES: ClassVar = {
        "trickling": b"{",
        "wrong": b"GET / HTTP/1.1\r\n\r\n",
        "endless": b"[" * 5000,
        "of another run": b'{"process_id": 1, "num_processes": 3, "host": "x", "token": "theirs"}\n',
    }

    def __init__(self, address: str, kind: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        self.address, self.kind, self.count = (host, int(port)), kind, count
        self.sockets: list[socket.socket] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._trickle, daemon=True)

    def __enter__(self) -> "Strangers":
        while len(self.sockets) < self.count:
            try:
                sock = socket.create_connection(self.address, timeout=10)
            except ConnectionRefusedError:  # the port does not listen yet
                time.sleep(0.01)
                continue
            self.sockets.append(sock)
            with contextlib.suppress(OSError):
                sock.sendall(self._FIRST_BYTES.get(self.kind, b""))
            if self.kind == "closing":
                sock.close()
        if self.kind == "trickling":
            self._thread.start()
        return self

    def _trickle(self) -> None:
        while not self._ended.wait(0.05):
            for sock in self.sockets:
                with contextlib.suppress(OSError):
                    sock.sendall(b"{")

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        for sock in self.sockets:
            sock.close()
