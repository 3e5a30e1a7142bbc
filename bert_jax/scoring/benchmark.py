"""The interface of a benchmark (items, queries, scores), and functions that benchmarks share."""

import dataclasses
import gzip
import io
import itertools
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError, file_error
from bert_jax.files import read_file
from bert_jax.readers.rows import read_rows
from bert_jax.scoring.log_probabilities import MASKED
from bert_jax.scoring.queries import Queries, ScoringContext, TextTokens, pseudo_log_likelihood_queries

Figures = Mapping[str, float | int | None]  # name -> value; None if the value is undefined


class Item(NamedTuple):
    """An item of a benchmark: texts, usually two, whose scores are compared with each other."""

    where: str  # file and line, such as "pairs.jsonl:3", for messages
    group: str  # name of the row of the result to which the item belongs, such as a paradigm
    texts: tuple[str, ...]
    details: Any = None  # values that only the benchmark reads


class ScoredItem(NamedTuple):
    """An item with the log-probabilities that a model gives to the tokens of its texts."""

    item: Item
    tokens: tuple[TextTokens, ...]  # the tokens of each text
    log_probabilities: tuple[np.ndarray, ...]  # for each text, the answers to its queries, float64 [queries]

    @property
    def text_scores(self) -> tuple[float, ...]:
        """The score of each text, which is the sum of the log-probabilities of its queries."""
        return tuple(float(values.sum()) for values in self.log_probabilities)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The rules of a benchmark: how to read its items, query a model and compute its figures; a row of BENCHMARKS."""

    read: Callable[[pathlib.Path], list[Item]]  # reads a file or a directory; UserError for a wrong format
    data: str  # a noun phrase for the files of the benchmark, for messages
    unit: str  # a plural noun for the items, for messages
    queries: Callable[[ScoringContext, Item, tuple[TextTokens, ...]], list[Queries]]  # makes the queries of each text
    figures: Callable[[ScoringContext, Sequence[ScoredItem]], Figures]  # computes the figures of scored items
    mean_over_groups: bool = False  # whether the total figures are the means of the groups' figures
    masking: str | None = None  # the masking of the published metric, in words; None: the caller chooses
    head: str = MASKED  # the head of the model that answers the queries
    num_special: int = 2  # special tokens of an input
    splits_texts: bool = False  # whether texts that are too long are split, not refused


def load_items(benchmark: Benchmark, path: pathlib.Path) -> list[Item]:
    """Return the items of a benchmark's file or directory; raise UserError for a wrong format or no items."""
    items = benchmark.read(path)
    if not items:
        raise UserError(f"{path} holds no {benchmark.unit}; give {benchmark.data}")
    return items


def item_queries(
    benchmark: Benchmark, context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]
) -> list[Queries]:
    """Return the queries of each text of an item; raise UserError for a text that is too long for the model."""
    max_tokens = context.max_positions - benchmark.num_special
    longest = max(len(text.ids) for text in tokens)
    if longest > max_tokens and not benchmark.splits_texts:
        raise UserError(f"{item.where}: a sentence of {longest} tokens; this model reads {max_tokens}; shorten it")
    return benchmark.queries(context, item, tokens)


def all_token_queries(context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]) -> list[Queries]:
    """Return a masked query for each token of each text of an item; raise UserError for a text without tokens."""
    for text, text_tokens in zip(item.texts, tokens, strict=True):
        if not len(text_tokens.ids):
            raise UserError(f"{item.where}: {text!r} has no token; give a sentence")
    return [pseudo_log_likelihood_queries(context, text_tokens) for text_tokens in tokens]


def win_or_tie_score(first: float, second: float) -> float:
    """Return 1 if the first score is higher than the second score, 0 if it is lower, and one half for a tie."""
    return 0.5 if first == second else float(first > second)


def file_or_files_in(path: pathlib.Path, suffixes: Sequence[str]) -> list[pathlib.Path]:
    """Return `[path]` if `path` is a file, else the files of this directory with the given suffixes, sorted by name.

    Raises:
        UserError: the path does not exist, or the directory has no file with one of the suffixes.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or directory; give the files of the benchmark (docs/score.md)")
    files = sorted(file for file in path.iterdir() if file.name.endswith(tuple(suffixes)))
    if not files:
        raise UserError(f"{path}: no file that ends in {' or '.join(suffixes)} in it")
    return files


class TableRow(NamedTuple):
    """A row of a table: its location, as `file:line`, and its values by the name of the column."""

    where: str
    row: dict[str, str]


def read_table(
    file: pathlib.Path, columns: Sequence[str], expected_file: str, separator: str = ",", quoted: bool = True
) -> list[TableRow]:
    """Return the rows of a table, each with its location, as `file:line`; a missing value becomes "".

    Args:
        file: a UTF-8 file, plain or compressed with gzip.
        columns: names of the required columns.
        expected_file: a noun phrase that describes the right file in messages.
        separator: character between columns.
        quoted: if True, quotes around a value are syntax; if False, quotes are part of the value.

    Raises:
        UserError: the file or a row cannot be read, or a column is missing.
    """
    rows = list(read_rows(io.BytesIO(read_utf8(file).encode()), separator, quoted))
    for row in rows:
        if row.problem:
            raise UserError(f"{file}:{row.first_line}: {row.problem}; close the quotes of its cells")
    names = rows[0].values if rows else []
    if missing := [name for name in columns if name not in names]:
        raise UserError(f"{file}: no column {', '.join(missing)}; give {expected_file}")
    return [
        TableRow(f"{file}:{row.first_line}", dict(itertools.zip_longest(names, row.values[: len(names)], fillvalue="")))
        for row in rows[1:]
    ]


def read_utf8(file: pathlib.Path) -> str:
    """Return the text of a UTF-8 file, plain or compressed with gzip; raise UserError if the file cannot be read."""
    try:
        content = read_file(file)
        return (gzip.decompress(content) if file.suffix == ".gz" else content).decode()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{file}: a damaged gzip file ({error}); copy it again") from None
    except OSError as error:
        raise file_error(error, file, "cannot be read") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 ({error.reason} at byte {error.start}); convert it") from None
