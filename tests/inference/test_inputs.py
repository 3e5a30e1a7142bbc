"""Inputs of every form through one reader, and lines that are refused by name."""

import io
import os
import sys
import threading

import pytest

from bert_jax.errors import UserError
from bert_jax.inference.feature_files import check_projector_arguments
from bert_jax.inference.inputs import num_inputs, read_inputs, readable_twice, texts_by_key


def found(source):
    return [(one.line_number, dict(one.fields)) for one in read_inputs(source)]


@pytest.fixture
def stdin(monkeypatch):
    def put(content: bytes):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))

    return put


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.txt", b"one\r\n\n{two\n", [(1, {"text": "one"}), (2, {"text": ""}), (3, {"text": "{two"})]),
        ("C.TXT", b'{"text": "one"}', [(1, {"text": '{"text": "one"}'})]),
        ("b.jsonl", b'\n{"text": "one"}\n\n{"x": 2}', [(2, {"text": "one"}), (4, {"x": 2})]),
        ("c", b'{"text": "one"}\n', [(1, {"text": "one"})]),
        ("d.log", b"one\n{}\n", [(1, {"text": "one"}), (2, {"text": "{}"})]),
        ("d.json", b'{"text": "one"}\n', [(1, {"text": "one"})]),
        ("e.txt", "\ufeffo\u0308\n".encode(), [(1, {"text": "o\u0308"})]),
        ("f.txt", b"", []),
        (
            "g.txt",
            "\u043e\u0434\u0438\u043d\n\n".encode("utf-16"),
            [(1, {"text": "\u043e\u0434\u0438\u043d"}), (2, {"text": ""})],
        ),
        ("h.jsonl", '{"text": "\u4e00"}\n'.encode("utf-16"), [(1, {"text": "\u4e00"})]),
    ],
)
def test_lines_and_objects(tmp_path, stdin, name, content, wanted):
    (tmp_path / name).write_bytes(content)
    assert found(tmp_path / name) == wanted
    assert num_inputs(tmp_path / name) == len(wanted)
    if "." not in name or content.startswith(b"\xff\xfe"):
        stdin(content)
        assert num_inputs("-") is None
        assert found("-") == wanted


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", b"text,label\n"),
        ("a.TSV", b"text\tlabel\n"),
        ("a.json", b'[{"text": "one"}]'),
        ("a.xlsx", b"PK\x03\x04"),
    ],
)
def test_files_whose_lines_are_no_texts_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: not read line by line; convert it to .jsonl"):
        found(tmp_path / name)


def test_standard_input_can_be_read_twice(stdin):
    stdin(b"one\ntwo\n")
    with readable_twice("-") as source:
        assert found(source) == found(source) == [(1, {"text": "one"}), (2, {"text": "two"})]
    assert sys.stdin.buffer.read() == b""


def test_a_pipe_can_be_read_twice_and_no_file_beside_it_changes(tmp_path):
    (tmp_path / "content.txt").write_text("of the user")
    os.mkfifo(tmp_path / "pipe.txt")
    writer = threading.Thread(target=(tmp_path / "pipe.txt").write_text, args=("one\ntwo\n",))
    writer.start()
    with readable_twice(tmp_path / "pipe.txt") as source:
        writer.join()
        assert found(source) == found(source) == [(1, {"text": "one"}), (2, {"text": "two"})]
    assert (tmp_path / "content.txt").read_text() == "of the user"


def test_the_projector_refuses_texts_that_can_be_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    for source in ("-", str(tmp_path / "pipe.txt")):
        with pytest.raises(UserError, match="the projector needs to read the texts twice"):
            check_projector_arguments(tmp_path / "projector", source, tmp_path / "vectors.npy")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.txt", b"one\n\xff\n", "a.txt:2: not UTF-8"),
        ("a.txt", b"one\n" + b"x" * (5 << 20), "a.txt:2: a line of more than 4 MiB"),
        ("a.jsonl", b'{"text": "a"}\n{', "a.jsonl:2: invalid JSON"),
        ("a.jsonl", b"[1]", "a.jsonl:1: not a JSON object"),
        ("a.jsonl", b'{"t": 1}', "a.jsonl:1: the object has no 'text'"),
        ("a.jsonl", b'{"text": null}', "a.jsonl:1: 'text' is None; give a text"),
        ("a.jsonl", b'{"text": "\\ud800"}', "a.jsonl:1: 'text' has half of a surrogate pair"),
        ("absent", None, "absent: cannot be read"),
    ],
)
def test_bad_lines_are_named(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        [texts_by_key(one) for one in read_inputs(tmp_path / name)]
