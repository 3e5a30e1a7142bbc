"""The documents of the inputs that `--input` names: find the files, check the options, read."""

import collections
import contextlib
import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError, did_you_mean, file_error, with_message
from bert_jax.readers import archives, data_sets, pieces, python_docs, storage
from bert_jax.readers.documents import DEFAULT, DOCUMENT_UNITS, ENCODING_ERRORS, Document, RawDocument, ReadOptions
from bert_jax.readers.formats.fields import parse_field_template
from bert_jax.readers.formats.table import FORMATS, MARKUPS, file_format_name, has_known_format, to_document
from bert_jax.readers.rows import check_encoding, utf8_stream

PYTHON_DOCS = "python-docs"
SMALL_BYTES = 1 << 20  # size on disk below which an input is not divided
USUAL_RATIO = 4  # usual unpacked size of a compressed text, divided by the packed size
_NAMES_SHOWN = 8
# Files of a directory that are not read.
UNKNOWN, HIDDEN, WRITTEN = "files of no known format", "hidden files and directories", "tokenizers, corpora and runs"
# A directory with all of these files is a tokenizer or model, a corpus, or a run.
_FILES_OF_PRODUCTS = (
    ("tokenizer_config.json", "tokenizer.json"),
    ("tokenizer_config.json", "vocab.txt"),
    ("manifest.json", "train.index.npy", "tokenizer/tokenizer.json"),
    ("run.json", "metrics.jsonl", "tokenizer/tokenizer.json"),
)
# Options that apply only to some formats, and the error message if no input has such a format.
_OPTIONAL = {
    "field": "no input has fields, as JSON lines, CSV, TSV, Parquet and Arrow have",
    "markup": "no input has fields; give --format html, markdown or rst for whole files",
    "encoding": "no input is a file of text",
    "members": "no input is a tar or zip archive",
    "documents": "no input is text or markdown; a document of the other formats is a record",
}


def read_documents(inputs: Sequence[str], options: ReadOptions = DEFAULT) -> Iterator[Document]:
    """Return an iterator over all documents of the inputs, in a fixed order, including rejected documents.

    A document of more than `documents.MAX_UNSPLIT_BYTES` bytes comes in pieces; each piece is a `Document`.

    Raises:
        UserError: an option has an impossible value, or `find_files` or `read_raw_documents` raises it.
    """
    _check_option_values(options)
    return (to_document(raw, options) for raw in read_raw_documents(find_files(inputs, options), options))


def find_files(
    inputs: Sequence[str], options: ReadOptions = DEFAULT, say: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Return the files that the inputs name, in order, without duplicates.

    Args:
        inputs: files, directories (all known files inside, sorted), globs, URLs of these, 'python-docs', or
        'tfds:NAME[/CONFIG][:VERSION][@DATA_DIR][#SPLIT]'; inputs of the last two kinds are returned unchanged. The
        hidden files of a directory, and the corpora, tokenizers, models and runs in a directory, are not read.
        options: options of the readers; with a format other than 'auto', files with any suffix are read.
        say: function that prints a line; called for each directory with files that are not read.

    Raises:
        UserError: an input matches nothing, or no file remains to be read.
    """
    path_by_identity: dict[str, str] = {}
    listed = storage.list_named_files(inputs)
    for item in inputs:
        if _input_kind(item) is not _FILE:
            path_by_identity.setdefault(item, item)
            continue
        not_read: _NotRead = collections.defaultdict(collections.Counter)
        for path in [listed[item]] if item in listed else _match_files_to_read(item, options, not_read):
            path_by_identity.setdefault(path if storage.is_url(path) else os.path.realpath(path), path)
        if not_read:
            say(f"{item}: not read are {_describe_files_not_read(not_read)}")
    if not path_by_identity:
        raise UserError("no input: give files, directories, globs or python-docs with --input")
    return list(path_by_identity.values())


_NotRead = collections.defaultdict[str, collections.Counter[str]]  # kind of files -> label -> number of files


def _match_files_to_read(item: str, options: ReadOptions, not_read: _NotRead) -> list[str]:
    """Return the files of an input; count the other files of a directory by suffix, hidden name or directory."""

    def select(names: Sequence[str]) -> list[str]:
        written = _directories_of_tokenizers_corpora_and_runs(names)
        selected = []
        for name in names:
            inside = next((folder for folder in _parent_directories(name) if folder in written), "")
            if storage.is_hidden(name):
                not_read[HIDDEN][next(filter(storage.is_hidden, name.split("/")))] += 1
            elif inside:
                not_read[WRITTEN][inside] += 1
            elif _is_archive(name) or has_known_format(archives.uncompressed_name(name), options):
                selected.append(name)
            else:
                not_read[UNKNOWN][os.path.splitext(name)[1].lower() or os.path.basename(name)] += 1
        return selected

    try:
        return storage.match_files(item, select)
    except UserError:
        if not_read:
            raise UserError(f"{item}: contains no file to read, but {_describe_files_not_read(not_read)}") from None
        raise


def _directories_of_tokenizers_corpora_and_runs(names: Collection[str]) -> set[str]:
    """Return the relative paths of the corpora, tokenizers, models and runs among the files of a directory."""
    names = set(names)
    return {
        folder
        for first, *others in _FILES_OF_PRODUCTS
        for name in names
        if (folder := name.removesuffix(f"/{first}")) != name and all(f"{folder}/{other}" in names for other in others)
    }


def _parent_directories(name: str) -> Iterator[str]:
    """Yield the relative paths of the directories above a file, the outermost directory first."""
    return (name[:index] for index, character in enumerate(name) if character == "/")


def _describe_files_not_read(not_read: _NotRead) -> str:
    """Return a message about the files of a directory that are not read, counted by suffix, name or directory."""
    advice = "name them ('DIR/**/*.suffix')" + (" or give --format" if UNKNOWN in not_read else "")
    counts = [f"{kind}: {_describe_counts(not_read[kind])}" for kind in (UNKNOWN, HIDDEN, WRITTEN) if kind in not_read]
    return "; ".join([*counts, f"to read some, {advice}"])


def _describe_counts(counts: collections.Counter[str]) -> str:
    """Return the counts of the most common labels, and the sum of the other counts."""
    shown = ", ".join(f"{count:,} {label}" for label, count in counts.most_common(_NAMES_SHOWN))
    num_hidden = sum(counts.values()) - sum(count for _, count in counts.most_common(_NAMES_SHOWN))
    return shown + (f" and {num_hidden:,} others" if num_hidden else "")


def check_read_options(files: Sequence[str], options: ReadOptions) -> None:
    """Raise UserError, before any reading, for options that apply to no file of `find_files`.

    Raises:
        UserError: a value is unknown; `field` is given, but no input has fields; `documents` is given, but no input is
        split into documents; or a local CSV or TSV file has no such column.
    """
    _check_option_values(options)
    for name, reason in _OPTIONAL.items():
        value = getattr(options, name)
        if value != getattr(DEFAULT, name) and not any(name in _options_that_apply(path, options) for path in files):
            raise UserError(f"--{name} {value}: {reason}; leave it out, or give the format of the files with --format")
    for path in files:
        is_plain = _input_kind(path) is _FILE and not storage.is_url(path) and not _is_archive(path)
        if is_plain and FORMATS[file_format_name(archives.uncompressed_name(path), options)].has_header:
            next(read_raw_documents([path], options), None)  # raises UserError if the header lacks the field


def total_bytes(files: Iterable[str]) -> int:
    """Return the size on disk of the files of `find_files`; 'python-docs' counts as 0."""
    return sum(_input_kind(path).size(path) for path in files)


def input_version(path: str) -> str:
    """Return a text that changes with the content of an item of `find_files`, such as a time or an etag."""
    return _input_kind(path).version(path)


def is_small(path: str) -> bool:
    """Return whether an item of `find_files` has less than `SMALL_BYTES`."""
    return total_bytes([path]) < SMALL_BYTES


def is_divisible(path: str, options: ReadOptions) -> bool:
    """Return whether `options.stretch` applies to an item of `find_files`; it applies to large files of records."""
    if _input_kind(path) is not _FILE or _is_archive(path) or is_small(path):
        return False
    return FORMATS[file_format_name(archives.uncompressed_name(path), options)].is_stream


def read_raw_documents(files: Sequence[str], options: ReadOptions = DEFAULT) -> Iterator[RawDocument]:
    """Yield the documents of the files of `find_files`, in order, for `to_document`.

    Reading is fast and takes bounded memory. A file may be compressed (.gz, .xz, .bz2, .zst), or a tar or zip
    archive. The archive and its members may be compressed. The `bytes_read` of a document counts the bytes of all files
    so far. `check_read_options` checks the options.

    Raises:
        UserError: a package is missing, or a file cannot be read to its end.
    """
    bytes_before = 0
    for path in files:
        with _add_path_to_errors(path):
            documents = _input_kind(path).read(path, options)
            if options.stretch != DEFAULT.stretch and is_divisible(path, options):
                documents = _documents_in_byte_range(path, options, documents)
            for raw in documents:
                raw.bytes_read += bytes_before
                yield raw
        bytes_before += _input_kind(path).size(path)


class _InputKind(NamedTuple):
    """A row of INPUT_KINDS."""

    read: Callable[[str, ReadOptions], Iterator[RawDocument]]
    size: Callable[[str], int]  # bytes
    version: Callable[[str], str]  # see `input_version`
    options: Collection[str] = ()  # options that apply to the input; the format of a file decides its options


def _read_file(path: str, options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the documents of a file, or of the members of an archive."""
    with storage.open_file(path) as file:
        members = archives.open_file_or_members(path, file, options.max_unpacked_bytes, options.members)
        for name, bare_name, stream, rejected in members:
            if stream is None:
                yield RawDocument(name=name, rejected=rejected, bytes_read=file.tell())
                continue
            row = FORMATS[file_format_name(bare_name, options)]
            for raw in row.read(name, utf8_stream(stream, options.encoding) if row.is_text else stream, options):
                raw.bytes_read = file.tell()
                yield raw


def _read_python_docs(_: str, options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the documents of the input 'python-docs'."""
    for name, text in python_docs.python_docs_names_and_texts():
        yield from pieces.read_text_documents(name, io.BytesIO(text.encode()), options, "text")


_FILE = _InputKind(_read_file, storage.file_size, storage.file_version)
INPUT_KINDS = {
    PYTHON_DOCS: _InputKind(_read_python_docs, lambda _: 0, python_docs.python_version, ("documents",)),
    data_sets.PREFIX: _InputKind(
        data_sets.read_data_set, data_sets.num_bytes_of_split, data_sets.data_set_version, ("field", "markup")
    ),
}


def _input_kind(path: str) -> _InputKind:
    """Return the row of INPUT_KINDS for an item of `find_files`; return `_FILE` for a file."""
    if path.startswith(data_sets.PREFIX):
        return INPUT_KINDS[data_sets.PREFIX]
    return INPUT_KINDS.get(path, _FILE)


def _check_option_values(options: ReadOptions) -> None:
    """Raise UserError for an option with an impossible value."""
    for value, choices in (
        (options.documents, DOCUMENT_UNITS),
        (options.encoding_errors, ENCODING_ERRORS),
        (options.format, ("auto", *FORMATS)),
        (options.markup, tuple(MARKUPS)),
    ):
        if value not in choices:
            raise UserError(f"'{value}' is none of {', '.join(choices)}{did_you_mean(value, choices)}")
    if options.max_unpacked_bytes < 1:
        raise UserError(f"--max_unpacked_bytes {options.max_unpacked_bytes}: give at least 1")
    if not options.field:
        raise UserError("--field is empty; give the name of the field that holds the text")
    parse_field_template(options.field)
    check_encoding(options.encoding)


def _options_that_apply(path: str, options: ReadOptions) -> Collection[str]:
    """Return the optional fields of `ReadOptions` that may apply to this input."""
    if _input_kind(path) is not _FILE:
        return _input_kind(path).options
    if _is_archive(path):
        return _OPTIONAL
    row = FORMATS[file_format_name(archives.uncompressed_name(path), options)]
    return {row.option, "encoding" if row.is_text else "", "markup" if row.option == "field" else ""}


def _is_archive(path: str) -> bool:
    return archives.is_archive_name(archives.uncompressed_name(path))


def _documents_in_byte_range(
    path: str, options: ReadOptions, documents: Iterator[RawDocument]
) -> Iterator[RawDocument]:
    """Yield the documents of a file that begin in the range `options.stretch` of its bytes.

    A range that ends at 1 includes all remaining documents. `bytes_read` grows by a block of bytes at a time. Within a
    block, the beginning of each document is computed from the sizes of the documents before it.
    """
    size, packed = _input_kind(path).size(path), archives.uncompressed_name(path) != path
    first, last = options.stretch
    begin = end = inside = 0  # range of the current block, and bytes of its documents so far
    for raw in documents:
        if raw.bytes_read != end:
            begin, end = end, raw.bytes_read
            inside = 0
        position = (begin + min(inside / (USUAL_RATIO if packed else 1), end - begin)) / size
        inside += len(raw.data)
        if position >= last < 1:
            return
        if position >= first:
            yield raw


@contextlib.contextmanager
def _add_path_to_errors(path: str) -> Iterator[None]:
    """Turn every error into a UserError that names the file."""
    try:
        yield
    except UserError as error:
        raise with_message(error, str(error) if path in str(error) else f"{path}: {error}") from None
    except Exception as error:  # decoders raise errors of many types
        if isinstance(error, OSError) and error.errno:
            raise file_error(error, path, "cannot be read", "fix that or leave it out") from None
        if isinstance(error, (*archives.BROKEN_ARCHIVE, OSError)):
            raise UserError(f"{path}: broken archive ({error}); fetch it again or leave it out") from None
        if storage.is_url(path):
            raise UserError(f"{path}: cannot be read ({type(error).__name__}: {error}); try again") from None
        raise
