"""Inputs that unpack to far more than they are: refused in a line, or read in bounded memory."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, documents, read_documents, read_raw_documents
from bert_jax.readers.formats import parquet as parquet_pages
from bert_jax.readers.formats import parquet as parquet_records
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
    "skipped.tgz": lambda text: gzip.compress(tar("a.tar", text)),  # its member is rejected unread
    "a.tar": lambda text: tar("a.txt.gz", gzip.compress(text)),
    "a.zip": lambda text: zipped(text),
    "members.zip": lambda text: zipped(text[: len(text) // 20], [f"{number}.txt" for number in range(20)]),
    "twice.zip": lambda text: zipped(gzip.compress(text), ["a.txt.gz"]),
}


def read(path, **options):
    return list(read_documents([str(path)], ReadOptions(**options)))


@pytest.mark.parametrize("name", PACKED)
def test_the_case_of_a_suffix_changes_nothing(tmp_path, name):
    data = PACKED[name](b"These are some words. " * 20)
    found = []
    for written in (name, name.upper()):
        (tmp_path / written).write_bytes(data)
        found.append([(document.text, document.rejected) for document in read(tmp_path / written)])
    assert found[0] == found[1]
    assert "words" in found[0][0][0] or name == "skipped.tgz"


@pytest.mark.parametrize("name", PACKED)
def test_a_file_that_unpacks_to_too_many_bytes_is_refused(tmp_path, name):
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
    found = [one.text for one in read(tmp_path / name, max_unpacked_bytes=7 << 20)]
    part = TEXT[: len(TEXT) // 20].decode()
    assert found == {"skipped.tgz": [""], "members.zip": [part] * 20}.get(name, [TEXT.decode()])


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


def parquet_file(path, texts, **options):
    parquet.write_table(pyarrow.table({"text": texts}), path, compression="zstd", **options)
    return path


def repeated(value, times):
    """A column that holds a value once, and any number of references to it."""
    return pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(times, np.int32)), [value])


LONG = "x" * 100_000
REPEATED = {
    "dictionary": ({}, lambda: repeated(LONG, 2000)),
    "beginnings": ({"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}, lambda: [LONG] * 2000),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_value_is_read_in_bounded_memory_and_counted(tmp_path, monkeypatch, name):
    """In a file of a kilobyte: 200 MB, of which 4 are read at a time."""
    options, texts = REPEATED[name]
    path = parquet_file(tmp_path / "a.parquet", texts(), **options)
    assert path.stat().st_size < 1500
    monkeypatch.setattr(parquet_records, "_MAX_BATCH_BYTES", 4 << 20)
    sizes = []
    for document in read_raw_documents([str(path)], ReadOptions()):
        assert document.data == LONG.encode()
        sizes.append(pyarrow.total_allocated_bytes())
    assert len(sizes) == 2000
    assert max(sizes) < 20 << 20
    with pytest.raises(UserError, match=r"a\.parquet: its [\d,]+ bytes unpack to more than 67,108,864"):
        read(path, max_unpacked_bytes=64 << 20)


def test_any_number_of_empty_rows_is_bounded(tmp_path):
    path = parquet_file(tmp_path / "a.parquet", pyarrow.nulls(100_000, pyarrow.string()))
    with pytest.raises(UserError, match="unpack to more than 1,048,576"):
        read(path, max_unpacked_bytes=1 << 20)


def test_a_page_that_unpacks_to_much_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_records, "_PAGE_BYTES", 1 << 20)
    path = parquet_file(tmp_path / "a.parquet", [LONG] * 30, use_dictionary=False, data_page_size=1 << 30)
    with pytest.raises(
        UserError, match=r"a\.parquet: a page of [\d,]+ bytes unpacks to 3,\d+,\d+; write smaller pages"
    ):
        read(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"data_page_version": "2.0"},
        {"row_group_size": 700},
        {"write_page_checksum": True},
        {"use_dictionary": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("texts", [[f"text {i} " * 20 for i in range(5000)], [LONG, "a" * 5000, None] * 9, [], [None]])
def test_the_pages_of_a_column_add_up_to_its_footer(tmp_path, options, texts):
    path = parquet_file(tmp_path / "a.parquet", pyarrow.array(texts, pyarrow.string()), **options)
    with path.open("rb") as file:
        metadata = parquet.ParquetFile(path).metadata
        chunks = [metadata.row_group(number).column(0) for number in range(metadata.num_row_groups)]
        for chunk in chunks:
            pages = list(parquet_pages.read_page_sizes(file, chunk))
            headers = chunk.total_compressed_size - sum(page.packed_bytes for page in pages)
            assert headers == chunk.total_uncompressed_size - sum(page.unpacked_bytes for page in pages)
            assert 0 <= headers < 60_000
            dictionary = pages[0].num_values if chunk.has_dictionary_page else 0
            assert sum(page.num_values for page in pages) - dictionary == chunk.num_values
    assert len(read(path)) == max(1, len(texts))


def test_damaged_page_headers_are_refused(tmp_path):
    path = parquet_file(tmp_path / "a.parquet", ["text"] * 9)
    whole = path.read_bytes()
    for place in range(4, 40):
        for value in (0, 12, 0xFF):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            with contextlib.suppress(UserError):
                read(path)


def test_a_task_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "train.json.gz"
    path.write_bytes(gzip.compress(b" " * BYTES + b"[]"))
    assert files.read_task_text(str(path)).strip() == "[]"
    monkeypatch.setattr(files, "MAX_BYTES", 1 << 20)
    with pytest.raises(UserError, match=r"train\.json\.gz: unpacks to more than 1,048,576 bytes"):
        files.read_task_text(str(path))
