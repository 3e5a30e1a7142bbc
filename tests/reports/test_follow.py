"""`report --follow`: the page of a run as it grows, for this machine alone."""

import contextlib
import http.client
import http.server
import json
import pathlib
import re
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.reports.run import follow
from bert_jax.reports.run.cost import AssumedPower
from bert_jax.reports.run.follow import request_handler_class, serve_live_page
from tests.helpers.commands import command
from tests.helpers.written_pages import Page, curve, write_run


def get(port: int, path: str = "/", host: str | None = None) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


@pytest.mark.slow
def test_the_page_grows_with_its_run_until_ctrl_c(tmp_path: pathlib.Path) -> None:
    lines = curve(1000, 10)
    write_run(tmp_path / "run", [], train={"steps": 1000})
    process = command("report", tmp_path / "run", "--follow", "--port", 0)
    try:
        address = re.match(r"http://127\.0\.0\.1:(\d+)(/\?token=\S{43}) shows ", process.stderr.readline())
        port, path = int(address[1]), address[2]
        status, text, headers = get(port, path)
        assert (status, headers["Refresh"]) == (200, "10")
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "no metrics yet" in Page(text).text
        for count in (50, 100):
            (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines[:count]))
            done = max(line["step"] for line in lines[:count]) / 1000
            assert f"It has done {done:.0%} of its 1,000 steps" in Page(get(port, path)[1]).text
        assert get(port)[0] == get(port, path[:-1])[0] == 404
        assert get(port, "/run.json")[0] == 404
        assert get(port, "/../run.json")[0] == 404
        assert get(port, path, host="example.org")[0] == 403
        assert get(port, path, host="127.0.0.1.example.org:80")[0] == 403
        listening = f" 0100007F:{port:04X} 00000000:0000 0A "  # 127.0.0.1, little-endian
        assert listening in pathlib.Path("/proc/net/tcp").read_text()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (130, "bert-jax report: interrupted\n")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(name="server")
def _server() -> Iterator[http.server.HTTPServer]:
    """Answer one request at a time with a page that no buffer holds, so that a browser can leave before its end."""
    with http.server.HTTPServer(("127.0.0.1", 0), request_handler_class(lambda: b"x" * (64 << 20), "s")) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_a_browser_that_leaves_is_no_error(server: http.server.HTTPServer, capfd: pytest.CaptureFixture[str]) -> None:
    for received in (0, 1000):
        with socket.create_connection(server.server_address) as browser:
            browser.sendall(b"GET /?token=s HTTP/1.0\r\nHost: 127.0.0.1:80\r\n\r\n")
            browser.recv(received)
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, do not close
    assert get(server.server_port, "/else")[0] == 404  # which comes after them
    assert capfd.readouterr() == ("", "")


def test_a_host_is_this_machine_with_or_without_a_port(server: http.server.HTTPServer) -> None:
    hosts = "127.0.0.1", "localhost", "localhost:80", "127.0.0.1.example.org", "example.org", "example.org:80"
    found = [get(server.server_port, "/else", host)[0] for host in hosts]
    assert found == [404, 404, 404, 403, 403, 403]


@pytest.fixture(name="crowded")
def _crowded(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    """The server of `report --follow`, with 2 connections at a time and a deadline of a second."""
    monkeypatch.setattr(follow, "IDLE_SECONDS", 1.0)
    monkeypatch.setattr(follow, "MAX_CONNECTIONS", 2)
    with follow._Server(("127.0.0.1", 0), request_handler_class(lambda: b"page", "s")) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_the_page_needs_the_secret(crowded: http.server.HTTPServer) -> None:
    assert get(crowded.server_port, "/?token=s")[:2] == (200, "page")
    for path in ("/", "/?token=", "/?token=t", "/?token=s&token=s", "/%3Ftoken=s", "/?token=%E9"):
        assert get(crowded.server_port, path)[0] == 404


def test_further_and_trickling_connections_end(crowded: http.server.HTTPServer) -> None:
    first = [socket.create_connection(crowded.server_address) for _ in range(2)]
    for sock in first:
        sock.sendall(b"GET")
    with socket.create_connection(crowded.server_address, timeout=20) as third:
        assert third.recv(1) == b""  # closed at once
    trickled = 0
    with contextlib.suppress(OSError):
        while trickled < 1000:
            first[0].sendall(b"x")
            trickled += 1
            time.sleep(0.02)
    assert trickled < 1000
    for sock in first:
        sock.close()
    for _ in range(100):  # the places are free again
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert get(crowded.server_port, "/?token=s")[0] == 200
            return
        time.sleep(0.05)
    raise AssertionError


def test_a_missing_run_or_a_bad_port_is_refused(tmp_path: pathlib.Path) -> None:
    write_run(tmp_path / "run", curve(100, 10), train={"steps": 100})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for place, number, says in (
            ("run", port, rf"--port {port}: cannot be served on \(Address already in use\); choose another"),
            ("run", 70_000, "--port 70000: give a number from 0 to 65535"),
            ("absent", 0, "no run here"),
        ):
            with pytest.raises(UserError, match=says):
                serve_live_page([str(tmp_path / place)], number, AssumedPower(), Console(silent=True))
    with pytest.raises(UserError, match="--watts -5: give a number above 0"):
        serve_live_page([str(tmp_path / "run")], 0, AssumedPower(watts=-5.0), Console(silent=True))
