"""The types of tasks, of the sources of their examples, and of the records in files."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Columns = Mapping[str, str]  # field of a record -> column of a file: name, number from 0, or 'key.key' in JSON
Example = Mapping[str, Any]  # a checked record: "id", the fields of its kind, and "row" in a user's files


class Record(NamedTuple):
    """An example from a file, before the checks."""

    where: str  # 'file:line' or the like, for messages
    fields: Mapping[str, Any]
    row: Mapping[str, Any] = MappingProxyType({})  # all columns of a user's file, by their names


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetSource:
    """The source of a set of examples of a task: the published files, or a split of the data set in TFDS.

    Attributes:
        files: alternatives; the first alternative that exists is read. An alternative is one or several file names,
            which are read in order.
        format: name of a row of `reading.formats.FORMATS`; '': the suffix of the file decides.
        columns: columns of the files.
        tfds: name of the split.
        submission: name of the file to submit.
        given: fields whose columns the user names; they must exist.
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
    """A row of the table of tasks.

    Attributes:
        name: value of `config.task.name`.
        kind: name of a row of `kinds.KINDS`.
        sets: 'train', 'dev', 'test' -> its source; a second set of a split is 'dev_NAME' or 'test_NAME'.
        metrics: names of rows of `scoring.METRICS`.
        best: name of the score that selects the best checkpoint; higher is better.
        labels: labels in the published order, for kinds with labels.
        codes: spellings of the labels in the files, if they differ from the names.
        folder: subdirectory of the task in the download of its benchmark.
        tfds: name of the data set in TFDS.
        tfds_columns: features of the data set.
        submission: a key of `submission.FORMATS`.
        impossible: True if questions may have no answer.
        label_separator: character between the labels of a text in files; "": a text in a file is one label.
        published: True for published files, in which empty texts are counted, because they belong to the data. In a
            user's own files, empty texts are refused.
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
