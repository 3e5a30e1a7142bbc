"""Serves the page of runs that are still training, only to this machine."""

import contextlib
import http
import http.server
import pathlib
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.reports.html.markup import POLICY, element, page
from bert_jax.reports.run.cost import AssumedPower
from bert_jax.reports.run.page import report_page
from bert_jax.training.remote_workdir import local_copy
from bert_jax.training.workdir import read_run

LOOPBACK = "127.0.0.1"
REFRESH_SECONDS = 10
IDLE_SECONDS = 30  # after which a connection that asks for nothing is closed
WATCHED_FILES = ("run.json", "metrics.jsonl", "results.json", "checkpoints/*", "tensorboard/*")  # of each training


def follow_runs(workdirs: Sequence[str], port: int, assumed: AssumedPower, console: Console) -> None:
    """Serve `report_page`, without sequences, on the loopback address until Ctrl-C; update it while the runs train.

    Args:
        workdirs: work directories of `pretrain` or `finetune`.
        port: port to serve on; 0 takes any free port.
        assumed: assumptions on power and CO2, as in `report_page`.
        console: console that prints the address.

    Raises:
        UserError: a directory holds no run, or the port is taken.
    """
    for workdir in workdirs:
        read_run(local_copy(workdir))
    if not 0 <= port < 1 << 16:
        raise UserError(f"--port {port}: give a number from 0 to 65535")
    try:
        server = http.server.ThreadingHTTPServer((LOOPBACK, port), request_handler(_LatestPage(workdirs, assumed).page))
    except OSError as error:
        raise UserError(f"--port {port}: cannot be served on ({error.strerror}); choose another, or 0") from None
    with server:
        console.say(
            f"http://{LOOPBACK}:{server.server_port} shows {', '.join(workdirs)} and reloads itself every "
            f"{REFRESH_SECONDS} s; Ctrl-C ends it"
        )
        server.serve_forever()


class _LatestPage:
    """The page of runs, which is made again if a file of a run has changed."""

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
                if (stats := _file_stats(paths)) != self._stats:
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


def _file_stats(workdirs: Sequence[pathlib.Path]) -> list[_NamedFileStat]:
    """Return name, modification time and size of each file that the page depends on."""
    directories = [directory for workdir in workdirs for directory in (workdir, *workdir.glob("runs/*"))]
    paths = sorted(path for directory in directories for name in WATCHED_FILES for path in directory.glob(name))
    stats = [(str(path), path.stat()) for path in paths]
    return [_NamedFileStat(name, stat.st_mtime_ns, stat.st_size) for name, stat in stats]


def request_handler(make: Callable[[], bytes]) -> type[http.server.BaseHTTPRequestHandler]:
    """Return a class that answers HTTP requests with the page that `make` returns."""

    class Handler(http.server.BaseHTTPRequestHandler):
        """Handler of `GET /`; it refuses other host names than this machine's, against DNS rebinding."""

        timeout = IDLE_SECONDS
        server_version, sys_version = "bert-jax", ""

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # a browser that is closed, or loads the page again
                super().handle()

        def do_GET(self) -> None:
            name = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if name not in (LOOPBACK, "localhost"):
                self.send_error(http.HTTPStatus.FORBIDDEN)
            elif self.path != "/":
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
            """Print no log line about a request."""

    return Handler
