"""Formats of the files of tasks: a format is a row of `FORMATS`."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tasks.reading.conll import read_conll
from bert_jax.tasks.reading.delimited import read_delimited
from bert_jax.tasks.reading.json_files import read_json, read_squad
from bert_jax.tasks.task import Record

# Arguments: path, columns, optional fields, counter of skipped rows (None: they are refused).
Format = Callable[..., Iterator[Record]]

FORMATS: dict[str, Format] = {
    "tsv_plain": functools.partial(read_delimited, separator="\t", quoted=False),  # quotes are text, as in GLUE
    "tsv_headless": functools.partial(read_delimited, separator="\t", quoted=False, header=False),
    "tsv": functools.partial(read_delimited, separator="\t", quoted=True),
    "csv": functools.partial(read_delimited, separator=",", quoted=True),
    "json": read_json,  # a list, or one object per line
    "squad": read_squad,
    "conll": read_conll,
    "conll_space": functools.partial(read_conll, separator=" "),
    "conll_tab": functools.partial(read_conll, separator="\t"),
    "conll_klue": functools.partial(read_conll, separator="\t", comment="##"),
}
# Formats with one token per line, whose columns are numbers.
TOKEN_PER_LINE = ("conll", "conll_space", "conll_tab", "conll_klue")
# Suffix of a file name, without .gz -> format; a kind may have its own (`Kind.suffixes`).
SUFFIXES = {".tsv": "tsv", ".csv": "csv", ".json": "json", ".jsonl": "json"}


def format_of(path: str, suffixes: Mapping[str, str]) -> str | None:
    """Return the format of a file by its suffix, None for an unknown one; `suffixes` has precedence over `SUFFIXES`."""
    bare = path.removesuffix(".gz")
    return (SUFFIXES | dict(suffixes)).get(bare[bare.rfind(".") :])


def read_records(path: str, name: str, suffixes: Mapping[str, str], *arguments: Any) -> Iterator[Record]:
    """Return the records of a file in the format `name`; '': the format of its suffix.

    Raises:
        UserError: a suffix without a format, or as the format itself.
    """
    found = name or format_of(path, suffixes)
    if not found:
        known = ", ".join(SUFFIXES | dict(suffixes))
        raise UserError(f"{path}: unknown format; use one of {known}, or add format=NAME to the columns")
    return FORMATS[found](path, *arguments)
