"""Test collections of retrieval in the layout of BEIR (Thakur et al. 2021) or of Nano: documents, queries, judgments.

The collections NanoBEIR are small parts of the collections of BEIR, as Parquet files on the Hugging Face Hub.
"""

import dataclasses
import gzip
import pathlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, cast

from bert_jax.errors import UserError
from bert_jax.files import open_regular_file
from bert_jax.readers.hub import local_data_set
from bert_jax.readers.rows import check_object, parse_json, read_rows, read_text_lines
from bert_jax.tasks.reading.formats import read_parquet

MAX_LINE_BYTES = 64 << 20
FIELDS, JUDGMENT_FIELDS = ("_id", "text", "title"), ("query-id", "corpus-id", "score")
NANO_OWNER = "zeta-alpha-ai"
NANO = tuple(
    f"Nano{name}"
    for name in (
        *("ArguAna", "ClimateFEVER", "DBPedia", "FEVER", "FiQA2018", "HotpotQA", "MSMARCO", "NFCorpus", "NQ"),
        *("QuoraRetrieval", "SCIDOCS", "SciFact", "Touche2020"),
    )
)
TEXT_SUFFIXES = ("", ".gz")  # of corpus.jsonl and queries.jsonl


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collection:
    """The documents, the judged queries and the judgments of a split.

    Attributes:
        document_ids: unique ids, in the order of ties: the larger id first, as in trec_eval.
        documents: title and text of each document.
        query_ids: unique ids of the queries that have a judgment, in the order of the file.
        queries: text of each query.
        judgments: query id -> document id -> relevance; a relevance of at least 1 is relevant.
        num_unjudged: queries of the file without a judgment, which are left out.
        num_unknown: judgments of documents that the corpus lacks; they count as relevant and cannot be retrieved.
        num_empty: documents without a character.
    """

    document_ids: Sequence[str]
    documents: Sequence[str]
    query_ids: Sequence[str]
    queries: Sequence[str]
    judgments: Mapping[str, Mapping[str, int]]
    num_unjudged: int
    num_unknown: int
    num_empty: int


def read_collection(directory: pathlib.Path, split: str = "test") -> Collection:
    """Return the collection of a directory with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv.

    A line of `corpus.jsonl` has `_id`, `text` and perhaps `title`. A line of `queries.jsonl` has `_id` and `text`. Both
    files may be packed with gzip. A row of `qrels/SPLIT.tsv` is a query id, a document id and an integer.

    In the layout of Nano, the directories corpus, queries and qrels hold Parquet files with these fields; a judgment is
    a `query-id`, a `corpus-id` and perhaps a `score`. Their names begin with the split, or with `train`. The name of a
    collection in NANO is downloaded unless a file has this name.

    Raises:
        UserError: a file is absent or has another format, an id occurs twice, a judgment names an unknown query, or a
            judged query is empty.
    """
    if str(directory) in NANO and not directory.exists():
        directory = local_data_set(f"{NANO_OWNER}/{directory}")
    if _parquet_files(directory / "corpus", split):
        documents, queries = (
            _texts_by_id(_parquet_rows(directory / name, split, FIELDS, ("title",)), text_of, str(directory / name))
            for name, text_of in (("corpus", _title_and_text), ("queries", _text))
        )
        path = directory / "qrels"
        judgments = _parquet_judgments(path, split)
    else:
        documents = _read_texts(_file_in(directory, "corpus.jsonl"), _title_and_text)
        queries = _read_texts(_file_in(directory, "queries.jsonl"), _text)
        path = directory / "qrels" / f"{split}.tsv"
        judgments = _read_judgments(path)
    for query in judgments:
        if not queries.get(query, "").strip():
            state = "is empty" if query in queries else "does not occur"
            raise UserError(
                f"{path}: the query '{query}' {state} in queries.jsonl; remove its judgments or add its text"
            )
    judged = [query for query in queries if query in judgments]
    document_ids = in_tie_order(documents)
    return Collection(
        document_ids=document_ids,
        documents=[documents[document] for document in document_ids],
        query_ids=judged,
        queries=[queries[query] for query in judged],
        judgments=judgments,
        num_unjudged=len(queries) - len(judged),
        num_unknown=sum(document not in documents for judged in judgments.values() for document in judged),
        num_empty=sum(not text.strip() for text in documents.values()),
    )


def in_tie_order(document_ids: Iterable[str]) -> list[str]:
    """Return the ids of documents in the order of ties: the larger id first, in byte order."""
    return sorted(document_ids, key=str.encode, reverse=True)


def read_corpus_texts(path: pathlib.Path) -> list[str]:
    """Return the documents of a file of JSON lines, or of a directory with corpus.jsonl.

    A line has `text` and perhaps `title`. The file may be packed with gzip.

    Raises:
        UserError: the file is absent or has another format.
    """
    file = _file_in(path, "corpus.jsonl") if path.is_dir() else path
    return list(_read_texts(file, _title_and_text, needs_id=False).values())


def _file_in(directory: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of a file, perhaps packed with gzip."""
    path = next((path for suffix in TEXT_SUFFIXES if (path := directory / (name + suffix)).is_file()), None)
    if path is None:
        raise UserError(f"{directory}: no {name} or {name}.gz; give a directory in the layout of BEIR (docs/score.md)")
    return path


def _title_and_text(fields: Mapping[str, Any]) -> str:
    """Return the title and the text of a document with a space between them, as BEIR and MTEB join the two."""
    title = fields.get("title") or ""
    return f"{title} {_text(fields)}".strip() if isinstance(title, str) else _text(fields)


def _text(fields: Mapping[str, Any]) -> str:
    """Return the text of a document or a query; raise TypeError for another type."""
    text = fields.get("text")
    if not isinstance(text, str):
        raise TypeError
    return text


def _read_texts(
    path: pathlib.Path, text_of: Callable[[Mapping[str, Any]], str], needs_id: bool = True
) -> dict[str, str]:
    """Return id -> text of a file of JSON lines; without ids, the place of a line is its id."""
    rows = ((where, check_object(where, parse_json(where, line))) for where, line in _lines_with_place(path))
    return _texts_by_id(rows, text_of, str(path), needs_id)


def _texts_by_id(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    text_of: Callable[[Mapping[str, Any]], str],
    source: str,
    needs_id: bool = True,
) -> dict[str, str]:
    """Return id -> text of (place, fields); without ids, the place is the id."""
    needed = "_id and text" if needs_id else "text"
    texts: dict[str, str] = {}
    for where, fields in rows:
        identifier = fields.get("_id") if needs_id else where
        if not isinstance(identifier, str):
            raise UserError(f"{where}: no _id with a string; each line needs {needed}")
        if identifier in texts:
            raise UserError(f"{where}: the _id '{identifier}' occurs twice; give each line an id of its own")
        try:
            texts[identifier] = text_of(fields)
        except TypeError:
            raise UserError(f"{where}: no text with a string; each line needs {needed}") from None
    if not texts:
        raise UserError(f"{source} holds no line with {needed}")
    return texts


def _parquet_files(directory: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Return the Parquet files of a split, or of `train` if there is no file of the split."""
    return sorted(directory.glob(f"{split}-*.parquet")) or sorted(directory.glob("train-*.parquet"))


def _parquet_rows(
    directory: pathlib.Path, split: str, names: Sequence[str], optional: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the fields of each row of the Parquet files of a split."""
    for path in _parquet_files(directory, split):
        for record in read_parquet(str(path), {name: name for name in names}, optional):
            yield record.where, record.fields


def _parquet_judgments(directory: pathlib.Path, split: str) -> dict[str, dict[str, int]]:
    """Return query id -> document id -> relevance, which is 1 without a score."""
    judgments: dict[str, dict[str, int]] = {}
    for where, fields in _parquet_rows(directory, split, JUDGMENT_FIELDS, ("score",)):
        query, document, relevance = (fields.get(name, 1) for name in JUDGMENT_FIELDS)
        if not isinstance(query, str) or not isinstance(document, str) or type(relevance) is not int:
            raise UserError(f"{where}: give texts as query-id and corpus-id, and an integer as score")
        judgments.setdefault(query, {})[document] = relevance
    if not judgments:
        raise UserError(f"{directory} holds no judgment")
    return judgments


class _PlacedLine(NamedTuple):
    """The place of a line, `file:line`, and its text."""

    where: str
    text: str


def _lines_with_place(path: pathlib.Path) -> Iterator[_PlacedLine]:
    """Yield the place and the text of each line that is not blank."""
    try:
        with open_regular_file(path) as file:
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
            for number, text in read_text_lines(str(path), stream, MAX_LINE_BYTES):
                if text.strip():
                    yield _PlacedLine(f"{path}:{number}", text)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error}); copy it again") from None


def _read_judgments(path: pathlib.Path) -> dict[str, dict[str, int]]:
    """Return query id -> document id -> relevance; the first row may be a header."""
    if not path.is_file():
        splits = sorted(file.stem for file in path.parent.glob("*.tsv"))
        advice = (
            f"choose a split from {', '.join(splits)}" if splits else "judgments are rows of query, document, integer"
        )
        raise UserError(f"{path}: not a file; {advice}")
    judgments: dict[str, dict[str, int]] = {}
    with open_regular_file(path) as stream:
        for row in read_rows(stream, "\t", quoted=False):
            where = f"{path}:{row.first_line}"
            if len(row.values) != 3:
                raise UserError(
                    f"{where}: {len(row.values)} values; write query id, document id and an integer, with tabs"
                )
            query, document, relevance = row.values
            if not relevance.strip().lstrip("-").isdecimal():
                if row.first_line == 1:
                    continue  # the header
                raise UserError(f"{where}: the relevance '{relevance}' is no integer")
            if document in judgments.setdefault(query, {}):
                raise UserError(
                    f"{where}: a second judgment of document '{document}' for query '{query}'; keep a single judgment"
                )
            judgments[query][document] = int(relevance)
    if not judgments:
        raise UserError(f"{path} holds no judgment")
    return judgments
