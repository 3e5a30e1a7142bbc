"""Labels: their order, names that look alike, lists, and the rows of a trained head."""

import collections
import dataclasses
import itertools
import random
import re
import string

import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.benchmark_scores import JAQUAD, SQUAD1
from bert_jax.tasks.kinds.records import class_index
from bert_jax.tasks.labels import (
    detect_list_separator,
    label_counts_text,
    label_warnings,
    match_head_rows_to_labels,
    sort_labels_naturally,
)
from bert_jax.tasks.reading.examples import read_task_examples, summarize_locations
from bert_jax.tasks.reading.formats import read_delimited, read_parquet
from bert_jax.tasks.table import resolve_task
from bert_jax.tasks.task import Record, Task

TEXTS = {"name": "custom", "kind": "sequence_classification"}
TAGS = {"kind": "token_classification"}


def read(tmp_path, name, content, report=lambda line: None, **settings):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    config = TaskConfig(**(TEXTS | {"data": str(tmp_path), "train": name} | settings))
    task = resolve_task(config)
    return task, read_task_examples(task, config, "train", report)


def test_numbers_sort_by_value_and_names_by_the_numbers_in_them():
    numbers = [str(n) for n in range(12)]
    assert sort_labels_naturally(random.Random(0).sample(numbers, 12)) == tuple(numbers)
    assert sort_labels_naturally(["10", "-1", "2.5", "2"]) == ("-1", "2", "2.5", "10")
    unnamed = [f"LABEL_{n}" for n in range(12)]
    assert sort_labels_naturally(unnamed[::-1]) == tuple(unnamed)
    assert sort_labels_naturally(["no", "yes", "No", "B-X"]) == ("B-X", "No", "no", "yes")


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_matched_by_name_then_by_name_in_any_case(seed):
    rng = random.Random(seed)
    names = rng.sample([*"abcdefgh", *"AB"], 6)
    head = [name.upper() if rng.random() < 0.5 and name.upper() not in names else name for name in names]
    rng.shuffle(head)
    rows = match_head_rows_to_labels(names, head)
    assert sorted(rows) == list(range(6))
    for name, row in zip(names, rows, strict=True):
        assert head[row] == (name if name in head else name.upper())
    # Unknown names take the rows that are left, in order.
    assert match_head_rows_to_labels(["x", "b", "y"], ["a", "b", "c"]) == [0, 1, 2]
    assert match_head_rows_to_labels(["x", "y", "a"], ["a", "b", "c"]) == [1, 2, 0]


def test_time_does_not_grow_with_the_square_of_the_labels():
    """Each comparison of two names is counted."""
    num_comparisons = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other):
            nonlocal num_comparisons
            num_comparisons += 1
            return str.__eq__(self, other)

        def __hash__(self):
            return str.__hash__(self)

        def strip(self, *_):
            nonlocal num_comparisons
            num_comparisons += 1
            return self

    names = [Name(f"category {n}") for n in range(300)]
    task = Task(name="custom", kind="", sets={}, metrics=(), best="", labels=tuple(names), published=False)
    for n in range(300):
        assert class_index(Record("a.csv", {}), task, f"category {n}") == n
    assert match_head_rows_to_labels([f"category {n}" for n in range(300)], names[::-1]) == [*range(300)][::-1]
    assert num_comparisons <= 10 * 300


def test_messages_with_labels_are_short(tmp_path):
    content = "text,label\n" + "".join(f"x,category {n}\n" for n in range(2000))
    task, _ = read(tmp_path, "a.csv", content)
    with pytest.raises(UserError, match=r"label 'b' is not among category 0, .*, and 1,940 labels more"):
        class_index(Record("a.csv:3", {}), task, "b")


def test_names_that_look_alike_are_listed_with_their_counts():
    labels = ["Pos", "pos", "neg", "0", "0.0", "nan", "ＰＯＳ"]  # noqa: RUF001
    counts = dict(enumerate([3, 4, 5, 1, 1, 2, 1]))
    lines = label_warnings(labels, counts)
    assert len(lines) == 3
    assert "'Pos' (3), 'pos' (4)" in lines[0]
    assert "'0' (1), '0.0' (1)" in lines[1]
    assert "missing values: 'nan' (2)" in lines[2]
    assert label_warnings(["B-LOC", "I-LOC", "O"], {}) == []
    assert label_warnings(["R&B", "C++", "C", "C#"], {}) == []  # symbols are no spelling
    assert label_counts_text(["no", "yes"], {1: 1234}) == "labels 0 'no' 0, 1 'yes' 1,234"
    assert label_counts_text(["a\nb"], {0: 1}) == r"labels 0 'a\nb' 1"


def test_labels_that_look_like_lists_are_named():
    assert detect_list_separator(["a", "b", "a;b", "a; c"]) == ";"
    assert detect_list_separator(["a|b", "b|c", "a|c"]) == "|"
    assert detect_list_separator(["Sales/Marketing", "IT", "R/D"]) == ""  # the parts are no labels
    assert detect_list_separator(["a", "b"]) == ""
    assert detect_list_separator(["-;", ";", "x"]) == ""
    (line,) = label_warnings(["a", "b", "a;b"], {2: 7})
    assert "'a;b' (7); to split" in line
    assert "--label_separator ';'" in line


def test_places_in_few_words():
    assert summarize_locations(["a.csv:3"]) == "a.csv:3"
    assert summarize_locations(["a.csv:3", "a.csv:4-6", "a.csv:9"]) == "a.csv:3-6, 9"
    assert summarize_locations(["a.json: item 3", "b.parquet: row 4", "b.parquet: row 5"]) == (
        "a.json: item 3, b.parquet: row 4-5"
    )
    many = summarize_locations([f"a.csv:{2 * row}" for row in range(1000)])
    assert many.startswith("a.csv:0, 2, 4, ")
    assert many.endswith(", 38, and 980 more")
    assert summarize_locations(["x train[1]", "x train[2]", "x train[7]"]) == "x train[1-2, 7]"
    assert (
        summarize_locations(["a.json: question q1", "a.json: question q2"])
        == "a.json: question q1, a.json: question q2"
    )


def test_white_space_around_a_label_does_not_count(tmp_path):
    task, examples = read(tmp_path, "a.csv", "text , label\nx,pos \ny, pos\nz,neg\n")
    assert task.labels == ("neg", "pos")
    assert [example["label"] for example in examples] == [1, 1, 0]


def test_rows_without_a_label_are_all_listed_or_left_out_and_counted(tmp_path):
    content = 'text,label\nx,a\ny,\n"z\nz",  \nw,b\nv,\n'
    with pytest.raises(UserError, match=r"^3 rows have no label: \S*a\.csv:3-5, 7; .*--skip_unlabeled") as refusal:
        read(tmp_path, "a.csv", content)
    assert len(str(refusal.value).splitlines()) == 1
    lines = []
    _, examples = read(tmp_path, "a.csv", content, lines.append, skip_unlabeled=True)
    assert [example["text"] for example in examples] == ["x", "w"]
    assert lines == ["custom train: 3 rows without a label are left out"]


def test_a_test_set_has_a_label_in_each_row_or_in_none(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\nx,a\ny,b\n")
    content = "text,label\nx,a\ny,\nz,b\nw,\n"
    in_other_order = "text,label\ny,\nx,a\nw,\nz,b\n"  # the first row has no label
    for rows, places in ((content, "3, 5"), (in_other_order, "2, 4")):
        (tmp_path / "test.csv").write_text(rows)
        config = TaskConfig(**TEXTS, data=str(tmp_path), train="train.csv", test="test.csv")
        task = resolve_task(config)
        with pytest.raises(UserError, match=rf"^2 rows have no label: \S*test\.csv:{places}; .*--skip_unlabeled"):
            read_task_examples(task, config, "test")
        lines = []
        examples = read_task_examples(task, dataclasses.replace(config, skip_unlabeled=True), "test", lines.append)
        assert [(example["text"], example["label"]) for example in examples] == [("x", 0), ("z", 1)]
        assert lines == ["custom test: 2 rows without a label are left out"]
    (tmp_path / "test.csv").write_text("text,label\nx,\ny,\n")
    for skip_unlabeled in (False, True):
        settings = dataclasses.replace(config, skip_unlabeled=skip_unlabeled)
        assert ["label" in example for example in read_task_examples(task, settings, "test")] == [False, False]


def test_objects_without_a_key_of_the_label_are_rows_without_a_label(tmp_path):
    rows = '{"text": "x", "label": "a"}\n{"text": "y"}\n{"text": "z", "label": "b"}\n{"text": "v"}\n'
    with pytest.raises(UserError, match=r"^2 rows have no label: \S*a\.jsonl:2, 4; .*--skip_unlabeled"):
        read(tmp_path, "a.jsonl", rows)
    _, examples = read(tmp_path, "a.jsonl", rows, skip_unlabeled=True)
    assert [example["text"] for example in examples] == ["x", "z"]
    with pytest.raises(UserError, match=r"a\.jsonl:1: no key 'label' for label; did you mean 'labl'"):
        read(tmp_path, "a.jsonl", '{"text": "x", "labl": "a"}\n')


def test_rows_left_out_of_a_file_are_counted_once(tmp_path):
    """The training and the dev set are parts of one file."""
    (tmp_path / "a.csv").write_text(
        "text,label\n" + "".join(f"{n},{'ab'[n % 2] if n % 5 else ''}\n" for n in range(40))
    )
    config = TaskConfig(**TEXTS, data=str(tmp_path), train="a.csv", dev_fraction=0.25, skip_unlabeled=True)
    lines = []
    task = resolve_task(config)
    examples = [read_task_examples(task, config, split, lines.append) for split in ("train", "dev")]
    assert list(map(len, examples)) == [24, 8]
    assert lines == ["custom train: 8 rows without a label are left out"]


def test_one_text_of_a_pair_may_be_empty_and_is_counted(tmp_path):
    lines = []
    rows = "text,text_pair,label\nx,,a\n ,y,b\nz,v,a\n"
    _, examples = read(tmp_path, "a.csv", rows, lines.append, columns="text=text,text_pair=text_pair,label=label")
    assert [(example["text"], example["text_pair"]) for example in examples] == [("x", ""), (" ", "y"), ("z", "v")]
    assert lines == ["custom train: 2 texts are empty"]


def test_a_pair_for_vectors_needs_both_texts(tmp_path):
    rows = '{"text": "x", "text_pair": ""}\n{"text": "y", "text_pair": "z"}\n{"text": " ", "text_pair": "v"}\n'
    with pytest.raises(UserError, match=r"^2 rows have an empty text or text_pair: \S*a\.jsonl:1, 3; fill it"):
        read(tmp_path, "a.jsonl", rows, kind="similarity")


def test_rows_without_a_text_are_all_listed(tmp_path):
    with pytest.raises(
        UserError, match=r"^3 rows have an empty text: \S*a\.csv:2, 4-5; fill it, or leave the rows out$"
    ):
        read(tmp_path, "a.csv", "text,label\n ,a\nx,b\n,a\n,b\n")


def test_a_label_may_be_given_by_its_index_where_no_name_is_a_number(tmp_path):
    rows = '{"text": "x", "label": 1}\n{"text": "y", "label": 0}\n'
    _, examples = read(tmp_path, "a.jsonl", rows, labels="neg,pos")
    assert [example["label"] for example in examples] == [1, 0]
    with pytest.raises(UserError, match="label '2' is not among neg, pos"):
        read(tmp_path, "a.jsonl", rows.replace("1}", "2}"), labels="neg,pos")
    with pytest.raises(UserError, match="label '0' is not among 1, 2"):  # a name: no index
        read(tmp_path, "a.jsonl", rows, labels="1,2")


def test_tags_and_answers_in_the_layout_of_hugging_face(tmp_path):
    rows = '{"tokens": ["EU", "is"], "ner_tags": [10, 2]}\n{"tokens": ["x"], "ner_tags": [0]}\n'
    task, examples = read(tmp_path, "a.jsonl", rows, **TAGS, columns="labels=ner_tags")
    assert task.labels == ("0", "2", "10")
    assert [example["labels"] for example in examples] == [[2, 1], [0]]
    rows = rows.replace("10", "1")
    _, examples = read(tmp_path, "a.jsonl", rows, **TAGS, columns="labels=ner_tags", labels="O,B-X,I-X")
    assert [example["labels"] for example in examples] == [[1, 2], [0]]

    answers = '{"text": ["the baker", "baker"], "answer_start": [0, 4]}'
    row = '{"id": "0", "question": "who", "context": "the baker sells", "answers": %s}\n'
    _, examples = read(tmp_path, "a.jsonl", row % answers, kind="question_answering")
    assert examples[0]["answers"] == [{"text": "the baker", "start": 0}, {"text": "baker", "start": 4}]
    _, examples = read(tmp_path, "a.jsonl", row % '{"text": [], "answer_start": []}', kind="question_answering")
    assert examples[0]["answers"] == []
    with pytest.raises(UserError, match=r"different lengths \(1 text, 2 answer_start\)"):
        read(tmp_path, "a.jsonl", row % '{"text": ["baker"], "answer_start": [4, 5]}', kind="question_answering")


WORDS = [("EU", "B-ORG"), ("rejects", "O"), None, ("Peter", "B-PER")]


@pytest.mark.parametrize(
    ("column", "line"),
    [
        (" ", "\n"),
        (" ", " \n"),
        ("     ", "\n"),
        ("\t", "\n"),
        ("\t", "\t\n"),
        (" ", "\r"),
        ("\t", "\r"),
        (" ", " \r\n"),
    ],
)
@pytest.mark.parametrize("comment", ["", "# sent_id = 1"])
def test_spaces_line_ends_and_comments_of_conll(tmp_path, column, line, comment):
    content = "".join((column.join(word) if word else "") + line for word in WORDS)
    content = (comment + line if comment else "") + content
    task, examples = read(tmp_path, "a.conll", content, **TAGS)
    assert task.labels == ("B-ORG", "B-PER", "O")
    assert [example["tokens"] for example in examples] == [["EU", "rejects"], ["Peter"]]
    assert [example["labels"] for example in examples] == [[0, 2], [1]]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("line", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_separators_line_ends_and_encodings_of_tables(tmp_path, separator, line, encoding, suffix):
    rows = [["text", "label"], ["ä, b; c | d\te", "no"], ['"x"', "yes"]]
    quoted = [['"' + value.replace('"', '""') + '"' for value in row] for row in rows]
    content = line.join(separator.join(row) for row in (rows[0], *quoted[1:])) + line
    lines = []
    task, examples = read(tmp_path, f"a.{suffix}", content.encode(encoding), lines.append)
    assert task.labels == ("no", "yes")
    assert [example["text"] for example in examples] == ["ä, b; c | d\te", '"x"']
    assert [example["label"] for example in examples] == [0, 1]
    usual = {"csv": ",", "tsv": "\t"}[suffix]
    said = repr(separator) if separator != "\t" else "tabs"
    assert lines == ([f"custom train: 2 columns, separated by {said}"] if separator != usual else [])


@pytest.mark.parametrize(
    ("content", "settings", "says"),
    [
        ("text;label\nx;a\ny;b\n", {"delimiter": "|"}, r"a.csv:1: the separator '\|' splits nothing"),
        ("text^label\nx^a\ny^b\n", {}, "a.csv:1: the separator ',' splits nothing"),
        ("text;label\nx;a\ny;b\n", {"delimiter": ";;"}, "config.task.delimiter=';;': a delimiter is one character"),
        ("text,label\nx,a\nx\ry,a\nz,b\n", {}, "a.csv:3: a carriage return inside of a row"),
        (
            'text,label\r"x\n",a\ry,b\r',
            {},
            "a.csv:1: a carriage return inside of a row; save the file with line ends LF",
        ),
    ],
)
def test_tables_that_cannot_be_read_are_refused_by_the_right_name(tmp_path, content, settings, says):
    with pytest.raises(UserError, match=says) as refusal:
        read(tmp_path, "a.csv", content, **settings)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_separator_can_be_set(tmp_path):
    _, examples = read(tmp_path, "a.csv", "text^label\nx^a\ny^b\n", delimiter="^")
    assert [example["text"] for example in examples] == ["x", "y"]


def test_a_separator_inside_of_a_name_is_no_separator(tmp_path):
    """The header has all columns with commas; semicolons would give more columns, of other names."""
    _, examples = read(tmp_path, "a.csv", "text,label,a;b;c;d\nx;y,a,1\nz,b,2\n")
    assert [example["text"] for example in examples] == ["x;y", "z"]


def test_parquet_is_read_like_json(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "meta": [{"title": "x"}, {"title": "y"}, {"title": "z"}],
        "label": pyarrow.array([1.0, 0.0, None], pyarrow.float64()),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    task, examples = read(tmp_path, "a.parquet", content, columns="text=meta.title", skip_unlabeled=True)
    assert task.labels == ("0", "1")  # pandas stores integers with a missing value as floats
    assert [(example["text"], example["label"]) for example in examples] == [("x", 1), ("y", 0)]
    with pytest.raises(UserError, match=r"1 rows? have|a.parquet: row 3: has no label"):
        read(tmp_path, "a.parquet", content, columns="text=meta.title")
    with pytest.raises(UserError, match="no column 'titel' for text"):
        read(tmp_path, "a.parquet", content, columns="text=titel")
    with pytest.raises(UserError, match="broken Parquet file"):
        read(tmp_path, "b.parquet", content[:-9], columns="text=meta.title")


def test_parquet_columns_that_python_cannot_hold(tmp_path):
    """No field reads the times, but a prediction may copy them."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    end = 253_402_300_799 * 10**6  # 9999-12-31 23:59:59, which is the year 10,000 in Tokyo
    columns = {
        "text": ["a"],
        "label": ["x"],
        "until": pyarrow.array([end], pyarrow.timestamp("us", tz="Asia/Tokyo")),
        "far": pyarrow.array([10**7], pyarrow.date32()),
        "fine": pyarrow.array([1], pyarrow.timestamp("ns")),
        "long": pyarrow.array([1], pyarrow.duration("ns")),
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    (record,) = read_parquet(str(tmp_path / "a.parquet"), {"text": "text"}, [])
    assert record.row["fine"] == "1970-01-01 00:00:00.000000001"
    assert {name: type(value) for name, value in record.row.items()} == dict.fromkeys(columns, str) | {"long": int}
    columns["inner"] = pyarrow.array([{"at": 2**62}], pyarrow.struct({"at": pyarrow.timestamp("us")}))
    parquet.write_table(pyarrow.table(columns), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"b.parquet: the column 'inner' cannot be read \(.*\); leave it out"):
        list(read_parquet(str(tmp_path / "b.parquet"), {"text": "text"}, []))


def test_every_column_of_a_row_is_kept(tmp_path):
    (tmp_path / "a.csv").write_text("text,note,note,,,note_3\nhello,first,second,x,y,z\n")
    (record,) = read_delimited(str(tmp_path / "a.csv"), {"text": "text"}, [], separator=",", quoted=True)
    assert list(record.row.values()) == ["hello", "first", "second", "x", "y", "z"]
    assert list(record.row) == ["text", "note", "note_3_", "column_4", "column_5", "note_3"]


# evaluate-v1.1.py of SQuAD and the notebook of JaQuAD, written out.
def normalized_words(text):
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def common_f1(gold, predicted):
    common = sum((collections.Counter(gold) & collections.Counter(predicted)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(gold)
    return 2 * precision * recall / (precision + recall)


TEXT_PARTS = ["", "the", "a", ".", " ", "cat", "The cat", "cats!", "an", "\u3000", "猫", " 猫 ", "猫 犬"]


@pytest.mark.parametrize(("gold", "predicted"), [*itertools.product(TEXT_PARTS, TEXT_PARTS)])
def test_answers_that_normalize_to_nothing(gold, predicted):
    words = normalized_words(gold), normalized_words(predicted)
    assert SQUAD1.exact(gold, predicted) == (words[0] == words[1])
    assert SQUAD1.f1(gold, predicted) == pytest.approx(common_f1(*words))
    characters = [*"".join(gold.split())], [*"".join(predicted.split())]
    f1 = common_f1(*characters) if all(characters) else float(characters[0] == characters[1])
    assert JAQUAD.f1(gold, predicted) == pytest.approx(f1)
    assert JAQUAD.exact(gold, predicted) == (f1 == 1.0)


# "Vamos al mar" and an elliptic "likes", in CoNLL-U.
CONLLU = """# sent_id = 1
1-2 Vámonos _ _ _ _ _ _ _ _
1 Vamos ir VERB _ _ 0 root _ _
2 nos nosotros PRON _ _ 1 obj _ _
2.1 likes like VERB _ _ _ _ _ _
3-4 al _ _ _ _ _ _ _ _
3 a a ADP _ _ 5 case _ _
4 el el DET _ _ 5 det _ _
5 3-4 mar NOUN _ _ 1 obl _ _

""".replace(" ", "\t").replace("#\tsent_id\t=\t1", "# sent_id = 1")


def test_multiword_tokens_and_empty_nodes_of_conllu_are_no_words(tmp_path):
    """Words have integer numbers (universaldependencies.org/format.html)."""
    lines = []
    task, (example,) = read(
        tmp_path, "a.conllu", CONLLU, lines.append, columns="tokens=1,labels=3,format=conll", **TAGS
    )
    assert example["tokens"] == ["Vamos", "nos", "a", "el", "3-4"]
    assert [task.labels[label] for label in example["labels"]] == ["VERB", "PRON", "ADP", "DET", "NOUN"]
    assert "custom train: 3 multiword tokens and empty nodes of CoNLL-U are skipped" in lines
    # In the first column of another file of ten columns, a range is a token.
    scores = CONLLU.partition("\n")[2]
    _, (example,) = read(tmp_path, "a.conll", scores, columns="tokens=0,labels=3", **TAGS)
    assert example["tokens"] == ["1-2", "1", "2", "2.1", "3-4", "3", "4", "5"]


SCHEMES = {
    "O,I-LOC,I-PER": ["I-PER", "I-PER", "O", "I-LOC"],
    "O,B-LOC,B-PER,I-LOC,I-PER": ["B-PER", "I-PER", "O", "B-LOC"],
}


@pytest.mark.parametrize("labels", SCHEMES)
@pytest.mark.parametrize("trained", [False, True])
def test_labels_of_a_scheme_without_b_stay(tmp_path, labels, trained):
    (tmp_path / "a.conll").write_text("Ann I-PER\nLee I-PER\nin O\nRome I-LOC\n")
    given = {} if trained else {"labels": labels}
    config = TaskConfig(name="custom", train=str(tmp_path / "a.conll"), **TAGS, **given)
    task = resolve_task(config, labels.split(",") if trained else ())
    (example,) = read_task_examples(task, config, "train", lambda line: None)
    assert [task.labels[label] for label in example["labels"]] == SCHEMES[labels]
    assert task.best == "entity_f1"


@pytest.mark.parametrize(
    ("dev", "content"), [("dev.jsonl", '{"text": "x", "label": "a"}\n'), ("dev.csv", "text,label\nx,a\n")]
)
def test_a_dev_set_has_a_format_of_its_own(tmp_path, dev, content):
    (tmp_path / dev).write_text(content)
    settings = {"data": str(tmp_path), "dev": dev, "delimiter": "#", "columns": "text=text,label=label"}
    task, _ = read(tmp_path, "a.csv", "text#label\nx#a\ny#b\n", **settings)
    (example,) = read_task_examples(task, TaskConfig(**TEXTS, **settings), "dev")
    assert (example["text"], example["label"]) == ("x", 0)
    with pytest.raises(UserError, match="a delimiter is one character, for CSV and TSV only"):
        read(tmp_path, "dev.jsonl", '{"text": "x", "label": "a"}\n', delimiter="#")
