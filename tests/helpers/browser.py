"""A headless Chromium over its DevTools protocol: open a page, press keys, list its requests and its complaints."""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--no-first-run",
    # No page of this project asks for anything; the browser itself would.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The browser reads commands from descriptor 3 and writes answers to 4.
LAUNCH = (
    "import fcntl, os, sys; both = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]; "
    "os.dup2(both[0], 3); os.dup2(both[1], 4); os.execv(sys.argv[3], sys.argv[3:])"
)
TAB = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
SHIFT = 8
# What a key must reach: all controls, and what scrolls.
CONTROLS = "a[href], summary, input:checked, select, button, textarea, [tabindex]"
VISIBLE = f"[...document.querySelectorAll('{CONTROLS}')].filter(one => one.checkVisibility())"


class Opened(NamedTuple):
    """What a page did while it loaded: lines of its console, and the addresses that it asked for beside its own."""

    console: list[str]
    requests: list[str]


class Browser:
    """One tab. Messages are JSON, each ended by a zero byte (--remote-debugging-pipe)."""

    def __init__(self, commands: IO[bytes], answers: IO[bytes]) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._session, self._events = 0, "", list[dict[str, Any]]()
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        self._commands.write(json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self._events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, address: str, wide: int = 1000, high: int = 800, dark: bool = False) -> Opened:
        """Load a page in a window of that size."""
        self._events.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())
        self.run("1")  # what the page said while it loaded is there now
        found = [(event.get("method"), event.get("params", {})) for event in self._events]
        console = [json.dumps(what) for name, what in found if name in ("Runtime.consoleAPICalled", "Log.entryAdded")]
        console += [json.dumps(what) for name, what in found if name == "Runtime.exceptionThrown"]
        asked = [what["request"]["url"] for name, what in found if name == "Network.requestWillBeSent"]
        return Opened(console, [one for one in asked if one != address and not one.startswith("data:")])

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, as JSON says it."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, **key: Any) -> None:
        """Press and release a key."""
        self.send("Input.dispatchKeyEvent", type="keyDown", **key)
        self.send("Input.dispatchKeyEvent", type="keyUp", **key)

    def reached(self) -> list[int]:
        """Press Tab once for each visible control, and return the numbers of the controls that get the focus."""
        count, found = self.run(f"{VISIBLE}.length"), []
        for _ in range(count):
            self.press(**TAB)
            found.append(self.run(f"{VISIBLE}.indexOf(document.activeElement)"))
        return found

    def picture(self, path: pathlib.Path) -> None:
        """Save the window as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def _read(self) -> dict[str, Any]:
        found = bytearray()
        while (one := self._answers.read(1)) != b"\0":
            assert one, "the browser has ended"
            found += one
        answer: dict[str, Any] = json.loads(found)
        return answer


@contextlib.contextmanager
def open_browser(place: pathlib.Path) -> Iterator[Browser]:
    """Yield a browser with its files in `place`; the test is skipped where there is none."""
    name = next(filter(None, map(shutil.which, NAMES)), None)
    if name is None:
        pytest.skip("no chromium here")
    (read, commands), (answers, write) = os.pipe(), os.pipe()
    argv = [sys.executable, "-I", "-c", LAUNCH, str(read), str(write), name, *OPTIONS, f"--user-data-dir={place}"]
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(argv, pass_fds=(read, write), stdout=log, stderr=log)
    os.close(read)
    os.close(write)
    try:
        with os.fdopen(commands, "wb", 0) as keys, os.fdopen(answers, "rb") as said:
            yield Browser(keys, said)
    finally:
        process.kill()
        process.wait()
