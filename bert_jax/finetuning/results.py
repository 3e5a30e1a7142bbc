"""The summary of all trainings of a task, the best model and its predictions."""

import json
import math
import pathlib
import shutil
import statistics
from typing import Any

from bert_jax import files
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.config import ComputeConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.errors import writing
from bert_jax.finetuning.inputs import TaskInputs
from bert_jax.finetuning.task_data import TaskSplit, is_labeled, score_split
from bert_jax.finetuning.training import ELSEWHERE, score_to_compare
from bert_jax.inference.outputs import Outputs, single_device_predictor
from bert_jax.interop.huggingface import TASK_FILE
from bert_jax.models import make_model
from bert_jax.objectives.tasks import model_for_predictions
from bert_jax.tasks import submission
from bert_jax.tasks.batching import Feed
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Predictions, Threshold
from bert_jax.tasks.label_report import label_report
from bert_jax.tasks.scoring import score_predictions

LABELS_FILE = "labels.json"  # name of a dev set -> its `label_report`, for the report page


def summarize_trainings(task: str, metric: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all results, the best result, and for each learning rate the mean and deviation over the seeds.

    Means and deviations leave out scores that are not finite. If no score is finite, mean and deviation are None.
    """
    by_rate = {}
    for rate in dict.fromkeys(result["learning_rate"] for result in results):
        scores = [result["scores"] for result in results if result["learning_rate"] == rate]
        by_rate[f"{rate:g}"] = {
            name: _mean_and_deviation([seed[name] for seed in scores if math.isfinite(score_to_compare(seed, name))])
            for name in scores[0]
        }
    best = max(results, key=lambda result: score_to_compare(result["scores"], metric))
    return {"task": task, "metric": metric, "best": best, "mean": by_rate, "runs": results}


def _mean_and_deviation(values: list[float]) -> dict[str, float | None]:
    """Return the mean and the standard deviation of scores; the deviation of a single score is 0."""
    if not values:
        return {"mean": None, "standard_deviation": None}
    return {
        "mean": statistics.fmean(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
    }


def write_results(
    inputs: TaskInputs,
    settings: TaskConfig,
    compute: ComputeConfig,
    feed: Feed,
    directory: pathlib.Path,
    summary: dict[str, Any],
    console: Console,
) -> dict[str, Any]:
    """Write the best model, its predictions on the dev and test sets in the benchmark's formats, and results.json.

    Returns:
        The content of results.json: `summary` and, as `test`, the scores of the best model on the test sets with
            labels. Thresholds are tuned on the dev set. None is a score that is not finite.
    """
    task, best = inputs.task, summary["best"]
    source = directory / "runs" / best["run"] / f"best-{best['step']}"
    files.check_sums(source, max_bytes=None)
    with writing(directory, ELSEWHERE):
        (directory / "predictions").mkdir(exist_ok=True)
    loaded = read_weights(source, inputs.weights.heads, console=console)
    model = model_for_predictions(make_model(loaded.config, compute, loaded.heads), task.kind, settings)
    outputs_of = single_device_predictor(model, loaded.params, feed, compute)

    def predict_split(split: TaskSplit) -> list[Outputs]:
        total = len(split.features)
        return outputs_of(
            split.features, lambda done: console.progress(f"predicting {split.name}", done, total, "inputs")
        )

    def write_predictions(split: TaskSplit, predictions: Predictions) -> None:
        path = directory / "predictions" / submission.submission_file_name(task, split.name)
        submission.write_submission(task, split.examples, predictions.values, path, predictions.details)

    threshold: Threshold = None
    reports: dict[str, dict[str, Any] | None] = {}
    for split in inputs.dev:
        scored = score_split(task, settings, split, predict_split(split))
        threshold = scored.threshold
        write_predictions(split, scored.predictions)
        reports[split.name] = label_report(KINDS[task.kind], task.labels, split.examples, scored.predictions)
    test_scores = {}
    for split in inputs.test:
        predictions = KINDS[task.kind].predict(
            split.examples, split.features, predict_split(split), settings, threshold
        )
        write_predictions(split, predictions)
        if is_labeled(task, split):
            scores = score_predictions(task, split.examples, predictions.values)
            test_scores[split.name] = {name: x if math.isfinite(x) else None for name, x in scores.items()}
    results = summary | ({"test": test_scores} if test_scores else {})
    with writing(directory, ELSEWHERE):
        with files.new_directory(directory / "model", replace=True) as partial:
            shutil.copytree(source, partial, dirs_exist_ok=True)
            tuned: dict[str, Any] = {}
            if task.impossible:
                tuned = {"impossible": False} if threshold is None else {"null_threshold": threshold}
            elif threshold is not None:
                tuned = {"thresholds": threshold}
            for path in partial.rglob(TASK_FILE):  # the task files of the model and of its adapter
                values = json.loads(files.read_file(path)) | tuned
                path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        if any(reports.values()):
            files.write_text(directory / LABELS_FILE, json.dumps(reports, indent=1) + "\n")
        files.write_text(directory / "results.json", json.dumps(results, indent=1) + "\n")
    return results
