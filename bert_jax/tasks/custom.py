"""A task of the user's own: its columns and labels, from the configuration and the training file."""

from collections import Counter

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.examples import label_names
from bert_jax.tasks.reading.data_sets import PREFIX, DataSet
from bert_jax.tasks.reading.formats import FORMATS
from bert_jax.tasks.reading.readers import SPLITS, records
from bert_jax.tasks.task import FIELDS, OPTIONAL_FIELDS, Source, Task

NAME = "custom"
FORMAT = "format"  # stands among the columns, and names a row of FORMATS
# Metrics of each kind, and the score that picks the best.
_METRICS = {
    "classification": (("accuracy", "macro_f1"), "accuracy"),
    "regression": (("pearson", "spearman"), "pearson"),
    "span": (("squad",), "f1"),
    "choice": (("accuracy",), "accuracy"),
}
_ENTITIES = (("entities", "token_accuracy"), "entity_f1")
_TAGS = (("token_accuracy",), "token_accuracy")


def custom_task(config: TaskConfig) -> Task:
    """The task that `config` describes: kind, columns ('field=column,...', 'format=NAME' among them), labels.

    Raises:
        UserError: no kind, unknown fields, a label twice, fewer than two labels, or as the training file itself.
    """
    if not config.kind:
        raise UserError(f"task 'custom' needs config.task.kind, one of {', '.join(FIELDS)}")
    columns = _columns(config)
    format = columns.pop(FORMAT, "")
    source = Source((), format, columns)
    splits = {split: source._replace(tfds=getattr(config, split)) for split in SPLITS}
    task = Task(NAME, config.kind, splits, (), "", impossible=config.kind == "span", published=False)
    labels = _labels(task, config) if config.kind in ("classification", "tagging") else ()
    tags = _ENTITIES if any(label.startswith("B-") for label in labels) else _TAGS
    metrics, best = _METRICS.get(config.kind, tags)
    return task._replace(labels=labels, metrics=metrics, best=best)


def _columns(config: TaskConfig) -> dict[str, str]:
    """Those that are given; without any, all fields of the kind under their own names, as far as they are there."""
    kind = config.kind
    given = _given(config)
    names = {field: field for field in FIELDS[kind]}
    file = (config.train or config.dev or config.test).removesuffix(".gz")
    numbered = given.get(FORMAT, "" if file.endswith((".json", ".jsonl")) else "conll").startswith("conll")
    if kind == "tagging" and numbered and not config.data.startswith(PREFIX):
        names = {"tokens": "0", "labels": "-1"}
    elif not given.keys() - {FORMAT}:
        names |= {field: field for field in OPTIONAL_FIELDS[kind]}
    if "choice0" in given:
        del names["choices"]
    return names | given


def _given(config: TaskConfig) -> dict[str, str]:
    """What `config.columns` says."""
    kind = config.kind
    columns: dict[str, str] = {}
    choices = tuple(f"choice{n}" for n in range(100)) if kind == "choice" else ()
    for part in config.columns.split(",") if config.columns else ():
        field, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or not name or field in columns:
            raise UserError(f"config.task.columns: '{part.strip()}' is not one 'field=column' among others, each once")
        known = FIELDS[kind] + OPTIONAL_FIELDS[kind] + choices[:4] + (FORMAT,)
        if field not in known + choices:
            raise UserError(
                f"config.task.columns: {kind} has no field '{field}'{did_you_mean(field, known)}; "
                f"there are {', '.join(known)}"
            )
        columns[field] = name
    if columns.get(FORMAT, "") not in ("", *FORMATS):
        raise UserError(f"config.task.columns: no format '{columns[FORMAT]}'; there are {', '.join(FORMATS)}")
    return columns


def _labels(task: Task, config: TaskConfig) -> tuple[str, ...]:
    """In the order of config.task.labels, of the data set in TFDS, or of the alphabet."""
    given = tuple(label.strip() for label in config.labels.split(",")) if config.labels else ()
    if not given and config.data.startswith(PREFIX):
        given = DataSet(config.data).label_names(task.splits["train"].columns[FIELDS[task.kind][-1]])
    if not given and not config.train:
        raise UserError("task 'custom' needs config.task.labels, or config.task.train to take them from")
    if not given:
        found: set[str] = set()
        for record in records(task, config, "train", Counter()):
            found.update(label_names(record, task.kind))
        given = tuple(sorted(found))
    if len(set(given)) < len(given) or "" in given or len(given) < 2:
        raise UserError(
            f"task 'custom' has the labels {', '.join(map(repr, given)) or 'none'}: two or more, each "
            "once, are needed; mend config.task.labels, or the training file"
        )
    return given
