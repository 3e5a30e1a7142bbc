"""A model with another vocabulary: rows against a lookup written out, and the result in transformers."""

import json
import pathlib

import numpy as np
import pytest
import safetensors.numpy
import tokenizers
import transformers

from bert_jax.cli.main import main
from bert_jax.config import EncoderConfig
from bert_jax.convert.vocabulary import old_tokens_of_new_tokens
from bert_jax.interop.sentence_modules import SentenceModules, read_sentence_modules, sentence_module_files
from bert_jax.tokenizer import load_tokenizer
from tests.helpers.family_cases import CASES, model_of
from tests.helpers.tokenizer_directories import of_family, wordpiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
OLD = [*SPECIAL, "play", "##ing", "##s", "un", "##play", "##un", "the", "a", "##a"]
# The tensors over the vocabulary, and whether that is their last axis.
TABLES = {
    "embeddings.word_embeddings.weight": False,
    "cls.predictions.bias": False,
    "cls.predictions.dense.weight": True,
}
CLASSES = {"bert": "BertForPreTraining", "mobilebert": "MobileBertForPreTraining"}


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    """A random BERT with the old vocabulary."""
    return saved("bert", tmp_path / "model")


def saved(family: str, place: pathlib.Path) -> pathlib.Path:
    theirs = model_of(CASES[family], CLASSES[family])
    theirs.resize_token_embeddings(len(OLD))
    theirs.save_pretrained(place)
    return wordpiece(place, OLD)


@pytest.mark.parametrize("family", CLASSES)
def test_rows_are_carried_over(family: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture) -> None:
    model = saved(family, tmp_path / "model")
    new = ["[MASK]", "[SEP]", "[CLS]", "[UNK]", "[PAD]", "the", "plays", "##ing", "##playing", "xyz", "unplay", "##s"]
    (tmp_path / "new").mkdir()
    wordpiece(tmp_path / "new", new)
    out = tmp_path / "out"
    words = ["vocabulary", "--model", str(model), "--tokenizer", str(tmp_path / "new"), "--output", str(out)]
    assert main(words) == 0
    said = (
        "12 tokens: 8 as in the old vocabulary, 3 from the mean of their old pieces, 1 from the mean of all old tokens"
    )
    assert said in capsys.readouterr().err
    wanted = {
        "plays": ["play", "##s"],
        "##playing": ["##play", "##ing"],
        "unplay": ["un", "##play"],
        "xyz": OLD,
    }
    before, after = (safetensors.numpy.load_file(place / "model.safetensors") for place in (model, out))
    assert before.keys() - {"cls.predictions.decoder.bias"} == after.keys()
    for name in after:
        of_last = TABLES.get(name.removeprefix(f"{family}."))
        if of_last is None:
            np.testing.assert_array_equal(before[name], after[name])
            continue
        old, found = (x[name].T if of_last else x[name] for x in (before, after))
        for number, token in enumerate(new):
            rows = [old[OLD.index(one)] for one in wanted.get(token, [token])]
            np.testing.assert_allclose(found[number], np.mean(rows, axis=0), rtol=0, atol=1e-6)
    theirs, report = getattr(transformers, CLASSES[family]).from_pretrained(out, output_loading_info=True)
    assert not any(report.values())
    assert theirs.config.vocab_size == len(new)
    assert transformers.AutoTokenizer.from_pretrained(out)("the plays")["input_ids"] == [2, 5, 6, 1]
    again = ["--model", str(out), "--tokenizer", str(tmp_path / "new"), "--output", str(tmp_path / "again")]
    assert main(["vocabulary", *again]) == 2
    assert "the model has this vocabulary already" in capsys.readouterr().err


def test_sentence_modules_and_task_file_are_copied(model: pathlib.Path, tmp_path: pathlib.Path) -> None:
    modules = SentenceModules(pooling="max", normalize=True, max_seq_len=7, prompts={"query": "q "})
    for name, text in {
        **sentence_module_files(modules, EncoderConfig(hidden_size=16, max_positions=32)),
        "task.json": '{"kind": "x"}\n',
    }.items():
        (model / name).parent.mkdir(exist_ok=True)
        (model / name).write_text(text)
    (tmp_path / "new").mkdir()
    wordpiece(tmp_path / "new", [*OLD, "more"])
    words = ["--model", str(model), "--tokenizer", str(tmp_path / "new"), "--output", str(tmp_path / "out")]
    assert main(["vocabulary", *words]) == 0
    assert read_sentence_modules(tmp_path / "out") == modules
    assert (tmp_path / "out" / "task.json").read_text() == '{"kind": "x"}\n'


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (OLD[:4] + OLD[5:], "the vocabulary has no [MASK]; give the names of its special tokens"),
        (OLD[1:], "the vocabulary has no [PAD]; give the names"),
        ([*OLD, "[SEP]"], "'[SEP]' is on lines 4 and 15"),
    ],
)
def test_special_tokens_that_do_not_map_are_refused_before_weights_are_read(
    tokens: list[str], says: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    """In one line: the damaged weights of the model are another."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    words = ["--model", str(tmp_path / "model"), "--tokenizer", str(tmp_path / "vocab.txt")]
    assert main(["vocabulary", *words, "--output", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (tmp_path / "out").exists()


def test_kinds_that_spell_differently_share_tokens(tmp_path: pathlib.Path) -> None:
    """A byte-level vocabulary marks the space before a word, WordPiece what continues one."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *letters, "\u0120play", "ing", "\u0120the", "play", "<mask>"]
    (tmp_path / "bytes").mkdir()
    (tmp_path / "bytes" / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (tmp_path / "bytes" / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / "old").mkdir()
    old, new = load_tokenizer(wordpiece(tmp_path / "old", OLD)), load_tokenizer(tmp_path / "bytes")
    found = old_tokens_of_new_tokens(old, new)
    source = {token: [OLD[piece] for piece in found.old_ids[found.new_ids == i]] for i, token in enumerate(tokens)}
    expected = {
        "\u0120play": ["play"],
        "play": ["##play"],
        "ing": ["##ing"],
        "\u0120the": ["the"],
        "a": ["##a"],
        "<s>": ["[CLS]"],
        "<pad>": ["[PAD]"],
        "</s>": ["[SEP]"],
        "<unk>": ["[UNK]"],
        "<mask>": ["[MASK]"],
        "\u00c3": [],  # the first byte of many letters
    }
    assert {token: source[token] for token in expected} == expected
    assert found.num_shared == 11  # with the letter s
    assert found.num_unknown == sum(not own for own in source.values())


def test_positions_follow_the_padding_of_the_new_vocabulary(tmp_path: pathlib.Path) -> None:
    """A RoBERTa counts positions from the id of its padding + 1."""
    theirs = model_of(CASES["roberta"], "RobertaForMaskedLM")
    theirs.save_pretrained(tmp_path / "model")
    of_family("roberta", tmp_path / "model")
    (tmp_path / "new").mkdir()
    wordpiece(tmp_path / "new", OLD)
    words = [
        "--model",
        str(tmp_path / "model"),
        "--tokenizer",
        str(tmp_path / "new"),
        "--output",
        str(tmp_path / "out"),
    ]
    assert main(["vocabulary", *words]) == 0
    name = "roberta.embeddings.position_embeddings.weight"
    before, after = (
        safetensors.numpy.load_file(tmp_path / one / "model.safetensors")[name] for one in ("model", "out")
    )
    np.testing.assert_array_equal(after[1:], before[2:])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["pad_token_id"], config["max_position_embeddings"]) == (0, len(after))
