"""The documents of a file by the simplest reading of its format: all in memory, without regard to speed."""

import codecs
import csv
import io
import json
import re

from bert_jax.readers import pieces

BOM = b"\xef\xbb\xbf"
SUFFIXES = {
    "md": "markdown", "markdown": "markdown", "jsonl": "jsonl", "ndjson": "jsonl",
    "json-lines": "jsonl", "jsonlines": "jsonl",
    "json": "jsonl", "csv": "csv", "tsv": "tsv", "parquet": "parquet", "xml": "mediawiki", "rst": "rst",
    "html": "html", "epub": "epub", "pdf": "pdf", "arrow": "arrow", "tfrecord": "tfrecord",
}  # fmt: skip


class Refused(Exception):
    """The file cannot be read in its format."""


class Unknown(Exception):
    """This reader does not know."""


def format_of(bare, asked):
    """Return the format by the suffix of the name."""
    name = bare.rpartition("/")[2].lower()
    if asked != "auto":
        return asked
    if re.fullmatch(r"wiki_\d\d", name):
        return "wikiextractor"
    return SUFFIXES.get(name.rpartition(".")[2], "text") if "." in name else "text"


def documents(stream, options):
    """Return the text of each document; None: it has none; ...: it may have one, which is unknown.

    Raises:
        Refused: this cannot be read.
        Unknown: this reader does not know.
    """
    form = format_of(stream.bare, options.format)
    if form in ("parquet", "mediawiki", "arrow", "tfrecord", "html", "epub", "pdf"):
        if form != stream.native or (form == "mediawiki" and not stream.texts):
            raise Unknown
        if form in ("parquet", "arrow") and options.field != "text":
            raise Refused
        if form == "tfrecord" and options.field != "text":
            return [None] * max(1, len(stream.texts))
        return list(stream.texts or (None,))
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    data = stream.data.decode("utf-16").encode() if stream.data.startswith(marks) else stream.data
    return READERS[form](data, options) or [None]


def decoded(data, options):
    """Return the text of a document, or None."""
    if b"\0" in data:
        return None
    try:
        text = data.decode("utf-8-sig", "strict" if options.encoding_errors == "reject" else "replace")
    except UnicodeDecodeError:
        return None
    return text if text.strip() else None


def texts(data, options):
    """Return the documents of a text file."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    parts = [data]
    if options.documents == "line":
        parts = [line for line in lines if not is_blank(line)]
    elif options.documents == "blank-line":
        groups = [[]]
        for line in lines:
            if not is_blank(line):
                groups[-1].append(line)
            else:
                groups.append([])
        parts = [b"".join(group) for group in groups if group]
    return [decoded(part, options) for part in parts]


def is_blank(line):
    """Return whether a line is blank; one longer than a piece counts as text, though empty."""
    return not line.strip() and len(line) <= pieces.MAX_PIECE_BYTES


def markdown(data, options):
    """Read as a text, but the rendered text is unknown."""
    return [text and ... for text in texts(data, options)]


def json_records(data, options):
    """Return a document per line, or per item of a list."""
    if data.removeprefix(BOM).lstrip()[:1] == b"[":
        try:
            return [field(item, options) for item in parsed(data.decode("utf-8-sig", "surrogateescape"))]
        except (ValueError, RecursionError):
            raise Refused from None
    found = []
    for line in filter(bytes.strip, data.split(b"\n")):
        text = decoded(line, options)
        try:
            found.append(None if text is None else field(parsed(text), options))
        except (ValueError, RecursionError):
            found.append(None)
    return found


class Loose(float):
    """A part of a JSON text that Python reads, and the standard leaves undefined or forbids."""


def parsed(text):
    """Return the value of a JSON text with Loose numbers for NaN, an infinity, and objects with a key twice."""

    def unique(pairs):
        return Loose() if len(dict(pairs)) < len(pairs) else dict(pairs)

    def finite(number):
        return Loose() if "inf" in str(float(number)) else float(number)

    return json.loads(text, object_pairs_hook=unique, parse_constant=Loose, parse_float=finite)


def is_strict(value, depth=0):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    deepest = 100 - isinstance(value, dict | list)
    return not isinstance(value, Loose) and depth <= deepest and all(is_strict(one, depth + 1) for one in inner)


def field(value, options):
    """Return the text in an object, or None."""
    if not is_strict(value):
        return None
    names = [options.field] if isinstance(value, dict) and options.field in value else options.field.split(".")
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or "\0" in value or not value.strip():
        return None
    if not re.search("[\ud800-\udfff]", value):
        return value
    return None if options.encoding_errors == "reject" else re.sub("[\ud800-\udfff]", "\ufffd", value)


def comma_separated(data, options):
    """Read CSV; Unknown where the csv module raises."""
    text = data.removeprefix(BOM).decode("utf-8", "surrogateescape")
    if re.search("\r(?!\n)", text):
        raise Unknown
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        raise Unknown from None
    return _rows([[value.encode("utf-8", "surrogateescape") for value in row] for row in rows], options)


def tab_separated(data, options):
    """Read TSV."""
    lines = [line.rstrip(b"\r\n") for line in data.split(b"\n")]
    lines[0] = lines[0].removeprefix(BOM)
    return _rows([line.split(b"\t") for line in lines if line], options)


def _rows(rows, options):
    if not rows:
        return []
    names = [name.decode("utf-8", "replace") for name in rows[0]]
    if options.field.isdigit() and int(options.field) < len(names):
        column = int(options.field)
    elif options.field in names:
        column, rows = names.index(options.field), rows[1:]
    else:
        raise Refused
    return [decoded(row[column], options) if len(row) == len(names) else None for row in rows]


def extracted(data, options):
    """Return only the number of documents; consecutive lines outside of <doc> are one."""
    found, last = [], 0
    for match in re.finditer(rb'^<doc id="[^\n]*\n(.*?)^[^\S\n]*</doc>[^\S\n]*(\n|\Z)', data, re.M | re.S):
        if re.search(rb'^<doc id="', match[1], re.M):
            raise Refused
        found += [None] * bool(data[last : match.start()].strip())
        found.append(...)
        last = match.end()
    if re.search(rb'^<doc id="', data[last:], re.M):
        raise Refused
    return found + [None] * bool(data[last:].strip())


READERS = {
    "text": texts, "markdown": markdown, "rst": markdown, "jsonl": json_records, "csv": comma_separated,
    "tsv": tab_separated, "wikiextractor": extracted
}  # fmt: skip
