"""Documents from columns of text in the batches of Arrow and Parquet files, one document per row."""

from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError, did_you_mean
from bert_jax.readers.documents import (
    MAX_RECORD_BYTES,
    RawDocument,
    ReadOptions,
    UnpackedByteCounter,
    describe_field_names,
)
from bert_jax.readers.formats.fields import parse_field_template

_ROW_BYTES = 256  # bytes counted for each row in addition to its text, as few bytes can express many empty rows


class TextColumns:
    """The columns that `options.field` names in the file `name`; dots in the name of a column lead into structs.

    Raises:
        UserError: a name matches no column or several columns, or a column has no text.
    """

    def __init__(self, name: str, schema: Any, options: ReadOptions):
        self._name = name
        self._parts = parse_field_template(options.field)
        self._paths = {part.name: _text_column_path(name, schema, part.name) for part in self._parts if part.name}
        self.num_rows = 0  # number of rows of all batches so far

    @property
    def dotted_paths(self) -> list[str]:
        """The full names of the columns, with dots between nested names."""
        return [".".join(path) for path in self._paths.values()]

    def documents(self, batch: Any, unpacked: UnpackedByteCounter) -> Iterator[RawDocument]:
        """Yield the documents of the next batch; count their bytes in `unpacked`."""
        values = {name: _column_values(batch.column(path[0]), path[1:]) for name, path in self._paths.items()}
        for row in range(batch.num_rows):
            self.num_rows += 1
            row_values = {name: column[row] for name, column in values.items()}
            unpacked.add(_ROW_BYTES + sum(len(value or b"") for value in row_values.values()))
            yield self._document_of_row(f"{self._name}:{self.num_rows}", row_values)

    def _document_of_row(self, where: str, values: dict[str, bytes | None]) -> RawDocument:
        if None in values.values():
            return RawDocument(name=where, rejected="not a text")
        text = b"".join(
            part.literal.encode() + (values[part.name] or b"" if part.name else b"") for part in self._parts
        )
        if len(text) > MAX_RECORD_BYTES:
            return RawDocument(name=where, rejected="too large")
        return RawDocument(name=where, data=text, is_field=True)


def _text_column_path(name: str, schema: Any, field: str) -> list[str]:
    """Return the names of the structs around the column `field`, and the name of the column in the innermost struct."""
    import pyarrow.types as kinds

    path = [field] if field in schema.names else field.split(".")
    columns: Any = schema
    for key in path:
        names = [column.name for column in columns]
        if key not in names:
            raise UserError(
                f"{name}: no column '{field}'{did_you_mean(key, names)} (there are {describe_field_names(names)}); "
                "give a column with --field"
            )
        if names.count(key) > 1:
            raise UserError(f"{name}: {names.count(key)} columns are named '{key}'; write it with different names")
        kind = columns.field(key).type
        columns = kind if kinds.is_struct(kind) else []
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if not any(is_kind(kind) for is_kind in (kinds.is_string, kinds.is_large_string, kinds.is_string_view)):
        raise UserError(f"{name}: the column '{field}' holds {kind}, not text; give another with --field")
    return path


def _column_values(column: Any, struct_fields: list[str]) -> list[bytes | None]:
    """Return the UTF-8 bytes of each row of a column, or of a field inside the column; None if the value is missing."""
    import pyarrow
    from pyarrow import compute

    for key in struct_fields:
        column = compute.struct_field(column, key)
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pyarrow.large_binary()).to_pylist()
