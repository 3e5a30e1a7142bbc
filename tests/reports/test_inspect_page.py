"""The page of a corpus: its tokens are the tokens of the text, its filters are right, and nothing in it runs."""

import dataclasses
import html
import json
import pathlib
import random
import re

import numpy as np
import pytest

from bert_jax.console import Console
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import manifest_seal
from bert_jax.reports.corpus.checks import TEXT_CHECKS, SequenceText, text_warnings
from bert_jax.reports.corpus.inspect import inspect_corpus, open_inspection
from bert_jax.reports.corpus.page import PER_PAGE
from bert_jax.tokenizer.train import train_tokenizer
from tests.helpers.browser import SHIFT, TAB, Opened
from tests.helpers.written_corpus import LETTERS, WORDS, text, write_corpus
from tests.helpers.written_pages import HOSTILE, Page

CARD = re.compile(r'<div class="(card[^"]*)">(.*?)(?=<div class="(?:card|page)|<p class="shown)', re.DOTALL)
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS), "."]
SINGLE = "--config.data.sentence_pairs=document_sentences"


def written(places: str, output: pathlib.Path, *overrides: str) -> str:
    """The page of the corpora, checked by the strict reader."""
    inspection = open_inspection(places, None, overrides, None, Console(silent=True))
    inspect_corpus(inspection, as_json=False, html=str(output))
    found = output.read_text()
    assert Page(found).text
    return found


def words_of(card: str) -> str:
    """The words of a card before masking, without its special tokens."""
    tokens = re.sub(r'<span class="read">.*?</span>', "", "".join(re.findall(r'<p class="tokens.*?</p>', card)))
    return html.unescape(re.sub("<[^>]+>", "", re.sub(r'<i class="special">.*?</i>|<b>.*?</b>', "", tokens)))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Two corpora by directory, with their texts; the second is small, of another language, and has unknown tokens."""
    made, rng = {}, random.Random(0)
    for name, words, language in (("large", WORDS[:100], "en"), ("small", [*WORDS[100:], "§"], "de")):
        number = 90 if name == "large" else 9
        texts = [" ".join([*rng.choices(words, k=59), "."]) for _ in range(number)]
        place = write_corpus(tmp_path_factory.mktemp(name), texts)
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["settings"]["language"] = language
        (place / "manifest.json").write_text(json.dumps(manifest | {"seal": manifest_seal(manifest)}))
        made[str(place)] = texts
    return made


def test_cards_have_the_text_and_the_values_of_their_source(corpora, tmp_path) -> None:
    found = written(",".join(corpora), tmp_path / "page.html", SINGLE, "--config.train.phases[0].seq_len=32")
    texts = [" ".join(" ".join(one).split()) for one in corpora.values()]
    cards = CARD.findall(found)
    assert found.count('<div class="page') == -(-len(cards) // PER_PAGE)
    sources = [0, 0]
    for classes, card in cards:
        words = " ".join(words_of(card).split())
        (source,) = (at for at, one in enumerate(texts) if words.replace("[UNK]", "§") in one)
        sources[source] += 1
        assert {f"s{source}", f"l{source}"} <= set(classes.split())
        assert ("unknown tokens" in card) == ("[UNK]" in words)
        assert ("w0" in classes.split()) == ("[UNK]" in words)
    assert sources[0] == 50  # half of all; the other corpus has fewer items, which return
    assert sources[1] == 50
    assert f"{texts[1].split()[0]}" in found


def test_frames_hold_the_words_that_are_masked_together(tmp_path) -> None:
    rng = random.Random(1)
    corpus = write_corpus(tmp_path, [text(rng, 3) for _ in range(100)], PIECES)
    lengths = set()
    for masking in ("token", "whole_word", "span"):
        found = written(str(corpus), tmp_path / "page.html", SINGLE, f"--config.data.masking={masking}")
        found = re.sub('<span class="read">.*?</span>', "", found[found.index('<div class="page') :])
        units = re.findall(r'<span class="unit">((?:<mark[^>]*>[^<]*</mark>)+)</span>', found)
        alone = re.findall(r"<mark[^>]*>([^<]*)</mark>", re.sub(r'<span class="unit">.*?</span>', "", found))
        if masking == "token":
            assert not units
            assert len(alone) > 500
            continue
        assert set(alone) == {"."}
        for unit in units:
            begun = re.sub("<[^>]+>", " ", unit).replace("  ##", "").split()
            assert set(begun) <= {*WORDS, "."}
            lengths.add((masking, len(begun)))
    assert {number for masking, number in lengths if masking == "whole_word"} == {1}
    assert max(number for masking, number in lengths if masking == "span") > 3


def test_marks_of_sentencepiece_do_not_look_like_lines(tmp_path) -> None:
    """A dot stands for ▁ in the texts, and the legend explains it; a vocabulary without ▁ has neither."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(30):
        (texts / f"{number}.txt").write_text("\n".join(text(random.Random(number), 3) for _ in range(3)))
    for kind, is_shown in (("unigram", True), ("wordpiece", False)):
        train_tokenizer([[str(texts)]], 60, str(tmp_path / kind), kind=kind)
        prepare([str(texts)], tmp_path / kind, tmp_path / f"{kind}_corpus", workers=1, heldout_fraction=0.1)
        found = written(str(tmp_path / f"{kind}_corpus"), tmp_path / "page.html", SINGLE)
        cards = "".join(card for _, card in CARD.findall(found))
        assert "▁" not in cards
        assert ("·" in cards) == is_shown
        assert ("which the vocabulary writes as ▁" in found) == is_shown


def test_packed_examples_and_labels(corpora, tmp_path) -> None:
    place = next(iter(corpora))
    options = ("--config.data.packing=4", "--config.data.sentence_pairs=sentence_order")
    page = Page(written(place, tmp_path / "page.html", *options)).text
    packed = [int(count) for count in re.findall(r"example 1 of (\d)", page)]
    assert packed
    assert page.count("label 0: A and B are in their order") + page.count("label 1: A and B are swapped") >= sum(packed)


def plain(
    entries: str = "", num_words: int = 40, num_predicted: int = 3, fill: float = 1.0, repeats: int = 1
) -> SequenceText:
    return SequenceText(
        ids=np.arange(40) // repeats,
        entries=entries,
        num_words=num_words,
        num_unknown=0,
        num_predicted=num_predicted,
        fill=fill,
    )


def test_each_warning_is_shown_only_for_its_cause() -> None:
    shown = {
        "nothing to predict": plain(num_predicted=0),
        "mostly padding": plain(fill=0.5),
        "unknown tokens": dataclasses.replace(plain(), num_unknown=1),
        "broken characters": plain("a\ufffd"),
        "invisible characters": plain("a\u202eb"),
        "many tokens per word": plain("abc", num_words=10),
        "repeats itself": plain(repeats=8),
    }
    assert shown.keys() == TEXT_CHECKS.keys()
    assert text_warnings(plain("a\u200cb")) == []
    for name, one in shown.items():
        assert text_warnings(one) == [name]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The page of hostile documents in a hostile directory with a hostile manifest."""
    place = tmp_path_factory.mktemp("<b onclick=alert(0)>")
    (place / "texts").mkdir()
    for number in range(12):
        lines = "\n".join(f"{one} Document {number}." for one in HOSTILE[:5])
        (place / "texts" / f"{number}.txt").write_text(f"{lines} \u202e turned \ufffd")
    train_tokenizer([[str(place / "texts")]], 330, str(place / "tokenizer"), kind="byte_level")
    manifest = prepare([str(place / "texts")], place / "tokenizer", place / "corpus", workers=1, heldout_fraction=0.5)
    forged = manifest | {"documents": manifest["documents"] | {"rejected": {HOSTILE[0]: 3}}}
    forged["settings"]["language"] = HOSTILE[1]
    forged |= {"seal": manifest_seal(forged)}
    (place / "corpus" / "manifest.json").write_text(json.dumps(forged))
    corpus = place / "<svg onload=alert(9)>"
    (place / "corpus").rename(corpus)
    written(str(corpus), place / "page.html", "--config.data.sentence_pairs=none")
    return place / "page.html"


def test_hostile_text_stays_text(hostile) -> None:
    page = Page(hostile.read_text())
    together = "".join(page.text.replace("Ġ", "").split())
    assert f"3 {HOSTILE[0]}" in page.text
    assert f", {HOSTILE[1]};" in page.text
    assert "<svg onload=alert(9)>" in page.text
    assert "".join(HOSTILE[3].split()) in together  # the masks of some copies are between its tokens, not of all
    assert "U+202E" in page.text
    assert "U+FFFD" in page.text
    assert "\u202e" not in page.text


def test_a_browser_runs_nothing_of_it(hostile, browser) -> None:
    assert browser.open(hostile.as_uri()) == Opened([], [])
    assert browser.run("document.querySelectorAll('script, img, svg, iframe, [onclick], [onload]').length") == 0


def test_a_browser_pages_and_filters_by_keyboard(corpora, browser, tmp_path) -> None:
    written(",".join(corpora), tmp_path / "page.html", SINGLE, "--config.train.phases[0].seq_len=32")
    cards = "[...document.querySelectorAll('.card')].filter(one => one.offsetParent)"
    focus = "document.activeElement.matches('{}')"
    assert browser.open((tmp_path / "page.html").as_uri()) == Opened([], [])
    assert browser.reached() == list(range(6))  # sources, figures, three filters, pages
    assert browser.run(focus.format("input"))
    before = browser.run(f"{cards}.map(one => one.innerText)")
    browser.press(key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    after = browser.run(f"{cards}.map(one => one.innerText)")
    assert len(before) == len(after) == PER_PAGE
    assert not set(before) & set(after)
    for _ in range(3):
        browser.press(**TAB, modifiers=SHIFT)
    assert browser.run(focus.format("select:has(.s0)"))
    browser.press(key="s", code="KeyS", windowsVirtualKeyCode=83, text="s")  # small/corpus
    assert browser.run(f"{cards}.length") == 50
    assert browser.run(f"{cards}.every(one => one.matches('.s1.l1'))")
