"""A run on object storage where Orbax cannot write: checkpoints go through the local disk, in fsspec's memory here."""

import json
import pathlib
from collections.abc import Iterator

import fsspec
import pytest

from bert_jax import files
from bert_jax.cli.main import main
from bert_jax.errors import StorageError
from bert_jax.readers import storage
from bert_jax.training import checkpoint
from bert_jax.training import remote_workdir as module
from bert_jax.training.metrics import TIMED
from bert_jax.training.remote_workdir import COMMITTED, Mirror
from tests.helpers.commands import World, make_world, pretrain_command

URL = "memory://bucket/runs/base"
STEPS = "--config.train.steps=6"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Texts, tokenizer, corpus, recipe, and a run of 6 steps on the local disk."""
    return make_world(tmp_path_factory.mktemp("world"), STEPS)


@pytest.fixture(autouse=True)
def memory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """An empty object storage."""
    another_machine(tmp_path, monkeypatch)
    monkeypatch.setattr(files, "RUN_SCHEMES", ("memory",))
    monkeypatch.setattr(storage, "FIRST_PAUSE", 0.0)
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def another_machine(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and no copy that this process knows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "cache"))
    monkeypatch.setattr(module, "_open", [])


def command(world: World, *more: str) -> list[str]:
    return pretrain_command(world, URL, STEPS, *more)  # type: ignore[arg-type]


def remote() -> dict[str, bytes]:
    system = fsspec.filesystem("memory")
    return {path.removeprefix("/bucket/runs/base/"): system.cat_file(path) for path in system.find(URL)}


def steps() -> list[int]:
    return sorted(int(name.split("/")[1]) for name in remote() if name.count("/") == 2 and name.endswith(COMMITTED))


def metrics(content: bytes) -> list[dict]:
    """Without what the clock measured."""
    found = [json.loads(line) for line in content.splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMED} for line in found]


def check_same_run(world: World, tmp_path: pathlib.Path) -> None:
    """Metrics and weights are those of the undisturbed run on the local disk."""
    assert metrics(remote()["metrics.jsonl"]) == metrics((world.run / "metrics.jsonl").read_bytes())
    weights = []
    for place, name in ((URL, "theirs"), (world.run, "ours")):
        assert main(["export", "--workdir", str(place), "--output", str(tmp_path / name)]) == 0
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_a_run_equals_a_run_on_the_local_disk_and_every_verb_reads_it(world, tmp_path, monkeypatch, capsys) -> None:
    assert main(command(world)) == 0
    assert steps() == sorted(int(path.name) for path in (world.run / "checkpoints").iterdir())
    assert {"run.json", "tokenizer/SHA256SUMS", "owner"} <= remote().keys()
    another_machine(tmp_path / "another", monkeypatch)
    check_same_run(world, tmp_path)
    assert main(["verify", URL]) == 0
    assert main(["evaluate", "--workdir", URL]) == 0
    assert main(["fill-mask", "--model", URL, "ab [MASK]"]) == 0
    assert main(["report", URL, "--output", str(tmp_path / "report.html")]) == 0
    assert str(tmp_path / "another") not in capsys.readouterr().err
    assert main(command(world)) == 0  # finished: nothing left to do
    assert f"{URL}, use another --workdir" in capsys.readouterr().err


@pytest.mark.parametrize("lost", [COMMITTED, pytest.param("state/manifest.ocdbt", marks=pytest.mark.slow)])
def test_a_run_that_ends_while_a_checkpoint_is_uploaded_resumes_before_it(
    world, tmp_path, monkeypatch, capsys, lost
) -> None:
    upload = storage.upload

    def fails(path: pathlib.Path, url: str) -> None:
        if url.endswith(f"checkpoints/4/{lost}"):
            raise StorageError(f"{url}: cannot be reached")
        upload(path, url)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "upload", fails)
        assert main(command(world)) == 1
    assert f"checkpoints/4/{lost}: cannot be reached" in capsys.readouterr().err
    assert steps() == [2]
    cut_off = {name for name in remote() if name.startswith("checkpoints/4/state/") and "/d/" in name}  # random names
    assert cut_off
    another_machine(tmp_path / "another", monkeypatch)
    assert main(command(world)) == 0
    assert "resuming at step 2" in capsys.readouterr().err
    assert cut_off.isdisjoint(remote())
    check_same_run(world, tmp_path)


@pytest.mark.slow
def test_another_machine_keeps_the_choice_of_the_budget(world, tmp_path, monkeypatch, capsys) -> None:
    # Words that a budget chooses are left out.
    words = [word for word in command(world) if "steps" not in word and "batch" not in word and ".model." not in word]
    words += ["--budget", "20K tokens", "--config.evaluate.num_sequences=64"]
    assert main(words) == 0, capsys.readouterr().err
    chosen = remote()["budget.json"]
    another_machine(tmp_path / "another", monkeypatch)
    assert main(words) == 0
    assert "as chosen when the run began" in capsys.readouterr().err
    assert remote()["budget.json"] == chosen


@pytest.mark.slow
def test_damaged_checkpoints_are_set_aside(world, memory, tmp_path, monkeypatch, capsys) -> None:
    assert main(command(world)) == 0
    arrays = {name: len(content) for name, content in remote().items() if name.startswith("checkpoints/6/state/d/")}
    largest = f"{URL}/{max(arrays, key=arrays.__getitem__)}"
    damaged = bytearray(memory.cat_file(largest))
    damaged[len(damaged) // 2] ^= 1
    memory.pipe_file(largest, bytes(damaged))
    another_machine(tmp_path / "another", monkeypatch)
    capsys.readouterr()
    assert main(["verify", URL]) == 1
    assert f"{URL}/checkpoints/6: " in capsys.readouterr().out
    assert main(command(world)) == 0
    assert "resuming at step 4" in capsys.readouterr().err
    assert any(name.startswith("damaged/6/state/") for name in remote())
    check_same_run(world, tmp_path)


def test_a_restart_downloads_the_arrays_of_the_newest_checkpoint_alone(world, tmp_path, monkeypatch, capsys) -> None:
    upload, download, downloaded = storage.upload, storage.download, set[str]()

    def fails(path: pathlib.Path, url: str) -> None:
        if url.endswith(f"checkpoints/6/{COMMITTED}"):
            raise StorageError(f"{url}: cannot be reached")
        upload(path, url)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "upload", fails)
        assert main(command(world)) == 1
    assert steps() == [2, 4]
    another_machine(tmp_path / "another", monkeypatch)
    monkeypatch.setattr(storage, "download", lambda url, path: (downloaded.add(url), download(url, path))[1])
    assert main(command(world, "--config.checkpoint.keep=1")) == 0
    assert "resuming at step 4" in capsys.readouterr().err
    arrays = {url.removeprefix(f"{URL}/").partition("/state/")[0] for url in downloaded if "/state/" in url}
    assert arrays == {"checkpoints/4"}
    # The arrays of removed checkpoints are removed, whether they were downloaded or not.
    assert {name.split("/")[1] for name in remote() if name.startswith("checkpoints/")} == {"6"}
    check_same_run(world, tmp_path)


def test_several_processes_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(checkpoint.jax, "process_count", lambda: 2)
    Mirror(URL)
    with pytest.raises(files.UserError, match="several processes can write a checkpoint only to gs://"):
        checkpoint.Checkpoints(module.local_copy(URL), None)  # type: ignore[arg-type]


def test_the_arrays_are_copied_for_those_alone_who_read_them(memory) -> None:
    for name in ("run.json", "checkpoints/2/run/metadata", "checkpoints/2/state/d/1", f"checkpoints/2/{COMMITTED}"):
        memory.pipe_file(f"{URL}/{name}", b"x")
    for name in ("checkpoints/4/run/metadata", "checkpoints/4/state/d/1", "logs/host.log", "damaged/1/run/metadata"):
        memory.pipe_file(f"{URL}/{name}", b"x")
    mirror = Mirror(URL)

    def local() -> set[str]:
        return {one.relative_to(mirror.directory).as_posix() for one in mirror.directory.rglob("*") if one.is_file()}

    mirror.download_new_files()
    small = {"run.json", "checkpoints/2/run/metadata", f"checkpoints/2/{COMMITTED}"}
    assert local() == small  # step 4 is not whole
    mirror.download_state(mirror.directory / "checkpoints" / "2")
    whole = small | {"checkpoints/2/state/d/1"}
    assert local() == whole
    (mirror.directory / "checkpoints/2/state/d/1").unlink()  # as Orbax does before an upload that fails
    (mirror.directory / "run.json").unlink()
    mirror.download_new_files()
    assert local() == small
    mirror.download_state(mirror.directory / "checkpoints" / "2")
    mirror.download_new_files()
    assert local() == whole
    memory.pipe_file(f"{URL}/checkpoints/2/state/d/1", b"another run")
    mirror.download_new_files()
    assert local() == small  # the old arrays are gone


def test_the_mark_of_a_checkpoint_is_uploaded_last_and_removed_first(memory, monkeypatch) -> None:
    order: list[str] = []
    for name in ("upload", "remove"):
        real = getattr(storage, name)
        monkeypatch.setattr(
            storage, name, lambda *words, real=real, name=name: (order.append(f"{name} {words[-1]}"), real(*words))
        )
    mirror = Mirror(URL)
    place = mirror.directory / "checkpoints"
    with mirror.as_owner():
        for name in ("2/run/metadata", "2/state/d/1", f"2/{COMMITTED}", "4.orbax-checkpoint-tmp/run/metadata"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("x")
        mirror.upload_changed_files()
        assert order[-1] == f"upload {URL}/checkpoints/2/{COMMITTED}"
        assert len(order) == 3
        for path in sorted((place / "2").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (place / "2").rmdir()
        mirror.upload_changed_files()
        assert order[3] == f"remove {URL}/checkpoints/2/{COMMITTED}"
    assert set(remote()) == {"owner"}
