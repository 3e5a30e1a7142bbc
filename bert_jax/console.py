"""What a person sees while something runs."""

import sys
import time
from typing import Any, TextIO


class Console:
    """Lines on stderr; on a terminal a progress line overwrites itself, elsewhere each stays.

    `silent` is for all but one of several processes, which would say the same.
    """

    def __init__(self, out: TextIO | None = None, silent: bool = False) -> None:
        self._out = out or sys.stderr
        self._silent = silent
        self._live = self._out.isatty()
        self._open_line = False
        self._began = time.monotonic()
        self._last = 0.0

    def training(self, line: dict[str, Any], steps: int, seconds_per_step: float) -> None:
        """Step, loss, accuracies, speed and the time that is left."""
        step = line["step"]
        accuracies = "".join(
            f"{name.removesuffix('_accuracy')} {value:.1%}  "
            for name, value in line.items()
            if name.endswith("accuracy")
        )
        self._write(
            f"step {step:,}/{steps:,} ({step / steps:.0%})  loss {line['loss']:.3f}  "
            f"{accuracies}lr {line['learning_rate']:.1e}  "
            f"{line['tokens_per_second']:,.0f} tokens/s  eta {format_seconds(seconds_per_step * (steps - step))}",
            keep=not self._live,
        )

    def heldout(self, step: int, found: dict[str, float]) -> None:
        """What was measured on held-out rows: losses in nats, shares in percent."""
        figures = "  ".join(
            f"{name.replace('_', ' ')} {value:.1%}"
            if name.endswith("accuracy")
            else f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in found.items()
        )
        self.say(f"step {step:,} held out: {figures}")

    def preparation(self, done: int, total: int, documents: int) -> None:
        """Bytes of input read and in all (0 where unknown), documents, speed and the time that is left."""
        seconds = time.monotonic() - self._began
        if seconds - self._last < (0.1 if self._live else 2.0):
            return
        self._last = seconds
        text = f"{documents:,} documents"
        if total:
            left = seconds * (total - done) / max(done, 1)
            text = (
                f"{done / 1e6:,.1f}/{total / 1e6:,.1f} MB ({done / total:.0%})  {text}  "
                f"{done / 1e6 / seconds:.1f} MB/s  eta {format_seconds(left)}"
            )
        self._write(text, keep=not self._live)

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(text, keep=True)

    def _write(self, text: str, keep: bool) -> None:
        if self._silent:
            return
        start = "\r\x1b[K" if self._open_line else ""
        self._out.write(start + text + ("\n" if keep else ""))
        self._out.flush()
        self._open_line = not keep

    def close(self) -> None:
        """End the progress line."""
        if self._open_line:
            self._out.write("\n")
            self._open_line = False


def format_seconds(seconds: float) -> str:
    """`1d 02:03:04`, `2:03:04` or `3:04`."""
    days, rest = divmod(round(max(0.0, seconds)), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
