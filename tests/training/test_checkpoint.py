"""A checkpoint is restored bit for bit, or refused."""

import contextlib
import errno
import functools
import itertools
import logging
import math
import os
import pathlib
import subprocess
import sys

import absl.logging
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from bert_jax.config import CheckpointConfig
from bert_jax.errors import UserError
from bert_jax.training import checkpoint as cadence_module
from bert_jax.training.checkpoint import (
    CheckpointPolicy,
    Checkpoints,
    CorruptCheckpointError,
    digests,
    steps_to_keep,
    steps_until_save,
)


def state(seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    return {
        "w": jnp.asarray(rng.normal(size=(64, 33)), jnp.float32),
        "b": jnp.asarray(rng.normal(size=(7,)), jnp.float32),
        "step": jnp.asarray(seed, jnp.int32),
        "rng": jax.random.PRNGKey(seed),
    }


def abstract() -> dict:
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), state())


def save(workdir: pathlib.Path, *steps: int, keep: int = 3, keep_period: int = 0) -> Checkpoints:
    checkpoints = Checkpoints(workdir, CheckpointConfig(every=1, keep=keep, keep_period=keep_period))
    for step in steps:
        checkpoints.save(step, state(step), {"row": 10 * step})
    checkpoints.wait()
    return checkpoints


def test_round_trip_is_bit_identical(tmp_path: pathlib.Path) -> None:
    checkpoints = save(tmp_path, 5)
    restored, record = checkpoints.restore(5, abstract())
    for name, value in state(5).items():
        assert np.array_equal(np.asarray(restored[name]).view(np.uint32), np.asarray(value).view(np.uint32)), name
    assert record["row"] == 50
    assert record["versions"]["jax"] == jax.__version__
    checkpoints.close()


def test_keep_policy(tmp_path: pathlib.Path) -> None:
    checkpoints = save(tmp_path, 1, 2, 3, 4, 5, 6, keep=2, keep_period=3)
    assert checkpoints.complete_steps() == [6, 5, 3]
    checkpoints.close()


def test_between_multiples_of_every_the_newest_checkpoint_alone_is_kept() -> None:
    config = CheckpointConfig(every=10, keep=2, keep_period=15)
    assert steps_to_keep([10, 15, 20, 27, 30, 33, 38], config) == {15, 20, 30, 38}
    assert steps_to_keep([10, 20, 30], config) == {20, 30}
    assert steps_to_keep([3, 5, 8, 9], CheckpointConfig(every=None, keep=3)) == {5, 8, 9}


def test_the_clock_is_read_again_after_at_most_twice_the_steps() -> None:
    assert steps_until_save(steps=10, seconds=9.0, wanted=10.0) == 2
    assert steps_until_save(steps=10, seconds=4.0, wanted=10.0) == 10  # not 15
    assert steps_until_save(steps=10, seconds=10.0, wanted=10.0) == 0
    assert steps_until_save(steps=1, seconds=0.0, wanted=10.0) == 1


def clocked_saves(
    config: CheckpointConfig, step_seconds: float, save_seconds: float, steps: int, size: int = 0
) -> list[int]:
    """The steps that a run saves after, where steps and saves always take the same time."""
    now, saved = 0.0, []
    cadence = CheckpointPolicy(config, lambda: now)
    for step in range(1, steps + 1):
        now += step_seconds
        if cadence.is_due(step):
            now += save_seconds
            saved.append(step)
            cadence.record_save(step, save_seconds, size)
    return saved


@pytest.mark.parametrize(
    ("step_seconds", "save_seconds", "fraction", "gap"),
    [
        (1.0, 0.0625, 0.01, 10),
        (0.75, 0.125, 0.01, 17),
        (1.0, 0.5, 0.01, 50),
        (0.25, 2.0, 0.02, 400),
        (25.0, 0.125, 0.01, 1),
    ],
)
def test_saves_by_the_clock_take_their_fraction_of_the_time(
    step_seconds: float, save_seconds: float, fraction: float, gap: int
) -> None:
    """10 s apart, or the seconds of a save over the fraction, once two saves have shown them."""
    config = CheckpointConfig(every=None, max_time_fraction=fraction)
    zeroth, first, *others = clocked_saves(config, step_seconds, save_seconds, steps=5_000)
    assert zeroth == 1 + math.ceil(10 / step_seconds)
    assert first == zeroth + math.ceil(10 / step_seconds)
    assert {after - before for before, after in itertools.pairwise([first, *others])} == {gap}
    assert save_seconds * len(others) <= fraction * step_seconds * others[-1]


def test_large_checkpoints_write_ten_megabytes_a_second() -> None:
    saved = clocked_saves(CheckpointConfig(every=None), 1.0, 0.125, steps=1_000, size=1_300_000_000)
    assert [after - before for before, after in itertools.pairwise(saved)] == [130] * 7


def test_multiples_of_every_and_keep_period_are_saved_whatever_the_clock_says() -> None:
    config = CheckpointConfig(every=6, keep_period=10, max_time_fraction=None)
    assert clocked_saves(config, 100.0, 1.0, 24) == [6, 10, 12, 18, 20, 24]
    assert clocked_saves(CheckpointConfig(every=6), 1.0, 0.0, 20) == [6, 12, 18]
    assert clocked_saves(CheckpointConfig(every=16), 1.0, 0.0, 40) == [11, 16, 26, 32]


def test_the_clock_of_process_0_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process 1 has a clock that is ten times as fast, and saves after the same steps."""
    sent: list[np.ndarray] = []
    monkeypatch.setattr(cadence_module.multihost_utils, "broadcast_one_to_all", lambda x: sent.append(x) or x)
    rng, now = np.random.default_rng(0), 0.0
    cadence, fast = (
        CheckpointPolicy(CheckpointConfig(), lambda: now),
        CheckpointPolicy(CheckpointConfig(), lambda: 10 * now),
    )
    saved = 0
    for step in range(1, 300):
        now += rng.uniform(0.1, 2)
        before = len(sent)
        due = cadence.is_due(step)
        with monkeypatch.context() as patch:
            patch.setattr(cadence_module.multihost_utils, "broadcast_one_to_all", lambda x: sent.pop())
            assert fast.is_due(step) == due
        assert len(sent) == before  # each message was received
        if due:
            cadence.record_save(step, 0.1, 0)
            fast.record_save(step, 0.2, 0)
            saved += 1
    assert 20 <= saved <= 30


def test_every_single_bit_changes_the_digest() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, 500, dtype=np.uint32)
    good = digests({"x": jnp.asarray(words)})
    for _ in range(300):
        place, bit = rng.integers(500), rng.integers(32)
        flipped = words.copy()
        flipped[place] ^= np.uint32(1) << np.uint32(bit)
        assert digests({"x": jnp.asarray(flipped)}) != good
    swapped = words.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    assert digests({"x": jnp.asarray(swapped)}) != good


def test_digest_is_the_written_formula() -> None:
    """A plain-Python version of the two sums."""
    x = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    lanes = []
    for salt in (0x9E3779B9, 0x85EBCA6B):
        total = 0
        for index, bits in enumerate(x.view(np.uint32).ravel().tolist()):
            mixed = bits ^ (index * salt % 2**32)
            mixed = (mixed ^ (mixed >> 16)) * 0x7FEB352D % 2**32
            mixed = (mixed ^ (mixed >> 15)) * 0x846CA68B % 2**32
            total = (total + (mixed ^ (mixed >> 16))) % 2**32
        lanes.append(f"{total:08x}")
    assert digests({"x": jnp.asarray(x)}) == {"x": "".join(lanes)}


def test_a_flipped_bit_on_disk_falls_back_to_the_checkpoint_before(tmp_path: pathlib.Path) -> None:
    """Orbax alone restores most of these without an error; here each is detected, and none is used."""
    detected = 0
    for trial in range(12):
        workdir = tmp_path / str(trial)
        save(workdir, 1, 2).close()
        rng = np.random.default_rng(trial)
        files = sorted(
            (path for path in (workdir / "checkpoints" / "2" / "state").rglob("d/*") if path.is_file()),
            key=lambda path: -path.stat().st_size,
        )
        data = bytearray(files[0].read_bytes())
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        files[0].write_bytes(data)
        said: list[str] = []
        checkpoints = Checkpoints(workdir, CheckpointConfig())
        found = checkpoints.restore_newest(functools.partial(checkpoints.restore, abstract=abstract()), said.append)
        assert found is not None
        step, restored, _ = found
        assert digests(restored) == digests(state(step)), "a wrong state was taken for whole"
        if step == 1:
            detected += 1
            assert "checkpoints/2 is damaged" in said[0]
            checkpoints.set_later_checkpoints_aside(1)
            assert checkpoints.complete_steps() == [1]
            assert (workdir / "damaged" / "2").is_dir()
        checkpoints.close()
    assert detected >= 6, "the flips hit nothing that matters, so the test shows nothing"


def test_truncated_and_missing_files_are_damage(tmp_path: pathlib.Path) -> None:
    save(tmp_path, 1, 2).close()
    largest = max((tmp_path / "checkpoints" / "2" / "state").rglob("d/*"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:100])
    (tmp_path / "checkpoints" / "1" / "run" / "metadata").unlink()
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    with pytest.raises(UserError, match="no undamaged checkpoint"):
        checkpoints.restore_newest(functools.partial(checkpoints.restore, abstract=abstract()), said.append)
    assert len(said) == 2
    checkpoints.close()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "x/manifest"), "x/manifest: cannot be read"),
        (OSError(errno.ESTALE, "Stale file handle"), "checkpoints/2: cannot be read"),
        (ValueError("UNKNOWN: Error reading file [os_error_code='24']"), "ulimit -n"),
        (ValueError("UNAVAILABLE: Error reading from the bucket"), "UNAVAILABLE"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"), "not enough memory"),
        (ValueError("INTERNAL: Error reading file [os_error_code='5']"), None),  # EIO: a bad sector
        (ValueError("DATA_LOSS: Error decoding a chunk"), None),
    ],
)
@pytest.mark.parametrize("part", ["record", "state"])
def test_a_checkpoint_whose_bytes_may_be_intact_is_not_taken_for_damaged(tmp_path, monkeypatch, error, says, part):
    """`says` is None for damage, after which the checkpoint before is used."""
    save(tmp_path, 1, 2).close()
    owner, name = (ocp.JsonCheckpointHandler, "restore") if part == "record" else (ocp.CheckpointManager, "restore")
    real = getattr(owner, name)

    def restore(self, *arguments, **keywords):
        if arguments[0] == 2 or str(arguments[0]).endswith("checkpoints/2/run"):
            raise RuntimeError("a page of Orbax about the array") from error
        return real(self, *arguments, **keywords)

    monkeypatch.setattr(owner, name, restore)
    checkpoints, said = Checkpoints(tmp_path, CheckpointConfig()), list[str]()
    restore_step = functools.partial(checkpoints.restore, abstract=abstract())
    if says is None:
        found = checkpoints.restore_newest(restore_step, said.append)
        assert found is not None
        assert found[0] == 1
        assert "checkpoints/2 is damaged" in said[0]
    else:
        with pytest.raises(UserError, match=says):
            checkpoints.restore_newest(restore_step, said.append)
        assert not said
    checkpoints.close()


@pytest.mark.parametrize("part", ["run/metadata", "state/manifest.ocdbt"])
def test_a_file_without_read_permission_is_named(tmp_path, monkeypatch, part):
    save(tmp_path, 1, 2).close()
    path, access = tmp_path / "checkpoints" / "2" / part, os.access
    assert path.is_file()
    monkeypatch.setattr(os, "access", lambda name, mode: os.fspath(name) != str(path) and access(name, mode))
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    for restore_step in (functools.partial(checkpoints.restore, abstract=abstract()), checkpoints.restore_params):
        with pytest.raises(UserError, match=f"{path}: cannot be read"):
            checkpoints.restore_newest(restore_step, print)
    checkpoints.close()


@pytest.mark.parametrize(
    ("mine", "theirs", "raised"),
    [
        (None, (False, False), None),
        (None, (True, False), CorruptCheckpointError),
        (None, (False, True), UserError),
        (CorruptCheckpointError("x"), (False, True), UserError),
        (UserError("x"), (True, False), UserError),
        (CorruptCheckpointError("x"), (False, False), CorruptCheckpointError),
    ],
)
def test_all_processes_agree_whether_a_checkpoint_is_damaged(monkeypatch, mine, theirs, raised):
    gather = cadence_module.multihost_utils
    monkeypatch.setattr(gather, "process_allgather", lambda own: np.stack([own, np.array(theirs)]))
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        cadence_module._raise_on_all_processes(mine)


DAMAGED_READS = """
import pathlib, sys
sys.path.insert(0, "")  # also if PYTHONSAFEPATH is set
import test_checkpoint
from bert_jax.training.checkpoint import Checkpoints, CorruptCheckpointError
from bert_jax.config import CheckpointConfig
checkpoints = Checkpoints(pathlib.Path(sys.argv[1]), CheckpointConfig())
for _ in range(30):
    try:
        checkpoints.restore(1, test_checkpoint.many_arrays())
    except CorruptCheckpointError as error:
        print(error)
checkpoints.close()
"""


def test_a_pipe_in_any_place_of_a_checkpoint_is_refused(tmp_path: pathlib.Path) -> None:
    """Orbax would wait for a writer without end."""
    save(tmp_path, 1, 2).close()
    for path in [path for path in (tmp_path / "checkpoints").rglob("*") if path.is_file()]:
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(UserError, match=f"{path}: a pipe, not a file; replace it by a file, or remove it"):
            Checkpoints(tmp_path, CheckpointConfig(), read_only=True)
        path.unlink()
        path.write_bytes(content)
    Checkpoints(tmp_path, CheckpointConfig(), read_only=True).close()


def many_arrays() -> dict:
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return {f"w{i}": jax.ShapeDtypeStruct((300, 333), jnp.float32, sharding=device) for i in range(30)}


def test_damage_in_every_array_is_reported_in_one_line(tmp_path: pathlib.Path) -> None:
    """Orbax drops the other reads when one fails: asyncio, Python and TensorStore have nothing to add to stderr."""
    rng = np.random.default_rng(0)
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    checkpoints.save(1, {name: jnp.asarray(rng.normal(size=x.shape), x.dtype) for name, x in many_arrays().items()}, {})
    checkpoints.close()
    for file in (tmp_path / "checkpoints" / "1" / "state").rglob("d/*"):
        if file.stat().st_size > 100_000:
            file.write_bytes(file.read_bytes()[:100])
    command = [sys.executable, "-c", DAMAGED_READS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=pathlib.Path(__file__).parent, check=True)
    assert len(done.stdout.splitlines()) == 30
    assert all("OUT_OF_RANGE" in line for line in done.stdout.splitlines())
    assert done.stderr == ""


def test_a_checkpoint_leaves_the_log_of_the_users_program(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 1).close()
    absl.logging.warning("a warning of a program of absl")
    logging.getLogger("asyncio").error("an error of a server")
    assert caplog.messages == ["a warning of a program of absl", "an error of a server"]
    for name in ("absl", "asyncio"):  # a wrong call of a program is reported by the handler, and raises nothing
        logging.getLogger(name).filter(logging.LogRecord(name, logging.ERROR, "mine.py", 1, "%d", ("one",), None))


def test_an_empty_directory_is_not_an_error(tmp_path: pathlib.Path) -> None:
    checkpoints = Checkpoints(tmp_path, CheckpointConfig())
    assert checkpoints.restore_newest(lambda step: checkpoints.restore(step, abstract()), print) is None
    checkpoints.close()


def test_a_changed_record_is_damage(tmp_path: pathlib.Path) -> None:
    """The JSON beside the state has a digest too: no digit of it changes unseen."""
    save(tmp_path, 1).close()
    place = tmp_path / "checkpoints" / "1" / "run" / "metadata"
    good = place.read_text()
    for bad in (good.replace('"row": 10', '"row": 11'), good.replace('"digests"', '"digestz"'), "[]", "{"):
        assert bad != good
        place.write_text(bad)
        checkpoints = Checkpoints(tmp_path, CheckpointConfig(), read_only=True)
        with pytest.raises(CorruptCheckpointError):
            checkpoints.restore(1, abstract())
        checkpoints.close()
