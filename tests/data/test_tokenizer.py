import json
import subprocess
import sys

import pytest

from bert_jax.data.tokenizer import (
    SPECIAL_TOKENS,
    Normalizer,
    cut_text,
    load_tokenizer,
    save,
    train_wordpiece,
    wordpiece,
)
from bert_jax.errors import UserError

# Which of our vocabularies a published tokenizer has, and whether its configuration says uncased. The other
# tokenizers of the vector files have vocabularies of their own.
VOCABULARY_OF = {
    "Xenova/bert-base-uncased": ("bert-base-uncased", True),
    "Xenova/bert-base-cased": ("bert-base-cased", False),
    "google-bert/bert-base-cased": ("bert-base-cased", False),
    "Xenova/spanbert-large-cased": ("bert-base-cased", True),
    "Xenova/bert-base-multilingual-cased-ner-hrl": ("bert-base-multilingual-cased", False),
    "Xenova/bge-small-zh-v1.5": ("bert-base-chinese", False),
    "Xenova/bge-base-zh-v1.5": ("bert-base-chinese", True),
    "Xenova/distilbert-base-cased-distilled-squad": ("bert-base-cased", False),
    "Xenova/distilbert-base-uncased-finetuned-sst-2-english": ("bert-base-uncased", True),
    "Xenova/distiluse-base-multilingual-cased-v2": ("bert-base-multilingual-cased", False),
    "distilbert/distilbert-base-multilingual-cased": ("bert-base-multilingual-cased", False),
}
WORDS = ["the", "##s", "cat", "dog", "sat", "on", "mat", ".", "t", "##h", "a", "##a", "é", "E"]
TEXT = "the cat sat on the mat and the dogs chatted on the shattered mattress , catching the doggedest . " * 50


@pytest.fixture(scope="session")
def published(shared_data):
    return {
        (name, uncased): load_tokenizer(shared_data / "vocab" / name, lowercase=uncased)
        for name, uncased in set(VOCABULARY_OF.values())
    }


def vectors(shared_data):
    for file in ("bert", "distilbert"):
        models = json.loads((shared_data / "vectors" / "transformers.js" / f"{file}.json").read_text())
        for model, cases in models.items():
            for name, case in cases.items():
                if model in VOCABULARY_OF and "text_pair" not in case:
                    yield model, name, case


def test_ids_equal_the_published_ones(shared_data, published):
    wrong, total = [], 0
    for model, name, case in vectors(shared_data):
        total += 1
        if published[VOCABULARY_OF[model]].encode(case["text"]) != case["ids"]:
            wrong.append((model, name))
    assert wrong == []
    assert total == 138


def test_corpus_ids_are_the_published_ones_without_specials(shared_data, published):
    for model, name, case in vectors(shared_data):
        if not any(token in case["text"] for token in SPECIAL_TOKENS):
            assert published[VOCABULARY_OF[model]].encode_sentences([case["text"]]) == [case["ids"][1:-1]], (
                model,
                name,
            )


def test_rust_tokenizers_vectors_with_offsets(shared_data, published):
    tokenizer = published["bert-base-uncased", True]
    for case in json.loads((shared_data / "vectors" / "rust-tokenizers.json").read_text())["bert-base-uncased"]:
        found = tokenizer.reading_specials.encode(case["text"])
        assert found.ids == case["ids"]
        # Theirs end at the character before an accent that is stripped, ours after it: compare where tokens start.
        starts = [
            None if special else offset[0]
            for special, offset in zip(found.special_tokens_mask, found.offsets, strict=True)
        ]
        expected = [None if offset is None else offset[0] for offset in case["offsets"]]
        assert [a for a, b in zip(starts, expected, strict=True) if b is not None and a is not None and a != b] == []


def test_google_and_huggingface_vectors(shared_data, published):
    cases = json.loads((shared_data / "vectors" / "google-bert-and-hf.json").read_text())
    full = cases["full_tokenizer"]
    more = [token for token in SPECIAL_TOKENS if token not in full["vocab"]]
    assert wordpiece(full["vocab"] + more, Normalizer()).encode_sentences([full["text"]]) == [full["ids"]]
    pieces = cases["wordpiece"]
    small = wordpiece(pieces["vocab"] + more, Normalizer(do_lower_case=False))
    for case in pieces["cases"]:
        assert [small.tokens[number] for number in small.encode_sentences([case["text"]])[0]] == case["tokens"]
    basic = [({"do_lower_case": True}, case) for case in cases["basic_lower"]]
    basic += [({"do_lower_case": False}, case) for case in cases["basic_no_lower"]]
    basic += [
        ({"do_lower_case": case["lower"], "strip_accents": case.get("strip_accents")}, case)
        for case in cases["hf_basic_strip_accents"]
        if "never_split" not in case
    ]
    for settings, case in basic:
        words = wordpiece([*SPECIAL_TOKENS, *dict.fromkeys(case["tokens"])], Normalizer(**settings))
        assert [words.tokens[number] for number in words.encode_sentences([case["text"]])[0]] == case["tokens"]
    offsets = cases["hf_offsets"]
    for name, key in (("bert-base-cased", "cased"), ("bert-base-uncased", "uncased")):
        found = published[name, key == "uncased"].reading_specials.encode(offsets["text"])
        assert [[list(offset), token] for offset, token in zip(found.offsets, found.tokens, strict=True)] == offsets[
            key
        ]


def test_auto_tokenizer_opens_the_directory_as_it_is(tmp_path, shared_data, published, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    texts = [case["text"] for _, _, case in vectors(shared_data)]
    for (name, uncased), tokenizer in published.items():
        directory = tmp_path / f"{name}-{uncased}"
        save(tokenizer, directory)
        theirs = transformers.AutoTokenizer.from_pretrained(directory)
        assert theirs(texts)["input_ids"] == [tokenizer.encode(text) for text in texts]
        special = (theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id)
        assert special == (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
        assert (theirs.mask_token_id, theirs.model_max_length) == (tokenizer.mask_id, 512)
        assert load_tokenizer(directory).sha256 == tokenizer.sha256


def test_a_trained_tokenizer_opens_in_transformers(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    tokenizer = train_wordpiece(lambda: [TEXT, "Ünïted [MASK] cats"], 55, lowercase=False)
    save(tokenizer, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (TEXT, "Cats [MASK] ünïted", "x" * 101):
        assert theirs(text)["input_ids"] == tokenizer.encode(text)
        assert theirs.decode(tokenizer.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_special_tokens_come_first_and_words_are_found():
    tokenizer = train_wordpiece(lambda: [TEXT], 40)
    assert tokenizer.tokens[:5] == SPECIAL_TOKENS
    assert tokenizer.vocab_size == len(set(tokenizer.tokens)) == 40
    assert tokenizer.decode(tokenizer.encode("The cat")) == "[CLS] the cat [SEP]"
    assert {"the", "##at"} <= set(tokenizer.tokens)


def test_a_text_cannot_forge_special_tokens():
    tokenizer = wordpiece([*SPECIAL_TOKENS, "[", "]", "mask", "sep"], Normalizer())
    assert tokenizer.encode_sentences(["[MASK] [SEP]"]) == [[5, 7, 6, 5, 8, 6]]
    assert tokenizer.encode("[MASK]") == [2, 4, 3]


def test_training_twice_gives_the_same_vocabulary(tmp_path):
    """Each in its own process: the library's hash maps are seeded anew, and ties are many in so small a text."""
    program = (
        "import string, itertools; from bert_jax.data.tokenizer import train_wordpiece\n"
        "words = [''.join(w) for w in itertools.product('abcdefgh', repeat=4)]\n"
        "words += [chr(0x1000 + n) for n in range(1100)]\n"
        "print(train_wordpiece(lambda: [' '.join(words * 2)], 2000).sha256)\n"
    )
    found = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(4)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("texts", "size", "words"),
    [
        ([TEXT], 5000, r"fills a vocabulary of \d+ tokens, not of 5,000"),
        ([TEXT], 10, "too small: special tokens and characters alone are"),
        ([], 100, "empty"),
        ([" \n "], 100, "empty"),
    ],
)
def test_sizes_that_a_text_cannot_give(texts, size, words):
    with pytest.raises(UserError, match=words):
        train_wordpiece(lambda: texts, size)


def test_the_suggested_size_works():
    with pytest.raises(UserError) as caught:
        train_wordpiece(lambda: [TEXT], 5000)
    suggested = int(str(caught.value).rsplit(" ", 1)[1])
    assert train_wordpiece(lambda: [TEXT], suggested).vocab_size == suggested


def test_case_is_read_from_the_config_or_the_vocabulary(tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join([*SPECIAL_TOKENS, *WORDS]) + "\n", encoding="utf-8")
    assert not load_tokenizer(vocab).lowercase
    assert load_tokenizer(vocab, lowercase=True).lowercase
    vocab.write_text("\n".join([*SPECIAL_TOKENS, "[unused0]", *WORDS[:-1]]) + "\n", encoding="utf-8")
    assert load_tokenizer(tmp_path).lowercase
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not load_tokenizer(tmp_path).lowercase
    with pytest.raises(UserError, match="do_lower_case is False, but True was asked for"):
        load_tokenizer(tmp_path, lowercase=True)


def test_digest_follows_vocabulary_and_normaliser():
    tokens = [*SPECIAL_TOKENS, *WORDS]
    others = [wordpiece(tokens[:-1], Normalizer()), wordpiece(tokens, Normalizer(do_lower_case=False))]
    assert len({t.sha256 for t in [wordpiece(tokens, Normalizer()), *others]}) == 3


def test_places_without_a_vocabulary(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="no such vocabulary"):
            load_tokenizer(place)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\n")
    with pytest.raises(UserError, match=r"no \[CLS\] \[SEP\] \[MASK\]"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not a UTF-8 text"):
        load_tokenizer(tmp_path)


def test_cut_text_keeps_everything_and_cuts_at_spaces():
    text = "ab cde\nf" * 1000 + "x" * 500
    pieces = list(cut_text(text, 100))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 100
    assert all(piece[-1].isspace() for piece in pieces[:79])
