"""Several training sets: a batch has pairs of one set, in stated shares; a resumed training has the same batches."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from bert_jax.cli.main import main
from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.finetuning.training_sets import TrainingSet, order_of_batches, settings_of_sets, task_training_batches
from bert_jax.parallel.sharding import SINGLE_HOST
from bert_jax.tasks.batching import Feed
from bert_jax.tasks.features import Features
from bert_jax.tasks.kinds import KINDS
from tests.helpers.finetuning_runs import finetune_command, make_world, read_lines, stop_after, words, write_lines

BATCH, SIZES = 4, (37, 10, 22)


def sets_of_numbered_examples():
    """Example n of set s has the token 100 s + n, once or, in the second set, twice."""
    feed, sets = Feed((8,), BATCH, 2, pad_id=0), []
    for index, size in enumerate(SIZES):
        ids = [np.full(1 + index % 2, 100 * index + number, np.int32) for number in range(1, size + 1)]
        sets.append(TrainingSet([Features(x, len(x), example) for example, x in enumerate(ids)], feed))
    return sets


def examples_of_batches(weights, num_batches, step=0):
    """The numbers of the examples of each batch, without the copies that fill a batch."""
    batches = task_training_batches(sets_of_numbered_examples(), weights, 3, SINGLE_HOST, step)
    return [
        batch["input_ids"][batch["example_weights"] > 0, 0].tolist() for batch in itertools.islice(batches, num_batches)
    ]


def test_without_weights_an_epoch_has_each_example_once():
    num_batches = 10 + 3 + 6
    batches = examples_of_batches(None, 2 * num_batches)
    everything = sorted(100 * index + number for index, size in enumerate(SIZES) for number in range(1, size + 1))
    for epoch in (batches[:num_batches], batches[num_batches:]):
        assert sorted(itertools.chain(*epoch)) == everything
    assert batches[:num_batches] != batches[num_batches:]
    sets = [batch[0] // 100 for batch in batches]
    assert sum(a != b for a, b in itertools.pairwise(sets)) > 10, "the sets are read one after the other"


@pytest.mark.parametrize("weights", [None, (1.0, 1.0, 1.0), (4.0, 1.0, 0.5)])
def test_a_batch_has_examples_of_one_set_in_stated_shares(weights):
    epochs, num_batches = 40, order_of_batches(SIZES, BATCH, weights).num_per_epoch
    batches = examples_of_batches(weights, epochs * num_batches)
    sets = [{example // 100 for example in batch} for batch in batches]
    assert {len(of_batch) for of_batch in sets} == {1}
    shares = np.bincount([of_batch.pop() for of_batch in sets]) / len(sets)
    wanted = np.array([10, 3, 6] if weights is None else weights)
    np.testing.assert_allclose(shares, wanted / wanted.sum(), atol=0.5 / num_batches)
    for index, size in enumerate(SIZES):
        counts = Counter(example for batch in batches for example in batch if example // 100 == index)
        assert len(counts) == size
        assert max(counts.values()) - min(counts.values()) <= 1, "a set repeats some examples more often than others"


def test_a_batch_depends_on_its_number_alone():
    batches = examples_of_batches((1.0, 2.0, 1.0), 50)
    for step in (1, 17, 30):
        assert examples_of_batches((1.0, 2.0, 1.0), 50 - step, step) == batches[step:]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Questions with a negative, and titles without, which need programs of their own."""
    place, rng = make_world(tmp_path_factory.mktemp("world")), random.Random(0)
    (place / "similarity").mkdir()
    texts = [words(rng, 2, 12) for _ in range(40)]
    rows = {
        "questions": [{"text": text[::-1], "text_pair": text, "negative": "jj" + text} for text in texts[:20]],
        "titles": [{"text": text[:4], "text_pair": text} for text in texts[20:]],
        "dev": [{"text": text[:3], "text_pair": text, "label": number % 2} for number, text in enumerate(texts)],
        "graded": [{"text": text, "text_pair": text[:2], "label": number % 3} for number, text in enumerate(texts)],
    }
    for name, lines in rows.items():
        write_lines(place / "similarity" / f"{name}.jsonl", lines)
    return place


def command(world, workdir, *more):
    return finetune_command(world, workdir, "similarity", *more)


@pytest.mark.slow
def test_a_killed_training_on_two_sets_ends_as_a_whole_training(world, tmp_path, monkeypatch, capsys):
    settings = ("task.train=questions.jsonl,titles.jsonl", "task.train_weights=(3,1)", "checkpoint.every=2")
    assert main(command(world, tmp_path / "whole", *settings)) == 0
    err = capsys.readouterr().err
    assert "40 examples in train" in err
    assert "batches of each training set: questions.jsonl 66.7 %, titles.jsonl 33.3 %" in err
    with monkeypatch.context() as patch:
        stop_after(patch, 5, RuntimeError("killed"))
        with pytest.raises(RuntimeError, match="killed"):
            main(command(world, tmp_path / "killed", *settings))
    assert main(command(world, tmp_path / "killed", *settings)) == 0
    whole, killed = (tmp_path / name for name in ("whole", "killed"))
    assert len({(run / "model" / "model.safetensors").read_bytes() for run in (whole, killed)}) == 1
    losses = [
        [line["loss"] for line in read_lines(next(run.glob("runs/*/metrics.jsonl"))) if line["split"] == "train"]
        for run in (whole, killed)
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 12


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["task.train=titles.jsonl,lost.jsonl"], "lost.jsonl: no such file"),
        (["task.train=titles.jsonl,titles.jsonl"], "task.train names titles.jsonl twice"),
        (["task.train=titles.jsonl,"], "config.task.train=titles.jsonl, has an empty name"),
        (["task.train=titles.jsonl,questions.jsonl", "task.train_weights=(1,)"], "a number above 0 for each of the 2"),
        (["task.train=titles.jsonl", "task.train_weights=(0,)"], "a number above 0 for each of the 1"),
        (
            ["task.train=titles.jsonl,questions.jsonl", "task.dev_fraction=0.1", "task.dev=None"],
            "dev_fraction holds out a dev set of one file",
        ),
        (
            ["task.train=questions.jsonl,titles.jsonl", "task.vector_loss=triplet"],
            "titles.jsonl: config.task.vector_loss=triplet needs a `negative`",
        ),
        (["task.train=graded.jsonl,titles.jsonl"], "graded.jsonl: all 40 training pairs are left out"),
    ],
)
def test_mistakes_name_the_set(world, tmp_path, capsys, settings, words):
    assert main(command(world, tmp_path / "run", *settings)) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_weights_need_files():
    with pytest.raises(UserError, match="train_weights has no effect"):
        settings_of_sets(TaskConfig(train_weights=(1.0,)), KINDS["similarity"])


def test_other_kinds_have_no_weights(world, tmp_path, capsys):
    argv = finetune_command(world, tmp_path / "run", "sequence_classification", "task.train_weights=(1,)")
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert "config.task.train_weights has no effect with config.task.kind=sequence_classification" in err
