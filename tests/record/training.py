"""Losses and parameters of short trainings: 20 steps of each pretraining objective, 5 of each kind of task."""

import functools
import json
import pathlib
from typing import Any

from tests.record.inside import run
from tests.record.values import lines, sums_of_file
from tests.record.world import task_overrides

SMALL = (
    *("model.hidden_size=16", "model.num_heads=2", "model.mlp_size=32", "model.max_positions=64"),
    *("compute.dtype=float32", "train.steps=20", "train.log_every=1", "train.phases[0].seq_len=32"),
    *("train.phases[0].batch_size=8", "evaluate.num_sequences=16", "evaluate.batch_size=8", "evaluate.every=20"),
    *("checkpoint.every=20", "data.num_threads=1"),
)
SECOND = ("train.phases[1].seq_len=64", "train.phases[1].batch_size=4")
TWO_LAYERS, WARMUP = ("model.num_layers=2",), ("optimizer.warmup_steps=5", "optimizer.peak_learning_rate=1e-3")
# Name -> recipe, overrides. Together they use every objective, AdamW, LAMB and Muon.
OBJECTIVES: dict[str, tuple[str, tuple[str, ...]]] = {
    "masked_tokens": ("small_cpu", SECOND + TWO_LAYERS),
    "next_sentence": ("bert", SECOND + TWO_LAYERS + WARMUP),
    "sentence_order": ("albert_base", (*TWO_LAYERS, *WARMUP, "model.embedding_size=8")),
    "replaced_tokens": ("electra_small", (*TWO_LAYERS, *WARMUP, "model.embedding_size=8")),
    "left_to_right": ("left_to_right_cpu", SECOND + TWO_LAYERS),
    "distillation": ("student_cpu", (*SECOND, "model.num_layers=1")),
}
# Kind -> overrides; 20 examples in batches of 4.
TASKS: dict[str, tuple[str, ...]] = {
    "sequence_classification": ("task.max_seq_len=32",),
    "regression": ("task.max_seq_len=32",),
    "token_classification": ("task.max_seq_len=48",),
    "question_answering": (
        "task.max_seq_len=48",
        "task.doc_stride=12",
        "task.max_query_length=10",
        "task.buckets=(48,)",
        "task.epochs=0.1111",
    ),
    "multiple_choice": ("task.max_seq_len=48", "task.buckets=(48,)"),
    "similarity": ("task.max_seq_len=32",),
}
# Of a machine and a moment; a count of equal numbers, which rounding may turn over; or the same in every line.
OF_A_MOMENT = ("per_second", "utilization", "wait", "joules", "bytes", "seconds")
UNRECORDED = (*OF_A_MOMENT, "accuracy", "recall", "unigram_loss", "skipped_steps", "batch_size")
# The loss does not depend on them: what moves them is rounding.
UNMOVED = {"question_answering": ["qa_outputs.bias"], "multiple_choice": ["classifier.bias"]}


@functools.cache
def pretrained(name: str, world: pathlib.Path) -> pathlib.Path:
    """The work directory of a run of OBJECTIVES."""
    recipe, words = OBJECTIVES[name]
    if name == "distillation":
        words += (f"distillation.teacher={pretrained('masked_tokens', world)}",)
    words = (f"data.corpus={world / 'corpus'}", *SMALL, *words)
    run("pretrain", "--config", recipe, "--workdir", world / name, *(f"--config.{word}" for word in words))
    return world / name


@functools.cache
def exported(name: str, world: pathlib.Path, *more: str) -> pathlib.Path:
    """The export of a run of OBJECTIVES."""
    output = world / "-".join((name, "export", *more)).replace("--", "")
    run("export", "--workdir", pretrained(name, world), "--output", output, *more)
    return output


@functools.cache
def finetuned(kind: str, world: pathlib.Path) -> pathlib.Path:
    """The work directory of a task of TASKS."""
    words = [*task_overrides(world / "tasks", kind), *TASKS[kind], "task.test=test.jsonl"]
    words += [] if kind == "question_answering" else ["task.epochs=1"]
    words += ["train.batch_size=4", "train.log_every=1", "evaluate.batch_size=12", "optimizer.peak_learning_rate=1e-3"]
    words += ["optimizer.warmup_fraction=0.2"]
    output = world / f"task-{kind}"
    recipe = {"question_answering": "squad"}.get(kind, kind if kind in ("similarity", "multiple_choice") else "glue")
    run("finetune", "--config", recipe, "--workdir", output, *(f"--config.{word}" for word in words))
    return output


def _metrics(workdir: pathlib.Path) -> dict[str, Any]:
    """Split and step -> the measured numbers."""
    found = {}
    for line in lines(workdir / "metrics.jsonl"):
        name = f"{line.pop('split')} {line.pop('step')}"
        found[name] = {key: x for key, x in line.items() if not any(word in key for word in UNRECORDED)}
    return found


def of_objective(name: str, world: pathlib.Path) -> dict[str, Any]:
    found = {"metrics": _metrics(pretrained(name, world))}
    found["parameters"] = sums_of_file(exported(name, world) / "model.safetensors")
    if name == "replaced_tokens":
        found["generator"] = sums_of_file(exported(name, world, "--part", "generator") / "model.safetensors")
    return found


def of_task(kind: str, world: pathlib.Path) -> dict[str, Any]:
    place = finetuned(kind, world)
    (training,) = (place / "runs").iterdir()
    results = json.loads((place / "results.json").read_text())
    parameters = sums_of_file(place / "model" / "model.safetensors")
    for name in UNMOVED.get(kind, []):
        del parameters[name]
    return {
        "run": training.name,
        "metrics": _metrics(training),
        "results": {key: x for key, x in results.items() if not any(word in key for word in OF_A_MOMENT)},
        "parameters": parameters,
    }
