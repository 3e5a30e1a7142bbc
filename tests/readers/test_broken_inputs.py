"""Damage that makes the libraries crash, hang, fill the memory or return less: each found by `fuzzing`."""

import bz2
import gzip
import io
import lzma
import os
import pathlib
import tarfile
import zipfile
import zlib

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, find_files, read_documents
from tests.helpers.page_files import arrow


def write(path, data):
    path.write_bytes(data)
    return str(path)


def read(*inputs, **reading):
    return [(d.text or d.rejected) for d in read_documents([str(item) for item in inputs], ReadOptions(**reading))]


@pytest.mark.parametrize(("suffix", "pack"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_no_stream_after_the_first_is_lost_silently(tmp_path, suffix, pack):
    first, second = pack(b"one "), pack(b"two")
    assert read(write(tmp_path / f"a.{suffix}", first + second)) == ["one two"]
    for bit in range(8 * 3):  # of the mark that a stream begins with
        damaged = bytearray(second)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(UserError, match="broken archive"):
            read(write(tmp_path / f"b.{suffix}", first + damaged))
    for rest in (b"more", second[:-1]):
        with pytest.raises(UserError, match="broken archive"):
            read(write(tmp_path / f"c.{suffix}", first + rest))


def test_zeros_may_stand_between_the_streams_of_xz(tmp_path):
    data = lzma.compress(b"one ") + bytes(8) + lzma.compress(b"two") + bytes(4)
    assert read(write(tmp_path / "a.xz", data)) == ["one two"]


def test_an_xz_header_that_demands_gigabytes(tmp_path):
    """By the xz file format 1.1.0: 12 bytes of stream header; size, flags, filter 0x21, 1, dictionary, ..., CRC32."""
    data = bytearray(lzma.compress(b"one"))
    assert data[14:16] == b"\x21\x01"
    data[16] = 40  # 4 GiB
    end = 12 + 4 * (data[12] + 1) - 4
    data[end : end + 4] = zlib.crc32(data[12:end]).to_bytes(4, "little")
    with pytest.raises(UserError, match=r"a\.xz: broken archive \(Memory usage limit exceeded\)"):
        read(write(tmp_path / "a.xz", data))
    assert read(write(tmp_path / "b.xz", lzma.compress(b"one", preset=9 | lzma.PRESET_EXTREME))) == ["one"]


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("bz2", bz2.compress), ("xz", lzma.compress), ("zst", zstandard.ZstdCompressor().compress)],
)
def test_streams_of_every_length(tmp_path, suffix, pack):
    content = os.urandom(1 << 17).hex().encode()
    for size in (0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, len(content)):
        data = pack(content[:size]) + pack(content[size:])
        assert read(write(tmp_path / f"a.{suffix}", data)) == [content.decode()]
    assert read(write(tmp_path / f"b.{suffix}", b"")) == ["empty"]


@pytest.mark.parametrize("encoding", ["nosuch", "big5", "utf-7", "base64", "idna"])
def test_xml_in_an_unknown_encoding(tmp_path, encoding):
    data = f'<?xml version="1.0" encoding="{encoding}"?><mediawiki></mediawiki>'
    assert read(write(tmp_path / "a.xml", data.encode())) == ["not a MediaWiki dump"]


def test_a_name_in_a_zip_that_is_not_utf_8(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        # A fixed time: at 23:38:06, the bytes of the time equal the bytes of the name.
        archive.writestr(zipfile.ZipInfo("ü.txt"), "text")
    data = buffer.getvalue()
    for place in (data.index("ü".encode()), data.rindex("ü".encode())):
        damaged = data[:place] + b"\xff" + data[place + 1 :]
        with pytest.raises(UserError, match=r"a\.zip: broken archive"):
            read(write(tmp_path / "a.zip", damaged))


def test_a_parquet_column_whose_name_is_not_utf_8(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a"], "ü": ["b"]}), path)
    with pytest.raises(UserError, match=r"a\.parquet: broken Parquet file"):
        read(write(path, path.read_bytes().replace("ü".encode(), b"\xc3\xc3")))


def test_a_table_that_is_only_a_byte_order_mark(tmp_path):
    assert read(write(tmp_path / "a.tsv", b"\xef\xbb\xbf\n")) == ["empty"]
    assert read(write(tmp_path / "a.csv", b"\xef\xbb\xbf\n")) == ["empty"]


def test_a_table_that_is_only_a_header_with_a_number(tmp_path):
    assert read(write(tmp_path / "a.csv", b"2024,2025\n"), field="2024") == ["empty"]
    assert read(write(tmp_path / "b.csv", b"2024,2025\nx,y\n"), field="2025") == ["y"]


@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_column_name_with_line_ends_is_refused_in_one_line(tmp_path, mark):
    path = write(tmp_path / "a", f'id{mark}"te\n\nxt"\n'.encode())
    with pytest.raises(UserError) as refusal:
        read(path, format="csv" if mark == "," else "tsv")
    assert "\n" not in str(refusal.value)


def tar(*members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("headers", "content"),
    [
        ({"major": "0", "minor": "1", "map": "0,0", "size": str(1 << 60)}, b""),
        ({"major": "1", "minor": "0", "name": "a.txt", "realsize": str(1 << 60)}, b"1\n0\n0\n" + bytes(506)),
        ({"major": "1", "minor": "0", "name": "a.txt", "realsize": "9"}, b"99\n" + b"9" * 509),  # a map without an end
    ],
)
def test_holes_in_a_tar_are_not_read(tmp_path, headers, content):
    sparse = tarfile.TarInfo("holes.txt")
    sparse.pax_headers = {f"GNU.sparse.{key}": value for key, value in headers.items()}
    path = write(tmp_path / "a.tar", tar((sparse, content), (tarfile.TarInfo("b.txt"), b"text")))
    assert read(path) == ["binary", "text"]


def test_invalid_numbers_in_a_tar(tmp_path):
    sparse = tarfile.TarInfo("a.txt")
    sparse.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "x"}
    with pytest.raises(UserError, match="a header is damaged"):
        read(write(tmp_path / "a.tar", tar((sparse, b""))))


def test_a_name_in_a_tar_may_be_long_but_is_bounded(tmp_path):
    name = "a" * 5000 + ".txt"
    assert read(write(tmp_path / "a.tar", tar((tarfile.TarInfo(name), b"text")))) == ["text"]
    name = "a" * (2 << 20) + ".txt"
    with pytest.raises(UserError, match=r"broken archive .a header of"):
        read(write(tmp_path / "b.tar", tar((tarfile.TarInfo(name), b"text"))))


def test_links_are_followed_and_nothing_is_left_out(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere" / "b.txt", b"b")
    place = tmp_path / "in"
    (place / "sub").mkdir(parents=True)
    write(place / "sub" / "a.txt", b"a")
    (place / "again").symlink_to("sub")
    (place / "sub" / "round").symlink_to("..")
    (place / "there").symlink_to(tmp_path / "elsewhere")
    assert read(place) == ["a", "b"]
    (place / "nowhere").symlink_to("gone")
    with pytest.raises(UserError, match="nowhere: not a regular file"):
        find_files([str(place)])


def test_a_directory_that_cannot_be_listed(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", b"a")
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"closed: cannot be read \(Permission denied\)"):
        find_files([str(tmp_path)])


def test_an_arrow_file_with_a_wrong_byte_is_read_or_refused(tmp_path):
    good = arrow(pyarrow.table({"text": ["abc", "def", None]}), rows=3)
    refused = []
    for place in range(len(good)):
        for value in (1, 255):
            try:
                read(write(tmp_path / "a.arrow", good[:place] + bytes([value]) + good[place + 1 :]))
            except UserError as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert all("a.arrow: " in one for one in refused)


@pytest.mark.parametrize("kind", ["arrow", "parquet", "csv", "tsv"])
def test_a_column_name_that_occurs_twice_is_refused_where_it_is_asked_for(tmp_path, kind):
    table = pyarrow.Table.from_arrays([pyarrow.array([one]) for one in "abc"], ["text", "text", "other"])
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "arrow":
        write(path, arrow(table))
    else:
        path.write_text("text,text,other\na,b,c\n".replace(",", "," if kind == "csv" else "\t"))
    with pytest.raises(UserError, match=r"2 columns are named 'text'; write it with different names"):
        read(path)
    assert read(path, field="other") == ["c"]


@pytest.mark.parametrize("name", ["book.epub.gz", "book.epub.bz2", "rows.parquet.gz"])
def test_a_damaged_compressed_file_is_not_blamed_on_the_temporary_directory(tmp_path, name):
    """EPUB and Parquet are copied to a temporary file first, because their readers seek."""
    compress = {".gz": gzip.compress, ".bz2": bz2.compress}[pathlib.Path(name).suffix]
    damaged = bytearray(compress(b"content" * 1000))
    damaged[-6] ^= 0xFF  # in the checksum
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(UserError) as caught:
        list(read_documents([str(tmp_path / name)]))
    assert name in str(caught.value)
    assert "cannot be written" not in str(caught.value)
