"""Predictions of a fine-tuned model: in order, whatever the ids of the lines and however many there are."""

import csv
import dataclasses
import gzip
import itertools
import json
import os
import pathlib
import random
from collections import Counter

import jax
import pyarrow
import pyarrow.parquet as pq
import pytest
import torch
import transformers

from bert_jax.cli.main import main
from bert_jax.config import TaskConfig
from bert_jax.console import escaping_stream
from bert_jax.errors import UserError
from bert_jax.inference import predict as module
from bert_jax.inference.inputs import Input
from bert_jax.inference.predict import (
    Predictor,
    check_inputs,
    load_predictor,
    open_inputs,
    predict_file,
    predict_inputs,
)
from bert_jax.loaded_model import load
from bert_jax.tasks.custom import with_columns_of_examples
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.table import TASKS, fields_of_training, resolve_task
from tests.helpers.finetuning_runs import EXAMPLE, lines, read_lines, write_lines
from tests.helpers.tiny_models import save

CLASS = {
    "sequence_classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
}
ANSWER = {
    "sequence_classification": {"id", "label", "probabilities"},
    "regression": {"id", "label"},
    "token_classification": {"id", "tokens", "labels", "probabilities"},
    "question_answering": {"id", "answer", "n_best", "null_margin"},
    "multiple_choice": {"id", "label", "probabilities"},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Kind -> a model as transformers saves it, without a task.json."""
    place = tmp_path_factory.mktemp("models")
    labels = {"regression": {"num_labels": 1, "problem_type": "regression"}, "token_classification": {"num_labels": 3}}
    for kind, name in CLASS.items():
        save(place / kind, "bert", name, **labels.get(kind, {}))
    return place


def run(predictor, records):
    counts = Counter()
    inputs = [Input(f"record {number}", number, record) for number, record in enumerate(records, 1)]
    return list(predict_inputs(predictor, inputs, counts)), counts


@pytest.mark.parametrize("kind", list(EXAMPLE))
def test_order_ids_and_chunks_change_no_answer(models, monkeypatch, kind):
    compiled = []
    listen = lambda event, *_, **of: compiled.append(of.get("fun_name")) if "backend_compile" in event else None  # noqa: E731
    jax.monitoring.register_event_duration_secs_listener(listen)
    predictor = load_predictor(models / kind, batch_size=4)
    records = lines(kind, 11, seed=3)
    whole, counts = run(predictor, records)
    assert counts["examples"] == 11
    assert [one["id"] for one in whole] == [str(number) for number in range(1, 12)]
    assert all(one.keys() == ANSWER[kind] for one in whole)
    assert len({json.dumps({**one, "id": 0}) for one in whole}) > 3, "all answers are alike"

    monkeypatch.setattr(module, "CHUNK", 3)
    names = ["b", 7, "b", None, 7, "", "y", "z", "b", "ä", 0]  # of several chunks, and more than once in one
    named = [record | {"id": name} for record, name in zip(records, names, strict=True)]
    chunked, counts = run(predictor, named[::-1])
    jax.monitoring.unregister_event_duration_listener(listen)
    assert counts["examples"] == 11
    assert 1 <= len(compiled) <= 6, "more programs than lengths"
    for index, (name, before, after) in enumerate(zip(names, whole, chunked[::-1], strict=True)):
        assert after["id"] == (str(11 - index) if name in (None, "") else name)  # without an id: the number of its line
        assert close({**before, "id": 0}, {**after, "id": 0}), (before, after)


def close(left, right):
    """Equal up to rounding: a sequence may be padded to another length."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(close(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(close, left, right))
    return left == pytest.approx(right, abs=1e-4) if isinstance(left, float) else left == right


def test_labels_of_the_input_are_not_read(models):
    predictor = load_predictor(models / "sequence_classification")
    plain, _ = run(predictor, [{"text": "abc"}])
    labeled, _ = run(predictor, [{"text": "abc", "label": "what the model does not know"}])
    assert plain == labeled
    predictor = load_predictor(models / "question_answering")
    plain, _ = run(predictor, [{"question": "a", "context": "b c d"}])
    assert plain == run(predictor, [{"question": "a", "context": "b c d", "answers": [], "is_impossible": True}])[0]


def test_entities_of_texts_equal_the_groups_of_a_pipeline_of_transformers(tmp_path):
    """The random weights are scaled so that neighboring words get different labels."""
    labels = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    names = {"id2label": dict(enumerate(labels)), "num_labels": len(labels)}
    model, _ = save(tmp_path, "bert", "ForTokenClassification", **names)
    torch.manual_seed(0)
    with torch.no_grad():
        model.classifier.weight.normal_()
        model.bert.embeddings.word_embeddings.weight.normal_()
    model.save_pretrained(tmp_path)
    pipeline = transformers.pipeline("token-classification", str(tmp_path), aggregation_strategy="first", device="cpu")
    rng, loaded = random.Random(0), load(tmp_path)
    count = 0
    for _ in range(20):
        words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 3))) for _ in range(rng.randint(1, 9))]
        text = "".join(word + rng.choice((" ", "  ", ", ", "\t")) for word in words)
        (answer,) = loaded.predict([text])
        groups = [(group["entity_group"], group["start"], group["end"]) for group in pipeline(text)]
        entities = answer["entities"]
        assert [(entity["type"], entity["start"], entity["end"]) for entity in entities] == groups
        for entity in entities:
            assert entity["text"] == text[entity["start"] : entity["end"]]
            inside = answer["tokens"][entity["first_word"] : entity["end_word"]]
            assert "".join(entity["text"].split()) == "".join(inside)
        count += len(entities)
        (of_words,) = loaded.predict([{"tokens": answer["tokens"]}])
        kept = ("type", "first_word", "end_word")
        assert of_words["entities"] == [{key: entity[key] for key in kept} for entity in entities]
    assert count > 20


def test_a_context_without_words_has_no_answer(models):
    predictor = load_predictor(models / "question_answering")
    known = {"question": "a", "context": "b c d"}
    answers, _ = run(predictor, [known, {"question": "a", "context": ""}, {"question": "a", "context": " \u200b "}])
    assert answers[:1] == run(predictor, [known])[0]
    for answer in answers[1:]:
        assert (answer["answer"], answer["n_best"], answer["null_margin"]) == ("", [], None)


def test_the_null_threshold_decides_between_the_best_answer_and_none(models):
    predictor = load_predictor(models / "question_answering")
    records = lines("question_answering", 12, seed=5)
    answers, _ = run(predictor, records)
    margins = sorted(one["null_margin"] for one in answers)
    for threshold in (margins[0] - 1, margins[5] + 1e-3, margins[-1] + 1, None):
        found, _ = run(predictor._replace(threshold=threshold), records)
        for before, one in zip(answers, found, strict=True):
            none = threshold is not None and before["null_margin"] > threshold
            assert one["answer"] == ("" if none else before["n_best"][0]["text"])


def test_standard_input_and_output(models, tmp_path, monkeypatch, capsys):
    records = lines("sequence_classification", 5, seed=1)
    write_lines(tmp_path / "in.jsonl", records)
    monkeypatch.setattr("sys.stdin", open(tmp_path / "in.jsonl"))  # noqa: SIM115 (closed below)
    assert main(["predict", "--model", str(models / "sequence_classification")]) == 0
    module.sys.stdin.close()
    piped = capsys.readouterr()
    assert "5 examples" in piped.err
    files = [f"--input={tmp_path / 'in.jsonl'}", f"--output={tmp_path / 'out.jsonl'}"]
    assert main(["predict", "--model", str(models / "sequence_classification"), *files]) == 0
    assert [json.loads(line) for line in piped.out.splitlines()] == read_lines(tmp_path / "out.jsonl")


def test_an_empty_text_is_counted_and_answered(models, tmp_path, capsys):
    texts = ["ab", "", "cd", "   ", "ef"]
    (tmp_path / "in.txt").write_text("".join(text + "\n" for text in texts))
    files = [f"--input={tmp_path / 'in.txt'}", f"--output={tmp_path / 'out.jsonl'}"]
    assert main(["predict", "--model", str(models / "sequence_classification"), *files]) == 0
    assert capsys.readouterr().err.endswith("5 examples, 2 empty texts\n")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(models / "sequence_classification").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(models / "sequence_classification")
    for text, answer in zip(texts, read_lines(tmp_path / "out.jsonl"), strict=True):
        with torch.no_grad():
            expected = torch.softmax(model(**tokenizer(text, return_tensors="pt")).logits[0], 0)
        assert [*answer["probabilities"].values()] == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_file_is_refused_before_anything_is_computed(models, tmp_path, monkeypatch, capsys):
    write_lines(tmp_path / "in.jsonl", [*lines("sequence_classification", 5, seed=1), {"text": 3}])
    monkeypatch.setattr(module, "predict_inputs", lambda *_: pytest.fail("something was computed"))
    files = [f"--input={tmp_path / 'in.jsonl'}", f"--output={tmp_path / 'out.jsonl'}"]
    assert main(["predict", "--model", str(models / "sequence_classification"), *files]) == 2
    assert "in.jsonl:6: text is 3, not a text" in capsys.readouterr().err


def test_progress_counts_examples_and_knows_how_many_there_are(models, tmp_path, monkeypatch):
    """Batches of 2 long texts, the third not full, in chunks of 5 and 1."""
    monkeypatch.setattr(module, "CHUNK", 5)
    (tmp_path / "in.jsonl").write_text((json.dumps({"text": "a " * 26}) + "\n") * 6 + "\n")
    seen = []
    files = str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")
    predict_file(models / "sequence_classification", *files, 2, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 6), (2, 6), (4, 6), (5, 6)]


def test_a_closed_pipe_is_no_error(models, tmp_path, monkeypatch, capsys):
    write_lines(tmp_path / "in.jsonl", lines("sequence_classification", 5, seed=1))
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr("sys.stdout", escaping_stream(writer, None))
    argv = ["predict", "--model", str(models / "sequence_classification"), "--input", str(tmp_path / "in.jsonl")]
    assert main(argv) == 141
    os.close(writer)
    assert capsys.readouterr().err == ""


def test_cut_texts_are_counted(models, capsys, tmp_path):
    write_lines(tmp_path / "in.jsonl", [{"text": "abcdefghij" * 9}, {"text": "a"}])
    assert (
        main(["predict", "--model", str(models / "sequence_classification"), "--input", str(tmp_path / "in.jsonl")])
        == 0
    )
    assert "2 examples" in (err := capsys.readouterr().err)
    assert "1 truncated texts" in err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", ("in.jsonl:2", "invalid JSON")),
        ("[" * 100_000, ("in.jsonl:2", "invalid JSON")),
        ("[1]", ("in.jsonl:2", "not a JSON object")),
        ('{"texts": "a"}', ("in.jsonl:2", "has no 'text'")),
        ('{"text": 3}', ("in.jsonl:2", "text")),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_left(models, tmp_path, line, says):
    (tmp_path / "in.jsonl").write_text(f'{{"text": "ab"}}\n{line}\n')
    with pytest.raises(UserError) as caught:
        predict_file(models / "sequence_classification", str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), 4)
    assert all(words in str(caught.value) for words in says), caught.value
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_output_that_is_the_input_is_refused_and_kept(models, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "link.jsonl").symlink_to("in.jsonl")
    with pytest.raises(UserError, match="--output is also --input; choose another --output"):
        predict_file(models / "sequence_classification", str(tmp_path / "in.jsonl"), str(tmp_path / "link.jsonl"))
    assert (tmp_path / "in.jsonl").read_text() == '{"text": "a"}\n'


def test_other_refusals(models, tmp_path, capsys):
    save(tmp_path / "pretrained", "bert", "ForPreTraining")
    (tmp_path / "in.jsonl").write_text('{"text": "ab"}\n')
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "\xe9"}\n')
    (tmp_path / "bad").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "bad" / name).write_bytes((models / "sequence_classification" / name).read_bytes())
    good = {
        "--model": models / "sequence_classification",
        "--input": tmp_path / "in.jsonl",
        "--output": tmp_path / "out.jsonl",
    }
    cases = [
        ({"--batch_size": 0}, "batch_size 0"),
        ({"--model": tmp_path / "pretrained"}, "fine-tune it first"),
        ({"--model": tmp_path / "missing"}, "missing"),
        ({"--input": tmp_path / "missing.jsonl"}, "No such file"),
        ({"--input": tmp_path}, "Is a directory"),
        ({"--input": tmp_path / "table.xlsx"}, "save the sheet as CSV"),
        ({"--input": tmp_path / "empty.jsonl"}, "no example"),
        ({"--input": tmp_path / "latin.jsonl"}, "not UTF-8"),
        ({"--output": tmp_path / "no" / "where.jsonl"}, "cannot be written"),
    ]
    texts = ["[]", "{", '{"kind": "question_answering"}', '{"labels": ["x", "y"]}', '{"labels": 3}', '{"config": 3}']
    texts += ['{"config": {"lengths": 1}}', '{"null_threshold": "high"}']
    cases += [({"--model": tmp_path / "bad", "task.json": text}, "task.json") for text in texts]
    capsys.readouterr()
    for changes, says in cases:
        if "task.json" in changes:
            (tmp_path / "bad" / "task.json").write_text(changes.pop("task.json"))
        argv = [str(word) for pair in (good | changes).items() for word in pair]
        assert main(["predict", *argv]) == 2, changes
        err = capsys.readouterr().err
        assert says in err, err
        assert 1 <= len(err.splitlines()) <= 2, err
        assert not list(pathlib.Path(tmp_path).glob("out*")), changes


def test_fields_have_the_names_of_the_training_set(models):
    predictor = load_predictor(models / "sequence_classification")
    records = lines("sequence_classification", 5, seed=4)
    expected, _ = run(predictor, [one | {"id": number} for number, one in enumerate(records)])
    columns = "text=title,text_pair=text_pair,label=topic,id=number,format=json"
    renamed = predictor._replace(settings=dataclasses.replace(predictor.settings, columns=columns))
    mine = [
        {"title" if key == "text" else key: value for key, value in one.items() if key != "label"} | {"number": number}
        for number, one in enumerate(records)
    ]
    assert run(renamed, mine)[0] == expected


def predictor_of_task(name):
    """A predictor without a model, for the published task."""
    settings, task = TaskConfig(name=name), TASKS[name]
    return Predictor(None, None, dataclasses.replace(task, published=True), settings, None)


def examples_of_file(predictor, path):
    """The examples that `predict` makes of a file."""
    kind = KINDS[predictor.task.kind]
    opened = module.open_inputs(predictor, str(path))
    check_inputs(predictor, opened.read())
    trained = fields_of_training(predictor.settings, kind)
    records = [module._read_record(line, kind, trained) for line in opened.read()]
    return [kind.make_example(record, predictor.task, Counter()) for record in records]


FIELDS = {
    "text": 'a "great", film',
    "text_pair": 'it\'s "so"',
    "question": 'who "he"?',
    "context": "he, she",
    "start": 'She "then"',
    "tokens": ['"', "b"],
}


@pytest.mark.parametrize("name", TASKS)
def test_the_suffix_decides_how_a_model_of_a_published_task_reads_a_file(tmp_path, name):
    """A CSV, JSON or Parquet file gives its values, whatever the format of the benchmark's files is."""
    predictor = predictor_of_task(name)
    kind = KINDS[predictor.task.kind]
    columns = fields_of_training(predictor.settings, kind).columns
    wanted = {key: value for key, value in FIELDS.items() if key in (*kind.fields, *columns)}
    if "choices" in kind.fields:
        choices = {f"choice{n}": f'"{n}", x' for n in range(4)}
        wanted |= {"text": FIELDS["text"], **({"choices": [*choices.values()]} if name == "codah" else choices)}
    by_column = {columns.get(key, key): value for key, value in wanted.items()}
    names = [wanted] if any(key.isdigit() for key in by_column) else [wanted, by_column]
    for row in names:
        pq.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "a.parquet")
        (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
        (tmp_path / "a.json").write_text(json.dumps([row]))
        with (tmp_path / "a.csv").open("w", newline="") as file:
            csv.writer(file).writerows([row.keys(), row.values()])
        # A file in the format of the benchmark needs its columns, and .json may be the layout of SQuAD.
        strict = {TASKS[name].sets["dev"].format if row == wanted and row != by_column else "", "squad"}
        suffixes = {".json": kind.suffixes.get(".json", "json"), ".jsonl": "lines", ".parquet": "parquet"}
        suffixes |= {} if any(isinstance(value, list) for value in row.values()) else {".csv": "csv"}
        for suffix in (suffix for suffix, format in suffixes.items() if format not in strict):
            (example,) = examples_of_file(predictor, tmp_path / f"a{suffix}")
            (tmp_path / f"a{suffix}").rename(tmp_path / f"B{suffix.upper()}")
            assert examples_of_file(predictor, tmp_path / f"B{suffix.upper()}") == [example]
            texts = {key: value for key, value in example.items() if key in wanted}
            assert texts == {key: value for key, value in wanted.items() if key in example}, suffix
            assert texts.keys() >= set(wanted) & set(kind.text_fields)
            if "choices" in kind.fields:
                start = f"{wanted['start']} " if "start" in wanted else ""
                assert example["choices"] == [start + text for text in choices.values()]


def test_a_tsv_file_is_read_like_the_files_of_the_benchmark(tmp_path):
    (tmp_path / "a.tsv").write_text('sentence\tlabel\n"a "great", film\t1\n')
    assert examples_of_file(predictor_of_task("sst2"), tmp_path / "a.tsv") == [{"text": '"a "great", film'}]
    (tmp_path / "dev.tsv").write_text('gj04\t1\t\t"a "great", film\n')
    assert examples_of_file(predictor_of_task("cola"), tmp_path / "dev.tsv") == [{"text": '"a "great", film'}]


@pytest.mark.parametrize("name", ["list.jsonl", "LIST.JSONL", "lines.jsonl", "list.json"])
def test_a_list_of_objects_is_read_whatever_its_suffix(models, tmp_path, name):
    """Training reads such files, too. An id of a data frame with a missing id is a number with a fraction."""
    predictor = load_predictor(models / "sequence_classification")
    rows = [{"id": 1.0, "text": "a"}, {"id": 2.5, "text": "b"}, {"text": "c"}]
    text = "\n".join(map(json.dumps, rows)) if name.startswith("lines") else json.dumps(rows, indent=1)
    (tmp_path / name).write_text("\ufeff" + text)
    inputs = list(open_inputs(predictor, str(tmp_path / name)).read())
    check_inputs(predictor, inputs)
    answers = list(predict_inputs(predictor, inputs, Counter()))
    assert [answer["id"] for answer in answers] == [1.0, 2.5, "3"]


def test_a_format_and_a_delimiter_of_the_training_bind_no_file_of_another_suffix(models, tmp_path):
    predictor = load_predictor(models / "sequence_classification")
    settings = dataclasses.replace(predictor.settings, name="custom", kind="sequence_classification", delimiter="^")
    predictor = predictor._replace(settings=dataclasses.replace(settings, columns="text=t,format=tsv_plain"))
    (tmp_path / "a.csv").write_text('t^u\n"a ""great"", film"^1\n')
    (tmp_path / "comma.csv").write_text('t,u\n"a ""great"", film",1\n')
    pq.write_table(pyarrow.Table.from_pylist([{"t": 'a "great", film', "u": 1}]), tmp_path / "a.parquet")
    (tmp_path / "a.tsv").write_text('t^u\na "great", film^1\n')
    for name in ("a.csv", "comma.csv", "a.parquet", "a.tsv"):
        assert examples_of_file(predictor, tmp_path / name) == [{"text": 'a "great", film'}]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl.gz", "a.parquet"])
@pytest.mark.parametrize("keys", ["columns", "fields"])
def test_a_table_has_the_columns_of_the_training_or_the_names_of_the_fields_and_perhaps_an_id(
    models, tmp_path, name, keys
):
    predictor = load_predictor(models / "sequence_classification")
    settings = dataclasses.replace(predictor.settings, name="custom", kind="sequence_classification")
    predictor = predictor._replace(settings=dataclasses.replace(settings, columns="text=title,label=topic,id=number"))
    rows = [{"title" if keys == "columns" else "text": text, "other": "x"} for text in ("a b", "c")]
    if name == "a.parquet":
        pq.write_table(pyarrow.Table.from_pylist(rows), tmp_path / name)
    elif name == "a.jsonl.gz":
        (tmp_path / name).write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    else:
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if name == "a.tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    assert examples_of_file(predictor, tmp_path / name) == [{"text": "a b"}, {"text": "c"}]


@pytest.mark.parametrize(
    ("first", "is_header"),
    [("title,other", True), ('"id";"text"', True), ("title", False), ("a title, other", False), ("titles\tx", False)],
)
def test_a_table_without_its_suffix_is_not_read_as_texts(models, tmp_path, monkeypatch, capsys, first, is_header):
    predictor = load_predictor(models / "sequence_classification")
    settings = dataclasses.replace(predictor.settings, name="custom", kind="sequence_classification")
    predictor = predictor._replace(settings=dataclasses.replace(settings, columns="text=title,label=topic"))
    (tmp_path / "a.txt").write_text(f"{first}\nx,y\n")
    for source in ("-", str(tmp_path / "a.txt")):
        with (tmp_path / "a.txt").open() as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            if is_header:
                with pytest.raises(UserError, match=r":1: looks like the header of a table; give the table as a file"):
                    list(open_inputs(predictor, source).read())
            else:
                assert [line.fields["text"] for line in open_inputs(predictor, source).read()] == [first, "x,y"]


def test_a_table_without_the_columns_is_refused_by_their_names(models, tmp_path):
    predictor = load_predictor(models / "sequence_classification")
    settings = dataclasses.replace(predictor.settings, name="custom", kind="sequence_classification")
    predictor = predictor._replace(settings=dataclasses.replace(settings, columns="text=title,label=topic"))
    (tmp_path / "a.csv").write_text("body,topic\nx,y\n")
    with pytest.raises(UserError, match="no column 'title' for text"):
        open_inputs(predictor, str(tmp_path / "a.csv"))


def test_a_loaded_model_says_how_many_texts_are_cut_or_empty(models, capsys):
    model = load(models / "sequence_classification")
    model.predict(["ab", "cd"])
    assert capsys.readouterr().err == ""
    model.predict(["ab", "a b " * 90, ""])
    assert capsys.readouterr().err == "3 examples, 1 truncated texts, 1 empty texts\n"


def test_a_model_of_text_pairs_needs_both_texts(models):
    predictor = load_predictor(models / "sequence_classification")
    records = [{"text": "ab", "text_pair": "cd"}, {"text": "ef", "text_pair": "gh"}]
    expected, _ = run(predictor, records)
    custom = predictor._replace(settings=dataclasses.replace(predictor.settings, columns="text=data.body,text_pair=b"))
    nested = [{"data": {"body": record["text"]}, "b": record["text_pair"]} for record in records]
    assert run(custom, nested)[0] == expected
    with pytest.raises(UserError, match="record 2: has no 'text_pair', in the column 'b'; this model needs text, text"):
        run(custom, [nested[0], {"data": nested[1]["data"]}])
    published = predictor._replace(settings=dataclasses.replace(predictor.settings, name="mrpc"))
    assert run(published, records)[0] == expected
    with pytest.raises(UserError, match="record 1: has no 'text_pair'"):
        run(published, [{"text": "ab"}])


def predictor_of_columns(columns, kind="sequence_classification", **settings):
    """A predictor without a model, for a custom task with the columns."""
    settings = TaskConfig(name="custom", kind=kind, columns=columns, **settings)
    task = dataclasses.replace(TASKS["sst2"], name="predict", kind=kind, labels=("a", "b"))
    return Predictor(None, None, task, settings, None)


# Values of the columns of files; their names are also the names of fields.
COLUMNS = {"title": "TITLE", "text": "TEXT", "text_pair": "PAIR", "id": "7", "label": "a"}


def write_table(path, rows):
    if ".csv" in path.name:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([rows[0].keys(), *(row.values() for row in rows)])
    elif path.suffix == ".parquet":
        pq.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        with (gzip.open if path.suffix == ".gz" else open)(path, "wt") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.json", "a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize(
    ("columns", "row"),
    [
        *((f"text={first},text_pair={second}", COLUMNS) for first, second in itertools.permutations([*COLUMNS][:3], 2)),
        *((f"text={first}", COLUMNS) for first in [*COLUMNS][:3]),
        (None, COLUMNS),
        (None, {"text": "TEXT", "label": "a"}),
    ],
)
def test_a_file_gives_the_texts_that_training_reads(tmp_path, columns, row, name):
    """The names of columns and of fields are the same words, in any order."""
    path = write_table(tmp_path / name, [row, {key: value + "b" for key, value in row.items()}])
    predictor = predictor_of_columns(columns, train=str(path))
    trained = read_task_examples(resolve_task(predictor.settings), predictor.settings, "train")
    texts = [{key: example[key] for key in ("text", "text_pair") if key in example} for example in trained]
    assert examples_of_file(predictor, path) == texts


@pytest.mark.parametrize(
    ("columns", "fields", "says"),
    [
        ("text=title,text_pair=text", {"text": "one line"}, "has no 'text', in the column 'title'"),
        ("text=title,text_pair=b", {"title": "a", "text_pair": "b"}, "has no 'text_pair', in the column 'b'"),
        ("text=title,text_pair=text", {"text": "a", "text_pair": "b"}, ""),
        ("text=title", {"text": "one line"}, ""),
    ],
)
def test_fields_have_their_own_names_if_a_column_is_missing(columns, fields, says):
    predictor = predictor_of_columns(columns)
    kind = KINDS[predictor.task.kind]
    trained = fields_of_training(predictor.settings, kind)
    if says:
        with pytest.raises(UserError, match=says):
            module._read_record(Input("a:1", 1, fields), kind, trained)
    else:
        assert module._read_record(Input("a:1", 1, fields), kind, trained).fields == fields | {"id": None}


@pytest.mark.parametrize(("columns", "fits"), [("text=a", {"text"}), ("start=s", {"text", "choices", "start"})])
def test_a_field_that_training_reads_is_required_and_others_are_not_read(columns, fits):
    kind = KINDS["multiple_choice" if "start" in columns else "sequence_classification"]
    trained = fields_of_training(TaskConfig(name="custom", columns=columns), kind)
    line = Input("a:1", 1, {"text": "x", "text_pair": "y", "choices": ["b", "c"], "start": "s"})
    assert module._read_record(line, kind, trained).fields.keys() - {"id"} == fits
    for field in fits:
        fewer = line._replace(fields={key: value for key, value in line.fields.items() if key != field})
        with pytest.raises(UserError, match=f"has no '{field}'"):
            module._read_record(fewer, kind, trained)


@pytest.mark.parametrize("num_pairs", [0, 1, 2])
def test_a_trained_task_without_columns_knows_whether_it_read_pairs(num_pairs):
    kind, settings = KINDS["sequence_classification"], TaskConfig(name="custom", kind="sequence_classification")
    examples = [{"text": "a"} | ({"text_pair": "b"} if n < num_pairs else {}) for n in range(2)]
    columns, optional = fields_of_training(with_columns_of_examples(settings, kind, examples), kind)
    assert ("text_pair" in columns, "text_pair" in optional) == {0: (False, True), 1: (True, True), 2: (True, False)}[
        num_pairs
    ]


@pytest.mark.parametrize(
    "columns", ["text=text_pair,text_pair=text", "text=text_pair,text_pair=b", "text=text,text_pair=text"]
)
def test_a_tuple_has_the_first_and_the_second_text_whatever_the_columns_of_training(models, columns):
    model, pairs = load(models / "sequence_classification"), [("a b", "c"), ("c", "a b")]
    expected = model.predict(pairs)
    assert expected[0]["probabilities"] != expected[1]["probabilities"]
    settings = dataclasses.replace(model._predictor.settings, name="custom", columns=columns)
    model.__dict__["_predictor"] = model._predictor._replace(settings=settings)
    assert model.predict(pairs) == expected


def test_a_pair_for_a_model_of_single_texts_is_refused(models):
    model = load(models / "sequence_classification")
    assert len(model.predict([("a", "b"), "a"])) == 2  # a model of transformers may read both
    predictor = model._predictor
    columns = dataclasses.replace(predictor.settings, name="custom", columns="text=text")
    model.__dict__["_predictor"] = predictor._replace(settings=columns)
    with pytest.raises(UserError, match="example 1: a pair of texts, but this model reads text alone"):
        model.predict(["a", ("a", "b")])
