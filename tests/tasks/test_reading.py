"""Examples of the real files, and of small files in the published formats."""

import collections
import gzip
import io
import json
import tarfile

import pytest
from nervaluate.loaders import ListLoader

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.kinds.token_classification import iob1_to_iob2
from bert_jax.tasks.reading.examples import existing_sets, read_task_examples
from bert_jax.tasks.table import resolve_task


def load(split, report=None, **settings):
    config = TaskConfig(**{key: str(value) for key, value in settings.items()})
    lines = [] if report is None else report
    examples = read_task_examples(resolve_task(config), config, split, lines.append)
    return [{key: value for key, value in example.items() if key != "row"} for example in examples]


def entities(task, examples):
    names = resolve_task(TaskConfig(name=task)).labels
    return ListLoader().load([[names[label] for label in example["labels"]] for example in examples])


class TestRealFiles:
    """Counts of the whole data are the published ones; those of the samples are counted by grep and awk."""

    def test_qnli(self, real_data):
        dev = load("dev", name="qnli", data=real_data / "glue")
        test = load("test", name="qnli", data=real_data / "glue" / "QNLI")
        assert (len(dev), len(test)) == {"samples": (1_200, 100), "data": (5_463, 5_463)}[real_data.name]
        assert dev[0]["text"] == "What came into force after the new constitution was herald?"
        assert [example["label"] for example in dev[:3]] == [0, 1, 1]
        assert not any("label" in example for example in test)
        with gzip.open(real_data / "glue/QNLI/dev.tsv.gz", "rt", encoding="utf-8") as file:
            quotes = file.read().count('"')
        assert sum((example["text"] + example["text_pair"]).count('"') for example in dev) == quotes

    @pytest.mark.parametrize(
        ("real_data", "file", "columns", "labels", "counts"),
        [
            (
                "samples",
                "QNLI/dev.tsv",
                "text=question,text_pair=sentence,label=label",
                "entailment,not_entailment",
                {0: 584, 1: 616},
            ),
            pytest.param(
                "shared",
                "MNLI/dev_matched.hans.tsv",
                "text=premise,text_pair=hypothesis,label=gold_label",
                "entailment,neutral,contradiction",
                {0: 3_479, 1: 3_123, 2: 3_213},
                marks=pytest.mark.shared,
            ),
        ],
        indirect=["real_data"],
    )
    def test_a_published_file_is_read_as_a_custom_task(self, real_data, file, columns, labels, counts):
        settings = {"name": "custom", "kind": "sequence_classification", "data": real_data / "glue", "dev": file}
        settings["labels"] = labels
        examples = load("dev", **settings, columns=f"{columns},format=tsv_plain")
        assert collections.Counter(example["label"] for example in examples) == counts
        with pytest.raises(UserError, match=rf"{file}.gz:\d+: unbalanced quotes .* format=tsv_plain"):
            load("dev", **settings, columns=columns)

    @pytest.mark.parametrize(
        ("task", "split", "file", "counts"),
        [
            ("squad1", "train", "train-v1.1.recon.json", {"samples": (179, 179, 0), "data": (87_599, 87_599, 0)}),
            ("squad1", "dev", "dev-v1.1.recon.json", {"samples": (572, 1_724, 0), "data": (10_570, 34_726, 0)}),
            ("squad2", "dev", "dev-v2.0.recon.json", {"samples": (468, 698, 234), "data": (11_873, 20_302, 5_945)}),
            ("squad2", "train", "train-v2.0.first10.json", {"samples": (515, 515, 0), "data": (4_719, 4_371, 348)}),
            ("squad2", "dev", "cs224n-dev-v2.0.json", {"samples": (75, 107, 41), "data": (6_078, 10_052, 3_168)}),
        ],
    )
    def test_squad(self, real_data, task, split, file, counts):
        questions, answers, impossible = counts[real_data.name]
        examples = load(split, name=task, data=real_data / "squad", **{split: file})
        assert len(examples) == questions
        assert sum(len(example["answers"]) for example in examples) == answers
        assert sum(not example["answers"] for example in examples) == impossible
        for example in examples:
            for answer in example["answers"]:
                # The place is for training; other sets are scored by the text.
                assert ("start" in answer) == (split == "train")
                assert answer["text"] in example["context"][answer.get("start", 0) :]

    def test_squad1_refuses_unanswerable_questions(self, real_data):
        with pytest.raises(UserError, match="has no answer; choose a task that allows such questions, such as squad2"):
            load("dev", name="squad1", data=real_data / "squad", dev="dev-v2.0.recon.json")

    @pytest.mark.parametrize(
        ("split", "counts"),
        [
            ("train", {"samples": (400, 7_700, 218), "data": (3_394, 62_730, 1_975)}),
            ("dev", {"samples": (250, 3_632, 238), "data": (1_009, 15_733, 836)}),
            ("test", {"samples": (250, 3_667, 200), "data": (1_287, 23_394, 1_079)}),
        ],
    )
    def test_wnut17(self, real_data, split, counts):
        sentences, tokens, found = counts[real_data.name]
        report = []
        examples = load(split, report, name="wnut17", data=real_data / "ner" / "wnut17")
        assert len(examples) == sentences
        assert sum(len(example["tokens"]) for example in examples) == tokens
        assert sum(map(len, entities("wnut17", examples))) == found
        assert not report

    def test_wikigold_is_converted_from_iob1(self, real_data):
        report = []
        examples = load("test", report, name="wikigold", data=real_data / "ner" / "wikigold")
        sentences, tokens, found = {"samples": (242, 5_887, 519), "data": (1_696, 39_007, 3_558)}[real_data.name]
        assert len(examples) == sentences
        assert sum(len(example["tokens"]) for example in examples) == tokens
        assert examples[0]["tokens"][:3] == ["010", "is", "the"]
        assert sum(map(len, entities("wikigold", examples))) == found
        assert report == [f"wikigold test: {found:,} I- labels that begin an entity are read as B- (IOB1)"]

    def test_klue_and_kornlu(self, real_data):
        klue, korean = real_data / "klue", real_data / "kor-nlu"
        counts = {
            "samples": {"klue": (100, 80, 120), "tabs": 7_170, "korsts": [100, 80, 60], "kornli": [90, 70]},
            "data": {
                "klue": (3_000, 519, 5_000),
                "tabs": 290_930,
                "korsts": [5_749, 1_500, 1_379],
                "kornli": [2_490, 5_010],
            },
        }[real_data.name]
        counts = {
            "samples": {"klue": (100, 80, 120), "tabs": 7_170, "korsts": [100, 80, 60], "kornli": [90, 70]},
            "data": {
                "klue": (3_000, 519, 5_000),
                "tabs": 290_930,
                "korsts": [5_749, 1_500, 1_379],
                "kornli": [2_490, 5_010],
            },
        }[real_data.name]
        nli = load("dev", name="klue-nli", data=klue)
        assert (nli[0]["id"], nli[0]["label"]) == ("klue-nli-v1_dev_00000", 2)
        sts = load("dev", name="klue-sts", data=klue)
        assert sts[0]["label"] == 4.9
        characters = load("dev", name="klue-ner", data=klue)
        assert (len(nli), len(sts), len(characters)) == counts["klue"]
        tabs_of_comments = len(characters) + 1
        assert sum(len(example["tokens"]) for example in characters) == counts["tabs"] - tabs_of_comments
        assert "".join(characters[0]["tokens"]).startswith("경찰은 또 성매매 알선 자금을 관리한 박씨의 딸(32)과")
        sizes = [len(load(split, name="korsts", data=korean)) for split in ("train", "dev", "test")]
        assert sizes == counts["korsts"]
        assert [len(load(split, name="kornli", data=korean)) for split in ("dev", "test")] == counts["kornli"]

    def test_codah(self, real_data, tmp_path):
        folder = real_data / "multiple-choice" / "codah"
        everything = load("train", name="codah", data=folder, train="full_data.tsv")
        text, right, sizes = {
            "samples": ("I am feeling clumsy today. I think", "I didn't get enough sleep.", (120, 40, 30)),
            "data": (
                "I am always very hungry before I go to bed. I am",
                "tempted to snack when I feel this way.",
                (1_665, 556, 555),
            ),
        }[real_data.name]
        assert len(everything) == sum(sizes)
        assert everything[0]["text"] == text
        assert everything[0]["choices"][everything[0]["label"]] == right
        with tarfile.open(folder / "cv_split-fold_0.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        data = tmp_path / "fold_0"
        fold = {split: load(split, name="codah", data=data) for split in ("train", "dev", "test")}
        assert tuple(len(examples) for examples in fold.values()) == sizes
        texts = collections.Counter((example["text"], *example["choices"]) for example in everything)
        assert texts == collections.Counter(
            (example["text"], *example["choices"]) for examples in fold.values() for example in examples
        )


# Task -> files in the layout of their authors, and examples by split.
SMALL = {
    "cola": (
        {
            "CoLA/train.tsv": 'gj04\t1\t\tThey "drank the pub.\ngj04\t0\t*\tThe pub drank.\n',
            "CoLA/test.tsv": "index\tsentence\n0\tBill whistled.\n",
        },
        {
            "train": [
                {"id": "0", "text": 'They "drank the pub.', "label": 1},
                {"id": "1", "text": "The pub drank.", "label": 0},
            ],
            "test": [{"id": "0", "text": "Bill whistled."}],
        },
    ),
    "sst2": (
        {"SST-2/dev.tsv": "sentence\tlabel\na fine film \t1\n"},
        {"dev": [{"id": "0", "text": "a fine film ", "label": 1}]},
    ),
    "mrpc": (
        {
            "MRPC/dev.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t10\t11\tHe said .\tHe did .\r\n",
            "MRPC/test.tsv": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t5\t6\tOne .\tTwo .\n",
        },
        {
            "dev": [{"id": "0", "text": "He said .", "text_pair": "He did .", "label": 1}],
            "test": [{"id": "0", "text": "One .", "text_pair": "Two ."}],
        },
    ),
    "qqp": (
        {
            "QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
            "7\t1\t2\tWhy?\tHow so?\t0\n8\t3\t4\tBroken\n\tin two?\t1\n9\t5\t6\tWho?\t\t1\n",
            "QQP/test.tsv": "id\tquestion1\tquestion2\n3\tWhen?\tWhere?\n",
        },
        {
            "train": [
                {"id": "0", "text": "Why?", "text_pair": "How so?", "label": 0},
                {"id": "1", "text": "Who?", "text_pair": "", "label": 1},
            ],
            "test": [{"id": "3", "text": "When?", "text_pair": "Where?"}],
        },
    ),
    "stsb": (
        {
            "STS-B/dev.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
            "0\tmain\tMSRvid\t2012\t1\tnone\tnone\tA plane.\tA jet.\t4.250\n"
        },
        {"dev": [{"id": "0", "text": "A plane.", "text_pair": "A jet.", "label": 4.25}]},
    ),
    "mnli": (
        {
            "MNLI/dev_matched.tsv": "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\tA.\tB.\tneutral\tneutral\n",
            "MNLI/dev_mismatched.tsv": "index\tsentence1\tsentence2\tgold_label\n0\tC.\tD.\tcontradiction\n",
            "MNLI/test_mismatched.tsv": "index\tsentence1\tsentence2\n0\tE.\tF.\n",
        },
        {
            "dev": [{"id": "0", "text": "A.", "text_pair": "B.", "label": 1}],
            "dev_mismatched": [{"id": "0", "text": "C.", "text_pair": "D.", "label": 2}],
            "test_mismatched": [{"id": "0", "text": "E.", "text_pair": "F."}],
        },
    ),
    "rte": (
        {"RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n"},
        {"dev": [{"id": "0", "text": "A.", "text_pair": "B.", "label": 1}]},
    ),
    "wnli": (
        {"WNLI/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n"},
        {"dev": [{"id": "0", "text": "A.", "text_pair": "B.", "label": 1}]},
    ),
    "ax": (
        {"diagnostic.tsv": "index\tsentence1\tsentence2\n0\tA.\tB.\n"},
        {"test": [{"id": "0", "text": "A.", "text_pair": "B."}]},
    ),
    "conll2003": (
        {
            "eng.train": "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nRome NNP I-NP I-LOC\n"
            "Paris NNP B-NP B-LOC\nBonn NNP I-NP I-LOC\n",
            "valid.txt": "-DOCSTART- -X- -X- O\n\nJohn NNP B-NP B-PER\nSmith NNP I-NP I-PER\n\n",
        },
        {
            "train": [
                {"id": "0", "tokens": ["EU", "rejects"], "labels": [3, 0]},
                {"id": "1", "tokens": ["Rome", "Paris", "Bonn"], "labels": [5, 5, 6]},
            ],
            "dev": [{"id": "0", "tokens": ["John", "Smith"], "labels": [1, 2]}],
        },
    ),
    "swag": (
        {
            "val.csv": ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
            '0,v1,34,"He sits, tired. He","He sits, tired.",He,gold,"says ""no"".",runs.,eats.,sings.,2\n',
            "test.csv": ",sent1,sent2,ending0,ending1,ending2,ending3\n0,A.,She,a,b,c,d\n",
        },
        {
            "dev": [
                {
                    "id": "0",
                    "text": "He sits, tired.",
                    "choices": ['He says "no".', "He runs.", "He eats.", "He sings."],
                    "label": 2,
                }
            ],
            "test": [{"id": "0", "text": "A.", "choices": ["She a", "She b", "She c", "She d"]}],
        },
    ),
    "kornli": (
        {
            "multinli.train.ko.tsv": "sentence1\tsentence2\tgold_label\nA\tB\tneutral\n",
            "snli_1.0_train.ko.tsv": "sentence1\tsentence2\tgold_label\nC\tD\tentailment\n",
        },
        {
            "train": [
                {"id": "0", "text": "A", "text_pair": "B", "label": 1},
                {"id": "1", "text": "C", "text_pair": "D", "label": 0},
            ]
        },
    ),
}


@pytest.mark.parametrize("task", SMALL)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_published_formats(task, packed, tmp_path):
    files, expected = SMALL[task]
    for name, text in files.items():
        path = tmp_path / (name + ".gz" * packed)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert {split: load(split, name=task, data=tmp_path) for split in expected} == expected


def test_oddities_of_published_files_are_counted(tmp_path):
    (tmp_path / "train.tsv").write_text(SMALL["qqp"][0]["QQP/train.tsv"])
    report = []
    load("train", report, name="qqp", data=tmp_path)
    assert sorted(report) == [
        "qqp train: 1 texts are empty",
        "qqp train: 2 rows with a wrong number of columns are skipped",
    ]


def test_parts_are_the_sets_that_exist(tmp_path):
    for name in ("dev_matched.tsv", "dev_mismatched.tsv.gz"):
        (tmp_path / name).touch()
    config = TaskConfig(name="mnli", data=str(tmp_path))
    task = resolve_task(config)
    assert existing_sets(task, config, "dev") == ("dev", "dev_mismatched")
    assert existing_sets(task, config, "train") == ()
    assert existing_sets(task, TaskConfig(name="mnli", data=str(tmp_path), dev="mine.tsv"), "dev") == ("dev",)
    remote = TaskConfig(name="mnli", data="tfds:")
    assert existing_sets(task, remote, "test") == ("test", "test_mismatched")


@pytest.mark.parametrize(
    ("labels", "converted"),
    [
        ("I-A I-A O I-B", "B-A I-A O B-B"),
        ("I-A B-A I-A I-B", "B-A B-A I-A B-B"),
        ("B-A I-A O B-B", "B-A I-A O B-B"),
        ("B-A I-B I-B", "B-A B-B I-B"),
        ("NOUN VERB", "NOUN VERB"),
        ("B-A I-A E-A S-B", "B-A I-A E-A S-B"),
    ],
)
def test_iob1_becomes_iob2_with_the_same_entities(labels, converted):
    assert iob1_to_iob2(labels.split()) == converted.split()
    if {label[:1] for label in labels.split()} <= set("IOB"):
        assert ListLoader().load([labels.split()]) == ListLoader().load([converted.split()])


PAIRS = "text=premise,text_pair=hypothesis,label=gold"
ROWS = [('It\'s "here", now', "Yes\tno", "no"), ("Zwei\nZeilen", "ü", "yes")]


def quoted(separator):
    """The rows as Python's csv writer and pandas write them."""
    import csv

    text = io.StringIO()
    csv.writer(text, delimiter=separator).writerows(
        [("n", "premise", "hypothesis", "gold"), *[(1, *row) for row in ROWS]]
    )
    return text.getvalue()


def json_lines():
    return "\n\n".join(json.dumps(dict(zip(("premise", "hypothesis", "gold"), row, strict=True))) for row in ROWS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", quoted(",")),
        ("a.tsv", quoted("\t")),
        ("a.jsonl", json_lines()),
        ("a.json", "[" + json_lines().replace("\n\n", ",") + "]"),
    ],
)
def test_custom_files(name, text, tmp_path):
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    settings = {"name": "custom", "kind": "sequence_classification", "data": tmp_path, "columns": PAIRS, "train": name}
    expected = [
        {"id": str(n), "text": row[0], "text_pair": row[1], "label": ["no", "yes"].index(row[2])}
        for n, row in enumerate(ROWS)
    ]
    assert load("train", **settings) == expected
    unlabeled = load("test", **settings | {"test": name, "columns": "text=premise,label=absent", "labels": "no,yes"})
    assert unlabeled == [{"id": str(n), "text": row[0]} for n, row in enumerate(ROWS)]


def test_rows_over_several_lines_of_a_tsv_are_counted(tmp_path):
    """Where quotes are text, two rows become one."""
    (tmp_path / "a.tsv").write_text('text\tlabel\n"Yes\tno\nno"\tno\nshe\tyes\n')
    settings = {"name": "custom", "kind": "sequence_classification", "data": tmp_path, "train": "a.tsv"}
    for columns, count, said in (("", 2, ["custom train: 1 rows span several lines"]), ("format=tsv_plain", 3, [])):
        lines = []
        examples = load("train", lines, **settings | ({"columns": columns} if columns else {}))
        assert (len(examples), [line.partition(", inside")[0] for line in lines]) == (count, said)


@pytest.mark.parametrize(
    ("kind", "line", "example"),
    [
        ("regression", {"text": "a", "label": 3}, {"text": "a", "label": 3.0}),
        (
            "regression",
            {"text": "a", "text_pair": "b", "label": "-1e-3"},
            {"text": "a", "text_pair": "b", "label": -0.001},
        ),
        ("sequence_classification", {"text": "a", "label": 1, "id": 7}, {"id": "7", "text": "a", "label": 1}),
        ("sequence_classification", {"text": "a", "label": False}, {"text": "a", "label": 2}),
        (
            "token_classification",
            {"tokens": ["a", "b"], "labels": ["I-X", "O"]},
            {"tokens": ["a", "b"], "labels": [4, 3]},
        ),
        (
            "multiple_choice",
            {"text": "a", "choices": ["b", "c"], "label": 1, "start": "It"},
            {"text": "a", "choices": ["It b", "It c"], "label": 1},
        ),
        (
            "question_answering",
            {"question": "q", "context": "a  b", "answers": [{"text": "a b", "start": 0}], "id": "x"},
            {"id": "x", "question": "q", "context": "a  b", "answers": [{"text": "a b"}]},
        ),
        (
            "question_answering",
            {"question": "q", "context": "a", "answers": []},
            {"question": "q", "context": "a", "answers": []},
        ),
    ],
)
def test_custom_json_lines_of_every_kind(kind, line, example, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(line))
    labels = {"labels": "0,1,false,O,B-X"} if kind in ("sequence_classification", "token_classification") else {}
    assert load("dev", name="custom", kind=kind, data=tmp_path, dev="a.jsonl", **labels) == [{"id": "0"} | example]


@pytest.mark.parametrize(("name", "separator"), [("a.tsv", "\t"), ("a.txt", " "), ("a.conll", "\t")])
def test_custom_columns_of_tokens(name, separator, tmp_path):
    lines = [["1", "Rome", "x", "B-L"], ["2", "is", "y", "O"], [], ["1", "Old", "z", "O"]]
    (tmp_path / name).write_text("\n".join(separator.join(line) for line in lines))
    settings = {"name": "custom", "kind": "token_classification", "data": tmp_path, "train": name}
    examples = load("train", **settings, columns="tokens=1,labels=3")
    assert [example["tokens"] for example in examples] == [["Rome", "is"], ["Old"]]
    assert [example["labels"] for example in examples] == [[0, 1], [1]]
    assert [example["tokens"] for example in load("train", **settings)] == [["1", "2"], ["1"]]


def test_custom_tokens_alone_are_a_test_set(tmp_path):
    (tmp_path / "a.txt").write_text("Rome\nis\n\nOld\n")
    settings = {"name": "custom", "kind": "token_classification", "data": tmp_path, "labels": "O,B-L"}
    assert load("test", **settings, test="a.txt") == [
        {"id": "0", "tokens": ["Rome", "is"]},
        {"id": "1", "tokens": ["Old"]},
    ]
    with pytest.raises(UserError, match=r"a.txt:1: no column -1 for labels among 1"):
        load("dev", **settings, dev="a.txt")


def test_missing_sets_are_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r"no dev set of task 'rte' \(looked for dev.tsv, also .gz\)"):
        load("dev", name="rte", data=tmp_path)
    with pytest.raises(UserError, match=r"looked for eng.train or train.txt"):
        load("train", name="conll2003", data=tmp_path)
    with pytest.raises(UserError, match=r"task 'ax' has no train set \(there is test\)"):
        load("train", name="ax", data=tmp_path)


def test_empty_texts_of_published_files_are_kept_and_counted(tmp_path):
    (tmp_path / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\tA.\t\tentailment\n")
    report = []
    assert load("dev", report, name="rte", data=tmp_path)[0]["text_pair"] == ""
    assert report == ["rte dev: 1 texts are empty"]
