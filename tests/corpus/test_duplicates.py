"""Copies among documents: found as a literal comparison finds them, removed, reported, and never in both splits."""

import functools
import glob
import hashlib
import json
import os
import pathlib
import random
import unicodedata

import numpy as np
import pytest

from bert_jax import errors
from bert_jax.corpus import store as corpus
from bert_jax.corpus.build import chunks, signatures
from bert_jax.corpus.build import dedup_decisions as decisions
from bert_jax.corpus.build.chunks import plan_partitions
from bert_jax.corpus.build.dedup_pass import find_copies, removed_documents_file
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.passes import FinishedBlocks, PassProgress
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.build.signatures import choose_split, normal_form, normal_words, split_hash
from bert_jax.corpus.build.summary import format_summary
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions
from tests.helpers.preparation import TINY, TINY_PIECES, contents, make_tokenizer, set_sizes

TEXTS = (
    "Hello,   World! It's 5 o'clock \u2014 “really”?\r\n\tYes.",
    "ＦＵＬＬ　Ｗｉｄｔｈ，text。",  # noqa: RUF001
    "नमस्ते, दुनिया। ภาษาไทย 東京へ行きます。 한국어, 문장.",
    "zero\u200bwidth\u200djoiner\x85next\u2028line Straße İstanbul ﬁne ½",
    "a+b=c $5 ~x^y` <tag> |pipe|",
    "",
    "...!!!",
)


def literal(text):
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(one for one in folded if unicodedata.category(one)[0] not in "PZC") or text


def literal_shingles(text):
    folded = unicodedata.normalize("NFKC", text).casefold()
    spaced = "".join(one if unicodedata.category(one)[0] not in "PZC" else " " * one.isspace() for one in folded)
    words = spaced.split()
    return {tuple(words[start : start + 5]) for start in range(max(1, len(words) - 4))} if words else set()


def jaccard(one, other):
    return len(one & other) / len(one | other)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def planted(number=60, seed=0):
    """Texts of random words with copies that have 0 to 4 words replaced, so similarities are from 0 to 1."""
    rng = random.Random(seed)
    vocabulary = [f"the{number}" for number in range(500)]
    texts = []
    for _ in range(number):
        words = rng.choices(vocabulary, k=rng.randint(3, 120))
        for _ in range(rng.randint(1, 4)):
            copy = list(words)
            for _ in range(rng.choice((0, 0, 1, 2, 4))):
                copy[rng.randrange(len(copy))] = rng.choice(vocabulary)
            texts.append(rng.choice((" ", "  ", "\t")).join(copy) + rng.choice(("", ".", "!\r")))
    texts += ["* * *", "...", "* * *", "!", "1"]  # the first four have no words
    rng.shuffle(texts)
    return texts


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return [str(path)]


def removed_by_brute_force(texts, near):
    """{number of a removed text: reason}, by comparing each text with every earlier kept one."""
    sets, kept, found = [literal_shingles(text) for text in texts], [], {}
    for number, text in enumerate(texts):
        if literal(text) in {literal(texts[other]) for other in range(number)}:
            found[number] = "exact duplicate"
        elif near and sets[number] and any(jaccard(sets[number], sets[other]) >= 0.8 for other in kept):
            found[number] = "near duplicate"
        else:
            kept.append(number)
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_the_normal_form_has_letters_marks_numbers_and_symbols(text):
    assert normal_form(text) == literal(text)
    assert split_hash(text) == int.from_bytes(hashlib.blake2b(literal(text).encode(), digest_size=8).digest(), "big")
    assert "".join(normal_words(text)) == literal(text).strip(".!")


def test_words_are_characters_where_scripts_have_no_spaces():
    assert normal_words("東京へ 行く, don't stop") == ["東", "京", "へ", "行", "く", "dont", "stop"]
    assert normal_words("한국어 문장\u3000둘") == ["한국어", "문장", "둘"]


def test_shingles_are_sets_of_five_words():
    texts = [text for text in planted(20) if normal_words(text)]
    hashes, starts = signatures.hash_shingles_of_texts([normal_words(text) for text in texts])
    ends = [*starts[1:].tolist(), len(hashes)]
    found = [set(hashes[start:end].tolist()) for start, end in zip(starts.tolist(), ends, strict=True)]
    expected = [literal_shingles(text) for text in texts]
    for a in range(len(texts)):
        for b in range(a):
            assert jaccard(found[a], found[b]) == jaccard(expected[a], expected[b])


def test_the_similarity_of_sketches():
    rng = np.random.default_rng(0)
    pool = rng.choice(1 << 32, 8000, replace=False)
    errors = []
    for common in range(0, 3000, 100):
        one, other = pool[:3000], pool[3000 - common : 6000 - common]
        sketches = (np.sort(each)[:512].astype(np.uint32) for each in (one, other))
        errors.append(signatures.jaccard_similarity(*sketches, 512) - common / (6000 - common))
        small = np.sort(pool[: 3 + common // 10]), np.sort(pool[: 3 + common // 20])
        assert signatures.jaccard_similarity(*small, 512) == len(small[1]) / len(small[0])
    assert np.sqrt(np.mean(np.square(errors))) < 0.03  # the standard error is at most 0.022
    assert abs(np.mean(errors)) < 0.01


@pytest.mark.parametrize("deduplicate", ["exact", "near"])
def test_the_documents_that_a_literal_comparison_finds_are_removed(tmp_path, tokenizer, deduplicate):
    texts = planted()
    inputs = write(tmp_path / "a.jsonl", texts)
    manifest = prepare(
        inputs, tokenizer, tmp_path / "c", workers=1, deduplicate=deduplicate, keep_removed=tmp_path / "removed.jsonl"
    )
    lines = [json.loads(line) for line in (tmp_path / "removed.jsonl").read_text().splitlines()]
    numbers = [int(line["name"].rpartition(":")[2]) - 1 for line in lines]
    expected = removed_by_brute_force(texts, deduplicate == "near")
    assert numbers == sorted(expected)
    assert len(expected) > 10
    for number, line in zip(numbers, lines, strict=True):
        first = int(line["repeats"].rpartition(":")[2]) - 1
        assert first < number
        assert first not in expected
        same = literal(texts[first]) == literal(texts[number])
        assert line["reason"] == ("exact duplicate" if same else "near duplicate")
        assert same or jaccard(literal_shingles(texts[first]), literal_shingles(texts[number])) >= 0.8
        assert line["text"] == texts[number].replace("\r\n", "\n")
    rejected = manifest["documents"]["rejected"]
    assert rejected == {reason: sum(line["reason"] == reason for line in lines) for reason in sorted(rejected)}
    assert manifest["documents"]["stored"] == len(texts) - len(lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "c", "removed.jsonl"]


@pytest.mark.parametrize(
    ("texts", "stored"),
    [
        (["the cat."], 1),
        (["...", "the cat."], 2),
        (["the cat."] * 3, 1),
        (["", " "], 0),
        (["", "the cat.", "THE cat"], 1),
    ],
)
def test_few_documents(tmp_path, tokenizer, texts, stored):
    inputs = write(tmp_path / "a.jsonl", texts)
    settings = {"workers": 1, "deduplicate": "near", "heldout_fraction": 0}
    if stored:
        assert prepare(inputs, tokenizer, tmp_path / "c", **settings)["documents"]["stored"] == stored
    else:
        with pytest.raises(UserError, match="0 of 2 documents could be used: 2 empty"):
            prepare(inputs, tokenizer, tmp_path / "c", **settings)
    assert not (tmp_path / ".c.incomplete").exists()


def test_similar_documents_stay_in_one_split():
    """A chain of documents, each similar to the next: none is removed, and all have the hash of the first."""
    words = [f"w{number}" for number in range(200)]
    chain = [" ".join(words[start : start + 100]) for start in range(0, 60, 15)]  # similarity 81 / 111 = 0.73
    texts = ["alone " * 9, *chain]
    rows, sketches = zip(*(sign(text) for text in texts), strict=True)
    found = decisions.decide_copies([signatures.Signatures(np.concatenate(rows), np.concatenate(sketches))], [0], True)
    assert found.copy_of.tolist() == [-1] * 5
    assert found.split_hashes.tolist() == [split_hash(texts[0])] + [split_hash(chain[0])] * 4


def sign(text):
    from bert_jax.readers import RawDocument

    return signatures.compute_document_signatures([RawDocument(name="a", data=text.encode())], ReadOptions(), True)


def test_no_variant_of_a_text_is_on_the_other_side_of_the_split(tmp_path, tokenizer):
    rng = random.Random(0)
    texts = [" ".join(f"{rng.choice(('the', 'cat'))}{n}" for n in rng.choices(range(99), k=30)) for _ in range(48)]
    variants = [text.replace(" ", gap) + end for text in texts for gap, end in ((" ", ""), ("  ", "."), ("\n", " !"))]
    inputs = write(tmp_path / "a.jsonl", [*variants, *map(str.upper, texts), *(f"\ufeff“{text}”" for text in texts)])
    manifest = prepare(inputs, tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.2)
    for name in corpus.SPLITS:
        assert manifest["splits"][name]["documents"] % 5 == 0
        assert manifest["splits"][name]["documents"] > 0


def texts_of_every_kind(directory):
    """Files with copies: of whole documents, and of long ones in pieces."""
    directory.mkdir()
    rng = random.Random(5)
    for number, text in enumerate(planted(40, seed=3)):
        (directory / f"{number:03}.txt").write_text(text)
    for number in range(6):
        words = [f"the{rng.randrange(10_000)}" for _ in range(900)]
        text = "".join(word + ".\n\n"[: 1 + 2 * (n % 20 == 0)] + " " for n, word in enumerate(words))
        (directory / f"long{number}.txt").write_text(text)
        (directory / f"long{number}again.txt").write_text(text)
        words[700] = "cat"
        if number % 2:
            changed = "".join(word + ".\n\n"[: 1 + 2 * (n % 20 == 0)] + " " for n, word in enumerate(words))
            (directory / f"long{number}near.txt").write_text(changed)
    (directory / "binary").write_bytes(b"\0")
    return directory


@pytest.fixture
def _small(monkeypatch):
    set_sizes(monkeypatch, {**TINY, **TINY_PIECES})
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.mark.usefixtures("_small")
def test_the_same_bytes_for_any_number_of_workers_and_after_interrupts(tmp_path, tokenizer):
    texts = texts_of_every_kind(tmp_path / "texts")
    settings = {"deduplicate": "near", "heldout_fraction": 0.3}

    def run(name, **more):
        removed = tmp_path / f"{name}.jsonl"
        return prepare([str(texts)], tokenizer, tmp_path / name, keep_removed=removed, **settings, **more)

    manifest = run("one", workers=1)
    assert manifest["documents"]["rejected"]["exact duplicate"] >= 6
    kept = [json.loads(line)["name"] for line in (tmp_path / "one.jsonl").read_text().splitlines()]
    long = {os.path.basename(name) for name in kept if "long" in name}
    assert long == {f"long{number}again.txt" for number in range(6)} | {f"long{n}near.txt" for n in (1, 3, 5)}
    run("two", workers=2)
    for name in ("two", "three"):
        calls, messages = 0, []
        while name == "three" and not (tmp_path / name).exists():
            left = [None] * (7 + calls)
            calls += 1

            def progress(*_, left=left):
                left.pop()
                if not left:
                    raise KeyboardInterrupt

            (tmp_path / ".three.jsonl.incomplete").write_text("a line that a kill left\n")
            try:
                run(name, workers=1, progress=progress, say=messages.append)
            except KeyboardInterrupt:
                # Whatever is damaged is made again.
                signed = sorted((tmp_path / ".three.incomplete" / "copies").iterdir())
                signed[calls % len(signed)].write_bytes(b"{}")
        assert name == "two" or (calls > 3 and any("resumes after" in line for line in messages))
        assert contents(tmp_path / name) == contents(tmp_path / "one")
        assert (tmp_path / f"{name}.jsonl").read_text() == (tmp_path / "one.jsonl").read_text()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def splits_of(tmp_path, inputs, heldout_fraction, deduplicate="split"):
    """The decisions about all documents, and the split of each document."""
    signed = FinishedBlocks(tmp_path / f"signed {deduplicate}", functools.partial(errors.writing, tmp_path))
    settings = PrepareSettings(deduplicate=deduplicate, heldout_fraction=heldout_fraction)
    found = find_copies(signed, plan_partitions(inputs, [1]), settings, 1, PassProgress(None, 1, 1))
    return found, [choose_split(value, heldout_fraction) for value in found.split_hashes.tolist()]


def test_by_default_copies_are_in_one_split_and_no_document_is_removed(tmp_path, tokenizer):
    """Beside a comparison of each text with each other text."""
    texts = planted(60)
    inputs = write(tmp_path / "a.jsonl", texts)
    manifest = prepare(inputs, tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.3)
    assert manifest["settings"]["deduplicate"] == "split"
    assert not any("duplicate" in reason for reason in manifest["documents"]["rejected"])
    found, splits = splits_of(tmp_path, inputs, 0.3)
    assert (found.copy_of == -1).all()
    num_heldout = manifest["splits"]["heldout"]["documents"]
    assert 0 <= splits.count("heldout") - num_heldout <= len(texts) - manifest["documents"]["stored"]
    sets = [literal_shingles(text) for text in texts]
    earlier = {threshold: set() for threshold in ("equal", 0.8, 0.7)}
    for later, text in enumerate(texts):
        for other in range(later):
            similarity = jaccard(sets[other], sets[later]) if sets[other] and sets[later] else 0
            is_equal = literal(texts[other]) == literal(text)
            if is_equal or similarity >= 0.8:
                assert splits[other] == splits[later], (texts[other], text)
            kinds = {"equal": is_equal, 0.8: similarity >= 0.8, 0.7: similarity >= 0.7}
            for kind in (kind for kind, is_copy in kinds.items() if is_copy):
                earlier[kind].add(later)
    copies = manifest["copies"]
    assert copies["exact duplicate"] == len(earlier["equal"]) > 20
    assert sum(copies.values()) == len(removed_by_brute_force(texts, near=True))
    assert len(earlier[0.7] - earlier["equal"]) > copies["near duplicate"] > 10
    line = (
        f"{copies['exact duplicate']} exact copies and {copies['near duplicate']} near copies of earlier documents are"
    )
    assert line in format_summary(manifest, "c")
    removed = prepare(inputs, tokenizer, tmp_path / "near", workers=1, heldout_fraction=0.3, deduplicate="near")
    assert removed["copies"] == {"exact duplicate": 0, "near duplicate": 0}
    assert "--deduplicate near" not in format_summary(removed, "near")
    unchanged = prepare(inputs, tokenizer, tmp_path / "n", workers=1, heldout_fraction=0.3, deduplicate="none")
    assert "copies" not in unchanged
    assert unchanged["documents"] == manifest["documents"]
    hashes = [choose_split(split_hash(text), 0.3) for text in texts]
    assert any(
        hashes[other] != hashes[later]
        for later in range(len(texts))
        for other in range(later)
        if sets[other] and sets[later] and jaccard(sets[other], sets[later]) >= 0.8
    )


@pytest.mark.parametrize(("file", "change"), [("a", "grows"), ("b", "grows"), ("a", "shrinks"), ("b", "shrinks")])
def test_an_input_that_changes_after_the_search_is_refused(tmp_path, tokenizer, monkeypatch, file, change):
    """Otherwise a document would get the decision about the first document of the next partition."""
    set_sizes(monkeypatch, TINY | {(chunks, "PARTITION_BYTES"): 2000})
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", [f"the cat {name} {number}" for number in range(99)])
    inputs, changes = [f"{tmp_path}/*.jsonl"], []

    def change_after_the_search(done, total, documents):
        if documents == 2 * 99 and not changes:
            lines = (tmp_path / f"{file}.jsonl").read_text().splitlines(keepends=True)
            lines = [*lines, *lines[:1]] if change == "grows" else lines[:-1]
            (tmp_path / f"{file}.jsonl").write_text("".join(lines))
            changes.append(done)

    with pytest.raises(UserError, match=rf"{file}\.jsonl:\d+: the input changed while it was read"):
        prepare(inputs, tokenizer, tmp_path / "c", workers=1, progress=change_after_the_search)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("seed", range(6))
def test_a_template_of_most_documents_is_for_training(tmp_path, seed):
    """Of 300 documents, 150 are similar, more than the 90 that are held out."""
    rng = random.Random(seed)
    words = [f"the{rng.randrange(500)}" for _ in range(60)]
    similar = [" ".join([*words, f"the{rng.randrange(500)}"]) for _ in range(150)]
    different = [" ".join(f"the{rng.randrange(500)}" for _ in range(60)) for _ in range(150)]
    inputs = write(tmp_path / "a.jsonl", [text for pair in zip(similar, different, strict=True) for text in pair])
    _, splits = splits_of(tmp_path, inputs, 0.3)
    assert set(splits[::2]) == {"train"}
    assert 20 < splits[1::2].count("heldout") < 80


def test_few_predictions_are_reported(tmp_path, tokenizer):
    for number, is_warned in ((40, True), (600, False)):
        inputs = write(tmp_path / f"{number}.jsonl", planted(number))
        manifest = prepare(inputs, tokenizer, tmp_path / f"c{number}", workers=1, heldout_fraction=0.3)
        predictions = round(0.15 * manifest["splits"]["heldout"]["tokens"])
        assert (predictions < 2000) == is_warned
        assert f"an evaluation has about {predictions:,} predictions" in format_summary(manifest, "c")
        assert any("below 2,000 its loss says little" in line for line in manifest["warnings"]) == is_warned


def test_mistakes(tmp_path, tokenizer):
    inputs = write(tmp_path / "a.jsonl", planted(5))
    (tmp_path / "mine").write_text("x")
    cases = [
        ({"keep_removed": tmp_path / "r"}, "remove nothing; add --deduplicate exact or near"),
        ({"deduplicate": "near", "keep_removed": tmp_path / "mine"}, "exists already"),
        ({"deduplicate": "near", "keep_removed": ""}, "exists already"),
        ({"deduplicate": "near", "keep_removed": tmp_path / "no" / "r"}, "cannot be written"),
        ({"deduplicate": "all"}, "--deduplicate all: give one of none, split, exact, near"),
        ({"max_rejected_fraction": 1.5}, "give a fraction from 0 to 1"),
    ]
    for change, words in cases:
        with pytest.raises(UserError, match=words):
            prepare(inputs, tokenizer, tmp_path / "c", workers=1, **change)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "mine"]


def test_too_many_rejected_documents_are_an_error_that_keeps_the_work(tmp_path, tokenizer):
    (tmp_path / "a.jsonl").write_text('{"text": "the cat sat."}\n' * 8 + "{\n" * 2)
    inputs, messages = [str(tmp_path / "a.jsonl")], []
    words = (
        "2 of 10 documents were rejected: 2 broken JSON; write JSON as .* allow it with --max_rejected_fraction 0.2$"
    )
    for _ in range(2):
        with pytest.raises(UserError, match=words):
            prepare(inputs, tokenizer, tmp_path / "c", workers=1, say=messages.append, deduplicate="none")
    options = {"max_rejected_fraction": 0.2, "deduplicate": "none"}
    manifest = prepare(inputs, tokenizer, tmp_path / "c", workers=1, say=messages.append, **options)
    assert manifest["documents"] == {"in": 10, "stored": 8, "rejected": {"broken JSON": 2}}
    assert sum("resumes after 1 finished block" in line for line in messages) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "c"]


def test_a_full_disk_is_an_error_of_one_line(tmp_path):
    partitions = plan_partitions(write(tmp_path / "a.jsonl", planted(5)), [1])
    signed = FinishedBlocks(tmp_path / "signed", functools.partial(errors.writing, tmp_path))
    signed.directory.mkdir()
    (signed.directory / "00000-00000.rows").symlink_to("/dev/full")
    with pytest.raises(errors.UserError, match="No space left"):
        find_copies(signed, partitions, PrepareSettings(deduplicate="exact"), 1, PassProgress(None, 1, 1))


def test_removed_files_whose_names_are_not_utf8(tmp_path, tokenizer):
    (tmp_path / "texts").mkdir()
    for name in (b"a\xff.txt", b"b\xff.txt"):
        pathlib.Path(os.fsdecode(os.fsencode(tmp_path / "texts") + b"/" + name)).write_text("The same text twice.")
    prepare(
        [str(tmp_path / "texts")],
        tokenizer,
        tmp_path / "c",
        workers=1,
        deduplicate="exact",
        keep_removed=tmp_path / "r",
    )
    (line,) = map(json.loads, (tmp_path / "r").read_text().splitlines())
    names = [os.path.basename(line[key]) for key in ("repeats", "name")]
    assert sorted(names) == ["a\\udcff.txt", "b\\udcff.txt"]


def test_a_file_of_removed_documents_in_an_input_is_reported(tmp_path):
    """The next preparation of the directory would read the file."""
    texts, lines = tmp_path / "texts", []
    for folder in (texts, tmp_path / "others"):
        folder.mkdir()
        with removed_documents_file(folder / "removed.jsonl", [str(texts), "python-docs"], lines.append):
            pass
    assert lines == [
        f"warning: {texts}/removed.jsonl is in the input {texts}; move it before the next command that reads this input"
    ]


@pytest.mark.parametrize("pattern", ["**/*", "**", "*", "*.txt", "t*/*.jsonl", "*/*/*", "**/a/**", "t*/**/a/*"])
def test_a_file_of_removed_documents_that_a_glob_matches_is_reported(tmp_path, monkeypatch, pattern):
    """Exactly the files that the reader of the next preparation finds."""
    (tmp_path / "texts" / "a").mkdir(parents=True)
    (tmp_path / "texts" / "b.txt").write_text("A text.")
    (tmp_path / "c.txt").write_text("A text.")
    monkeypatch.chdir(tmp_path)
    for file in ("texts/removed.jsonl", "texts/a/removed.jsonl", "removed.jsonl"):
        lines = []
        with removed_documents_file(file, [pattern], lines.append):
            pass
        matches = [path for path in glob.glob(pattern, recursive=True) if os.path.exists(path)]
        assert bool(lines) == any(pathlib.Path(file).is_relative_to(path) for path in matches), (file, matches)
        os.remove(file)
