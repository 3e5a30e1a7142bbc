"""Recipes with `against`: copies of documents of other corpora are removed, as a literal comparison finds them."""

import collections
import json
import os
import random

import pytest

from bert_jax.corpus.build.append import compare_corpora, open_signatures
from bert_jax.corpus.build.clean import clean_texts, format_cleaning_result
from bert_jax.corpus.build.cleaning.recipe import read_recipe
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import read_manifest
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from tests.helpers.preparation import make_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test cuts the power


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("against") / "tokenizer")


def text(rng):
    """Twenty words that no other text has."""
    return " ".join("".join(rng.choices(LETTERS, k=7)) for _ in range(20))


def variant(text, words):
    """The text with its last words replaced."""
    return " ".join([*text.split()[:-words], *(f"new{number}" for number in range(words))])


def jaccard(one, other):
    sets = [{tuple(words[start : start + 5]) for start in range(len(words) - 4)} for words in (one, other)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def write(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return [str(path)]


@pytest.fixture(scope="module")
def corpora(tokenizer, tmp_path_factory):
    """Two corpora with a document in common, their texts, and texts of which some repeat these, lightly varied."""
    place, rng = tmp_path_factory.mktemp("corpora"), random.Random(0)
    known = {str(place / name): [text(rng) for _ in range(12)] for name in ("one", "two")}
    first, second = known.values()
    second[0] = first[0]
    for name, texts in known.items():
        prepare(write(place / "old.jsonl", texts), tokenizer, name, workers=1, heldout_fraction=0.3, deduplicate="near")
    own = [text(rng) for _ in range(6)]
    varied = [first[0], first[1].upper() + "!", second[2], variant(first[3], 1), variant(second[4], 1), second[5]]
    not_copies = [variant(first[6], 9), own[1].title(), variant(own[2], 1)]
    new = [*own, *varied, *not_copies]
    rng.shuffle(new)
    return known, new


def literal(known, new):
    """The reason and the repeated document of each text: a corpus, or the place of an earlier text."""
    forms = {name: [one.split() for one in texts] for name, texts in known.items()}
    kept, found = {}, []
    for number, one in enumerate(new):
        form = one.casefold().strip("!").split()
        others = [*((name, other) for name, texts in forms.items() for other in texts), *kept.items()]
        best = max(others, key=lambda pair: jaccard(form, pair[1]))  # the first of several
        similarity = jaccard(form, best[1])
        kind = "exact duplicate" if similarity == 1 else "near duplicate" if similarity >= 0.8 else ""
        of = f" of {best[0]}" if isinstance(best[0], str) else ""
        found.append((kind + of * bool(kind), best[0]))
        if not kind:
            kept[number] = form
    return found


def recipe_of(path, deduplicate, against, more=""):
    path.write_text(f"deduplicate = {json.dumps(deduplicate)}\nagainst = {json.dumps(list(against))}\n{more}")
    return path


def test_copies_of_other_corpora_are_removed(tmp_path, corpora, tokenizer):
    known, new = corpora
    inputs, expected = write(tmp_path / "new.jsonl", new), literal(known, new)
    recipe = recipe_of(tmp_path / "r.toml", "near", known)
    account = clean_texts(
        inputs, recipe, tmp_path / "c.jsonl", workers=1, keep_removed=tmp_path / "removed", max_rejected_fraction=0
    )
    reasons = collections.Counter(reason for reason, _ in expected if reason)
    assert len(reasons) == 6
    assert account["documents"]["rejected"] == dict(reasons)
    assert account["cleaning"]["against"] == list(known)
    kept = [json.loads(line)["text"] for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert kept == [text for text, (reason, _) in zip(new, expected, strict=True) if not reason]
    removed = [json.loads(line) for line in (tmp_path / "removed").read_text().splitlines()]
    name = f"{inputs[0]}:"
    assert [(one["name"], one["reason"], one["repeats"], one["text"]) for one in removed] == [
        (
            f"{name}{number + 1}",
            reason,
            f"a document of {of}" if isinstance(of, str) else f"{name}{of + 1}",
            new[number],
        )
        for number, (reason, of) in enumerate(expected)
        if reason
    ]
    assert f"2 exact duplicate of {next(iter(known))}" in format_cleaning_result(account, "c")
    manifest = prepare(
        inputs, tokenizer, tmp_path / "corpus", workers=1, clean=recipe, heldout_fraction=0.3, max_rejected_fraction=0
    )
    assert manifest["documents"] == {"in": len(new), "stored": len(kept), "rejected": dict(reasons)}
    assert manifest["cleaning"]["against"] == list(known)


@pytest.mark.parametrize("fraction", [0.3, 0.05, 0.9])  # the other corpus has 0.3
def test_similar_documents_join_the_split_of_the_other_corpus(tmp_path, corpora, tokenizer, fraction):
    known, _ = corpora
    (name, *_), (texts, *_) = known, known.values()
    similar = [variant(one, 2) for one in texts]  # of a similarity below that of copies
    assert all(0.7 <= jaccard(one.split(), other.split()) < 0.8 for one, other in zip(texts, similar, strict=True))
    recipe = recipe_of(tmp_path / "r.toml", "near", [name])
    inputs = write(tmp_path / "a.jsonl", similar)
    prepare(inputs, tokenizer, tmp_path / "c", workers=1, clean=recipe, heldout_fraction=fraction)
    counts = [
        {split: open_corpus(place).split(split).num_documents for split in ("train", "heldout")}
        for place in (name, tmp_path / "c")
    ]
    assert counts[0] == counts[1]
    assert min(counts[0].values()) > 1


def test_near_duplicates_of_another_held_out_split_are_removed_without_a_held_out_split(tmp_path, corpora, tokenizer):
    known, _ = corpora
    (name, *_), (texts, *_) = known, known.values()
    inputs = write(tmp_path / "a.jsonl", [variant(one, 2) for one in texts])
    recipe = recipe_of(tmp_path / "r.toml", "near", [name])
    held_out = open_corpus(name).split("heldout").num_documents
    account = clean_texts(inputs, recipe, tmp_path / "c.jsonl", workers=1, max_rejected_fraction=0)
    manifest = prepare(
        inputs, tokenizer, tmp_path / "c", workers=1, clean=recipe, heldout_fraction=0, max_rejected_fraction=0
    )
    rejected = {f"near duplicate of {name}": held_out}
    assert account["documents"]["rejected"] == manifest["documents"]["rejected"] == rejected
    assert manifest["documents"]["stored"] == len(texts) - held_out > 1


def test_a_corpus_remembers_the_corpora_that_it_was_compared_with(tmp_path, corpora, tokenizer):
    known, new = corpora
    recipe = recipe_of(tmp_path / "r.toml", "exact", known)
    expected = [reason for reason, _ in literal(known, new) if reason.startswith("exact")]
    prepare(write(tmp_path / "a.jsonl", new[:8]), tokenizer, tmp_path / "c", workers=1, clean=recipe)
    recipe.unlink()
    manifest = prepare(write(tmp_path / "b.jsonl", [*new[8:], new[0]]), None, tmp_path / "c", workers=1, append=True)
    rejected = manifest["documents"]["rejected"]
    assert sum(rejected.values()) == len(expected) + 1
    assert {reason: number for reason, number in rejected.items() if " of " in reason} == collections.Counter(
        reason for reason in [*expected, *(reason for reason, _ in literal(known, new[:1]))] if " of " in reason
    )
    other = recipe_of(tmp_path / "other.toml", "exact", [*known][:1])
    with pytest.raises(UserError, match="was prepared with other rules; leave the option out"):
        prepare(write(tmp_path / "d.jsonl", new), None, tmp_path / "c", workers=1, append=True, clean=other)


def test_an_append_from_another_directory_finds_the_files_of_the_recipe(tmp_path, corpora, tokenizer, monkeypatch):
    known, new = corpora
    (tmp_path / "question.txt").write_text("one two three four five")
    rule = '[contamination]\nngram = 5\nfiles = ["question.txt"]\n'
    monkeypatch.chdir(tmp_path)
    recipe_of(tmp_path / "r.toml", "exact", [os.path.relpath(place) for place in known], rule)
    write(tmp_path / "a.jsonl", new[:8])
    expected = [reason for reason, _ in literal(known, new) if " of " in reason and reason.startswith("exact")]
    for given in (None, ["question.txt"]):
        output = tmp_path / f"c{given is None}"
        options = {"clean": "r.toml", "evaluation_files": given, "max_rejected_fraction": 1.0}
        monkeypatch.chdir(tmp_path)
        prepare(["a.jsonl"], tokenizer, output, workers=1, **options)
        monkeypatch.chdir("/")
        inputs = write(tmp_path / "b.jsonl", [*new[8:], "Well: one two three, four five six."])
        manifest = prepare(inputs, None, output, workers=1, append=True)
        rejected = manifest["documents"]["rejected"]
        assert rejected.pop(f"contamination: {tmp_path / 'question.txt'}") == 1
        assert {reason: count for reason, count in rejected.items() if " of " in reason} == collections.Counter(
            expected
        )


def test_corpora_at_urls_are_compared_like_directories(tmp_path, corpora, tokenizer, monkeypatch):
    """Also an older snapshot; the copies in the cache have no documents."""
    known, new = corpora
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = str(tmp_path / "c")
    prepare(write(tmp_path / "a.jsonl", new[:8]), tokenizer, place, workers=1, deduplicate="near")
    old = read_manifest(tmp_path / "c")["fingerprint"][:12]
    prepare(write(tmp_path / "b.jsonl", new[8:]), None, place, workers=1, append=True)
    first, second = known
    for corpus in (place, f"{place}@{old}"):
        found = compare_corpora(corpus, first)
        assert compare_corpora(f"file://{corpus}", f"file://{first}") == found
    assert compare_corpora(place, first) != found
    assert not list((tmp_path / "cache").rglob("train*"))
    recipe = recipe_of(tmp_path / "r.toml", "near", [f"file://{first}", second])
    inputs = write(tmp_path / "d.jsonl", new)
    account = clean_texts(inputs, recipe, tmp_path / "d", workers=1, max_rejected_fraction=1.0)
    reasons = collections.Counter(reason for reason, _ in literal(known, new) if reason)
    expected = {reason.replace(f" of {first}", f" of file://{first}"): count for reason, count in reasons.items()}
    assert account["documents"]["rejected"] == expected


def test_a_corpus_that_grows_makes_another_recipe(tmp_path, tokenizer):
    rng = random.Random(1)
    texts = [text(rng) for _ in range(8)]
    place = str(tmp_path / "c")
    prepare(write(tmp_path / "a.jsonl", texts[:4]), tokenizer, place, workers=1, heldout_fraction=0)
    recipe = recipe_of(tmp_path / "r.toml", "exact", [place])
    before = read_recipe(recipe).identity([open_signatures(place).fingerprint])
    snapshot = recipe_of(tmp_path / "s.toml", "exact", [f"{place}@{read_manifest(tmp_path / 'c')['fingerprint'][:12]}"])
    prepare(write(tmp_path / "b.jsonl", texts[4:6]), None, place, workers=1, append=True)
    assert read_recipe(recipe).identity([open_signatures(place).fingerprint]) != before
    inputs = write(tmp_path / "d.jsonl", texts)
    assert clean_texts(inputs, recipe, tmp_path / "all.jsonl", workers=1)["documents"]["kept"] == 2
    assert clean_texts(inputs, snapshot, tmp_path / "old.jsonl", workers=1)["documents"]["kept"] == 4
    with pytest.raises(
        UserError, match=r"0 of 6 documents are kept: 6 exact duplicate of .*; they are in that corpus already; "
    ):
        clean_texts(write(tmp_path / "e.jsonl", texts[:6]), recipe, tmp_path / "none.jsonl", workers=1)
    near = recipe_of(tmp_path / "n.toml", "near", [place])
    with pytest.raises(UserError, match="c: prepared without --deduplicate near, so near copies"):
        clean_texts(inputs, near, tmp_path / "near.jsonl", workers=1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('against = ["c"]', 'against needs deduplicate = "exact" or "near"'),
        ('deduplicate = "exact"\nagainst = "c"', "against: 'c' is not a list of corpora"),
        ('deduplicate = "exact"\nagainst = ["c", 1]', r"against: \['c', 1\] is not a list of corpora"),
        ('againts = ["c"]', "there is no rule 'againts'; did you mean 'against'"),
        ('deduplicate = "exact"\nagainst = ["c"]', "c: no such corpus directory"),
    ],
)
def test_bad_recipes_are_refused(tmp_path, monkeypatch, content, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text(content)
    with pytest.raises(UserError, match=words):
        clean_texts(write(tmp_path / "a.jsonl", ["a text"]), tmp_path / "r.toml", tmp_path / "c.jsonl", workers=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "r.toml"]
