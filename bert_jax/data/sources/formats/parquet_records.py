"""Parquet -> documents, one per row; the text is a column."""

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from bert_jax.data.sources.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, format_names
from bert_jax.errors import UserError, did_you_mean, writing

_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 4096


def read_parquet_records(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the rows of one column, whose name may lead into structs by dots, in batches of a few MiB.

    A stream that is not a local file is copied to a temporary one first, since the format is read from its end.

    Raises:
        UserError: pyarrow is not installed, a broken file, no such column, or one that holds no text.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{name}: needs the package pyarrow: pip install pyarrow") from None
    with contextlib.ExitStack() as stack:
        file = stream
        if not (isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)):
            with writing(tempfile.gettempdir(), "make room, or set TMPDIR to a larger directory"):
                file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, file, 1 << 20)
        try:
            yield from _rows(name, parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20), options)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last for column names
            line = str(error).partition("\n")[0]
            raise UserError(f"{name}: broken Parquet file ({line}); fetch it again or leave it out") from None


def _rows(name: str, file: Any, options: ReadOptions) -> Iterator[RawDocument]:
    path = _path(name, file.schema_arrow, options.field)
    number = 0
    for batch in file.iter_batches(_batch_rows(file), columns=[".".join(path)], use_threads=False):
        for value in _values(batch.column(0), path[1:]):
            number += 1
            where = f"{name}:{number}"
            if value is None:
                yield RawDocument(where, rejected="not a text")
            elif len(value) > MAX_RECORD_BYTES:
                yield RawDocument(where, rejected="too large")
            else:
                yield RawDocument(where, value)
    if not number:
        yield RawDocument(name, rejected="empty")


def _path(name: str, schema: Any, field: str) -> list[str]:
    """Return the names of the structs around the column, and its own; UserError where it holds no text."""
    import pyarrow.types as kinds

    path = [field] if field in schema.names else field.split(".")
    inside: Any = schema
    for key in path:
        names = [one.name for one in inside]
        if key not in names:
            raise UserError(
                f"{name}: no column '{field}'{did_you_mean(key, names)} (there are {format_names(names)}); "
                "give one with --field"
            )
        found = inside.field(key).type
        inside = found if kinds.is_struct(found) else []
    if kinds.is_dictionary(found):
        found = found.value_type
    if not any(is_kind(found) for is_kind in (kinds.is_string, kinds.is_large_string, kinds.is_string_view)):
        raise UserError(f"{name}: the column '{field}' holds {found}, not text; give another with --field")
    return path


def _values(column: Any, inner: list[str]) -> list[bytes | None]:
    import pyarrow
    from pyarrow import compute

    for key in inner:
        column = compute.struct_field(column, key)
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary()).to_pylist()


def _batch_rows(file: Any) -> int:
    """Return a number of rows of about _BATCH_BYTES, by the row group with the longest rows."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    row = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1)
    return int(min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(1, row))))
