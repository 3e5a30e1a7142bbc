"""Test collections for retrieval (documents, queries, judgments) in the layout of BEIR (Thakur 2021) or of NanoBEIR.

NanoBEIR is a set of small parts of BEIR's collections, stored as Parquet files on the Hugging Face Hub.
"""

import dataclasses
import gzip
import hashlib
import json
import pathlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypeVar, cast

from bert_jax.errors import UserError
from bert_jax.files import open_regular_file
from bert_jax.readers.hub import download_data_set
from bert_jax.readers.rows import check_json_object, parse_json, read_rows, read_text_lines
from bert_jax.strict_json import has_surrogate
from bert_jax.tasks.reading.formats import read_parquet

MAX_LINE_BYTES = 64 << 20
MAX_DIGITS = 6  # of a relevance, because sums of larger numbers could overflow; test collections have one digit
FIELDS, JUDGMENT_FIELDS = ("_id", "text", "title"), ("query-id", "corpus-id", "score")
NANO_OWNER = "zeta-alpha-ai"
NANO = tuple(
    f"Nano{name}"
    for name in (
        *("ArguAna", "ClimateFEVER", "DBPedia", "FEVER", "FiQA2018", "HotpotQA", "MSMARCO", "NFCorpus", "NQ"),
        *("QuoraRetrieval", "SCIDOCS", "SciFact", "Touche2020"),
    )
)
Text = TypeVar("Text")  # a text, or a CorpusDocument
TEXT_SUFFIXES = ("", ".gz")  # suffixes after corpus.jsonl and queries.jsonl


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collection:
    """The documents, the judged queries and the judgments of a split of a test collection.

    Attributes:
        document_ids: unique ids of the documents, the larger id first, because trec_eval breaks ties in this order.
        documents: title and text of each document.
        query_ids: unique ids of the queries that have a judgment, in the order of the file.
        queries: text of each query.
        judgments: query id -> document id -> relevance; a document with a relevance of at least 1 is relevant.
        num_unjudged: number of queries in the file that have no judgment and are therefore left out.
        num_unknown: number of judgments of documents that the corpus lacks; a document that the corpus lacks is never
            retrieved, but is counted among the relevant documents.
        num_empty: number of documents without text.
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

    A line of `corpus.jsonl` has `_id`, `text` and perhaps `title`. A line of `queries.jsonl` has `_id` and `text`.
    `corpus.jsonl` and `queries.jsonl` may be compressed with gzip. A row of `qrels/SPLIT.tsv` has a query id, a
    document id and an integer relevance.

    In the layout of NanoBEIR, the directories corpus, queries and qrels hold Parquet files with these fields. A row of
    qrels has a `query-id`, a `corpus-id` and perhaps a `score`. The name of each Parquet file begins with the name of
    the split, or with `train`; judgments named `train` are only read for the split `test`. If `directory` is a name in
    NANO and no file or directory has this name, the collection is downloaded.

    Raises:
        UserError: a file is absent or has a wrong format, an id occurs twice, a judgment names an unknown query, or a
            judged query is empty.
    """
    if str(directory) in NANO and not directory.exists():
        directory = download_data_set(f"{NANO_OWNER}/{directory}")
    if _parquet_files(directory / "corpus", split):
        documents, queries = (
            _texts_by_id(
                _read_parquet_rows(directory / name, split, FIELDS, ("title",)), text_of, str(directory / name)
            )
            for name, text_of in (("corpus", _join_title_and_text), ("queries", _text_field))
        )
        path = directory / "qrels"
        judgments = _read_parquet_judgments(path, split)
    else:
        documents = _read_jsonl_texts(_find_plain_or_gzip_file(directory, "corpus.jsonl"), _join_title_and_text)
        queries = _read_jsonl_texts(_find_plain_or_gzip_file(directory, "queries.jsonl"), _text_field)
        path = directory / "qrels" / f"{split}.tsv"
        judgments = _read_tsv_judgments(path)
    for query in judgments:
        if not queries.get(query, "").strip():
            state = "is empty" if query in queries else "does not occur"
            raise UserError(
                f"{path}: the query '{query}' {state} in queries.jsonl; remove its judgments or add its text"
            )
    judged = [query for query in queries if query in judgments]
    document_ids = sort_in_tie_order(documents)
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


def collection_digest(collection: Collection) -> str:
    """Return the hex SHA-256 of the documents, the judged queries and the judgments of a collection."""
    parts = (collection.document_ids, collection.documents, collection.query_ids, collection.queries)
    return hashlib.sha256(json.dumps([*map(list, parts), collection.judgments]).encode()).hexdigest()


def sort_in_tie_order(document_ids: Iterable[str]) -> list[str]:
    """Return document ids in descending byte order, the order in which trec_eval ranks documents with equal scores."""
    return sorted(document_ids, key=str.encode, reverse=True)


class CorpusDocument(NamedTuple):
    """A document: its title and text, joined as a search reads them, and its text alone."""

    title_and_text: str
    text: str


def read_corpus_documents(path: pathlib.Path) -> list[CorpusDocument]:
    """Return the documents of a file of JSON lines, or of a directory with corpus.jsonl.

    A line has `text` and perhaps `title`. The file may be compressed with gzip.

    Raises:
        UserError: the file is absent or has a wrong format.
    """

    def document_of(fields: Mapping[str, Any]) -> CorpusDocument:
        return CorpusDocument(_join_title_and_text(fields), _text_field(fields))

    file = _find_plain_or_gzip_file(path, "corpus.jsonl") if path.is_dir() else path
    return list(_read_jsonl_texts(file, document_of, needs_id=False).values())


def _find_plain_or_gzip_file(directory: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of the file `name` or `name`.gz in a directory; raise UserError if both are absent."""
    path = next((path for suffix in TEXT_SUFFIXES if (path := directory / (name + suffix)).is_file()), None)
    if path is None:
        raise UserError(f"{directory}: no {name} or {name}.gz; give a directory in the layout of BEIR (docs/score.md)")
    return path


def _join_title_and_text(fields: Mapping[str, Any]) -> str:
    """Return the title and the text of a document, joined by a space as in BEIR and MTEB."""
    title = "" if fields.get("title") is None else _text_field(fields, "title")
    return f"{title} {_text_field(fields)}".strip()


def _text_field(fields: Mapping[str, Any], name: str = "text") -> str:
    """Return a field of a document or a query; raise TypeError, with the field's name, if the value is not a text."""
    text = fields.get(name)
    if not isinstance(text, str):
        raise TypeError(name)
    return text


def _read_jsonl_texts(
    path: pathlib.Path, text_of: Callable[[Mapping[str, Any]], Text], needs_id: bool = True
) -> dict[str, Text]:
    """Return a dict from id to text for a JSON-lines file; if `needs_id` is False, a line's id is `file:line`."""
    rows = ((where, check_json_object(where, parse_json(where, line))) for where, line in _read_located_lines(path))
    return _texts_by_id(rows, text_of, str(path), needs_id)


def _texts_by_id(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
    text_of: Callable[[Mapping[str, Any]], Text],
    source: str,
    needs_id: bool = True,
) -> dict[str, Text]:
    """Return a dict from id to text for rows of (location, fields); if `needs_id` is False, the id is the location."""
    needed = "_id and text" if needs_id else "text"
    texts: dict[str, Text] = {}
    for where, fields in rows:
        identifier = fields.get("_id") if needs_id else where
        if not isinstance(identifier, str):
            raise UserError(f"{where}: no _id with a string; each line needs {needed}")
        if has_surrogate(identifier):
            raise UserError(f"{where}: the _id has half of a surrogate pair, which is no character; remove it")
        if identifier in texts:
            raise UserError(f"{where}: the _id '{identifier}' occurs twice; give each line an id of its own")
        try:
            texts[identifier] = text_of(fields)
        except TypeError as error:
            fix = "write it in quotes, or leave it out" if str(error) == "title" else f"each line needs {needed}"
            raise UserError(f"{where}: no {error} with a string; {fix}") from None
    if not texts:
        raise UserError(f"{source} holds no line with {needed}")
    return texts


def _parquet_files(directory: pathlib.Path, split: str) -> list[pathlib.Path]:
    """Return the Parquet files of a split in a directory, or the files of `train` if the split has no file."""
    return sorted(directory.glob(f"{split}-*.parquet")) or sorted(directory.glob("train-*.parquet"))


def _read_parquet_rows(
    directory: pathlib.Path, split: str, names: Sequence[str], optional: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the location and the fields of each row of the Parquet files of a split."""
    for path in _parquet_files(directory, split):
        for record in read_parquet(str(path), {name: name for name in names}, optional):
            yield record.where, record.fields


def _add_judgment(judgments: dict[str, dict[str, int]], where: str, query: str, document: str, relevance: int) -> None:
    """Add the judgment of the row at `where`; raise UserError if the query already has a judgment of the document."""
    of_query = judgments.setdefault(query, {})
    if document in of_query:
        raise UserError(
            f"{where}: a second judgment of document '{document}' for query '{query}'; keep a single judgment"
        )
    of_query[document] = relevance


def _read_parquet_judgments(directory: pathlib.Path, split: str) -> dict[str, dict[str, int]]:
    """Return query id -> document id -> relevance from Parquet files; the relevance of a row without score is 1."""
    splits = sorted({path.name.partition("-")[0] for path in directory.glob("*-*.parquet")})
    if splits and split not in splits and (split, splits) != ("test", ["train"]):  # NanoBEIR's judgments for tests
        raise UserError(f"{directory}: no judgments of the split {split}; choose a split from {', '.join(splits)}")
    judgments: dict[str, dict[str, int]] = {}
    for where, fields in _read_parquet_rows(directory, split, JUDGMENT_FIELDS, ("score",)):
        query, document, relevance = (fields.get(name, 1) for name in JUDGMENT_FIELDS)
        if not isinstance(query, str) or not isinstance(document, str):
            raise UserError(f"{where}: give texts as query-id and corpus-id")
        if type(relevance) is not int or abs(relevance) >= 10**MAX_DIGITS:
            raise UserError(f"{where}: give an integer of at most {MAX_DIGITS} digits as score")
        _add_judgment(judgments, where, query, document, relevance)
    if not judgments:
        raise UserError(f"{directory} holds no judgment")
    return judgments


class _PlacedLine(NamedTuple):
    """A line of text and its location, `file:line`."""

    where: str
    text: str


def _read_located_lines(path: pathlib.Path) -> Iterator[_PlacedLine]:
    """Yield the location and the text of each nonblank line of a file."""
    try:
        with open_regular_file(path) as file:
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
            for number, text in read_text_lines(str(path), stream, MAX_LINE_BYTES):
                if text.strip():
                    yield _PlacedLine(f"{path}:{number}", text)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error}); copy it again") from None


def _read_tsv_judgments(path: pathlib.Path) -> dict[str, dict[str, int]]:
    """Return query id -> document id -> relevance from a tab-separated file, whose first row may be a header."""
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
            if not re.fullmatch(f"-?[0-9]{{1,{MAX_DIGITS}}}", relevance.strip()):
                if row.first_line == 1 and not re.search(r"[0-9]", relevance):
                    continue  # the header
                raise UserError(
                    f"{where}: the relevance '{relevance:.20}' is no integer of at most {MAX_DIGITS} digits"
                )
            _add_judgment(judgments, where, query, document, int(relevance))
    if not judgments:
        raise UserError(f"{path} holds no judgment")
    return judgments
