"""Documents from files, archives, buckets and data sets. Nothing in this package imports jax.

The steps of reading: `inputs.py` finds the files, `storage.py` opens the files, `archives.py` unpacks the files,
`rows.py` converts text to UTF-8, and a row of `formats/table.py` reads the documents.

archives.py     byte streams of compressed files and of members of archives
data_sets.py    data sets that TensorFlow Datasets has prepared
documents.py    `Document` and `ReadOptions`, which all readers share, and limits on sizes
formats/        a reader for each format of files
hub.py          models and tokenizers of the Hugging Face Hub, by name
inputs.py       the inputs of `--input`; each kind of input is a row of the table INPUT_KINDS
pieces.py       text -> documents: whole files, paragraphs or lines; long documents in pieces
python_docs.py  the documentation strings of Python's standard library
rejections.py   counts of documents without text, by reason, and advice
rows.py         reads lines, rows of CSV and TSV, and JSON values in any encoding; tasks and inference also use it
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
