"""The types of tasks, of the sources of their examples, and of the records in files."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from bert_jax.tasks.labels import NUMBER

Columns = Mapping[str, str]  # field of a record -> column of a file: its name, its number from 0, or 'key.key' in JSON
# Suffixes of files with one token per line -> format, whatever their columns are; kinds that label words read them.
SUFFIXES_OF_TOKENS = dict.fromkeys((".conll", ".conllu", ".bio", ".iob", ".iob2"), "conll")
Example = Mapping[str, Any]  # a checked record: "id", the fields of its kind and, from a user's files, "row"


class Record(NamedTuple):
    """The values of an example in a file, before they are checked."""

    where: str  # location of the record, such as 'file:line', for messages
    fields: Mapping[str, Any]  # name of a field -> value
    row: Mapping[str, Any] = MappingProxyType({})  # name of a column -> value, for all columns of a user's file


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetSource:
    """The source of a set of examples of a task: the published files, or a split of the data set in TFDS.

    Attributes:
        files: alternative names of the files of the set; the first alternative that exists is read. If an alternative
            has several files, these files are read in order.
        format: name of a row of `reading.formats.FORMATS`; '': the suffix of the file decides.
        columns: for each field, its column in the files.
        tfds: name of the split in TFDS.
        submission: name of the file to submit.
        given: fields whose columns the user names; these columns must exist.
        broken_rows: True if the published file has rows with a wrong number of columns, which are skipped and counted.
    """

    files: Sequence[Sequence[str]] = ()
    format: str = ""
    columns: Columns = dataclasses.field(default_factory=dict)
    tfds: str = ""
    submission: str = ""
    given: Sequence[str] = ()
    broken_rows: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A task: the sources of its sets of examples, its labels and its metrics; a row of `TASKS` or a custom task.

    Attributes:
        name: value of `config.task.name`.
        kind: name of a row of `kinds.KINDS`.
        sets: for each name of a set ('train', 'dev', 'test'), its source; a second dev or test set is named 'dev_NAME'
            or 'test_NAME'.
        metrics: names of the metrics of the task, which are rows of `scoring.METRICS`.
        best: name of the score that selects the best checkpoint; higher is better.
        labels: names of the labels in the published order, for kinds with labels.
        codes: spellings of the labels in the files, if they differ from `labels`.
        folder: subdirectory of the task in the download of its benchmark.
        tfds: name of the data set in TFDS.
        tfds_columns: for each field, the feature of the TFDS data set that holds its values.
        submission: format of the file to submit, a key of `submission.FORMATS`.
        impossible: True if questions may have no answer.
        label_separator: character between the labels of a text in files; "": a text in a file is one label.
        published: True for published files, where empty texts are part of the data and only counted; False for a user's
            own files, where empty texts raise UserError.
    """

    name: str
    kind: str
    sets: Mapping[str, SetSource]
    metrics: tuple[str, ...]
    best: str
    labels: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    folder: str = ""
    tfds: str = ""
    tfds_columns: Columns = dataclasses.field(default_factory=dict)
    submission: str = "json_lines"
    impossible: bool = False
    label_separator: str = ""
    published: bool = True

    @functools.cached_property
    def index_of_label(self) -> Mapping[str, int]:
        """The index of each label, by the code and by the name of the label."""
        index: dict[str, int] = {}
        for spellings in (self.codes, self.labels):
            for label, spelling in enumerate(spellings):
                index.setdefault(spelling, label)
        return index

    @functools.cached_property
    def allows_indices(self) -> bool:
        """True if a label may be given by its index, as in data sets of Hugging Face.

        Indices are allowed in a user's own files if no label is named by a number.
        """
        return not self.published and not any(map(NUMBER.fullmatch, self.labels))
