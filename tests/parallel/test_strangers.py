"""Strangers at the port of a run: each costs one descriptor for some seconds, and the run starts all the same."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import pytest

from bert_jax.errors import UserError
from bert_jax.parallel import rendezvous as module
from bert_jax.parallel.joining import find_peers
from bert_jax.parallel.rendezvous import MAX_ARRIVALS, PeerMismatch, Peers, PeerTimeout, loopback_address, rendezvous
from tests.helpers.strangers import Strangers

TOKEN = "a secret of this run"


def shell(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout.strip()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.mark.parametrize("kind", Strangers.KINDS)
def test_a_run_starts_among_strangers(kind: str) -> None:
    coordinator = f"127.0.0.1:{free_port()}"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rendezvous, Peers(coordinator, 3, 0, token=TOKEN), 60)
        with Strangers(coordinator, kind, 3 * MAX_ARRIVALS):
            others = [pool.submit(rendezvous, Peers(coordinator, 3, number, token=TOKEN), 60) for number in (1, 2)]
            memberships = [each.result(60) for each in (first, *others)]
    assert {membership.hosts for membership in memberships} == {(socket.gethostname(),) * 3}
    for membership in memberships:
        for link in membership.links.values():
            link.socket.close()
    with socket.create_server(("127.0.0.1", int(coordinator.rpartition(":")[2]))):
        pass  # the port is free for JAX


def test_strangers_hold_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent connections beyond the limit take the place of older ones; a trickling one ends at its deadline."""
    monkeypatch.setattr(module, "HELLO_SECONDS", 0.5)
    port = free_port()
    stop = threading.Event()

    def trickle(sock: socket.socket) -> float:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while not stop.wait(0.02):
                sock.sendall(b"{")
        return time.monotonic() - began

    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rendezvous, Peers(f"127.0.0.1:{port}", 2, 0, token=TOKEN), 30)
        with Strangers(f"127.0.0.1:{port}", "silent", MAX_ARRIVALS) as silent:
            own = set(os.listdir("/proc/self/fd"))
            with Strangers(f"127.0.0.1:{port}", "silent", 2 * MAX_ARRIVALS) as more:
                time.sleep(0.2)
                accepted = len(os.listdir("/proc/self/fd")) - len(own) - more.count
                assert accepted <= MAX_ARRIVALS
            del silent
        sock = socket.create_connection(("127.0.0.1", port))
        assert pool.submit(trickle, sock).result(20) < 20  # the server closes it
        stop.set()
        second = rendezvous(Peers(f"127.0.0.1:{port}", 2, 1, token=TOKEN), 30)
        for membership in (first.result(), second):
            for link in membership.links.values():
                link.socket.close()
        sock.close()


ANSWERS = (
    b"[]\n", b"{}\n", b"7\n", b"null\n", b'{"hosts": 3}\n', b'{"hosts": ["a"]}\n', b'{"hosts": ["a", 1]}\n',
    b'{"hosts": "ab"}\n', b'{"timeout": 3}\n', b'{"mismatch": []}\n', b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff\n",
    b'{"hosts": ["a", "a", "a"]}\n',
)  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_of_another_program_are_one_line(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, concurrent.futures.ThreadPoolExecutor() as pool:

        def serve() -> None:
            sock, _ = server.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(answer)

        served = pool.submit(serve)
        with pytest.raises(PeerTimeout, match="does not answer as process 0 of a run; check the address") as error:
            rendezvous(Peers(f"127.0.0.1:{server.getsockname()[1]}", 2, 1, token=TOKEN), 30)
        assert "\n" not in str(error.value)
        served.result()


def test_an_answer_without_an_end_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        stop = threading.Event()

        def serve() -> None:
            sock, _ = server.accept()
            with sock, contextlib.suppress(OSError):
                while not stop.wait(0.01):
                    sock.sendall(b"{")

        pool.submit(serve)
        with pytest.raises(PeerTimeout, match="closed the connection"):
            rendezvous(Peers(f"127.0.0.1:{server.getsockname()[1]}", 2, 1, token=TOKEN), 0.5)
        stop.set()


def test_text_of_another_process_has_no_control_characters() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, concurrent.futures.ThreadPoolExecutor() as pool:

        def serve() -> None:
            with server.accept()[0] as sock:
                sock.recv(1000)
                sock.sendall(json.dumps({"mismatch": "\x1b]0;title\x07"}).encode() + b"\n")

        pool.submit(serve)
        with pytest.raises(PeerMismatch) as error:
            rendezvous(Peers(f"127.0.0.1:{server.getsockname()[1]}", 2, 1, token=TOKEN), 30)
    assert str(UserError(str(error.value))) == "\\x1b]0;title\\x07"


def test_a_run_of_several_hosts_needs_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.delenv("BERT_JAX_TOKEN", raising=False)
    with pytest.raises(UserError, match="BERT_JAX_TOKEN is not set") as error:
        find_peers("192.0.2.7:1234", 2, 0)
    # The remedy works word for word.
    command, _, line = (
        str(error.value).split("\n")[1].removeprefix("print a secret: ").partition("; then in each process: ")
    )
    secret = shell(command)
    assert len(secret) == 64
    shown = shell(f"{line.replace('SECRET', secret)}; printenv BERT_JAX_TOKEN")
    monkeypatch.setenv("BERT_JAX_TOKEN", shown)
    peers = find_peers("192.0.2.7:1234", 2, 0)
    assert peers is not None
    assert peers.token == secret


@pytest.mark.parametrize(
    ("coordinator", "token", "listens_on"),
    [
        ("127.0.0.1", "", {"0100007F"}),
        ("127.0.0.1", TOKEN, {"0100007F"}),
        ("localhost", TOKEN, {"0100007F"}),
        ("LOCALHOST", TOKEN, {"0100007F"}),
        ("127.1", TOKEN, {"0100007F"}),
        ("[0:0:0:0:0:0:0:1]", TOKEN, {"0" * 24 + "01000000"}),
        # /etc/hosts of Debian maps the name of a machine to 127.0.1.1; other machines know its address.
        ("gpu1", "", {"0101007F"}),
        ("gpu1", TOKEN, {"0" * 32, "0" * 8}),
    ],
)
def test_only_a_run_of_this_machine_listens_on_the_loopback_address(
    coordinator: str, token: str, listens_on: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *more, **named: resolve({"gpu1": "127.0.1.1"}.get(host, host), *more, **named),
    )
    monkeypatch.setenv("BERT_JAX_TOKEN", token)
    address = f"{coordinator}:{free_port()}"
    assert find_peers(address, 2, 1) == Peers(address, 2, 1, token=token)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(rendezvous, Peers(address, 2, 0, token=token), 30)
        port, addresses = int(address.rpartition(":")[2]), set[str]()
        while not addresses:
            lines = pathlib.Path("/proc/self/net/tcp").read_text() + pathlib.Path("/proc/self/net/tcp6").read_text()
            addresses = {
                line.split()[1].rpartition(":")[0]
                for line in lines.split("\n")
                if f":{port:04X} " in line and " 0A " in line
            }
        assert addresses <= listens_on
        second = rendezvous(Peers(address, 2, 1, token=token), 30)
        for membership in (first.result(), second):
            for link in membership.links.values():
                link.socket.close()


def test_addresses_of_this_machine() -> None:
    assert [loopback_address(host) for host in ("127.0.0.1", "[::1]", "192.0.2.7", "no.such.host.invalid")] == [
        "127.0.0.1", "::1", "", "",
    ]  # fmt: skip
