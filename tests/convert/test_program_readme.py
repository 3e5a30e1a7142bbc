"""The code in the README.md of an exported program, run alone: its texts, its answers, and its notes."""

import json
import re
import types

import numpy as np
import pytest
import tokenizers
import transformers

from bert_jax.checkpoints.load_model import read_weights
from bert_jax.cli.main import main
from bert_jax.config import TaskConfig
from bert_jax.convert.export_readme import ANSWER_CODE, _code_of_texts
from bert_jax.convert.program import program_readme
from bert_jax.interop.huggingface import TASK_FILE
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds.answer_search import find_answers
from tests.helpers import tiny_models
from tests.interop.test_sentence_modules import save_theirs

LENGTH = 12


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({}, ["A", "B"]),
        ({"prompts": {"q": "d "}, "default_prompt": "q"}, ["d A", "d B"]),
        ({"prompts": {"query": "d ", "passage": 'E" '}}, ["d a query", 'E" a document']),
        ({"prompts": {"query": "D "}, "lower_case": True}, ["d a query", "a document"]),
        ({"lower_case": True}, ["a", "b"]),
        ({"activation": "sigmoid"}, [("a query", "a document"), ("a query", "another document")]),
        (
            {"activation": "identity", "prompts": {"q": "d "}, "default_prompt": "q"},
            [("d a query", "a document"), ("d a query", "another document")],
        ),
        (
            {"activation": "identity", "prompts": {"q": "D "}, "default_prompt": "q", "lower_case": True},
            [("d a query", "a document"), ("d a query", "another document")],
        ),
    ],
)
def test_the_code_of_readme_makes_texts_with_their_prompts(modules, expected):
    names: dict = {}
    exec(_code_of_texts(SentenceModules(**modules), 'texts = ["A", "B"]\n'), names)
    assert names["texts"] == expected


def test_the_code_of_readme_lowercases_both_texts_of_a_pair():
    code = _code_of_texts(SentenceModules(activation="identity", lower_case=True), "")
    names: dict = {}
    exec(code.replace("query", "Query").replace("document", "Document"), names)
    assert names["texts"] == [("a query", "a document"), ("a query", "another document")]


@pytest.mark.parametrize(("null_threshold", "max_answer_length"), [(np.inf, 30), (np.inf, 1), (0.5, 2), (-30.0, 2)])
def test_the_code_of_readme_finds_the_answer_that_predict_finds(null_threshold, max_answer_length, capsys):
    """With random logits: the question has two tokens, and the context has five."""
    text, settings = "abcdefghij", TaskConfig(max_answer_length=max_answer_length)
    offsets = [(0, 0)] * 4 + [(number, number + 2) for number in range(0, 10, 2)] + [(0, 0)]
    sequence_ids = [None, 0, 0, None, 1, 1, 1, 1, 1, None]
    context_offsets = np.array([o if s == 1 else (-1, -1) for o, s in zip(offsets, sequence_ids, strict=True)])
    alignment = {"context_offsets": context_offsets, "max_context": np.array(sequence_ids) == 1}
    window = Features(np.zeros(10, np.int32), 4, 0, {}, alignment)
    for seed in range(20):
        start, end = np.random.default_rng(seed).normal(size=(2, 1, 10))
        (expected,) = find_answers([{"context": text}], [window], start, end, settings, True)
        names = {
            "np": np,
            "outputs": {"start_logits": start, "end_logits": end},
            "encodings": [types.SimpleNamespace(sequence_ids=sequence_ids, offsets=offsets)],
            "texts": [("q", text)],
            "max_answer_length": max_answer_length,
            "null_threshold": null_threshold,
        }
        exec(ANSWER_CODE["span"].print, names)
        assert capsys.readouterr().out == expected.text(null_threshold) + "\n"


@pytest.mark.parametrize(
    ("kind", "columns", "pairs"),
    [
        ("reranking", None, True),
        ("regression", "text=a,text_pair=b,label=c", True),
        ("sequence_classification", "text=a,label=c", False),
    ],
)
def test_readme_of_a_program_gives_pairs_to_a_model_of_pairs(tmp_path, kind, columns, pairs):
    classes = 2 if kind == "sequence_classification" else 1
    tiny_models.save(tmp_path, "bert", "ForSequenceClassification", num_labels=classes)
    settings = {"name": "custom", "kind": kind} | ({"columns": columns} if columns else {})
    (tmp_path / TASK_FILE).write_text(json.dumps({"kind": kind, "config": settings}))
    readme = program_readme(read_weights(tmp_path), "title", "onnxruntime", False)
    assert ('texts = [("a query", "a document"), ("a query", "another document")]' in readme) == pairs
    assert ('texts = ["a text", "another text"]' in readme) != pairs


@pytest.mark.parametrize("names", [["input_ids", "token_type_ids", "attention_mask"], ["input_ids", "attention_mask"]])
def test_readme_of_a_program_gives_the_token_types_that_predict_gives(tmp_path, names):
    """transformers makes token types only if `model_input_names` has them; tokenizer.json alone does not tell."""
    tiny_models.save(tmp_path, "bert", "ForSequenceClassification")
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_input_names": names}))
    readme = program_readme(read_weights(tmp_path), "title", "onnxruntime", False)
    (code,) = re.findall('"token_type_ids": (.*),\n', readme)
    encodings = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode_batch([("ab", "cd e")])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = tokenizer("ab", "cd e").get("token_type_ids", [0] * len(encodings[0].ids))
    assert eval(code, {"np": np, "encodings": encodings}).tolist() == [expected]
    assert any(expected) == ("token_type_ids" in names)


@pytest.mark.parametrize("template", [None, "{text} It is [MASK]."])
def test_readme_of_a_program_names_the_template_that_its_code_does_not_fill(tmp_path, template):
    tiny_models.save(tmp_path, "bert")
    settings = {"template": template, "verbalizers": "good=a,bad=the"} if template else {}
    (tmp_path / TASK_FILE).write_text(json.dumps({"task": {"name": "own"}, "config": settings}))
    before_code = program_readme(read_weights(tmp_path), "title", "onnxruntime", False).partition("```")[0]
    assert ("template" in before_code) == bool(template)
    assert all(value in before_code for value in settings.values())


def test_the_code_of_a_card_has_the_prompts_of_queries_and_documents(tmp_path, monkeypatch):
    tiny_models.save(tmp_path / "encoder", "bert", "Model")
    prompts = {"query": "d e: ", "document": "a. "}
    model = save_theirs(tmp_path / "encoder", tmp_path / "theirs", "mean", True, LENGTH, prompts=prompts)
    query, document = model.encode_query("a query"), model.encode_document("a document")
    (tmp_path / "theirs" / "README.md").unlink()  # an export would keep this card
    words = ["--model", tmp_path / "theirs", "--output", tmp_path / "again", "--format", "huggingface"]
    assert main(["export", *map(str, words)]) == 0
    code = (tmp_path / "again" / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path / "again")
    names: dict = {}
    exec(code, names)  # the code that the card shows
    np.testing.assert_allclose(names["queries"][0], query, atol=1e-6)
    np.testing.assert_allclose(names["documents"][0], document, atol=1e-6)
