"""Kinds of tasks: other files do not name them, and a new kind is one value and one row."""

import ast
import pathlib

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.models import HEADS
from bert_jax.objectives.task_losses import LOSSES
from bert_jax.tasks import scoring
from bert_jax.tasks.kinds import KINDS, records
from bert_jax.tasks.kinds.kind import Loss, Predictions, TaskKind
from bert_jax.tasks.kinds.texts import text_features
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.reading.formats import FORMATS
from bert_jax.tasks.table import resolve_task
from tests.helpers.finetuning_runs import RECIPE, finetune, read_lines, write_lines
from tests.helpers.tiny_models import save

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "bert_jax"
# A head has the name of its kind, so the table of heads and the names that transformers gives them hold these names.
MAY_NAME_KINDS = ("tasks/kinds/", "tasks/table.py", "models/heads", "interop/", "reports/attention/head_roles.py")
MAY_NAME_KINDS += ("convert/expected_outputs.py", "convert/export_readme.py", "checkpoints/load_model.py")  # heads
MAY_NAME_KINDS += ("scoring/retrieval.py",)  # a measure "similarity"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_kinds_name_only_existing_heads_losses_fields_and_metrics(kind):
    assert kind.head in HEADS
    assert kind.loss.name in LOSSES or kind.loss.whole_batch
    assert set(kind.label_fields) <= {*kind.fields, *kind.optional_fields}
    assert set(kind.uniform_fields) | set(kind.column_lists) | set(kind.numbered_columns) <= set(kind.fields)
    assert set(kind.suffixes.values()) <= set(FORMATS)
    # The words of a label are in the vocabulary, so a masked-token head has no classes.
    assert (kind.classes is None or kind.head == "masked_token") == (kind.label_names is not None)
    for labels in ((), ("O", "B-X")):
        assert set(kind.default_metrics(labels)[0]) <= set(scoring.METRICS)


def test_no_other_file_names_a_kind():
    found = []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(MAY_NAME_KINDS):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [f"{name}:{node.lineno}" for node in ast.walk(tree) if _names_a_kind(node)]
    assert not found, "these lines name a kind of task: read what they need from KINDS"


def _names_a_kind(node):
    return isinstance(node, ast.Constant) and node.value in KINDS


# A toy kind, from records to files: does a text hold more of one letter than of another?


def _make(record, task, tally):
    if record.fields.get("more") not in (None, True, False):
        raise UserError(f"{record.where}: 'more' is neither true nor false")
    label = {} if record.fields.get("more") is None else {"more": record.fields["more"]}
    return {"text": records.text_field(record, "text", task, tally)} | label


def _features(examples, tokenizer, settings):
    def target(example):
        return {"more": np.int32(example["more"])} if "more" in example else {}

    return text_features(examples, tokenizer, settings.max_seq_len, target)


def _predict(examples, features, outputs, settings, threshold):
    logits = {one.example: found["sequence_logits"] for one, found in zip(features, outputs, strict=True)}
    return Predictions([bool(logits[n][1] > logits[n][0]) for n in range(len(examples))])


TOY = TaskKind(
    fields=("text", "more"),
    label_fields=("more",),
    make_example=_make,
    features=_features,
    head="sequence_classification",
    classes=2,
    loss=Loss("cross_entropy", (("sequence_logits", "more"),)),
    predict=_predict,
    to_json=lambda labels, example, value: {"more": value},
    gold=lambda example: example["more"],
    default_metrics=lambda labels: (("agreement",), "agreement"),
)


def agreement(examples, predictions, labels):
    """A toy metric: the fraction of equal answers."""
    return {
        "agreement": float(np.mean([example["more"] == p for example, p in zip(examples, predictions, strict=True)]))
    }


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(KINDS, "toy", TOY)
    monkeypatch.setitem(scoring.METRICS, "agreement", agreement)


def toy_lines(count, seed):
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(["a", "b"], rng.integers(3, 9))) for _ in range(count)]
    return [{"text": text, "more": text.count("a") > text.count("b")} for text in texts]


@pytest.mark.usefixtures("toy")
def test_a_toy_kind_from_its_files_to_predictions(tmp_path):
    (tmp_path / "toy").mkdir()
    for seed, (split, count) in enumerate({"train": 64, "dev": 30}.items()):
        write_lines(tmp_path / "toy" / f"{split}.jsonl", toy_lines(count, seed))
    (tmp_path / "recipe.py").write_text(RECIPE)
    save(tmp_path / "start", "bert", "ForPreTraining")
    results = finetune(tmp_path, tmp_path / "run", "toy", "task.epochs=6")
    assert results["metric"] == "agreement"
    dev, answers = toy_lines(30, 1), tmp_path / "answers.jsonl"
    files = ["--input", str(tmp_path / "toy" / "dev.jsonl"), "--output", str(answers)]
    assert main(["predict", "--model", str(tmp_path / "run"), *files]) == 0
    found = read_lines(answers)
    assert [one.keys() for one in found] == [{"id", "more"}] * 30
    agreed = np.mean([one["more"] == line["more"] for one, line in zip(found, dev, strict=True)])
    assert results["best"]["scores"] == {"agreement": agreed}
    assert agreed > np.mean([line["more"] for line in dev])  # better than the majority class
    written = read_lines(tmp_path / "run" / "predictions" / "custom-dev.jsonl")
    assert [one["more"] for one in written] == [one["more"] for one in found]


@pytest.mark.usefixtures("toy")
def test_mistakes_in_a_toy_kind_are_refused_as_in_any_other(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a", "more": "perhaps"}\n')
    settings = TaskConfig(name="custom", kind="toy", data=str(tmp_path), dev="bad.jsonl")
    with pytest.raises(UserError, match=r"bad.jsonl:1: 'more' is neither"):
        read_task_examples(resolve_task(settings), settings, "dev")
    with pytest.raises(UserError, match=r"toy has no field 'texts'; did you mean 'text'"):
        resolve_task(TaskConfig(name="custom", kind="toy", columns="texts=a"))
