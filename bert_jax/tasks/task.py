"""The types of a task: its labels and metrics, where its examples lie, and records as files hold them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Columns = Mapping[str, str]  # field of a record -> column of a file: name, number from 0, or 'key.key' in JSON
Example = Mapping[str, Any]  # a checked record: "id" and the fields of its kind
NONE: Columns = MappingProxyType({})


class Record(NamedTuple):
    """One example as a file has it, not yet checked."""

    where: str  # 'file:line' or the like, for messages
    fields: Mapping[str, Any]


class Source(NamedTuple):
    """One set of examples of a task: the published files, or a split of the data set in TFDS."""

    # Names in use: the first that exists is read. Several names in one tuple are read one after the other.
    files: Sequence[Sequence[str]] = ()
    format: str = ""  # a row of reading.formats.FORMATS; '': by the suffix of the file
    columns: Columns = NONE
    tfds: str = ""  # split
    submission: str = ""  # name of the file to hand in
    given: Sequence[str] = ()  # fields whose columns the user names: they are not optional
    broken_rows: bool = False  # the published file has rows with a wrong number of columns: skipped and counted


class Task(NamedTuple):
    """A row of the table of tasks."""

    name: str
    kind: str  # a row of kinds.KINDS
    splits: Mapping[str, Source]  # 'train', 'dev', 'test'; a second set for the same use is 'dev_NAME' or 'test_NAME'
    metrics: tuple[str, ...]  # rows of scoring.METRICS
    best: str  # score that selects the best checkpoint; higher is better
    labels: tuple[str, ...] = ()  # in the published order, for kinds with labels
    codes: tuple[str, ...] = ()  # spellings of the labels in the files, where these differ from the names
    folder: str = ""  # of the task in the download of its benchmark
    tfds: str = ""  # name of the data set
    tfds_columns: Columns = NONE  # features of the data set
    submission: str = "json_lines"  # a row of submission.FORMATS
    impossible: bool = False  # questions may have no answer
    published: bool = True  # empty texts are counted: they belong to the data. In a user's own files they are refused
