"""Mistakes in a user's own files: each is reported by file, line or id, in one or two lines."""

import gzip
import json

import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.table import resolve_task

TEXTS = {"name": "custom", "kind": "sequence_classification", "labels": "no,yes"}
NUMBERS = {"name": "custom", "kind": "regression"}
TAGS = {"name": "custom", "kind": "token_classification", "labels": "O,B-X"}
CHOICES = {"name": "custom", "kind": "multiple_choice"}
SPANS = {"name": "custom", "kind": "question_answering"}
HEAD = "text\tlabel\n"


def squad(**changes):
    question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ada", "answer_start": 7}]} | changes
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "It was Ada. Ada!", "qas": [question]}]}]})


BAD = {
    "no such file": (TEXTS, "", None, "no such file; check config.task.dev"),
    "unknown format": (TEXTS, "a.xml", "<a/>", "unknown format"),
    **{
        f"a token per line in {suffix}": (TEXTS, f"a.{suffix}", "Ada B-X\n", "needs --kind token_classification")
        for suffix in ("conll", "conllu", "bio", "iob", "iob2", "conll.gz")
    },
    "empty file": (TEXTS, "a.tsv", " \n", "a.tsv: the file is empty"),
    "no examples": (TEXTS, "a.tsv", HEAD, "the dev set of task 'custom' has no example"),
    "empty list": (TEXTS, "a.json", "[]", "the dev set of task 'custom' has no example"),
    "missing column": (TEXTS, "a.tsv", "text\tlabels\nx\tno\n", r"a.tsv:1: no column 'label' for label; did you mean"),
    "column twice": (TEXTS, "a.csv", "text,label,text\nx,no,y\n", "a.csv:1: two columns are named 'text'"),
    "too few columns": (TEXTS, "a.tsv", HEAD + "x\tno\ny\n", "a.tsv:3: 1 columns, but the first row has 2"),
    "too many columns": (TEXTS, "a.csv", "text,label\nx,y,no\n", "a.csv:2: 3 columns, but the first row has 2"),
    "open quote": (TEXTS, "a.tsv", HEAD + 'x\tno\n"open\tyes\nz\tno\n', "a.tsv:3: unbalanced quotes"),
    "quote that ends early": (TEXTS, "a.csv", 'text,label\n"a" b,no\n', "a.csv:2: unbalanced quotes"),
    "quotes over lines": (TEXTS, "a.csv", 'text,label\n"a\nb",yes\n"c",no,x\n', "a.csv:4: 3 columns"),
    "misspelled optional column": (
        TEXTS | {"columns": "text=text,label=label,text_pair=boddy"},
        "a.tsv",
        "text\tbody\tlabel\nx\ty\tno\n",
        r"a.tsv:1: no column 'boddy' for text_pair; did you mean 'body'",
    ),
    "unknown label": (
        TEXTS,
        "a.tsv",
        HEAD + "x\tno\ny\tyess\n",
        r"a.tsv:3: label 'yess' is not among no, yes; did you",
    ),
    "empty label": (TEXTS, "a.tsv", HEAD + "x\t\n", "a.tsv:2: has no label"),
    "null label": (TEXTS, "a.jsonl", '{"text": "x", "label": null}', "a.jsonl:1: has no label"),
    "empty text": (TEXTS, "a.tsv", HEAD + " \tno\n", "a.tsv:2: text is empty"),
    "text is a number": (TEXTS, "a.jsonl", '{"text": 3, "label": "no"}', "a.jsonl:1: text is 3, not a text"),
    "surrogate": (TEXTS, "a.jsonl", '{"text": "\\ud800", "label": "no"}', "a.jsonl:1: text has half of a surrogate"),
    "surrogate in a token": (TAGS, "a.jsonl", '{"tokens": ["\\ud800"], "labels": ["O"]}', "tokens has half of a surr"),
    "surrogate in an answer": (
        SPANS,
        "a.json",
        squad(answers=[{"text": "\ud800", "answer_start": 7}]),
        "q1: an answer has half of a surrogate",
    ),
    "label is a list": (
        TEXTS,
        "a.jsonl",
        '{"text": "x", "label": ["no"]}',
        "neither text nor an integer; for texts with several labels set",
    ),
    "not UTF-8": (TEXTS, "a.tsv", HEAD.encode() + b"x\tno\ncaf\xe9\tno\n", "a.tsv:3: invalid UTF-8"),
    "binary": (TEXTS, "a.tsv", HEAD + "x\0\tno\n", "a.tsv:2: a NUL byte"),
    "truncated gzip": (TEXTS, "a.tsv.gz", gzip.compress(HEAD.encode() * 99)[:-9], "a.tsv.gz: broken archive"),
    "no gzip": (TEXTS, "a.tsv.gz", HEAD, "a.tsv.gz: broken archive"),
    "invalid JSON": (TEXTS, "a.jsonl", '{"text": "x", "label": "no"}\n{"text"', "a.jsonl:2: invalid JSON"),
    "invalid list": (TEXTS, "a.json", '[{"text": "x"},\n{"text"]', "a.json: invalid JSON .*line 2"),
    "deep JSON": (TEXTS, "a.json", "[" * 100_000, "a.json: invalid JSON"),
    "no object": (TEXTS, "a.jsonl", "3", "a.jsonl:1: not a JSON object"),
    "lines of lists": (TEXTS, "a.jsonl", '["x", "no"]\n["y", "no"]\n', "a.jsonl:1: not a JSON object"),
    "missing key": (
        TEXTS,
        "a.jsonl",
        '{"txt": "x", "label": "no"}',
        r"a.jsonl:1: no key 'text' for text; did you mean 'txt'",
    ),
    "a list over lines": (TEXTS, "a.json", '[{"text": "x"\n, "n": [1]}]', "a.json: item 0: no key 'label'"),
    "no second text": (  # the first one is no help
        TEXTS | {"columns": "text=text,text_pair=text_pair,label=label"},
        "a.jsonl",
        '{"text": "x", "label": "no"}',
        r"no key 'text_pair' for text_pair \(there are 'text', 'label'\)",
    ),
    "id twice": (
        TEXTS | {"columns": "id=id"},
        "a.tsv",
        "id\t" + HEAD + "1\tx\tno\n2\ty\tno\n1\tz\tno\n",
        r"a.tsv:4: id '1' is also the id of \S*a.tsv:2",
    ),
    "empty id": (
        TEXTS | {"columns": "id=id"},
        "a.tsv",
        "id\t" + HEAD + "\tx\tno\n",
        "a.tsv:2: id is '', which is neither",
    ),
    "no number": (NUMBERS, "a.tsv", HEAD + "x\t1.5\ny\tlow\n", "a.tsv:3: label 'low' is not a number; fix it"),
    "above float32": (NUMBERS, "a.tsv", HEAD + "x\t1e39\n", "a.tsv:2: label '1e39' is not a number"),
    "comma": (NUMBERS, "a.tsv", HEAD + "x\t3,5\n", "a.tsv:2: label '3,5' is not a number; write a point for the comma"),
    "not finite": (NUMBERS, "a.tsv", HEAD + "x\tnan\n", "a.tsv:2: label 'nan' is not a number"),
    "tag of another set": (TAGS, "a.txt", "a O\nb B-Y\n", "a.txt:1: label 'B-Y' is not among O, B-X"),
    "line without a tag": (TAGS, "a.txt", "a O\nb\n", "a.txt:2: 1 columns, but the first token has 2"),
    "empty token": (TAGS, "a.tsv", "a\tO\n\tO\n", "a.tsv:1: tokens is not a list of texts, or one of them is empty"),
    "tag column beyond": (TAGS | {"columns": "labels=5"}, "a.txt", "a O\n", "a.txt:1: no column 5 for labels among 2"),
    "tag column by name": (TAGS | {"columns": "labels=ner"}, "a.txt", "a O\n", "columns of this format are numbers"),
    "tags and tokens": (TAGS, "a.jsonl", '{"tokens": ["a"], "labels": ["O", "O"]}', "1 tokens but 2 labels"),
    "no tokens": (TAGS, "a.jsonl", '{"tokens": [], "labels": []}', "a sentence without tokens"),
    "choice beyond": (
        CHOICES,
        "a.jsonl",
        '{"text": "x", "choices": ["a", "b"], "label": 2}',
        "'2' is not the number of a choice",
    ),
    "a gap in the choices": (
        CHOICES | {"columns": "choice0=choice0,choice2=choice2"},
        "a.jsonl",
        '{"text": "x", "choice0": "a", "choice2": "b", "label": 1}',
        "choice2 without choice1; number the choices from choice0 on",
    ),
    "one choice": (CHOICES, "a.jsonl", '{"text": "x", "choices": ["a"], "label": 0}', "fewer than two choices"),
    "choices differ": (
        CHOICES,
        "a.jsonl",
        '{"text": "x", "choices": ["a", "b"], "label": 0}\n{"text": "x", "choices": ["a", "b", "c"], "label": 0}',
        "same number of choices",
    ),
    "answer without text": (SPANS, "a.json", squad(answers=[{"answer_start": 1}]), "q1: an answer without text"),
    "answers are text": (SPANS, "a.json", squad(answers="Ada"), "'answers' is not a list of objects"),
    "impossible and answered": (SPANS, "a.json", squad(is_impossible=True), "q1: is_impossible is True with 1 answers"),
    "possible, no answer": (SPANS, "a.json", squad(is_impossible=False, answers=[]), "is False with 0 answers"),
    "no question": (SPANS, "a.json", squad(question=None), r"data\[0\] paragraphs\[0\] qas\[0\]: no text 'question'"),
    "no answers": (
        SPANS,
        "a.json",
        squad().replace("answers", "plausible"),
        "question q1: no 'answers'; a question has id, question, context",
    ),
    "no SQuAD": (SPANS, "a.json", "[1]", "no list 'data'"),
}

# Training points at the answer; other sets are scored by its text (tests/tasks/test_other_languages.py).
BAD_IN_TRAINING = {
    "answer elsewhere": (
        SPANS,
        "a.json",
        squad(answers=[{"text": "Ada", "answer_start": 11}]),
        "question q1: answer 'Ada' is not at answer_start 11 but at 12",
    ),
    "answer nowhere": (
        SPANS,
        "a.json",
        squad(answers=[{"text": "Bob", "answer_start": 7}]),
        "question q1: answer 'Bob' is not in its context",
    ),
    "answer before the text": (
        SPANS,
        "a.json",
        squad(answers=[{"text": "!", "answer_start": -1}]),
        "question q1: answer '!' is not at answer_start -1 but at 15",
    ),
    "answer without start": (SPANS, "a.json", squad(answers=[{"text": "Ada"}]), "q1: answer 'Ada' has no integer"),
}


@pytest.mark.parametrize(("settings", "name", "content", "message"), BAD_IN_TRAINING.values(), ids=BAD_IN_TRAINING)
def test_training_needs_the_place_of_an_answer(settings, name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    config = TaskConfig(**settings, data=str(tmp_path), train=name)
    with pytest.raises(UserError, match=f"{message}.*skip_unusable_answers") as caught:
        read_task_examples(resolve_task(config), config, "train")
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize(("settings", "name", "content", "message"), BAD.values(), ids=BAD)
def test_mistakes_are_refused_by_place(settings, name, content, message, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    config = TaskConfig(**settings, data=str(tmp_path), dev=name or "absent.tsv")
    with pytest.raises(UserError, match=message) as caught:
        read_task_examples(resolve_task(config), config, "dev")
    assert len(str(caught.value).splitlines()) <= 2
