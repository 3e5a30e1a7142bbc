"""Sources of documents: compressed files, archives, units, pieces, Python docs, and inputs that are refused."""

import bz2
import gzip
import io
import lzma
import pathlib
import re
import sysconfig
import tarfile
import zipfile

import pytest
import zstandard

from bert_jax.errors import UserError
from bert_jax.readers import (
    Document,
    ReadOptions,
    check_read_options,
    find_files,
    python_docs,
    read_documents,
    read_raw_documents,
    rejections,
    total_bytes,
)
from bert_jax.readers.documents import MAX_PIECE_BYTES, MAX_UNSPLIT_BYTES

TEXT = "Füße on the ground.\nA second line.\n\nA new paragraph.\n"
PACK = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def tar(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def read(*inputs, **options):
    return [(d.text or d.rejected) for d in read_documents([str(item) for item in inputs], ReadOptions(**options))]


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_and_archives_read_like_plain_files(tmp_path, suffix):
    write(tmp_path / f"a.txt{suffix}", PACK[suffix](TEXT.encode()))
    members = [("z.txt", b"last name first"), (f"b.txt{suffix}", PACK[suffix](TEXT.encode()))]
    write(tmp_path / f"b.tar{suffix}", PACK[suffix](tar(members)))
    found = list(read_documents([str(tmp_path)]))
    assert [d.text for d in found] == [TEXT, "last name first", TEXT]
    read_so_far = [raw.bytes_read for raw in read_raw_documents(find_files([str(tmp_path)]))]
    assert read_so_far == sorted(read_so_far)
    assert read_so_far[-1] <= total_bytes(find_files([str(tmp_path)]))


def test_zstd_of_several_frames(tmp_path):
    path = write(tmp_path / "a.zst", PACK[".zst"](b"one ") + PACK[".zst"](b"two" * 100_000))
    assert read(path) == ["one " + "two" * 100_000]


def test_units(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\ntwo\r\n\n \t\n\nthree\n")
    assert read(path) == ["one\ntwo\n\n \t\n\nthree\n"]
    assert read(path, documents="blank-line") == ["one\ntwo\n", "three\n"]
    assert read(path, documents="line") == ["one\n", "two\n", "three\n"]
    assert [d.name for d in read_documents([path], ReadOptions(documents="blank-line"))] == [f"{path}:1", f"{path}:6"]


def test_rejected_documents_have_a_reason(tmp_path):
    write(tmp_path / "a.txt", b"\x00\x01" * 9)
    write(tmp_path / "b.txt", b"caf\xe9 au lait")
    write(tmp_path / "c.txt", b"")
    write(tmp_path / "d.txt", b" \n\t\n")
    (tmp_path / "e.txt").symlink_to(tmp_path / "b.txt")
    assert read(tmp_path) == ["binary", "invalid UTF-8", "empty", "empty"]
    assert read(tmp_path, encoding_errors="replace")[1] == "caf\ufffd au lait"
    assert read(tmp_path / "d.txt", documents="line") == ["empty"]


def test_only_the_bad_line_is_rejected(tmp_path):
    path = write(tmp_path / "a.txt", b"good\nb\xffd\ngood too\n")
    assert read(path, documents="line") == ["good\n", "invalid UTF-8", "good too\n"]


def test_links_in_an_archive_are_counted(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "elsewhere"
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("empty"), io.BytesIO())
    assert read(tmp_path / "a.tar") == ["not a file", "empty"]


def test_order_globs_and_duplicates(tmp_path):
    for name in ("b/2.txt", "b/10.txt", "a.txt", "c.md"):
        write(tmp_path / name, name)
    assert read(tmp_path) == ["a.txt", "b/10.txt", "b/2.txt", "c.md"]
    assert read(f"{tmp_path}/**/*.txt") == ["a.txt", "b/10.txt", "b/2.txt"]
    assert read(tmp_path / "c.md", tmp_path, f"{tmp_path}/*.md") == ["c.md", "a.txt", "b/10.txt", "b/2.txt"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (["*.nothing"], "no file matches"),
        (["missing.txt"], "no such file"),
        (["empty"], "contains no file"),
        ([], "no input"),
        (["/dev/null"], "not a regular file"),
    ],
)
def test_inputs_that_give_nothing(tmp_path, monkeypatch, inputs, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=words):
        read_documents(inputs)


@pytest.mark.parametrize("suffix", [suffix for suffix in PACK if suffix])
@pytest.mark.parametrize("stem", ["a.txt", "a.tar"])
@pytest.mark.parametrize("damage", ["cut", "not one"])
def test_broken_archives_are_named(tmp_path, suffix, stem, damage):
    content = bytes(range(1, 128)) * 2000
    whole = PACK[suffix](tar([("m.txt", content)]) if stem == "a.tar" else content)
    path = write(tmp_path / (stem + suffix), whole[: len(whole) // 2] if damage == "cut" else b"plain text " * 100)
    with pytest.raises(UserError, match=f"{stem}{suffix}: broken archive"):
        read(path)


def test_a_cut_tar_is_named(tmp_path):
    path = write(tmp_path / "a.tar", tar([("m.txt", b"x" * 5000)])[:3000])
    with pytest.raises(UserError, match=r"a\.tar: broken archive"):
        read(path)


def test_choices_are_checked_at_once():
    with pytest.raises(UserError, match="'page' is none of auto, file, blank-line, line"):
        read_documents(["x"], ReadOptions(documents="page"))
    with pytest.raises(UserError, match=r"'json' is none of .*; did you mean 'jsonl'"):
        read_documents(["x"], ReadOptions(format="json"))
    with pytest.raises(UserError, match="--field"):
        read_documents(["x"], ReadOptions(field=""))


def test_a_damaged_header_in_a_tar_is_not_its_end(tmp_path):
    data = bytearray(tar([("a.txt", b"x" * 600), ("b.txt", b"y")]))
    data[512 + 1024 + 10] ^= 1  # the name of the second member
    with pytest.raises(UserError, match=r"a\.tar: broken archive"):
        read(write(tmp_path / "a.tar", bytes(data)))


def test_a_tar_cut_between_members_is_named(tmp_path):
    with pytest.raises(UserError, match=r"a\.tar: broken archive"):
        read(write(tmp_path / "a.tar", tar([("a.txt", b"x" * 600), ("b.txt", b"y")])[: 512 + 1024]))


def test_tars_one_after_the_other_are_refused(tmp_path):
    with pytest.raises(UserError, match="more data after the end"):
        read(write(tmp_path / "a.tar", tar([("a.txt", b"x")]) * 2))


def zipped(path, kind=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "."), data)
    return path


def test_zip(tmp_path):
    path = zipped(
        tmp_path / "a.zip", b__txt="last", a__txt__gz=gzip.compress(b"first"), c__tar=tar([]), d__md="# A *b*"
    )
    assert read(path) == ["last", "first", "archive in an archive", "A b"]
    assert read(zipped(tmp_path / "b.zip", zipfile.ZIP_BZIP2, a="x")) == ["unknown compression"]
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "elsewhere")
        archive.mkdir("folder")
    assert read(tmp_path / "c.zip") == ["not a file"]
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1  # the bit that says encrypted
    assert read(write(tmp_path / "d.zip", bytes(data)))[0] == "encrypted"


def test_a_flipped_bit_in_a_zip_is_named(tmp_path):
    path = zipped(tmp_path / "a.zip", zipfile.ZIP_STORED, a__txt="plain words here")
    data = bytearray(path.read_bytes())
    data[data.index(b"words")] ^= 1
    with pytest.raises(UserError, match=r"a\.zip: broken archive"):
        read(write(path, bytes(data)))
    with pytest.raises(UserError, match=r"a\.zip: broken archive"):
        read(write(path, bytes(data)[:-30]))


@pytest.mark.parametrize("unit", ["file", "blank-line", "line"])
def test_a_long_document_comes_in_pieces(tmp_path, unit):
    text = "".join(f"Füße number {number}. " for number in range(400_000)) + "end"
    path = write(tmp_path / "a.txt", text)
    found = list(read_raw_documents([path], ReadOptions(documents=unit)))
    assert [raw.piece for raw in found] == list(range(len(found)))
    assert [raw.last for raw in found] == [False] * (len(found) - 1) + [True]
    assert b"".join(raw.data for raw in found).decode() == text
    assert all(
        MAX_PIECE_BYTES // 2 <= len(raw.data) <= MAX_PIECE_BYTES and raw.data.endswith(b". ") for raw in found[:-1]
    )
    assert "".join(read(path, documents=unit)) == text


@pytest.mark.parametrize(
    ("unit", "end"),
    [("a\n \nb " * 9, "\n \n"), ("a b\n", "\n"), ("ab ", " "), ("\u732b\u3002", "\u3002"), ("\u732b", "\u732b")],
)
def test_where_pieces_end(tmp_path, unit, end):
    text = unit * ((MAX_UNSPLIT_BYTES + 10) // len(unit.encode()))
    pieces = read(write(tmp_path / "a.txt", text + unit))
    assert "".join(pieces) == text + unit
    assert all(piece.endswith(end) for piece in pieces[:-1])
    assert len(pieces) > 4


@pytest.mark.parametrize(
    ("end", "reason"), [(b"\0", "binary"), (b"\xff", "invalid UTF-8"), ("\u732b".encode()[:2], "invalid UTF-8")]
)
def test_a_long_document_is_checked_as_a_whole(tmp_path, end, reason):
    path = tmp_path / "a.txt"
    assert read(write(path, b"word " * (MAX_UNSPLIT_BYTES // 5 + 1) + end)) == [reason]
    assert read(write(path, b" \n\t" * (MAX_UNSPLIT_BYTES // 2))) == ["empty"]
    good = read(
        write(path, b"line\n" * 9 + b"word " * (MAX_UNSPLIT_BYTES // 5 + 1) + end + b"\nnext\n"), documents="line"
    )
    assert good == ["line\n"] * 9 + [reason, "next\n"]


def test_python_docs_is_english_prose_of_the_standard_library_without_repeats():
    found = list(read_documents(["python-docs"]))
    assert 1_000_000 < sum(len(d.text) for d in found) < 2_000_000
    standard = pathlib.Path(sysconfig.get_path("stdlib"))
    modules = [name for name, _ in python_docs.python_docs_names_and_texts() if not name.startswith("topic ")]
    assert len(modules) > 100
    assert all((standard / name).is_file() and "packages" not in name for name in modules)
    assert not any(d.rejected or ">>>" in d.text for d in found)
    paragraphs = [paragraph for d in found for paragraph in d.text.split("\n\n")]
    assert len(set(paragraphs)) == len(paragraphs)
    assert Document("topic assert", found[0].text) == found[0]
    assert found[0].text.startswith(
        "Assert statements are a convenient way to insert debugging assertions into a program:"
    )


def test_markup_is_taken_off():
    text = """
    See :class:`~a.B` and ``x`` in `the guide <there>`_, which says *all* of it in plain words.

        code = here

    Args:
        x: a thing that is described with a sentence of many words.

    >>> 1 + 1 is not a sentence of English words at all, is it.
    """
    assert list(python_docs._prose_paragraphs(text, set())) == [
        "See a.B and x in the guide, which says all of it in plain words."
    ]


def test_a_field_without_an_input_that_has_fields_is_refused(tmp_path):
    place = write(tmp_path / "a.txt.gz", gzip.compress(b"one"))
    with pytest.raises(UserError, match="--field body: no input has fields"):
        check_read_options([place, "python-docs"], ReadOptions(field="body"))
    for name in ("b.jsonl.xz", "c.csv", "d.tar.gz", "e.zip", "f.txz"):
        check_read_options([place, write(tmp_path / name, b"")], ReadOptions(field="body"))
    check_read_options([place], ReadOptions(field="body", format="jsonl"))
    check_read_options(["tfds:x"], ReadOptions(field="body"))


@pytest.mark.parametrize("unit", ["line", "blank-line", "file"])
def test_documents_option_without_a_text_input_is_refused(tmp_path, unit):
    records = [write(tmp_path / name, b"") for name in ("a.jsonl", "b.csv.gz", "c.xml", "wiki_00")]
    records[1] = write(tmp_path / "b.csv", b"text\n")
    with pytest.raises(UserError, match=f"--documents {unit}: no input is text or markdown"):
        check_read_options([*records, "tfds:x"], ReadOptions(documents=unit))
    for name in ("d.txt.xz", "e.md", "f", "g.zip", "h.tgz"):
        check_read_options([*records, write(tmp_path / name, b"")], ReadOptions(documents=unit))
    check_read_options(["python-docs"], ReadOptions(documents=unit))
    check_read_options(records, ReadOptions())
    with pytest.raises(UserError, match=f"--documents {unit}: no input"):
        check_read_options(["python-docs2.txt"], ReadOptions(documents=unit, format="jsonl"))


def test_a_missing_column_is_reported_before_reading(tmp_path):
    good, bad = write(tmp_path / "a.csv", "text\n" + "x\n" * 9), write(tmp_path / "c.tsv.gz", gzip.compress(b"body\nx"))
    text = write(tmp_path / "b.txt.gz", b"no gzip")
    check_read_options([good, text], ReadOptions())
    with pytest.raises(UserError, match=r"c\.tsv\.gz: no column 'text'"):
        check_read_options([good, text, bad], ReadOptions())
    check_read_options([good, text, bad], ReadOptions(field="0"))


@pytest.mark.parametrize(
    ("reasons", "says"),
    [
        (
            {"broken JSON": 154, "empty": 2},
            "write JSON as one object per line, or as a file that is one object",
        ),
        ({"not an object": 3}, "write JSON as one object per line"),
        ({"no field": 2, "binary": 1}, r"a record without 'bo\{dy' has 'a', '\{b\}'; give the field"),
        ({"not a text": 1}, r"'bo\{dy' holds no text"),
        ({"redirect": 3}, "describe it with --format and --field"),
        ({}, "describe it with --format and --field"),
    ],
)
def test_hints_for_rejected_documents(reasons, says):
    assert re.match(
        f".*{says}", rejections.hint_for_most_common_reason(reasons, "'a', '{b}'", ReadOptions(field="bo{dy"))
    )
