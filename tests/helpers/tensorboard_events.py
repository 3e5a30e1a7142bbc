"""The values that TensorBoard would show of a run."""

import pathlib
import struct
from typing import Any

from tensorboardX.proto import event_pb2


def shown(workdir: pathlib.Path) -> list[tuple[int, Any]]:
    """The step and the value of each entry of the only event file, read with the event reader of its own format."""
    (path,) = (workdir / "tensorboard").iterdir()
    data, at, values = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        values += [(event.step, value) for value in event.summary.value]
        at += length + 16
    return values
