import bz2
import gzip
import io
import lzma
import tarfile

import pytest
import zstandard

from bert_jax.data import python_docs
from bert_jax.data.sources import Document, documents, find_files, total_bytes
from bert_jax.errors import UserError

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
    return [(d.text or d.rejected) for d in documents([str(item) for item in inputs], **options)]


@pytest.mark.parametrize("suffix", PACK)
def test_compressed_files_and_archives_read_like_plain_ones(tmp_path, suffix):
    write(tmp_path / f"a.txt{suffix}", PACK[suffix](TEXT.encode()))
    members = [("z.txt", b"last name first"), (f"b.txt{suffix}", PACK[suffix](TEXT.encode()))]
    write(tmp_path / f"b.tar{suffix}", PACK[suffix](tar(members)))
    found = list(documents([str(tmp_path)]))
    assert [d.text for d in found] == [TEXT, "last name first", TEXT]
    assert found[-1].bytes_read <= total_bytes(find_files([str(tmp_path)]))


def test_zstd_of_several_frames(tmp_path):
    path = write(tmp_path / "a.zst", PACK[".zst"](b"one ") + PACK[".zst"](b"two" * 100_000))
    assert read(path) == ["one " + "two" * 100_000]


def test_units(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\ntwo\r\n\n \t\n\nthree\n")
    assert read(path) == ["one\ntwo\n\n \t\n\nthree\n"]
    assert read(path, unit="blank-line") == ["one\ntwo\n", "three\n"]
    assert read(path, unit="line") == ["one\n", "two\n", "three\n"]
    assert [d.name for d in documents([path], "blank-line")] == [f"{path}:1", f"{path}:6"]


def test_rejected_documents_have_a_reason(tmp_path):
    write(tmp_path / "a.bin", b"\x00\x01" * 9)
    write(tmp_path / "b.txt", b"caf\xe9 au lait")
    write(tmp_path / "c.txt", b"")
    write(tmp_path / "d.txt", b" \n\t\n")
    (tmp_path / "e.txt").symlink_to(tmp_path / "b.txt")
    assert read(tmp_path) == ["binary", "invalid UTF-8", "empty", "empty"]
    assert read(tmp_path, encoding_errors="replace")[1] == "caf\ufffd au lait"
    assert read(tmp_path / "d.txt", unit="line") == ["empty"]


def test_only_the_bad_line_is_rejected(tmp_path):
    path = write(tmp_path / "a.txt", b"good\nb\xffd\ngood too\n")
    assert read(path, unit="line") == ["good\n", "invalid UTF-8", "good too\n"]


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
        (["empty"], "holds no file"),
        ([], "no input"),
        (["/dev/null"], "not a regular file"),
    ],
)
def test_inputs_that_give_nothing(tmp_path, monkeypatch, inputs, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=words):
        documents(inputs)


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
    with pytest.raises(UserError, match="'page' is none of file, blank-line, line"):
        documents(["x"], unit="page")


def test_a_document_of_one_long_line(tmp_path):
    path = write(tmp_path / "a.txt", "word " * 1_000_000)
    assert [len(text) for text in read(path, unit="line")] == [5_000_000]


def test_python_docs_is_english_prose_without_repeats():
    found = list(documents(["python-docs"]))
    assert 1_000_000 < sum(len(d.text) for d in found) <= python_docs.MAX_BYTES
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
    assert list(python_docs._prose(text, set())) == ["See a.B and x in the guide, which says all of it in plain words."]
