"""Files on object storage: read, copied, removed; interrupted copies and failing storage."""

import errno
import gzip
import os
import pathlib

import fsspec
import pytest

from bert_jax.corpus.build.plan import make_settings, plan_inputs, preparation_identity
from bert_jax.errors import StorageError, UserError
from bert_jax.readers import ReadOptions, find_files, read_documents, storage, total_bytes


class NoCredentialsError(Exception):
    """As botocore's, which is no OSError."""


@pytest.fixture
def bucket():
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe(
        {"/b/2.txt": b"two", "/b/10.txt": b"ten", "/b/c/z.txt.gz": gzip.compress(b"packed"), "/b/c/x.md": b"# x"}
    )
    yield "memory://b"
    system.store.clear()


def test_inputs_in_a_bucket(bucket):
    assert [d.text for d in read_documents([bucket])] == ["ten", "two", "x", "packed"]
    assert [d.text for d in read_documents([f"{bucket}/*.txt", f"{bucket}/2.txt"])] == ["ten", "two"]
    assert total_bytes(find_files([f"{bucket}/*.txt"])) == 6
    for path in storage.match_files(bucket):
        with storage.open_file(path) as file:
            assert len(file.read()) == storage.file_size(path)


@pytest.mark.parametrize("item", ["memory://many", "memory://many/*.txt", "memory://m*", "memory://many/{}.txt"])
@pytest.mark.parametrize("num_files", [5, 50])
def test_the_number_of_requests_before_reading_does_not_grow_with_the_files(bucket, item, num_files, monkeypatch):
    system, requests = fsspec.filesystem("memory"), []
    for n in range(num_files):
        system.pipe(f"/many/{n}.txt", b"text")
    info, ls = type(system).info, type(system).ls
    monkeypatch.setattr(
        type(system), "info", lambda self, path, **options: (requests.append(path), info(self, path))[1]
    )
    monkeypatch.setattr(
        type(system), "ls", lambda self, path, **options: (requests.append(path), ls(self, path, **options))[1]
    )
    items = list(dict.fromkeys(item.format(n) for n in range(num_files)))
    planned = plan_inputs(items, ReadOptions(), print)
    preparation_identity(planned, None, make_settings(ReadOptions(), {}, None))
    assert (len(planned.files), planned.num_bytes) == (num_files, 4 * num_files)
    assert len(requests) <= 5  # at most MIN_NAMED files cost a request each


@pytest.mark.parametrize("protocol", ["memory", "local"])
def test_a_file_has_one_version_however_it_is_named(bucket, protocol, tmp_path):
    place = f"local://{tmp_path}" if protocol == "local" else "memory://b"
    fsspec.filesystem(protocol).pipe(f"{place}/2.txt", b"two")

    def version(item):
        (url,) = [path for path in storage.match_files(item) if path.endswith("/2.txt")]
        return storage.file_version(url)

    named = {version(item) for item in (place, f"{place}/*.txt", f"{place[:-1]}*", f"{place}/2.txt")}
    storage._listed_files.clear()
    assert named == {storage.file_version(f"{place}/2.txt")}


def test_a_file_that_changes_has_another_size_and_version_after_the_next_search(bucket):
    system, url = fsspec.filesystem("memory"), "memory://b/2.txt"
    for item in (bucket, url, bucket):
        find_files([item])
        before = storage.file_size(url), storage.file_version(url)
        system.pipe("/b/2.txt", system.cat_file("/b/2.txt") + b"+")
        find_files([item])
        assert storage.file_size(url) == before[0] + 1
        assert storage.file_version(url) != before[1]


def test_named_files_are_found_one_by_one_where_the_directory_cannot_be_listed(bucket, monkeypatch):
    system = fsspec.filesystem("memory")
    for n in range(storage.MIN_NAMED):
        system.pipe(f"/many/{n}.txt", b"text")
    items, urls = ([f"memory://{slash}many/{n}.txt" for n in range(storage.MIN_NAMED)] for slash in ("", "/"))
    assert find_files([*items, items[0]]) == urls

    def refuse(self, path, **options):
        raise PermissionError(path)

    monkeypatch.setattr(type(system), "ls", refuse)
    assert find_files(items) == urls
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"absent\.txt: no such file"):
        find_files([*items, "memory://many/absent.txt"])


def test_missing_files(bucket):
    for item, words in (
        (f"{bucket}/x", "no such file"),
        (f"{bucket}/*.x", "no file matches"),
        ("nothing://x", "nothing"),
    ):
        with pytest.raises(UserError, match=words) as found:
            find_files([item])
        assert found.value.status == 2
    with pytest.raises(UserError, match="cannot be reached"):
        storage.file_size(f"{bucket}/x")


@pytest.mark.parametrize("place", ["memory://b/new/deep.bin", "file://{}/new/deep.bin", "{}/new/deep.bin"])
def test_upload_and_download(bucket, tmp_path, place):
    url = place.format(tmp_path)
    for data in (os.urandom(3_000_000), b"replaced", b""):
        (tmp_path / "here").write_bytes(data)
        storage.upload(tmp_path / "here", url)
        storage.download(url, tmp_path / "back" / "again")
        assert (tmp_path / "back" / "again").read_bytes() == data
    assert os.listdir(tmp_path / "back") == ["again"]


@pytest.mark.parametrize("place", ["memory://b/2.txt", "{}/2.txt"])
@pytest.mark.parametrize(("number", "tries"), [(errno.EIO, storage.TRIES), (errno.ENOSPC, 1)])
def test_an_interrupted_copy_leaves_the_old_file(bucket, tmp_path, place, number, tries, monkeypatch):
    url = place.format(tmp_path)
    (tmp_path / "2.txt").write_bytes(b"two")
    (tmp_path / "here").write_bytes(b"x" * 100)

    def half(*args, **options):
        target = args[-1]  # a path, or a file that is open for writing
        write = target.write if hasattr(target, "write") else pathlib.Path(target).write_bytes
        write(b"x" * 50)
        calls.append(args)
        raise OSError(number, "no more room")

    calls = []
    monkeypatch.setattr(storage, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(storage.shutil, "copyfile", half)
    monkeypatch.setattr(storage.shutil, "copyfileobj", half)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", half)
    for copy in (
        lambda: storage.upload(tmp_path / "here", url),
        lambda: storage.download(url, tmp_path / "local" / "file"),
    ):
        calls.clear()
        with pytest.raises(UserError, match="no more room") as found:
            copy()
        assert (len(calls), found.value.status) == (tries if storage.is_url(place) else 1, 1)
    monkeypatch.undo()
    with storage.open_file(url) as file:
        assert file.read() == b"two"
    assert os.listdir(tmp_path / "local") == []
    assert sorted(path for path in os.listdir(tmp_path) if "partial" in path) == []


def test_object_storage_gets_a_file_in_one_piece(bucket, tmp_path, monkeypatch):
    """As gcsfs and s3fs, whose files appear when they are complete; a transaction would need an instance each."""
    memory, sent = type(fsspec.filesystem("memory")), []
    monkeypatch.setattr(memory, "async_impl", True)
    monkeypatch.setattr(memory, "put_file", lambda self, path, inner: sent.append((path, inner)))
    storage.upload(tmp_path / "here", f"{bucket}/new/2.txt")
    assert sent == [(str(tmp_path / "here"), "/b/new/2.txt")]


def test_remove(bucket, tmp_path):
    (tmp_path / "some" / "more").mkdir(parents=True)
    for _ in range(2):  # the second time there is nothing
        storage.remove(f"{bucket}/c")
        storage.remove(f"file://{tmp_path}/some")
    assert sorted(fsspec.filesystem("memory").store) == ["/b/10.txt", "/b/2.txt"]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("failure", "tries", "raised", "status"),
    [
        (ConnectionError("reset by peer"), storage.TRIES, StorageError, 1),
        (RuntimeError("502"), storage.TRIES, StorageError, 1),
        (PermissionError(13, "no"), 1, UserError, 2),
        (NoCredentialsError("Unable to locate credentials"), 1, UserError, 2),
        (OSError("Forbidden: b/o\ntrainer does not have storage.objects.list access"), 1, UserError, 2),  # of gcsfs
    ],
)
@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("find", storage.list_file_versions),
        ("info", storage.match_files),
        ("size", storage.file_size),
        ("cat_file", storage.read_url),
        ("open", storage.open_file),
        ("get_file", lambda url: storage.download(url, "nowhere")),
        ("rm", storage.remove),
    ],
)
def test_only_transient_failures_are_tried_again_and_end_a_run_with_status_1(
    bucket, tmp_path, monkeypatch, method, call, failure, tries, raised, status
):
    calls = []

    def failing(*args, **options):
        calls.append(args)
        raise failure

    monkeypatch.setattr(storage, "FIRST_PAUSE", 0.0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), method, failing)
    with pytest.raises(UserError, match=f"{bucket}: cannot be reached") as found:
        call(bucket)
    monkeypatch.undo()
    assert (len(calls), type(found.value), found.value.status) == (tries, raised, status)
