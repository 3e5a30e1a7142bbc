"""Label files at random, written by csv, json and pyarrow, and read by pyarrow's readers of CSV, JSON and Parquet."""

import csv
import gzip
import io
import json
import math
import random
from typing import NamedTuple

import pyarrow
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyarrow import parquet

SEPARATORS = {",": 6, ";": 3, "\t": 3, "|": 1}
ENCODINGS = {"utf-8": 8, "utf-8-sig": 2, "utf-16": 1, "latin-1": 1, "utf-16-le": 0.3}
LINE_ENDS = {"\n": 5, "\r\n": 3, "\r": 1}
NAMES = {
    "plain": ["billing", "login", "hardware", "other"],
    "cased": ["Pos", "pos", "NEG", "neg"],
    "numbers": [0, 1, 2, 10, 11],
    "negative": [-1, 0, 1],
    "fractions": ["0.0", "0", "1.0", "2.5"],
    "unicode": ["größer", "kleiner", "等しい", "é"],
    "spaces": ["very good", "bad", "not so bad"],
    "quotes": ['"so so"', "it's", 'a "b" c'],
    "separators": ["a,b", "c;d", "e|f", "g"],
    "missing": ["nan", "N/A", "null", "yes"],
    "booleans": [True, False],
}
TEXTS = ["plain", "with, comma", "semi; colon", 'a "quote"', "two\nlines", "ünï", "tab\there", " spaces ", "x"]


class LabelFile(NamedTuple):
    """A file, the columns to read, and how it was made."""

    name: str
    data: bytes
    text: str
    label: str
    labels: list  # as an independent reader reads them; None where it cannot
    made: str


def pick(rng, weights):
    return rng.choices([*weights], [*weights.values()])[0]


def random_file(seed):
    rng = random.Random(seed)
    kind = rng.choice([*NAMES])
    names = rng.sample(NAMES[kind], rng.randint(2, len(NAMES[kind])))
    count = rng.randint(3, 25)
    labels = [rng.choice(names) for _ in range(count)]
    if rng.random() < 0.3:
        labels = [None if rng.random() < 0.2 else label for label in labels]
    texts = [rng.choice(TEXTS) + str(n) for n in range(count)]
    text, label = rng.choice([("text", "label"), ("body", "topic"), ("Text", "gold label"), ("subject", "klasse ß")])
    format_name = pick(rng, {"csv": 5, "tsv": 2, "jsonl": 2, "json": 1, "parquet": 1})
    return WRITERS[format_name](rng, kind, text, label, texts, labels)


def delimited(suffix):
    def write(rng, kind, text, label, texts, labels):
        separator = pick(rng, SEPARATORS) if rng.random() < 0.6 else {"csv": ",", "tsv": "\t"}[suffix]
        line_end, encoding = pick(rng, LINE_ENDS), pick(rng, ENCODINGS)
        spaced = rng.random() < 0.3
        if line_end == "\r":  # the file of a program that knows no other line end, in texts either
            texts = [one.replace("\n", "\r") for one in texts]
        columns = {"id": [*range(len(texts))], text: texts, label: ["" if one is None else one for one in labels]}
        if spaced:
            columns[label] = [f"{one}{rng.choice(['', ' ', '  '])}" for one in columns[label]]
        order = rng.sample([*columns], 3)
        file = io.StringIO(newline="")
        quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
        writer = csv.writer(file, delimiter=separator, lineterminator=line_end, quoting=quoting)
        writer.writerow([f"{name} " if spaced and name == text else name for name in order])
        writer.writerows(zip(*(columns[name] for name in order), strict=True))
        content = file.getvalue()
        if rng.random() < 0.2:
            content = content.removesuffix(line_end)
        try:
            data = content.encode(encoding)
        except UnicodeEncodeError:
            encoding, data = "utf-8", content.encode()
        read = read_csv(data, separator, encoding, label)
        name = f"a.{suffix}"
        if rng.random() < 0.15:
            name, data = f"{name}.gz", gzip.compress(data)
        made = f"{kind} {suffix} {separator!r} {line_end!r} {encoding} quoting {quoting}{' spaced' if spaced else ''}"
        return LabelFile(name, data, text, label, read, made)

    return write


def read_csv(data, separator, encoding, label):
    table = arrow_csv.read_csv(
        io.BytesIO(data.decode(encoding).removeprefix("\ufeff").encode()),
        parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(column_types={label: pyarrow.string()}, strings_can_be_null=False),
    )
    return table[label].to_pylist()


def json_value(rng, value):
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.2 else value


def write_json(rng, kind, text, label, texts, labels, *, lines):
    encoding, line_end = pick(rng, {"utf-8": 5, "utf-8-sig": 1, "utf-16": 0.5}), pick(rng, LINE_ENDS)
    rows = [
        {"id": n, text: one, label: json_value(rng, value)}
        for n, (one, value) in enumerate(zip(texts, labels, strict=True))
    ]
    escaped = rng.random() < 0.5
    if lines:
        content = line_end.join(json.dumps(row, ensure_ascii=escaped) for row in rows) + line_end
    else:
        content = json.dumps(rows, ensure_ascii=escaped, indent=rng.choice([None, 1]))
    read = [row[label] for row in rows]
    if len({type(value) for value in read if value is not None}) == 1:  # pyarrow has columns of one type
        stream = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
        read = arrow_json.read_json(stream)[label].to_pylist()
    made = f"{kind} json{'l' if lines else ''} {line_end!r} {encoding}"
    return LabelFile(f"a.json{'l' if lines else ''}", content.encode(encoding), text, label, read, made)


def write_parquet(rng, kind, text, label, texts, labels):
    if all(value is None or isinstance(value, int) for value in labels) and kind != "booleans" and rng.random() < 0.5:
        labels = [math.nan if value is None else float(value) for value in labels]  # as pandas stores them
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({text: texts, label: labels, "id": [*range(len(texts))]}), file)
    read = parquet.read_table(io.BytesIO(file.getvalue()))[label].to_pylist()
    return LabelFile("a.parquet", file.getvalue(), text, label, read, f"{kind} parquet")


WRITERS = {
    "csv": delimited("csv"),
    "tsv": delimited("tsv"),
    "jsonl": lambda *arguments: write_json(*arguments, lines=True),
    "json": lambda *arguments: write_json(*arguments, lines=False),
    "parquet": write_parquet,
}


def label_text(value):
    """A label as text, by the rules of docs/finetune.md; None where it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None
