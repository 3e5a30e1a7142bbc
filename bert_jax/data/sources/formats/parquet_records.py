"""Parquet -> documents, one a row; the text is a column."""

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from bert_jax.data.sources.records import MAX_RECORD, Raw, Reading, listed
from bert_jax.errors import UserError, did_you_mean, writing

_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 4096


def split(name: str, stream: IO[bytes], reading: Reading) -> Iterator[Raw]:
    """The rows of one column, whose name may have dots for structs in it, in batches of a few MiB.

    A stream that is no plain file is copied to a temporary one first, since the format is read from its end.

    Raises:
        UserError: pyarrow is not installed, a broken file, no such column, or one that is no text.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{name}: needs the package pyarrow: pip install 'bert-jax[parquet]'") from None
    with contextlib.ExitStack() as stack:
        file = stream
        if not (isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO)):
            with writing(tempfile.gettempdir(), "make room, or set TMPDIR to a larger place"):
                file = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(stream, file, 1 << 20)
        try:
            yield from _rows(name, parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20), reading)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last of the names of columns
            line = str(error).partition("\n")[0]
            raise UserError(f"{name}: broken Parquet file ({line}); fetch it again or leave it out") from None


def _rows(name: str, file: Any, reading: Reading) -> Iterator[Raw]:
    path = _path(name, file.schema_arrow, reading.field)
    number = 0
    for batch in file.iter_batches(_batch_rows(file), columns=[".".join(path)], use_threads=False):
        for value in _values(batch.column(0), path[1:]):
            number += 1
            where = f"{name}:{number}"
            if value is None:
                yield Raw(where, rejected="not a text")
            elif len(value) > MAX_RECORD:
                yield Raw(where, rejected="too large")
            else:
                yield Raw(where, value)
    if not number:
        yield Raw(name, rejected="empty")


def _path(name: str, schema: Any, field: str) -> list[str]:
    """The names of the column and of the structs it lies in; it has to hold text."""
    import pyarrow.types as kinds

    path = [field] if field in schema.names else field.split(".")
    inside: Any = schema
    for key in path:
        names = [one.name for one in inside]
        if key not in names:
            raise UserError(
                f"{name}: no column '{field}'{did_you_mean(key, names)} (there are {listed(names)}); "
                "name one with --field"
            )
        found = inside.field(key).type
        inside = found if kinds.is_struct(found) else []
    if kinds.is_dictionary(found):
        found = found.value_type
    if not any(is_kind(found) for is_kind in (kinds.is_string, kinds.is_large_string, kinds.is_string_view)):
        raise UserError(f"{name}: the column '{field}' holds {found}, no text; name another with --field")
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
    """Rows that hold about _BATCH_BYTES, going by the fullest of the groups."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    row = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1)
    return int(min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(1, row))))
