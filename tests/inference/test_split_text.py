"""Models that label words: texts are split as BasicTokenizer splits them, and no column of a file is dropped."""

import io
import json

import pytest
import torch
from transformers.models.bert_japanese.tokenization_bert_japanese import BasicTokenizer

from bert_jax.errors import UserError
from bert_jax.inference.predict import predict_file
from bert_jax.inference.words import find_content_of_lines, split_text
from bert_jax.loaded_model import load
from tests.helpers.finetuning_runs import read_lines
from tests.helpers.tiny_models import save

TEXTS = [
    "abc dea, visited (the) j.f.",
    "don't U.S. 3.5% \N{CJK UNIFIED IDEOGRAPH-5317}\N{CJK UNIFIED IDEOGRAPH-4EAC}abc \N{LATIN SMALL LETTER AE}",
    "",
    "  a\N{NO-BREAK SPACE}b\N{IDEOGRAPHIC SPACE}c ",
]
LABELS = ("O", "B-X", "I-X")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """A directory of transformers with a model for the labels of tokens; its model and tokenizer."""
    place = tmp_path_factory.mktemp("tagger")
    names = dict(enumerate(LABELS))
    model, tokenizer = save(
        place, "bert", "ForTokenClassification", id2label=names, label2id={name: n for n, name in names.items()}
    )
    return place, model, tokenizer


@pytest.fixture
def answers_of(tagger, tmp_path, monkeypatch):
    """A function from the content of an input to the predictions; the name `-` is standard input."""

    def answers(content, name):
        if name == "-":
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content.encode()))))
        else:
            (tmp_path / name).write_text(content)
        predict_file(tagger[0], name if name == "-" else str(tmp_path / name), str(tmp_path / "answers.jsonl"))
        return read_lines(tmp_path / "answers.jsonl")

    return answers


def labels_of_transformers(tagger, words):
    _, model, tokenizer = tagger
    encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        best = model(**encoded).logits[0].argmax(1).tolist()
    words_of_tokens = encoded.word_ids()
    return [LABELS[best[words_of_tokens.index(word)]] for word in range(len(words))]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_split_as_the_basic_tokenizer_of_bert_splits_them(text):
    assert split_text(text) == BasicTokenizer(do_lower_case=False, strip_accents=False).tokenize(text)
    assert "".join(split_text(text)) == "".join(text.split())


@pytest.mark.parametrize("name", ["a.txt", "-", "a", "a.jsonl"])
def test_every_word_of_a_text_gets_the_label_of_transformers(tagger, answers_of, name):
    lines = [json.dumps({"text": text}) for text in TEXTS] if name == "a.jsonl" else TEXTS
    answers = answers_of("".join(f"{line}\n" for line in lines), name)
    basic = BasicTokenizer(do_lower_case=False, strip_accents=False)
    assert [answer["tokens"] for answer in answers] == [basic.tokenize(text) for text in TEXTS]
    assert [answer["id"] for answer in answers] == ["1", "2", "3", "4"]
    for answer in answers:
        assert answer["labels"] == (labels_of_transformers(tagger, answer["tokens"]) if answer["tokens"] else [])
    given = load(tagger[0]).predict(TEXTS)
    assert [answer["labels"] for answer in given] == [answer["labels"] for answer in answers]


TWO_SENTENCES = [["ab", "c"], ["d."]]


@pytest.mark.parametrize(
    "content",
    [
        "ab\nc\n\nd.\n",
        "ab O\nc B-X\n\nd. O\n",
        "-DOCSTART- -X- O\n\nab N O\nc N B-X\n\nd. N O\n",
        "ab\tO\nc\tB-X\n\nd.\tO\n",
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.conll"])
def test_a_token_per_line_stays_a_token(answers_of, content, name):
    assert [answer["tokens"] for answer in answers_of(content, name)] == TWO_SENTENCES


def test_conll_u_without_labels_is_read(answers_of):
    rows = [[str(number), word, *["_"] * 8] for number, word in enumerate(["ab", "c"], 1)]
    (answer,) = answers_of("# sent_id = 1\n" + "".join("\t".join(row) + "\n" for row in rows), "a.conll")
    assert answer["tokens"] == ["1", "2"]  # this model read the column 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "ab cd\nef gh\n", "equally many words"),  # texts of two words, or a column that is no label
        ("a.txt", "ab O\nc\nd B-X\n", "1 columns, but the first token has 2"),
        ("a.txt", "ab\nc d\ne\n", "2 columns, but the first token has 1"),
        ("a.conll", "ab cd ef.\n", "further columns, such as 'ef.', but no label of this model"),
        ("a.conll", "ab N\nc V\n", "further columns, such as 'N', but no label of this model"),
        ("a.tsv", "ab\tN\nc\tV\n", "further columns, such as 'N', but no label of this model"),
        ("-", "ab\nc\n\nd\n", "these lines hold tokens"),
        ("-", "ab\tO\nc\tO\n", "these lines hold tokens"),
    ],
)
def test_columns_are_never_dropped(answers_of, name, content, message):
    with pytest.raises(UserError) as error:
        answers_of(content, name)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("lines", "content"),
    [
        (["ab cd ef.", "gh ij."], "texts"),
        (["ab cd ef."], "texts"),
        (["\N{CJK UNIFIED IDEOGRAPH-5317}" * 9], "texts"),
        (["\N{CJK UNIFIED IDEOGRAPH-5317}" * 9] * 2, "unclear"),
        (["\N{CJK UNIFIED IDEOGRAPH-5317}"] * 9, "tokens"),
        (["O ab", "B-X cd"], "unclear"),
        ([], "texts"),
    ],
)
def test_content_of_lines(lines, content):
    assert find_content_of_lines(lines, LABELS, {}) == content
    columns = {"labels": "0"}
    assert find_content_of_lines(["O ab", "B-X cd"], LABELS, columns) == "tokens"
