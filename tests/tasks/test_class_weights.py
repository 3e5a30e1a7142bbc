"""Weights of rare labels beside scikit-learn, repeated examples, and refusals."""

import collections

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from bert_jax.config import ComputeConfig, TaskConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.models import make_model
from bert_jax.objectives.tasks import make_task_objective
from bert_jax.tasks.batching import collate
from bert_jax.tasks.class_weights import add_label_weights, label_weights, oversample_rare_labels
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tokenizer import load_tokenizer
from tests.helpers.synthetic import NO_DROPOUT
from tests.helpers.tiny_models import save

SIZES = {"a": 70, "b": 20, "c": 9, "d": 1}
GOLD = np.repeat(np.arange(4), [*SIZES.values()])


@pytest.mark.parametrize("scheme", ["balanced", "inverse_square_root"])
def test_schemes(scheme):
    weights = label_weights(scheme, "abcd", collections.Counter(GOLD.tolist()), 100, exclusive=True)
    expected = compute_class_weight("balanced", classes=np.arange(4), y=GOLD)
    if scheme == "inverse_square_root":
        expected = np.sqrt(expected)
        expected /= expected[GOLD].mean()
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert weights[GOLD].mean() == pytest.approx(1.0)
    with_absent_label = label_weights(scheme, "abcde", collections.Counter(GOLD.tolist()), 100, exclusive=True)
    np.testing.assert_array_equal(with_absent_label, [*weights, 1])
    of_sets = label_weights(scheme, "abcd", {0: 80, 1: 20}, 100, exclusive=False)
    power = {"balanced": 1, "inverse_square_root": 0.5}[scheme]
    np.testing.assert_allclose(of_sets, [(20 / 80) ** power, (80 / 20) ** power, 1, 1], rtol=1e-6)


def test_own_weights():
    assert label_weights("c=2.5, a=.5", "abcd", {0: 1, 2: 1}, 2, exclusive=True).tolist() == [0.5, 1, 2.5, 1]
    with_commas = label_weights("a,b=2, c =3,,=4", ["c", "a,b", ","], {0: 1, 1: 1, 2: 1}, 3, exclusive=True)
    assert with_commas.tolist() == [3, 2, 4]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("balance", "give balanced, inverse_square_root, or weights such as 'a=2'; did you mean 'balanced'?"),
        ("x=2", "'x' is not among a, b, c, d"),
        ("d=2", "no training example has the label 'd'"),
        ("a=0", "the weight of 'a' is '0'; give a number above 0"),
        ("a=inf", "the weight of 'a' is 'inf'"),
        ("a=much", "the weight of 'a' is 'much'"),
        ("a=2,b=1,a=3", "'a' has two weights; remove a weight"),
        ("a=2,b", "a=2,b: give balanced, inverse_square_root, or weights such as"),
        ("a,b=2", "'a,b' is not among a, b, c, d"),
    ],
)
def test_refusals(spec, says):
    with pytest.raises(UserError, match=says):
        label_weights(spec, "abcd", {0: 1, 1: 1, 2: 1}, 3, exclusive=True)


def test_weights_are_targets():
    weights = np.array([1, 2, 3], np.float32)
    ids = np.zeros(3, np.int32)
    (text,) = add_label_weights(
        KINDS["sequence_classification"], [Features(ids, 3, 0, {"labels": np.int32(2)})], weights
    )
    assert text.targets == {"labels": 2, "example_weights": 3.0}
    words = {"token_labels": np.array([0, 2, 1]), "token_weights": np.array([0, 1, 1], np.float32)}
    (sentence,) = add_label_weights(KINDS["token_classification"], [Features(ids, 3, 0, words)], weights)
    assert sentence.targets["token_weights"].tolist() == [0, 3, 2]
    labels = {"label_set": np.array([[1, 0, 1]], np.float32)}
    (several,) = add_label_weights(KINDS["multilabel_classification"], [Features(ids, 3, 0, labels)], weights)
    assert several.targets["label_weights"].tolist() == [[1, 1, 3]]


def test_the_accuracy_of_a_training_counts_each_example_once(tmp_path):
    """The loss is weighted as by torch; the accuracy is the accuracy of the same examples on the dev set."""
    save(tmp_path, "bert", "ForSequenceClassification", num_labels=2)
    loaded, tokenizer, kind = load_model(tmp_path), load_tokenizer(tmp_path), KINDS["sequence_classification"]
    examples = [{"id": str(n), "text": "abcdefghij"[n : n + 3], "label": n % 2} for n in range(6)]
    features = make_features(kind, examples, tokenizer, TaskConfig(max_seq_len=8)).features
    weights = np.array([9, 1], np.float32)
    weighted = add_label_weights(kind, features, weights)
    batch = collate(weighted, 8, loaded.config.num_token_types, tokenizer.pad_id, 8)  # with two examples of padding
    model = make_model(loaded.config, ComputeConfig(), loaded.heads)
    objective = make_task_objective(model, "sequence_classification", False)
    loss, metrics = objective.loss(loaded.params, (), batch, NO_DROPOUT, objective.normalizers(batch))
    logits = torch.tensor(np.asarray(model.apply(loaded.params, batch, None)["sequence_logits"])[:6])
    gold = torch.tensor([example["label"] for example in examples])
    expected = torch.nn.functional.cross_entropy(logits, gold, torch.tensor(weights))
    assert float(loss) == pytest.approx(expected.item(), abs=1e-5)
    right = (logits.argmax(1) == gold).float().mean().item()
    assert 0 < right < 1
    assert metrics["accuracy"].value() == pytest.approx(right)


def test_rare_labels_are_repeated():
    examples = [{"id": str(n), "label": label} for n, label in enumerate(GOLD.tolist())]
    features = [Features(np.zeros(3, np.int32), 3, n) for n in range(100)]
    repeated = oversample_rare_labels(KINDS["sequence_classification"], examples, features)
    times = collections.Counter(feature.example for feature in repeated)
    for label, size in enumerate(SIZES.values()):
        counts = [times[n] for n in np.flatnonzero(label == GOLD)]
        assert {*counts} <= {70 // size, -(-70 // size)}
        assert sum(counts) == pytest.approx(70, abs=9)
    assert repeated == oversample_rare_labels(KINDS["sequence_classification"], examples, features)


def test_sets_without_labels_are_not_repeated():
    examples = [{"id": str(n), "label": np.zeros(2, bool)} for n in range(4)]
    features = [Features(np.zeros(3, np.int32), 3, n) for n in range(4)]
    assert oversample_rare_labels(KINDS["multilabel_classification"], examples, features) == features
