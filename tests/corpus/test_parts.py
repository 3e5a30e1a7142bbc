"""A text in parts: each document is in exactly one of them, and a corpus of all parts has them all."""

import csv
import gzip
import itertools
import json
import os
import pathlib
import random
from collections.abc import Callable, Iterator

import pytest

from bert_jax import readers as sources
from bert_jax.corpus.build import prepare_parts as parts
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.build.prepare_parts import (
    estimate_text_tokens,
    files_of_part,
    fraction_prepared_after_part,
    num_parts_of_text,
    prepare_missing_parts,
)
from bert_jax.corpus.manifest import read_manifest, snapshot_fingerprints
from bert_jax.corpus.store import SPLITS, open_corpus
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, inputs
from tests.helpers.preparation import make_tokenizer, text

COUNT = 3


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "SMALL_BYTES", 2_000)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test cuts the power


def texts(number: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [f"the {seed} {one} " + text(rng, rng.randint(1, 30)) for one in range(number)]


def write_jsonl(path: pathlib.Path, number: int = 200) -> pathlib.Path:
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts(number, seed=number)))
    return path


def write_gzip(path: pathlib.Path) -> pathlib.Path:
    path.write_bytes(gzip.compress(write_jsonl(path).read_bytes()))
    return path


def write_csv(path: pathlib.Path) -> pathlib.Path:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["text"], *([one] for one in texts(200, seed=1))])
    return path


def write_wiki(path: pathlib.Path) -> pathlib.Path:
    path.write_text("".join(f'<doc id="{n}">\nT\n\n{one}\n</doc>\n' for n, one in enumerate(texts(200, seed=2))))
    return path


def read(files: list[str], options: ReadOptions = ReadOptions()) -> list[tuple[str, str]]:
    """Name and text of each document."""
    return [(one.name, one.text) for one in sources.read_documents(files, options)]


def in_parts(files: list[str], count: int = COUNT) -> Iterator[list[tuple[str, str]]]:
    for part in range(count):
        yield read(*files_of_part(files, ReadOptions(), part, count))


@pytest.mark.parametrize(
    ("name", "write"),
    [("a.jsonl", write_jsonl), ("a.jsonl.gz", write_gzip), ("a.csv", write_csv), ("wiki_00", write_wiki)],
)
def test_a_file_of_records_is_divided_by_its_bytes(
    tmp_path: pathlib.Path, name: str, write: Callable[[pathlib.Path], pathlib.Path]
) -> None:
    """Each part has a stretch of the file, in order, and four times the bytes of all before it."""
    file = str(write(tmp_path / name))
    whole, found = read([file]), list(in_parts([file]))
    assert list(itertools.chain(*found)) == whole
    if name != "a.jsonl.gz":  # which is packed more than is usual
        size = sum(len(one) for _, one in whole)
        assert [sum(len(one) for _, one in part) / size for part in found] == pytest.approx(
            [1 / 16, 3 / 16, 3 / 4], abs=0.05
        )


def test_small_files_are_spread_evenly(tmp_path: pathlib.Path) -> None:
    """Also over their order: of 64 files of two sources, each part has some of both."""
    files = [tmp_path / f"{number:02}.txt" for number in range(64)]
    for file in files:
        file.write_text(f"the cat {file.name}.")
    found = list(in_parts([str(file) for file in files]))
    assert sorted(itertools.chain(*found)) == read([str(file) for file in files])
    assert [len(part) for part in found] == pytest.approx([4, 12, 48], abs=1)
    for part in found:
        assert {pathlib.Path(name).name < "32.txt" for name, _ in part} == {True, False}
    with pytest.raises(UserError, match=r"config\.data\.snapshots=3: the text has too few files"):
        files_of_part([str(files[0])], ReadOptions(), 1, 3)


def test_the_number_of_parts_follows_from_the_size(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part is as large as may be, and a large file that is one document is never divided."""
    file, size = str(write_jsonl(tmp_path / "a.jsonl")), (tmp_path / "a.jsonl").stat().st_size
    for most, expected in ((size, 1), (size - 1, 2), (size // 4 + 1, 2), (size // 5, 3), (size // 64 + 1, 4)):
        monkeypatch.setattr(parts, "MAX_FIRST_PART_BYTES", most)
        assert num_parts_of_text([file], ReadOptions()) == expected
        assert fraction_prepared_after_part(0, expected) * size <= most
    (tmp_path / "book.txt").write_text(text(random.Random(0), 300))
    assert num_parts_of_text([file, str(tmp_path / "book.txt")], ReadOptions()) == 1
    assert (estimate_text_tokens(100, None), estimate_text_tokens(100, 1), estimate_text_tokens(100, 3)) == (
        100,
        100,
        1600,
    )


def test_the_corpus_of_all_parts_has_all_documents(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As prepared at once, in the same splits; a snapshot for each part, and what is there is not made again."""
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    file, corpus = str(write_jsonl(tmp_path / "a.jsonl", 120)), tmp_path / "corpus"
    first, options = files_of_part([file], ReadOptions(), 0, COUNT)
    before = prepare(first, tokenizer, corpus, options, workers=1, heldout_fraction=0.2)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    prepare_missing_parts([file], ReadOptions(), corpus, COUNT)
    made = snapshot_fingerprints(read_manifest(corpus))
    prepare_missing_parts([file], ReadOptions(), corpus, COUNT)
    whole = prepare([file], tokenizer, tmp_path / "whole", workers=1, heldout_fraction=0.2)
    assert snapshot_fingerprints(read_manifest(corpus)) == made
    assert (made[0], len(made)) == (before["fingerprint"], COUNT)
    assert read_manifest(corpus)["documents"] == whole["documents"]
    for name in SPLITS:
        found = [open_corpus(place).split(name) for place in (corpus, tmp_path / "whole")]
        assert found[0].num_tokens == found[1].num_tokens
        assert sorted(found[0].tokens_per_record) == sorted(found[1].tokens_per_record)


def test_a_part_without_new_documents_is_an_error(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = make_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "a.jsonl").write_text((json.dumps({"text": "the cat sat on the mat. " * 10}) + "\n") * 50)
    first, options = files_of_part([str(tmp_path / "a.jsonl")], ReadOptions(), 0, 2)
    prepare(first, tokenizer, tmp_path / "corpus", options, workers=1, heldout_fraction=0)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with (
        pytest.raises(UserError, match=r"from 25\.00% to 100\.00% adds no document"),
    ):
        prepare_missing_parts([str(tmp_path / "a.jsonl")], ReadOptions(), tmp_path / "corpus", 2)
