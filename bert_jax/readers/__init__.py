"""Files, archives, buckets and data sets -> documents. Nothing in this package imports jax.

formats/        One reader for each format of text files
archives.py     compressed files and archives -> byte streams
data_sets.py    data sets that TensorFlow Datasets has prepared
documents.py    `Document` and `ReadOptions`, which all of these share
inputs.py       what `--input` names: a kind of input is a row of INPUT_KINDS
json_lines.py   JSON lines for tasks and inference, where a broken line is an error; data/sources counts and skips
pieces.py       text -> documents: whole files, paragraphs or lines; long ones in pieces
python_docs.py  the documentation strings of this Python installation
rejections.py   documents without text: counts by reason, and what to do about them
storage.py      files on a local disk or in object storage
"""

from bert_jax.readers.documents import Document, RawDocument, ReadOptions
from bert_jax.readers.formats.table import FORMATS, to_document
from bert_jax.readers.inputs import (
    check_read_options,
    find_files,
    input_version,
    is_divisible,
    is_small,
    read_documents,
    read_raw_documents,
    total_bytes,
)

__all__ = [
    "FORMATS",
    "Document",
    "RawDocument",
    "ReadOptions",
    "check_read_options",
    "find_files",
    "input_version",
    "is_divisible",
    "is_small",
    "read_documents",
    "read_raw_documents",
    "to_document",
    "total_bytes",
]
