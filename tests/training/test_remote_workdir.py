"""The mirror of a run on object storage: copies, uploads, removals, and a storage that fails."""

import contextlib
import itertools
import pathlib
from collections.abc import Iterator

import fsspec
import pytest

from bert_jax.cli.main import main
from bert_jax.errors import UserError
from bert_jax.readers import storage
from bert_jax.training import remote_workdir as module
from bert_jax.training.remote_workdir import Mirror, local_copy, mirror_of

URL = "memory://bucket/runs/base"


@pytest.fixture(autouse=True)
def memory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """An empty object storage, and an empty cache of this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_open", [])
    monkeypatch.setattr(module, "ORBAX_WRITES", ("memory://",))
    monkeypatch.setattr(module, "SHOWN", {})
    monkeypatch.setattr(storage, "FIRST_PAUSE", 0.0)
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def written(**files: str) -> None:
    for name, text in files.items():
        fsspec.filesystem("memory").pipe_file(f"{URL}/{name}", text.encode())


def remote() -> dict[str, str]:
    system = fsspec.filesystem("memory")
    return {path.removeprefix("/bucket/runs/base/"): system.cat_file(path).decode() for path in system.find(URL)}


def local(mirror: Mirror) -> dict[str, str]:
    paths = (path for path in mirror.directory.rglob("*") if path.is_file())
    return {path.relative_to(mirror.directory).as_posix(): path.read_text() for path in paths}


def test_small_files_are_copied_and_checkpoints_are_not() -> None:
    written(**{"run.json": "a", "runs/lr1_seed0/metrics.jsonl": "b", "owner": "c"})
    written(**{"checkpoints/2/run/metadata": "d", "runs/lr1_seed0/checkpoints/2/x": "e", "damaged/4/x": "f"})
    written(**{"logs/host.log": "g"})
    mirror = Mirror(URL)
    mirror.download_new_files()
    assert local(mirror) == {"run.json": "a", "runs/lr1_seed0/metrics.jsonl": "b"}
    assert mirror_of(mirror.directory / "runs" / "lr1_seed0") is mirror
    assert mirror_of(mirror.directory.parent) is None


def test_a_later_fetch_copies_new_files_and_removes_deleted_files(memory, monkeypatch) -> None:
    written(**{"run.json": "a", "metrics.jsonl": "b", "tensorboard/old": "c"})
    mirror = Mirror(URL)
    mirror.download_new_files()
    written(**{"metrics.jsonl": "bb"})
    memory.rm_file(f"{URL}/tensorboard/old")
    copied, get = [], storage.download
    monkeypatch.setattr(storage, "download", lambda url, path: copied.append(url) or get(url, path))
    mirror.download_new_files()
    assert copied == [f"{URL}/metrics.jsonl"]
    assert local(mirror) == {"run.json": "a", "metrics.jsonl": "bb"}


def test_a_fetch_drops_local_files_of_a_failed_run() -> None:
    written(**{"run.json": "a"})
    mirror = Mirror(URL)
    mirror.download_new_files()
    with contextlib.suppress(UserError), mirror.as_owner():
        (mirror.directory / "run.json").write_text("changed")
        (mirror.directory / "metrics.jsonl").write_text("line")
        raise UserError("nan")
    mirror.download_new_files()
    assert local(mirror) == {"run.json": "a"}


def test_an_object_whose_name_leads_out_of_the_directory_is_refused() -> None:
    written(**{"run.json": "a", "../../../outside": "b"})
    mirror = Mirror(URL)
    with pytest.raises(UserError, match="outside' is not a valid file name"):
        mirror.download_new_files()
    assert not list(mirror.directory.parents[4].rglob("outside"))


def test_directories_that_a_killed_process_left_half_uploaded_are_not_there() -> None:
    whole = {"model/config.json": "a", "model/1_Pooling/config.json": "b", "model/SHA256SUMS": "c"}
    written(**whole, **{"tokenizer/vocab.txt": "d", "runs/lr1_seed0/best-4/config.json": "e", "predictions/x": "f"})
    mirror = Mirror(URL)
    mirror.download_new_files()
    assert local(mirror) == whole | {"predictions/x": "f"}


def test_the_owner_uploads_changed_files_and_the_sums_of_a_directory_last(monkeypatch) -> None:
    written(**{"run.json": "a", "runs/lr1_seed0/best-2/SHA256SUMS": "b", "notes.txt": "of the user"})
    mirror = Mirror(URL)
    mirror.download_new_files()
    (mirror.directory / "runs/lr1_seed0/best-2/SHA256SUMS").unlink()
    for name in ("tokenizer/SHA256SUMS", "tokenizer/vocab.txt", ".lock", ".run.json.01234567.partial"):
        (mirror.directory / name).parent.mkdir(exist_ok=True)
        (mirror.directory / name).write_text("new")
    sent, put = [], storage.upload
    monkeypatch.setattr(storage, "upload", lambda path, url: sent.append(url) or put(path, url))
    mirror.upload_changed_files()
    assert sent == []  # not the owner
    written(**{"later.txt": "of the user"})
    with mirror.as_owner():
        mirror.upload_changed_files()
        assert sent == [f"{URL}/tokenizer/vocab.txt", f"{URL}/tokenizer/SHA256SUMS"]
        (mirror.directory / "metrics.jsonl").write_text("line")
    assert sent[2:] == [f"{URL}/metrics.jsonl"]
    found = remote()
    assert found.pop("owner")
    kept = {"run.json": "a", "notes.txt": "of the user", "later.txt": "of the user", "metrics.jsonl": "line"}
    assert found == kept | {"tokenizer/SHA256SUMS": "new", "tokenizer/vocab.txt": "new"}


def test_of_two_owners_the_first_stops_and_changes_nothing() -> None:
    first, second = Mirror(URL), Mirror(URL)
    assert first.directory != second.directory
    with first.as_owner():
        (first.directory / "metrics.jsonl").write_text("first")
        with second.as_owner(), pytest.raises(UserError, match=f"{URL}: another process trains here since"):
            first.upload_changed_files()
        assert remote().keys() == {"owner"}
        written(owner=first._owner.decode())  # so that the block ends as usual


def test_a_directory_is_of_one_process_and_its_successor_finds_it_empty(monkeypatch) -> None:
    monkeypatch.setattr(module.os, "close", lambda handle: None)
    written(**{"run.json": "a"})
    first = Mirror(URL)
    first.download_new_files()
    monkeypatch.setattr(module.fcntl, "flock", lambda *_: None)  # as after the end of the first process
    again = Mirror(URL)
    assert again.directory == first.directory
    assert local(again) == {}


@pytest.mark.parametrize("failures", [storage.TRIES - 1, storage.TRIES])
def test_requests_that_fail_are_repeated_a_few_times(memory, monkeypatch, failures) -> None:
    numbers, pipe_file = itertools.count(), memory.pipe_file
    pauses: list[float] = []

    def fails(*words: object) -> None:
        if next(numbers) < failures:
            raise OSError("503 Service Unavailable")
        pipe_file(*words)

    monkeypatch.setattr(type(memory), "pipe_file", lambda self, *words: fails(*words))
    monkeypatch.setattr(storage, "FIRST_PAUSE", 1.0)
    monkeypatch.setattr(storage.time, "sleep", pauses.append)
    if failures < storage.TRIES:
        storage.write_bytes(b"x", f"{URL}/owner")
        assert remote() == {"owner": "x"}
    else:
        with pytest.raises(UserError, match=rf"{URL}/owner: cannot be reached \(503 Service Unavailable\); check"):
            storage.write_bytes(b"x", f"{URL}/owner")
    assert pauses == [1.0, 2.0, 4.0, 8.0]


def test_files_move_below_another_url() -> None:
    written(**{"checkpoints/6/a": "1", "checkpoints/6/b/c": "2", "checkpoints/60/a": "3"})
    storage.move(f"{URL}/checkpoints/6", f"{URL}/damaged/6")
    assert remote() == {"damaged/6/a": "1", "damaged/6/b/c": "2", "checkpoints/60/a": "3"}


def test_a_corpus_is_no_work_directory() -> None:
    written(**{"manifest.json": "{}"})
    with pytest.raises(UserError, match=f"{URL} holds a corpus"):
        Mirror(URL).download_new_files()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("hdfs://bucket/run", "a run can be at gs:// and s3://; mount the storage"),
        ("s3:/bucket/run", "a slash is missing; write s3://bucket/run"),
        ("s3://bucket", "names no directory in a bucket; write s3://BUCKET/NAME"),
        ("gs:/bucket/run", "a slash is missing; write gs://bucket/run"),
        ("gs:bucket/run", "a slash is missing; write gs://bucket/run"),
        (pathlib.Path("gs://bucket/run"), "a slash is missing; write gs://bucket/run"),
        ("gs://bucket", "names no directory in a bucket; write gs://BUCKET/NAME"),
        ("gs://bucket/", "names no directory in a bucket; write gs://BUCKET/NAME"),
    ],
)
def test_other_urls_are_refused(place, words, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        local_copy(place)
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--workdir", str(place)])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_without_gcsfs_its_command_is_named(monkeypatch, capsys) -> None:
    monkeypatch.setattr("fsspec.core.get_filesystem_class", _missing)
    assert main(["evaluate", "--workdir", "gs://bucket/run"]) == 2
    assert "gs://bucket/run needs gcsfs: pip install gcsfs" in capsys.readouterr().err


def _missing(protocol: str) -> None:
    raise ImportError(f"Please install gcsfs to access {protocol}")


def test_a_path_stays_as_it_is(tmp_path) -> None:
    assert local_copy(tmp_path) == tmp_path
    assert local_copy("runs/base") == pathlib.Path("runs/base")
