"""Characters that a tokenizer changes, as a literal reading of unicodedata counts them; warnings and samples."""

import collections
import gzip
import json
import unicodedata

import pytest

from bert_jax.corpus.build import encoding
from bert_jax.corpus.build.prepare import format_summary, prepare
from bert_jax.readers import ReadOptions
from bert_jax.tokenizer import (
    SPECIAL_TOKENS,
    Normalizer,
    build_tokenizer,
    byte_level,
    save_tokenizer,
    wordpiece_tokenizer,
)
from bert_jax.tokenizer.changes import KINDS, changes_warning, count_changed_characters
from bert_jax.tokenizer.train import train_from_texts

CANONICAL, INVISIBLE, SPACE, COMPATIBILITY, MARK, CASE, OTHER = KINDS


def bert(lowercase):
    return wordpiece_tokenizer([*SPECIAL_TOKENS, "a"], Normalizer(do_lower_case=lowercase))


def stepped(*steps):
    """A byte-level tokenizer with these steps of normalization."""
    tokens = [*byte_level.SPECIAL, "a"]
    definition = byte_level.define_byte_level({token: number for number, token in enumerate(tokens)}, ())
    return build_tokenizer({**definition, "normalizer": {"type": "Sequence", "normalizers": steps}}, byte_level.SPECIAL)


@pytest.fixture(scope="module")
def sentences(samples):
    """Korean, Japanese and German, as it is and decomposed, and characters that are rare in it."""
    found = [
        "\uff21\uff11\uff0c\uff5e ﬁ ½ ﷺ ｶﾞ ㈱",
        "x\u200b\u200d\ufeffy \x07 \u00ad",
        "a\u00a0b\u3000c \u2009 d",
        "İ ẞ ß Å Ω K",
        "क़ ড় ❤\ufe0f",
    ]
    for treebank in ("ko_gsd", "ja_gsd", "de_gsd"):
        with gzip.open(samples / "ud" / f"{treebank}-ud-dev.conllu.gz", "rt", encoding="utf-8") as lines:
            found += [line[9:].rstrip("\n") for line in lines if line.startswith("# text = ")][:60]
    return [*found, *(unicodedata.normalize("NFD", text) for text in found)]


def bert_counts(text, lowercase):
    """What google-research/bert's BasicTokenizer changes, a character at a time."""
    found = collections.Counter()
    for character in text:
        if character.isspace() and character not in "\x1c\x1d\x1e\x1f":
            found[SPACE] += character != " "
        elif unicodedata.category(character) in ("Cc", "Cf") or (lowercase and character == "\ufe0f"):
            found[INVISIBLE] += 1
        elif lowercase:
            letters = unicodedata.normalize("NFD", character)
            bare = "".join(one for one in letters if unicodedata.category(one) != "Mn")
            found[MARK] += bare != letters
            found[CASE] += bare.lower() != bare
            found[CANONICAL] += bare == letters.lower() == bare.lower() and len(bare) > 1
    return +found


@pytest.mark.parametrize("lowercase", [False, True])
def test_counts_of_bert(sentences, lowercase):
    tokenizer = bert(lowercase)
    for text in sentences:
        assert count_changed_characters(tokenizer, [text]) == bert_counts(text, lowercase), text
    total = sum((bert_counts(text, lowercase) for text in sentences), collections.Counter())
    assert count_changed_characters(tokenizer, sentences) == total
    assert len(total) == (5 if lowercase else 2)


def form_counts(text, form):
    """The characters that a Unicode form lacks, in the smallest parts of a text that it maps one by one."""
    found, start = collections.Counter(), 0
    whole = unicodedata.normalize(form, text)
    for end in range(1, len(text) + 1):
        if unicodedata.normalize(form, text[:end]) + unicodedata.normalize(form, text[end:]) != whole:
            continue
        part, start = text[start:end], end
        normal = unicodedata.normalize(form, part)
        if part != normal:
            lost = collections.Counter(part) - collections.Counter(normal)
            compatible = unicodedata.normalize("NFC", part) != normal
            kind = (SPACE if part.isspace() else COMPATIBILITY) if compatible else CANONICAL
            found[kind] += lost.total()
    return found


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_counts_of_unicode_forms(sentences, form):
    tokenizer, total = stepped({"type": form}), collections.Counter()
    for text in sentences:
        expected = form_counts(text, form)
        assert count_changed_characters(tokenizer, [text]) == expected, text
        total += expected
    assert count_changed_characters(tokenizer, sentences) == total
    assert total[CANONICAL] > 1000
    assert (total[COMPATIBILITY] > 20) == (form == "NFKC")


@pytest.mark.parametrize(
    ("steps", "text", "expected"),
    [
        (["Lowercase"], "Éa ÀB\u0301", {CASE: 3}),
        (["NFKC", "Lowercase"], "\uff21é E\u0301 \uff22。\uff0c", {CASE: 4, COMPATIBILITY: 3, CANONICAL: 2}),
        (["NFD", "StripAccents"], "Éa e\u0301 が 중", {MARK: 3, CANONICAL: 1}),
        (["Quotes", "Spaces"], "``a''  b   c '' d`", {OTHER: 6, SPACE: 3}),
        (["Strip", "Prepend"], " a b ", {}),
    ],
)
def test_counts_of_steps(steps, text, expected):
    own = {
        "Quotes": {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
        "Spaces": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        "Strip": {"type": "Strip", "strip_left": True, "strip_right": True},
        "Prepend": {"type": "Prepend", "prepend": "▁"},
    }
    found = [own.get(step, {"type": step}) for step in steps]
    if "Quotes" in steps:
        found.insert(0, {**own["Quotes"], "pattern": {"String": "``"}})
    assert count_changed_characters(stepped(*found), [text]) == expected


def test_counts_of_sentencepiece():
    pytest.importorskip("sentencepiece")
    tokenizer, _ = train_from_texts(lambda: ["the cat sat on the mat and dogs . " * 200], 24, "unigram", False)
    text = "你好\uff0c世界。 ﬁ ①\u200b가 e\u0301"
    assert count_changed_characters(tokenizer, [text]) == {COMPATIBILITY: 3, INVISIBLE: 1, CANONICAL: 2}


def test_changes_that_are_asked_for_give_no_warning():
    fractions = dict.fromkeys(KINDS, 0.01)
    cases = [
        (bert(True), {CASE, SPACE}),
        (bert(False), {SPACE}),
        (stepped({"type": "NFC"}), {CANONICAL}),
        (stepped({"type": "NFKC"}), {CANONICAL, COMPATIBILITY, SPACE}),
        (stepped({"type": "NFKD"}, {"type": "Lowercase"}), {CASE}),
    ]
    for tokenizer, asked in cases:
        warning = changes_warning(tokenizer, fractions)
        assert {kind for kind in KINDS if f" {kind}" in warning} == KINDS.keys() - asked
    warning = changes_warning(bert(False), {CASE: 0.001, MARK: 0.0011})
    assert f"0.11% {MARK}" in warning
    assert CASE not in warning
    assert changes_warning(bert(False), {}) == ""


def prepared(place, tokenizer, texts, **settings):
    """The manifest and the summary of a corpus, each text a document of one line."""
    place.mkdir()
    save_tokenizer(tokenizer, place / "tokenizer")
    (place / "a.txt").write_text("".join(text + "\n" for text in texts))
    settings = {"workers": 1, "heldout_fraction": 0, "language": "none", **settings}
    manifest = prepare(
        [str(place / "a.txt")], place / "tokenizer", place / "c", ReadOptions(documents="line"), **settings
    )
    assert json.loads((place / "c" / "manifest.json").read_text()) == manifest
    return manifest, format_summary(manifest, "c").splitlines()[-1]


def test_prepare_counts_changes_and_warns(tmp_path):
    texts = ["Caféteria of a Résumé, 中文", "and a zero\u200b width " + "a" * 50]
    manifest, line = prepared(tmp_path / "a", bert(True), texts)
    characters = sum(len(text) + 1 for text in texts)
    total = sum((bert_counts(text + "\n", True) for text in texts), collections.Counter())
    assert manifest["counts"]["compared_characters"] == manifest["counts"]["characters"] == characters
    assert manifest["counts"]["changed_characters"] == total == {CASE: 2, MARK: 3, INVISIBLE: 1, SPACE: 2}
    fractions = {kind: round(number / characters, 6) for kind, number in total.items()}
    assert manifest["changed_character_fractions"] == fractions
    (warning,) = (line for line in manifest["warnings"] if "changes" in line)
    assert warning.startswith(
        f"the tokenizer changes characters of the text: {3 / characters:.2%} {MARK}, {1 / characters:.2%} {INVISIBLE};"
        " a tokenizer that is trained with --cased keeps accents; one of --kind byte_level, or"
    )
    assert line == (
        f"characters changed by the tokenizer: {3 / characters:.2%} {MARK}, {2 / characters:.2%} {CASE}, "
        f"{2 / characters:.2%} {SPACE}, {1 / characters:.2%} {INVISIBLE}"
    )
    rare = {**manifest, "changed_character_fractions": {MARK: 4e-5}}
    assert format_summary(rare, "c").endswith(f"characters changed by the tokenizer: below 0.01% {MARK}")
    manifest, line = prepared(tmp_path / "b", stepped(), texts)
    assert line == "characters changed by the tokenizer: none"
    assert not any("changes" in line for line in manifest["warnings"])


@pytest.mark.parametrize("period", [2, 5])
def test_the_sample_of_a_text_with_a_period(tmp_path, monkeypatch, period):
    monkeypatch.setattr(encoding, "CHANGED_READ", 3000)
    texts = ["é" * 9 if number % period == 0 else "e" * 9 for number in range(3000)]
    manifest, line = prepared(tmp_path / "a", bert(True), texts)
    assert manifest["counts"]["compared_characters"] == 3000
    assert abs(manifest["changed_character_fractions"][MARK] - 0.9 / period) < 0.03
    assert line.endswith(" (in a sample of 3,000 of 30,000)")
