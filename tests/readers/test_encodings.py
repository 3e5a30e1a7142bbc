"""Choice of the files of a directory, and their encodings."""

import gzip
import io
import json
import os
import re
import tarfile
import zipfile

import pytest

from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, check_read_options, find_files, read_documents


def write(path, data):
    path.write_bytes(data)
    return path


def read(path, **options):
    return [(d.text or d.rejected) for d in read_documents([str(path)], ReadOptions(**options))]


def test_a_directory_is_read_by_the_suffixes_of_known_formats(tmp_path):
    kept = ["README", "a.txt", "b.TXT.gz", "c.md", "d.jsonl", "sub/e.text", "sub/f.csv.xz", "sub/wiki_00", "g.tar.gz"]
    left_out = ["a.py", "b.c", "c.svg", "d.SVG", ".hidden", "e.py.gz", "sub/notes.docx"]
    for name in (*kept, *left_out):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, b"")
    said = []
    found = find_files([str(tmp_path)], say=said.append)
    assert {os.path.relpath(path, tmp_path) for path in found} == set(kept)
    (line,) = said
    assert line.startswith(f"{tmp_path}: not read are files of no known format: 2 .svg, 1 ")
    for count in ("1 .py,", "1 .c,", "1 .hidden", "1 .gz", "1 .docx"):
        assert count in line
    assert set(find_files([str(tmp_path)], ReadOptions(format="text"))) > set(found)
    assert len(find_files([str(tmp_path / "*.py"), str(tmp_path / "c.svg")])) == 2
    for name in kept:
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match=r"contains no file to read, but files of no known format: 2 \.svg"):
        find_files([str(tmp_path)])


def test_the_hidden_files_of_a_directory_are_not_read(tmp_path):
    """As in a pattern: a clone, a checkpoint of a notebook, a lock of an editor, and the metadata of macOS."""
    kept = ["a.txt", "sub/b.jsonl", "link/c.txt"]
    hidden = [".git/COMMIT_EDITMSG", ".git/logs/HEAD", "sub/.ipynb_checkpoints/b-checkpoint.txt", ".DS_Store"]
    for name in (*kept[:2], *hidden, ".cache/real/c.txt", "sub/._b.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, b"text")
    (tmp_path / "link").symlink_to(tmp_path / ".cache" / "real")
    (tmp_path / ".#a.txt").symlink_to("nobody@nowhere.1")
    expected = {*kept}
    for options in (ReadOptions(), ReadOptions(format="jsonl")):
        said = []
        found = find_files([str(tmp_path)], options, said.append)
        assert {os.path.relpath(path, tmp_path) for path in found} == expected
        (line,) = said
        assert "not read are hidden files and directories: 1 " in line
        for label in (".git", ".cache", ".ipynb_checkpoints", ".DS_Store", "._b.jsonl", ".#a.txt"):
            assert f"1 {label}" in line
    assert find_files([f"{tmp_path}/.git"]) == [f"{tmp_path}/.git/COMMIT_EDITMSG", f"{tmp_path}/.git/logs/HEAD"]
    (tmp_path / "empty/.hidden").mkdir(parents=True)
    with pytest.raises(UserError, match=r"contains no file to read, but hidden files and directories: 1 \.hidden"):
        find_files([f"{tmp_path}/empty"])


def test_the_hidden_members_of_an_archive_are_counted_as_hidden(tmp_path):
    names = ["./a.txt", "./._a.txt", ".git/config", "__MACOSX/a.txt", "sub/b.txt"]
    with tarfile.open(tmp_path / "a.tar", "w") as archive, zipfile.ZipFile(tmp_path / "a.zip", "w") as zip_archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"text"))
            zip_archive.writestr(name, "text")
        folder = tarfile.TarInfo(".git")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    for name in ("a.tar", "a.zip"):
        assert read(tmp_path / name) == ["text", "hidden", "hidden", "hidden", "text"]


SAMPLES = {
    "shift_jis": "日本語のテキスト、改行\nカタカナ。",
    "euc_kr": "한국어 문장입니다.\n둘째 줄.",
    "latin-1": "Füße, naïve café",
    "utf-16-le": "little 🙂 \r\n end",
    "gb18030": "中文，标点。",  # noqa: RUF001
    "cp1251": "Русский текст",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_text_in_other_encodings(tmp_path, encoding):
    text = SAMPLES[encoding]
    path = write(tmp_path / "a.txt", (text * 30_000).encode(encoding))
    expected = (text * 30_000).replace("\r\n", "\n")
    assert read(path, encoding=encoding) == [expected]
    assert read(write(tmp_path / "a.txt.gz", gzip.compress(path.read_bytes())), encoding=encoding) == [expected]
    line = json.dumps({"text": text}, ensure_ascii=False).encode(encoding)
    assert read(write(tmp_path / "a.jsonl", line), encoding=encoding) == [text.replace("\r\n", "\n")]
    assert read(write(tmp_path / "b.txt", text.encode()), encoding="UTF8") == [text.replace("\r\n", "\n")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_byte_order_mark_names_utf_16(tmp_path, encoding):
    text = "marked: é 漢 🙂\n" * 9
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, data in enumerate((text.encode(encoding), text.encode())):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    assert read(tmp_path / "a.tar") == [text, text]
    big = "\ufeff".encode(f"{encoding}-be") + text.encode(f"{encoding}-be")
    assert read(write(tmp_path / "b.txt", big)) == [text]
    assert read(write(tmp_path / "c.csv", "text,n\r\né,1\r\n".encode(encoding))) == ["é"]


def test_undecodable_text_is_rejected_or_replaced(tmp_path):
    data = "one\n二\n".encode("shift_jis") + b"bad \x81\xff\n" + "三".encode("shift_jis")
    path = write(tmp_path / "a.txt", data)
    found = read(path, encoding="shift_jis", documents="line")
    assert [one.strip() for one in found] == ["one", "二", "invalid UTF-8", "三"]
    replaced = read(path, encoding="shift_jis", documents="line", encoding_errors="replace")[2]
    assert replaced.startswith("bad \ufffd")
    odd = write(tmp_path / "b.txt", "text".encode("utf-16") + b"x")
    assert read(odd) == ["invalid UTF-8"]
    for name in ("base64", "no such", "a\0b"):
        with pytest.raises(UserError, match="give a name such as utf-16"):
            read(path, encoding=name)
    with pytest.raises(UserError, match="--encoding latin-1: no input is a file of text"):
        check_read_options(["python-docs"], ReadOptions(encoding="latin-1"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "punycode"])
def test_text_that_an_encoding_cannot_be(tmp_path, encoding):
    """Also where Python's decoder asks no handler of errors."""
    path = write(tmp_path / "a.txt", "Hello, ü and \ud83d\\ud83d +2D0-".encode("utf-16-le", "surrogatepass"))
    with pytest.raises(UserError, match=re.escape(str(path))):
        read(path, encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1"])
def test_xml_names_its_own_encoding(tmp_path, encoding):
    page = "<page><title>T</title><ns>0</ns><revision><text>Das caf\u00e9 ist offen.</text></revision></page>"
    text = f'<?xml version="1.0" encoding="{encoding}"?>\n<mediawiki>{page}</mediawiki>'
    path = write(tmp_path / "a.xml", text.encode(encoding))
    for options in ({}, {"encoding": "latin-1"}):
        assert [one for one in read(path, **options) if "caf\u00e9" in one]
