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
Outputs = Mapping[str, np.ndarray]  # for an input: output of the head -> array, perhaps longer than the input
Values = Sequence[Any] | np.ndarray
# The margin by which "no answer" must beat the best answer, or the minimum probabilities of predicted labels.
Threshold = float | Sequence[float] | None


class Loss(NamedTuple):
    """A training loss as data, because this package does not import jax."""

    name: str  # a key of objectives.task_losses.LOSSES
    targets: tuple[tuple[str, str], ...]  # (output of the head, key of its label in the batch); averaged losses
    weights: str = "example_weights"  # key in the batch: the weight of each target
    whole_batch: bool = False  # True: the loss of an example depends on other examples, so no micro-batches


class Predictions(NamedTuple):
    """Predictions for examples, in their order."""

    values: Values  # a value per example; metrics and submission formats take these values
    details: Values | None = None  # per example, data such as probabilities, for `TaskKind.details`


class Tuned(NamedTuple):
    """Predictions at the thresholds that are best on labeled examples."""

    predictions: Predictions
    threshold: Threshold
    scores: dict[str, float]  # further scores, such as scores at other thresholds


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskKind:
    """A row of `KINDS`, with the steps from records to features, the loss, predictions, scores and files.

    The comment above a function describes its result.
    """

    fields: tuple[str, ...]  # fields of a record; all are required, except for `label_fields` in `unlabeled` splits
    label_fields: tuple[str, ...]  # the first field is the label of an example
    # The checked example of a record, without its id; the example has a label if the record has a label. The counter
    # counts errors in published files; errors in a user's own files raise UserError.
    make_example: Callable[[Record, Task, Counter[str]], dict[str, Any]]
    # The features of all examples, in order, and counts of truncations and splits, zeros included.
    features: Callable[[Examples, Tokenizer, TaskConfig], FeaturesAndCounts]
    head: str  # a key of models.heads.HEADS
    loss: Loss
    # Predictions, from features in any order and the outputs for each of them. With the threshold None, every question
    # has an answer, or labels are predicted from the default probability.
    predict: Callable[[Examples, Sequence[Features], Sequence[Outputs], TaskConfig, Threshold], Predictions]
    # A prediction as JSON fields with the names of records. The arguments are the labels of the task, the example and
    # the predicted value.
    to_json: Callable[[Sequence[str], Example, Any], dict[str, Any]]
    # The metrics (keys of scoring.METRICS) of a custom task with the given labels, and the score that selects the best
    # checkpoint.
    default_metrics: Callable[[Sequence[str]], tuple[tuple[str, ...], str]]

    # The example with the labels that the training set (True) or a set to score can use. Raises UserError if there is
    # no such label.
    with_usable_labels: Callable[[Record, dict[str, Any], bool, Counter[str]], dict[str, Any]] = (
        lambda record, example, *_: example
    )
    optional_fields: tuple[str, ...] = ("id",)
    uniform_fields: tuple[str, ...] = ()  # lists of the same length in all examples of a set
    # Field that is a list -> prefix of its columns in files: prefix0, prefix1, ...
    column_lists: Columns = dataclasses.field(default_factory=dict)
    # Field -> number of its column, in a custom task with a token per line.
    numbered_columns: Columns = dataclasses.field(default_factory=dict)
    # File suffix -> format, if the format differs from reading.formats.SUFFIXES.
    suffixes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    classes: int | None = 0  # number of classes of the head; None: a class per label of the task; 0: no classes
    # The labels in a record of a custom task whose labels are not yet known. None: the kind has no labels.
    label_names: Callable[[Record, Task], list[str]] | None = None
    # The indices of the labels of a labeled example, in a kind with labels.
    label_indices: Callable[[Example], list[int]] = lambda example: [example["label"]]
    problem: str = ""  # problem_type in config.json, if the number of classes does not determine it
    # The label of an example as a value of `Predictions`.
    gold: Callable[[Example], Any] = lambda example: example["label"]
    # Further JSON fields of a prediction. The arguments are the labels of the task and an item of
    # `Predictions.details`.
    details: Callable[[Sequence[str], Any], dict[str, Any]] = lambda labels, detail: {}
    # The predictions at the thresholds that are best on labeled examples.
    tune: Callable[[Examples, Predictions, TaskConfig], Tuned] | None = None
    impossible: bool = False  # in a custom task, questions may have no answer
    settings: tuple[str, ...] = ()  # fields of TaskConfig that this kind reads and some kinds do not
    # The settings, with the values that follow from the labels and the tokenizer.
    fill_settings: Callable[[TaskConfig, Sequence[str], Tokenizer], TaskConfig] = lambda settings, labels, tokenizer: (
        settings
    )
    prompt_kind: str = ""  # the kind that `config.task.template` selects in place of this kind; "": no such kind
    recipe: str = "glue"  # name of the recipe for a user's own file
    # Whether a file is of this kind. The arguments are its first text, its labels and the separator of labels that the
    # user gave.
    fits_file: Callable[[Any, Sequence[Any], str | None], bool] = lambda text, labels, separator: False
    pipeline_tag: str = "feature-extraction"  # name on the Hugging Face Hub, in the card of a model
    # Python code that predicts the label of a text with transformers, for a kind that no pipeline of transformers has.
    usage_code: Callable[[TaskConfig, Tokenizer], str] | None = None
    purpose: str = "the task that it was trained on"  # purpose of a model, as a noun phrase
    unlabeled: tuple[str, ...] = ("test",)  # splits whose examples may have no labels

    @property
    def reads_words(self) -> bool:
        """True if an example is a list of words, not a text."""
        return "tokens" in self.fields

    @property
    def label(self) -> str:
        """Key of an example's label."""
        return self.label_fields[0]

    @property
    def text_fields(self) -> tuple[str, ...]:
        """Fields of a record that the model reads, the optional second text included."""
        required = tuple(field for field in self.fields if field not in self.label_fields)
        return required + tuple(field for field in self.optional_fields if field == "text_pair")


def make_features(kind: TaskKind, examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    """Return the features of all examples, in order, and counts of truncations and splits.

    Args:
        kind: kind of the task.
        examples: examples, either all labeled or all unlabeled.
        tokenizer: tokenizer of the model.
        settings: settings of the task; the function reads `max_seq_len`, `max_query_length` and `doc_stride`.

    Raises:
        UserError: only some examples are labeled, `max_seq_len` is too small for a text, or an example does not fit its
            kind. The message names the id of the example.
    """
    labeled = [kind.label in example for example in examples]
    if any(labeled) and not all(labeled):
        odd = examples[labeled.index(False)]["id"]
        raise UserError(f"example '{odd}' has no {kind.label}, but others have; label all of them, or none")
    return kind.features(examples, tokenizer, settings)
