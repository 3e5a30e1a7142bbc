"""Sentences through a window, and documents that come in pieces: nothing is lost or counted twice."""

import gzip
import itertools
import random

import numpy as np
import pytest
import sentencex

from bert_jax.corpus import store as corpus
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build import sentences as splitter
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.build.sentences import split_sentences
from bert_jax.corpus.build.signatures import choose_split, split_hash
from bert_jax.corpus.store import open_corpus
from bert_jax.readers import find_files, pieces
from bert_jax.tokenizer import load_tokenizer, save_tokenizer
from bert_jax.tokenizer.train import train_from_texts
from tests.helpers.preparation import UNSEEN, make_texts, make_tokenizer, set_sizes, text


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_the_window_gives_the_sentences_of_the_whole_text(monkeypatch):
    rng = random.Random(0)
    paragraphs = [text(rng, sentences) for sentences in (3, 200, 1, 40, 40)]
    whole = "\n\n".join(paragraphs) + "\n\n" + "word " * 100 + "end. After it."
    expected = [sentence.strip() for sentence in sentencex.segment("en", whole) if sentence.strip()]
    for size in (700, 3000, 1 << 20):
        monkeypatch.setattr(splitter, "WINDOW", size)
        assert list(split_sentences(whole, "en")) == [(sentence, True) for sentence in expected]


@pytest.mark.parametrize(("language", "name"), [("en", "botchan"), ("ja", "wagahaiwa_nekodearu")])
def test_real_books_have_the_same_sentences_through_the_window(real_data, language, name):
    paragraphs = [part for part in paragraphs_of(real_data, name) if len(part) < splitter.WINDOW]
    expected = [in_one_line(sentence) for part in paragraphs for sentence in sentencex.segment(language, part)]
    found = list(split_sentences("\n\n".join(paragraphs), language))
    assert found == [(sentence, True) for sentence in expected if sentence]
    assert len(found) > {"samples": 300, "data": 500}[real_data.name]


def test_a_real_book_without_paragraphs_has_nearly_the_same_sentences(real_data):
    """All but quotations that the end of the window cuts."""
    whole = "".join(paragraphs_of(real_data, "botchan"))
    expected = {in_one_line(sentence) for sentence in sentencex.segment("en", whole)}
    found = [sentence for sentence, _ in split_sentences(whole, "en")]
    assert sum(sentence in expected for sentence in found) > 0.995 * len(found)


def in_one_line(sentence):
    return " ".join(sentence.split()) if "\n" in sentence.strip() else sentence.strip()


def test_a_line_end_inside_a_sentence_is_a_space():
    found = [sentence for sentence, _ in split_sentences("One  two\n three. Four\r\nfive.\n\nSix", "en")]
    assert found == ["One two three.", "Four five.", "Six"]


def test_without_a_language_lines_are_sentences_as_they_are(tmp_path, monkeypatch):
    """A byte-level vocabulary decodes to the same text, character for character."""
    code = "def f(x):\n    # No. Really?\n\n\treturn  x\n" + "y = '" + "z" * 40 + "'\nlast"
    tokenizer, _ = train_from_texts(lambda: [code * 20], 290, "byte_level", lowercase=False)
    monkeypatch.setattr(splitter, "WINDOW", 30)
    found = list(split_sentences(code, "none", tokenizer.kind.word_prefix))
    assert "".join(sentence for sentence, _ in found) == code
    assert [whole for _, whole in found] == [True, True, True, True, True, False, True]
    save_tokenizer(tokenizer, tmp_path / "tok")
    (tmp_path / "code.py").write_text(code)
    prepare(
        [str(tmp_path / "code.py")], tmp_path / "tok", tmp_path / "c", workers=1, heldout_fraction=0.0, language="none"
    )
    split = open_corpus(tmp_path / "c").split("train")
    assert tokenizer.decode(split.read(np.array([0]))[0].tolist()) == code
    assert split.num_sentences == 7


def paragraphs_of(real_data, name):
    """Return parts of a few lines of a book that has no empty lines."""
    data = gzip.decompress((real_data / "sentencepiece-texts" / f"{name}.txt.gz").read_bytes())
    lines = data.decode().replace("\r\n", "\n").splitlines(keepends=True)[:1000]
    return ["".join(lines[start : start + 4]) for start in range(0, len(lines), 4)]


def test_sentences_longer_than_the_window(monkeypatch):
    monkeypatch.setattr(splitter, "WINDOW", 10)
    found = list(split_sentences("aaaa bbbb cccc. dddd.\n\n" + "e" * 25 + " f! Gg.", "en", "_", begins_document=True))
    assert found == [
        ("aaaa bbbb", True),
        ("_cccc.", False),
        ("_dddd.", True),
        ("_eeeeeeeeee", True),
        ("eeeeeeeeee", False),
        ("eeeee f!", False),
        ("_Gg.", True),
    ]
    assert next(split_sentences("a b", "en", "_", begins_document=False)) == ("_a b", True)


ALPHABET = [*"aB. !?\"'()[]…。！「」 \t\r\n漢éÄ😀:;-*1", "\u2028", "\u3000", "\xa0", "\x85", "\u200b", "\u0301"]  # noqa: RUF001
PHRASES = ["Dr. ", "\n\n", "e.g. ", "z. B. ", "J. ", "1. "]


@pytest.mark.parametrize("language", ["en", "de", "ja", "ko", "zh", "fr", "vi", "xx"])
def test_no_character_is_lost_whatever_the_text(monkeypatch, language):
    """Also wide spaces after initials, on which the library panics."""
    rng = random.Random(language)
    for window in (7, 50, 4096):
        monkeypatch.setattr(splitter, "WINDOW", window)
        for _ in range(500):
            content = "".join(rng.choices(ALPHABET + PHRASES, k=rng.randint(0, 120)))
            found = [sentence for sentence, _ in split_sentences(content, language)]
            assert "".join("".join(found).split()) == "".join(content.split())
            assert all(sentence and sentence == sentence.strip() for sentence in found)


def test_long_paragraphs_in_wide_characters_take_linear_time():
    """In calls, not seconds: no text longer than the window is passed to the library."""
    given = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(splitter.sentencex, "segment", lambda language, part: given.append(len(part)) or [part])
        list(split_sentences("吾輩は猫である。" * 5000, "ja"))
    assert max(given) <= splitter.WINDOW
    assert sum(given) <= 2 * 40_000


def documents_of(split):
    """Return the sentences of each document as tuples of ids."""
    tokens, lengths, _ = split.read(np.arange(split.num_records))
    ends = np.cumsum(lengths)
    sentences = [tuple(tokens[end - length : end].tolist()) for length, end in zip(lengths, ends, strict=True)]
    first = np.append(0, np.cumsum(split.sentences_per_record))[split.first_record]
    return [sentences[start:stop] for start, stop in itertools.pairwise(first)]


@pytest.mark.parametrize("chunk_bytes", [1, 2500, 1 << 20])
@pytest.mark.parametrize("chunks_per_block", [1, 512])
def test_documents_in_pieces_equal_whole_documents(tmp_path, tokenizer, monkeypatch, chunk_bytes, chunks_per_block):
    texts = make_texts(tmp_path / "in", 12, sentences=15)
    (texts / "words").unlink()  # a sentence longer than a piece
    (texts / "late.txt").write_text(f"{UNSEEN}\n\n" * 900 + "the cat sat.\n\n" * 500)  # pieces without tokens first
    (texts / "void.txt").write_text(f"{UNSEEN}\n\n" * 1500)
    (texts / "spaces.txt").write_text(" \n" * 5000)
    (texts / "damaged.txt").write_bytes(b"the cat sat. \n\n" * 1000 + b"\xff")
    settings = {"workers": 1, "heldout_fraction": 0, "max_rejected_fraction": 1}
    whole = prepare([str(texts)], tokenizer, tmp_path / "a", **settings)
    set_sizes(monkeypatch, {(pieces, "MAX_UNSPLIT_BYTES"): 5000, (pieces, "MAX_PIECE_BYTES"): 3000})
    set_sizes(monkeypatch, {(chunks, "CHUNK_BYTES"): chunk_bytes, (chunks, "CHUNKS_PER_BLOCK"): chunks_per_block})
    pieced = prepare([str(texts)], tokenizer, tmp_path / "b", **settings)
    assert pieced["documents"] == whole["documents"]
    assert pieced["documents"]["rejected"]["invalid UTF-8"] == 2
    assert pieced["documents"]["rejected"]["no tokens"] == 2
    assert (len(pieced["splits"]["train"]["shards"]) > 1) == (chunk_bytes < 1 << 20 and chunks_per_block == 1)
    one, two = (documents_of(open_corpus(tmp_path / name).split("train")) for name in "ab")
    assert one == two


def test_a_document_in_pieces_is_in_one_split(tmp_path, tokenizer, monkeypatch):
    set_sizes(
        monkeypatch, {(pieces, "MAX_UNSPLIT_BYTES"): 2000, (pieces, "MAX_PIECE_BYTES"): 500, (chunks, "CHUNK_BYTES"): 1}
    )
    (tmp_path / "in").mkdir()
    rng = random.Random(3)
    sides = []
    for number in range(30):
        paragraphs = [f"{text(rng, 2)}\n\n" for _ in range(30)]
        (tmp_path / "in" / f"{number:02}").write_text("".join(paragraphs))
        data = "".join(paragraphs)[:500]
        sides.append(choose_split(split_hash(data[: data.rindex("\n\n") + 2]), 0.5) if "\n\n" in data[250:] else None)
    prepare([str(tmp_path / "in")], tokenizer, tmp_path / "c", workers=1, heldout_fraction=0.5)
    stored = open_corpus(tmp_path / "c")
    found = {name: documents_of(stored.split(name)) for name in corpus.SPLITS}
    assert len(find_files([str(tmp_path / "in")])) == len(found["train"]) + len(found["heldout"]) == 30
    ids = load_tokenizer(tokenizer)
    for number, side in enumerate(sides):
        content = (tmp_path / "in" / f"{number:02}").read_text()
        expected = [tuple(ids.encode_sentences([sentence])[0]) for sentence, _ in split_sentences(content, "en")]
        if side:
            assert expected in found[side]
    assert {"train", "heldout"} <= set(sides)


@pytest.mark.parametrize(
    ("language", "content"),
    [
        ("en", "Hello there, reader. It was late.  He didn't come! Naïve, 3.14 of 漢字 here? "),
        ("ja", "今日は晴れです。明日も晴れるでしょう。 本当ですか?はい。\n\n東京へ行きます。"),
    ],
)
def test_byte_level_sentences_keep_the_space_before_them_and_get_no_other(tmp_path, samples, language, content):
    """The ids of a document equal those of its text encoded at once, however it is split."""
    content *= 40
    (tmp_path / "a.txt").write_text(content)
    directory = samples / "vocab" / "roberta-base"
    prepare([str(tmp_path / "a.txt")], directory, tmp_path / "c", workers=1, heldout_fraction=0, language=language)
    (document,) = documents_of(open_corpus(tmp_path / "c").split("train"))
    assert len(document) > 3 * 40
    expected = load_tokenizer(directory).encode_sentences([" ".join(content.split())])[0]
    assert [token for sentence in document for token in sentence] == expected


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("th", ["ฉันชอบแมว", "เขาชอบหมา วันนี้อากาศดี", "ไปไหน"]),
        ("lo", ["ຂ້ອຍໄປ. ຕະຫຼາດ", "ລາວມາ"]),
        ("km", ["ខ្ញុំទៅ។", "គាត់មក។", "ល្អ៕"]),
        ("bo", ["ང་འགྲོ།", "ཁོ་ཡོང་། །"]),
        ("km-kh", ["ខ្ញុំទៅ។", "គាត់មក។"]),
    ],
)
@pytest.mark.parametrize("window", [30, 8192])
def test_sentences_of_scripts_that_the_library_does_not_split(monkeypatch, language, sentences, window):
    """Each ends at its mark or at a line end, also where the window cuts it."""
    monkeypatch.setattr(splitter, "WINDOW", window)
    whole = "\n".join(sentences * 9)
    assert list(split_sentences(whole, language)) == [(sentence, True) for sentence in sentences * 9]
    marked = [one for one in sentences if one[-1] in "។៕།"]
    if marked == sentences:
        assert [one for one, _ in split_sentences(" ".join(sentences), language)] == sentences
