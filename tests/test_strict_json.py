"""JSON from outside: input that Python's reader accepts wrongly or reads without end is refused in a line."""

import json
import math
import os
import pathlib

import pytest

from bert_jax import strict_json
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, read_documents
from bert_jax.readers.rejections import hint_for_most_common_reason
from bert_jax.readers.rows import parse_json
from bert_jax.tokenizer import load_tokenizer

DEEP = "[" * 100_000 + "]" * 100_000
WRONG = {
    "deep list": (DEEP, "more than 100 lists and objects in each other: char 100"),
    "deep object": ('{"a":' * 101 + "1" + "}" * 101, "more than 100 lists and objects in each other: char 500"),
    "cut deep list": ("[" * 100_000, "more than 100"),
    "string without an end": ("[" * 101 + '"' + '\\"' * 100_000, "more than 100"),
    "key twice": ('{"a": 1, "b": 2, "a": 1}', "the key 'a' is given twice"),
    "NaN": ('{"a": NaN}', "NaN is no JSON"),
    "Infinity": ("[-Infinity]", "-Infinity is no JSON"),
    "too large": ('{"a": 1e999}', "1e999 is too large for a number"),
    "digits": ("9" * 5000, "4300"),
    "cut": ('{"a": ', "column 7"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_text_that_is_not_strict_json_is_refused(case):
    text, words = WRONG[case]
    with pytest.raises(UserError) as refusal:
        parse_json("file.jsonl:7", text)
    assert str(refusal.value).startswith("file.jsonl:7: invalid JSON (")
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "value",
    [
        {"a": "[" * 1000, 'b"': '{"' * 1000, "c\\": "\\" * 999 + "["},
        [[i] for i in range(1000)],
        json.loads("[" * 100 + "]" * 100),
        [1e308, -0.0, 10**300, None, True],
    ],
    ids=["brackets in strings", "many lists", "as deep as allowed", "numbers"],
)
def test_other_json_is_read_as_python_reads_it(value):
    for text in (json.dumps(value), json.dumps(value, indent=1)):
        assert strict_json.parse(text) == json.loads(text) == value


def test_a_number_that_is_not_finite_is_null():
    values = {"loss": math.nan, "rows": [(math.inf, 1.5), {"bound": -math.inf}], "step": 10**300}
    line = strict_json.json_line(values)
    assert strict_json.parse(line) == {"loss": None, "rows": [[None, 1.5], {"bound": None}], "step": 10**300}


def test_a_name_that_is_not_utf8_is_escaped():
    name = os.fsdecode(b"corp\xe4 us")
    line = strict_json.json_line({"corpus": name})
    assert json.loads(line.encode()) == {"corpus": name}


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.write(b" " * (17 << 20))
    with pytest.raises(UserError, match=r"config\.json has more than 16 MiB"):
        strict_json.read_object(path)


def test_a_record_that_is_not_strict_json_is_rejected_and_counted(tmp_path):
    lines = [f'{{"text": "a", "b": {WRONG[case][0]}}}' for case in ("deep list", "NaN", "too large", "key twice")]
    (tmp_path / "a.jsonl").write_text("\n".join(['{"text": "x"}', *lines, '{"text": "c", "text": "d"}']))
    (tmp_path / "b.json").write_text('[{"text": "y"}, {"text": "z", "b": %s}]' % ("[" * 200 + "]" * 200))
    read = [(one.text, one.rejected) for one in read_documents([str(tmp_path)], ReadOptions())]
    refused, not_finite = ("", "broken JSON"), ("", "NaN or Infinity")
    assert read == [("x", ""), refused, not_finite, not_finite, refused, refused, ("y", ""), refused]
    assert "null" in hint_for_most_common_reason({"NaN or Infinity": 2, "broken JSON": 1}, "", ReadOptions())


@pytest.mark.parametrize("text", [DEEP, f'{{"model": {DEEP}}}', '{"model": 1, "model": 2}', '{"model": NaN}'])
def test_a_tokenizer_that_is_not_strict_json_is_refused(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read as JSON"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(text)
    with pytest.raises(UserError, match=r"tokenizer_config\.json cannot be read as JSON"):
        load_tokenizer(tmp_path)


def test_a_manifest_that_is_not_strict_json_is_refused(tmp_path: pathlib.Path):
    (tmp_path / "manifest.json").write_text(DEEP)
    with pytest.raises(UserError, match=r"no complete manifest\.json"):
        open_corpus(tmp_path)
