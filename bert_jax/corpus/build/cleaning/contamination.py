"""The rule that removes texts with an n-gram of evaluation files (Brown et al. 2020, appendix C: 13 words)."""

import functools
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from bert_jax import readers, strict_json
from bert_jax.corpus.build.cleaning.verdict import Removed
from bert_jax.corpus.build.signatures import hash_ngrams, hash_words, normal_words
from bert_jax.errors import UserError
from bert_jax.readers import archives, storage
from bert_jax.readers.rows import decode_with_byte_order_mark, read_rows

_MAX_FILE_BYTES = 256 << 20  # maximum size of an evaluation file; the file is held in memory


class NgramIndex(NamedTuple):
    """The n-grams of evaluation files: ascending `hashes`, uint64, and the index in `names` of each hash's file."""

    hashes: np.ndarray
    files: np.ndarray
    names: tuple[str, ...]


def remove_contaminated_text(text: str, *, files: Sequence[str], ngram: int = 13) -> str | Removed:
    """Remove a text that shares an n-gram of words with an evaluation file.

    Words are compared in their normal form, which ignores case, punctuation and white space.

    Args:
        text: text of a document.
        files: paths, patterns or URLs, as for `--input`: JSON, JSON lines, CSV, TSV and text, compressed or not.
        ngram: number of words.
    """
    index = read_ngram_index(tuple(files), ngram)
    words = normal_words(text)
    hashes = hash_ngrams(hash_words(words), ngram)
    nearest = np.minimum(np.searchsorted(index.hashes, hashes), len(index.hashes) - 1)
    common = np.flatnonzero(index.hashes[nearest] == hashes)
    if not len(common):
        return text
    first = int(common[0])
    return Removed(" ".join(words[first : first + ngram]), index.names[index.files[nearest[first]]])


def check_evaluation_files(*, files: Sequence[str], ngram: int) -> None:
    """Raise UserError if the files cannot be read, or contain no n-gram of `ngram` words."""
    if ngram < 1:
        raise UserError(f"ngram: {ngram} words; give at least 1")
    for name in files:
        if "://" in name or name.startswith("tfds:"):
            raise UserError(f"files: {name} is no local file; copy it to this machine, and name the copy")
    read_ngram_index.cache_clear()  # files of these names may have changed since the last call
    read_ngram_index(tuple(files), ngram)


def evaluation_file_versions(*, files: Sequence[str], **_: object) -> list[Any]:
    """Return the path, size and version of each file; size or version changes when the content changes."""
    return [[path, storage.file_size(path), readers.input_version(path)] for path in readers.find_files(files)]


@functools.lru_cache(maxsize=2)
def read_ngram_index(files: tuple[str, ...], ngram: int) -> NgramIndex:
    """Return the index of the n-grams of evaluation files.

    Raises:
        UserError: see `check_evaluation_files`.
    """
    names = readers.find_files(files)
    hashes, file_indexes = [], []
    for file_index, path in enumerate(names):
        for text in _read_texts(path):
            ngrams = hash_ngrams(hash_words(normal_words(text)), ngram)
            hashes.append(ngrams)
            file_indexes.append(np.full(len(ngrams), file_index))
    if not sum(map(len, hashes)):
        raise UserError(f"files: {', '.join(files)} have no text of {ngram} words; give other files")
    keys, first = np.unique(np.concatenate(hashes), return_index=True)
    return NgramIndex(keys, np.concatenate(file_indexes)[first], tuple(names))


def _read_texts(path: str) -> Iterator[str]:
    """Yield the texts of a file: the strings of JSON, the cells of CSV and TSV, the paragraphs of other files."""
    with storage.open_file(path) as file:
        try:
            for name, bare_name, stream, rejected in archives.open_file_or_members(path, file, _MAX_FILE_BYTES):
                if rejected == archives.HIDDEN:
                    continue
                if stream is None:
                    raise UserError(f"{name}: {rejected}; give files of text")
                suffix = os.path.splitext(bare_name)[1].lower()
                yield from _READERS.get(suffix, _read_paragraphs)(_read_text_within_limit(name, stream))
        except (*archives.BROKEN_ARCHIVE, ValueError) as error:
            raise UserError(f"{path}: cannot be read for decontamination ({error})") from None


def _read_text_within_limit(name: str, stream: IO[bytes]) -> str:
    """Return the text of a stream; raise UserError if the text is too large."""
    data = stream.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise UserError(f"{name}: has more than {_MAX_FILE_BYTES >> 20} MiB; split it")
    return decode_with_byte_order_mark(data)


def _read_json_strings(text: str) -> Iterator[str]:
    """Yield the strings in a text that is a JSON value, or that has a JSON value on each line."""
    try:
        values = [strict_json.parse(text)]
    except json.JSONDecodeError:
        values = [strict_json.parse(line) for line in text.split("\n") if line.strip()]
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            values.extend(value.values() if isinstance(value, dict) else value)


def _read_table_cells(text: str, separator: str, quoted: bool) -> Iterator[str]:
    """Yield the cells of CSV or TSV; raise ValueError for a broken row."""
    for row in read_rows(io.BytesIO(text.encode()), separator, quoted, _MAX_FILE_BYTES):
        if row.problem:
            raise ValueError(f"line {row.first_line}: {row.problem}")
        yield from row.values


def _read_paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text, separated by empty lines."""
    yield from re.split(r"\n\s*\n", text)


_READERS: dict[str, Callable[[str], Iterator[str]]] = {
    ".json": _read_json_strings,
    ".jsonl": _read_json_strings,
    ".ndjson": _read_json_strings,
    ".csv": functools.partial(_read_table_cells, separator=",", quoted=True),
    ".tsv": functools.partial(_read_table_cells, separator="\t", quoted=False),
}
