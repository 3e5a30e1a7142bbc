"""Data sets prepared by TensorFlow Datasets as records, read without TensorFlow and without a network."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.readers.data_sets import PREFIX, open_builder
from bert_jax.tasks.reading.columns import absent_column
from bert_jax.tasks.task import Columns, Record

__all__ = ["PREFIX", "DataSet"]


class DataSet:
    """A prepared data set 'tfds:NAME' or 'tfds:NAME@DATA_DIR' in ArrayRecord files.

    Raises:
        UserError: TFDS is not installed, the data set is missing, or has another file format.
    """

    def __init__(self, place: str):
        self.place = place
        self._builder = open_builder(place)

    def label_names(self, feature: str) -> tuple[str, ...]:
        """Return the names of the classes of a feature; () where it has other values."""
        found = dict(self._builder.info.features.items()).get(feature)
        return tuple(getattr(getattr(found, "feature", found), "names", None) or ())

    def records(self, split: str, columns: Columns, optional: Sequence[str]) -> Iterator[Record]:
        """Yield the examples of a split, in its order; a class number becomes its name, -1 no label.

        Raises:
            UserError: no such split or feature, or an empty split.
        """
        if split not in self._builder.info.splits:
            splits = ", ".join(self._builder.info.splits)
            raise UserError(f"{self.place}: no split '{split}'; there are {splits}: name one in config.task")
        features = list(self._builder.info.features)
        absent = [field for field, name in columns.items() if name not in features]
        for field in absent:
            if field not in optional:
                raise absent_column(self.place, "feature", field, columns, features)
        present = {field: name for field, name in columns.items() if field not in absent}
        names = {field: self.label_names(name) for field, name in present.items()}
        for number, item in enumerate(self._builder.as_data_source(split)):
            fields = {field: _named(_plain(item[name]), names[field]) for field, name in present.items()}
            yield Record(f"{self.place} {split}[{number}]", fields)


def _named(value: Any, names: Sequence[str]) -> Any:
    if not names:
        return value
    if isinstance(value, list):
        return [names[number] for number in value]
    return names[value] if value >= 0 else None


def _plain(value: Any) -> Any:
    """Return bytes as text, arrays as lists, and a dict of lists as a list of dicts, as JSON has them."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Mapping):
        lists = {key: _plain(values) for key, values in value.items()}
        return [dict(zip(lists, items, strict=True)) for items in zip(*lists.values(), strict=True)]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value
