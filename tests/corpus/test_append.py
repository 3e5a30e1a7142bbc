"""Corpora that grow: appended text gives the corpus of all texts at once, and stored text stays as it was."""

import itertools
import json
import os
import pathlib
import random
import re
import shutil

import numpy as np
import pytest

from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.config import DataConfig
from bert_jax.corpus import store as corpus
from bert_jax.corpus.build.append import compare_corpora, format_comparison
from bert_jax.corpus.build.corpus_writer import BaseCorpus
from bert_jax.corpus.build.prepare import format_summary, prepare
from bert_jax.corpus.build.staging import UnfinishedCorpus
from bert_jax.corpus.cache import copy_corpus_to_cache
from bert_jax.corpus.manifest import read_manifest, verify_corpus
from bert_jax.corpus.mixture import corpus_setting_with_snapshots, open_mixture
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.tokenizer import SPECIAL_TOKENS, Normalizer, load_tokenizer, save_tokenizer, wordpiece_tokenizer
from tests.helpers.preparation import TINY, TINY_PIECES, contents, few_words, set_sizes

WORDS = [f"{word}{number}" for word in ("the", "cat", "dog", "sat", "mat", "on") for number in range(90)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(wordpiece_tokenizer([*SPECIAL_TOKENS, *WORDS, "mat"], Normalizer()), directory)
    return directory


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test cuts the power


def make_texts(number, seed):
    """Texts of random words, of which some have copies with another case, and some with a few words replaced."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(4, 60))) for _ in range(number)]
    for text in texts[: number // 3]:
        words = text.split()
        words[rng.randrange(len(words))] = "dog1"
        texts += [text.upper() + "!", " ".join(words)]
    rng.shuffle(texts)
    return texts


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return [str(path)]


def stored(split):
    """The token ids of each document of a split."""
    tokens, *_ = split.read(np.arange(split.num_records))
    ends = np.cumsum(split.tokens_per_record)[split.first_record[1:] - 1]
    return [tuple(own.tolist()) for own in np.split(tokens, ends[:-1])] if split.num_documents else []


def documents(found):
    return {name: sorted(stored(found.split(name))) for name in corpus.SPLITS}


def batches(mixture):
    """The first sequences of the training split, as a run reads them."""
    split, symbols = mixture.split("train"), special_ids_and_vocabulary(mixture.tokenizer())
    sequences = make_sequences(split, symbols, 32, 0, DataConfig())
    return {name: array.tolist() for name, array in sequences.batch(np.arange(64)).items()}


def test_a_directory_that_holds_its_tokenizer_its_corpus_and_a_run_is_read_without_them(tmp_path, tokenizer):
    write(tmp_path / "a.jsonl", make_texts(30, seed=1))
    for directory in ("tokenizer", "run/tokenizer", "project/tokenizer", "early"):
        shutil.copytree(tokenizer, tmp_path / directory)
    for file in ("tokenizer/SHA256SUMS", "early/SHA256SUMS", "early/tokenizer.json"):
        (tmp_path / file).unlink()  # as transformers saves a tokenizer, and as its early versions did
    (tmp_path / "project" / "manifest.json").write_text('{"text": "the1 dog"}')  # a project of the user, not a corpus
    write(tmp_path / "project" / "b.jsonl", ["the1 dog sat1"])
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "own").mkdir()
    write(tmp_path / "own" / "tokenizer.json", ["the1 cat2"])  # a text of the user, in spite of its name
    said = []
    for append in (False, True):
        write(tmp_path / f"{append}.jsonl", [f"{append} the1 mat"])
        where = None if append else tmp_path / "tokenizer"
        made = prepare(str(tmp_path), where, tmp_path / "corpus", append=append, workers=1, say=said.append)
        expected = 50 + 1 + 2 + 1 + append * 55
        assert made["documents"]["in"] == expected
        assert set(made["documents"]["rejected"]) <= {"exact duplicate"}
    assert re.search(
        "not read are tokenizers, corpora and runs: 6 run, 4 project/tokenizer, 3 tokenizer, 2 early; to read some, "
        "name them",
        said[0],
    )
    assert re.search(r"tokenizers, corpora and runs: .*\d+ corpus", said[-1])


@pytest.mark.parametrize("deduplicate", ["none", "exact", "near"])
def test_the_union_prepared_at_once_has_the_same_documents(tmp_path, tokenizer, deduplicate):
    texts = make_texts(60, seed=1)
    first, second, third = texts[:50], texts[50:70], texts[70:] + texts[:3]
    if deduplicate == "none":  # of which an append removes exact copies all the same
        forms = [text.casefold().strip("!") for text in texts]
        texts = [text for number, text in enumerate(texts) if forms.index(forms[number]) == number]
        first, second, third = texts[:40], texts[40:60], texts[60:] + texts[:3]
    settings = {"workers": 1, "heldout_fraction": 0.3, "deduplicate": deduplicate}
    prepare(write(tmp_path / "all.jsonl", first + second + third[:-3]), tokenizer, tmp_path / "all", **settings)
    prepare(write(tmp_path / "1.jsonl", first), tokenizer, tmp_path / "c", **settings)
    old = contents(tmp_path / "c")
    for name, more in (("2.jsonl", second), ("3.jsonl", third)):
        manifest = prepare(write(tmp_path / name, more), None, tmp_path / "c", workers=1, append=True)
    assert documents(open_corpus(tmp_path / "c")) == documents(open_corpus(tmp_path / "all"))
    whole = read_manifest(tmp_path / "all")
    assert manifest["documents"]["stored"] == whole["documents"]["stored"]
    assert manifest["documents"]["in"] == whole["documents"]["in"] + 3
    assert (
        manifest["documents"]["rejected"]["exact duplicate"]
        == whole["documents"]["rejected"].get("exact duplicate", 0) + 3
    )
    for name in ("counts", "unknown_token_fraction", "sentences_per_document", "settings", "tokenizer"):
        assert manifest[name] == whole[name], name
    now = contents(tmp_path / "c")
    assert {name: data for name, data in now.items() if name in old and name != "manifest.json"} == {
        name: data for name, data in old.items() if name != "manifest.json"
    }
    assert now["manifest.0.json"] == old["manifest.json"]
    assert verify_corpus(tmp_path / "c") == []
    assert f"snapshot 3, {manifest['fingerprint'][:12]}: of {len(third)} new documents" in format_summary(manifest, "c")


def test_an_old_snapshot_gives_the_same_batches(tmp_path, tokenizer):
    texts = make_texts(40, seed=2)
    place = tmp_path / "c[1]"  # no pattern
    prepare(write(tmp_path / "1.jsonl", texts[:40]), tokenizer, place, workers=1, heldout_fraction=0.2)
    before = open_mixture(str(place))
    first, named = batches(before), corpus_setting_with_snapshots(str(place), before)
    prepare(write(tmp_path / "2.jsonl", texts[40:]), tokenizer, place, workers=1, append=True)
    newest = open_mixture(str(place))
    assert newest.fingerprint != before.fingerprint
    assert batches(newest) != first
    assert newest.split("train").num_documents > before.split("train").num_documents
    for again in (open_mixture(named), open_mixture(str(place), recorded=named)):
        assert again.fingerprint == before.fingerprint
        assert batches(again) == first
        assert documents(again.corpora[0]) == documents(before.corpora[0])
    named_now = corpus_setting_with_snapshots(str(place), newest)
    assert open_mixture(named_now, recorded=named).fingerprint == newest.fingerprint  # what is named counts
    assert open_mixture(str(place), recorded=f"{place}@{'0' * 12}").fingerprint == newest.fingerprint
    with pytest.raises(UserError, match=f"no snapshot 0{{12}}; it has {before.fingerprint[:12]}, "):
        open_mixture(f"{place}@{'0' * 12}")
    with pytest.raises(UserError, match="is named twice"):
        open_mixture(f"{named},{place}/@{newest.fingerprint[:12]}")


def test_a_copy_of_an_old_snapshot_from_storage(tmp_path, tokenizer):
    texts = make_texts(30, seed=3)
    prepare(write(tmp_path / "1.jsonl", texts[:30]), tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.2)
    before = open_corpus(tmp_path / "c")
    prepare(write(tmp_path / "2.jsonl", texts[30:]), tokenizer, tmp_path / "c", workers=1, append=True)
    url = f"file://{tmp_path / 'c'}"
    for snapshot, expected in ((before.fingerprint[:12], before), ("", open_corpus(tmp_path / "c"))):
        copy = copy_corpus_to_cache(url, tmp_path / "cache", snapshot=snapshot)
        assert documents(open_corpus(copy)) == documents(expected)
        assert verify_corpus(copy) == []
        assert not list(copy.glob("signatures*"))
    with pytest.raises(UserError, match="no snapshot 00000000; it has"):
        copy_corpus_to_cache(url, tmp_path / "cache", snapshot="00000000")


def test_similar_documents_stay_in_one_split(tmp_path, tokenizer):
    """What is similar to a stored document joins its split; what is similar to some of both splits is left out."""
    words = random.Random(8).sample(WORDS, 400)

    def window(start):
        return " ".join(words[start : start + 100])  # similarity of two: 0.78 where they begin 12 words apart

    old = [window(start) for start in range(0, 240, 24)]  # similarity of neighbors: 0.6
    settings = {"workers": 1, "heldout_fraction": 0.5, "deduplicate": "near"}
    prepare(write(tmp_path / "old.jsonl", old), tokenizer, tmp_path / "c", **settings)
    split_of = {ids[0]: name for name, own in documents(open_corpus(tmp_path / "c")).items() for ids in own}
    firsts = load_tokenizer(tokenizer).encode_sentences([text.split()[0] for text in old])
    same = [split_of[one[0]] == split_of[other[0]] for one, other in itertools.pairwise(firsts)]
    assert 0 < sum(same) < len(same)
    between = [window(start + 12) for start in range(0, 216, 24)]
    manifest = prepare(write(tmp_path / "new.jsonl", between), None, tmp_path / "c", workers=1, append=True)
    assert manifest["documents"] == {"in": 19, "stored": 10 + sum(same), "rejected": {"near duplicate": 9 - sum(same)}}
    found = documents(open_corpus(tmp_path / "c"))
    assert all(jaccard(one, other) < 0.7 for one in found["train"] for other in found["heldout"])


def jaccard(one, other):
    sets = [{tuple(ids[start : start + 5]) for start in range(len(ids) - 4)} for ids in (one, other)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_nothing_new_leaves_the_corpus_as_it_is(tmp_path, tokenizer):
    inputs = write(tmp_path / "1.jsonl", make_texts(9, seed=4))
    manifest = prepare(inputs, tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.3)
    before = contents(tmp_path / "c")
    removed = tmp_path / "removed.jsonl"
    again = prepare(inputs, tokenizer, tmp_path / "c", workers=1, append=True, keep_removed=removed)
    found = [json.loads(line) for line in removed.read_text().splitlines()]
    assert [one["repeats"] for one in found] == [f"a document of {tmp_path / 'c'}"] * 15
    removed.unlink()
    assert again == {**manifest, "unchanged": {"in": 15, "rejected": {"exact duplicate": 15}}}
    assert contents(tmp_path / "c") == before
    line = "c: unchanged; of 15 new documents 0 are added, 15 rejected (15 exact duplicate)\n"
    assert format_summary(again, "c") == line + format_summary(manifest, "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.jsonl", "c"]


@pytest.mark.parametrize("deduplicate", ["none", "split", "exact", "near"])
def test_copies_of_documents_with_blank_pieces_are_known(tmp_path, tokenizer, monkeypatch, deduplicate):
    """A cleaning rule removes the first, a middle or all but one piece of long documents; another piece has spaces."""
    set_sizes(monkeypatch, {**TINY, **TINY_PIECES})
    rng = random.Random(6)
    pieces = [[f"{' '.join(rng.choices(WORDS, k=180))} .\n" for _ in range(6)] for _ in range(5)]
    evaluated = [pieces[0][0], pieces[1][3], *pieces[2][1:]]
    evaluation = tmp_path / "eval.txt"
    evaluation.write_text("".join(evaluated))
    (tmp_path / "clean.toml").write_text('[contamination]\nfiles = ["eval.txt"]\n')
    pieces[3][2] = " " * 2000 + "\n"
    inputs = []
    for number, document in enumerate(pieces):
        (tmp_path / f"{number}.txt").write_text("".join(document))
        inputs.append(str(tmp_path / f"{number}.txt"))
    settings = {"workers": 1, "heldout_fraction": 0.0, "deduplicate": deduplicate, "clean": tmp_path / "clean.toml"}
    manifest = prepare(inputs, tokenizer, tmp_path / "c", **settings)
    assert manifest["cleaning"]["changed"] == {f"piece removed: contamination: {tmp_path / 'eval.txt'}": 9}
    for file in inputs[::-1]:
        again = prepare([file], None, tmp_path / "c", workers=1, append=True)
        assert again["unchanged"]["rejected"] == {"exact duplicate": 1}, file


def test_killed_before_every_write(tmp_path, tokenizer, monkeypatch):
    """What lies on the disk before each change is the corpus of before, or of after; the same command completes it."""
    set_sizes(monkeypatch, {**TINY, **TINY_PIECES})
    texts = make_texts(60, seed=5)
    place, work = tmp_path / "c", tmp_path / ".c.incomplete"
    prepare(
        write(tmp_path / "1.jsonl", texts[:50]), tokenizer, place, workers=1, heldout_fraction=0.2, deduplicate="near"
    )
    inputs, old = write(tmp_path / "2.jsonl", texts[50:]), open_corpus(place)
    copies = []
    originals = {name: getattr(os, name) for name in ("replace", "rename", "unlink")}

    def copy():
        with monkeypatch.context() as patch:
            for name, original in originals.items():
                patch.setattr(os, name, original)
            target = tmp_path / f"copy{len(copies)}"
            shutil.copytree(place, target / "c")
            if work.exists():
                shutil.copytree(work, target / ".c.incomplete")
            copies.append(target)

    for name, original in originals.items():
        monkeypatch.setattr(os, name, lambda *a, original=original, **named: copy() or original(*a, **named))
    prepare(inputs, None, place, workers=1, append=True)
    for name, original in originals.items():
        monkeypatch.setattr(os, name, original)
    expected, new, resumed = contents(place), open_corpus(place), 0
    assert len(copies) > 20
    for found in copies[::3] + copies[-12:]:
        shutil.rmtree(place)
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(found / "c", place)
        if (found / ".c.incomplete").exists():
            shutil.copytree(found / ".c.incomplete", work)
        now = open_corpus(place)
        assert documents(now) == documents(new if now.fingerprint == new.fingerprint else old)
        assert verify_corpus(place) == []
        lines = []
        prepare(inputs, None, place, workers=1, append=True, say=lines.append)
        resumed += any("resumes after" in line for line in lines)
        assert contents(place) == expected
        assert not work.exists()
    assert resumed > 5


def test_two_appends_at_once(tmp_path, tokenizer):
    """The second has read the manifest of before; it must not write over the files of the first."""
    texts = make_texts(12, seed=10)
    prepare(write(tmp_path / "1.jsonl", texts[:9]), tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.3)
    base = BaseCorpus(tmp_path / "c", read_manifest(tmp_path / "c"))
    prepare(write(tmp_path / "2.jsonl", texts[9:]), None, tmp_path / "c", workers=1, append=True)
    before = contents(tmp_path / "c")
    stale = UnfinishedCorpus(base.directory, {}, print, base)
    with pytest.raises(UserError, match="has added to this corpus meanwhile"), stale:
        pass
    assert contents(tmp_path / "c") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.jsonl", "2.jsonl", "c"]


def test_options_that_contradict_the_corpus_are_refused(tmp_path, tokenizer):
    inputs = write(tmp_path / "1.jsonl", make_texts(9, seed=6))
    (tmp_path / "other").mkdir()
    shutil.copy(tokenizer / "vocab.txt", tmp_path / "other")
    (tmp_path / "other" / "vocab.txt").write_text((tokenizer / "vocab.txt").read_text().replace("mat\n", "mouse\n"))
    (tmp_path / "words.toml").write_text(few_words(2))
    prepare(inputs, tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.3)
    before = contents(tmp_path / "c")
    prepared = f"{tmp_path / 'c'} was prepared"
    cases = [
        ({"language": "de"}, f"--language de: {prepared} with en; leave the option out"),
        ({"heldout_fraction": 0.1}, f"--heldout_fraction 0.1: {prepared} with 0.3; leave the option out"),
        ({"deduplicate": "near"}, f"--deduplicate near: {prepared} with split; leave the option out"),
        ({"tokenizer_directory": tmp_path / "other"}, f"not the tokenizer of {tmp_path / 'c'}; leave the option out"),
        ({"clean": tmp_path / "words.toml"}, "was prepared without cleaning; leave the option out"),
        ({"output": tmp_path / "none"}, "no such corpus directory"),
    ]
    for change, words in cases:
        call = {"tokenizer_directory": None, "output": tmp_path / "c", "workers": 1, "append": True, **change}
        with pytest.raises(UserError) as caught:
            prepare(inputs, **call)
        assert words in str(caught.value)
    with pytest.raises(UserError, match="no tokenizer: give --tokenizer DIR"):
        prepare(inputs, None, tmp_path / "new", workers=1)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    name = pathlib.Path(manifest["signatures"][0]["name"])
    (tmp_path / "c" / name).write_bytes(b"x")
    with pytest.raises(UserError, match=r"signatures\.npy: digest differs"):
        prepare(inputs, None, tmp_path / "c", workers=1, append=True)
    assert {**contents(tmp_path / "c"), "signatures.npy": b""} == {**before, "signatures.npy": b""}


def test_near_copies_of_stored_documents_join_their_split(tmp_path, tokenizer):
    """With the sketches of a default corpus; without sketches, the summary says that such copies were not searched."""
    rng = random.Random(11)
    texts = [" ".join(rng.choices(WORDS, k=60)) for _ in range(30)]
    new = [f"{text} dog1 {number}" for number in range(3) for text in texts]
    first, second = write(tmp_path / "1.jsonl", texts), write(tmp_path / "2.jsonl", new)
    for keep in (True, False):
        place = tmp_path / f"c{keep}"
        settings = {"workers": 1, "heldout_fraction": 0.3, "keep_sketches": keep}
        prepare(first, tokenizer, place, **settings)
        before = open_corpus(place)
        manifest = prepare(second, None, place, workers=1, append=True, max_rejected_fraction=0)
        known = {document[:50]: name for name in corpus.SPLITS for document in stored(before.split(name))}
        found = open_corpus(place)
        splits = [(known[document[:50]], name) for name in corpus.SPLITS for document in stored(found.split(name))]
        assert (len(known), len(splits)) == (30, 120)
        assert all(one == other for one, other in splits) == keep
        assert ("earlier snapshots were not searched" in format_summary(manifest, place)) == (not keep)
        assert "on the same side of the split" in format_summary(manifest, place)


def test_a_cleaned_corpus_is_added_to_by_the_same_recipe(tmp_path, tokenizer):
    recipe = tmp_path / "words.toml"
    recipe.write_text('deduplicate = "exact"\n' + few_words(12))
    texts = make_texts(40, seed=7)
    settings = {"workers": 1, "heldout_fraction": 0.2, "clean": recipe}
    prepare(write(tmp_path / "all.jsonl", texts), tokenizer, tmp_path / "all", **settings)
    prepare(write(tmp_path / "1.jsonl", texts[:30]), tokenizer, tmp_path / "c", **settings)
    recipe.unlink()
    manifest = prepare(write(tmp_path / "2.jsonl", texts[30:]), None, tmp_path / "c", workers=1, append=True)
    whole = read_manifest(tmp_path / "all")
    assert documents(open_corpus(tmp_path / "c")) == documents(open_corpus(tmp_path / "all"))
    assert (manifest["documents"], manifest["cleaning"]) == (whole["documents"], whole["cleaning"])


def test_the_rules_of_a_recipe_have_an_order(tmp_path, tokenizer):
    rules = ["[mask_emails]\n", few_words(2)]
    for name, parts in {"one": rules, "other": rules[::-1]}.items():
        (tmp_path / f"{name}.toml").write_text("".join(parts))
    texts = make_texts(40, seed=7)
    first = write(tmp_path / "1.jsonl", texts[:30])
    prepare(first, tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.2, clean=tmp_path / "one.toml")
    new, more = write(tmp_path / "2.jsonl", texts[30:]), {"workers": 1, "append": True}
    with pytest.raises(UserError, match="was prepared with other rules"):
        prepare(new, None, tmp_path / "c", clean=tmp_path / "other.toml", **more)
    prepare(new, None, tmp_path / "c", clean=tmp_path / "one.toml", **more)


@pytest.mark.parametrize("kinds", [("near", "near"), ("exact", "near"), ("none", "none")])
def test_copies_between_two_corpora(tmp_path, tokenizer, kinds):
    """As a literal comparison of the texts finds them; the tokenizers differ."""
    other = tmp_path / "other"
    save_tokenizer(wordpiece_tokenizer([*SPECIAL_TOKENS, *WORDS[:99], "dog"], Normalizer()), other)
    texts = make_texts(45, seed=9)
    parts, sets = (texts[:30], texts[30:]), []
    for part, own, deduplicate, name in zip(parts, (tokenizer, other), kinds, "ab", strict=True):
        forms = [text.casefold().strip("!").split() for text in part]
        shingles = [{tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))} for words in forms]
        kept = [  # so that the corpus has what is compared
            number
            for number, own_set in enumerate(shingles)
            if all(len(own_set & one) / len(own_set | one) < 0.8 for one in shingles[:number])
        ]
        sets.append([shingles[number] for number in kept])
        inputs = write(tmp_path / f"{name}.jsonl", [part[number] for number in kept])
        prepare(inputs, own, tmp_path / name, workers=1, heldout_fraction=0.3, deduplicate=deduplicate)
    best = [max(len(one & two) / len(one | two) for two in sets[1]) for one in sets[0]]
    exact, near = sum(value == 1 for value in best), sum(0.8 <= value < 1 for value in best)
    assert min(exact, near) > 0
    found = compare_corpora(str(tmp_path / "a"), str(tmp_path / "b"))
    assert found == (len(sets[0]), exact, near if kinds == ("near", "near") else None)
    line = format_comparison(found, "a", "b")
    assert line.startswith(f"a: of {len(sets[0])} documents {exact} are exact copies of documents of b (")
    assert line.endswith("near copies are not known, as one corpus was prepared without --deduplicate near") == (
        found.near is None
    )


def test_copies_within_a_corpus_do_not_count_as_copies_of_the_other_corpus(tmp_path, tokenizer):
    """One document twice in the first alone, one twice in both."""
    own, both, others = "the1 cat2 dog3 sat4", "mat5 on6 the7 cat8", "dog9 sat10 mat11 on12"
    for name, texts in {"a": [own, own, both, both], "b": [both, both, others, others]}.items():
        prepare(write(tmp_path / f"{name}.jsonl", texts), tokenizer, tmp_path / name, workers=1, heldout_fraction=0)
    assert compare_corpora(str(tmp_path / "a"), str(tmp_path / "b")) == (4, 2, None)
