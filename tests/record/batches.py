"""Digests of the first batches of every recipe."""

import contextlib
import itertools
import json
import pathlib

from tests.record.inside import finetuning_batches, pretraining_batches
from tests.record.texts import said
from tests.record.values import digests
from tests.record.world import VOCABULARY, task_overrides

BATCHES, HELDOUT = 2, 1
# Recipe of a task -> the kind of the task that it is given.
TASKS = {
    "electra_glue": "regression",
    "glue": "sequence_classification",
    "multiple_choice": "multiple_choice",
    "roberta_glue": "sequence_classification",
    "reranking": "reranking",
    "similarity": "similarity",
    "squad": "question_answering",
    "token_classification": "token_classification",
    "vectors_cpu": "similarity",
}
# What no recipe sets: name -> recipe, overrides.
MORE = {
    "bert, packed": ("bert", ["data.packing=4"]),
    "small_cpu, packed, whole words": ("small_cpu", ["data.packing=4", "data.masking=whole_word"]),
    "small_cpu, spans": ("small_cpu", ["data.masking=span"]),
    "small_cpu, rarity": ("small_cpu", ["data.rarity_power=0.5"]),
    "bert, seed 7": ("bert", ["seed=7"]),
}


def recipes() -> list[str]:
    return json.loads(said("config", "--json"))["recipes"]


def batches_of(recipe: str, world: pathlib.Path) -> dict[str, dict[str, str]]:
    """Phase and number -> name of an array -> digest."""
    base, more = MORE.get(recipe, (recipe, []))
    if base.startswith("finetune/"):
        kind = TASKS[base.removeprefix("finetune/")]
        with contextlib.closing(finetuning_batches(base, task_overrides(world / "tasks", kind))) as made:
            return {f"batch {n}": digests(batch) for n, batch in enumerate(itertools.islice(made, BATCHES))}
    fields = json.loads(said("config", base, "--json"))["fields"]
    sizes = [field["key"] for field in fields if field["key"].endswith("].batch_size")]
    words = [f"data.corpus={world / 'corpus'}", *(f"{key}=4" for key in sizes), *more]
    found = {}
    for number, (training, heldout) in enumerate(pretraining_batches(base, words, len(VOCABULARY))):
        for name, made, count in (("batch", training, BATCHES), ("held-out", heldout, HELDOUT)):
            with contextlib.closing(made):
                for n, batch in enumerate(itertools.islice(made, count)):
                    found[f"phase {number}, {name} {n}"] = digests(batch)
    return found
