"""A user's own file with labels, by a few options: what is found in the file, refusals, and a run of tickets."""

import contextlib
import csv
import io
import json
import random
import re
import shutil

import numpy as np
import pytest
import sklearn.metrics
import torch
import transformers

import bert_jax
from bert_jax.cli.main import main
from bert_jax.config import TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.finetuning import finetune as finetuning
from bert_jax.finetuning.inputs import count_contradicting_texts
from bert_jax.finetuning.own_labels import OwnFile, choices_text, column_names_text, infer_task_of_own_file
from bert_jax.finetuning.task_data import TaskSplit
from bert_jax.tasks.features import Features
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.table import resolve_task
from tests.helpers.finetuning_runs import read_lines, write_lines
from tests.helpers.tiny_models import LETTERS, save

TOPICS = {"disk": "ab", "screen": "cd", "invoice": "ef", "login": "gh"}


def write_tickets(path, count=120, **dialect):
    """Write tickets with newlines in quotes, separators in texts, missing labels and 5 % with two labels."""
    rng = random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, **dialect)
        writer.writerow(["number", "subject", "body", "topic"])
        for number in range(count):
            topics = rng.sample([*TOPICS], 2 if number % 20 == 3 else 1)
            letters = "".join(TOPICS[topic] for topic in topics)
            body = f'{"".join(rng.choices(letters, k=6))},\n{rng.choice(LETTERS)}; "a"'
            writer.writerow(
                [number, "".join(rng.choices(letters, k=3)), body, "" if number % 30 == 7 else ";".join(topics)]
            )
    return path


def strip_zero(number):
    """The number as in ".5" or "5." of Fortran and Stata."""
    text = f"{number:.9f}".rstrip("0")
    return text[1:] if text.startswith("0.") and text != "0." else text


def describe(path, **settings):
    settings = {"path": str(path), "text": ("text",), "label": "label"} | settings
    settings["label"] = tuple(settings["label"].split(","))
    return infer_task_of_own_file(OwnFile(**settings))


@pytest.mark.parametrize(
    ("name", "rows", "kind", "metric"),
    [
        ("a.csv", "text,label\nx,a\ny,b\n", "sequence_classification", None),
        ("a.csv", "text,label\nx,a\ny,b\nz,b\nv,b\n", "sequence_classification", "macro_f1"),  # skewed
        ("a.csv", "text,label\n" + "".join(f"x,{n % 5}\n" for n in range(50)), "sequence_classification", None),
        ("a.csv", "text,label\n" + "".join(f"x,{n}.5\n" for n in range(50)), "regression", None),
        ("a.csv", "text,label\n" + "".join(f"x,{n % 9 / 2}\n" for n in range(50)), "sequence_classification", None),
        ("a.jsonl", "".join(f'{{"text": "x", "label": {n % 9 / 2}}}\n' for n in range(50)), "regression", None),
        (
            "a.jsonl",
            "".join(f'{{"text": "x", "label": {n % 5}}}\n' for n in range(50)),
            "sequence_classification",
            None,
        ),
        (
            "a.jsonl",
            "".join(f'{{"text": "x", "label": {n % 5}.0}}\n' for n in range(50)),
            "sequence_classification",
            None,
        ),
        ("a.jsonl", '{"text": "x", "label": ["a"]}\n', "multilabel_classification", None),
        ("a.jsonl", '{"text": "x", "label": []}\n{"text": "y", "label": ["a"]}\n', "multilabel_classification", None),
        ("a.jsonl", '{"text": ["x", "y"], "label": [0, 1]}\n', "token_classification", None),
    ],
)
def test_kind_and_metric_are_found(tmp_path, name, rows, kind, metric):
    (tmp_path / name).write_text(rows)
    own = describe(tmp_path / name)
    assert (own.task["kind"], own.task.get("metric")) == (kind, metric)
    assert own.task["dev_fraction"] == 0.2
    assert own.recipe == ("token_classification" if kind == "token_classification" else "glue")
    fields = ("tokens", "labels") if kind == "token_classification" else ("text", "label")
    assert own.task["columns"] == f"{fields[0]}=text,{fields[1]}=label"
    assert f"kind {kind} (--kind), recipe my.py (--config)" in choices_text(TaskConfig(**own.task), "my.py", "")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("write", [repr, "{:e}".format, "{:E}".format, "{:+g}".format, "{:.8f}".format, strip_zero])
def test_numbers_are_measurements_however_a_program_writes_them(tmp_path, suffix, write):
    numbers = [write(value) for value in (*np.linspace(-1, 1, 40).tolist(), 1e-05, -2.5e-7, 1e22, 0.5, 3.0)]
    rows = [{"text": "x", "label": number} for number in numbers]
    if suffix == ".csv":
        (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"x,{number}\n" for number in numbers))
    else:
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert describe(tmp_path / f"a{suffix}").task["kind"] == "regression"


@pytest.mark.parametrize("odd", ["inf", "nan0", "1e", "e5", "0x1f", "1_000", "1,5", ".", "1e999"])
def test_other_labels_are_no_measurements(tmp_path, odd):
    rows = [{"text": "x", "label": f"{n}.5"} for n in range(20)] + [
        {"text": "x", "label": label} for label in [odd] * 2
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert describe(tmp_path / "a.jsonl").task["kind"] == "sequence_classification"


def test_a_number_with_a_fraction_is_no_class(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "x", "label": {n % 3 / 2}}}\n' for n in range(9)))
    config = TaskConfig(**describe(tmp_path / "a.jsonl", kind="sequence_classification").task)
    with pytest.raises(UserError, match=r"label is the number 0\.5; for numbers set config\.task\.kind=regression"):
        resolve_task(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dev", "dev.csv"),
        ("kind", "regression"),
        ("label_separator", ";"),
        ("delimiter", "|"),
        ("dev_fraction", "0.3"),
        ("skip_unlabeled", "True"),
    ],
)
def test_a_choice_as_a_field_of_the_config_equals_the_option(tmp_path, capsys, monkeypatch, key, value):
    monkeypatch.chdir(tmp_path)
    rows = "text|label\n" + "".join(f"x|{n % 20}.5\n" for n in range(40))
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text(rows)
    argv = ["finetune", "--data=train.csv", "--text=text", "--label=label", "--workdir=run", "--init_from=absent"]
    said = []
    for option in ("--", "--config.task."):
        assert main([*argv, f"{option}{key}" if (option, value) == ("--", "True") else f"{option}{key}={value}"]) == 2
        said.append(capsys.readouterr().err.replace(str(tmp_path) + "/", ""))
    assert said[0] == said[1]
    assert "absent: no model here" in said[0]
    option = f"--{key}" if value == "True" else f"--{key}={value}"
    assert main([*argv, option, f"--config.task.{key}={value}"]) == 2
    assert f"--{key} is given twice, also as --config.task.{key}" in capsys.readouterr().err


def entities(n):
    return {"text": ["Ann"] * (n + 2), "label": ["B-X", *["O"] * (n + 1)]}


@pytest.mark.parametrize(
    ("row", "settings", "metric"),
    [
        (lambda n: {"text": ["w"] * (n + 2), "label": ["NOUN", *["VERB"] * (n + 1)]}, {}, None),
        (entities, {}, None),
        (lambda n: {"text": ["Ann"] * (n + 2), "label": ["I-X", *["O"] * (n + 1)]}, {}, None),
        (lambda n: {"text": "x", "label": [f"a{bit}" for bit in range(5) if n + 1 >> bit & 1]}, {}, None),
        (
            lambda n: {"text": "x", "label": ";".join("abcde"[bit] for bit in range(5) if n + 1 >> bit & 1)},
            {"label_separator": ";"},
            None,
        ),
        (lambda n: {"text": "x", "label": n / 8}, {}, None),
        (lambda n: {"text": "x", "label": "ab"[n > 3]}, {}, None),
        (lambda n: {"text": "x", "label": "ab"[n > 3]}, {}, "macro_f1"),
        (entities, {}, "token_accuracy"),
    ],
)
def test_rows_with_distinct_lists_of_labels_are_read_and_the_metric_is_named(tmp_path, row, settings, metric):
    """The line names the score that the task uses."""
    write_lines(tmp_path / "a.jsonl", [row(n) for n in range(31)])
    own = describe(tmp_path / "a.jsonl", **settings)
    task = TaskConfig(**own.task | {"metric": metric or own.task.get("metric")})
    said = choices_text(task, own.recipe, own.default_metric).partition("metric ")[2].partition(" ")[0]
    assert said == resolve_task(task).best


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--config.task.metric=accuracy"], "metric accuracy (--config.task.metric)"),
        (["--config.task.dev_fraction=0.5"], "50% of the rows are the dev set"),
        (["--config=roberta_glue"], "recipe roberta_glue (--config)"),
        (["--config.task.train=b.csv"], "--config.task.train is given twice, also by --data"),
        (
            ["--config.task.columns=text=label"],
            "config.task.columns: 'text' is given twice, also by --text and --label",
        ),
    ],
)
def test_the_printed_choices_are_the_settings_of_the_run(tmp_path, capsys, monkeypatch, more, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"x,{'yes' if n % 9 else 'no'}\n" for n in range(40)))
    with contextlib.suppress(SystemExit):
        main(["finetune", "--data=a.csv", "--text=text", "--label=label", "--workdir=run", "--init_from=absent", *more])
    assert says in capsys.readouterr().err


def test_further_columns_and_the_format_join_the_columns_of_text_and_label(tmp_path):
    """Quotes within a cell, which only the format tsv_plain reads as text, and the ids of the rows."""
    rows = "".join(f'{n}\tsaid "x" {n}\t{"yes" if n % 3 else "no"}\n' for n in range(30))
    (tmp_path / "a.tsv").write_text("key\ttext\tlabel\n" + rows)
    for columns in ("id=key,format=tsv_plain", "label=label,text=text,id=key,format=tsv_plain"):
        own = describe(tmp_path / "a.tsv", columns=columns)
        assert own.task["columns"] == "text=text,label=label,id=key,format=tsv_plain"


@pytest.mark.parametrize(("name", "separator"), [("a.conll", " "), ("a.bio", " "), ("a.txt", " "), ("a.tsv", "\t")])
def test_a_token_and_its_label_per_line_are_read_for_the_kind_of_tokens(tmp_path, name, separator):
    sentence = f"The{separator}D\ncat{separator}N\n\n"
    (tmp_path / name).write_text(sentence * 3)
    own = describe(tmp_path / name, text=("0",), label="1", kind="token_classification")
    assert own.task["columns"] == "tokens=0,labels=1"
    assert "3 rows; texts in 0, labels in 3 rows of 1" in own.content


def test_questions_in_the_layout_of_squad_are_held_out_with_their_contexts(tmp_path):
    paragraphs = [
        {
            "context": f"In town {n} lives Ann{n}.",
            "qas": [
                {
                    "id": f"{n}-{m}",
                    "question": f"Who {m}?",
                    "answers": [{"text": f"Ann{n}", "answer_start": 16 + n // 10}],
                }
                for m in range(5)
            ],
        }
        for n in range(20)
    ]
    path = tmp_path / "qa.json"
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    assert column_names_text(str(path), None) == "question, context, answers"
    settings = {"text": ("question", "context"), "label": "answers", "dev_fraction": 0.25}
    described = describe(path, **settings)
    assert described == describe(path, **settings, kind="qa")
    config = TaskConfig(**described.task)
    train, dev = (read_task_examples(resolve_task(config), config, split) for split in ("train", "dev"))
    assert len(train) == 75
    assert len(dev) == 25
    assert {example["context"] for example in train}.isdisjoint(example["context"] for example in dev)
    assert {example["id"] for example in (*train, *dev)} == {qa["id"] for part in paragraphs for qa in part["qas"]}
    assert all(example["answers"][0]["text"] in example["context"] for example in train)
    with pytest.raises(UserError, match="no 'frage'; a question has id, question, context, answers"):
        describe(path, **settings | {"text": ("frage", "context")})


def test_choices_of_the_user_stay(tmp_path):
    path = write_tickets(tmp_path / "t.csv", delimiter="^")
    own = describe(
        path, text=("subject", "body"), label="topic", delimiter="^", label_separator=";", dev=str(path), kind=None
    )
    assert own.task == {
        "name": "custom",
        "kind": "multilabel_classification",
        "train": str(path),
        "dev": str(path),
        "columns": "text=subject,text_pair=body,label=topic",
        "label_separator": ";",
        "delimiter": "^",
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"label": "topc"}, "no column 'topc' for label; did you mean 'topic'"),
        ({"text": ("topic",)}, "a column is named twice"),
        ({"text": ("number", "subject", "body")}, "sequence_classification reads at most 2 columns"),
        (
            {"kind": "multilabel_clasification"},
            "--kind multilabel_clasification: did you mean 'multilabel_classification'",
        ),
        ({"delimiter": "|"}, "the separator '|' splits nothing"),
        ({"path": "missing.csv"}, "cannot be read"),
        ({"path": "a,b.csv", "kind": "similarity", "label": "number"}, "commas for several files; rename the file"),
    ],
)
def test_refusals(tmp_path, settings, says, monkeypatch):
    path = write_tickets(tmp_path / "t.csv")
    shutil.copy(path, tmp_path / "a,b.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refusal:
        describe(**({"path": path, "text": ("subject",), "label": "topic"} | settings))
    assert says in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "give --config RECIPE, or your own file"),
        (["--config=glue", "--text=x"], "--text needs --data"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, capsys, options, says):
    with pytest.raises(SystemExit) as ended:
        main(["finetune", f"--workdir={tmp_path / 'run'}", *options])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--config.task.threshold=1.5"], "config.task.threshold=1.5 must be above 0"),
        (["--config.task.class_weights=dsik=2"], "; did you mean 'disk'?"),
        (["--kind=sequence_classification"], "config.task.label_separator has no effect with config.task.kind="),
        (["--dev_fraction=0.9"], "config.task.dev_fraction=0.9 must be above 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_training(tmp_path, capfd, more, says):
    path = write_tickets(tmp_path / "t.csv")
    save(tmp_path / "start", "bert", "ForPreTraining")
    argv = ["finetune", f"--data={path}", "--text=subject", "--label=topic", "--label_separator=;", "--skip_unlabeled"]
    argv += [f"--init_from={tmp_path / 'start'}", f"--workdir={tmp_path / 'run'}", "--config.task.max_seq_len=32"]
    assert main([*argv, *more]) == 2
    assert says in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_bad_first_row_does_not_decide_the_kind(tmp_path):
    """The row is refused with its line when the examples are read."""
    (tmp_path / "a.jsonl").write_text(
        '{"text": null, "label": "a"}\n{"text": "x", "label": "b"}\n{"text": "y", "label": "b"}\n'
    )
    own = describe(tmp_path / "a.jsonl")
    assert own.task["kind"] == "sequence_classification"
    settings = TaskConfig(**own.task)
    with pytest.raises(UserError, match=r"a\.jsonl:1: text is None, not a text"):
        read_task_examples(resolve_task(settings), settings, "train")


def test_objects_without_a_key_of_the_label_are_counted_as_rows(tmp_path):
    rows = '{"text": "u"}\n{"text": "x", "label": "a"}\n{"text": "y", "label": "b"}\n{"text": "z", "label": "b"}\n'
    (tmp_path / "a.jsonl").write_text(rows)
    assert "a.jsonl: 4 rows; texts in text, labels in 3 rows of label" in describe(tmp_path / "a.jsonl").content


def test_changed_rows_are_said_to_be_changed(tmp_path, capfd):
    path = tmp_path / "a.csv"
    rows = [f"{letter} {number},{'ab'[number % 2]}\n" for number in range(20) for letter in "xy"]
    path.write_text("text,label\n" + "".join(rows) + "z,c\n")
    save(tmp_path / "start", "bert", "ForPreTraining")
    argv = ["finetune", f"--data={path}", "--text=text", "--label=label", f"--init_from={tmp_path / 'start'}"]
    argv += [f"--workdir={tmp_path / 'run'}", "--config.task.max_seq_len=32", "--config.task.epochs=1"]
    assert main(argv) == 0
    assert "custom dev: warning: no example of 'c'; macro F1 counts 0 for each" in capfd.readouterr().err
    path.write_text(path.read_text().replace("y 3,", "b 3,"))
    assert main(argv) == 2
    changed = rf"\(task: {path} has other content, \w{{12}} -> \w{{12}}\); restore them, or use another"
    assert re.search(changed, capfd.readouterr().err)


def test_tickets_with_several_labels_from_the_file_to_transformers(tmp_path, capfd):
    path = write_tickets(tmp_path / "tickets.csv")
    save(tmp_path / "start", "bert", "ForPreTraining")
    argv = ["finetune", f"--data={path}", "--text=subject,body", "--label=topic", f"--init_from={tmp_path / 'start'}"]
    argv += [f"--workdir={tmp_path / 'run'}", "--config.optimizer.peak_learning_rate=1e-2", "--config.task.epochs=2"]
    argv += ["--config.task.max_seq_len=32"]
    assert main(argv) == 2  # rows without a label
    err = capfd.readouterr().err
    assert "4 rows have no topic" in err
    assert not (tmp_path / "run").exists()
    assert main([*argv, "--skip_unlabeled", "--label_separator=;"]) == 0
    err = capfd.readouterr().err
    for line in (
        "kind multilabel_classification (--kind), recipe glue (--config), metric micro_f1",
        "custom train: 4 rows without a label are left out",
        "custom train: labels 0 'disk' ",
    ):
        assert line in err
    scores = json.loads((tmp_path / "run" / "results.json").read_text())["best"]["scores"]
    assert {"micro_f1", "macro_f1", "sample_f1", "all_right", "threshold", "micro_f1_threshold_per_label"} <= {*scores}

    # The export is a multi-label model of transformers, which predicts what `predict` predicts.
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert model.config.problem_type == "multi_label_classification"
    assert [*model.config.id2label.values()] == sorted(TOPICS)
    answers = tmp_path / "answers.jsonl"
    argv = ["predict", f"--model={tmp_path / 'run'}", f"--input={path}", f"--output={answers}"]
    assert main([*argv, "--copy_input"]) == 0
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    threshold = scores["threshold"]
    for row, answer in zip(rows, read_lines(answers), strict=True):
        with torch.no_grad():
            logits = model(
                **tokenizer(row["subject"], row["body"], return_tensors="pt", truncation=True, max_length=32)
            )
        expected = torch.sigmoid(logits.logits[0]).tolist()
        assert [*answer["probabilities"].values()] == pytest.approx(expected, abs=1e-5)
        if min(abs(np.array(expected) - threshold)) > 1e-4:
            predicted = [name for name, p in zip(sorted(TOPICS), expected, strict=True) if p >= threshold]
            assert answer["label"] == predicted
        assert answer["input"] == row

    # Predictions of the dev set have the probabilities, the gold labels and the columns of the file.
    written = read_lines(tmp_path / "run" / "predictions" / "custom-dev.jsonl")
    assert len(written) == 23
    for line in written:
        assert line["gold"] == sorted(line["input"]["topic"].split(";"))
        assert line["input"] == rows[int(line["id"])]
        assert {*line["probabilities"]} == {*TOPICS}
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "run"), f"--output={page}"]) == 0
    text = page.read_text()
    for part in ("<h2>Labels</h2>", "Expected calibration error", "Worst errors", "invoice"):
        assert part in text


def test_columns_with_the_names_of_fields_belong_to_these_fields(tmp_path):
    rows = [
        {"question": f"who is {n} ?", "context": f"it is mary {n} .", "answers": [{"text": "mary", "start": 6}]}
        for n in range(4)
    ]
    write_lines(tmp_path / "qa.jsonl", rows)
    settings = {"kind": "question_answering", "label": "answers"}
    assert (
        describe(tmp_path / "qa.jsonl", label="answers", text=("question", "context")).task["kind"] == settings["kind"]
    )
    of_hub = [row | {"answers": {"text": ["mary"], "answer_start": [6]}} for row in rows]
    write_lines(tmp_path / "hub.jsonl", [*of_hub, of_hub[0] | {"answers": {"text": [], "answer_start": []}}])
    task = TaskConfig(**describe(tmp_path / "hub.jsonl", label="answers", text=("question", "context")).task)
    assert task.kind == settings["kind"]
    split = [read_task_examples(resolve_task(task), task, name) for name in ("train", "dev")]
    assert sorted(len(example["answers"]) for examples in split for example in examples) == [0, 1, 1, 1, 1]
    for text in (("context", "question"), ("question", "context"), ("context",)):
        task = TaskConfig(**describe(tmp_path / "qa.jsonl", **settings, text=text).task | {"dev_fraction": 0.5})
        examples = read_task_examples(resolve_task(task), task, "train")
        assert all(example["question"].startswith("who is") for example in examples)
        assert all(example["context"].startswith("it is mary") for example in examples)
    write_lines(tmp_path / "named.jsonl", [{"a": row["question"], "b": row["context"], **row} for row in rows])
    with pytest.raises(UserError, match="--text b: give 2 columns, for question and context"):
        describe(tmp_path / "named.jsonl", **settings, text=("b",))
    columns = describe(tmp_path / "named.jsonl", **settings, text=("a",), columns="context=b").task["columns"]
    assert columns == "question=a,answers=answers,context=b"
    write_lines(tmp_path / "choices.jsonl", [{"q": "x", "c0": "y", "c1": "z", "right": n % 2} for n in range(4)])
    choices = {"kind": "multiple_choice", "label": "right", "columns": "choice0=c0,choice1=c1"}
    columns = describe(tmp_path / "choices.jsonl", **choices, text=("q",)).task["columns"]
    assert columns == "text=q,label=right,choice0=c0,choice1=c1"
    # The names `text` and `text_pair` are in the order of the option.
    write_lines(tmp_path / "pairs.jsonl", [{"text": "x", "text_pair": "y", "label": "ab"[n % 2]} for n in range(8)])
    columns = describe(tmp_path / "pairs.jsonl", text=("text_pair", "text"), label="label").task["columns"]
    assert columns == "text=text_pair,text_pair=text,label=label"


def test_texts_without_any_label_are_explained(tmp_path):
    (tmp_path / "m.csv").write_text("text,label\n" + "x,a;b\ny,\nz,\nw,b\n" * 4)
    task = TaskConfig(**describe(tmp_path / "m.csv", label_separator=";").task)
    with pytest.raises(UserError, match=r"8 rows have no label: .*for a text without any label, write \[\] in JSON"):
        read_task_examples(resolve_task(task), task, "train")


LABEL_COLUMNS = ["rude", "spam", "none"]  # no text has the last label


def write_label_columns(path, count=40, values=("0", "1")):
    """Write a CSV with a column for each label; a text has the letters of its labels."""
    rng = random.Random(1)
    rows = ["comment," + ",".join(LABEL_COLUMNS)]
    for _ in range(count):
        has = [rng.random() < 0.5, rng.random() < 0.3, False]
        text = "".join(rng.choices("ab" * has[0] + "cd" * has[1] or "xyz", k=6))
        rows.append(",".join([text, *(values[label] for label in has)]))
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("values", [("0", "1"), ("False", "True"), ("0.0", "1.0")])
def test_a_column_for_each_label(tmp_path, values):
    path = write_label_columns(tmp_path / "a.csv", values=values)
    own = describe(path, text=("comment",), label="rude,spam,none")
    assert own.task["kind"] == "multilabel_classification"
    assert own.task["columns"] == "text=comment,label0=rude,label1=spam,label2=none"
    assert "labels in 40 rows of rude,spam,none" in own.content
    settings = TaskConfig(**own.task)
    task = resolve_task(settings)
    assert task.labels == tuple(LABEL_COLUMNS)
    examples = [example for name in ("train", "dev") for example in read_task_examples(task, settings, name)]
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(examples) == len(rows) == 40
    for example in examples:
        row = rows[int(example["id"])]
        assert example["text"] == row["comment"]
        assert example["label"].tolist() == [row[name] == values[1] for name in LABEL_COLUMNS]


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ("x,2,0", {}, "a.csv:2: rude is '2'; a column for each label holds 0 or 1"),
        ("x,,0", {}, "a.csv:2: rude has no value, but other labels have; write 0 or 1"),
        ("x,1,0", {"label": "rude,spam,spam"}, "a column is named twice"),
        ("x,1,0", {"label": "rude,spma"}, "no column 'spma' for label1; did you mean 'spam'"),
        ("x,1,0", {"kind": "regression"}, "regression reads one column of labels; several columns of 0 and 1 are for"),
        ("x,1,0", {"label_separator": ";"}, "--label_separator ;: leave it out, as each label has a column"),
    ],
)
def test_wrong_columns_of_labels_are_explained(tmp_path, rows, settings, message):
    path = tmp_path / "a.csv"
    path.write_text(f"comment,rude,spam\n{rows}\ny,0,1\n")
    with pytest.raises(UserError, match=re.escape(message)):
        describe(path, **{"text": ("comment",), "label": "rude,spam"} | settings)


def test_a_model_of_label_columns_is_scored_on_a_file_as_sklearn_scores_its_predictions(tmp_path, capfd):
    path = write_label_columns(tmp_path / "train.csv", count=120)
    test = write_label_columns(tmp_path / "test.csv")
    test.write_text(test.read_text() + "abc,,,\n")  # a row without labels
    save(tmp_path / "start", "bert", "ForPreTraining")
    run, answers = tmp_path / "run", tmp_path / "answers.jsonl"
    argv = [
        "finetune",
        f"--data={path}",
        "--text=comment",
        "--label=rude,spam,none",
        f"--init_from={tmp_path / 'start'}",
    ]
    argv += [f"--workdir={run}", "--config.task.max_seq_len=16", "--config.task.epochs=2", f"--test={test}"]
    assert main([*argv, "--skip_unlabeled", "--config.optimizer.peak_learning_rate=1e-2"]) == 0
    results = json.loads((run / "results.json").read_text())
    assert main(["predict", f"--model={run}", f"--input={test}", f"--output={answers}"]) == 0
    (tmp_path / "texts.csv").write_text("comment\nabab\n")  # a file to predict has no labels
    assert main(["predict", f"--model={run}", f"--input={tmp_path / 'texts.csv'}"]) == 0
    capfd.readouterr()
    assert main(["score", f"--model={run}", f"--labeled={test}", "--json"]) == 0
    printed = capfd.readouterr()
    assert "1 rows without a label are left out" in printed.err
    (report,) = json.loads(printed.out)["results"]
    with test.open(newline="") as file:
        gold = [[row[name] == "1" for name in LABEL_COLUMNS] for row in csv.DictReader(file)][:-1]
    predicted = [[name in answer["label"] for name in LABEL_COLUMNS] for answer in read_lines(answers)][:-1]
    scores = report["scores"]
    assert report["examples"] == len(gold) == 40
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(gold, predicted, average=average, zero_division=0)
        assert scores[f"{average}_f1"] == pytest.approx(expected, abs=1e-9)
    assert results["test"]["test"] == scores
    support = [row["support"] for row in report["labels"]]
    assert support == np.sum(gold, 0).tolist()


def test_function_and_command_have_equal_configs(tmp_path, monkeypatch, capsys):
    path = write_tickets(tmp_path / "tickets.csv")
    configs = []
    monkeypatch.setattr(finetuning, "finetune_in_directory", lambda config, workdir, session: configs.append(config))
    argv = ["finetune", f"--data={path}", "--init_from=start", f"--workdir={tmp_path / 'run'}"]
    argv += ["--text=subject,body", "--label=topic", "--label_separator=;", "--dev_fraction=0.3", "--skip_unlabeled"]
    assert main([*argv, "--config.task.metric=sample_f1", "--config.task.epochs=2"]) == 0
    choices = {"text": ("subject", "body"), "label": "topic", "dev_fraction": 0.3, "skip_unlabeled": True}
    choices |= {"data": path, "workdir": tmp_path / "run", "init_from": "start"}
    overrides = {"task.metric": "sample_f1", "task.epochs": 2}
    stream = io.StringIO()
    for separator in ({"label_separator": ";"}, {}):
        overrides |= {} if separator else {"task.label_separator": ";"}
        bert_jax.finetune_on_file(**choices, **separator, overrides=overrides, console=Console(stream))
    assert configs[0] == configs[1] == configs[2]
    assert configs[0].task.columns == "text=subject,text_pair=body,label=topic"
    printed = capsys.readouterr().err.splitlines()
    assert printed == stream.getvalue().splitlines()[:2]
    for argument in (
        *({"text": value} for value in ([], None, 3, [1])),
        *({"label": value} for value in ([], None, "")),
        *({"kind": 3}, {"delimiter": ""}, {"label_separator": 1}, {"data": None}, {"data": [str(path)]}, {"dev": 3}),
        *({"init_from": None}, {"workdir": None}, {"test": b"x"}),
    ):
        with pytest.raises(UserError, match=f"^{next(iter(argument))}="):
            bert_jax.finetune_on_file(**choices | argument)
    for wrong, message in (({"init_from": "x"}, "init_from is given twice"), ({"task.train": "x"}, "given twice")):
        with pytest.raises(UserError, match=message):
            bert_jax.finetune_on_file(**choices, overrides=wrong)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("sequence_classification", [0, 1]),
        ("multilabel_classification", [np.array([True, False]), np.array([True, True])]),
    ],
)
def test_texts_with_different_labels_are_counted(kind, labels):
    task = resolve_task(TaskConfig(name="custom", kind=kind, labels="a,b", train="x.csv", dev="y.csv"))
    texts, which = [1, 2, 1, 3, 2, 1, 3], [0, 0, 1, 1, 0, 0, 0]
    features = [Features(np.array([2, text], np.int32), 2, index) for index, text in enumerate(texts)]
    examples = [{"id": str(index), "label": labels[number]} for index, number in enumerate(which)]
    assert count_contradicting_texts(task, (TaskSplit("train", examples, features),)) == 2
    assert count_contradicting_texts(task, (TaskSplit("train", examples[:2], features[:2]),)) == 0
