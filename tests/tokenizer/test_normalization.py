"""`--normalization`: the effect of each form, equal ids in other libraries, and the forms of each kind."""

import sys
import unicodedata

import pytest
import tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenizer import TOKENIZERS, load_tokenizer, save_tokenizer
from bert_jax.tokenizer.train import train_from_texts

TEXTS = [
    "the cat sat on the mat and the dogs chatted on the shattered mattress \uff0c catching the doggedest .",
    "\uff28ello\uff0c \ufb01ne cafe\u0301 and CAF\u00c9 \u00e0 \u00bd km\u00b2 \u3231 \u4f60\u597d\u3002 \u2026",
    # Decomposed text of five languages, and kana of half width; one library needs NFC for sequences of many bytes.
    unicodedata.normalize("NFD", "날씨가 좋다 , Thời tiết đẹp , ọjọ́ dára , ガギグゲゴ")
    + " \uff76\uff9e\uff8a\uff9f\uff9d .",
    "die Stra\u00dfe in \u00c4gypten , \u1e9e \u039f\u0394\u039f\u03a3 \u212b zero\u200dwidth joiner",
]
SPACED = "the\u3000cat\u00a0sat\u2009on  the\tmat"
CASES = [(kind, name) for kind in ("byte_level", "unigram", "sentencepiece_bpe") for name in TOKENIZERS[kind].train]


def library_form(rule):
    sentencepiece = pytest.importorskip("sentencepiece")
    return sentencepiece.SentencePieceNormalizer(rule_name=rule, add_dummy_prefix=False, escape_whitespaces=False)


FORMS = {
    "identity": lambda: lambda text: text,
    "nfc": lambda: lambda text: unicodedata.normalize("NFC", text),
    "nfkc": lambda: lambda text: unicodedata.normalize("NFKC", text),
    "nmt_nfkc": lambda: library_form("nmt_nfkc").normalize,
}


def trained(*settings):
    """The largest vocabulary of the texts."""
    with pytest.raises(UserError, match="fills a vocabulary of") as caught:
        train_from_texts(lambda: ["\n".join(TEXTS * 20)], 5000, *settings)
    size = int(str(caught.value).rsplit(" ", 1)[1])
    return train_from_texts(lambda: ["\n".join(TEXTS * 20)], size, *settings)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(("kind", "normalization"), CASES)
def test_normalization_follows_its_unicode_form_and_other_libraries_give_the_same_ids(
    tmp_path, monkeypatch, kind, normalization, lowercase
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if kind != "byte_level":
        sentencepiece = pytest.importorskip("sentencepiece")
    form = FORMS[normalization]()
    tokenizer, files = trained(kind, lowercase, normalization)
    ids = tokenizer.encode_sentences(TEXTS)
    for text, own in zip(TEXTS, ids, strict=True):
        assert tokenizer.unk_id not in own
        expected = form(text)
        if lowercase:
            found = tokenizer.decode(own)
            assert found.casefold() == expected.casefold()
            assert found == found.lower()
        else:
            assert tokenizer.decode(own) == expected
    save_tokenizer(tokenizer, tmp_path / "saved", files)
    assert load_tokenizer(tmp_path / "saved").sha256 == tokenizer.sha256
    # Its NFKC leaves a tab, which is no space to the library and one to us.
    texts = [*TEXTS, SPACED.replace("\t", " ") if normalization == "nfkc" else SPACED]
    ids = tokenizer.encode_sentences(texts)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "saved" / "tokenizer.json"))
    assert [library.encode(text, add_special_tokens=False).ids for text in texts] == ids
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ids
    if kind != "byte_level":
        place = tmp_path / "saved" / "spiece.model"
        processor = sentencepiece.SentencePieceProcessor(model_file=str(place))
        assert processor.encode(texts) == ids
        assert load_tokenizer(place).sha256 == tokenizer.sha256


@pytest.mark.parametrize("kind", ["unigram", "sentencepiece_bpe"])
def test_a_table_of_our_own_leaves_no_trace_of_its_file(kind):
    pytest.importorskip("sentencepiece")
    (one, first), (two, second) = (trained(kind, True, "identity") for _ in range(2))
    assert (one.sha256, first) == (two.sha256, second)
    assert one.lowercase
    assert b"rule.tsv" not in first["spiece.model"]


def test_a_kind_without_the_normalization_names_those_that_kinds_have():
    known = (
        "give bert for wordpiece and bpe; identity, nfc, nfkc, nmt_nfkc for byte_level; nmt_nfkc, nfkc, identity for "
        "unigram and sentencepiece_bpe"
    )
    for kind, normalization in (("wordpiece", "nfc"), ("unigram", "nfc"), ("byte_level", "bert"), ("bpe", "nfd")):
        with pytest.raises(UserError) as caught:
            train_from_texts(lambda: TEXTS, 300, kind, True, normalization)
        assert str(caught.value) == f"--normalization {normalization}: not for --kind {kind}; {known}"


def test_the_usual_normalization_is_the_first_of_a_kind():
    first = {kind: next(iter(row.train)) for kind, row in TOKENIZERS.items()}
    assert first == {
        "wordpiece": "bert",
        "bpe": "bert",
        "byte_level": "identity",
        "unigram": "nmt_nfkc",
        "sentencepiece_bpe": "nmt_nfkc",
    }


def test_a_form_that_needs_the_library_sentencepiece(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UserError, match="needs sentencepiece protobuf: pip install sentencepiece protobuf"):
        train_from_texts(lambda: TEXTS, 300, "byte_level", True, "nmt_nfkc")
