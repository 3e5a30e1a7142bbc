"""The table of tasks, and the task that a configuration names."""

import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks import scoring, submission
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.reading.formats import FORMATS
from bert_jax.tasks.table import TASKS, fields_of_training, resolve_task

GLUE = ["cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax"]


def test_all_tasks_exist():
    others = ["squad1", "squad2", "conll2003", "wnut17", "wikigold", "klue-ner", "swag", "codah", "klue-nli"]
    others += ["korquad", "cmrc2018", "jaquad", "xquad"]
    assert set(TASKS) == {*GLUE, *others, "klue-sts", "kornli", "korsts"}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_tasks_name_only_existing_kinds_metrics_and_formats(task):
    assert task.kind in KINDS
    assert set(task.metrics) <= set(scoring.METRICS)
    assert task.submission in submission.FORMATS
    assert (len(task.labels) >= 2) == (KINDS[task.kind].classes is None)
    assert len(set(task.labels)) == len(task.labels)
    assert len(task.codes) in (0, len(task.labels))
    for name, source in task.sets.items():
        assert name.partition("_")[0] in ("train", "dev", "test")
        assert source.format in FORMATS
        assert not source.tfds or task.tfds


@pytest.mark.parametrize("task", [TASKS[name] for name in GLUE], ids=GLUE)
def test_glue_tasks_agree_with_tfds(task):
    """Compare with the table of GLUE in TFDS: labels in order, columns, splits, and columns of the files."""
    pytest.importorskip("tensorflow_datasets", reason="tensorflow_datasets is not installed")
    from tensorflow_datasets.text.glue import Glue

    published = {config.name: config for config in Glue.BUILDER_CONFIGS}[task.name]
    assert task.tfds == f"glue/{task.name}"
    if task.labels:
        assert list(task.labels) == list(published.label_classes)
    assert set(published.text_features) == {task.tfds_columns[key] for key in ("text", "text_pair") if key in
                                            task.tfds_columns}  # fmt: skip
    if task.name not in ("cola", "mrpc", "ax"):  # read by number or by other code there; no training set
        columns = task.sets["train"].columns
        texts = {task.tfds_columns[key]: columns[key] for key in ("text", "text_pair") if key in columns}
        assert texts == published.text_features
        assert columns["label"] == published.label_column


def test_the_best_score_is_among_the_scores():
    labeled = {
        "sequence_classification": {"label": 1},
        "regression": {"label": 1.0},
        "token_classification": {"tokens": ["a"], "labels": [1]},
        "question_answering": {"answers": [{"text": "a", "start": 0}]},
        "multiple_choice": {"label": 1},
    }
    predicted = {
        "sequence_classification": [1],
        "regression": [1.0],
        "token_classification": [[1]],
        "question_answering": ["a"],
        "multiple_choice": [1],
    }
    for task in TASKS.values():
        scores = scoring.score_predictions(task, [{"id": "x", **labeled[task.kind]}], predicted[task.kind])
        assert task.best in scores, task.name


def test_resolve_returns_the_row_with_the_chosen_metric():
    assert resolve_task(TaskConfig(name="mrpc")) == TASKS["mrpc"]
    assert resolve_task(TaskConfig(name="mrpc", metric="accuracy")).best == "accuracy"


CUSTOM = {"name": "custom", "kind": "sequence_classification", "labels": "no,yes"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "mnl"}, "did you mean 'mnli'?"),
        ({"name": "rte", "columns": "text=a"}, "config.task.columns is for custom tasks"),
        ({"name": "custom"}, "config.task.kind"),
        (CUSTOM | {"columns": "text"}, "'text' is not 'field=column'"),
        (CUSTOM | {"columns": "text=a,text=b"}, "'text=b' is not 'field=column'"),
        (CUSTOM | {"columns": "texts=a"}, "did you mean 'text'?"),
        (CUSTOM | {"columns": "text=a,format=xml"}, "no format 'xml'"),
        (CUSTOM | {"labels": "yes,yes"}, "each once"),
        (CUSTOM | {"labels": "yes"}, "two or more"),
        (CUSTOM | {"labels": "yes,"}, "two or more"),
        (CUSTOM | {"labels": ""}, "config.task.train to read them from"),
    ],
)
def test_resolve_refuses(settings, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        resolve_task(TaskConfig(**settings))


def test_custom_labels_are_the_sorted_labels_of_the_training_file(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\nx\tpos\ny\tneg\nz\tpos\n")
    task = resolve_task(TaskConfig(name="custom", kind="sequence_classification", data=str(tmp_path), train="a.tsv"))
    assert task.labels == ("neg", "pos")
    assert task.best == "accuracy"


def test_custom_tags_are_counted_as_entities_only_if_they_are(tmp_path):
    (tmp_path / "ner.conll").write_text("Rome I-LOC\nis O\n")
    (tmp_path / "pos.conll").write_text("Rome PROPN\nis AUX\n")
    ner, pos = (
        resolve_task(TaskConfig(name="custom", kind="token_classification", data=str(tmp_path), train=f"{name}.conll"))
        for name in ("ner", "pos")
    )
    assert (ner.labels, ner.best) == (("B-LOC", "O"), "entity_f1")
    assert (pos.labels, pos.best) == (("AUX", "PROPN"), "token_accuracy")


def test_a_prediction_of_a_pair_needs_no_field_of_training_alone():
    settings = TaskConfig(
        name="custom", kind="similarity", train="a.jsonl", columns="text=query,text_pair=answer,negative=bad,scores=s"
    )
    trained = fields_of_training(settings, KINDS["similarity"])
    assert trained.columns == {"text": "query", "text_pair": "answer"}
