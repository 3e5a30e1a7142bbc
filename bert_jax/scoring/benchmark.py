"""What the benchmarks share: items, their scores, and the form of a result."""

import csv
import gzip
import io
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.scoring.log_probabilities import MASKED
from bert_jax.scoring.queries import Context, Queries, Tokens, sentence_queries

Figures = Mapping[str, float | int | None]  # name -> value; None where nothing could be measured


class Item(NamedTuple):
    """The texts that are compared with each other, usually two."""

    where: str  # "pairs.jsonl:3", for messages
    group: str  # the row of the result that it counts in, such as a paradigm
    texts: tuple[str, ...]
    details: Any = None  # what the benchmark itself needs to know


class Scored(NamedTuple):
    """An item with what the model says of it."""

    item: Item
    tokens: tuple[Tokens, ...]  # of each text
    log_probabilities: tuple[np.ndarray, ...]  # of each text, float64 [queries]

    @property
    def sums(self) -> tuple[float, ...]:
        """The score of each text: the sum of its log-probabilities."""
        return tuple(float(one.sum()) for one in self.log_probabilities)


class Benchmark(NamedTuple):
    """A row of BENCHMARKS.

    read: a file or a directory -> its items; UserError where it is not in the format.
    unit: what an item is called.
    ask: context, item, tokens of its texts -> the queries of each text.
    measure: the scored items of a group, or of all groups -> figures.
    mean_over_groups: whether the figures of the whole are the means of those of the groups; otherwise `measure` of all.
    masking: what its published metric masks, in words; None: it follows the caller's choice.
    head: of the model, which answers the queries.
    """

    read: Callable[[pathlib.Path], list[Item]]
    unit: str
    ask: Callable[[Context, Item, tuple[Tokens, ...]], list[Queries]]
    measure: Callable[[Context, Sequence[Scored]], Figures]
    mean_over_groups: bool = False
    masking: str | None = None
    head: str = MASKED


def whole_texts(context: Context, item: Item, tokens: tuple[Tokens, ...]) -> list[Queries]:
    """Return the queries of all tokens of each text.

    Raises:
        UserError: a text without tokens, or with more than the model reads.
    """
    for text, one in zip(item.texts, tokens, strict=True):
        check_length(context, item, one)
        if not len(one.ids):
            raise UserError(f"{item.where}: {text!r} has no token; give a sentence")
    return [sentence_queries(context, one) for one in tokens]


def check_length(context: Context, item: Item, tokens: Tokens) -> None:
    """Raise UserError where a text has more tokens than the model reads."""
    if len(tokens.ids) > context.max_tokens:
        raise UserError(
            f"{item.where}: a sentence of {len(tokens.ids)} tokens; this model reads {context.max_tokens}; shorten it"
        )


def wins(first: float, second: float) -> float:
    """Return 1 where `first` is higher, 0 where it is lower, and one half for a tie."""
    return 0.5 if first == second else float(first > second)


def files_in(path: pathlib.Path, suffixes: Sequence[str]) -> list[pathlib.Path]:
    """Return a file itself, or the files of a directory that end in one of `suffixes`, sorted by name.

    Raises:
        UserError: no such place, or no such file in it.
    """
    if path.is_file():
        return [path]
    found = sorted(one for one in path.iterdir() if one.name.endswith(tuple(suffixes))) if path.is_dir() else []
    if not found:
        wanted = f"no file that ends in {' or '.join(suffixes)} in it" if path.is_dir() else "no such file or directory"
        raise UserError(f"{path}: {wanted}")
    return found


def read_table(
    file: pathlib.Path, columns: Sequence[str], source: str, **form: Any
) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a CSV file, each after its place, `file:line`.

    Args:
        file: as in `read_text`.
        columns: those that it must have.
        source: the file to give instead.
        form: arguments of `csv.DictReader`.

    Raises:
        UserError: a file that cannot be read, without a column, or with a cell that has no end.
    """
    rows = csv.DictReader(io.StringIO(read_text(file), newline=""), **form)
    try:
        if missing := [name for name in columns if name not in (rows.fieldnames or ())]:
            raise UserError(f"{file}: no column {', '.join(missing)}; give {source}")
        return [(f"{file}:{rows.line_num}", row) for row in rows]
    except csv.Error as error:
        raise UserError(f"{file}:{rows.line_num + 1}: {error}; close the quotes of its cells") from None


def read_text(file: pathlib.Path) -> str:
    """Return the content of a UTF-8 file, or of one that gzip packed; UserError where it cannot be read."""
    try:
        content = file.read_bytes()
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{file}: a damaged gzip file ({error}); copy it again") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 ({error.reason} at byte {error.start}); convert it") from None
