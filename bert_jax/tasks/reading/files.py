"""Finding the files of a task, and reading their text."""

import gzip
import os
import zlib
from collections.abc import Sequence
from typing import IO

from bert_jax.errors import UserError
from bert_jax.readers.documents import MAX_RATIO

MAX_BYTES = 256 << 20  # unpacked, unless the file has a hundredth of them itself: it is held in memory


def find(directory: str, folder: str, names: Sequence[str]) -> list[str]:
    """Return the paths of all names, plain or .gz, in `directory` or its subfolder; [] if one is missing."""
    found = []
    for name in names:
        bases = (os.path.join(directory, name), os.path.join(directory, folder, name))
        paths = [base + suffix for base in bases for suffix in ("", ".gz")]
        found += [path for path in paths if os.path.isfile(path)][:1]
    return found if len(found) == len(names) else []


def read_text(path: str) -> str:
    """Return the text of a UTF-8 file, gzip or plain, without a byte order mark.

    Raises:
        UserError: the file cannot be read, is a broken archive, is not UTF-8 (by line), or is empty.
    """
    try:
        with open(path, "rb") as file:
            data = _gunzip(file, path) if path.endswith(".gz") else file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: broken archive ({error}); fetch it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check config.task.data") from None
    try:
        text = data.decode("utf-8-sig")
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
    return text


def _gunzip(file: IO[bytes], path: str) -> bytes:
    limit = max(MAX_BYTES, MAX_RATIO * os.path.getsize(path))
    data = gzip.GzipFile(fileobj=file).read(limit + 1)
    if len(data) > limit:
        raise UserError(f"{path}: unpacks to more than {limit:,} bytes; unpack it yourself if you trust it")
    return data
