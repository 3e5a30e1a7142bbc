"""A run at gs://: bit for bit that on the local disk, killed, taken over, damaged, and with a storage that fails."""

import json
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import jax
import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.readers import storage
from bert_jax.training.metrics import TIMED
from tests.gcs.bucket import Bucket
from tests.gcs.conftest import STEPS
from tests.helpers.commands import World, pretrain_command

URL, PLACE = "gs://bucket/runs/base", "runs/base"
MARK = "commit_success.txt"
PEERS = "--coordinator {} --num_processes 2 --process_id {}"


def command(world: World, *more: str) -> list[str]:
    return pretrain_command(world, URL, STEPS, *more)  # type: ignore[arg-type]


def lines(content: bytes) -> list[dict]:
    """The metrics without what the clock measured."""
    found = [json.loads(line) for line in content.splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMED} for line in found]


def params(place: str | pathlib.Path) -> dict[str, np.ndarray]:
    """Read with Orbax alone."""
    import orbax.checkpoint as ocp
    from etils import epath

    path = epath.Path(str(place)) / "checkpoints" / "6" / "state"
    with warnings.catch_warnings(action="ignore"):  # of Orbax: read as it was written
        return ocp.PyTreeCheckpointer().restore(path)


def check_same_run(world: World, bucket: Bucket) -> None:
    """State and metrics at the URL are those of the undisturbed run on the local disk."""
    ours, theirs = params(URL), params(world.run)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert all(map(np.array_equal, jax.tree.leaves(ours), jax.tree.leaves(theirs)))
    expected = (world.run / "metrics.jsonl").read_bytes()
    assert lines(bucket.files(PLACE)["metrics.jsonl"]) == lines(expected)


def started(world: World, bucket: Bucket, cache: pathlib.Path, *more: str) -> subprocess.Popen:
    """The run as a process of another machine."""
    environment = bucket.process_environment(cache)
    argv = [sys.executable, "-m", "bert_jax", *command(world, *more)]
    return subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def commits(bucket: Bucket) -> list[str]:
    return [name for name in bucket.files(PLACE) if name.count("/") == 2 and name.endswith(MARK)]


def test_a_run_equals_a_run_on_the_local_disk_and_every_verb_reads_it(world, bucket, tmp_path, capsys) -> None:
    assert main(command(world)) == 0
    check_same_run(world, bucket)
    assert {"run.json", "requirements.lock", "tokenizer/SHA256SUMS", "owner"} <= bucket.files(PLACE).keys()
    (tmp_path / "sentence").write_text("Ab cd.\n")
    capsys.readouterr()
    outputs = []
    for place, name in ((URL, "theirs"), (world.run, "ours")):
        assert main(["evaluate", "--workdir", str(place), "--json"]) == 0
        assert main(["export", "--workdir", str(place), "--output", str(tmp_path / name)]) == 0
        outputs.append([capsys.readouterr().out, (tmp_path / name / "model.safetensors").read_bytes()])
    assert outputs[0] == outputs[1]
    assert main(["export", "--workdir", URL, "--output", "gs://bucket/model"]) == 0
    assert "-> gs://bucket/model" in capsys.readouterr().err
    names = {path.relative_to(tmp_path / "ours").as_posix() for path in (tmp_path / "ours").rglob("*")}
    assert bucket.files("model").keys() == names
    assert main(["export", "--workdir", URL, "--output", "gs://bucket/model"]) == 2
    assert "gs://bucket/model exists already" in capsys.readouterr().err
    assert main(["fill-mask", "--model", "gs://bucket/model", "ab [MASK]"]) == 0
    assert main(["verify", URL]) == 0
    assert main(["fill-mask", "--model", URL, "ab [MASK]"]) == 0
    assert main(["report", URL, "--output", str(tmp_path / "report.html")]) == 0
    assert "runs/base" in (tmp_path / "report.html").read_text()
    assert str(tmp_path / "cache") not in capsys.readouterr().err
    assert main(command(world)) == 0  # finished: nothing left to do
    assert f"{URL}, use another --workdir" in capsys.readouterr().err


@pytest.mark.parametrize("commit", ["2", "4"])
def test_a_killed_run_resumes_on_another_machine_bit_for_bit(world, bucket, tmp_path, capsys, commit) -> None:
    """Killed in the middle of a checkpoint, whose last file never came; once before any was complete."""
    bucket.fail(f"POST.*checkpoints/{commit}/{MARK}")
    process = started(world, bucket, tmp_path / "elsewhere")
    wait_for(lambda: any(left < -1 for _, left in bucket.failing), process)
    process.kill()
    process.communicate()
    bucket.failing.clear()
    assert (f"checkpoints/{commit}/{MARK}" in bucket.files(PLACE)) is False
    assert main(command(world)) == 0
    assert ("resuming at step 2" in capsys.readouterr().err) is (commit == "4")
    check_same_run(world, bucket)


def test_sigterm_saves_and_the_same_command_resumes(world, bucket, tmp_path, capsys) -> None:
    process = started(world, bucket, tmp_path / "elsewhere", "--config.train.log_every=1")
    wait_for(lambda: bool(commits(bucket)), process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0
    assert main(command(world)) == 0
    check_same_run(world, bucket)


def test_two_processes_write_their_parts_and_one_resumes_them(world, bucket, tmp_path, capsys) -> None:
    """Each has its own cache, as two hosts have; the second run finds a checkpoint of two processes."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{sock.getsockname()[1]}"
    bucket.fail(f"POST.*checkpoints/6/{MARK}")
    mesh = ["--config.mesh.fsdp=2", "--config.mesh.data=1"]
    processes = [
        started(world, bucket, tmp_path / f"host{number}", *mesh, *PEERS.format(address, number).split())
        for number in range(2)
    ]
    wait_for(lambda: any(left < -1 for _, left in bucket.failing), processes[0])
    for process in processes:
        process.kill()
        process.communicate()
    bucket.failing.clear()
    assert any("state/ocdbt.process_1" in name for name in bucket.files(PLACE))
    assert main(command(world)) == 0
    assert "resuming at step 4" in capsys.readouterr().err
    theirs = lines((world.run / "metrics.jsonl").read_bytes())
    ours = lines(bucket.files(PLACE)["metrics.jsonl"])
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    # Sums in another order, as in tests/parallel.
    assert [line["loss"] for line in ours] == pytest.approx([line["loss"] for line in theirs], rel=0, abs=1e-5)


def test_damaged_and_renamed_checkpoints_are_skipped_and_set_aside(world, bucket, capsys) -> None:
    assert main(command(world)) == 0
    largest = max(
        (name for name in bucket.files(PLACE) if name.startswith("checkpoints/6/state/d/")),
        key=lambda name: len(bucket.files(PLACE)[name]),
    )
    damaged = bytearray(bucket.files(PLACE)[largest])
    damaged[len(damaged) // 2] ^= 1
    bucket.write(f"{PLACE}/{largest}", bytes(damaged))
    del bucket.objects[f"{PLACE}/checkpoints/4/run/metadata"]
    capsys.readouterr()
    assert main(["verify", URL]) == 1
    found = capsys.readouterr().out
    assert f"{URL}/checkpoints/6: " in found
    assert f"{URL}/checkpoints/4: " in found
    assert main(command(world)) == 0
    said = capsys.readouterr().err
    assert f"checkpoint {URL}/checkpoints/6 is damaged" in said
    assert f"resuming at step 2 from {URL}/checkpoints/2" in said
    assert f"damaged/6/{MARK}" in bucket.files(PLACE)
    check_same_run(world, bucket)


def test_the_process_that_was_replaced_stops_before_its_next_checkpoint(world, bucket, capsys) -> None:
    assert main(command(world)) == 0
    for name in [name for name in bucket.objects if "/checkpoints/4" in name or "/checkpoints/6" in name]:
        del bucket.objects[name]
    real = storage.write_bytes

    def replaced(content: bytes, url: str) -> None:
        real(content, url)
        if url.endswith("/owner"):
            bucket.write(f"{PLACE}/owner", b"0123 other-host 77")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "write_bytes", replaced)
        before = bucket.files(PLACE)
        capsys.readouterr()
        assert main(command(world)) == 2
    said = capsys.readouterr().err
    assert f"{URL}: another process trains here since (host and process other-host 77)" in said
    assert "Traceback" not in said
    assert {**bucket.files(PLACE), "owner": b""} == {**before, "owner": b""}  # it wrote nothing more
    assert main(command(world)) == 0
    check_same_run(world, bucket)


def test_a_storage_that_fails_for_a_while_delays_the_run(world, bucket, monkeypatch, capsys) -> None:
    monkeypatch.setattr(storage, "FIRST_PAUSE", 0.0)
    for pattern in ("GET.*prefix=runs/base", "uploadType=multipart", "POST.*manifest.ocdbt", f"POST.*{MARK}"):
        bucket.fail(pattern, times=2)
    assert main(command(world)) == 0
    assert all(left == 0 for _, left in bucket.failing)
    check_same_run(world, bucket)


def test_a_storage_that_stays_away_ends_the_run_with_a_message(world, bucket, monkeypatch, capsys) -> None:
    monkeypatch.setattr(storage, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr("gcsfs.retry.asyncio.sleep", _at_once)
    bucket.fail("prefix=runs/base")
    assert main(command(world)) == 1
    assert f"{URL}: cannot be reached (" in capsys.readouterr().err
    bucket.failing.clear()
    bucket.fail(f"POST.*{MARK}")
    assert main(command(world)) == 1
    said = capsys.readouterr().err
    assert f"{URL}/checkpoints: cannot be written (" in said
    assert "Traceback" not in said
    bucket.failing.clear()
    assert main(command(world)) == 0
    check_same_run(world, bucket)


async def _at_once(seconds: float) -> None:
    """Sleep no longer."""


def test_another_run_and_a_corpus_are_refused_as_on_the_local_disk(world, bucket, capsys) -> None:
    assert main(command(world)) == 0
    before = bucket.files(PLACE)
    assert main(command(world, "--config.seed=7")) == 2
    assert f"{URL} holds a run that differs (seed: 0 -> 7)" in capsys.readouterr().err
    bucket.write("corpus/manifest.json", b"{}")
    assert main(["evaluate", "--workdir", "gs://bucket/corpus"]) == 2
    assert "gs://bucket/corpus holds a corpus" in capsys.readouterr().err
    assert main(["evaluate", "--workdir", "gs://bucket/nothing"]) == 2
    assert "gs://bucket/nothing: no run here" in capsys.readouterr().err
    assert {**bucket.files(PLACE), "owner": b""} == {**before, "owner": b""}


FINETUNING = """
from bert_jax.config.recipes import finetuning


def get_config():
    config = finetuning(epochs=2, batch_size=8, learning_rate=3e-3, max_seq_len=24)
    config.task.update(name="custom", kind="sequence_classification", labels="no,yes", buckets=(24,))
    config.task.update(train="train.jsonl", dev="dev.jsonl")
    config.checkpoint.every = 2
    return config
"""


def test_fine_tuning_from_a_url_to_a_url_resumes_with_the_same_scores(world, bucket, tmp_path, capsys) -> None:
    """Killed in a checkpoint after the first evaluation, whose best model is at the URL by then."""
    (tmp_path / "task.py").write_text(FINETUNING)
    rng = random.Random(0)
    for split, count in (("train", 32), ("dev", 16)):
        texts = [" ".join(rng.choices(["ab", "cd", "ef"], k=5)) for _ in range(count)]
        records = [{"text": text, "label": ("no", "yes")[text.count("ab") > 1]} for text in texts]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    argv = ["finetune", f"--config={tmp_path / 'task.py'}", f"--config.task.data={tmp_path}", "--json"]
    assert main([*argv, f"--config.init_from={world.run}", f"--workdir={tmp_path / 'undisturbed'}"]) == 0
    theirs = json.loads(capsys.readouterr().out)

    assert main(command(world)) == 0
    argv += [f"--config.init_from={URL}", "--workdir=gs://bucket/task"]
    bucket.fail(f"POST.*runs/lr.*/checkpoints/6/{MARK}")
    environment = bucket.process_environment(tmp_path / "elsewhere")
    process = subprocess.Popen(
        [sys.executable, "-m", "bert_jax", *argv], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    wait_for(lambda: any(left < -1 for _, left in bucket.failing), process)
    process.kill()
    process.communicate()
    bucket.failing.clear()
    assert any("/best-4/SHA256SUMS" in name for name in bucket.files("task"))
    capsys.readouterr()
    assert main(argv) == 0
    said = capsys.readouterr()
    assert "resuming at step 4 from gs://bucket/task/runs/" in said.err
    ours = json.loads(said.out.splitlines()[-1])
    assert (ours["best"], ours["runs"]) == (theirs["best"], theirs["runs"])
    assert {"results.json", "model/SHA256SUMS"} <= bucket.files("task").keys()
    weights = (tmp_path / "undisturbed" / "model" / "model.safetensors").read_bytes()
    assert bucket.files("task")["model/model.safetensors"] == weights
    (tmp_path / "texts.txt").write_text("ab ab cd\n")
    assert main(["predict", "--model=gs://bucket/task", f"--input={tmp_path / 'texts.txt'}", "--output=-"]) == 0


def test_orbax_can_write_to_gs_and_not_to_s3() -> None:
    """Why s3:// is refused: when this fails, Orbax has learned it."""
    from orbax.checkpoint._src.serialization.tensorstore_utils import build_kvstore_tspec

    assert build_kvstore_tspec("gs://bucket/x", name="a")["base"]["driver"] == "gcs"
    with pytest.raises(ValueError, match="path should be absolute"):
        build_kvstore_tspec("s3://bucket/x", name="a")
