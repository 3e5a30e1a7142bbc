"""Data sets that TensorFlow Datasets has prepared: opened by name, without TensorFlow and without its network."""

import functools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax.data.sources import storage
from bert_jax.data.sources.records import MAX_RECORD, Raw, Reading, listed
from bert_jax.errors import UserError, did_you_mean

PREFIX = "tfds:"
_DEFAULT_SPLIT = "train"


class Place(NamedTuple):
    """The parts of 'tfds:NAME[/CONFIG][:VERSION][@DATA_DIR][#SPLIT]'."""

    name: str
    data_dir: str
    split: str


def parse(place: str) -> Place:
    """The parts of a place, '' for what is not there."""
    rest, _, split = place.removeprefix(PREFIX).partition("#")
    name, _, data_dir = rest.partition("@")
    return Place(name, data_dir, split)


@functools.cache
def open_builder(place: str) -> Any:
    """TFDS's reader of what lies on the disk: neither the data set's own code nor a download.

    Raises:
        UserError: TFDS is not installed, the data set is not there, or lies in files other than ArrayRecord.
    """
    name, data_dir, _ = parse(place)
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"{place}: needs TensorFlow Datasets ({error}); install it with: pip install 'bert-jax[tfds]'"
        ) from None
    try:
        builder = tfds.core.read_only_builder.builder_from_files(name, data_dir=data_dir or None)
    except Exception as error:  # TFDS says in many ways that a folder is none of its own
        raise UserError(
            f"{place}: no data set that TFDS has prepared ({type(error).__name__}); prepare it by "
            f"tfds build {name} --file_format=array_record, or name where it lies: {PREFIX}NAME@DATA_DIR"
        ) from None
    if builder.info.file_format.value != "array_record":
        raise UserError(f"{place}: lies in {builder.info.file_format.value} files; prepare it in array_record files")
    return builder


def size(place: str) -> int:
    """Bytes of the files of the split."""
    return int(_split(place).num_bytes)


def stamp(place: str) -> str:
    """Of the file that is written last when a data set is prepared."""
    return storage.stamp(os.path.join(str(open_builder(place).data_dir), "dataset_info.json"))


def raws(place: str, reading: Reading) -> Iterator[Raw]:
    """The examples of the split, 'train' where none is named; the text is a feature, with dots for one in another.

    Raises:
        UserError: as `open_builder`; no such split or feature.
    """
    builder, split = open_builder(place), _split(place)
    path = reading.field.split(".")
    features: Any = builder.info.features
    for key in path:
        names = list(features) if hasattr(features, "keys") else []
        if key not in names:
            raise UserError(
                f"{place}: no feature '{reading.field}'{did_you_mean(key, names)} (there are {listed(names)}); "
                "name one with --field"
            )
        features = features[key]
    source = builder.as_data_source(split.name)
    for number in range(len(source)):
        value = functools.reduce(lambda item, key: item[key], path, source[number])
        yield _raw(f"{place}:{number + 1}", value, split.num_bytes * (number + 1) // len(source))
    if not len(source):
        yield Raw(place, rejected="empty")


def _raw(name: str, value: Any, bytes_read: int) -> Raw:
    data = value.encode() if isinstance(value, str) else value
    if not isinstance(data, bytes):
        return Raw(name, rejected="not a text", bytes_read=bytes_read)
    if len(data) > MAX_RECORD:
        return Raw(name, rejected="too large", bytes_read=bytes_read)
    return Raw(name, data, bytes_read=bytes_read)


def _split(place: str) -> Any:
    splits = open_builder(place).info.splits
    name = parse(place).split or _DEFAULT_SPLIT
    if name not in splits:
        raise UserError(f"{place}: no split '{name}'; there are {', '.join(splits)}: name one as {PREFIX}...#SPLIT")
    return splits[name]
