"""The type of a kind of task, with data and functions for everything that differs between kinds."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.features import Features, FeaturesAndCounts
from bert_jax.tasks.task import Columns, Example, Record, Task
from bert_jax.tokenizer import Tokenizer

Examples = Sequence[Example]
Counts = dict[str, int]  # kind of truncation or split -> number of times
Outputs = Mapping[str, np.ndarray]  # for an input: name of a head's output -> array, perhaps longer than the input
Values = Sequence[Any] | np.ndarray
# A threshold of predictions: the margin by which "no answer" must beat the best answer, or the minimum probability of
# each predicted label.
Threshold = float | Sequence[float] | None


class Loss(NamedTuple):
    """A training loss as data, because this package does not import jax."""

    name: str  # a key of objectives.task_losses.LOSSES; "" if `config.task.vector_loss` names the loss
    targets: tuple[tuple[str, str], ...]  # (output of the head, key of its label in the batch); the losses are averaged
    weights: str = "example_weights"  # key in the batch of the targets' weights
    whole_batch: bool = False  # whether the loss of an example depends on the other examples of the batch


class Predictions(NamedTuple):
    """Predictions for examples, in the order of the examples."""

    values: Values  # a predicted value for each example, which metrics and submission formats read
    details: Values | None = None  # data for each example, such as probabilities, which `TaskKind.details` reads


class Tuned(NamedTuple):
    """Predictions at the thresholds that give the best scores on labeled examples."""

    predictions: Predictions
    threshold: Threshold
    scores: dict[str, float]  # further scores, such as scores at other thresholds


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskKind:
    """A kind of task: its fields, and its functions, which make examples, features, predictions and output files.

    Each kind is a row of `KINDS`. The comment above each function in this class describes the result of the function.
    """

    fields: tuple[str, ...]  # required fields of a record; in `unlabeled` splits, `label_fields` are optional
    label_fields: tuple[str, ...]  # the first field is the label of an example
    # The checked example of a record, without its id; the example has a label if the record has a label. Errors in
    # published files are counted in the counter; errors in a user's own files raise UserError.
    make_example: Callable[[Record, Task, Counter[str]], dict[str, Any]]
    # The features of all examples, in order, and counts of truncations and splits, zeros included.
    features: Callable[[Examples, Tokenizer, TaskConfig], FeaturesAndCounts]
    head: str  # a key of models.heads.HEADS
    loss: Loss
    # Predictions, from features in any order and the outputs for each feature. If the threshold is None, every question
    # gets an answer, and a label is predicted if its probability reaches the default.
    predict: Callable[[Examples, Sequence[Features], Sequence[Outputs], TaskConfig, Threshold], Predictions]
    # A prediction as JSON values by field, with the field names of records; the last field is the predicted value. The
    # arguments are the labels of the task, the example and the predicted value.
    to_json: Callable[[Sequence[str], Example, Any], dict[str, Any]]
    # The metrics (keys of scoring.METRICS) of a custom task with the given labels, and the score that selects the best
    # checkpoint.
    default_metrics: Callable[[Sequence[str]], tuple[tuple[str, ...], str]]

    # The example with only its usable labels. The third argument is True for the training set and False for a set to
    # score. Raises UserError if no label is usable.
    with_usable_labels: Callable[[Record, dict[str, Any], bool, Counter[str]], dict[str, Any]] = (
        lambda record, example, *_: example
    )
    optional_fields: tuple[str, ...] = ("id",)
    training_fields: tuple[str, ...] = ()  # optional fields that a prediction does not read
    uniform_fields: tuple[str, ...] = ()  # fields whose lists have the same length in all examples of a set
    # Field with a list -> prefix of the columns that hold its items in files: prefix0, prefix1, ...
    column_lists: Columns = dataclasses.field(default_factory=dict)
    # Field -> number of its column, in a custom task whose files have one token per line.
    numbered_columns: Columns = dataclasses.field(default_factory=dict)
    # File suffix -> format, if the format differs from reading.formats.SUFFIXES.
    suffixes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    classes: int | None = 0  # number of classes of the head; None: one class for each label of the task; 0: no classes
    # The names of the labels in a record of a custom task whose labels are not yet known. None: a kind without labels.
    label_names: Callable[[Record, Task], list[str]] | None = None
    # The indices of the labels of a labeled example, in a kind with labels.
    label_indices: Callable[[Example], list[int]] = lambda example: [example["label"]]
    problem: str = ""  # value of problem_type in config.json; "" if the number of classes determines it
    # Activation of the score in sentence-transformers, for config.json; "": the default of sentence-transformers, which
    # is a sigmoid for a head with a single output.
    activation: str = ""
    # The label of an example as a value of `Predictions`.
    gold: Callable[[Example], Any] = lambda example: example["label"]
    # Further JSON fields of a prediction. The arguments are the labels of the task and an item of
    # `Predictions.details`.
    details: Callable[[Sequence[str], Any], dict[str, Any]] = lambda labels, detail: {}
    # The predictions at the thresholds that are best on labeled examples.
    tune: Callable[[Examples, Predictions, TaskConfig], Tuned] | None = None
    impossible: bool = False  # whether questions of a custom task may have no answer
    settings: tuple[str, ...] = ()  # fields of TaskConfig that this kind reads, but not every kind
    # The settings of a task, completed by values that follow from the labels and the tokenizer.
    fill_settings: Callable[[TaskConfig, Sequence[str], Tokenizer], TaskConfig] = lambda settings, labels, tokenizer: (
        settings
    )
    prompt_kind: str = ""  # name of the kind that replaces this kind if `config.task.template` is set; "": none
    recipe: str = "glue"  # name of the recipe for a user's own file
    # Whether a user's file looks like this kind. The arguments are the first text of the file, its labels, and the
    # separator of labels that the user gave.
    fits_file: Callable[[Any, Sequence[Any], str | None], bool] = lambda text, labels, separator: False
    pipeline_tag: str = "feature-extraction"  # name of the kind on the Hugging Face Hub, for the card of a model
    # Python code that predicts the label of a text with transformers, for a kind that no pipeline of transformers has.
    usage_code: Callable[[TaskConfig, Tokenizer], str] | None = None
    # Commands for the use of a fine-tuned model: {model} is its work directory, {export} is a new directory, and
    # {suffix} is the suffix of files with its vectors.
    commands: tuple[str, ...] = ("bert-jax predict --model {model} --input FILE --output predictions.jsonl",)
    purpose: str = "the task that it was trained on"  # purpose of a model of this kind, as a noun phrase
    unlabeled: tuple[str, ...] = ("test",)  # splits whose examples may have no labels
    shared_field: str = ""  # field of a text that examples share; such examples are held out together; "": no field

    @property
    def reads_words(self) -> bool:
        """True if examples of this kind are lists of words, not texts."""
        return "tokens" in self.fields

    @property
    def label(self) -> str:
        """Name of the field that holds the label of an example."""
        return self.label_fields[0]

    @property
    def text_fields(self) -> tuple[str, ...]:
        """Names of the fields of a record that the model reads, including the optional second text."""
        required = tuple(field for field in self.fields if field not in self.label_fields)
        return required + tuple(field for field in self.optional_fields if field == "text_pair")


def make_features(kind: TaskKind, examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    """Return the features of all examples, in the order of the examples, and the counts of truncations and splits.

    Args:
        kind: kind of the task.
        examples: examples, either all labeled or all unlabeled.
        tokenizer: tokenizer of the model.
        settings: settings of the task; the function reads `max_seq_len`, `max_query_length` and `doc_stride`.

    Raises:
        UserError: only some examples are labeled, `max_seq_len` is too small for a text, or an example does not fit the
            kind of task. The error message names the id of the example.
    """
    labeled = [kind.label in example for example in examples]
    if any(labeled) and not all(labeled):
        odd = examples[labeled.index(False)]["id"]
        raise UserError(f"example '{odd}' has no {kind.label}, but others have; label all of them, or none")
    return kind.features(examples, tokenizer, settings)
