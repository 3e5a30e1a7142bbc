"""Readers of data sets of TensorFlow Datasets (TFDS) without TensorFlow; TFDS prepares the data sets if necessary."""

import functools
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax.errors import UserError, did_you_mean, needs_packages
from bert_jax.readers import storage
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, describe_field_names
from bert_jax.readers.formats.fields import parse_field_template
from bert_jax.readers.formats.tfrecord import read_tfrecord_examples

PREFIX = "tfds:"
_DEFAULT_SPLIT = "train"


class DataSetName(NamedTuple):
    """The parts of 'tfds:NAME[/CONFIG][:VERSION][@DATA_DIR][#SPLIT]'."""

    name: str
    data_dir: str
    split: str


def parse_data_set_name(text: str) -> DataSetName:
    """Return the parts of the name of a data set; a missing part is ''."""
    before_split, _, split = text.removeprefix(PREFIX).partition("#")
    name, _, data_dir = before_split.partition("@")
    return DataSetName(name, data_dir, split)


@functools.cache
def open_tfds_builder(name: str, prepare: bool = False) -> Any:
    """Return a TFDS builder that reads the prepared files of a data set, and runs no code of the data set.

    Args:
        name: name of a data set, in the form that `parse_data_set_name` reads.
        prepare: True lets TFDS download and prepare a known data set that has no files yet.

    Raises:
        UserError: TFDS is not installed, the data set is missing and cannot be prepared, or the format of its files is
        not in READERS.
    """
    data_set = parse_data_set_name(name)
    with needs_packages(name, "tensorflow-datasets importlib_resources"):
        import tensorflow_datasets as tfds
    try:
        builder = tfds.core.read_only_builder.builder_from_files(data_set.name, data_dir=data_set.data_dir or None)
    except Exception as error:  # TFDS raises many types of exceptions for a foreign directory
        if not prepare or re.split("[/:]", data_set.name)[0] not in tfds.list_builders(with_community_datasets=False):
            raise UserError(
                f"{name}: no data set that TFDS has prepared ({type(error).__name__}); prepare it with "
                f"tfds build {data_set.name} --file_format=array_record, or give its directory: {PREFIX}NAME@DATA_DIR"
            ) from None
        builder = _download_and_prepare_tfds(name)
    if builder.info.file_format.value not in READERS:
        known = " or ".join(READERS)
        raise UserError(f"{name}: the data set has {builder.info.file_format.value} files; prepare it as {known} files")
    return builder


def _download_and_prepare_tfds(name: str) -> Any:
    """Download and prepare a data set as ArrayRecord files; TFDS shows the progress and checks the disk space."""
    import tensorflow_datasets as tfds

    data_set = parse_data_set_name(name)
    try:
        builder = tfds.builder(data_set.name, data_dir=data_set.data_dir or None, file_format="array_record")
        builder.download_and_prepare()
    except Exception as error:  # an error of the network, of the disk, or of a package that the data set needs
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{name}: TFDS cannot prepare it here ({reason}); run "
            f"tfds build {data_set.name} --file_format=array_record where it can be downloaded, "
            f"and give its directory: {PREFIX}NAME@DATA_DIR"
        ) from None
    return builder


def num_bytes_of_split(name: str) -> int:
    """Return the total size, in bytes, of the files of a split; the name of the data set selects the split."""
    return int(_tfds_split_info(name).num_bytes)


def data_set_version(name: str) -> str:
    """Return a text that changes when TFDS prepares the data set again."""
    return storage.file_version(os.path.join(str(open_tfds_builder(name, prepare=True).data_dir), "dataset_info.json"))


def read_data_set(name: str, options: ReadOptions) -> Iterator[RawDocument]:
    """Return an iterator over the documents of the split that a name selects, by default the split 'train'.

    The text of a document is a feature or a template of features. Dots in the name of a feature lead into nested
    features.

    Raises:
        UserError: `open_tfds_builder` raises it, or there is no such split or feature.
    """
    info = open_tfds_builder(name, prepare=True).info
    for part in parse_field_template(options.field):
        if part.name:
            _check_feature_exists(name, info.features, part.name)
    return READERS[info.file_format.value](name, options)


def _read_array_records(name: str, options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the documents of a split in ArrayRecord files."""
    builder, split = open_tfds_builder(name, prepare=True), _tfds_split_info(name)
    parts, source = parse_field_template(options.field), builder.as_data_source(split.name)
    for index in range(len(source)):
        example, values = source[index], []
        for literal, feature in parts:
            value = functools.reduce(lambda item, key: item[key], feature.split("."), example) if feature else ""
            values += [literal.encode(), value.encode() if isinstance(value, str) else value]
        yield _raw_document_from_values(f"{name}:{index + 1}", values, split.num_bytes * (index + 1) // len(source))
    if not len(source):
        yield RawDocument(name=name, rejected="empty")


def _read_tfrecords(name: str, options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the documents of a split in TFRecord files."""
    before = 0
    for path in map(str, _tfds_split_info(name).filepaths):
        with storage.open_file(path) as file:
            for raw in read_tfrecord_examples(path, file, options):
                raw.bytes_read = before + file.tell()
                yield raw
        before += storage.file_size(path)


# File format of a data set -> function that reads the documents of a split.
READERS = {"array_record": _read_array_records, "tfrecord": _read_tfrecords}


def _check_feature_exists(name: str, features: Any, feature: str) -> None:
    """Raise UserError if the data set `name` lacks `feature`; dots in `feature` lead into nested features."""
    for key in feature.split("."):
        names = list(features) if hasattr(features, "keys") else []
        if key not in names:
            raise UserError(
                f"{name}: no feature '{feature}'{did_you_mean(key, names)} (there are {describe_field_names(names)}); "
                "give a feature with --field"
            )
        features = features[key]


def _raw_document_from_values(name: str, values: Sequence[Any], bytes_read: int) -> RawDocument:
    """Return a document whose text is the joined `values`; each value is bytes, from a feature or a literal text."""
    if not all(isinstance(value, bytes) for value in values):
        return RawDocument(name=name, rejected="not a text", bytes_read=bytes_read)
    data = b"".join(values)
    if len(data) > MAX_RECORD_BYTES:
        return RawDocument(name=name, rejected="too large", bytes_read=bytes_read)
    return RawDocument(name=name, data=data, bytes_read=bytes_read, is_field=True)


def _tfds_split_info(name: str) -> Any:
    """Return TFDS's description of the split in the name of a data set; raise UserError for an unknown split."""
    splits = open_tfds_builder(name, prepare=True).info.splits
    split = parse_data_set_name(name).split or _DEFAULT_SPLIT
    if split not in splits:
        raise UserError(f"{name}: no split '{split}'; there are {', '.join(splits)}: give a split as {PREFIX}...#SPLIT")
    return splits[split]
