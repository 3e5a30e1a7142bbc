"""Results of the parts: one table on stdout, one JSON file, and the end at a deadline."""

import json
import os
import pathlib
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class LeftOutError(Exception):
    """A part cannot run on this machine; its text says why."""


class Result(NamedTuple):
    """A line of the table: of a check `error` and `bound`, of a timing the others."""

    name: str
    error: float | None = None
    bound: float | None = None  # the largest `error` that passes
    ms: float | None = None  # of a step, the median
    tokens_per_second: float | None = None
    mfu: float | None = None  # model FLOPs over the peak of the data sheet
    ready_seconds: float | None = None  # to build, compile and warm up
    fault: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the part broke, or its error is too large or not a number."""
        outside = self.bound is not None and not (self.error is not None and self.error <= self.bound)
        return outside or self.fault is not None

    def line(self) -> str:
        """Return the line of the table."""
        verdict = "FAILED" if self.failed else "passed"
        check = f"{verdict}: {self.error:.1e}, at most {self.bound:.0e}" if self.bound is not None else ""
        cells = (
            f"{self.name:55}",
            f"{self.ms:9.2f}" if self.ms is not None else " " * 9,
            f"{self.tokens_per_second:11,.0f}" if self.tokens_per_second is not None else " " * 11,
            f"{self.mfu:6.1%}" if self.mfu is not None else " " * 6,
            f"{self.ready_seconds:5.0f}" if self.ready_seconds is not None else " " * 5,
            f"FAILED: {self.fault}" if self.fault else check,
        )
        return f"| {' | '.join(cells)} |"


HEADER = (
    f"| {'part':55} | ms a step |    tokens/s |   MFU | ready | check |\n"
    f"| {'-' * 55} | --------: | ----------: | ----: | ----: | ----- |"
)


class Part(NamedTuple):
    """A row of `parts.parts`: a name, and a function that yields results."""

    name: str
    run: Callable[[], Iterable[Result]]


class Report:
    """All results of a run. Each result is printed and written when it is there.

    Args:
        head: what the JSON file says beside the results.
        place: the JSON file.
    """

    def __init__(self, head: dict[str, Any], place: pathlib.Path) -> None:
        self.head, self.place = head, place
        self.results: list[Result] = []
        self.left_out: dict[str, str] = {}  # name of a part -> why
        self.waiting: list[str] = []  # parts without an end, the running one first
        self._lock = threading.RLock()  # the deadline comes in a thread of its own

    def run(self, parts: Iterable[Part]) -> int:
        """Run the parts in their order, whatever becomes of each; return the exit status."""
        rows = list(parts)
        self.waiting = [part.name for part in rows]
        print(HEADER, flush=True)
        for part in rows:
            try:
                for result in part.run():
                    self._add(result)
            except LeftOutError as reason:
                self.left_out[part.name] = str(reason)
            except Exception as error:  # the other parts get their turn
                traceback.print_exc()
                text = str(error).strip().partition("\n")[0]
                self._add(Result(part.name, fault=f"{type(error).__name__}: {text[:200]}"))
            self.waiting.pop(0)
        return self.finish()

    def end_at(self, deadline: float, clean: Callable[[], None]) -> None:
        """End the process at a time of `time.monotonic`, wherever it is; `clean` is called before."""

        def end() -> None:
            with self._lock:
                for name in self.waiting:
                    self.left_out[name] = "no time left"
                status = self.finish()
                clean()
                os._exit(status)  # the main thread may be inside a compilation, which nothing interrupts

        timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
        timer.daemon = True
        timer.start()

    def finish(self) -> int:
        """Print what failed and what was left out; return the exit status."""
        with self._lock:
            failed = [one.name for one in self.results if one.failed]
            print(f"\n{len(self.results)} results in {self.place}; failed: {'; '.join(failed) or 'none'}")
            for why in dict.fromkeys(self.left_out.values()):
                print(f"left out, {why}: {'; '.join(name for name, other in self.left_out.items() if other == why)}")
            self._write()
            print(end="", flush=True)
            return int(bool(failed))

    def _add(self, result: Result) -> None:
        with self._lock:
            self.results.append(result)
            print(result.line(), flush=True)
            self._write()

    def _write(self) -> None:
        """Replace the file, so that a crash leaves what was there."""
        rows = [
            {name: value for name, value in one._asdict().items() if value is not None} | {"failed": one.failed}
            for one in self.results
        ]
        checks = [one for one in self.results if one.bound is not None]
        found = {
            **self.head,
            "checks": {"run": len(checks), "failed": [one.name for one in checks if one.failed]},
            "failed": [one.name for one in self.results if one.failed],
            "left_out": self.left_out,
            "results": rows,
        }
        new = self.place.with_name(f".{self.place.name}.new")
        new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        new.replace(self.place)
