"""Kinds of tasks: other files do not name them, and a new kind is one value and one row."""

import ast
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.models import HEADS, make_model
from bert_jax.objectives.base import training_rngs
from bert_jax.objectives.losses import LOSSES
from bert_jax.objectives.tasks import finetuning, head
from bert_jax.tasks import scoring, submission
from bert_jax.tasks.features import collate
from bert_jax.tasks.kinds import KINDS, records
from bert_jax.tasks.kinds.kind import Kind, Loss, Predictions, make_features
from bert_jax.tasks.kinds.texts import text_features
from bert_jax.tasks.reading.formats import FORMATS
from bert_jax.tasks.reading.readers import read_examples
from bert_jax.tasks.table import resolve

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "bert_jax"
# A head has the name of its kind, so the table of heads and the names that transformers gives them hold these names.
MAY_NAME_KINDS = ("tasks/kinds/", "tasks/table.py", "models/heads", "interop/")


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_rows_name_only_what_exists(kind):
    assert kind.head in HEADS
    assert kind.loss.name in LOSSES
    assert set(kind.label_fields) <= {*kind.fields, *kind.optional_fields}
    assert set(kind.uniform_fields) | set(kind.column_lists) | set(kind.numbered_columns) <= set(kind.fields)
    assert set(kind.suffixes.values()) <= set(FORMATS)
    assert (kind.classes is None) == (kind.label_names is not None)
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
    return {"text": records.text(record, "text", task, tally)} | label


def _features(examples, tokenizer, settings):
    def target(example):
        return {"more": np.int32(example["more"])} if "more" in example else {}

    return text_features(examples, tokenizer, settings.max_seq_len, target)


def _predict(examples, features, outputs, settings, threshold):
    logits = {one.example: found["sequence_logits"] for one, found in zip(features, outputs, strict=True)}
    return Predictions([bool(logits[n][1] > logits[n][0]) for n in range(len(examples))])


TOY = Kind(
    fields=("text", "more"),
    label_fields=("more",),
    make=_make,
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
    return {"agreement": float(np.mean([example["more"] == p for example, p in zip(examples, predictions, strict=True)]))}


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(KINDS, "toy", TOY)
    monkeypatch.setitem(scoring.METRICS, "agreement", agreement)


class Letters:
    """A tokenizer of single letters."""

    cls_id, sep_id, pad_id, separators = 1, 2, 0, 1

    def encode_sentences(self, texts):
        return [[3 + "ab".index(letter) for letter in text] for text in texts]


def toy_file(path, count, seed):
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.choice(["a", "b"], rng.integers(3, 9))) for _ in range(count)]
    lines = [{"text": text, "more": text.count("a") > text.count("b")} for text in texts]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


@pytest.mark.usefixtures("toy")
def test_a_toy_kind_is_read_trained_predicted_scored_and_written(tmp_path, tiny_config):
    lines = toy_file(tmp_path / "train.jsonl", 32, 0)
    settings = TaskConfig(name="custom", kind="toy", data=str(tmp_path), train="train.jsonl", max_seq_len=16)
    task = resolve(settings)
    assert (task.metrics, task.best, task.labels) == (("agreement",), "agreement", ())
    examples = read_examples(task, settings, "train")
    assert examples[0] == {"id": "0", **lines[0]}
    features, counts = make_features(KINDS["toy"], examples, Letters(), settings)
    assert not any(counts.values())

    batch = collate(features, 16, 2, 0, 32)
    model = make_model(tiny_config.model, tiny_config.compute, (head("toy", 0),))
    objective = finetuning(model, "toy", freeze_encoder=False)
    params = objective.init(jax.random.key(0))
    normalizers = objective.normalizers(batch)
    assert float(normalizers["targets"]) == 32

    @jax.jit
    def step(params, rng):
        loss_of = lambda params: objective.loss(params, (), batch, training_rngs(rng), normalizers)  # noqa: E731
        (loss, metrics), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        return jax.tree.map(lambda x, g: x - 0.1 * g, params, gradients), loss, metrics

    losses = []
    for number in range(40):
        params, loss, metrics = step(params, jax.random.key(number))
        losses.append(float(loss))
    assert losses[-1] < 0.7 * losses[0]
    assert set(metrics) == {"task_loss", "accuracy"}

    logits = np.asarray(model.apply(params, jax.tree.map(jnp.asarray, batch), None)["sequence_logits"])
    shuffled = np.random.default_rng(1).permutation(32)
    outputs = [{"sequence_logits": logits[number]} for number in shuffled]
    found = TOY.predict(examples, [features[number] for number in shuffled], outputs, settings, None)
    scores = scoring.score(task, examples, found.values)
    assert scores == {"agreement": np.mean(logits.argmax(1) == batch["more"])}
    assert scores["agreement"] > 0.6
    submission.write(task, examples, found.values, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0]) == {"id": "0", "more": found.values[0]}


@pytest.mark.usefixtures("toy")
def test_mistakes_in_a_toy_kind_are_refused_as_in_any_other(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"text": "a", "more": "perhaps"}\n')
    settings = TaskConfig(name="custom", kind="toy", data=str(tmp_path), dev="bad.jsonl")
    with pytest.raises(UserError, match="bad.jsonl:1: 'more' is neither"):
        read_examples(resolve(settings), settings, "dev")
    with pytest.raises(UserError, match="toy has no field 'texts'; did you mean 'text'"):
        resolve(TaskConfig(name="custom", kind="toy", columns="texts=a"))
