"""One training of a task: one learning rate, one seed."""

import dataclasses
import hashlib
import json
import pathlib
import shutil
from typing import Any

import jax

from bert_jax import strict_json
from bert_jax.config import TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError, writing
from bert_jax.files import write_text
from bert_jax.finetuning.setup import Setup, task_model, task_objective
from bert_jax.finetuning.task_data import Evaluation, training_batches
from bert_jax.interop import huggingface
from bert_jax.interop.huggingface import TASK_FILE
from bert_jax.interop.sentence_modules import SentenceModules, sentence_module_files
from bert_jax.models import Params, draw_missing
from bert_jax.objectives.tasks import head
from bert_jax.parallel import sharding
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.training.loop import Data, RunContext, fit
from bert_jax.training.metrics import NOT_SCORES, read_metrics

ELSEWHERE = "make room, or choose another --workdir"


def train_one(
    setup: Setup,
    directory: pathlib.Path,
    mesh: jax.sharding.Mesh,
    fingerprint: dict[str, str],
    console: Console,
    interrupt: Interrupt | None,
    watchdog: Watchdog | None,
) -> dict[str, Any] | None:
    """Run or resume one training; return the scores and the step of its best evaluation, None where interrupted."""
    done = directory / "result.json"
    if (found := _read_result(done, console)) is not None:
        return found
    config, task = setup.config, setup.task
    evaluation = Evaluation(config.task, task, setup.dev, setup.evaluation_feed, task_model(setup), mesh)
    share = sharding.batch_blocks(mesh)
    lines = read_metrics(directory / "metrics.jsonl")
    history = {line["step"]: line for line in lines if line["split"] == "heldout"}

    def should_stop(step: int, scores: dict[str, float], params: Params) -> bool:
        for later in [at for at in history if at > step]:  # from before the run was stopped: measured again, if at all
            del history[later]
        history[step] = scores
        best, since = best_of(history, setup.metric)
        if best == step:
            keep_best(setup, directory, step, params)
        if _exhausted(since, config.task):
            console.say(f"no better {setup.metric} in {since} evaluations: stopping, the best is of step {best:,}")
            return True
        return False

    data = Data(
        lambda phase, step: training_batches(config, setup.feed, setup.train, share, step),
        evaluation.batches,
        fingerprint,
        evaluation,
        should_stop,
        num_heldout=lambda phase: len(evaluation.planned),
    )
    start = None if config.task.random_weights else _starting_params(setup)
    run = RunContext(
        config,
        task_objective(setup),
        setup.phases,
        data,
        directory,
        console,
        interrupt,
        watchdog,
        start=start,
        frozen=setup.teacher.params if setup.teacher else (),
        root=directory.parents[1],
    )
    stopped = bool(history) and _exhausted(best_of(history, setup.metric)[1], config.task)
    if not stopped and not fit(run):
        return None
    best, _ = best_of(history, setup.metric)
    if jax.process_index() == 0 and not (directory / f"best-{best}").is_dir():
        raise UserError(
            f"{directory}: metrics.jsonl lost the line of its best model; remove this directory to train again"
        )
    scores = {k: v for k, v in history[best].items() if k not in NOT_SCORES}
    result = {"step": best, "scores": scores}
    if jax.process_index() == 0:
        with writing(directory, ELSEWHERE):
            write_text(done, json.dumps(result | {"seal": _seal(result)}) + "\n")
    return result


def _read_result(path: pathlib.Path, console: Console) -> dict[str, Any] | None:
    """The result of a training that ended; None where there is none, or one that is damaged."""
    try:
        found = strict_json.parse(path.read_text(encoding="utf-8"))
        numbers = [found["step"], *found["scores"].values()]
        if not all(isinstance(one, int | float) for one in numbers) or not found["scores"]:
            raise ValueError("no step and scores")
        if "seal" in found and found.pop("seal") != _seal(found):  # results of before have none
            raise ValueError("its seal does not match")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        console.say(f"{path}: damaged ({error}); made again from metrics.jsonl and the checkpoints")
        return None
    return {"step": found["step"], "scores": {k: v for k, v in found["scores"].items() if k not in NOT_SCORES}}


def _seal(result: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


def best_of(history: dict[int, dict[str, float]], metric: str) -> tuple[int, int]:
    """Return the step of the highest score, the first of equals, and how many evaluations followed it."""
    best = max(sorted(history), key=lambda step: history[step][metric])
    return best, sum(step > best for step in history)


def keep_best(setup: Setup, directory: pathlib.Path, step: int, params: Params) -> None:
    """Write `best-STEP`, a model directory, then remove the one before."""
    on_host = jax.device_get(jax.jit(lambda x: x, out_shardings=sharding.replicated(_mesh_of(params)))(params))
    if jax.process_index():
        return
    place = directory / f"best-{step}"
    shutil.rmtree(place, ignore_errors=True)
    task = setup.task
    settings = {
        "name": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "impossible": task.impossible,
        "config": dataclasses.asdict(setup.config.task),
    }
    extra = {TASK_FILE: json.dumps(settings, indent=1) + "\n"}
    heads = (head(task.kind, len(task.labels)),)
    if heads[0].name == "sentence_embedding":
        known = setup.start.sentences or SentenceModules()  # prompts and the name of a similarity stay
        max_seq_len = setup.config.task.max_seq_len
        modules = dataclasses.replace(known, folder="", normalize=True, max_seq_len=max_seq_len)
        extra |= sentence_module_files(modules, setup.architecture.hidden_size)
    huggingface.export_model(on_host, setup.architecture, heads, setup.start.directory, place, task.labels, extra)
    for old in directory.glob("best-*"):
        if old != place:
            shutil.rmtree(old, ignore_errors=True)


def _starting_params(setup: Setup) -> Params:
    """The weights to start from; missing heads are drawn from the seed of this training."""
    new = {path.split("/")[0] for path in setup.start.new}
    kept = {name: x for name, x in setup.start.params.items() if name not in new}
    return draw_missing(setup.architecture, setup.start.heads, kept, jax.random.key(setup.config.seed))


def _exhausted(since: int, settings: TaskConfig) -> bool:
    return settings.patience is not None and settings.patience <= since


def _mesh_of(params: Params) -> jax.sharding.Mesh:
    mesh = jax.tree.leaves(params)[0].sharding.mesh
    assert isinstance(mesh, jax.sharding.Mesh)
    return mesh
