"""The predictions of a fine-tuned model for lines of input, as JSON lines, with bounded memory."""

import codecs
import dataclasses
import functools
import itertools
import os
import pathlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel, open_model, read_task_file, task_file_path
from bert_jax.config import ComputeConfig, TaskConfig, section_from_values
from bert_jax.errors import UserError, check_not_input, writing
from bert_jax.files import new_file
from bert_jax.inference.inputs import (
    OBJECT_LINES,
    STDIN,
    TEXT_LINES,
    Input,
    num_inputs,
    read_inputs,
    source_name,
)
from bert_jax.inference.outputs import LocalPredict, Outputs, single_device_predictor
from bert_jax.inference.words import check_columns_are_labels, check_lines_are_texts, has_token_per_line, split_text
from bert_jax.interop.huggingface import TASK_FILE
from bert_jax.models import Head, make_model
from bert_jax.models.heads import OF_PRETRAINING
from bert_jax.objectives.tasks import model_for_predictions, task_head
from bert_jax.readers.rows import ABSENT, look_up_field
from bert_jax.strict_json import json_line
from bert_jax.tasks.batching import Feed, doubling_buckets
from bert_jax.tasks.custom import parse_columns_setting
from bert_jax.tasks.features import Features, FeaturesAndCounts
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import TaskKind, Threshold, make_features
from bert_jax.tasks.kinds.records import EMPTY, check_characters, record_id
from bert_jax.tasks.kinds.regression import OUTPUT as REGRESSION_OUTPUT
from bert_jax.tasks.reading.files import read_task_text
from bert_jax.tasks.reading.formats import (
    DELIMITED,
    SEPARATORS,
    TOKEN_PER_LINE,
    check_not_spreadsheet,
    format_of_suffix,
    read_file_records,
)
from bert_jax.tasks.reading.label_columns import label_column_fields
from bert_jax.tasks.table import FieldsOfTraining, fields_of_training, source_of_prediction_file
from bert_jax.tasks.task import Example, Record, Task
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import Tokenizer

CHUNK = 4_096  # examples in memory at once
# Key of CROSS_ENCODER_ACTIVATIONS, or '' -> the activation function.
SCORE_ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": np.asarray,
    "identity": np.asarray,
    "sigmoid": lambda x: 0.5 * (1.0 + np.tanh(0.5 * x)),  # this form does not overflow
}


class Predictor(NamedTuple):
    """A fine-tuned model, its tokenizer and its task."""

    outputs_of: LocalPredict  # function that runs the model
    tokenizer: Tokenizer
    task: Task
    settings: TaskConfig
    threshold: Threshold  # argument of `TaskKind.predict`


def load_predictor(directory: str | os.PathLike[str], batch_size: int = 32) -> Predictor:
    """Return the predictor in a directory that `finetune` or transformers wrote; the model needs the head of a task.

    Raises UserError for any other directory.
    """
    return make_predictor(open_model(directory), batch_size)


def make_predictor(loaded: OpenModel, batch_size: int = 32) -> Predictor:
    """Return a predictor of a model with the head of a task; raise UserError if it has no such head."""
    if batch_size < 1:
        raise UserError(f"batch_size {batch_size}: at least 1")
    if not loaded.directory.is_dir():  # without the directory, thresholds and columns would be lost
        raise UserError(f"{loaded.directory} is gone; predict before you remove the directory of a loaded model")
    path = task_file_path(loaded)
    loaded = dataclasses.replace(loaded, heads=_vector_head_of_task_file(path) or loaded.heads)
    kinds = [
        name
        for name, kind in KINDS.items()
        for head in loaded.heads
        if _head_fits_kind(kind, head)
        and (loaded.problem == kind.problem or not loaded.problem)
        and (path.is_file() or head.name not in OF_PRETRAINING)
    ]
    if not kinds:
        names = " and ".join(head.name.replace("_", " ") for head in loaded.heads)
        predicts = f"predicts the {names} only" if names else "predicts nothing"
        raise UserError(f"{loaded.directory}: this model {predicts}; fine-tune it first (`bert-jax finetune`)")
    labels = loaded.labels or tuple(f"LABEL_{label_index}" for label_index in range(loaded.heads[0].classes))
    described: dict[str, Any]
    described = {"kind": kinds[0], "labels": [*labels], "impossible": False, "null_threshold": 0.0, "thresholds": []}
    described["config"] = _settings_of_sentence_modules(loaded)  # settings for a directory of transformers
    if path.is_file():
        described |= _read_task_settings(path, described)
    kind = described["kind"]
    if kind not in kinds or (KINDS[kind].classes is None and described["labels"] != [*labels]):
        raise UserError(f"{path} and config.json are of different tasks; export the model again")
    labels = tuple(map(str, described["labels"]))
    settings = section_from_values(TaskConfig, described["config"], str(path))
    settings = dataclasses.replace(settings, max_seq_len=min(settings.max_seq_len, loaded.config.max_positions))
    task = Task(
        name="predict",
        kind=kind,
        sets={},
        metrics=(),
        best="",
        labels=labels,
        impossible=described["impossible"],
        published=True,  # an empty text is counted, and gets a prediction
    )
    thresholds = described["thresholds"]
    if len(thresholds) not in (0, len(labels)) or not all(_is_probability(value) for value in thresholds):
        raise UserError(f"{path}: thresholds are {len(labels)} numbers between 0 and 1, one for each label; fix them")
    threshold = described["null_threshold"] if task.impossible else thresholds or None
    longest = settings.max_seq_len
    buckets = tuple(sorted({*(settings.buckets or doubling_buckets(longest)), longest}))
    feed = Feed(buckets, batch_size, loaded.config.num_token_types, loaded.tokenizer.pad_id)
    compute = ComputeConfig()
    model = model_for_predictions(make_model(loaded.config, compute, loaded.heads), kind, settings)
    if missing := model.shapes.keys() - loaded.params.keys():
        raise UserError(
            f"{loaded.directory} has no {', '.join(sorted(missing))}, which {TASK_FILE} names; export again"
        )
    outputs_of = single_device_predictor(model, {name: loaded.params[name] for name in model.shapes}, feed, compute)
    if loaded.activation and loaded.heads[0].classes == 1:
        outputs_of = functools.partial(_activated_outputs, outputs_of, SCORE_ACTIVATIONS[loaded.activation])
    return Predictor(outputs_of, loaded.tokenizer, task, settings, threshold)


def _settings_of_sentence_modules(loaded: OpenModel) -> dict[str, Any]:
    """Return the fields of `config.task` for a model without a task file; a CrossEncoder's modules set these fields.

    Raises UserError for a CrossEncoder that lowercases texts before a tokenizer that does not lowercase texts.
    """
    modules, tokenizer = loaded.sentences, loaded.tokenizer
    if not modules.activation:
        return {"max_seq_len": loaded.config.max_positions}
    if modules.lower_case and tokenizer.encode("A") != tokenizer.encode("a"):
        raise UserError(
            f"{loaded.directory}: do_lower_case of a CrossEncoder is true, but its tokenizer reads capital letters; "
            "lowercase the texts, and set do_lower_case to false in sentence_bert_config.json"
        )
    return {
        "max_seq_len": modules.max_tokens(loaded.config.max_positions),
        **({"query_prompt": modules.prompt} if modules.prompt else {}),
    }


def features_to_predict(predictor: Predictor, examples: Sequence[Example]) -> FeaturesAndCounts:
    """Return the features of examples, and counts, as `make_features`; a CrossEncoder reads a prompt before `text`."""
    kind, prompt = KINDS[predictor.task.kind], predictor.settings.query_prompt
    if prompt and not kind.loss.whole_batch:
        examples = [{**example, "text": prompt + example["text"]} for example in examples]
    return make_features(kind, examples, predictor.tokenizer, predictor.settings)


def _is_probability(value: Any) -> bool:
    """Return whether a value of JSON is a number between 0 and 1, both excluded."""
    return isinstance(value, float) and 0.0 < value < 1.0


def _activated_outputs(
    outputs_of: LocalPredict,
    activation: Callable[[np.ndarray], np.ndarray],
    features: Sequence[Features],
    progress: Callable[[int], None],
) -> list[Outputs]:
    """Return the outputs of a model with a single output value, after the activation of a CrossEncoder."""
    outputs = outputs_of(features, progress)
    return [{**output, REGRESSION_OUTPUT: activation(output[REGRESSION_OUTPUT])} for output in outputs]


def _head_fits_kind(kind: TaskKind, head: Head) -> bool:
    """Return whether the head of a model fits a kind of task."""
    if kind.loss.whole_batch:
        return head.name in {row.head for row in VECTOR_HEADS.values()}
    return head.name == kind.head and kind.classes in (None, head.classes)


def _vector_head_of_task_file(path: pathlib.Path) -> tuple[Head, ...]:
    """Return the head that a task file describes if the head makes vectors of texts; config.json names no such head."""
    described = _read_task_settings(path, {"kind": "", "config": {}}) if path.is_file() else {}
    kind = described.get("kind")
    if kind not in KINDS or not KINDS[kind].loss.whole_batch:
        return ()
    return (task_head(kind, 0, section_from_values(TaskConfig, described["config"], str(path))),)


def _read_task_settings(path: pathlib.Path, defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that `finetune` wrote; raise UserError for a value without the type of its default."""
    settings = read_task_file(path)
    if any(type(settings.get(key, value)) is not type(value) for key, value in defaults.items()):
        raise UserError(f"{path}: not the settings of a task; export the model again")
    return settings


def predict_file(
    directory: str | os.PathLike[str],
    source: str,
    target: str,
    batch_size: int = 32,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
    copy_input: bool = False,
) -> Counter[str]:
    """Write the predictions for a file into a new file, which appears complete or not at all.

    `-` is standard input or output. `progress` is called with the number of finished examples and the number of all
    examples; the number of all examples is None if the input can be read only once. With `copy_input`, each prediction
    has the fields of its input. Return the numbers of examples and of truncated texts. The function raises UserError
    for the same reasons as `load_predictor`, `open_inputs` and `predict_inputs`.
    """
    if target != "-":
        check_not_input(target, [source])
    predictor = load_predictor(directory, batch_size)
    total, read = open_inputs(predictor, source)
    counts: Counter[str] = Counter()
    if total is not None:
        check_inputs(predictor, read())

    def write_predictions(out: IO[str]) -> None:
        predictions = predict_inputs(predictor, read(), counts, lambda done: progress(done, total), copy_input)
        for prediction in predictions:
            out.write(json_line(prediction, str) + "\n")
        out.flush()
        if not counts["examples"]:
            raise UserError(f"{source_name(source)}: no example in it; write one per line")

    if target == "-":
        write_predictions(sys.stdout)
        return counts
    with writing(target, "choose another --output"), new_file(target) as out:
        write_predictions(out)
    return counts


class OpenedInputs(NamedTuple):
    """The number of inputs, if it is known, and a function that reads them."""

    num_inputs: int | None
    read: Callable[[], Iterable[Input]]


def open_inputs(predictor: Predictor, source: str) -> OpenedInputs:
    """Return the number of inputs (None: they can be read only once), and a function that reads them.

    Lines and JSON lines are read one by one. If the model labels words, a .txt file has either a text per line or a
    token per line, which `has_token_per_line` decides; lines of standard input are texts. CSV, TSV, Parquet, compressed
    JSON lines and the other formats of training files are read whole, with the columns of the training file; labels may
    be missing. The suffix of the file decides on the format. The delimiter of CSV and TSV may differ from the delimiter
    of the training file.

    Raises:
        UserError: the file cannot be read, a column is missing, a file with a token per line has columns but no labels
            of the model, the first line is the header of a table, or it is unclear whether lines hold texts.
    """
    kind, labels = KINDS[predictor.task.kind], predictor.task.labels
    file = source_of_prediction_file(predictor.settings, kind, source)
    format_name = file.format or format_of_suffix(source, kind.suffixes)
    holds_lines = source.lower().endswith((OBJECT_LINES, TEXT_LINES)) and not _is_json_list(source)
    if kind.reads_words and source.lower().removesuffix(".gz").endswith(TEXT_LINES):
        holds_lines = not has_token_per_line(source, read_task_text(source), labels, file.columns)
    if source == STDIN or holds_lines:
        format_name = None
    check_not_spreadsheet(source)
    if format_name is None or (format_name == "json" and format_of_suffix(source, kind.suffixes) is None):
        if not kind.reads_words or holds_lines:
            columns = fields_of_training(predictor.settings, kind)
            return OpenedInputs(num_inputs(source), lambda: _check_first_is_no_header(read_inputs(source), columns))
        return OpenedInputs(
            num_inputs(source), lambda: check_lines_are_texts(read_inputs(source), labels, file.columns)
        )
    label_fields = (*kind.label_fields, *label_column_fields(kind, file.columns))
    unread = ("id", *label_fields, *kind.training_fields)  # predictions do not need these fields
    named = parse_columns_setting(predictor.settings, kind).keys() - {*unread}
    optional = [field for field in (*kind.optional_fields, *label_fields) if field not in named]
    delimiter = predictor.settings.delimiter if format_name in DELIMITED else None
    notes: Counter[str] = Counter()

    def read_records(columns: Mapping[str, str]) -> list[Record]:
        return list(
            read_file_records(
                source,
                format_name or "",
                kind.suffixes,
                columns,
                optional,
                None,
                notes,
                delimiter,
                may_have_other_delimiter=True,
            )
        )

    try:
        records = read_records(file.columns)
    except UserError as error:
        # The columns may have the names of the fields in place of the names in the training file.
        fields = {field: field for field in file.columns}
        if fields == file.columns or format_name in TOKEN_PER_LINE:
            raise
        try:
            records = read_records(fields)
        except UserError:
            raise error from None
    if kind.reads_words and format_name in TOKEN_PER_LINE:
        check_columns_are_labels(source, records, notes, labels)
    inputs = [Input(record.where, index, record.row or record.fields) for index, record in enumerate(records, 1)]
    return OpenedInputs(len(inputs), lambda: inputs)


def _check_first_is_no_header(inputs: Iterable[Input], trained: FieldsOfTraining) -> Iterator[Input]:
    """Yield the inputs; raise UserError if the first text is the header of a table, which would be read as texts."""
    required = [field for field in trained.columns if field not in trained.optional]
    for index, line in enumerate(inputs):
        if not index and line.has_field_names:
            header = [{name.strip(' "') for name in line.fields["text"].split(separator)} for separator in SEPARATORS]
            names = ({*required}, {trained.columns[field] for field in required})
            if any(len(cells) > 1 and needed <= cells for cells in header for needed in names):
                raise UserError(
                    f"{line.where}: looks like the header of a table; give the table as a file with the suffix .csv, "
                    ".tsv or .parquet"
                )
        yield line


def _is_json_list(source: str) -> bool:
    """Return whether a file with the suffix of JSON lines begins with a list, as some programs write all objects."""
    readable = os.path.isfile(source) and os.access(source, os.R_OK)  # the reader raises the error for other files
    if not source.lower().endswith(OBJECT_LINES) or not readable:
        return False
    with open(source, "rb") as file:
        return file.read(1_000).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[")


def check_inputs(predictor: Predictor, inputs: Iterable[Input]) -> None:
    """Raise UserError, before any computation, for inputs whose fields `predict_inputs` does not accept."""
    kind = KINDS[predictor.task.kind]
    trained = fields_of_training(predictor.settings, kind)
    for line in inputs:
        kind.make_example(_read_record(line, kind, trained), predictor.task, Counter())


def predict_inputs(
    predictor: Predictor,
    inputs: Iterable[Input],
    counts: Counter[str],
    progress: Callable[[int], None] = lambda done: None,
    copy_input: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield a prediction for each input, in order, as JSON values.

    An input has the fields that training read, all under the names of their columns or all under the names of the
    fields; further fields are not read. An input may have an `id`, which the prediction repeats; the default is the
    number of the line, from 1. `counts` gets the numbers of examples, of truncated texts, and of empty texts, which get
    predictions like any text. `progress` is called with the number of finished examples. With `copy_input`, a
    prediction repeats the fields of its input as `input`. If an input is refused, no input of its chunk of `CHUNK`
    inputs gets a prediction; earlier chunks get their predictions.
    """
    task, settings = predictor.task, predictor.settings
    kind = KINDS[task.kind]
    trained = fields_of_training(settings, kind)
    inputs = iter(inputs)
    while chunk := list(itertools.islice(inputs, CHUNK)):
        # The number of the line is the id of an example, because ids of the input may be missing or occur twice.
        tally: Counter[str] = Counter()
        records = [_read_record(line, kind, trained) for line in chunk]
        examples = [{"id": record.where, **kind.make_example(record, task, tally)} for record in records]
        features, cut = features_to_predict(predictor, examples)
        # A long text may be several inputs of the model.
        of_chunk = functools.partial(
            _report_finished_examples, progress, counts["examples"], len(examples) / max(len(features), 1)
        )
        outputs = predictor.outputs_of(features, of_chunk)
        predictions = kind.predict(examples, features, outputs, settings, predictor.threshold)
        counts.update({"examples": len(examples)} | cut | {"empty_texts": tally[EMPTY]})
        for index, line in enumerate(chunk):
            given = records[index].fields.get("id")
            answer = kind.to_json(task.labels, examples[index], predictions.values[index])
            if predictions.details is not None:
                answer |= kind.details(task.labels, predictions.details[index])
            if copy_input:
                answer["input"] = dict(line.fields)
            yield {"id": str(line.line_number) if given is None else given} | answer


def _report_finished_examples(
    progress: Callable[[int], None], num_before: int, examples_per_input: float, inputs_done: int
) -> None:
    """Report the number of finished examples, computed from the number of finished inputs of a chunk."""
    progress(num_before + int(inputs_done * examples_per_input))


def _read_record(line: Input, kind: TaskKind, trained: FieldsOfTraining) -> Record:
    """Return the record of an input, with the fields that training read and with an `id` that the input may have.

    The input has all required fields under the names of their columns, or all under the names of the fields. If the
    kind of task reads words, an input may have a `text` instead of `tokens`; `split_text` splits the text. A field
    with a list may also be several fields with the items of the list, such as `choice0` and `choice1`.

    Raises:
        UserError: a required field is missing, or the id is no id.
    """
    required = [field for field in trained.columns if field not in trained.optional]
    columns = {field: field for field in trained.columns} if line.has_field_names else trained.columns
    values = {field: look_up_field(line.fields, column) for field, column in columns.items()}
    values = {field: value for field, value in values.items() if value is not ABSENT}
    text = line.fields.get("text")
    if kind.reads_words and isinstance(text, str) and values.get("tokens", text) == text:
        check_characters(Record(line.where, line.fields), "text", text)
        values |= {"tokens": split_text(text), "text": text}
    if absent := [field for field in required if field not in values]:

        def list_of(name: str) -> str:
            lists = [field for field, prefix in kind.column_lists.items() if re.fullmatch(f"{prefix}[0-9]+", name)]
            return lists[0] if lists else name

        read = {list_of(field) for field in trained.columns}
        values = {name: value for name, value in line.fields.items() if list_of(name) in read}
        present = {list_of(name) for name in values}
        if absent_names := [field for field in required if list_of(field) not in present]:
            field = min(absent, absent_names, key=len)[0]
            column = f", in the column '{trained.columns[field]}'" if trained.columns[field] != field else ""
            raise UserError(f"{line.where}: has no '{field}'{column}; this model needs {', '.join(required)}")
    fields = {"id": line.fields.get("id")} | values
    if fields["id"] == "":  # a table has no other value for a missing id
        fields["id"] = None
    record = Record(line.where, fields)
    if fields["id"] is not None:
        record_id(record)  # raises UserError for a bad id
    return record
