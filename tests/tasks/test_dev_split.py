"""The dev set that is held out of a training file: sizes, shares of labels, and what is read on both sides."""

import collections
import random

import numpy as np
import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.reading.dev_split import choose_dev_rows
from bert_jax.tasks.reading.examples import existing_sets, read_task_examples
from bert_jax.tasks.table import resolve_task
from tests.helpers.finetuning_runs import write_lines


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("seed", range(5))
def test_each_label_has_its_share(fraction, seed):
    rng = random.Random(seed)
    sizes = [1, 2, 3, rng.randint(4, 40), rng.randint(40, 400)]
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    rng.shuffle(labels)
    chosen = choose_dev_rows([[label] for label in labels], fraction, seed)
    assert chosen.sum() == pytest.approx(fraction * (len(labels) - 1), abs=0.5)
    for label, size in enumerate(sizes):
        share = chosen[np.array(labels) == label].sum()
        assert abs(share - fraction * size) <= 1
        assert share < size, "no label is lost to the training set"
    assert (chosen == choose_dev_rows([[label] for label in labels], fraction, seed)).all()
    assert (chosen != choose_dev_rows([[label] for label in labels], fraction, seed + 1)).any()


def test_an_example_with_several_labels_counts_for_its_rarest_label():
    labels = [[0], [0, 1], [0, 2], [], [2, 0]] * 20 + [[3, 0]] * 2
    chosen = choose_dev_rows(labels, 0.5, 0)
    rarest = collections.Counter(tuple(labels[n]) for n in np.flatnonzero(chosen))
    assert rarest[3, 0] == 1
    assert rarest[0, 1] == 10
    assert rarest[0, 2] + rarest[2, 0] == 20
    assert not choose_dev_rows([[0]], 0.5, 0).any()


@pytest.mark.parametrize("kind", ["sequence_classification", "regression"])
def test_both_sides_together_are_the_file(tmp_path, kind):
    rows = [f"text {n},{n % 3 if n else ''}" for n in range(31)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]))
    settings = {"name": "custom", "kind": kind, "train": str(tmp_path / "a.csv"), "skip_unlabeled": True}
    config = TaskConfig(**settings, dev_fraction=0.2)
    task = resolve_task(config)
    assert [existing_sets(task, config, split) for split in ("train", "dev", "test")] == [("train",), ("dev",), ()]
    train, dev = (read_task_examples(task, config, split, lambda line: None) for split in ("train", "dev"))
    assert (len(train), len(dev)) == (24, 6)
    assert {example["id"] for example in (*train, *dev)} == {str(n) for n in range(1, 31)}  # as in the file
    everything = read_task_examples(task, TaskConfig(**settings), "train", lambda line: None)
    assert sorted(everything, key=lambda one: int(one["id"])) == sorted((*train, *dev), key=lambda one: int(one["id"]))
    assert dev[0]["row"] == {"text": dev[0]["text"], "label": str(int(dev[0]["id"]) % 3)}


def test_refusals(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nx,a\ny,b\n")
    config = TaskConfig(
        name="custom", kind="sequence_classification", data=str(tmp_path), train="a.csv", dev_fraction=0.1
    )
    with pytest.raises(UserError, match=r"config.task.dev_fraction=0.1 of 2 examples is no example"):
        read_task_examples(resolve_task(config), config, "dev")
    config = TaskConfig(
        name="custom", kind="sequence_classification", data=str(tmp_path), train="a.csv", dev="a.csv", dev_fraction=0.1
    )
    with pytest.raises(UserError, match="give one of them"):
        existing_sets(resolve_task(config), config, "dev")


def test_a_held_out_dev_set_has_the_labels_that_a_dev_file_has(tmp_path):
    """Training pairs of the kind similarity need no labels; dev sets do."""
    write_lines(tmp_path / "a.jsonl", [{"text": f"q{n}", "text_pair": f"a{n}"} for n in range(10)])
    settings = {"name": "custom", "kind": "similarity", "train": str(tmp_path / "a.jsonl")}
    held_out = TaskConfig(**settings, dev_fraction=0.2)
    assert len(read_task_examples(resolve_task(held_out), held_out, "train")) == 8
    with pytest.raises(UserError, match=r"2 rows have no label: .*a\.jsonl:"):
        read_task_examples(resolve_task(held_out), held_out, "dev")
    config = TaskConfig(**settings, dev=str(tmp_path / "a.jsonl"))
    with pytest.raises(UserError, match=r"a\.jsonl:1: no key 'label' for label"):
        read_task_examples(resolve_task(config), config, "dev")
