"""Event files for TensorBoard, and the starts of a run that the event files record."""

import contextlib
import os
import pathlib
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.files import open_regular_file

ENERGY = "train/energy_joules"  # name of the energy since this start of the run
BINS = 30  # number of bins of a histogram, all of equal width, as in TensorBoard's drawings


class TensorBoard:
    """An event file in `workdir`/tensorboard for a run that continues after `step`.

    TensorBoard hides older events of steps after `step`. Events are written by the calling thread. SummaryWriter would
    write events in a separate thread; if a full disk ends that thread, SummaryWriter waits forever.
    """

    def __init__(self, workdir: pathlib.Path, step: int) -> None:
        with _without_torch():
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto import event_pb2, summary_pb2
            from tensorboardX.summary import histogram, text

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._histogram, self._text = histogram, text
        directory = workdir / "tensorboard"
        directory.mkdir(exist_ok=True)
        self._events = EventsWriter(str(directory / "events"))
        self._write_event(step + 1, session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START))

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Write an event with the metrics of a step, each under its name."""
        values = [self._summary.Value(tag=name, simple_value=x) for name, x in numbers.items()]
        self._write_event(step, summary=self._summary(value=values))

    def write_histogram(self, step: int, name: str, numbers: Sequence[float]) -> None:
        """Write a histogram of one or more finite numbers."""
        self._write_event(step, summary=self._histogram(name, np.asarray(numbers), BINS))

    def write_text(self, step: int, name: str, lines: Iterable[str]) -> None:
        """Write lines for TensorBoard's text page, as a block of code, so that Markdown does not change them."""
        code = "\n".join(f"    {line}" for line in lines)
        self._write_event(step, summary=self._text(name, code.encode(errors="replace").decode()))

    def flush(self) -> None:
        """Write all events to the file."""
        self._events.flush()

    def close(self) -> None:
        """Write all events to the file, and close it."""
        self._events.close()

    def _write_event(self, step: int, **content: Any) -> None:
        """Write an event of `step` with the present time."""
        self._events.write_event(self._event(wall_time=time.time(), step=step, **content))


class RunStart(NamedTuple):
    """A start of a run: the first step, the times of the beginning and of the last event, and the energy used.

    Times are in seconds since 1970. `joules` is the energy that counters measured until the time `measured`.
    """

    first_step: int
    began: float
    ended: float
    joules: float = 0.0
    measured: float | None = None  # None: the energy was not measured


def read_run_starts(workdir: pathlib.Path) -> list[RunStart]:
    """Return the starts of a run in order, from its TensorBoard events; a damaged file is read up to the damage."""
    starts = []
    for path in sorted((workdir / "tensorboard").glob("events.*")):
        first: Any = None  # the event that records the start
        last: Any = None
        joules, measured = 0.0, None
        for event, has_energy in _read_events(path):
            last = event
            if first is None and event.HasField("session_log"):
                first = event
            for value in event.summary.value if has_energy else ():
                if value.tag == ENERGY:
                    joules, measured = value.simple_value, event.wall_time
        if first is not None:
            starts.append(RunStart(first.step, first.wall_time, last.wall_time, joules, measured))
    return sorted(starts, key=lambda start: start.began)


def _read_events(path: pathlib.Path) -> Iterator[tuple[Any, bool]]:
    """Yield each `Event` of an event file up to a damage, and whether the event may have a value with the tag ENERGY.

    An event file is a sequence of records, each with a uint64 length, a uint32 checksum, an `Event` and a uint32
    checksum. A long run has gigabytes of events, so a single event is in memory at a time.
    """
    with _without_torch():
        from google.protobuf.message import DecodeError
        from tensorboardX.proto import event_pb2

    with open_regular_file(path) as file:
        left = os.fstat(file.fileno()).st_size
        while len(header := file.read(12)) == 12:
            (length,) = struct.unpack_from("<Q", header)
            left -= 12 + length + 4
            if left < -4:  # the length is damaged, or the record is incomplete
                return
            record = file.read(length)
            file.read(4)
            try:
                yield event_pb2.Event.FromString(record), ENERGY.encode() in record
            except DecodeError:
                return


@contextlib.contextmanager
def _without_torch() -> Iterator[None]:
    """Make `import torch` fail in the `with` block, because tensorboardX would load torch (1.5 s) without need."""
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]
