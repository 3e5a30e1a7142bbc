"""TensorBoard events. Imported only where a run begins, because tensorboardX loads torch where it finds it."""

import pathlib
import time
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary


class Board:
    """An event file in `directory` of a run that continues after `step`; TensorBoard hides what earlier ones say later.

    Events are written at once: SummaryWriter has a thread for it, which a full disk ends, and then waits for ever.
    """

    def __init__(self, directory: pathlib.Path, step: int) -> None:
        directory.mkdir(exist_ok=True)
        self._events = EventsWriter(str(directory / "events"))
        self._add(step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """Each number under its name."""
        self._add(step, summary=Summary(value=[Summary.Value(tag=n, simple_value=x) for n, x in numbers.items()]))

    def flush(self) -> None:
        """To the file."""
        self._events.flush()

    def close(self) -> None:
        """Flush and close."""
        self._events.close()

    def _add(self, step: int, **content: Any) -> None:
        self._events.write_event(Event(wall_time=time.time(), step=step, **content))
