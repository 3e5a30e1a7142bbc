"""The teacher of a task: a frozen model that was fine-tuned on the same task."""

from typing import NamedTuple

from bert_jax.checkpoints.load_model import digest_of_config_and_params, read_weights
from bert_jax.config import EncoderConfig, TaskConfig
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.models import Head, Params
from bert_jax.objectives.task_losses import DISTILLATION_LOSSES
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.labels import labels_text
from bert_jax.tasks.task import Task
from bert_jax.tokenizer import Tokenizer, load_tokenizer


class TaskTeacher(NamedTuple):
    """A frozen model with the head of the task."""

    config: EncoderConfig
    params: Params
    digest: str


def read_task_teacher(
    settings: TaskConfig, task: Task, head: Head, start: EncoderConfig, tokenizer: Tokenizer, console: Console
) -> TaskTeacher | None:
    """Return the model in `settings.teacher` with `head`, for a student of config `start`; None if there is no teacher.

    Raises UserError if the kind of task allows no teacher, or if the teacher lacks this head, differs from the student
    in labels, vocabulary or token types, or has fewer positions than the student.
    """
    if not settings.teacher:
        return None
    where = f"config.task.teacher={settings.teacher}"
    if KINDS[task.kind].loss.name not in DISTILLATION_LOSSES:
        raise UserError(f"{where}: a task of the kind {task.kind} cannot learn from a teacher; remove the teacher")
    weights = read_weights(settings.teacher, (head,), console=console)
    if weights.problem != KINDS[task.kind].problem:
        has, needs = (problem or "one label per text" for problem in (weights.problem, KINDS[task.kind].problem))
        raise UserError(f"{where} learned {has}, and the task has {needs}; choose a teacher of the same kind of task")
    if task.labels and weights.labels and tuple(weights.labels) != tuple(task.labels):
        raise UserError(
            f"{where} has the labels {labels_text(weights.labels)}; the task has {labels_text(task.labels)}"
        )
    if load_tokenizer(weights.directory).tokens != tokenizer.tokens:
        raise UserError(f"{where} has another vocabulary than config.init_from; start from a model with its vocabulary")
    if weights.config.num_token_types and start.num_token_types not in (0, weights.config.num_token_types):
        raise UserError(f"{where} has another number of token types than config.init_from; choose another start")
    if weights.config.max_positions < settings.max_seq_len:
        raise UserError(f"{where} reads {weights.config.max_positions} tokens, config.task.max_seq_len is larger")
    console.say(f"learning {settings.soft_fraction:.0%} from the {weights.config.family} in {settings.teacher}")
    if task.labels and not weights.labels:
        console.say(f"its labels have no names; the names {labels_text(task.labels)} are assumed, in this order")
    return TaskTeacher(weights.config, weights.params, digest_of_config_and_params(weights))
