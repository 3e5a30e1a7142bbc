"""Trainings with weighted labels, the focal loss and sets of labels: killed and resumed, they end with equal bits."""

import random

import pytest

from bert_jax.cli.main import main
from tests.helpers.finetuning_runs import finetune_command, make_world, read_lines, stop_after, words, write_lines

RARE = {
    "sequence_classification": ("task.class_weights=inverse_square_root", "task.focal_gamma=2.0"),
    "multilabel_classification": ("task.class_weights=balanced", "task.focal_gamma=1.5", "task.oversample=True"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    place, rng = make_world(tmp_path_factory.mktemp("world")), random.Random(0)
    (place / "multilabel_classification").mkdir()
    for split, count in {"train": 37, "dev": 20}.items():
        texts = [words(rng, 2, 12) for _ in range(count)]
        rows = [{"text": text, "label": [letter for letter in "abc" if letter in text]} for text in texts]
        write_lines(place / "multilabel_classification" / f"{split}.jsonl", rows)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("kind", RARE)
def test_a_killed_run_ends_as_a_whole_run(world, tmp_path, monkeypatch, kind):
    runs = [tmp_path / "whole", tmp_path / "killed"]
    whole, killed = (
        finetune_command(world, run, kind, *RARE[kind], "checkpoint.every=3", "train.grad_accum_steps=2")
        for run in runs
    )
    assert main(whole) == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 4, RuntimeError("killed"))
        with pytest.raises(RuntimeError, match="killed"):
            main(killed)
    assert main(killed) == 0
    first, second = ((run / "model/model.safetensors").read_bytes() for run in runs)
    assert first == second
    first, second = (
        [line["loss"] for line in read_lines(next(run.glob("runs/*/metrics.jsonl"))) if line["split"] == "train"]
        for run in runs
    )
    assert first == second
    assert len(first) >= 10
