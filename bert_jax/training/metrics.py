"""The metrics of a run as JSON lines, and trackers, which get a copy of the lines."""

import contextlib
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.errors import writing
from bert_jax.files import read_file, write_text
from bert_jax.parallel.energy import Meter
from bert_jax.training.tensorboard import ENERGY, TensorBoard
from bert_jax.training.trackers import MetricsSender

Line = dict[str, Any]
SPLITS = ("train", "heldout")
NOT_SCORES = ("step", "split", "seq_len", "ema_decay")  # fields of a held-out line that are not scores
# A loss that a line of metrics has multiplied by a weight -> config field of the weight; other losses are in nats.
WEIGHTED = {
    "replaced_loss": "replaced_tokens.weight",
    **{f"{term}_loss": f"distillation.{term}_weight" for term in ("soft", "cosine", "hidden", "attention")},
    "z_loss": "train.z_loss",
}
MAKE_ROOM = "make room, then start again: the run resumes after its last checkpoint"
GRAD_NORMS = "train/grad_norms"  # TensorBoard shows a name as numbers or as histograms, not as both
# These fields are measured by the clock or on the devices, so their values differ between two runs with equal config.
TIMED = ("tokens_per_second", "model_flops_utilization", "input_wait_fraction", "energy_joules", "memory_bytes")


class MetricsFile:
    """`metrics.jsonl` and the trackers of a run that continues after `step`; lines of later steps are removed first.

    Args:
        workdir: work directory of the run.
        step: step of the checkpoint from which the run continues, or 0.
        say: function that prints a line if lines are damaged or do not match `digest`, or if a tracker fails.
        tracker: key of TRACKERS, a tracker that gets the metrics in addition to TensorBoard; None: only TensorBoard.
        digest: digest of the earlier lines, from the record of the checkpoint of `step`; None: no comparison.
        settings: settings of the run by key, for TensorBoard and the tracker.
        root: a work directory above `workdir`, relative to which trackers name the run; None: `workdir`.
        meter: meter of the energy since this start, which training lines contain as `energy_joules`; None: the energy
            is not measured.
        used_memory_bytes: function that returns the used memory, which training lines contain as `memory_bytes`.

    Raises:
        UserError: the tracker cannot be opened. Every method raises UserError if the disk is full or read-only.
    """

    def __init__(
        self,
        workdir: pathlib.Path,
        step: int,
        say: Callable[[str], None] = lambda line: None,
        tracker: str | None = None,
        digest: str | None = None,
        settings: Mapping[str, Any] | None = None,
        root: pathlib.Path | None = None,
        meter: Meter | None = None,
        used_memory_bytes: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.path = workdir / "metrics.jsonl"
        self._meter, self._step, self._used_bytes = meter, step, used_memory_bytes
        self._tracker = MetricsSender(tracker, workdir, root or workdir, settings or {}, say) if tracker else None
        with writing(self.path, MAKE_ROOM):
            # Lines from before this start; a new run has none. A start without a checkpoint also drops the evaluation
            # before the first step, because the initial weights or the evaluation corpus may have changed.
            self.earlier_lines = drop_lines_after(self.path, step or -1, say) if self.path.exists() else []
            if digest and not begins_with_digest(self.earlier_lines, digest):
                say(
                    f"{self.path}: differs from the record of the checkpoint of step {step:,}; its numbers may be wrong"
                )
            self._digest = _LinesDigest(self.earlier_lines)
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 (open for the whole run)
            self._board = TensorBoard(workdir, step)
            if settings:
                self._board.write_text(step, "config", (f"{key} = {value!r}" for key, value in settings.items()))

    def write(self, line: Line, grad_norms: Sequence[float] = ()) -> None:
        """Append a line of metrics to the file, and send it to the trackers; NaN and infinity become null in the file.

        `grad_norms` are the gradient norms of the steps since the last line, and become a histogram in TensorBoard. The
        histogram leaves out norms that are not finite; `skipped_steps` counts the steps with such norms.
        """
        self._step = line["step"]
        if line["split"] == "train":
            memory = self._used_bytes()
            line = line | self._energy() | ({} if memory is None else {"memory_bytes": memory})
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}
        numbers = {f"{line['split']}/{name}": value for name, value in line.items() if name not in ("step", "split")}
        with writing(self.path, MAKE_ROOM):
            self._file.write(json.dumps(finite, allow_nan=False) + "\n")
            self._board.write(line["step"], numbers)
            if finite_norms := [norm for norm in grad_norms if math.isfinite(norm)]:
                self._board.write_histogram(line["step"], GRAD_NORMS, finite_norms)
        self._digest.add_line(finite)
        if self._tracker:
            self._tracker.write(line["step"], numbers)

    def digest(self) -> str:
        """Write all lines to disk, and return their digest, `NUMBER:SHA256`."""
        self.flush()
        return str(self._digest)

    def flush(self) -> None:
        """Write all lines to disk.

        The loop calls this method before saving a checkpoint, because no checkpoint may be newer than its metrics.
        """
        with writing(self.path, MAKE_ROOM):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._board.flush()

    def close(self) -> None:
        """Write all lines to disk, and close the file, the trackers and the meter."""
        if self._tracker:
            self._tracker.close()
        with writing(self.path, MAKE_ROOM), contextlib.closing(self._board), self._file:
            if energy := self._energy():  # the energy includes the last evaluation
                self._board.write(self._step, {ENERGY: energy["energy_joules"]})
            self.flush()
        if self._meter:
            self._meter.close()

    def _energy(self) -> dict[str, float]:
        """Return the measured energy as a field of a line, rounded to a tenth of a joule; {} if it is not measured."""
        joules = self._meter.joules() if self._meter else None
        return {} if joules is None else {"energy_joules": round(joules, 1)}


def read_metrics(path: pathlib.Path) -> list[Line]:
    """Return the undamaged lines of a metrics file."""
    return read_metrics_and_damage(path).lines


def damaged_lines(path: pathlib.Path) -> list[bytes]:
    """Return the damaged lines of a metrics file, except an incomplete last line of a killed run."""
    return read_metrics_and_damage(path).damaged


class MetricsAndDamage(NamedTuple):
    """The undamaged lines of a metrics file, and the bytes of the damaged lines."""

    lines: list[Line]
    damaged: list[bytes]


def read_metrics_and_damage(path: pathlib.Path) -> MetricsAndDamage:
    """Return the undamaged and the damaged lines of a metrics file, without an incomplete last line of a killed run."""
    read = MetricsAndDamage([], [])
    text = read_file(path) if path.exists() else b""
    for line in text.split(b"\n")[:-1]:
        if (parsed := _parse_line(line)) is None:
            read.damaged.append(line)
        else:
            read.lines.append(parsed)
    return read


def begins_with_digest(lines: Sequence[Line], digest: str) -> bool:
    """Return whether the first lines of metrics have the digest `NUMBER:SHA256`, which a checkpoint recorded.

    The digest leaves out the fields in TIMED. A resumed run may have further lines, also for the step of its
    checkpoint.
    """
    return digest == str(_LinesDigest(lines[: int(digest.partition(":")[0])]))


class _LinesDigest:
    """The digest of lines that are added one after another: the number of lines, and the SHA-256 of their JSON list."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._num_lines, self._hash = 0, hashlib.sha256(b"[")
        for line in lines:
            self.add_line(line)

    def add_line(self, line: Line) -> None:
        without_timed = {name: value for name, value in line.items() if name not in TIMED}
        self._hash.update(f"{', ' if self._num_lines else ''}{json.dumps(without_timed, sort_keys=True)}".encode())
        self._num_lines += 1

    def __str__(self) -> str:
        complete = self._hash.copy()
        complete.update(b"]")
        return f"{self._num_lines}:{complete.hexdigest()}"


def _parse_line(text: bytes) -> Line | None:
    """Return a line of a metrics file as a dictionary; None if the line is damaged."""
    try:
        line = strict_json.parse(text.decode())
        numbers = [value for name, value in line.items() if name != "split"]
        is_known = line["split"] in SPLITS and type(line["step"]) is int
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return line if is_known and all(type(x) in (int, float, type(None)) for x in numbers) else None


def drop_lines_after(path: pathlib.Path, step: int, say: Callable[[str], None]) -> list[Line]:
    """Atomically remove the lines of steps after `step` from a metrics file, and return the remaining lines.

    A resumed run writes the removed lines again. Damaged lines are moved to the file `metrics.damaged` in the same
    directory; `say` prints their number.
    """
    lines, damaged = read_metrics_and_damage(path)
    if damaged:
        aside = path.with_suffix(".damaged")
        with open(aside, "ab") as file:
            file.writelines(line + b"\n" for line in damaged)
            file.flush()
            os.fsync(file.fileno())
        say(f"{path}: damaged lines: {len(damaged)}, moved to {aside}")
    lines = [line for line in lines if line["step"] <= step]
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))
    return lines
