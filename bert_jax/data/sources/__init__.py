"""Inputs -> documents, read one at a time: files, directories, globs, URLs, archives, `tfds:` data sets, `python-docs`.

inputs.py      what `--input` names: a kind of input is a row of INPUT_KINDS
formats/       file formats: a format is a row of `formats.table.FORMATS`
archives.py    compressed files and archives -> byte streams
pieces.py      text -> documents: whole files, paragraphs or lines; long ones in pieces
storage.py     files on a local disk or in object storage
data_sets.py   data sets that TensorFlow Datasets has prepared
python_docs.py the documentation strings of this Python installation
documents.py   `Document` and `ReadOptions`, which all of these share
rejections.py  documents without text: counts by reason, and what to do about them
"""

from bert_jax.data.sources.documents import Document, RawDocument, ReadOptions
from bert_jax.data.sources.formats.table import FORMATS, to_document
from bert_jax.data.sources.inputs import (
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
