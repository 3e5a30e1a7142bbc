"""The formats that files of tasks have."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tasks.reading import conll, delimited, json_files
from bert_jax.tasks.task import Record

# path, columns, optional fields, where to count rows that are left out (None: refuse them)
Format = Callable[..., Iterator[Record]]

FORMATS: dict[str, Format] = {
    "tsv_plain": functools.partial(delimited.read, separator="\t", quoted=False),  # quotes are text, as in GLUE
    "tsv_headless": functools.partial(delimited.read, separator="\t", quoted=False, header=False),
    "tsv": functools.partial(delimited.read, separator="\t", quoted=True),
    "csv": functools.partial(delimited.read, separator=",", quoted=True),
    "json": json_files.read,  # a list, or one object a line
    "squad": json_files.read_squad,
    "conll": conll.read,
    "conll_space": functools.partial(conll.read, separator=" "),
    "conll_tab": functools.partial(conll.read, separator="\t"),
    "conll_klue": functools.partial(conll.read, separator="\t", comment="##"),
}
# Kind of task ('': any) and end of the name, without .gz -> format, of files whose task does not say it.
SUFFIXES: dict[tuple[str, str], str] = {
    ("", ".tsv"): "tsv",
    ("", ".csv"): "csv",
    ("", ".json"): "json",
    ("", ".jsonl"): "json",
    ("span", ".json"): "squad",
    ("tagging", ".tsv"): "conll_tab",
    ("tagging", ".txt"): "conll",
    ("tagging", ".conll"): "conll",
}


def records(path: str, name: str, kind: str, *arguments: Any) -> Iterator[Record]:
    """The records of a file in the format `name`, or '' for the one that its name ends in.

    Raises:
        UserError: the end of the name says no format, or as the format itself.
    """
    if not name:
        bare = path.removesuffix(".gz")
        suffix = bare[bare.rfind(".") :]
        name = SUFFIXES.get((kind, suffix)) or SUFFIXES.get(("", suffix), "")
    if not name:
        ends = ", ".join(end for wanted, end in SUFFIXES if wanted in ("", kind))
        raise UserError(f"{path}: unknown format; let its name end in one of {ends}, or add format=NAME to the columns")
    return FORMATS[name](path, *arguments)
