"""Fine-tuning put together: weights, a task and a config in; the best model, its scores and its predictions out.

A work directory holds `runs/lr..._seed...`, one training each, `model/`, the best of them all as a directory of Hugging
Face, `results.json` with every score, and `predictions/`.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
import statistics
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from bert_jax.config import Config, PhaseConfig, TaskConfig, flatten, to_json
from bert_jax.console import Console
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.errors import UserError, did_you_mean, writing
from bert_jax.inference.batching import Feed, row_predictor
from bert_jax.interop.huggingface import model as huggingface
from bert_jax.models import Params, make_model
from bert_jax.objectives.tasks import finetuning, head, task_model
from bert_jax.parallel import sharding
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.runs import initial_weights as weights
from bert_jax.runs.initial_weights import Weights, describe_start, read_weights
from bert_jax.runs.task_data import Evaluation, Part, digest, measure, read_part, score_names, training_batches
from bert_jax.tasks import submission
from bert_jax.tasks.batching import choose_buckets
from bert_jax.tasks.predictions import Predictions, predictions
from bert_jax.tasks.reading import readers
from bert_jax.tasks.table import resolve
from bert_jax.tasks.task import Task
from bert_jax.training import workdir
from bert_jax.training.checkpoint import versions
from bert_jax.training.loop import Data, fit
from bert_jax.training.metrics import read_lines
from bert_jax.training.step import layout

SETTINGS = "task.json"  # beside an exported model: what `predict` has to know of its task
ELSEWHERE = "make room, or choose another --workdir"
# What pretraining reads and a task does not -> what it takes instead: set, it would be ignored.
NOT_READ = {
    "model": "architecture and dropout are those of config.init_from; config.task.dropout changes the latter",
    "data": "config.task says what is read",
    "train.steps": "give config.task.epochs",
    "train.phases": "give config.task.max_seq_len, or config.task.buckets",
    "evaluate.num_sequences": "dev sets are evaluated whole",
}


class Setting(NamedTuple):
    """What all trainings of one call share."""

    config: Config
    task: Task
    start: Weights
    tokenizer: Tokenizer
    train: Part
    dev: tuple[Part, ...]
    test: tuple[Part, ...]
    feed: Feed
    evaluation_feed: Feed
    metric: str  # the score that picks the best

    @property
    def classes(self) -> int:
        """Labels that the head tells apart."""
        return len(self.task.labels)

    @property
    def fingerprint(self) -> dict[str, str]:
        """Of what a resumed training must find again."""
        rows = digest((self.train, *self.dev))
        return {"task": rows, "tokenizer": self.tokenizer.sha256, "weights": weights.digest(self.start)}


def finetune(
    config: Config,
    directory: pathlib.Path,
    console: Console,
    interrupt: Interrupt | None = None,
    watchdog: Watchdog | None = None,
) -> dict[str, Any] | None:
    """Train `config.task` from `config.init_from` with each learning rate and seed; what `results.json` holds.

    None where a signal ended it early: the same call goes on. Of several processes each calls it, with a directory
    that all of them see. Raises UserError for weights, data or settings that do not fit each other, before anything
    is written.
    """
    tried = rates(config)
    setting = prepare(config, console)
    fingerprint = setting.fingerprint
    if watchdog:
        values = {f"config.{key}": str(value) for key, value in flatten(to_json(setting.config)).items()}
        watchdog.check_agreement(values | versions() | fingerprint)
    mesh, _ = layout(setting.config, finetuning(setting.config, setting.task.kind, setting.classes))
    first = jax.process_index() == 0
    with workdir.locked(directory) if first else contextlib.nullcontext():
        if first:
            workdir.claim(directory, setting.config, fingerprint, setting.start.directory)
        describe_start(setting.start, console)
        if config.task.random_weights:
            console.say("config.task.random_weights: of these the architecture and the tokenizer, no parameter")
        elif setting.start.labels and setting.task.labels not in ((), setting.start.labels):
            old, new = (", ".join(names) for names in (setting.start.labels, setting.task.labels))
            console.say(f"the head was trained to tell {old}; it goes on, to tell {new}, in this order")
        results = []
        for rate in tried:
            for seed in range(config.seed, config.seed + config.task.num_seeds):
                optimizer = dataclasses.replace(config.optimizer, peak_learning_rate=rate)
                one = dataclasses.replace(setting.config, seed=seed, optimizer=optimizer)
                place = directory / "runs" / f"lr{rate:g}_seed{seed}"
                console.say(f"training with learning rate {rate:g} and seed {seed} in {place}")
                found = train_one(setting._replace(config=one), place, mesh, fingerprint, console, interrupt, watchdog)
                if found is None:
                    return None
                results.append({"learning_rate": rate, "seed": seed, "run": place.name} | found)
        summary = summarise(setting, results)
        if first:
            finish(setting, directory, summary, console)
        return summary


def rates(config: Config) -> tuple[float, ...]:
    """The learning rates to try; UserError where two are the same, as a run would count twice."""
    found = config.task.learning_rates or (config.optimizer.peak_learning_rate,)
    names = [f"{rate:g}" for rate in found]
    if len(set(names)) < len(names) or min(found) < 0:
        raise UserError(f"config.task.learning_rates={found}: give each once, and none below 0")
    return found


def prepare(config: Config, console: Console) -> Setting:
    """Weights, task and data, checked against each other."""
    settings = config.task
    _check_read(config)
    if not config.init_from:
        raise UserError("no weights: give --config.init_from=DIR, an export, a work directory, or one of transformers")
    task = resolve(settings)
    wanted = (head(task.kind, len(task.labels)),)
    start = read_weights(config.init_from, wanted, jax.random.key(config.seed), console)
    tokenizer = load_tokenizer(start.directory)
    _check(start, tokenizer, settings)
    parts = {split: readers.parts(task, settings, split) for split in readers.SPLITS}
    for split in ("train", "dev"):
        if not parts[split]:
            raise UserError(
                f"task '{task.name}': no {split} set in {settings.data or '.'}; name a file in config.task.{split}"
            )
    (train,), dev, test = (
        tuple(read_part(task, settings, name, tokenizer, console) for name in names) for names in parts.values()
    )
    metric = settings.metric or task.best
    known = score_names(task, dev)
    if metric not in known:
        raise UserError(f"config.task.metric={metric} is none of {', '.join(known)}{did_you_mean(metric, known)}")
    buckets = _buckets(settings, (train, *dev), test, start.config.max_positions)
    feed = Feed(buckets, config.train.batch_size, start.config.num_token_types, tokenizer.pad_id)
    per_epoch = math.ceil(len(train.rows) / feed.batch_size)
    steps = max(1, round(settings.epochs * per_epoch))
    model = start.config
    if settings.dropout >= 0:
        rate = settings.dropout
        model = dataclasses.replace(model, dropout=rate, attention_dropout=rate, classifier_dropout=rate)
    config = dataclasses.replace(
        config,
        model=model,
        init_from=os.path.abspath(config.init_from),
        train=dataclasses.replace(config.train, steps=steps, phases=(PhaseConfig(seq_len=buckets[-1]),)),
        evaluate=dataclasses.replace(config.evaluate, every=config.evaluate.every or per_epoch),
        checkpoint=dataclasses.replace(config.checkpoint, every=config.checkpoint.every or per_epoch),
    )
    console.say(
        f"task {task.name}: {len(train.examples):,} examples in train, "
        + ", ".join(f"{len(part.examples):,} in {part.name}" for part in dev)
        + f"; {steps:,} steps of {feed.batch_size} rows, of up to {', '.join(map(str, buckets))} tokens"
    )
    evaluation_feed = feed._replace(batch_size=config.evaluate.batch_size)
    return Setting(config, task, start, tokenizer, train, dev, test, feed, evaluation_feed, metric)


def _check_read(config: Config) -> None:
    default = flatten(to_json(Config()))
    for key, value in flatten(to_json(config)).items():
        for name, instead in NOT_READ.items():
            if f"{key}.".startswith(f"{name}.") and value != default.get(key):
                raise UserError(f"config.{key}={value} is for pretraining, and not read here; {instead}")


def _buckets(
    settings: TaskConfig, parts: tuple[Part, ...], test: tuple[Part, ...], max_positions: int
) -> tuple[int, ...]:
    """The lengths to pad to, chosen by the rows of `parts`, so that the longest row of all sets fits."""
    lengths = np.array([row.length for part in parts for row in part.rows])
    longest = max(row.length for part in (*parts, *test) for row in part.rows)
    buckets = tuple(sorted(settings.buckets)) or choose_buckets(lengths, longest)
    if buckets[0] < 1 or not longest <= buckets[-1] <= max_positions:
        raise UserError(
            f"config.task.buckets={settings.buckets}: the last must lie from {longest}, the longest row, to "
            f"{max_positions}, which the model reads"
        )
    return buckets


def _check(start: Weights, tokenizer: Tokenizer, settings: TaskConfig) -> None:
    if tokenizer.vocab_size > start.config.vocab_size:
        raise UserError(
            f"{start.directory}: its tokenizer has {tokenizer.vocab_size:,} tokens, its model "
            f"{start.config.vocab_size:,}; take the tokenizer that the model was trained with"
        )
    if settings.max_seq_len > start.config.max_positions:
        raise UserError(
            f"config.task.max_seq_len={settings.max_seq_len}, but the model reads {start.config.max_positions} tokens"
        )


def train_one(
    setting: Setting,
    directory: pathlib.Path,
    mesh: jax.sharding.Mesh,
    fingerprint: dict[str, str],
    console: Console,
    interrupt: Interrupt | None,
    watchdog: Watchdog | None,
) -> dict[str, Any] | None:
    """One training, or what is left of it: the scores and the step of its best evaluation; None where interrupted."""
    done = directory / "result.json"
    if done.exists():
        found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return found
    config, task = setting.config, setting.task
    objective = finetuning(config, task.kind, setting.classes)
    model = task_model(config, task.kind, setting.classes)
    evaluation = Evaluation(config.task, task, setting.dev, setting.evaluation_feed, model, mesh)
    share = sharding.batch_blocks(mesh)
    lines = read_lines(directory / "metrics.jsonl")
    history = {line["step"]: line for line in lines if line["split"] == "heldout"}

    def should_stop(step: int, scores: dict[str, float], params: Params) -> bool:
        for later in [at for at in history if at > step]:  # before the run was stopped: measured again, if at all
            del history[later]
        history[step] = scores
        best, since = best_of(history, setting.metric)
        if best == step:
            keep_best(setting, directory, step, params)
        if _exhausted(since, config.task):
            console.say(f"no better {setting.metric} in {since} evaluations: stopping, the best is of step {best:,}")
            return True
        return False

    data = Data(
        lambda phase, step: training_batches(config, setting.feed, setting.train, share, step),
        evaluation.batches,
        fingerprint,
        evaluation,
        should_stop,
    )
    start = None if config.task.random_weights else _with_new_heads(setting)
    stopped = bool(history) and _exhausted(best_of(history, setting.metric)[1], config.task)
    if not stopped and not fit(config, objective, data, directory, console, interrupt, watchdog, start):
        return None
    best, _ = best_of(history, setting.metric)
    scores = {k: v for k, v in history[best].items() if k not in ("step", "split", "seq_len")}
    result = {"step": best, "scores": scores}
    if jax.process_index() == 0:
        with writing(directory, ELSEWHERE):
            done.write_text(json.dumps(result) + "\n", encoding="utf-8")
    return result


def _with_new_heads(setting: Setting) -> Params:
    """The weights to start from; what they lacked is drawn from the seed of this training."""
    if not setting.start.new:
        return setting.start.params
    model = make_model(setting.config.model, setting.config.compute, setting.start.heads)
    tops = {path.split("/")[0] for path in setting.start.new}

    def draw(rng: jax.Array) -> Params:
        fresh = model.init(rng)
        return {name: fresh[name] for name in tops}

    return setting.start.params | cast(Params, jax.device_get(jax.jit(draw)(jax.random.key(setting.config.seed))))


def best_of(history: dict[int, dict[str, float]], metric: str) -> tuple[int, int]:
    """The step of the highest score, the first of equals, and how many evaluations followed it."""
    best = max(sorted(history), key=lambda step: history[step][metric])
    return best, sum(step > best for step in history)


def _exhausted(since: int, settings: TaskConfig) -> bool:
    return 0 < settings.patience <= since


def keep_best(setting: Setting, directory: pathlib.Path, step: int, params: Params) -> None:
    """Write `best-STEP`, a model directory, then remove the one before."""
    on_host = jax.device_get(jax.jit(lambda x: x, out_shardings=sharding.replicated(_mesh_of(params)))(params))
    if jax.process_index():
        return
    place = directory / f"best-{step}"
    shutil.rmtree(place, ignore_errors=True)
    task, config = setting.task, setting.config
    settings = {
        "name": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "impossible": task.impossible,
        "config": dataclasses.asdict(config.task),
    }
    extra = {SETTINGS: json.dumps(settings, indent=1) + "\n"}
    heads, source = (head(task.kind, setting.classes),), setting.start.directory
    huggingface.export_model(on_host, config.model, heads, source, place, task.labels, extra)
    for old in directory.glob("best-*"):
        if old != place:
            shutil.rmtree(old, ignore_errors=True)


def _mesh_of(params: Params) -> jax.sharding.Mesh:
    mesh = jax.tree.leaves(params)[0].sharding.mesh
    assert isinstance(mesh, jax.sharding.Mesh)
    return mesh


def summarise(setting: Setting, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Every result, the best of them, and for each learning rate the mean and the spread over the seeds."""
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
    best = max(results, key=lambda one: one["scores"][setting.metric])
    return {"task": setting.task.name, "metric": setting.metric, "best": best, "mean": by_rate, "runs": results}


def finish(setting: Setting, directory: pathlib.Path, summary: dict[str, Any], console: Console) -> None:
    """The best model and its predictions of the dev and test sets, in each benchmark's format; results.json last."""
    task, settings, best = setting.task, setting.config.task, summary["best"]
    source = directory / "runs" / best["run"] / f"best-{best['step']}"
    partial = directory / "model.partial"
    with writing(directory, ELSEWHERE):
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(source, partial)
        (directory / "predictions").mkdir(exist_ok=True)
    loaded = huggingface.load_model(source)
    model = make_model(loaded.config, setting.config.compute, loaded.heads)
    predict = row_predictor(model, loaded.params, setting.evaluation_feed)

    def write(part: Part, made: Predictions) -> None:
        place = directory / "predictions" / submission.file_name(task, part.name)
        submission.write(task, part.examples, made.values, place)

    threshold = None
    for part in setting.dev:
        found = measure(task, settings, part, predict(part.rows))
        threshold = found.null_threshold
        write(part, found.predictions)
    for part in setting.test:
        made = predictions(task.kind, part.examples, part.rows, predict(part.rows), settings, threshold)
        write(part, made)
    if threshold is not None:
        path = partial / SETTINGS
        values = json.loads(path.read_text(encoding="utf-8")) | {"null_threshold": threshold}
        path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    with writing(directory, ELSEWHERE):
        shutil.rmtree(directory / "model", ignore_errors=True)
        partial.rename(directory / "model")
        fresh = directory / "results.json.tmp"
        fresh.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, directory / "results.json")
    for rate, scores in summary["mean"].items():
        figures = "  ".join(f"{k} {v['mean']:.4f} ± {v['standard_deviation']:.4f}" for k, v in scores.items())
        console.say(f"learning rate {rate}, {settings.num_seeds} seeds: {figures}")
    console.say(f"best: {directory / 'model'}, of {best['run']} at step {best['step']:,}")
