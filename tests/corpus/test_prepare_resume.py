"""Preparations that are killed, interrupted or changed: the remaining files, and the effect of the next call."""

import contextlib
import functools
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import fsspec
import pytest

from bert_jax.corpus.build import chunks, encoding
from bert_jax.corpus.build.prepare import prepare as prepare_with_options
from bert_jax.corpus.build.staging import UnfinishedCorpus
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions
from tests.helpers.preparation import TINY, TINY_PIECES, contents, make_texts, make_tokenizer, set_sizes

# One pass over the input; test_duplicates.py resumes the pass that compares documents.
prepare = functools.partial(prepare_with_options, deduplicate="none")

KILLS = int(os.environ.get("BERT_JAX_KILLS", "5"))


class Trial:
    """A preparation of the same texts that can be repeated."""

    def __init__(self, place):
        self.texts = make_texts(place / "texts", 8, paragraphs=4, sentences=20)
        self.tokenizer = make_tokenizer(place / "tokenizer")
        self.messages = []

    def prepare(self, output, **more):
        usual = {"workers": 1, "say": self.messages.append, "max_rejected_fraction": 1}
        return prepare([str(self.texts)], more.pop("tokenizer", self.tokenizer), output, **usual | more)

    def interrupt(self, output, number):
        """Interrupt the preparation after so many chunks."""
        left = [None] * number

        def progress(*_):
            left.pop()
            if not left:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.prepare(output, progress=progress)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    set_sizes(monkeypatch, {**TINY, **TINY_PIECES})
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test cuts the power, and all run faster


@pytest.fixture(scope="session")
def trial(tmp_path_factory):
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture
def expected(trial, tmp_path):
    trial.prepare(tmp_path / "expected")
    trial.messages.clear()
    return contents(tmp_path / "expected")


def check_refused(*places):
    for place in places:
        with pytest.raises(UserError):
            open_corpus(place)


def test_killed_before_every_write(trial, expected, tmp_path, monkeypatch):
    """What lies on the disk just before each of its changes, as a kill would leave it, leads to the same bytes."""
    place, output = tmp_path / ".c.incomplete", tmp_path / "c"
    copies = []
    originals = {name: getattr(os, name) for name in ("replace", "rename", "fsync", "mkdir")}

    def copy(*_):
        with monkeypatch.context() as patch:  # copying makes changes of its own
            for name, original in originals.items():
                patch.setattr(os, name, original)
            _copy()

    def _copy():
        if place.exists():
            copies.append(tmp_path / f"copy{len(copies)}")
            shutil.copytree(place, copies[-1])

    def before(change):
        return lambda *arguments, **named: copy() or change(*arguments, **named)

    for name, original in originals.items():
        monkeypatch.setattr(os, name, before(original))
    trial.prepare(output, progress=copy)
    monkeypatch.undo()
    set_sizes(monkeypatch, {**TINY, **TINY_PIECES})
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    assert contents(output) == expected
    assert len(copies) > 100
    resumed = 0
    for found in copies:
        shutil.rmtree(output)
        found.rename(place)
        check_refused(place, place / "blocks")
        if (place / "corpus" / "manifest.json").exists():  # nothing is left but to move it
            assert contents(place / "corpus") == expected
        trial.messages.clear()
        trial.prepare(output)
        resumed += any("resumes after" in line for line in trial.messages)
        assert contents(output) == expected
        assert not place.exists()
    assert resumed > len(copies) // 2


PROGRAM = """
import sys
from bert_jax.corpus.build import chunks
from bert_jax.readers import pieces
from bert_jax.corpus.build.prepare import prepare
chunks.CHUNK_BYTES, chunks.CHUNKS_PER_BLOCK, chunks.PARTITION_BYTES = map(int, sys.argv[5:8])
pieces.MAX_UNSPLIT_BYTES, pieces.MAX_PIECE_BYTES = map(int, sys.argv[8:])
if __name__ == "__main__":
    more = {"workers": int(sys.argv[4]), "max_rejected_fraction": 1, "deduplicate": "none"}
    prepare(sys.argv[1:2], *sys.argv[2:4], **more, progress=lambda *a: print(a, flush=True))
"""


class Process:
    """A preparation in its own process."""

    def __init__(self, trial, tmp_path, workers):
        (tmp_path / "program.py").write_text(PROGRAM)
        sizes = [str(size) for size in (*TINY.values(), *TINY_PIECES.values())]
        self._command = [sys.executable, tmp_path / "program.py", trial.texts, trial.tokenizer, tmp_path / "c"]
        self._command += [str(workers), *sizes]

    def kill(self, kill, seconds=0.0, lines=0):
        """Run until so many lines, then so many seconds, then kill it; return its status and its duration."""
        start = time.monotonic()
        with subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        ) as process:
            for _ in range(lines):
                assert process.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.send_signal(kill)
            process.wait()
            process.stdout.read()  # ends when the workers have ended, too
        return process.returncode, time.monotonic() - start


def check_kills(trial, expected, tmp_path, kills):
    rng = random.Random(0)
    longest = {workers: Process(trial, tmp_path, workers).kill(signal.SIGKILL, 60)[1] for workers in (1, 2)}
    killed = 0
    for number in range(kills):
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        workers = 1 + number % 2
        again = rng.randint(1, 3)  # times in a row
        for _ in range(again):
            if not (tmp_path / "c").exists():
                seconds = rng.uniform(0.3, 1) * longest[workers]
                killed += Process(trial, tmp_path, workers).kill(signal.SIGKILL, seconds)[0] == -signal.SIGKILL
                check_refused(tmp_path / ".c.incomplete")
        if (tmp_path / "c").exists():  # and killed while it tidied up, perhaps
            assert not list((tmp_path / ".c.incomplete").rglob("*.arrayrecord"))
            shutil.rmtree(tmp_path / ".c.incomplete", ignore_errors=True)
        else:
            check_refused(tmp_path / "c")
            trial.prepare(tmp_path / "c")
        assert contents(tmp_path / "c") == expected
        assert not (tmp_path / ".c.incomplete").exists()
    assert killed >= kills // 2


@pytest.mark.slow
def test_killed_at_random(trial, expected, tmp_path):
    check_kills(trial, expected, tmp_path, KILLS)


@pytest.mark.slow
def test_killed_at_a_hundred_random_moments(trial, expected, tmp_path):
    check_kills(trial, expected, tmp_path, 100)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_killed_after_a_chunk(trial, expected, tmp_path, workers, kill):
    """Before the first block is finished an interrupt leaves nothing; later it keeps the finished blocks."""
    process = Process(trial, tmp_path, workers)
    for lines in (1, 8):
        process.kill(kill, lines=lines)
        check_refused(tmp_path / "c", tmp_path / ".c.incomplete")
        assert (tmp_path / ".c.incomplete").exists() == (kill == signal.SIGKILL or lines == 8)
    trial.prepare(tmp_path / "c")
    assert any("resumes after" in line for line in trial.messages)
    assert contents(tmp_path / "c") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "expected", "program.py"]


def test_finished_blocks_are_not_encoded_again(trial, expected, tmp_path, monkeypatch):
    trial.interrupt(tmp_path / "c", 9)
    assert "kept 4 finished blocks; the same command resumes from there" in trial.messages[-1]
    encoded = []
    original = encoding.encode_chunk

    def encode(chunk, **rest):
        encoded.append(chunk)
        return original(chunk, **rest)

    monkeypatch.setattr(importlib.import_module("bert_jax.corpus.build.prepare"), "encode_chunk", encode)
    seen = []
    trial.prepare(tmp_path / "c", progress=lambda *a: seen.append(a))
    assert "resumes after 4 finished blocks" in trial.messages[-1]
    assert contents(tmp_path / "c") == expected
    assert encoding.sum_document_counts([]).documents == 0
    size = sum(path.stat().st_size for path in trial.texts.iterdir())
    assert seen[0][0] > size // 10
    assert seen[-1][:2] == (size, size)
    assert seen[-1][2] == json.loads(expected["manifest.json"])["documents"]["in"]
    assert min((chunk.partition, chunk.block) for chunk in encoded) > (0, 0)


def test_an_interrupt_before_the_first_block_reports_that_nothing_is_kept(trial, tmp_path):
    trial.interrupt(tmp_path / "c", 1)
    assert "no block was finished;" in trial.messages[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"heldout_fraction": 0.3}, "the settings changed"),
        ({"language": "de"}, "the settings changed"),
        ({"read_options": ReadOptions(encoding_errors="replace")}, "the settings changed"),
        ({"tokenizer": "other"}, "the tokenizer changed"),
        ("touch", "the input changed"),
        ("grow", "the input changed"),
        ("new", "the input changed"),
        ("chunks", "the program changed"),
    ],
)
def test_a_change_starts_over(tmp_path, monkeypatch, change, changed):
    trial = Trial(tmp_path)
    trial.interrupt(tmp_path / "c", 9)
    file = trial.texts / "003.txt"
    more = change if isinstance(change, dict) else {}
    if "tokenizer" in more:
        shutil.copytree(trial.tokenizer, tmp_path / "other")
        vocabulary = (tmp_path / "other" / "vocab.txt").read_text().replace("mat\n", "mouse\n")
        shutil.rmtree(tmp_path / "other")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "vocab.txt").write_text(vocabulary)
        more = {"tokenizer": tmp_path / "other"}
    elif change == "touch":
        os.utime(file, ns=(1, 1))
    elif change == "grow":
        file.write_text(file.read_text() + " the mat.")
    elif change == "new":
        (trial.texts / "zzz.txt").write_text("the cat.")
    elif change == "chunks":
        monkeypatch.setattr(chunks, "CHUNKS_PER_BLOCK", 3)
    trial.prepare(tmp_path / "c", **more)
    assert trial.messages[-1] == f"{tmp_path / 'c'}: starts over, as {changed} since it was interrupted"
    trial.prepare(tmp_path / "d", **more)
    assert contents(tmp_path / "c") == contents(tmp_path / "d")


@pytest.mark.parametrize("file", ["json", "arrayrecord", "rows", "plan.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_finished_blocks_that_were_damaged_are_made_again(trial, expected, tmp_path, file, harm):
    trial.interrupt(tmp_path / "c", 9)
    for path in sorted((tmp_path / ".c.incomplete").rglob(f"*{file}"))[::2]:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 2
        if harm == "remove":
            path.unlink()
        else:
            path.write_bytes(data if harm == "flip" else data[: len(data) // 2])
    trial.prepare(tmp_path / "c")
    assert contents(tmp_path / "c") == expected


def test_leftovers_of_others_are_removed(trial, expected, tmp_path):
    leftover = tmp_path / ".c.incomplete"
    (leftover / "tokenizer").mkdir(parents=True)
    (leftover / "train-00000.open").write_bytes(b"half")
    check_refused(leftover)
    trial.prepare(tmp_path / "c")
    assert contents(tmp_path / "c") == expected
    assert not leftover.exists()


def test_an_output_in_use_is_refused_and_an_empty_directory_is_used(trial, expected, tmp_path):
    (tmp_path / "c").mkdir()
    trial.prepare(tmp_path / "c")
    with pytest.raises(UserError, match="holds a corpus already"):
        trial.prepare(tmp_path / "c")
    (tmp_path / "d").write_text("mine")
    with pytest.raises(UserError, match="holds something else already"):
        trial.prepare(tmp_path / "d")
    assert contents(tmp_path / "c") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "expected"]


def test_two_preparations_of_one_corpus(trial, tmp_path):
    with UnfinishedCorpus(tmp_path / "c", {}, print):
        with pytest.raises(UserError, match="another preparation is writing"):
            trial.prepare(tmp_path / "c")
        assert (tmp_path / ".c.incomplete").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_url_whose_content_was_replaced_by_as_many_bytes_starts_over(tmp_path):
    bucket = fsspec.filesystem("memory")
    trial = Trial(tmp_path)
    trial.texts = "memory://replaced/a.txt"
    try:
        bucket.pipe("/replaced/a.txt", b"the cat sat on the mat.\n\n" * 900)
        trial.interrupt(tmp_path / "c", 5)
        bucket.pipe("/replaced/a.txt", b"the mat sat on the cat.\n\n" * 900)
        trial.prepare(tmp_path / "c")
        assert trial.messages[-1] == f"{tmp_path / 'c'}: starts over, as the input changed since it was interrupted"
        trial.prepare(tmp_path / "d")
        assert contents(tmp_path / "c") == contents(tmp_path / "d")
    finally:
        bucket.rm("/replaced", recursive=True)
