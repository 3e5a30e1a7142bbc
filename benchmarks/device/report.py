"""Results of the parts: a table on stdout, and a JSON file, which also has the running part and the waiting parts."""

import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class LeftOutError(Exception):
    """Error of a part that cannot run on this machine; the message has the reason."""


def reason_to_leave_out(error: Exception) -> str | None:
    """Return the reason to leave out a part that raised `error`; return None if `error` is a failure of the part."""
    if isinstance(error, ModuleNotFoundError) and error.name and "." not in error.name:
        return f"{error.name} is not installed"
    return str(error) if isinstance(error, LeftOutError) else None


class Result(NamedTuple):
    """A line of the table of results; a check has `error` and `bound`, and a timing has the other fields."""

    name: str
    error: float | None = None
    bound: float | None = None  # the largest `error` that passes
    ms: float | None = None  # median time of a step
    tokens_per_second: float | None = None
    mfu: float | None = None  # model FLOP/s over the peak of the data sheet
    ready_seconds: float | None = None  # time to build, compile and warm up the step
    fault: str | None = None

    @property
    def failed(self) -> bool:
        """Return whether the part crashed, or its error is too large or not a number."""
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
    """One part: a name, and a function that yields results."""

    name: str
    run: Callable[[], Iterable[Result]]


class Report:
    """Results of a run, each printed and written as soon as it is known, and the parts that are left.

    Args:
        head: further fields of the JSON file.
        path: path of the JSON file.
        waiting: names of the parts to run.
    """

    def __init__(self, head: dict[str, Any], path: pathlib.Path, waiting: Iterable[str]) -> None:
        self.head, self.path, self.waiting = head, path, list(waiting)
        self.running: str | None = None
        self.results: list[Result] = []
        self.left_out: dict[str, str] = {}  # name of a part -> reason

    @classmethod
    def read(cls, path: pathlib.Path) -> "Report":
        """Read a report from the JSON file of an earlier process."""
        content = json.loads(path.read_text(encoding="utf-8"))
        keys = ("checks", "failed", "left_out", "running", "waiting", "results")
        _, _, left_out, running, waiting, rows = (content.pop(key) for key in keys)
        report = cls(content, path, waiting)
        report.left_out, report.running = left_out, running
        report.results = [Result(**{name: x for name, x in row.items() if name != "failed"}) for row in rows]
        return report

    def begin(self, name: str) -> None:
        """Record in the file which part begins, so that the file names this part after a crash."""
        self.waiting.remove(name)
        self.running = name
        self._write()

    def add(self, result: Result) -> None:
        """Print and write a result."""
        self.results.append(result)
        print(result.line(), flush=True)
        self._write()

    def end(self) -> None:
        """Record in the file that no part is running."""
        self.running = None
        self._write()

    def leave_out_rest(self, why: str) -> None:
        """Record that the running part and the waiting parts are left out, and why."""
        rest = [self.running, *self.waiting] if self.running else self.waiting
        self.left_out |= dict.fromkeys(rest, why)
        self.running, self.waiting = None, []

    def finish(self) -> int:
        """Print the failed parts and the parts that were left out; return the exit status."""
        failed = [result.name for result in self.results if result.failed]
        print(f"\n{len(self.results)} results in {self.path}; failed: {'; '.join(failed) or 'none'}")
        for why in dict.fromkeys(self.left_out.values()):
            print(f"left out, {why}: {'; '.join(name for name, reason in self.left_out.items() if reason == why)}")
        self._write()
        print(end="", flush=True)
        return int(bool(failed))

    def _write(self) -> None:
        """Replace the file in one step, so that a crash leaves the old file."""
        rows = [
            {name: value for name, value in result._asdict().items() if value is not None} | {"failed": result.failed}
            for result in self.results
        ]
        checks = [result for result in self.results if result.bound is not None]
        content = {
            **self.head,
            "checks": {"run": len(checks), "failed": [result.name for result in checks if result.failed]},
            "failed": [result.name for result in self.results if result.failed],
            "left_out": self.left_out,
            "running": self.running,
            "waiting": self.waiting,
            "results": rows,
        }
        new = self.path.with_name(f".{self.path.name}.new")
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)
