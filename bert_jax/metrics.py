"""Exact means, and where they are written: JSON lines (the truth), TensorBoard, the console."""

import json
import os
import pathlib
import sys
import time
from typing import Any, NamedTuple, TextIO

import jax
import jax.numpy as jnp
from tensorboardX import SummaryWriter

Line = dict[str, Any]


class Mean(NamedTuple):
    """A weighted mean as its parts: adding two merges them exactly, over micro-batches, steps, devices and hosts."""

    total: Any  # float32 scalar, sum of value x weight
    weight: Any  # float32 scalar, sum of weights

    @classmethod
    def of(cls, values: jax.Array, weights: jax.Array) -> "Mean":
        """Of `values` with `weights`, both float32 of one shape."""
        return cls(jnp.sum(values * weights), jnp.sum(weights))

    def merge(self, other: "Mean") -> "Mean":
        """Of both sets of values together."""
        return Mean(self.total + other.total, self.weight + other.weight)

    def value(self) -> float:
        """total / weight; nan of nothing."""
        return float(self.total) / float(self.weight) if float(self.weight) else float("nan")


def merge(left: dict[str, Mean], right: dict[str, Mean]) -> dict[str, Mean]:
    """Two sets of means with the same names (or an empty one) as one."""
    return {name: left[name].merge(mean) if name in left else mean for name, mean in right.items()}


def values(means: dict[str, Mean]) -> dict[str, float]:
    """Each mean's value, and as `loss` the sum of those named `..._loss`, as a batch's loss is."""
    found = {name: mean.value() for name, mean in means.items()}
    return {"loss": sum(value for name, value in found.items() if name.endswith("_loss"))} | found


class MetricsFile:
    """`metrics.jsonl` and TensorBoard events of a run that continues after `step`: later lines are cut off first."""

    def __init__(self, workdir: pathlib.Path, step: int) -> None:
        self.path = workdir / "metrics.jsonl"
        keep_lines_until(self.path, step)
        self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 (open for the whole run)
        self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def write(self, line: Line) -> None:
        """Append one line: `step`, `split` and numbers."""
        self._file.write(json.dumps(line) + "\n")
        for name, value in line.items():
            if name not in ("step", "split"):
                self._board.add_scalar(f"{line['split']}/{name}", value, line["step"])

    def flush(self) -> None:
        """Make every line durable; called before a checkpoint, which must never be newer than its metrics."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._board.flush()

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()
        self._board.close()


def read_lines(path: pathlib.Path) -> list[Line]:
    """The whole lines of a metrics file; a last line that a killed run left half-written is not one of them."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


def keep_lines_until(path: pathlib.Path, step: int) -> None:
    """Drop every line after `step`, atomically: the resumed run writes them again."""
    lines = [json.dumps(line) + "\n" for line in read_lines(path) if line["step"] <= step]
    fresh = path.with_suffix(".jsonl.tmp")
    with open(fresh, "w", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


class Console:
    """One line a report; on a terminal the progress line overwrites itself."""

    def __init__(self, steps: int, out: TextIO | None = None) -> None:
        self._steps = steps
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._open_line = False

    def progress(self, line: Line, seconds_per_step: float) -> None:
        """Step, losses, accuracies, speed and the time that is left."""
        eta = format_seconds(seconds_per_step * (self._steps - line["step"]))
        share = line["step"] / self._steps
        text = (
            f"step {line['step']:,}/{self._steps:,} ({share:.0%})  loss {line['loss']:.3f}  "
            f"mlm {line['mlm_accuracy']:.1%}  nsp {line['nsp_accuracy']:.1%}  lr {line['learning_rate']:.1e}  "
            f"{line['tokens_per_second']:,.0f} tokens/s  eta {eta}"
        )
        self._write(text, keep=not self._live)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(text, keep=True)

    def _write(self, text: str, keep: bool) -> None:
        start = "\r\x1b[K" if self._open_line else ""
        self._out.write(start + text + ("\n" if keep else ""))
        self._out.flush()
        self._open_line = not keep


class Stopwatch:
    """Seconds of a stretch of steps and of waiting for input in it; pauses (evaluation, saving) are left out."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new stretch."""
        self._began = time.perf_counter()
        self._paused = 0.0
        self.waited = 0.0

    def pause(self, seconds: float) -> None:
        """Leave `seconds` out of the stretch."""
        self._paused += seconds

    def seconds(self) -> float:
        """Of the stretch so far, without its pauses."""
        return time.perf_counter() - self._began - self._paused


def format_seconds(seconds: float) -> str:
    """`1d 02:03:04`, `2:03:04` or `3:04`."""
    days, rest = divmod(round(max(0.0, seconds)), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
