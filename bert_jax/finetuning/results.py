"""The summary of all trainings of a task, the best model and its predictions."""

import json
import pathlib
import shutil
import statistics
from typing import Any

from bert_jax import files
from bert_jax.console import Console
from bert_jax.errors import writing
from bert_jax.finetuning.setup import Setup
from bert_jax.finetuning.task_data import Part, measure
from bert_jax.finetuning.train import ELSEWHERE
from bert_jax.inference.outputs import Outputs, local_predictor
from bert_jax.interop import huggingface
from bert_jax.interop.huggingface import TASK_FILE
from bert_jax.models import make_model
from bert_jax.tasks import submission
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import Predictions


def summarize(setup: Setup, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return every result, the best of them, and for each learning rate mean and standard deviation over the seeds."""
    by_rate = {}
    for rate in dict.fromkeys(one["learning_rate"] for one in results):
        scores = [one["scores"] for one in results if one["learning_rate"] == rate]
        by_rate[f"{rate:g}"] = {
            name: {
                "mean": statistics.fmean(one[name] for one in scores),
                "standard_deviation": statistics.stdev(one[name] for one in scores) if len(scores) > 1 else 0.0,
            }
            for name in scores[0]
        }
    best = max(results, key=lambda one: one["scores"][setup.metric])
    return {"task": setup.task.name, "metric": setup.metric, "best": best, "mean": by_rate, "runs": results}


def write_results(setup: Setup, directory: pathlib.Path, summary: dict[str, Any], console: Console) -> None:
    """Write the best model, its predictions of the dev and test sets in each benchmark's format, and results.json."""
    task, settings, best = setup.task, setup.config.task, summary["best"]
    source = directory / "runs" / best["run"] / f"best-{best['step']}"
    files.check_sums(source, max_bytes=None)
    with writing(directory, ELSEWHERE):
        (directory / "predictions").mkdir(exist_ok=True)
    loaded = huggingface.load_model(source, setup.start.heads)
    model = make_model(loaded.config, setup.config.compute, loaded.heads)
    outputs_of = local_predictor(model, loaded.params, setup.evaluation_feed)

    def predict(part: Part) -> list[Outputs]:
        count = len(part.features)
        return outputs_of(
            part.features, lambda done: console.progress(f"predicting {part.name}", done, count, "inputs")
        )

    def write(part: Part, made: Predictions) -> None:
        place = directory / "predictions" / submission.file_name(task, part.name)
        submission.write(task, part.examples, made.values, place)

    threshold = None
    for part in setup.dev:
        found = measure(task, settings, part, predict(part))
        threshold = found.null_threshold
        write(part, found.predictions)
    for part in setup.test:
        made = KINDS[task.kind].predict(part.examples, part.features, predict(part), settings, threshold)
        write(part, made)
    with writing(directory, ELSEWHERE):
        with files.new_directory(directory / "model", replace=True) as partial:
            shutil.copytree(source, partial, dirs_exist_ok=True)
            if task.impossible:
                path = partial / TASK_FILE
                values = json.loads(path.read_text(encoding="utf-8"))
                values |= {"impossible": False} if threshold is None else {"null_threshold": threshold}
                path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        files.write_text(directory / "results.json", json.dumps(summary, indent=1) + "\n")
