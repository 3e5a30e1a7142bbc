"""What a task is: its kind, its labels, and where its examples lie."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

Columns = Mapping[str, str]  # field of an example -> column of a file: name, number from 0, or 'key.key' in JSON
_NONE: Columns = MappingProxyType({})

# Fields of the records of each kind; those of LABEL_FIELDS may be absent from a test set.
FIELDS: dict[str, tuple[str, ...]] = {
    "classification": ("text", "label"),
    "regression": ("text", "label"),
    "tagging": ("tokens", "labels"),
    "span": ("question", "context", "answers"),
    "choice": ("text", "choices", "label"),
}
OPTIONAL_FIELDS: dict[str, tuple[str, ...]] = {
    "classification": ("text_pair", "id"),
    "regression": ("text_pair", "id"),
    "tagging": ("id",),
    "span": ("is_impossible", "id"),
    "choice": ("start", "id"),  # start: the beginning that all choices share
}
LABEL_FIELDS = ("label", "labels", "answers", "is_impossible")


class Record(NamedTuple):
    """What a file says of one example, not yet checked."""

    where: str  # 'file:line' or the like, for messages
    fields: Mapping[str, Any]


class Source(NamedTuple):
    """One set of examples of a task: the published files, or a split of the data set in TFDS."""

    # Names in use, the first that is there is taken; several in one tuple are read one after the other.
    files: Sequence[Sequence[str]] = ()
    format: str = ""  # a row of formats.FORMATS; '': by the end of the file's name
    columns: Columns = _NONE
    tfds: str = ""  # split
    submission: str = ""  # name of the file to hand in
    broken_rows: bool = False  # the published file has rows with too few or too many columns: left out, counted


class Task(NamedTuple):
    """A row of the table."""

    name: str
    kind: str  # a key of FIELDS
    splits: Mapping[str, Source]  # 'train', 'dev', 'test'; a second set for the same use is 'dev_NAME' or 'test_NAME'
    metrics: tuple[str, ...]  # rows of scoring.METRICS
    best: str  # the score that picks the best checkpoint; more is better
    labels: tuple[str, ...] = ()  # classification, tagging; in the published order
    codes: tuple[str, ...] = ()  # the labels as the files have them, where they do not have the names
    folder: str = ""  # of the task among those of its benchmark
    tfds: str = ""  # name of the data set
    tfds_columns: Columns = _NONE  # features of the data set
    submission: str = "json_lines"  # a row of submission.FORMATS
    impossible: bool = False  # span: questions may have no answer
    published: bool = True  # empty texts are counted, as they are part of the data; in the user's own they are refused
