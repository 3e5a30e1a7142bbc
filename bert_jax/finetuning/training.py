"""One training of a task, with one learning rate and one seed."""

import dataclasses
import hashlib
import json
import math
import pathlib
import shutil
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from bert_jax import strict_json
from bert_jax.config import TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError, writing
from bert_jax.files import read_file, write_text
from bert_jax.finetuning.dev_retrieval import sentence_modules_of_task
from bert_jax.finetuning.inputs import TaskInputs, peft_can_open, task_model
from bert_jax.finetuning.task_data import DevEvaluation
from bert_jax.finetuning.training_sets import TrainingSet, task_training_batches
from bert_jax.interop import huggingface
from bert_jax.interop.huggingface.model import TASK_FILE
from bert_jax.interop.huggingface.peft import FOLDER, peft_files
from bert_jax.interop.sentence_modules import sentence_module_files
from bert_jax.models import Params, draw_missing
from bert_jax.models.adapters import init_adapter_matrices, merge_adapter_into_weights
from bert_jax.models.layers import ADAPTER
from bert_jax.objectives.base import Batch
from bert_jax.objectives.frozen_encoder import frozen_encoder_and_teacher, join_model_params, part_without_encoder
from bert_jax.objectives.vectors import LOG_TEMPERATURE, log_temperature
from bert_jax.parallel import sharding
from bert_jax.tasks.custom import with_columns_of_examples
from bert_jax.tasks.kinds import KINDS
from bert_jax.tokenizer.save import copy_tokenizer
from bert_jax.training.checkpoint import saved_steps
from bert_jax.training.loop import Programs, fit
from bert_jax.training.metrics import NOT_SCORES, read_metrics
from bert_jax.training.plan import Data, Plan, Session
from bert_jax.training.remote_workdir import checkpoints_directory
from bert_jax.training.start import initial_state, open_checkpoints, restore_start

ELSEWHERE = "make room, or choose another --workdir"


def train_one(
    plan: Plan,
    inputs: TaskInputs,
    settings: TaskConfig,
    sets: Sequence[TrainingSet],
    evaluation: DevEvaluation,
    programs: Programs,
    session: Session,
) -> dict[str, Any] | None:
    """Run or resume a training; return the scores and the step of its best evaluation, or None if a signal ended it.

    Args:
        plan: plan of this training.
        inputs: inputs of all trainings.
        settings: settings of the task.
        sets: the training sets, and the rules that make batches of each set.
        evaluation: the batches of the dev sets, and the function that scores them.
        programs: compiled steps of earlier trainings whose plan differs only in the seed and the directory.
        session: console, signals and watchdog of this process.
    """
    directory, console, metric, is_first = plan.workdir, session.console, inputs.metric, jax.process_index() == 0
    path = directory / "result.json"
    if (done := read_finished_result(path, console)) is not None:
        console.say(f"finished: this training is done, and its scores are in {path}")
        return done
    lines = read_metrics(directory / "metrics.jsonl")
    history = {line["step"]: line for line in lines if line["split"] == "heldout"}

    def is_patience_exhausted() -> bool:
        return settings.patience is not None and settings.patience <= best_step(history, metric)[1]

    def export_best_and_check_patience(step: int, scores: dict[str, float], params: Params) -> bool:
        """Export the model if it is the best so far; return whether `patience` evaluations came after the best."""
        for later in [evaluated for evaluated in history if evaluated > step]:
            del history[later]  # recorded before the run was stopped; the resumed run evaluates again
        history[step] = scores
        best, since = best_step(history, metric)
        if best == step:
            export_best_model(inputs, settings, directory, step, params)
            if is_first:
                # A run that is killed now resumes from the newest checkpoint, whose best model must still exist.
                saved = max(saved_steps(checkpoints_directory(directory)), default=0)
                before = {evaluated: history[evaluated] for evaluated in history if evaluated <= saved}
                first = best_step(before, metric).step if before else 0
                remove_best_models_except(directory, range(first, step + 1))
        if is_patience_exhausted():
            console.say(f"no better {metric} in {since} evaluations: stopping, the best is of step {best:,}")
            return True
        return False

    if not (history and is_patience_exhausted()):
        model = task_model(inputs, plan.compute)
        blocks = sharding.batch_blocks(plan.mesh)
        data = Data(
            batches=lambda phase, step: task_training_batches(sets, settings.train_weights, plan.seed, blocks, step),
            heldout=evaluation.heldout,
            evaluate=evaluation.evaluate,
            should_stop=export_best_and_check_patience,
            frozen=inputs.teacher.params if inputs.teacher else (),
        )
        params = None
        if not settings.random_weights:  # missing heads are initialized from the seed of this training
            new = {name.split("/")[0] for name in inputs.weights.new}
            read = {name: x for name, x in inputs.weights.params.items() if name not in new}
            params = draw_missing(inputs.architecture, inputs.weights.heads, read, jax.random.key(plan.seed))
            if settings.learned_temperature:
                assert settings.temperature is not None  # `fill_settings` of the kind has set the temperature
                params = {**params, LOG_TEMPERATURE: log_temperature(settings.temperature)}
        if inputs.adapter:
            params = part_without_encoder(params) | {
                ADAPTER: init_adapter_matrices(inputs.adapter, model.shapes, jax.random.key(plan.seed))
            }
            data = data_with_frozen_encoder(data, inputs.weights.params)
        with open_checkpoints(plan, session) as checkpoints:
            if checkpoints is None:
                return None
            start = restore_start(plan, checkpoints, console) or initial_state(plan, params)
            if not fit(plan, data, start, checkpoints, session, programs):
                return None
    best, _ = best_step(history, metric)
    if is_first and not (directory / f"best-{best}").is_dir():
        raise UserError(
            f"{directory}: metrics.jsonl has no line for the best model; remove this directory to train again"
        )
    scores = {name: x for name, x in history[best].items() if name not in NOT_SCORES}
    finite = {name: None if math.isinf(score_to_compare(scores, name)) else x for name, x in scores.items()}
    result = {"step": best, "scores": finite}
    if is_first:
        with writing(directory, ELSEWHERE):
            write_text(path, json.dumps(result | {"seal": _result_digest(result)}) + "\n")
        remove_best_models_except(directory, [best])
    return result


def data_with_frozen_encoder(data: Data, params: Params) -> Data:
    """Return the data of a training, with the encoder of `params` added to the frozen parameters."""
    evaluate = data.evaluate
    assert evaluate

    def evaluate_joined_params(trained: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        return evaluate(join_model_params(trained, frozen), frozen, batches)

    return dataclasses.replace(
        data, frozen=frozen_encoder_and_teacher(params, data.frozen), evaluate=evaluate_joined_params
    )


def read_finished_result(path: pathlib.Path, console: Console) -> dict[str, Any] | None:
    """Return the result of a finished training; None if the file is absent or damaged (a line reports damage)."""
    try:
        result: dict[str, Any] = strict_json.parse(read_file(path, strict_json.MAX_BYTES).decode())
        if result.pop("seal", None) != _result_digest(result):
            raise ValueError("its seal does not match")
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        console.say(f"{path}: damaged ({error}); made again from metrics.jsonl and the checkpoints")
        return None
    return result


def _result_digest(result: dict[str, Any]) -> str:
    """Return the SHA-256 of a result, in hex."""
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()


class BestStep(NamedTuple):
    """The step of the highest score, and the number of evaluations after it."""

    step: int
    num_later_evaluations: int


def score_to_compare(scores: Mapping[str, float | None], metric: str) -> float:
    """Return a score; minus infinity if the score is not finite, so that it never wins (metrics.jsonl has null)."""
    score = scores[metric]
    return score if score is not None and math.isfinite(score) else -math.inf


def best_step(history: Mapping[int, Mapping[str, float | None]], metric: str) -> BestStep:
    """Return the step of the highest score (the first of equal scores), and the number of evaluations after it."""
    best = max(sorted(history), key=lambda step: score_to_compare(history[step], metric))
    return BestStep(best, sum(step > best for step in history))


def export_best_model(
    inputs: TaskInputs, settings: TaskConfig, directory: pathlib.Path, step: int, params: Params
) -> None:
    """Write `best-STEP`, a model directory."""
    on_host = sharding.copy_to_hosts(params)
    if jax.process_index():
        return
    on_host.pop(LOG_TEMPERATURE, None)  # only the loss reads the temperature
    target = directory / f"best-{step}"
    shutil.rmtree(target, ignore_errors=True)
    task, weights = inputs.task, inputs.weights
    recorded = with_columns_of_examples(settings, KINDS[task.kind], inputs.train[0].examples)
    about = {
        "name": task.name,
        "kind": task.kind,
        "labels": list(task.labels),
        "impossible": task.impossible,
        "config": dataclasses.asdict(recorded),
    }
    modules: dict[str, str] = {}
    if KINDS[task.kind].loss.whole_batch:
        modules = sentence_module_files(sentence_modules_of_task(inputs, settings), inputs.architecture)
    extra: dict[str, str | bytes] = {TASK_FILE: json.dumps(about, indent=1) + "\n", **modules}
    if inputs.adapter:
        on_host = {**on_host, "encoder": weights.params["encoder"]}
        if peft_can_open(weights):
            files = peft_files(inputs.adapter, on_host, inputs.architecture, weights.heads, weights.directory)
            if KINDS[task.kind].reads_words:  # for other kinds, the tokenizer of the base model fits
                files |= _files_of_word_tokenizer(weights.directory)
            extra |= {f"{FOLDER}/{name}": content for name, content in {**files, **extra}.items()}
        on_host = merge_adapter_into_weights(inputs.adapter, on_host)
    huggingface.export_model(
        on_host,
        inputs.architecture,
        weights.heads,
        weights.directory,
        target,
        task.labels if weights.heads[0].classes else (),  # a head over the vocabulary has no labels in config.json
        extra,
        activation=KINDS[task.kind].activation,
        problem=KINDS[task.kind].problem,
        spaces_words=KINDS[task.kind].reads_words,
    )


def _files_of_word_tokenizer(source: pathlib.Path) -> dict[str, bytes]:
    """Return a dict from file name to content: the tokenizer in `source`, set to encode lists of words.

    See `spaces_words` of `copy_tokenizer`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy_tokenizer(source, scratch, spaces_words=True)
        return {path.name: path.read_bytes() for path in pathlib.Path(scratch).iterdir()}


def remove_best_models_except(directory: pathlib.Path, kept_steps: Container[int]) -> None:
    """Remove each directory `best-STEP`, except for the steps to keep."""
    for path in directory.glob("best-*"):
        step = path.name.removeprefix("best-")
        if step.isdecimal() and int(step) not in kept_steps:  # a user may have a copy with a longer name
            shutil.rmtree(path, ignore_errors=True)
