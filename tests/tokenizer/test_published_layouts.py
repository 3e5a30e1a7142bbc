"""Tokenizers as XLM-R, CamemBERT, MPNet, DeBERTa and BigBird publish them, trained small: ids against libraries."""

import gzip
import json
import pathlib
from typing import Any

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenizer import load_tokenizer, save_tokenizer

SIZE = 300
TEXTS = [
    "The unicorn isn't here, is it?",
    "  two  spaces\tand\na line ",
    "Où est la bibliothèque, s'il vous plaît ?",
    "ﬁne ligatures, \uff46\uff55ll width and İstanbul",
    "unknown: ሀሁሂ 𐍈 end",
    "[MASK] <mask> </s> [SEP] spelled in text",
    "12,345 and 9,",
    "",
]


@pytest.fixture(scope="module")
def text(samples: pathlib.Path) -> list[str]:
    packed = (samples / "sentencepiece-texts" / "botchan.txt.gz").read_bytes()
    return [line for line in gzip.decompress(packed).decode().splitlines() if line.strip()]


def trained(place: pathlib.Path, text: list[str], **settings: Any) -> pathlib.Path:
    """A SentencePiece model of the library."""
    sentencepiece = pytest.importorskip("sentencepiece")
    with place.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=file,
            vocab_size=SIZE,
            hard_vocab_limit=False,
            minloglevel=2,
            **settings,
        )
    return place


@pytest.fixture(scope="module")
def deberta(tmp_path_factory: pytest.TempPathFactory, text: list[str]) -> pathlib.Path:
    """The files of deberta-v3: the mask is no piece of the model."""
    place = tmp_path_factory.mktemp("deberta")
    names = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
    trained(place / "spm.model", text, pad_id=0, bos_id=1, eos_id=2, unk_id=3, **names)
    (place / "tokenizer_config.json").write_text('{"do_lower_case": false, "vocab_type": "spm"}')
    return place


def test_ids_of_deberta_equal_the_ids_of_sentencepiece(deberta: pathlib.Path, text: list[str]) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(deberta / "spm.model"))
    ours = load_tokenizer(deberta)
    plain = [one for one in TEXTS if "[" not in one]  # the library takes a special token in a text for one
    assert ours.encode_sentences([*plain, *text[:200]]) == processor.encode([*plain, *text[:200]])
    assert (ours.pad_id, ours.cls_id, ours.sep_id, ours.unk_id) == (0, 1, 2, 3)
    assert (ours.mask_id, ours.vocab_size) == (len(processor), len(processor) + 1)
    assert ours.separators == 1
    assert not {ours.mask_id, ours.sep_id} & {*ours.encode_sentences(["[MASK] [SEP]"])[0]}


def test_a_deberta_that_is_saved_opens_in_transformers(deberta: pathlib.Path, tmp_path: pathlib.Path) -> None:
    transformers = pytest.importorskip("transformers")
    ours = load_tokenizer(deberta)
    save_tokenizer(ours, tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").sha256 == ours.sha256
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    plain = [one for one in TEXTS if "[" not in one]
    assert theirs(plain, add_special_tokens=False)["input_ids"] == ours.encode_sentences(plain)
    assert theirs("a", "b")["input_ids"][0] == ours.cls_id


def test_a_deberta_that_splits_at_marks_is_refused(deberta: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "spm.model").write_bytes((deberta / "spm.model").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"split_by_punct": true}')
    with pytest.raises(UserError, match="split_by_punct is true"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(("name", "first"), [("XLMRoberta", 0), ("Camembert", 5)])
def test_sentencepiece_in_the_layout_of_fairseq(name: str, first: int, text: list[str], tmp_path: pathlib.Path) -> None:
    """Two separators between texts, padding at 1, and the mask after all pieces."""
    transformers = pytest.importorskip("transformers")
    sentencepiece = pytest.importorskip("sentencepiece")
    path = trained(tmp_path / "sentencepiece.bpe.model", text)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor))]
    leading = {
        "XLMRoberta": [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces[3:]],
        "Camembert": [
            *[("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)],
            *pieces[1:],
        ],
    }
    theirs = getattr(transformers, f"{name}Tokenizer")(vocab=[*leading[name], ("<mask>", 0.0)])
    theirs.save_pretrained(tmp_path / "saved")
    ours = load_tokenizer(tmp_path / "saved")
    plain = [one for one in [*TEXTS, *text[:100]] if "<" not in one]
    assert ours.encode_sentences(plain) == theirs(plain, add_special_tokens=False)["input_ids"]
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.separators) == (1, 3, first, 2)
    assert ours.mask_id == len(leading[name]) == theirs.mask_token_id
    assert ours.mask_id not in ours.encode_sentences(["<mask>"])[0]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece_of_big_bird(kind: str, text: list[str], tmp_path: pathlib.Path) -> None:
    """Its table alone changes text: capitals and accents stay, which an ALBERT's model of the same name removes."""
    sentencepiece = pytest.importorskip("sentencepiece")
    roles = {"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
    path = trained(tmp_path / "spiece.model", text, model_type=kind, **roles)
    ours, processor = load_tokenizer(tmp_path), sentencepiece.SentencePieceProcessor(model_file=str(path))
    plain = [one for one in TEXTS if "</s>" not in one]
    assert ours.encode_sentences([*plain, *text[:100]]) == processor.encode([*plain, *text[:100]])
    assert ours.encode_sentences(["a</s>"]) == [[*ours.encode_sentences(["a"])[0], 1]]  # as in transformers
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (0, 3, 4, 5, 6)
    assert not ours.lowercase


def test_wordpiece_of_mpnet(tmp_path: pathlib.Path) -> None:
    """BERT's words under RoBERTa's special tokens."""
    transformers = pytest.importorskip("transformers")
    words = ["<s>", "<pad>", "</s>", "<unk>", "the", "uni", "##corn", "here", "[UNK]", "<mask>"]
    theirs = transformers.MPNetTokenizer(vocab={word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    theirs.save_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    plain = ["The unicorn here", "a"]
    assert ours.encode_sentences(plain) == theirs(plain, add_special_tokens=False)["input_ids"] == [[4, 5, 6, 7], [8]]
    assert (ours.pad_id, ours.cls_id, ours.sep_id, ours.mask_id, ours.separators) == (1, 0, 2, 9, 2)
    saved = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "MPNetTokenizer"
