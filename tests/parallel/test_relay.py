"""The relay between JAX and its coordinator: the bytes that pass, open connections, and the end."""

import signal
import socket

from bert_jax.parallel.relay import start_relay_process


def test_it_passes_bytes_keeps_its_side_open_and_ends_with_its_starter() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, process = start_relay_process("127.0.0.1", server.getsockname()[1], 5.0)
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as local:
            remote, _ = server.accept()
            local.sendall(b"ask")
            assert remote.recv(8) == b"ask"
            remote.sendall(b"answer")
            assert local.recv(8) == b"answer"
            remote.close()
            process.send_signal(signal.SIGTERM)  # as a scheduler sends it to all
            local.settimeout(0.5)
            try:
                closed = local.recv(8) == b""
            except TimeoutError:
                closed = False
            assert not closed, "JAX would end its process here"
            assert process.poll() is None
        process.communicate(timeout=10)  # closes its input, as the end of this process would
        assert process.returncode == 0
