"""TFRecord files of tf.train.Example, which TensorFlow Datasets writes; reading does not need TensorFlow.

Each record is stored as its length (8 bytes, little-endian), a checksum of the length (4 bytes), its content, and a
checksum of the content; see tensorflow/core/lib/io/record_writer.h. The messages are defined in
tensorflow/core/example/{example,feature}.proto.
"""

import functools
import struct
from collections.abc import Iterator
from typing import IO, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from bert_jax.errors import UserError, needs_packages
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, RejectedError
from bert_jax.readers.formats.fields import parse_field_template, record_text

NAME = "tfrecord"  # key of this format in FORMATS
_HEAD = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_PIECE = 1 << 20
# Message -> field -> type of the field (a message or a scalar). Fields that hold numbers are left out.
_MESSAGES = {
    "BytesList": {"value": "bytes"},
    "Feature": {"bytes_list": "BytesList"},
    "Entry": {"key": "string", "value": "Feature"},  # an entry of the map `feature`
    "Features": {"feature": "Entry"},
    "Example": {"features": "Features"},
}
_REPEATED = ("BytesList.value", "Features.feature")


def read_tfrecord_examples(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the records of a TFRecord file as documents, whose text `tfrecord_example_to_text` extracts.

    Raises:
        UserError: google-crc32c is not installed, or a record is incomplete or has a wrong checksum.
    """
    with needs_packages(name, "google-crc32c"):
        import google_crc32c

    def check_checksum(where: str, data: bytes, checksum: int) -> None:
        if _masked_checksum(google_crc32c.value(data)) != checksum:
            raise UserError(f"{where}: the checksum differs; this is not a TFRecord file, or the file is damaged")

    record_number = 0
    while head := stream.read(_HEAD.size):
        record_number += 1
        where = f"{name}:{record_number}"
        if len(head) < _HEAD.size:
            raise UserError(f"{where}: cut short; fetch the file again or leave it out")
        size, checksum = _HEAD.unpack(head)
        check_checksum(where, head[:8], checksum)
        left = size if size > MAX_RECORD_BYTES else 0
        while left and (skipped := stream.read(min(left, _PIECE))):
            left -= len(skipped)
        data = stream.read(0 if size > MAX_RECORD_BYTES else size)
        foot = stream.read(_CHECKSUM.size)
        if left or len(foot) < _CHECKSUM.size:
            raise UserError(f"{where}: cut short; fetch the file again or leave it out")
        if size > MAX_RECORD_BYTES:
            yield RawDocument(name=where, rejected="too large")
            continue
        check_checksum(where, data, *_CHECKSUM.unpack(foot))
        yield RawDocument(name=where, data=data, format=NAME)
    if not record_number:
        yield RawDocument(name=name, rejected="empty")


def tfrecord_example_to_text(data: bytes, options: ReadOptions) -> str:
    """Return the text of an example, from a feature or a template; a dot in a name stands for a slash.

    Raises:
        RejectedError: the record is not an example, or `fields.record_text` raises it.
        UnicodeDecodeError: a feature is not UTF-8.
    """
    try:
        example = _protobuf_example_class().FromString(data)
    except DecodeError:
        raise RejectedError("no tf.train.Example") from None
    wanted = {part.name for part in parse_field_template(options.field)}
    record = {}
    for feature in example.features.feature:
        name, values = feature.key.replace("/", "."), feature.value.bytes_list.value
        record[name] = values[0].decode("utf-8", options.decode_errors) if name in wanted and len(values) == 1 else None
    return record_text(record, options)


def _masked_checksum(checksum: int) -> int:
    """Return a CRC-32C checksum in the masked form that TFRecord stores."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _protobuf_example_class() -> Any:
    """Return the class of the protobuf message Example."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bert_jax/example.proto", package="bert_jax", syntax="proto3")
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        for field_number, (name, kind) in enumerate(fields.items(), 1):
            label = kinds.LABEL_REPEATED if f"{message}.{name}" in _REPEATED else kinds.LABEL_OPTIONAL
            field = made.field.add(name=name, number=field_number, label=label)
            if kind in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".bert_jax.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bert_jax.Example"))
