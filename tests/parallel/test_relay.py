"""The relay between JAX and its coordinator: what passes, what stays open, when it ends."""

import signal
import socket

from bert_jax.parallel.relay import relay


def test_it_passes_bytes_keeps_its_side_open_and_ends_with_its_starter() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, process = relay("127.0.0.1", server.getsockname()[1], 5.0)
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as near:
            far, _ = server.accept()
            near.sendall(b"ask")
            assert far.recv(8) == b"ask"
            far.sendall(b"answer")
            assert near.recv(8) == b"answer"
            far.close()
            process.send_signal(signal.SIGTERM)  # as a scheduler sends it to all
            near.settimeout(0.5)
            try:
                closed = near.recv(8) == b""
            except TimeoutError:
                closed = False
            assert not closed, "JAX would end its process here"
            assert process.poll() is None
        process.communicate(timeout=10)  # closes its input, as the end of this process would
        assert process.returncode == 0
