"""Records of data sets that TensorFlow Datasets has prepared; reading needs no TensorFlow and no network."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.readers.data_sets import PREFIX, open_tfds_builder
from bert_jax.tasks.reading.files import absent_column_error
from bert_jax.tasks.task import Columns, Record

__all__ = ["PREFIX", "DataSet"]


class DataSet:
    """A data set 'tfds:NAME' or 'tfds:NAME@DATA_DIR' that TensorFlow Datasets has prepared in ArrayRecord files.

    Raises:
        UserError: TFDS is not installed, or the data set is missing or has a wrong file format.
    """

    def __init__(self, name: str):
        self.name = name
        self._builder = open_tfds_builder(name)

    def label_names(self, feature: str) -> tuple[str, ...]:
        """Return the names of the classes of a feature; () for a feature without classes."""
        kind = dict(self._builder.info.features.items()).get(feature)
        return tuple(getattr(getattr(kind, "feature", kind), "names", None) or ())

    def records(self, split: str, columns: Columns, optional: Sequence[str]) -> Iterator[Record]:
        """Yield the records of a split, in order; a class number becomes the name of the class, and -1 becomes None.

        Raises:
            UserError: there is no such split or feature, or the split is empty.
        """
        if split not in self._builder.info.splits:
            splits = ", ".join(self._builder.info.splits)
            raise UserError(f"{self.name}: no split '{split}'; there are {splits}: name a split in config.task")
        features = list(self._builder.info.features)
        present = {field: name for field, name in columns.items() if name in features}
        for field in columns:
            if field not in present and field not in optional:
                raise absent_column_error(self.name, "feature", field, columns, features)
        names = {field: self.label_names(name) for field, name in present.items()}
        for index, item in enumerate(self._builder.as_data_source(split)):
            fields = {
                field: _with_class_names(_to_json_types(item[name]), names[field]) for field, name in present.items()
            }
            yield Record(f"{self.name} {split}[{index}]", fields)


def _with_class_names(value: Any, names: Sequence[str]) -> Any:
    """Return a value with names for class numbers, and None for -1; if `names` is empty, return the value unchanged."""
    if not names:
        return value
    if isinstance(value, list):
        return [_with_class_names(index, names) for index in value]
    return names[value] if value >= 0 else None


def _to_json_types(value: Any) -> Any:
    """Return a value as JSON types: bytes become text, arrays become lists, a dict of lists becomes a list of dicts."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Mapping):
        lists = {key: _to_json_types(values) for key, values in value.items()}
        return [dict(zip(lists, items, strict=True)) for items in zip(*lists.values(), strict=True)]
    if isinstance(value, list | tuple):
        return [_to_json_types(item) for item in value]
    if hasattr(value, "tolist"):
        return _to_json_types(value.tolist())
    return value
