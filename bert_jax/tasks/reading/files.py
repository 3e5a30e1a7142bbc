"""Functions that find the files of a task, and read text from them."""

import gzip
import os
import zlib
from collections.abc import Iterable, Sequence
from typing import IO

from bert_jax.errors import UserError, did_you_mean, file_error
from bert_jax.files import open_regular_file
from bert_jax.readers.documents import MAX_RATIO
from bert_jax.readers.rows import decode_with_byte_order_mark
from bert_jax.tasks.task import Columns

MAX_BYTES = 256 << 20  # limit of a file's unpacked size; the limit is MAX_RATIO times the packed size if that is larger


def find_task_files(directory: str, folder: str, names: Sequence[str]) -> list[str]:
    """Return the paths of the named files, plain or .gz, in `directory` or `directory/folder`; [] if any is missing."""
    paths = []
    for name in names:
        bases = (os.path.join(directory, name), os.path.join(directory, folder, name))
        candidates = [base + suffix for base in bases for suffix in ("", ".gz")]
        paths += [path for path in candidates if os.path.isfile(path)][:1]
    return paths if len(paths) == len(names) else []


def read_task_bytes(path: str) -> bytes:
    """Return the bytes of a file, which may be compressed with gzip.

    Raises:
        UserError: the file cannot be read or is a broken archive.
    """
    try:
        with open_regular_file(path) as file:
            return _gunzip(file, path) if path.lower().endswith(".gz") else file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: broken archive ({error}); fetch it again") from None
    except OSError as error:
        raise file_error(error, path, "cannot be read") from None


def read_task_text(path: str) -> str:
    """Return the text of a file, which may be compressed with gzip, without its byte order mark.

    The lines of the text end with "\\n" or "\\r\\n".

    The text is UTF-8, or has the encoding of its byte order mark, such as UTF-16 from a spreadsheet.

    Raises:
        UserError: the file cannot be read, is a broken archive, is not UTF-8 (the message names the line), or is empty.
    """
    data = read_task_bytes(path)
    try:
        text = decode_with_byte_order_mark(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: invalid UTF-8; save the file as UTF-8, without compression or as .gz"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}:{line}: a NUL byte, so this is not a text file; name another file")
    if not text.strip():
        raise UserError(f"{path}: the file is empty; name another file")
    return text if "\n" in text else text.replace("\r", "\n")  # the line ends of old Macintosh programs


def _gunzip(file: IO[bytes], path: str) -> bytes:
    limit = max(MAX_BYTES, MAX_RATIO * os.path.getsize(path))
    data = gzip.GzipFile(fileobj=file).read(limit + 1)
    if len(data) > limit:
        raise UserError(f"{path}: unpacks to more than {limit:,} bytes; unpack it yourself if you trust it")
    return data


def absent_column_error(where: str, kind: str, field: str, columns: Columns, present: Iterable[str]) -> UserError:
    """Return the error for a field whose column is missing; `present` has the columns that the file has.

    The message suggests a similar column that no field reads. The argument `kind` is the word for a column in the
    file's format, such as "key" in JSON.
    """
    present, name = list(present), columns[field]
    free = [column for column in present if column not in columns.values()]
    known = ", ".join(map(repr, present))
    return UserError(f"{where}: no {kind} '{name}' for {field}{did_you_mean(name, free)} (there are {known})")
