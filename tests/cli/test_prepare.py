"""`tokenizer` and `prepare`: text that is none, settings out of range, and Ctrl-C leave nothing behind."""

import json
import os
import random
import shutil
import signal
import time

import pytest

from bert_jax.corpus.store import open_corpus
from tests.helpers.commands import command, is_empty, prepare_command, prose, vocabulary


def test_no_file_matches(world, tmp_path, refused) -> None:
    (tmp_path / "bare").mkdir()
    for missing, says in [("*.txt", "no file matches"), ("absent.txt", "no such file"), ("bare", "contains no file")]:
        for argv in (
            prepare_command(world, tmp_path / "out", texts=tmp_path / missing),
            ["tokenizer", "--input", tmp_path / missing, "--vocab_size", 99, "--output", tmp_path / "out"],
        ):
            refused(*argv, says=(str(tmp_path / missing), says))
    assert os.listdir(tmp_path) == ["bare"]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "empty"), (b"\0\1\2", "binary"), (b"caf\xe9", "invalid UTF-8"), (b" \n", "empty")]
)
def test_files_without_text(world, tmp_path, refused, content: bytes, reason: str) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(3):
        (texts / str(number)).write_bytes(content)
    refused(*prepare_command(world, tmp_path / "out", texts=texts), says=("0 of 3 documents", f"3 {reason}", "give"))
    refused(
        *("tokenizer", "--input", texts, "--vocab_size", 99, "--output", tmp_path / "out"),
        says=(f"3 {reason}",),
    )
    assert os.listdir(tmp_path) == ["texts"]


def test_files_without_text_among_others_are_counted(world, tmp_path, run) -> None:
    texts = tmp_path / "texts"
    shutil.copytree(world.texts, texts)
    for name, content in [("void", b""), ("binary", b"\0"), ("latin", "café".encode("latin-1"))]:
        (texts / name).write_bytes(content)
    status, out, _ = run(*prepare_command(world, tmp_path / "a", texts=texts))
    assert status == 0
    assert "43 documents in = 40 stored + 3 rejected (1 binary, 1 empty, 1 invalid UTF-8)" in out
    status, out, _ = run(*prepare_command(world, tmp_path / "b", "--encoding_errors", "replace", texts=texts))
    assert "43 documents in = 41 stored + 2 rejected (1 binary, 1 empty)" in out
    status, out, _ = run("tokenizer", "--input", texts, "--vocab_size", 200, "--output", tmp_path / "tokenizer")
    assert "left out 1 binary, 1 empty, 1 invalid UTF-8" in out


def test_a_corpus_of_a_single_document(world, tmp_path, run) -> None:
    (tmp_path / "one.txt").write_text(prose(0, 50))
    argv = prepare_command(world, tmp_path / "out", "--heldout_fraction", "0", texts=tmp_path / "one.txt")
    status, out, err = run(*argv)
    assert status == 0
    assert "1 document in = 1 stored" in out
    assert "raise --heldout_fraction" not in err
    assert "warning: one training document: next-sentence prediction" in err
    assert "--documents blank-line" in err


def test_every_sentence_its_own_document(world, tmp_path, run) -> None:
    (tmp_path / "lines.txt").write_text(prose(0, 200).replace(". ", ".\n"))
    argv = prepare_command(world, tmp_path / "out", "--documents", "line", texts=tmp_path / "lines.txt")
    status, out, err = run(*argv)
    assert status == 0
    assert "warning: every document is one sentence" in err
    assert "200 documents in = 200 stored" in out


def test_a_document_of_one_large_line(world, tmp_path, run) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    words = random.Random(0).choices(vocabulary(), k=600_000)
    (texts / "large.txt").write_text(" ".join(words))
    for number in range(2):
        (texts / f"{number}.txt").write_text(prose(number, 5))
    assert (texts / "large.txt").stat().st_size > 3_000_000
    status, out, _ = run(*prepare_command(world, tmp_path / "out", "--heldout_fraction", "0", texts=texts))
    assert status == 0
    assert "3 documents in = 3 stored + 0 rejected\n" in out
    assert "1 overlong sentence cut in pieces" in out
    train = open_corpus(tmp_path / "out").split("train")
    assert train.num_tokens > len(words)
    assert train.tokens_per_record.max() <= 2048


def test_sizes_of_vocabulary_that_the_text_cannot_fill(world, tmp_path, refused) -> None:
    argv = ["tokenizer", "--input", world.texts, "--output", tmp_path / "out"]
    says = ("the text fills a vocabulary of", "not of 30,522", "give more text")
    refused(*argv, "--vocab_size", 30_522, says=says, after=1)
    refused(*argv, "--vocab_size", 20, says=("--vocab_size 20 is too small",))
    refused(*argv, "--vocab_size", -1, says=("--vocab_size -1 is too small",))
    assert is_empty(tmp_path)


def test_the_normalization_of_a_vocabulary(tmp_path, run, refused) -> None:
    (tmp_path / "a.txt").write_text("Caf\u00e9 cafe\u0301 the cat sat\n" * 40)
    argv = ["tokenizer", "--input", tmp_path / "a.txt", "--cased", "--vocab_size", 268, "--normalization", "nfc"]
    status, out, _ = run(*argv, "--kind", "byte_level", "--output", tmp_path / "out")
    assert (status, out.startswith("268 tokens, byte_level, cased, normalization nfc, sha256 ")) == (0, True)
    assert json.loads((tmp_path / "out" / "tokenizer.json").read_text())["normalizer"] == {"type": "NFC"}
    refused(*argv, "--output", tmp_path / "other", says=("--normalization nfc: not for --kind wordpiece; give bert",))


def test_an_append_of_nothing_new_is_no_append(world, tmp_path, run) -> None:
    for number, name in ((3, "old"), (2, "new")):
        (tmp_path / f"{name}.jsonl").write_text(
            "".join(json.dumps({"text": prose(number + n, 20)}) + "\n" for n in range(0, 10 * number, 10))
        )
    argv = ["prepare", "--tokenizer", world.tokenizer, "--output", tmp_path / "out", "--workers", 1, "--input"]
    assert run(*argv, tmp_path / "old.jsonl")[0] == 0
    status, grown, _ = run(*argv, tmp_path / "new.jsonl", "--append")
    assert (status, grown.count("snapshot 2"), grown.count("2 are added")) == (0, 1, 1)
    status, again, _ = run(*argv, tmp_path / "new.jsonl", "--append")
    first, *rest = again.splitlines()
    out = tmp_path / "out"
    assert first == f"{out}: unchanged; of 2 new documents 0 are added, 2 rejected (2 exact duplicate)"
    assert (status, rest) == (0, grown.splitlines()[1:])


def test_a_tokenizer_directory_without_vocabulary(world, tmp_path, refused) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "vocab.txt").write_text("a\nb\n")
    for name, says in [("absent", "no such vocabulary"), ("bare", "no such vocabulary"), ("wrong", "[MASK]")]:
        argv = ["prepare", "--input", world.texts, "--tokenizer", tmp_path / name, "--output", tmp_path / "out"]
        refused(*argv, says=(str(tmp_path / name), says))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--heldout_fraction", "1"], ["--heldout_fraction 1"]),
        (["--heldout_fraction", "nan"], ["--heldout_fraction nan"]),
        (["--workers", "-3"], ["--workers -3"]),
    ],
)
def test_settings_of_prepare_out_of_range(world, tmp_path, refused, more, says) -> None:
    argv = ["prepare", "--input", world.texts, "--tokenizer", world.tokenizer, "--output", tmp_path / "out", *more]
    refused(*argv, says=tuple(says))
    assert is_empty(tmp_path)


def test_inputs_that_are_given_one_by_one_are_all_read(world, tmp_path, run) -> None:
    several = [world.texts / f"{number:02}.txt" for number in range(4)]
    argv = prepare_command(world, tmp_path / "out", "--input", *several[1:3], "--input", several[3], texts=several[0])
    assert "4 documents in = 4 stored" in run(*argv)[1]


def test_documents_of_records_are_no_stretches_of_lines(world, tmp_path, refused) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one. two."}\n')
    argv = prepare_command(world, tmp_path / "out", "--documents", "line", texts=tmp_path / "a.jsonl")
    refused(*argv, says=("--documents line: no input is text or markdown", "leave it out"))


def test_a_field_of_one_input_of_several(world, tmp_path, run, refused) -> None:
    (tmp_path / "a.csv").write_text("id,review\n" + "".join(f'{n},"{prose(n, 20)}"\n' for n in range(20)))
    argv = ["--input", tmp_path / "a.csv", "--input", world.texts, "--field", "review"]
    argv = ["tokenizer", *argv, "--vocab_size", 200, "--output"]
    status, out, _ = run(*argv, tmp_path / "tok")
    assert (status, len(out.splitlines())) == (0, 3)
    refused(*argv, tmp_path / "other", "--format", "text", says=("--field review: no input has fields",))


def test_outputs_that_hold_something_are_kept(world, tmp_path, refused) -> None:
    before = sorted(path.stat().st_mtime_ns for path in (*world.corpus.rglob("*"), *world.model.rglob("*")))
    refused(*prepare_command(world, world.corpus), says=("holds a corpus already",))
    refused(*prepare_command(world, world.recipe), says=("holds something else already",))
    argv = ["tokenizer", "--input", world.texts, "--vocab_size", 200, "--output"]
    refused(*argv, world.tokenizer, says=(str(world.tokenizer), "holds a vocabulary already"))
    argv = ["export", "--workdir", world.run, "--output", world.model]
    refused(*argv, says=(str(world.model), "holds a model already"))
    after = sorted(path.stat().st_mtime_ns for path in (*world.corpus.rglob("*"), *world.model.rglob("*")))
    assert before == after


@pytest.mark.parametrize(
    ("workers", "signum", "status", "message"),
    [
        (1, signal.SIGINT, 130, "interrupted"),
        (2, signal.SIGINT, 130, "interrupted"),
        (2, signal.SIGTERM, 143, "stopped by SIGTERM"),
    ],
)
def test_a_signal_during_preparation_leaves_nothing(world, tmp_path, workers, signum, status, message) -> None:
    texts, place = tmp_path / "texts", tmp_path / "made"
    texts.mkdir()
    place.mkdir()
    for number in range(30):
        (texts / str(number)).write_text(prose(number, 400) * 40)
    argv = ["prepare", "--input", texts, "--tokenizer", world.tokenizer, "--output", place / "corpus"]
    process = command(*argv, "--workers", workers)
    while is_empty(place) and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status, err
    assert err.splitlines()[-1] == f"bert-jax prepare: {message}"
    assert "corpus: no block was finished" in err
    assert "Traceback" not in err
    assert is_empty(place)


def test_a_corpus_at_a_url_needs_beam(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    says = ("gs://b/run", "only --runner beam writes to a URL")
    refused("prepare", "--input", "x", "--tokenizer", "tok", "--output", "gs://b/run", says=says)
    assert not any(tmp_path.iterdir())
