"""Trainings with weighted labels, the focal loss, sets of labels, and sentence vectors: killed and resumed, they end
with equal bits."""

import random

import pytest

from bert_jax.cli.main import main
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from tests.helpers.finetuning_runs import finetune_command, make_world, read_lines, stop_after, words, write_lines

CASES = {
    "rare labels": ("sequence_classification", "task.class_weights=inverse_square_root", "task.focal_gamma=2.0"),
    "label sets": (
        "multilabel_classification",
        "task.class_weights=a=3",
        "task.focal_gamma=1.5",
        "task.oversample=True",
    ),
    **{head: ("similarity", "task.positive_from=1", f"task.vector_head={head}") for head in VECTOR_HEADS},
}
CASES["late_interaction"] += ("task.query_length=16",)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    place, rng = make_world(tmp_path_factory.mktemp("world")), random.Random(0)
    for split, count in {"train": 37, "dev": 20}.items():
        texts = [words(rng, 2, 12) for _ in range(count)]
        rows = {
            "multilabel_classification": [
                {"text": text, "label": [letter for letter in "abc" if letter in text]} for text in texts
            ],
            "similarity": [
                {"text": text, "text_pair": text[::-1] if n % 3 else "j", "label": int(n % 3 > 0)}
                for n, text in enumerate(texts)
            ],
        }
        for kind, lines in rows.items():
            (place / kind).mkdir(exist_ok=True)
            write_lines(place / kind / f"{split}.jsonl", lines)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_killed_run_ends_as_a_whole_run(world, tmp_path, monkeypatch, case):
    runs = [tmp_path / "whole", tmp_path / "killed"]
    whole, killed = (
        finetune_command(world, run, *CASES[case], "checkpoint.every=3", "train.grad_accum_steps=2") for run in runs
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
    assert len(first) >= 6
