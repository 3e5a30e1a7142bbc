"""Formats of input files, one file each: how the format is read, and how text is extracted from a document.

table.py             FORMATS, a row for each format: to add a format, add a file here and its row there
delimited_records.py CSV and TSV
json_records.py      JSON lines, and files that are one JSON list or object
fields.py            the text of a record: a field, fields in lists, or a template
pages/               HTML, reStructuredText, EPUB and PDF
parquet/             Parquet and Arrow
tfrecord.py          TFRecord files of examples, as TFDS writes them
markdown.py          markdown -> its text
wiki/                MediaWiki dumps, and the output of WikiExtractor
encodings.py         text in other encodings -> UTF-8
lines.py             lines with a bound on their length, which several formats share

Plain text is in `sources/pieces.py`, since markdown and python-docs are read in the same pieces.
"""
