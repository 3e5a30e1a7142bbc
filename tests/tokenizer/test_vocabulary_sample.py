"""A vocabulary of several sources: the part of each source, the report, progress, and refusals."""

import collections
import dataclasses
import gzip
import hashlib
import math
import re

import pytest

from bert_jax.errors import UserError
from bert_jax.readers.documents import ReadOptions
from bert_jax.tokenizer import TOKENIZERS, load_tokenizer
from bert_jax.tokenizer.train import train_tokenizer
from bert_jax.tokenizer.training_sample import count_characters, hash_fraction, num_uses_of_piece, num_uses_per_source

SENTENCE = "the cat sat on the mat and the dogs chatted on the shattered mattress , catching the doggedest .\n"


def test_characters_are_counted():
    found = count_characters(["abca", "b\n"])
    assert found == (6, {"a": 2, "b": 2, "c": 1, "\n": 1})


@pytest.mark.parametrize("smoothing", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("sample", [None, 500, 10**9])
def test_fractions_follow_exponential_smoothing(smoothing, sample):
    sizes = [100_000, 3_000, 10]
    found = num_uses_per_source(sizes, smoothing, None, sample)
    taken = [rate * size for rate, size in zip(found, sizes, strict=True)]
    assert math.isclose(sum(taken), 500 if sample == 500 else sum(sizes))
    for mine, size in zip(taken, sizes, strict=True):
        assert math.isclose(mine / taken[0], (size / sizes[0]) ** smoothing)


def test_a_source_that_is_used_fully_has_rate_1():
    assert (
        num_uses_per_source([3, 7_000_001, 9])
        == num_uses_per_source([3, 7_000_001, 9], sample_characters=10**10)
        == [1.0] * 3
    )
    assert num_uses_per_source([300, 100], sample_characters=40) == [0.1, 0.1]
    assert num_uses_per_source([300, 100], weights=(1, 1)) == [200 / 300, 2.0]


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5, 1.0, 2.3])
def test_a_hash_of_the_text_samples_at_the_rate(rate):
    number = 100_000
    found = [num_uses_of_piece(f"text {n}", rate) for n in range(number)]
    assert set(found) <= {math.floor(rate), math.ceil(rate)}
    deviation = math.sqrt(number * (rate % 1) * (1 - rate % 1))
    assert abs(sum(found) - rate * number) <= 4 * deviation
    assert found[:99] == [num_uses_of_piece(f"text {n}", rate) for n in range(99)]


def test_a_larger_sample_includes_a_smaller_sample():
    texts = [f"text {n}" for n in range(1000)]
    small, large = ({text for text in texts if num_uses_of_piece(text, rate)} for rate in (0.1, 0.3))
    assert small < large
    deciles = collections.Counter(int(10 * hash_fraction(text)) for text in texts)
    assert set(deciles) == set(range(10))


@pytest.fixture
def two_sources(tmp_path):
    """Many documents of one, few of the other, with other words."""
    big, small = tmp_path / "big", tmp_path / "small"
    big.mkdir()
    small.mkdir()
    for number in range(200):
        (big / f"{number:03}.txt").write_text(SENTENCE * (1 + number % 3) + f"number {number}\n")
    for number in range(10):
        (small / f"{number}.txt").write_text(f"quixotic jazz verve vexes quick brown foxes {number}\n" * 2)
    return [[str(big)], [str(small / "*.txt")]]


def taken(report):
    """The rates and fractions in the lines of a report."""
    found = re.findall(r"used (\S+)(?: times)?, (\S+)% of the text", report)
    return [(1.0 if rate == "once" else float(rate), float(share)) for rate, share in found]


def test_two_sources_and_their_fractions(tmp_path, two_sources):
    report = train_tokenizer(two_sources, 95, tmp_path / "plain")
    assert [rate for rate, _ in taken(report)] == [1.0, 1.0]
    assert "wordpiece, uncased" in report.splitlines()[0]
    words = [0, 0]
    for number, (source, line) in enumerate(zip(("big", "small"), report.splitlines()[1:], strict=True)):
        text = "".join(path.read_text() for path in (tmp_path / source).iterdir())
        assert f"{source}" in line
        assert f"{len(text):,} characters" in line
        words[number] = float(re.search(r"; (\S+) tokens per word", line)[1])
        assert "0.00% unknown" in line
    assert words[1] > 2 > words[0]
    smooth = train_tokenizer(two_sources, 95, tmp_path / "smooth", smoothing=0.0)
    assert [share for _, share in taken(smooth)] == [50.0, 50.0]
    heavy = train_tokenizer(two_sources, 95, tmp_path / "heavy", weights=[1, 99])
    assert [share for _, share in taken(heavy)] == [1.0, 99.0]
    tokens = [set(load_tokenizer(tmp_path / name).tokens) for name in ("plain", "smooth", "heavy")]
    assert len({"quixotic", "foxes", "jazz", "verve", "vexes", "quick", "brown"} & tokens[2]) > 1
    assert "chatted" not in tokens[2]
    assert "the" in tokens[0]


def test_progress_covers_both_passes_over_the_text(tmp_path, two_sources):
    seen, lines = [], []
    train_tokenizer(two_sources, 95, tmp_path / "tok", progress=lambda *a: seen.append(a), say=lines.append)
    size = sum(path.stat().st_size for name in ("big", "small") for path in (tmp_path / name).iterdir())
    assert seen[-1] == (2 * size, 2 * size, 2 * 210)
    assert seen == sorted(seen)
    assert len(seen) == 2 * 210
    assert lines == [f"learning 95 tokens from {size:,} characters"]


@pytest.mark.parametrize("settings", [{}, {"sample_characters": 5000}, {"smoothing": 0.5}])
def test_order_and_number_of_files_change_nothing(tmp_path, two_sources, settings):
    big = sorted((tmp_path / "big").iterdir(), reverse=True)
    with gzip.open(tmp_path / "rest.gz", "wt") as joined:
        joined.write("\n\n".join(path.read_text() for path in big[100:]))
    other = [[*map(str, big[:100]), str(tmp_path / "rest.gz")], two_sources[1]]
    read_options = ReadOptions(documents="blank-line")
    for place, inputs in (("one", two_sources), ("two", other)):
        train_tokenizer(inputs, 85, tmp_path / place, read_options=read_options, **settings)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_sample_is_about_as_large_as_asked(tmp_path, two_sources, monkeypatch):
    found = []
    own = TOKENIZERS["wordpiece"]

    def counting(text, vocab_size, lowercase):
        found.append(sum(map(len, text.pieces())))
        return own.train["bert"](text, vocab_size, lowercase)

    monkeypatch.setitem(TOKENIZERS, "wordpiece", dataclasses.replace(own, train={"bert": counting}))
    train_tokenizer(two_sources, 85, tmp_path / "all")
    train_tokenizer(two_sources, 85, tmp_path / "part", sample_characters=found[0] // 4)
    assert 0.15 < found[1] / found[0] < 0.35


def test_rejected_documents_and_lost_accents_are_reported(tmp_path):
    (tmp_path / "good.txt").write_text("grün für über Öl\n" * 50, encoding="utf-8")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xff")
    (tmp_path / "empty.txt").write_bytes(b"")
    files = [[str(tmp_path / "*.txt")]]
    report = train_tokenizer(files, 24, tmp_path / "tok")
    assert "left out 1 empty, 1 invalid UTF-8" in report
    assert (
        "uncased also removes accents and vowel signs, and decomposes Korean syllables: 23.5% of the characters here"
        in report
    )
    assert "accents" not in train_tokenizer(files, 24, tmp_path / "cased", lowercase=False)
    (tmp_path / "hindi.txt").write_text("\u0928\u092e\u0938\u094d\u0924\u0947 \u092e\u0947\n" * 50, encoding="utf-8")
    hindi = train_tokenizer([[str(tmp_path / "hindi.txt")]], 16, tmp_path / "hindi")
    assert "uncased also removes accents and vowel signs" in hindi  # which have no decomposition
    with pytest.raises(UserError, match=r"fills a vocabulary of .*; left out 1 empty, 1 invalid UTF-8"):
        train_tokenizer(files, 9999, tmp_path / "more")


def test_a_line_of_many_megabytes(tmp_path):
    (tmp_path / "line.txt").write_text(SENTENCE.replace("\n", " ") * 10_000)
    for kind, size in (("wordpiece", 60), ("byte_level", 280)):
        report = train_tokenizer([[str(tmp_path / "line.txt")]], size, tmp_path / kind, kind=kind)
        assert "970,000 characters, used once, 100.0%" in report


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kind": "word_piece"}, r"word_piece: unknown; known are wordpiece, bpe, .*did you mean 'wordpiece'"),
        ({"smoothing": 1.5}, "--smoothing 1.5: give 0"),
        ({"smoothing": float("nan")}, "--smoothing nan: give 0"),
        ({"weights": [1.0]}, "--weights has 1 numbers for 2 sources"),
        ({"weights": [1.0, 0.0]}, "--weights 1 0: each must be above 0"),
        ({"weights": [1.0, float("nan")]}, "--weights 1 nan: each must be above 0"),
        ({"weights": [1.0, 2.0], "smoothing": 0.5}, "both set the fraction of each source"),
        ({"sample_characters": -1}, "--sample_characters -1"),
        ({"sample_characters": 0}, "--sample_characters 0"),
        ({"vocab_size": 6}, "too small"),
    ],
)
def test_bad_arguments(tmp_path, two_sources, settings, says):
    with pytest.raises(UserError, match=says):
        train_tokenizer(two_sources, **({"vocab_size": 60, "output": tmp_path / "tok"} | settings))
    assert not (tmp_path / "tok").exists()


def test_smoothing_of_one_source_is_refused(tmp_path, two_sources):
    with pytest.raises(UserError, match="--smoothing has no effect on one source; repeat --input"):
        train_tokenizer(two_sources[:1], 60, tmp_path / "tok", smoothing=0.5)


def test_a_list_of_no_sources_is_refused(tmp_path):
    with pytest.raises(UserError, match="no input: give files"):
        train_tokenizer([], 100, tmp_path / "tokenizer")


def test_a_source_without_text_is_named(tmp_path, two_sources):
    (tmp_path / "nothing.txt").write_text(" \n")
    with pytest.raises(UserError, match=r"nothing\.txt: no text to train a vocabulary from; left out 1 empty"):
        train_tokenizer([*two_sources, [str(tmp_path / "nothing.txt")]], 60, tmp_path / "tok")


def test_the_message_lists_the_fields_of_records_without_the_requested_field(tmp_path, two_sources):
    (tmp_path / "a.jsonl").write_text('{"id": 1, "review": "good"}\n' * 490)
    with pytest.raises(UserError, match=r"left out 490 no field; a record without 'text' has 'id', 'review'; give"):
        train_tokenizer([*two_sources, [str(tmp_path / "a.jsonl")]], 60, tmp_path / "tok")


def test_a_field_of_one_source_among_others(tmp_path, two_sources):
    (tmp_path / "a.csv").write_text("review\n" + "the quick brown fox\n" * 9)
    report = train_tokenizer(
        [*two_sources, [str(tmp_path / "a.csv")]], 95, tmp_path / "tok", read_options=ReadOptions(field="review")
    )
    assert "a.csv: 171 characters" in report
    with pytest.raises(UserError, match="--field review: no input has fields"):
        train_tokenizer(two_sources, 95, tmp_path / "none", read_options=ReadOptions(field="review"))


def test_a_vocabulary_of_single_occurrences_is_reported(tmp_path):
    pytest.importorskip("sentencepiece")
    (tmp_path / "text").write_text("".join(hashlib.sha256(bytes([n])).hexdigest() + "\n" for n in range(200)))
    report = train_tokenizer([[str(tmp_path / "text")]], 3000, tmp_path / "a", kind="sentencepiece_bpe")
    assert re.search(r"^2,[5-9]\d\d of 3,000 tokens occur at most once in the text", report, re.MULTILINE)
    assert "at most once" not in train_tokenizer(
        [[str(tmp_path / "text")]], 200, tmp_path / "b", kind="sentencepiece_bpe"
    )


def test_an_output_that_holds_something(tmp_path, two_sources):
    (tmp_path / "tok").mkdir()
    (tmp_path / "tok" / "file").write_text("mine")
    with pytest.raises(UserError, match="already"):
        train_tokenizer(two_sources, 60, tmp_path / "tok")
