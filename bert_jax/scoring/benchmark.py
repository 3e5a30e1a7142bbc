"""The form of a benchmark: its items, their queries and scores; and readers that benchmarks share."""

import dataclasses
import gzip
import io
import itertools
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.readers.rows import read_rows
from bert_jax.scoring.log_probabilities import MASKED
from bert_jax.scoring.queries import Queries, ScoringContext, TextTokens, sentence_queries

Figures = Mapping[str, float | int | None]  # name -> value; None where nothing could be measured


class Item(NamedTuple):
    """Texts that are compared with each other, usually two."""

    where: str  # "pairs.jsonl:3", for messages
    group: str  # the row of the result that it counts in, such as a paradigm
    texts: tuple[str, ...]
    details: Any = None  # values that the benchmark alone reads


class ScoredItem(NamedTuple):
    """An item with the log-probabilities of a model."""

    item: Item
    tokens: tuple[TextTokens, ...]  # of each text
    log_probabilities: tuple[np.ndarray, ...]  # of each text, float64 [queries]

    @property
    def sums(self) -> tuple[float, ...]:
        """The score of each text: the sum of its log-probabilities."""
        return tuple(float(values.sum()) for values in self.log_probabilities)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A row of BENCHMARKS."""

    read: Callable[[pathlib.Path], list[Item]]  # a file or a directory; UserError where it is not in the format
    data: str  # a noun phrase for what `read` reads, for messages
    unit: str  # of items
    queries: Callable[[ScoringContext, Item, tuple[TextTokens, ...]], list[Queries]]  # of each text of an item
    figures: Callable[[ScoringContext, Sequence[ScoredItem]], Figures]  # of a group, or of all groups
    mean_over_groups: bool = False  # the figures of all are means of the figures of groups
    masking: str | None = None  # of the published metric, in words; None: the caller chooses
    head: str = MASKED  # of the model, which answers the queries
    num_special: int = 2  # tokens of an input beside the text
    splits_texts: bool = False  # that are longer than the model reads


def load_items(benchmark: Benchmark, path: pathlib.Path) -> list[Item]:
    """Return the items of a file or a directory; UserError where it is not in the format, or holds none."""
    items = benchmark.read(path)
    if not items:
        raise UserError(f"{path} holds no {benchmark.unit}; give {benchmark.data}")
    return items


def item_queries(
    benchmark: Benchmark, context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]
) -> list[Queries]:
    """Return the queries of each text of an item; UserError where a text has more tokens than the model reads."""
    max_tokens = context.max_positions - benchmark.num_special
    longest = max(len(text.ids) for text in tokens)
    if longest > max_tokens and not benchmark.splits_texts:
        raise UserError(f"{item.where}: a sentence of {longest} tokens; this model reads {max_tokens}; shorten it")
    return benchmark.queries(context, item, tokens)


def all_token_queries(context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]) -> list[Queries]:
    """Return the queries of all tokens of each text; UserError where a text has no token."""
    for text, text_tokens in zip(item.texts, tokens, strict=True):
        if not len(text_tokens.ids):
            raise UserError(f"{item.where}: {text!r} has no token; give a sentence")
    return [sentence_queries(context, text_tokens) for text_tokens in tokens]


def win_score(first: float, second: float) -> float:
    """Return 1 where `first` is higher, 0 where it is lower, and one half for a tie."""
    return 0.5 if first == second else float(first > second)


def files_in(path: pathlib.Path, suffixes: Sequence[str]) -> list[pathlib.Path]:
    """Return a file itself, or the files of a directory that end in one of `suffixes`, sorted by name.

    Raises:
        UserError: no such path, or no such file in it.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: no such file or directory")
    files = sorted(file for file in path.iterdir() if file.name.endswith(tuple(suffixes)))
    if not files:
        raise UserError(f"{path}: no file that ends in {' or '.join(suffixes)} in it")
    return files


def read_table(
    file: pathlib.Path, columns: Sequence[str], data: str, separator: str = ",", quoted: bool = True
) -> list[tuple[str, dict[str, str]]]:
    """Return the rows of a file of columns, each after `file:line`; "" stands for a missing value.

    Args:
        file: as in `read_utf8`.
        columns: that it must have.
        data: a noun phrase for the file to give instead.
        separator: of the columns.
        quoted: whether quotes around a value are syntax, or text.

    Raises:
        UserError: a file that cannot be read, without a column, or with a row that cannot be read.
    """
    rows = list(read_rows(io.BytesIO(read_utf8(file).encode()), separator, quoted))
    for row in rows:
        if row.problem:
            raise UserError(f"{file}:{row.first_line}: {row.problem}; close the quotes of its cells")
    names = rows[0].values if rows else []
    if missing := [name for name in columns if name not in names]:
        raise UserError(f"{file}: no column {', '.join(missing)}; give {data}")
    return [
        (f"{file}:{row.first_line}", dict(itertools.zip_longest(names, row.values[: len(names)], fillvalue="")))
        for row in rows[1:]
    ]


def read_utf8(file: pathlib.Path) -> str:
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
