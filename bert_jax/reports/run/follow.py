"""A server that shows the page of runs that are still training, only to users of this machine."""

import contextlib
import hmac
import http
import http.server
import pathlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bert_jax.console import Console
from bert_jax.errors import UserError, check_positive
from bert_jax.reports.html.markup import POLICY, element, page
from bert_jax.reports.run.cost import AssumedPower
from bert_jax.reports.run.page import report_page
from bert_jax.training.remote_workdir import local_copy
from bert_jax.training.workdir import read_run

LOOPBACK = "127.0.0.1"
REFRESH_SECONDS = 10
IDLE_SECONDS = 30  # seconds after which a connection is closed
MAX_CONNECTIONS = 32  # open connections at a time
REFUSAL_SECONDS = 0.1  # pause before a connection is refused, so that refusals take little CPU time
# Files of each training; if they change, the page is made again.
WATCHED_FILES = ("run.json", "metrics.jsonl", "results.json", "checkpoints/*", "tensorboard/*")


def serve_live_page(workdirs: Sequence[str], port: int, assumed: AssumedPower, console: Console) -> None:
    """Serve the result of `report_page`, without sequences, on the loopback address until Ctrl-C, with updates.

    Args:
        workdirs: work directories of `pretrain` or `finetune`.
        port: port to serve on; 0 takes any free port.
        assumed: assumptions about power and CO2, as in `report_page`.
        console: console that prints the address of the page.

    Raises:
        UserError: a directory holds no run, the port is taken, or an assumed value is not above 0.
    """
    check_positive(assumed._asdict())
    for workdir in workdirs:
        read_run(local_copy(workdir))
    if not 0 <= port < 1 << 16:
        raise UserError(f"--port {port}: give a number from 0 to 65535")
    try:
        secret = secrets.token_urlsafe()
        server = _Server((LOOPBACK, port), request_handler_class(_LatestPage(workdirs, assumed).page, secret))
    except OSError as error:
        raise UserError(f"--port {port}: cannot be served on ({error.strerror}); choose another, or 0") from None
    with server:
        console.say(
            f"http://{LOOPBACK}:{server.server_port}/?token={secret} shows {', '.join(workdirs)} and reloads itself "
            f"every {REFRESH_SECONDS} s; Ctrl-C ends it"
        )
        server.serve_forever()


class _Server(http.server.ThreadingHTTPServer):
    """A server of at most `MAX_CONNECTIONS` open connections; it closes further connections immediately."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread that answers a connection; close the connection if too many are open."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            time.sleep(REFUSAL_SECONDS)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection for at most `IDLE_SECONDS`, even if the connection still sends a byte now and then."""
        deadline = threading.Timer(IDLE_SECONDS, _end_connection, [request])
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._free.release()


def _end_connection(request: socket.socket) -> None:
    """Shut down both directions of a connection, so that a read call that waits for data ends."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _LatestPage:
    """The page of runs, which is made again after a file of a run has changed."""

    def __init__(self, workdirs: Sequence[str], assumed: AssumedPower) -> None:
        self._workdirs, self._assumed = workdirs, assumed
        self._lock = threading.Lock()
        self._stats: list[_NamedFileStat] = []
        self._page = b""

    def page(self) -> bytes:
        """Return the page; if the runs cannot be read, return a page with the error."""
        with self._lock:
            try:
                paths = [local_copy(workdir) for workdir in self._workdirs]
                if (stats := _watched_file_stats(paths)) != self._stats:
                    text = report_page(paths, Console(silent=True), self._assumed, num_sequences=0)
                    self._stats, self._page = stats, text.encode()
            except (UserError, OSError) as error:
                return page("No page yet", element("p", f"{error}. This page reloads itself.")).encode()
            return self._page


class _NamedFileStat(NamedTuple):
    """The name, the modification time in nanoseconds and the size of a file."""

    name: str
    modified_ns: int
    num_bytes: int


def _watched_file_stats(workdirs: Sequence[pathlib.Path]) -> list[_NamedFileStat]:
    """Return the name, the modification time and the size of each file on which the page depends."""
    directories = [directory for workdir in workdirs for directory in (workdir, *workdir.glob("runs/*"))]
    paths = sorted(path for directory in directories for name in WATCHED_FILES for path in directory.glob(name))
    stats = [(str(path), path.stat()) for path in paths]
    return [_NamedFileStat(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]


def request_handler_class(make: Callable[[], bytes], secret: str) -> type[http.server.BaseHTTPRequestHandler]:
    """Return a class that answers HTTP requests with the page that `make` returns, if the URL has the secret.

    The secret is needed because all users of this machine can connect to the port.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        """A handler of `GET /` that refuses host names of other machines, to prevent DNS rebinding."""

        timeout = IDLE_SECONDS
        server_version, sys_version = "bert-jax", ""

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # a browser that is closed, or loads the page again
                super().handle()

        def do_GET(self) -> None:
            name = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if name not in (LOOPBACK, "localhost"):
                self.send_error(http.HTTPStatus.FORBIDDEN)
            elif not hmac.compare_digest(self.path.encode(), f"/?token={secret}".encode()):
                self.send_error(http.HTTPStatus.NOT_FOUND)
            else:
                content = make()
                self.send_response(http.HTTPStatus.OK)
                for field, value in (
                    ("Content-Type", "text/html; charset=utf-8"),
                    ("Content-Length", str(len(content))),
                    ("Content-Security-Policy", POLICY),
                    ("Cache-Control", "no-store"),
                    ("Refresh", str(REFRESH_SECONDS)),
                ):
                    self.send_header(field, value)
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *words: object) -> None:
            """Do nothing, so that no log line about a request is printed."""

    return Handler
