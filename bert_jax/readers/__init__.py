"""Files, archives, buckets and data sets -> documents. Nothing in this package imports jax.

In the order in which an input passes: `inputs.py` finds the files, `storage.py` opens them, `archives.py` unpacks them,
`rows.py` makes UTF-8 of them, and a row of `formats/table.py` reads the documents.

archives.py     compressed files and archives -> byte streams
data_sets.py    data sets that TensorFlow Datasets has prepared
documents.py    `Document` and `ReadOptions`, which all readers share, and limits on sizes
formats/        a reader for each format of files
hub.py          models and tokenizers of the Hugging Face Hub, by name
inputs.py       the inputs of `--input`: a kind of input is a row of INPUT_KINDS
pieces.py       text -> documents: whole files, paragraphs or lines; long documents in pieces
python_docs.py  the documentation strings of Python's standard library
rejections.py   documents without text: counts by reason, and advice
rows.py         text in any encoding -> lines, rows of CSV and TSV, JSON values; also for tasks and inference
storage.py      files on a local disk or in object storage, with retries
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
