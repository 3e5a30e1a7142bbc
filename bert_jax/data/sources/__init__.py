"""Files, directories, globs, URLs, archives, `tfds:` data sets and `python-docs` -> documents, one at a time."""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator, Sequence

from bert_jax.data.sources import archives, data_sets, pieces, python_docs, storage
from bert_jax.data.sources.formats import FORMATS, convert, format_of
from bert_jax.data.sources.records import DEFAULT, ENCODING_ERRORS, UNITS, Document, Raw, Reading
from bert_jax.errors import UserError, did_you_mean

__all__ = ["Document", "Raw", "Reading", "convert", "documents", "find_files", "raws", "total_bytes"]

PYTHON_DOCS = "python-docs"


def documents(inputs: Sequence[str], reading: Reading = DEFAULT) -> Iterator[Document]:
    """Every document of the inputs, in a fixed order; rejected ones too, with their reason.

    One longer than `records.LARGE` bytes comes as several documents, its pieces.

    Raises:
        UserError: as `find_files` and `raws`.
    """
    _check(reading)
    return (convert(raw, reading) for raw in raws(find_files(inputs, reading), reading))


def find_files(inputs: Sequence[str], reading: Reading = DEFAULT) -> list[str]:
    """The files that the inputs name, in order, each once.

    Args:
        inputs: files, directories (all files below, sorted), globs, all of these also as URLs, 'python-docs', or
            'tfds:NAME[/CONFIG][:VERSION][@DATA_DIR][#SPLIT]'. The last two stand for themselves.
        reading: how they will be read.

    Raises:
        UserError: an input that matches nothing; a field, and no input that has fields.
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
    if reading.field != DEFAULT.field and not any(_may_have_fields(path, reading) for path in found.values()):
        raise UserError(
            f"--field {reading.field}: no input has fields, as JSON lines, CSV, TSV and Parquet have; leave it out, or "
            "say with --format what the files are"
        )
    return list(found.values())


def _may_have_fields(path: str, reading: Reading) -> bool:
    if _kind(path) != "file":
        return _kind(path) == data_sets.PREFIX
    bare = archives.bare_name(path)
    return bare.endswith((".tar", ".zip")) or FORMATS[format_of(bare, reading)].fields


def total_bytes(files: Iterable[str]) -> int:
    """Size on disk of what `find_files` found; 'python-docs' counts nothing."""
    return sum(map(_size, files))


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


_RAWS = {"file": _of_file, PYTHON_DOCS: _of_python_docs, data_sets.PREFIX: data_sets.raws}
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
