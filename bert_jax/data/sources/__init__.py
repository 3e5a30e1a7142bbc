"""Files, directories, globs, URLs, archives, `tfds:` data sets and `python-docs` -> documents, one at a time."""

import contextlib
import io
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

from bert_jax.data.sources import archives, data_sets, pieces, python_docs, storage
from bert_jax.data.sources.formats import FORMATS, convert, format_of
from bert_jax.data.sources.records import DEFAULT, ENCODING_ERRORS, UNITS, Document, Raw, Reading
from bert_jax.errors import UserError, did_you_mean

__all__ = [
    "Document",
    "Raw",
    "Reading",
    "check_reading",
    "convert",
    "documents",
    "find_files",
    "raws",
    "stamp",
    "total_bytes",
]

PYTHON_DOCS = "python-docs"


def documents(inputs: Sequence[str], reading: Reading = DEFAULT) -> Iterator[Document]:
    """Every document of the inputs, in a fixed order; rejected ones too, with their reason.

    One longer than `records.LARGE` bytes comes as several documents, its pieces.

    Raises:
        UserError: as `find_files` and `raws`.
    """
    _check(reading)
    return (convert(raw, reading) for raw in raws(find_files(inputs), reading))


def find_files(inputs: Sequence[str]) -> list[str]:
    """The files that the inputs name, in order, each once.

    Args:
        inputs: files, directories (all files below, sorted), globs, all of these also as URLs, 'python-docs', or
            'tfds:NAME[/CONFIG][:VERSION][@DATA_DIR][#SPLIT]'. The last two stand for themselves.

    Raises:
        UserError: an input that matches nothing.
    """
    found: dict[str, str] = {}
    for item in inputs:
        if _kind(item) == "file":
            for path in storage.find(item):
                found.setdefault(path if storage.is_url(path) else os.path.realpath(path), path)
        else:
            found.setdefault(item, item)
    if not found:
        raise UserError("no input: name files, directories, globs or python-docs with --input")
    return list(found.values())


def check_reading(files: Sequence[str], reading: Reading) -> None:
    """Refuses, before anything is read as a whole, a way of reading that all the files of `find_files` are not for.

    Raises:
        UserError: an option that is none; a field, and no input that has fields; `documents`, and no input whose
            documents it parts; a CSV or TSV file on this machine that has not the column.
    """
    _check(reading)
    for option, mend in _WITHOUT.items():
        value = getattr(reading, option)
        if value != getattr(DEFAULT, option) and not any(option in _options(path, reading) for path in files):
            raise UserError(f"--{option} {value}: {mend}; leave it out, or say with --format what the files are")
    for path in files:
        if _has_header(path, reading):
            next(_raws([path], reading), None)


def _has_header(path: str, reading: Reading) -> bool:
    """Whether the start of a file that is near tells if its field is there."""
    if _kind(path) != "file" or storage.is_url(path) or _is_archive(path):
        return False
    return FORMATS[format_of(archives.bare_name(path), reading)].header


def _options(path: str, reading: Reading) -> Collection[str]:
    """The options that may say what a document of this input is."""
    if _kind(path) != "file":
        return _OPTIONS[_kind(path)]
    return _WITHOUT if _is_archive(path) else {FORMATS[format_of(archives.bare_name(path), reading)].option}


def _is_archive(path: str) -> bool:
    return archives.bare_name(path).endswith((".tar", ".zip"))


def total_bytes(files: Iterable[str]) -> int:
    """Size on disk of what `find_files` found; 'python-docs' counts nothing."""
    return sum(map(_size, files))


def stamp(path: str) -> str:
    """What is another once something that `find_files` found is written again, as far as its place tells."""
    return _STAMPS[_kind(path)](path)


def raws(files: Sequence[str], reading: Reading = DEFAULT) -> Iterator[Raw]:
    """The documents of `find_files`' files as they lie there, in order: cheap, in bounded memory, for `convert`.

    A file may be compressed (.gz, .xz, .bz2, .zst) or a tar or zip archive, itself and its members compressed or not.

    Raises:
        UserError: a file that cannot be read or is a broken archive or compressed stream, so that no half-read file is
            taken for whole; a package that is missing.
    """
    _check(reading)
    return _raws(files, reading)


def _check(reading: Reading) -> None:
    for name, choices in (
        (reading.documents, UNITS),
        (reading.encoding_errors, ENCODING_ERRORS),
        (reading.format, ("auto", *FORMATS)),
    ):
        if name not in choices:
            raise UserError(f"'{name}' is none of {', '.join(choices)}{did_you_mean(name, choices)}")
    if not reading.field:
        raise UserError("the field of the records has no name; give one with --field")


def _raws(files: Sequence[str], reading: Reading) -> Iterator[Raw]:
    before = 0
    for path in files:
        with _naming(path):
            for raw in _RAWS[_kind(path)](path, reading):
                yield raw._replace(bytes_read=before + raw.bytes_read)
        before += _size(path)


def _of_file(path: str, reading: Reading) -> Iterator[Raw]:
    with storage.open_file(path) as file:
        for name, bare, stream, rejected in archives.members(path, file):
            if stream is None:
                yield Raw(name, rejected=rejected, bytes_read=file.tell())
                continue
            for raw in FORMATS[format_of(bare, reading)].split(name, stream, reading):
                yield raw._replace(bytes_read=file.tell())


def _of_python_docs(_: str, reading: Reading) -> Iterator[Raw]:
    for name, text in python_docs.documents():
        yield from pieces.split(name, io.BytesIO(text.encode()), reading, "text")


def _kind(path: str) -> str:
    return path if path == PYTHON_DOCS else data_sets.PREFIX if path.startswith(data_sets.PREFIX) else "file"


def _size(path: str) -> int:
    return _SIZES[_kind(path)](path)


_WITHOUT = {
    "field": "no input has fields, as JSON lines, CSV, TSV and Parquet have",
    "documents": "no input is text or markdown, and a document of other formats is a record",
}
_OPTIONS = {PYTHON_DOCS: {"documents"}, data_sets.PREFIX: {"field"}}
_RAWS = {"file": _of_file, PYTHON_DOCS: _of_python_docs, data_sets.PREFIX: data_sets.raws}
_STAMPS = {"file": storage.stamp, PYTHON_DOCS: python_docs.stamp, data_sets.PREFIX: data_sets.stamp}
_SIZES = {"file": storage.size, PYTHON_DOCS: lambda _: 0, data_sets.PREFIX: data_sets.size}


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Says in one line which file cannot be read."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error) if path in str(error) else f"{path}: {error}") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno:
            raise UserError(f"{path}: cannot be read ({error.strerror}); mend it or leave it out") from None
        if isinstance(error, (*archives.BROKEN, OSError)):
            raise UserError(f"{path}: broken archive ({error}); fetch it again or leave it out") from None
        if storage.is_url(path):
            raise UserError(f"{path}: cannot be read ({type(error).__name__}: {error}); try again") from None
        raise
