"""Progress and messages of a command on a terminal, and tables for a notebook."""

import codecs
import contextlib
import html
import io
import math
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from bert_jax.errors import shown

STANDARD_OUTPUT = "standard output"  # name in messages
LIVE_SECONDS = 0.1  # seconds between two states of a progress line on a terminal
LOG_SECONDS = 5.0  # seconds between two progress lines in a log
QUIET_SECONDS = 3.0  # seconds before the first progress line of work whose parts cannot be counted


class _StandardOutput(io.FileIO):
    """A stream to standard output; if a write fails, the error names standard output, unlike the errors of files."""

    def write(self, data: Any) -> int:
        """Write as `io.FileIO.write`."""
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None


def escaping_stream(descriptor: int, stream: TextIO | None) -> TextIO:
    """Return a stream for standard output (1) or error (2); characters that its encoding lacks are escaped.

    Args:
        descriptor: file descriptor; unless the descriptor is 2, the error of a failed write names standard output.
        stream: the stream to replace, whose encoding the returned stream gets; None: the encoding is UTF-8.
    """
    codecs.register_error("bert_jax_escape", _escape_for_stream)
    raw = (
        io.FileIO(descriptor, "w", closefd=False)
        if descriptor == 2
        else _StandardOutput(descriptor, "w", closefd=False)
    )
    encoding = stream.encoding if stream else "utf-8"
    line_buffering = descriptor == 2 or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "bert_jax_escape", line_buffering=line_buffering)


def _escape_for_stream(error: UnicodeError) -> tuple[str, int]:
    """Return `\\u00e9` for a character that a stream cannot encode. JSON decodes the result to the same character."""
    assert isinstance(error, UnicodeEncodeError)
    utf16 = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    units = (int.from_bytes(utf16[index : index + 2]) for index in range(0, len(utf16), 2))
    return "".join(f"\\u{unit:04x}" for unit in units), error.end


class Console:
    """Printer of lines on stderr.

    On a terminal, a progress line overwrites the previous progress line; elsewhere all lines stay.

    Args:
        out: stream to write to; None: stderr.
        silent: print nothing; used in all processes of a run except process 0.
    """

    def __init__(self, out: TextIO | None = None, silent: bool = False) -> None:
        self._out = out or sys.stderr
        self._silent = silent
        self._live = self._out.isatty()
        self._open_line = False
        self._lock = threading.Lock()  # `working` writes from a thread
        self._task = ""  # the work that the progress line is about
        self._done = 0  # the units of that work that are done
        self._began = self._shown = 0.0  # when that work began, and when its line was last printed
        self.beat: Callable[[], None] = lambda: None  # called at each progress report, printed or not

    def print_training_step(self, line: dict[str, Any], steps: int, seconds_per_step: float) -> None:
        """Print the step, loss, its terms if it has several, accuracies, speed and remaining time of a training."""
        step = line["step"]
        losses = [f"{name.removesuffix('_loss')} {x:.3f}" for name, x in line.items() if name.endswith("_loss")]
        terms = f" ({', '.join(losses)})" if len(losses) > 1 else ""
        accuracies = "".join(
            f"{name.removesuffix('_accuracy')} {value:.1%}  "
            for name, value in line.items()
            if name.endswith("accuracy")
        )
        self._write(
            f"step {step:,}/{steps:,} ({step / steps:.0%})  loss {line['loss']:.3f}{terms}  "
            f"{accuracies}lr {line['learning_rate']:.1e}  "
            f"{line['tokens_per_second']:,.0f} tokens/s  eta {format_seconds(seconds_per_step * (steps - step))}",
            keep=not self._live,
        )

    def print_heldout_metrics(self, step: int, metrics: dict[str, float], unigram_loss: float | None = None) -> None:
        """Print metrics on held-out data; accuracies are in percent.

        If `unigram_loss` (in nats) is given, print as well how far the masked-token loss is below or above the unigram
        loss.
        """
        figures = "  ".join(f"{name.replace('_', ' ')} {format_metric(name, value)}" for name, value in metrics.items())
        if unigram_loss is not None and "mlm_loss" in metrics:
            below = unigram_loss - metrics["mlm_loss"]
            figures += f"  ({abs(below):.2f} nats {'below' if below >= 0 else 'above'} the unigram loss)"
        self.say(f"step {step:,} held out: {figures}")

    def print_preparation_progress(self, done: int, total: int, documents: int) -> None:
        """Print the bytes read so far, the documents, the speed and the time left; a `total` of 0 means unknown."""
        self.beat()
        seconds = self._due("preparation", done)
        if seconds is None:
            return
        text = f"{documents:,} documents"
        if total:
            left = seconds * (total - done) / max(done, 1)
            text = (
                f"{done / 1e6:,.1f}/{total / 1e6:,.1f} MB ({done / total:.0%})  {text}  "
                f"{done / 1e6 / max(seconds, 1e-3):.1f} MB/s  eta {format_seconds(left)}"
            )
        self._write(text, keep=not self._live)

    def progress(self, task: str, done: int = 0, total: int | None = None, unit: str = "") -> None:
        """Print the progress of a task, its speed and, if `total` is known, the time left.

        Without `done` and `total`, print a line such as `compiling ...` immediately. If `done` or `total` is given,
        print a line such as `embedding 120/500 texts  40/s  eta 0:10`. On a terminal, this line overwrites the previous
        progress line. If the output is no terminal, print a line every `LOG_SECONDS`, and no line for shorter work.

        Args:
            task: the work, such as "evaluating".
            done: units done.
            total: number of all units; None: unknown.
            unit: name of a unit, such as "batches".
        """
        self.beat()
        if total is None and not done:
            self._write(f"{task} ...", keep=not self._live)
        elif (seconds := self._due(task, done)) is not None:
            of, pace = "" if total is None else f"/{total:,}", ""
            if done and seconds:
                rate = done / seconds
                pace = f"  {rate:,.0f}/s" if rate >= 10 else f"  {rate:.2g}/s"
                pace += "" if total is None else f"  eta {format_seconds((total - done) / rate)}"
            self._write(f"{task} {done:,}{of} {unit}".rstrip() + pace, keep=not self._live)

    @contextlib.contextmanager
    def working(self, task: str) -> Iterator[None]:
        """While the `with` block runs, print `task` and the seconds so far; for work whose parts cannot be counted.

        Print nothing in the first `QUIET_SECONDS`. On a terminal, remove the line when the block ends.
        """
        done, began = threading.Event(), time.monotonic()

        def print_elapsed_time() -> None:
            pause = QUIET_SECONDS
            while not done.wait(pause):
                pause = 1.0 if self._live else LOG_SECONDS
                self._write(f"{task} ... {format_seconds(time.monotonic() - began)}", keep=not self._live)

        thread = threading.Thread(target=print_elapsed_time, name="console", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            if self._open_line:
                write_or_discard(self._out, "\r\x1b[K")
                self._open_line = False

    def say(self, text: str) -> None:
        """Print a line that no progress line overwrites."""
        self._write(text, keep=True)

    def close(self) -> None:
        """End the progress line."""
        if self._open_line:
            write_or_discard(self._out, "\n")
            self._open_line = False

    def _due(self, task: str, done: int) -> float | None:
        """Return the seconds since `task` began if its next progress line is due, otherwise None.

        If fewer units are done than at the last call, the task has begun again.
        """
        now = time.monotonic()
        if task != self._task or done < self._done:
            self._task, self._began, self._shown = task, now, -math.inf if self._live else now
        self._done = done
        if now - self._shown < (LIVE_SECONDS if self._live else LOG_SECONDS):
            return None
        self._shown = now
        return now - self._began

    def _write(self, text: str, keep: bool) -> None:
        """Print a line over the current progress line; unless `keep` is True, the next line overwrites it."""
        if self._silent:
            return
        with self._lock:
            start = "\r\x1b[K" if self._open_line else ""
            write_or_discard(self._out, start + shown(text) + ("\n" if keep else ""))
            self._open_line = not keep


def write_or_discard(out: TextIO, text: str) -> None:
    """Write a text to a log; if the log cannot be written, discard this text and all later texts.

    The disk of a log may be full, and the reader of a pipe may end. A training goes on without its log. If another
    program has made the stream non-blocking, a full pipe loses only a part of this text.
    """
    try:
        out.write(text)
        out.flush()
    except BlockingIOError:
        return
    except OSError:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), out.fileno())  # also takes the text in the buffer of the stream


def format_metric(name: str, value: float | None) -> str:
    """Return the text of a metric: accuracies in percent, whole numbers unchanged, other metrics with four decimals.

    None stands for a number that was not finite.
    """
    if value is None:
        return "-"
    if "accuracy" in name:  # accuracy, mlm_accuracy, accuracy_mismatched
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def format_number(value: float, digits: int = 3) -> str:
    """Return a number, rounded to significant digits, such as 1,230 or 0.0021; a large number has no exponent."""
    rounded = f"{value:.{digits}g}"
    return f"{float(rounded):,.0f}" if abs(float(rounded)) >= 10 ** (digits - 1) else rounded


def format_seconds(seconds: float) -> str:
    """Return seconds as text, such as `1d 02:03:04`, `2:03:04` or `3:04`."""
    days, rest = divmod(round(max(0.0, seconds)), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def text_table(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table; the columns `left` are aligned left, all other columns right."""
    widths = [max(map(terminal_columns, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - terminal_columns(cell))
            cells.append(cell + padding if column in left else padding + cell)
        lines.append("  ".join(cells).rstrip())
    return lines


def terminal_columns(text: str) -> int:
    """Return the width of a text in terminal columns: two for a wide character, none for a combining mark.

    Joiners and other format characters have no width. If a Korean syllable is written in parts, its vowels and last
    consonants have no width.
    """
    return len(text) if text.isascii() else sum(map(_columns_of_character, text))


def _columns_of_character(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def notebook_table(rows: Mapping[str, object]) -> str:
    """Return names and values, escaped, as an HTML table for a notebook; rows with empty values are left out."""
    cells = ((html.escape(name), html.escape(f"{value}")) for name, value in rows.items() if f"{value}")
    return f"<table>{''.join(f'<tr><th>{name}</th><td>{value}</td></tr>' for name, value in cells)}</table>"
