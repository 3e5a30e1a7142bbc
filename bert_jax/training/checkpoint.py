"""Checkpoints by Orbax: state, step, config and a digest of each array, written atomically.

`CheckpointPolicy` decides when a run saves, and `steps_to_keep` chooses the checkpoints to keep. `Checkpoints` writes
and reads checkpoints. `Place` is a local path or, for a run at gs://, a path of `etils.epath`. At gs://, a checkpoint
is complete if it has the file COMMITTED, which Orbax writes last. A local checkpoint is complete if its directory has
the final name, which Orbax gives the directory last.
"""

import contextlib
import errno
import functools
import hashlib
import importlib.metadata
import json
import logging
import math
import operator
import os
import pathlib
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from bert_jax import errors
from bert_jax.config import CheckpointConfig
from bert_jax.errors import StorageError, UserError
from bert_jax.files import check_regular_files_below
from bert_jax.training.remote_workdir import COMMITTED, checkpoints_directory, mirror_of

Tree = Any
Record = dict[str, Any]  # the record of a checkpoint, saved with the state as JSON
Place = Any
Check = Callable[[Record], None]  # function that raises UserError if a record belongs to a different run
AVERAGE = "opt_state.average"  # path of the moving average of the parameters in a state (optimizers.py)
DISK_MARGIN = 16 << 20  # bytes that a disk must have free in addition to a checkpoint's arrays
ORBAX_PATH = re.compile(r"[/\\]orbax[/\\]")  # path of a function of Orbax
ABANDONED_READ = re.compile(r"never retrieved.*\b(OCDBT|zarr)\b", re.DOTALL)  # a driver of TensorStore in a message
SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")  # number of a system error in TensorStore's messages
# Numbers of system errors after which the bytes of a checkpoint may be intact. EIO is left out: a bad sector is damage.
NOT_DAMAGE = (errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT)
# Matches a status of TensorStore after which the bytes may be intact.
REFUSED_READ = re.compile(r"\b(PERMISSION_DENIED|UNAUTHENTICATED|UNAVAILABLE|DEADLINE_EXCEEDED)\b")


MIN_SECONDS = 10.0  # minimum seconds of work between two saves by the clock (docs/reliability.md)
MAX_RATE = 10e6  # maximum average bytes per second of saves by the clock, because disks wear and buckets have a price


class CorruptCheckpointError(Exception):
    """The bytes of a checkpoint differ from the saved bytes."""


class CheckpointPolicy:
    """The policy by which a run saves: after multiples of `every` and of `keep_period` steps, and after some time.

    Two saves by the clock are at least MIN_SECONDS of work apart. The time between two saves by the clock is long
    enough that saving takes at most `max_time_fraction` of the time and writes at most MAX_RATE bytes per second. The
    clock of process 0 decides for all processes. The decisions of process 0 reach all processes at steps that all
    processes know.
    """

    def __init__(self, settings: CheckpointConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._save_seconds = (0.0, 0.0)  # seconds by which the last two saves delayed the training
        self._size = 0  # bytes of the last checkpoint
        self._since: tuple[int, float] | None = None  # step and time of the last save
        self._look = 0  # the next step at which the clock is read

    def is_due(self, step: int) -> bool:
        """Return whether to save after `step`; every process must call this method after every step."""
        if any(every and step % every == 0 for every in (self._settings.every, self._settings.keep_period)):
            return True
        fraction = self._settings.max_time_fraction
        if fraction is None or step < self._look:
            return False
        if self._since is None:  # the previous step includes the compilation, so its time is not used
            self._since, self._look = (step, self._clock()), step + 1
            return False
        first, began = self._since
        save_seconds = min(self._save_seconds)  # the first save includes compilation, and any save may be slow
        wanted = max(MIN_SECONDS, save_seconds / fraction, self._size / MAX_RATE)
        wait = np.array(steps_until_save(step - first, self._clock() - began, wanted), np.int32)
        self._look = step + int(multihost_utils.broadcast_one_to_all(wait))
        return self._look == step

    def record_save(self, step: int, seconds: float, size: int) -> None:
        """Record the save of `step`, which delayed the training by `seconds` and writes `size` bytes."""
        self._save_seconds, self._size = (self._save_seconds[1], seconds), size
        self._since, self._look = (step, self._clock()), step + 1


def steps_until_save(steps: int, seconds: float, wanted: float) -> int:
    """Return the estimated number of steps until `wanted` seconds have passed; 0 if this time has already passed.

    The estimate assumes that the next steps are as fast as the last `steps` steps, which took `seconds`. The result is
    at most `steps`, because the time of a step is estimated from only a few steps.
    """
    return 0 if seconds >= wanted else min(steps, math.ceil((wanted - seconds) * steps / max(seconds, 1e-9)))


def steps_to_keep(steps: Sequence[int], settings: CheckpointConfig) -> set[int]:
    """Return the saved steps to keep: the newest, the last `keep` multiples of `every`, all multiples of `keep_period`.

    `steps` are the saved steps in ascending order; `keep`, `every` and `keep_period` are settings.
    """
    regular = [step for step in steps if step % (settings.every or 1) == 0]
    forever = [step for step in steps if settings.keep_period and step % settings.keep_period == 0]
    return {*steps[-1:], *regular[-settings.keep :], *forever}


class KeptSteps(NamedTuple):
    """`steps_to_keep` as a preservation policy of Orbax."""

    settings: CheckpointConfig

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Return, for each checkpoint, whether Orbax keeps it."""
        remaining = steps_to_keep([checkpoint.step for checkpoint in checkpoints], self.settings)
        return [checkpoint.step in remaining for checkpoint in checkpoints]


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    """Return False for log messages by Orbax, and by asyncio about a read operation of Orbax; else return True."""
    if record.name == "asyncio":
        return not ABANDONED_READ.search(str(record.msg))  # not formatted, since a filter must not raise an error
    return not ORBAX_PATH.search(record.pathname)


@functools.cache  # the function runs once per process
def _silence_orbax() -> None:
    """Suppress Orbax's messages about its defaults, about errors that it also raises, and about abandoned reads.

    Each message about an abandoned read would fill a page. Messages of the user's program stay.
    """
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_not_of_orbax)
    warnings.filterwarnings("ignore", "coroutine '_read_array.*' was never awaited", RuntimeWarning)
    report = sys.unraisablehook

    def report_others(unraisable: "sys.UnraisableHookArgs") -> None:
        dropped = getattr(unraisable.object, "__qualname__", "") == "_read_array_index_and_device_put"
        if not dropped and str(unraisable.exc_value) != "Event loop is closed":
            report(unraisable)

    sys.unraisablehook = report_others


class Restored(NamedTuple):
    """The state of a checkpoint, or only its parameters, and the record of the checkpoint."""

    state: Tree
    record: Record


class VerifiedCheckpoint(NamedTuple):
    """The record of an undamaged checkpoint, and the size of its state in bytes."""

    record: Record
    num_bytes: int


class NewestCheckpoint(NamedTuple):
    """The step, the state and the record of the newest undamaged checkpoint."""

    step: int
    state: Tree
    record: Record


class Checkpoints:
    """The checkpoints of a work directory, at `WORKDIR/checkpoints/STEP` or at the work directory's URL."""

    def __init__(self, workdir: pathlib.Path, settings: CheckpointConfig, read_only: bool = False) -> None:
        _silence_orbax()
        self.directory: Place = checkpoints_directory(workdir)
        if isinstance(self.directory, pathlib.Path):
            check_regular_files_below(self.directory)  # Orbax opens files of all steps, and would wait at a pipe
        self._mirror = mirror_of(workdir)
        self._copied = bool(
            self._mirror and self._mirror.copies_checkpoints
        )  # checkpoints are written to the local disk, then uploaded
        if self._mirror and self._copied:
            if jax.process_count() > 1:
                raise UserError(
                    f"{self._mirror.url}: several processes can write a checkpoint only to gs://; mount "
                    "the storage (mount-s3) and give the path there, or train with one process"
                )
            self._mirror.download_new_files()
        options = ocp.CheckpointManagerOptions(
            preservation_policy=None if read_only else KeptSteps(settings),
            read_only=read_only,
            create=not read_only,
            cleanup_tmp_directories=not read_only,
        )
        with checkpoint_errors_as_user_errors(self.directory):
            if not read_only:
                workdir.mkdir(parents=True, exist_ok=True)  # Orbax makes only the directory of the checkpoints
            self._manager = ocp.CheckpointManager(self.directory, options=options)
        # Each process reads separately: if a process finds damage, the others must not wait in a barrier inside Orbax.
        process = jax.process_index()
        self._alone = ocp.options.MultiprocessingOptions(
            primary_host=process, active_processes={process}, barrier_sync_key_prefix=f"process_{process}"
        )

    def complete_steps(self) -> list[int]:
        """Return the steps with a complete checkpoint, newest first; every process returns the result of process 0."""
        seen = sorted(self._manager.all_steps(), reverse=True)
        count = int(multihost_utils.broadcast_one_to_all(np.array(len(seen), np.int32)))
        steps = np.resize(np.array(seen or [0], np.int32), count)  # another process may see more or fewer steps
        return [int(step) for step in multihost_utils.broadcast_one_to_all(steps)]

    def save(self, step: int, state: Tree, record: Record) -> int:
        """Copy the state, write the copy in the background, and return its size in bytes.

        If checkpoints are uploaded from the local disk, the checkpoint is complete when this method returns.
        """
        record = record | {"step": step, "digests": digests(state), "versions": package_versions()}
        record["seal"] = _record_digest(record)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
        with checkpoint_errors_as_user_errors(self.directory):
            if self._mirror and jax.process_index() == 0:
                self._mirror.upload_changed_files()
            # On a full disk, TensorStore's threads would print a traceback for every array.
            if isinstance(self.directory, pathlib.Path) and shutil.disk_usage(self.directory).free < size + DISK_MARGIN:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._manager.save(
                step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), run=ocp.args.JsonSave(record))
            )
            if self._mirror and self._copied:
                self._manager.wait_until_finished()
                self._mirror.upload_changed_files()
        return size

    def wait(self) -> None:
        """Wait until the checkpoints are on disk; raise UserError if they cannot be written."""
        with checkpoint_errors_as_user_errors(self.directory):
            self._manager.wait_until_finished()

    def record(self, step: int) -> Record:
        """Return the record of a checkpoint; raise CorruptCheckpointError if the record is damaged."""
        return read_record(self.directory, step)

    def restore(self, step: int, abstract: Tree, check: Check = lambda record: None) -> Restored:
        """Return the state of a checkpoint, with the shapes, dtypes and shardings of `abstract`, and the record.

        The processes read different parts of the state, but must all resume from the same step. So if one process finds
        damage, every process raises CorruptCheckpointError. `check` gets the record before the arrays are read, because
        the arrays of a different run may have other shapes without being damaged.

        Raises:
            CorruptCheckpointError: the bytes differ from the saved bytes.
        """
        problem: CorruptCheckpointError | UserError | None = None
        record: Record = {}
        state: Tree = None
        self._download_state(step)
        try:
            record = self.record(step)
        except (CorruptCheckpointError, UserError) as error:
            problem = error
        _raise_on_all_processes(problem)
        check(record)
        try:
            reading = ocp.CheckpointManagerOptions(read_only=True, create=False, multiprocessing_options=self._alone)
            with contextlib.closing(ocp.CheckpointManager(self.directory, options=reading)) as reader:
                state = reader.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract)))
        except Exception as error:  # Orbax also raises the errors of its storage layers
            problem = _unreadable_part_error(self.directory / str(step), "state", error)
        _raise_on_all_processes(problem)
        _check_leaf_digests(record["digests"], digests(state["state"]))
        return Restored(state["state"], record)

    def restore_params(self, step: int) -> Restored:
        """Return the parameters of a checkpoint as complete numpy arrays on every process, and the checkpoint's record.

        If the state has a moving average of the parameters (`optimizer.ema_decay`), return the average. The structure
        and the shapes come from the checkpoint, so neither objective nor optimizer is needed. If any process finds that
        the bytes differ from the saved bytes, every process raises CorruptCheckpointError.
        """
        problem: CorruptCheckpointError | UserError | None = None
        params: Tree = None
        record: Record = {}
        self._download_state(step)
        try:
            record = self.record(step)
            part = AVERAGE if any(name.startswith(f"{AVERAGE}.") for name in record["digests"]) else "params"
            params = self._read_part(part.split("."), self.directory / str(step) / "state")
            saved = {name: digest for name, digest in record["digests"].items() if name.startswith(f"{part}.")}
            _check_leaf_digests(saved, {f"{part}.{name}": digest for name, digest in digests(params).items()})
        except (CorruptCheckpointError, UserError) as error:
            problem = error
        except Exception as error:  # Orbax also raises the errors of its storage layers
            problem = _unreadable_part_error(self.directory / str(step), "parameters", error)
        _raise_on_all_processes(problem)
        return Restored(params, record)

    def verify(self, step: int) -> VerifiedCheckpoint:
        """Compare the whole state of a checkpoint with its digests; return the record and the size of the state.

        Raises:
            CorruptCheckpointError: the bytes differ from the saved bytes.
        """
        self._download_state(step)
        record = self.record(step)
        try:
            state = self._read_part([], self.directory / str(step) / "state")
        except Exception as error:  # Orbax also raises the errors of its storage layers
            raise _unreadable_part_error(self.directory / str(step), "state", error) from error
        _check_leaf_digests(record["digests"], digests(state))
        return VerifiedCheckpoint(record, sum(leaf.nbytes for leaf in jax.tree.leaves(state)))

    def _download_state(self, step: int) -> None:
        """Download the arrays of a checkpoint if only the small files of the checkpoint are in the local copy."""
        if self._mirror and self._copied:
            self._mirror.download_state(self.directory / str(step))

    def _read_part(self, path: list[str], state_directory: Place) -> Tree:
        """Return the part of a state at `path`, a list of keys from the root; `state_directory` has its arrays."""
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=self._alone)
        with contextlib.closing(ocp.Checkpointer(handler, multiprocessing_options=self._alone)) as reader:
            metadata = reader.metadata(state_directory).item_metadata
            if metadata is None:
                raise CorruptCheckpointError("its metadata cannot be read")
            stored = functools.reduce(operator.getitem, path, metadata.tree)
            wanted = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), stored)
            for name in reversed(path):
                wanted = {name: wanted}
            as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
            args = ocp.args.PyTreeRestore(item=wanted, restore_args=as_numpy, partial_restore=True)
            return functools.reduce(operator.getitem, path, reader.restore(state_directory, args=args))

    def restore_newest(
        self, restore: Callable[[int], tuple[Tree, Record]], say: Callable[[str], None]
    ) -> NewestCheckpoint | None:
        """Restore the newest undamaged checkpoint; return None if there is no checkpoint.

        `restore` is a function that restores the checkpoint of a step, such as the method `restore_params`.

        Raises:
            UserError: every checkpoint is damaged, so the user must decide whether to start again.
        """
        steps = self.complete_steps()
        for step in steps:
            try:
                return NewestCheckpoint(step, *restore(step))
            except CorruptCheckpointError as error:
                say(f"checkpoint {self.directory / str(step)} is damaged ({error}); trying the checkpoint before it")
        if steps:
            raise UserError(
                f"{self.directory}: no undamaged checkpoint among {steps}; move the directory away to start over"
            )
        return None

    def set_later_checkpoints_aside(self, step: int) -> None:
        """Move the checkpoints after `step`, which are damaged, to `WORKDIR/damaged/`."""
        for newer in [saved for saved in self.complete_steps() if saved > step and jax.process_index() == 0]:
            _move_directory(self.directory / str(newer), self.directory.parent / "damaged" / str(newer))
        multihost_utils.sync_global_devices("checkpoints set aside")
        self._manager.reload()

    def close(self) -> None:
        """Wait for pending writes and release threads."""
        with checkpoint_errors_as_user_errors(self.directory):
            self._manager.close()


def _move_directory(source: Place, target: Place) -> None:
    """Move a directory on a disk or on object storage, and replace the target."""
    if isinstance(source, pathlib.Path):
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(exist_ok=True)
        shutil.move(source, target)
        return
    from bert_jax.readers import storage

    storage.remove(str(target))
    storage.move(str(source), str(target))


def saved_steps(directory: Place) -> list[int]:
    """Return the steps of the complete checkpoints in a directory, newest first, without asking other processes."""
    is_local = isinstance(directory, pathlib.Path)
    with contextlib.nullcontext() if is_local else checkpoint_errors_as_user_errors(directory, "listed"):
        paths = [path for path in directory.glob("*") if path.name.isdecimal()]
        return sorted((int(path.name) for path in paths if is_local or (path / COMMITTED).exists()), reverse=True)


def read_record(directory: Place, step: int) -> Record:
    """Return the record of the checkpoint `DIRECTORY/STEP`; raise CorruptCheckpointError if the record is damaged.

    If the record names a different step, the directory was renamed, and the checkpoint counts as damaged.
    """
    try:
        if isinstance(directory, pathlib.Path):
            check_regular_files_below(directory / str(step))
            _check_permissions_below(directory / str(step))
        record = ocp.JsonCheckpointHandler().restore(directory / str(step) / "run")
    except Exception as error:  # Orbax also raises the errors of its storage layers
        raise _unreadable_part_error(directory / str(step), "record", error) from error
    seal = record.pop("seal", None) if isinstance(record, dict) else None
    if seal is None or seal != _record_digest(record):
        raise CorruptCheckpointError("the digest of its record does not match")
    if record.get("step") != step:
        raise CorruptCheckpointError(f"it is the checkpoint of step {record.get('step')} under another name")
    return record


@contextlib.contextmanager
def checkpoint_errors_as_user_errors(directory: Place, verb: str = "written") -> Iterator[None]:
    """Turn OSErrors, TensorStore's ValueErrors about OSErrors, and errors of object storage into UserErrors.

    The argument `verb` completes the message "cannot be ...".
    """
    with errors.writing(directory, "make room, then start again: the run resumes after its last checkpoint"):
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # each package of object storage raises its own exceptions
            if not isinstance(directory, pathlib.Path):
                raise StorageError(
                    f"{directory}: cannot be {verb} ({_first_line_of_cause(error)}); check the storage and the "
                    "permissions, then start again: the run resumes after its last checkpoint"
                ) from error
            if not isinstance(error, ValueError):
                raise
            code = SYSTEM_ERROR.search(str(error))
            if not code:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def digests(tree: Tree) -> dict[str, str]:
    """Return path of a leaf -> digest of 64 bits in hex; the digest depends neither on the mesh nor on the layout.

    Any flipped bit changes the digest. Orbax 0.12 restores flipped bits without an error
    (docs/decisions/0005-training.md), so bert_jax adds digests to a checkpoint.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    sums = jax.device_get(_digests_of_leaves([leaf for _, leaf in leaves]))
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): "".join(f"{int(lane):08x}" for lane in lanes)
        for (path, _), lanes in zip(leaves, sums, strict=True)
    }


@jax.jit
def _digests_of_leaves(leaves: list[jax.Array]) -> list[jax.Array]:
    """Return the digests of several leaves, computed in one compiled program."""
    return [_leaf_digest(leaf) for leaf in leaves]


def _leaf_digest(x: jax.Array) -> jax.Array:
    """Return uint32 [2]: two hashes of (bits, index) that are injective in the bits, each summed over the elements.

    Both sums are computed in one reduction, because the time to compile grows with the number of reductions.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}")).astype(jnp.uint32)
    index = jnp.zeros(x.shape, jnp.uint32)
    for axis, size in enumerate(x.shape):
        index = index * np.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, x.shape, axis)
    salts = np.array([0x9E3779B9, 0x85EBCA6B], np.uint32).reshape(2, *(1 for _ in x.shape))
    mixed = bits ^ (index * salts)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = (mixed ^ (mixed >> shift)) * np.uint32(factor)
    return jnp.sum(mixed ^ (mixed >> 16), axis=range(1, mixed.ndim), dtype=jnp.uint32)  # on every process


def _check_permissions_below(checkpoint: pathlib.Path) -> None:
    """Raise PermissionError for a file that this user may not read; Orbax reports it like a file that is absent."""

    def refuse(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(checkpoint, onerror=refuse):
        for path in (os.path.join(folder, name) for name in names):
            if os.path.exists(path) and not os.access(path, os.R_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _unreadable_part_error(checkpoint: Place, part: str, error: Exception) -> CorruptCheckpointError | UserError:
    """Return the error for a part of a checkpoint that cannot be read: damage, or UserError if the bytes may be intact.

    A checkpoint without read permission, for example, must not be set aside as damaged.
    """
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, MemoryError) or "RESOURCE_EXHAUSTED" in str(cause):
            return UserError(f"{checkpoint}: not enough memory to read it; free memory, or use more devices")
        in_text = SYSTEM_ERROR.search(str(cause))
        code = cause.errno if isinstance(cause, OSError) else int(in_text[1]) if in_text else None
        if code in NOT_DAMAGE:
            path = getattr(cause, "filename", None) or checkpoint
            return errors.file_error(OSError(code, os.strerror(code)), path, "cannot be read")
        if REFUSED_READ.search(str(cause)):
            reason = _first_line_of_cause(error)
            return StorageError(f"{checkpoint}: cannot be read ({reason}); check the storage, then start again")
        cause = cause.__cause__ or cause.__context__
    return CorruptCheckpointError(f"its {part} cannot be read: {_first_line_of_cause(error)}")


def _raise_on_all_processes(problem: CorruptCheckpointError | UserError | None) -> None:
    """Raise an error on every process if any process has a problem, because all must resume from the same step.

    If the bytes may be intact on some process, every process raises UserError, so that no process sets the checkpoint
    aside.
    """
    is_damaged, is_refused = (
        multihost_utils.process_allgather(
            np.array([isinstance(problem, CorruptCheckpointError), isinstance(problem, UserError)])
        )
        .reshape(-1, 2)
        .T
    )
    if is_refused.any():
        first = np.flatnonzero(is_refused)[0]
        raise problem if isinstance(problem, UserError) else StorageError(f"process {first} cannot read a checkpoint")
    if is_damaged.any():
        raise problem or CorruptCheckpointError(f"process {np.flatnonzero(is_damaged)[0]} cannot read it")


def _check_leaf_digests(saved: dict[str, str], restored: dict[str, str]) -> None:
    """Raise CorruptCheckpointError if a leaf is missing, or if its digest differs from the saved digest."""
    wrong = sorted(name for name in saved.keys() | restored.keys() if saved.get(name) != restored.get(name))
    if wrong:
        raise CorruptCheckpointError(f"{len(wrong)} of its digests do not match, first the digest of {wrong[0]}")


def _record_digest(record: Record) -> str:
    """Return the hex SHA-256 of a record."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _first_line_of_cause(error: Exception) -> str:
    """Return a text with the class and the first line (at most 200 characters) of the cause of an error."""
    cause = error.__cause__ or error  # Orbax wraps TensorStore's message in a page about the array
    return f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0].partition(' [')[0][:200]}"


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that affect the results of a run."""
    names = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "grain", "array_record")
    return {name: importlib.metadata.version(name) for name in names}
