"""Inputs that unpack to far more than they are: refused in a line, or read in bounded memory."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
import zstandard

from bert_jax.data.sources import ReadOptions, documents, read_documents
from bert_jax.errors import UserError
from bert_jax.tasks.reading import files

BYTES = 3 << 20


def tar(name, data):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def zipped(data, names=("a.txt",)):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return buffer.getvalue()


TEXT = b"a line of text\n" * (BYTES // 15)
PACKED = {
    "a.txt.gz": lambda text: gzip.compress(text),
    "a.txt.bz2": lambda text: bz2.compress(text),
    "a.txt.xz": lambda text: lzma.compress(text),
    "a.txt.zst": lambda text: zstandard.ZstdCompressor().compress(text),
    "a.tgz": lambda text: gzip.compress(tar("a.txt", text)),
    "skipped.tgz": lambda text: gzip.compress(tar("a.tar", text) + b""),  # its member is rejected unread
    "a.tar": lambda text: tar("a.txt.gz", gzip.compress(text)),
    "a.zip": lambda text: zipped(text),
    "members.zip": lambda text: zipped(text[: len(text) // 20], [f"{number}.txt" for number in range(20)]),
    "twice.zip": lambda text: zipped(gzip.compress(text), ["a.txt.gz"]),
}


def read(path, **options):
    return list(read_documents([str(path)], ReadOptions(**options)))


@pytest.mark.parametrize("name", PACKED)
def test_what_unpacks_to_too_much_is_refused(tmp_path, name):
    data = PACKED[name](TEXT)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError) as refusal:
        read(tmp_path / name, max_unpacked_bytes=2 << 20)
    limit = max(2 << 20, documents.MAX_RATIO * len(data))
    assert f"{name}: its {len(data):,} bytes unpack to more than {limit:,};" in str(refusal.value)
    assert "--max_unpacked_bytes" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", PACKED)
def test_the_option_admits_it(tmp_path, name):
    (tmp_path / name).write_bytes(PACKED[name](TEXT))
    found = read(tmp_path / name, max_unpacked_bytes=7 << 20)
    assert "".join(one.text for one in found) == ("" if name.startswith("skipped") else TEXT.decode()[: len(TEXT)]) or (
        name == "members.zip" and len(found) == 20
    )


def test_a_large_file_may_unpack_to_a_hundred_times_its_size(tmp_path):
    once = gzip.compress(b"x" * 4000)  # some 37 bytes: a ratio of more than 100
    (tmp_path / "a.txt.gz").write_bytes(once * 10)
    assert len(once) * 100 < 4000
    with pytest.raises(UserError, match="unpack to more than"):
        read(tmp_path / "a.txt.gz", max_unpacked_bytes=1)
    (tmp_path / "a.txt.gz").write_bytes(once * 10 + gzip.compress(bytes(range(256)).hex().encode() * 2) * 9)
    assert len(read(tmp_path / "a.txt.gz", max_unpacked_bytes=1)) == 1


def test_a_limit_of_nothing_is_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"text")
    with pytest.raises(UserError, match="--max_unpacked_bytes 0: give at least 1"):
        read(tmp_path / "a.txt", max_unpacked_bytes=0)
    assert read(tmp_path / "a.txt", max_unpacked_bytes=1)[0].text == "text"


def test_a_task_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "train.json.gz"
    path.write_bytes(gzip.compress(b" " * BYTES + b"[]"))
    assert files.read_text(str(path)).strip() == "[]"
    monkeypatch.setattr(files, "MAX_BYTES", 1 << 20)
    with pytest.raises(UserError, match=r"train\.json\.gz: unpacks to more than 1,048,576 bytes"):
        files.read_text(str(path))
