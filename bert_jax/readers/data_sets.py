"""Data sets of TensorFlow Datasets (TFDS), read without TensorFlow; those that are not prepared yet, TFDS prepares."""

import functools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError, did_you_mean
from bert_jax.readers import storage
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, format_names
from bert_jax.readers.formats.fields import template_parts
from bert_jax.readers.formats.tfrecord import read_tfrecord_examples

PREFIX = "tfds:"
_DEFAULT_SPLIT = "train"


class DataSetName(NamedTuple):
    """The parts of 'tfds:NAME[/CONFIG][:VERSION][@DATA_DIR][#SPLIT]'."""

    name: str
    data_dir: str
    split: str


def parse_name(text: str) -> DataSetName:
    """Return the parts of a name; '' for a missing part."""
    rest, _, split = text.removeprefix(PREFIX).partition("#")
    name, _, data_dir = rest.partition("@")
    return DataSetName(name, data_dir, split)


@functools.cache
def open_builder(place: str, prepare: bool = False) -> Any:
    """Return TFDS's reader of prepared files, which runs neither the data set's own code nor a download.

    Args:
        place: name of a data set, as for `parse_name`.
        prepare: whether TFDS first downloads and prepares a data set that comes with it, where there are no files.

    Raises:
        UserError: TFDS is not installed, the data set is missing and cannot be prepared, or its files are of no format
            in READERS.
    """
    name, data_dir, _ = parse_name(place)
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise UserError(
            f"{place}: needs TensorFlow Datasets ({error}); pip install tensorflow-datasets importlib_resources"
        ) from None
    try:
        builder = tfds.core.read_only_builder.builder_from_files(name, data_dir=data_dir or None)
    except Exception as error:  # TFDS raises many types for a directory that is not its own
        if not prepare or re.split("[/:]", name)[0] not in tfds.list_builders(with_community_datasets=False):
            raise UserError(
                f"{place}: no data set that TFDS has prepared ({type(error).__name__}); prepare it with "
                f"tfds build {name} --file_format=array_record, or give its directory: {PREFIX}NAME@DATA_DIR"
            ) from None
        builder = _prepare(place)
    if builder.info.file_format.value not in READERS:
        known = " or ".join(READERS)
        raise UserError(f"{place}: has {builder.info.file_format.value} files; prepare it as {known} files")
    return builder


def _prepare(place: str) -> Any:
    """Download and prepare a data set as ArrayRecord files; TFDS shows the progress and checks the room on the disk."""
    import tensorflow_datasets as tfds

    name, data_dir, _ = parse_name(place)
    try:
        builder = tfds.builder(name, data_dir=data_dir or None, file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:  # of the network, of the disk, of a package that the data set needs
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{place}: TFDS cannot prepare it here ({reason}); run tfds build {name} --file_format=array_record where "
            f"it can be downloaded, and give its directory: {PREFIX}NAME@DATA_DIR"
        ) from None
    return builder


def split_bytes(place: str) -> int:
    """Return the bytes of the files of the split."""
    return int(_split(place).num_bytes)


def data_set_version(place: str) -> str:
    """Return the version of the file that TFDS writes last."""
    return storage.file_version(os.path.join(str(open_builder(place, prepare=True).data_dir), "dataset_info.json"))


def read_examples(place: str, options: ReadOptions) -> Iterator[RawDocument]:
    """Return an iterator over the examples of the split, by default 'train'.

    The text is a feature, dots leading into nested ones, or a template.

    Raises:
        UserError: as `open_builder`; no such split or feature.
    """
    info = open_builder(place, prepare=True).info
    for part in template_parts(options.field):
        if part.name:
            _check_feature(place, info.features, part.name)
    return READERS[info.file_format.value](place, options)


def _read_array_records(place: str, options: ReadOptions) -> Iterator[RawDocument]:
    builder, split = open_builder(place, prepare=True), _split(place)
    parts, source = template_parts(options.field), builder.as_data_source(split.name)
    for number in range(len(source)):
        example, values = source[number], []
        for literal, name in parts:
            value = functools.reduce(lambda item, key: item[key], name.split("."), example) if name else ""
            values += [literal.encode(), value.encode() if isinstance(value, str) else value]
        yield _raw_document(f"{place}:{number + 1}", values, split.num_bytes * (number + 1) // len(source))
    if not len(source):
        yield RawDocument(place, rejected="empty")


def _read_tfrecords(place: str, options: ReadOptions) -> Iterator[RawDocument]:
    before = 0
    for path in map(str, _split(place).filepaths):
        with storage.open_file(path) as file:
            for raw in read_tfrecord_examples(path, file, options):
                yield raw._replace(bytes_read=before + file.tell())
        before += storage.file_size(path)


# Format of the files of a data set -> its reader.
READERS = {"array_record": _read_array_records, "tfrecord": _read_tfrecords}


def _check_feature(place: str, features: Any, name: str) -> None:
    """Raise UserError where there is no feature of this name, with dots for nested ones."""
    for key in name.split("."):
        names = list(features) if hasattr(features, "keys") else []
        if key not in names:
            raise UserError(
                f"{place}: no feature '{name}'{did_you_mean(key, names)} (there are {format_names(names)}); "
                "give one with --field"
            )
        features = features[key]


def _raw_document(name: str, values: Sequence[Any], bytes_read: int) -> RawDocument:
    if not all(isinstance(value, bytes) for value in values):
        return RawDocument(name, rejected="not a text", bytes_read=bytes_read)
    data = b"".join(values)
    if len(data) > MAX_RECORD_BYTES:
        return RawDocument(name, rejected="too large", bytes_read=bytes_read)
    return RawDocument(name, data, bytes_read=bytes_read, is_field=True)


def _split(place: str) -> Any:
    splits = open_builder(place, prepare=True).info.splits
    name = parse_name(place).split or _DEFAULT_SPLIT
    if name not in splits:
        raise UserError(f"{place}: no split '{name}'; there are {', '.join(splits)}: give one as {PREFIX}...#SPLIT")
    return splits[name]
