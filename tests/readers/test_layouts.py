"""Files as people have them: each layout is read to the right documents, or refused in one clear line."""

import gzip
import io
import json
import os
import tarfile
import zipfile

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.errors import UserError
from bert_jax.readers import Document, ReadOptions, find_files, read_documents
from bert_jax.readers.inputs import check_read_options
from tests.helpers.page_files import arrow, epub, pdf

CATS = "Cats are small animals that sleep for much of the day, wherever it is warm."
MICE = "At night they hunt mice and birds, and in the morning they want their breakfast."
PAGE = f"""<!DOCTYPE html><html><head><title>On cats</title><style>p {{}}</style><script>var x = "<p>no</p>"</script>
</head><body><nav><a href="/">Home</a> <a href="/about">About us</a></nav>
<article><h1>Cats</h1><p>{CATS}</p><p>{MICE}</p></article><footer>Copyright 2020. All rights reserved.</footer></body>
</html>"""
ENCRYPTED = '<encryption xmlns:e="e"><e:CipherReference URI="chapter%200.xhtml"/></encryption>'
SPHINX = f"""
.. _cats:

====
Cats
====

:Author: nobody
:Date: never

{CATS.replace(" sleep", " :term:`sleep <nap>`")}

.. toctree::
   :maxdepth: 2

   dogs
   mice

.. function:: hunt(mice)
   :noindex:

   {MICE}

   .. versionadded:: 3.2

.. code-block:: python

   hunt(mice)

.. note:: A note.
"""
ALPACA = [
    {"instruction": "Say a.", "input": "", "output": "A."},
    {"instruction": "Say b.", "input": "x", "output": "B."},
]
SQUAD = {
    "version": "1.1",
    "data": [{"title": "T", "paragraphs": [{"context": "One.", "qas": []}, {"context": "Two."}]}],
}
TABLE = pyarrow.table({"title": ["A", "B"], "text": ["One.", "Two."], "meta": [{"body": "<p>x &amp; y</p>"}] * 2})


def packed(files: dict[str, str | bytes], kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as archive:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data.encode() if isinstance(data, str) else data))
    return buffer.getvalue()


def rows(*objects: object) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def table_of_field(kind: str) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(TABLE, buffer)
    return buffer.getvalue() if kind == "parquet" else arrow(TABLE, rows=1)


# Name -> files, options, and the texts of the documents, (reason,) for one that is rejected.
READ: dict[str, tuple[dict[str, str | bytes], dict[str, str], list]] = {
    "a folder of books": ({"a/one.txt": "One.", "b/two.txt": "Two.", "cover.jpg": b"\xff\xd8"}, {}, ["One.", "Two."]),
    "a dump with a text per line": ({"all.txt": "One.\nTwo.\n\n"}, {"documents": "line"}, ["One.\n", "Two.\n"]),
    "articles between blank lines": (
        {"wiki.txt": "One.\nMore.\n\nTwo."},
        {"documents": "blank-line"},
        ["One.\nMore.\n", "Two."],
    ),
    "C4: compressed JSON lines": (
        {"c4.json.gz": gzip.compress(rows({"text": "One.", "url": "u"}).encode())},
        {},
        ["One."],
    ),
    "The Pile: nested metadata": ({"p.jsonl": rows({"text": "One.", "meta": {"set": "x"}})}, {}, ["One."]),
    "Alpaca: a list of objects, two fields": (
        {"alpaca.json": json.dumps(ALPACA, indent=2)},
        {"field": "{instruction}\\n{output}"},
        ["Say a.\nA.", "Say b.\nB."],
    ),
    "SQuAD: texts in lists of lists": (
        {"s.json": json.dumps(SQUAD)},
        {"field": "data[].paragraphs[].context"},
        ["One.", "Two."],
    ),
    "one object per file": ({f"{n}.json": json.dumps({"text": n}, indent=1) for n in ("a", "b")}, {}, ["a", "b"]),
    "Stack Exchange: HTML in JSON lines": (
        {"posts.jsonl": rows({"Body": "<p>One &amp; two<br>three</p><pre><code>x</code></pre><ul><li>a<li>b</ul>"})},
        {"field": "Body", "markup": "html"},
        ["One & two\nthree\n\nx\n\na\n\nb"],
    ),
    "a CMS's CSV with a title and HTML": (
        {"cms.csv": 'id,title,body\n1,T,"<h2>Head</h2><p>One, ""two"".</p>"\n'},
        {"field": "{title} {body}", "markup": "html"},
        ['T\n\nHead\n\nOne, "two".'],
    ),
    "a web page": ({"page.html": PAGE}, {}, [f"Cats\n\n{CATS}\n\n{MICE}"]),
    "an old web page in Shift-JIS": (
        {"old.htm": f'<meta charset="Shift_JIS"><p>{"猫である。" * 40}</p>'.encode("shift_jis")},
        {},
        ["猫である。" * 40],
    ),
    "a page of links": ({"index.html": "<nav><a href='a'>A</a></nav>"}, {}, [("no main text",)]),
    "Sphinx documentation": (
        {"index.rst": SPHINX, "conf.py": "x = 1"},
        {},
        [f"Cats\n\n{CATS}\n\n{MICE}\n\nA note."],
    ),
    "a reStructuredText file that docutils would read for minutes": (
        {"long.rst": "word word\n" * 500_000},
        {},
        [("too large",)],
    ),
    "a Jekyll site": (
        {"post.md": "---\nlayout: post\ntitle: A\n---\n\n# Head\n\nOne.", "note.md": "---\nNote: prose.\n---\n\nTwo."},
        {},
        ["Note: prose.\n\nTwo.", "Head\n\nOne."],
    ),
    "a book as EPUB": (
        {
            "b.epub": epub(
                [f"<html><head><title>T</title></head><body><h1>I</h1><p>{CATS}</p></body></html>", f"<p>{MICE}</p>"]
            )
        },
        {},
        [f"I\n\n{CATS}\n\n{MICE}"],
    ),
    "an EPUB with DRM": (
        {
            "b.epub": epub(
                ["<p>x</p>"],
                "",
                {"META-INF/encryption.xml": ENCRYPTED},
            )
        },
        {},
        [("encrypted",)],
    ),
    "a paper as PDF": (
        {"p.pdf": pdf([["The first page is hyphen-", "ated."], ["The second."]])},
        {},
        ["The first page is hyphenated.\n\nThe second."],
    ),
    "a scanned PDF": ({"p.pdf": pdf([[]])}, {}, [("no text",)]),
    "Hugging Face datasets on disk": (
        {
            "d/data-00000-of-00001.arrow": table_of_field("arrow"),
            "d/state.json": "{}",
            "d/dataset_info.json": "{}",
            "d/cache-1.arrow": b"",
        },
        {},
        ["One.", "Two."],
    ),
    "Parquet of the hub, two columns": (
        {"t.parquet": table_of_field("parquet")},
        {"field": "{title}: {text}"},
        ["A: One.", "B: Two."],
    ),
    "Arrow with HTML in a struct": (
        {"t.arrow": table_of_field("arrow")},
        {"field": "meta.body", "markup": "html"},
        ["x & y"] * 2,
    ),
    "a zip of pages and books": (
        {
            "all.zip": packed(
                {"a.epub": epub(["<p>One.</p>"]), "b.txt": "Two.", "c.arrow": table_of_field("arrow")}, "zip"
            )
        },
        {},
        ["One.", "Two.", "One.", "Two."],
    ),
    "a tar of texts and pictures": (
        {"w.tar.gz": packed({"0.txt": "One.", "0.jpg": b"\xff\xd8\0"}, "gz")},
        {},
        ["One.", ("binary",)],
    ),
    "Windows: UTF-16 with line ends": ({"a.txt": "One.\r\nTwo.".encode("utf-16")}, {}, ["One.\nTwo."]),
    "legacy Korean": ({"a.txt": "한국어".encode("euc_kr")}, {"encoding": "euc_kr"}, ["한국어"]),
}

# Name -> files, options, and the beginning and the cure of the line.
REFUSED: dict[str, tuple[dict[str, str | bytes], dict[str, str], str]] = {
    "source code alone": ({"a.py": "x", "b.svg": "y"}, {}, "1 .py, 1 .svg; to read some, name them"),
    "another column": (
        {"t.parquet": table_of_field("parquet")},
        {"field": "txt"},
        "no column 'txt'; did you mean 'text'",
    ),
    "a column of numbers": ({"t.arrow": arrow(pyarrow.table({"text": [1]}))}, {}, "holds int64, not text"),
    "compressed Arrow": (
        {"t.arrow": arrow(TABLE, compression="zstd")},
        {},
        "write it without compression, or as Parquet",
    ),
    "half an Arrow file": ({"t.arrow": table_of_field("arrow")[:900]}, {}, "cannot be read as Arrow"),
    "a table with semicolons": (
        {"t.tsv": "id;text\n1;a\n"},
        {},
        "its columns may be separated by semicolons: read it with --format csv",
    ),
    "a broken download": ({"a.txt.gz": gzip.compress(b"One." * 99)[:20]}, {}, "broken archive"),
    "markup without a field": (
        {"a.txt": "One."},
        {"markup": "html"},
        "--markup html: no input has fields; give --format",
    ),
    "an unknown markup": ({"a.jsonl": rows({})}, {"markup": "htm"}, "did you mean 'html'"),
}


def write(place: str, files: dict[str, str | bytes]) -> None:
    for name, data in files.items():
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)


def read(place: str, options: ReadOptions) -> list[Document]:
    check_read_options(find_files([place], options), options)
    return list(read_documents([place], options))


@pytest.mark.parametrize("layout", READ)
def test_a_layout_is_read(tmp_path, layout):
    files, given, wanted = READ[layout]
    write(str(tmp_path), files)
    found = [(one.rejected,) if one.rejected else one.text for one in read(str(tmp_path), ReadOptions(**given))]
    assert found == wanted


@pytest.mark.parametrize("layout", REFUSED)
def test_a_layout_is_refused(tmp_path, layout):
    files, given, says = REFUSED[layout]
    write(str(tmp_path), files)
    options = ReadOptions(**given)
    with pytest.raises(UserError) as error:
        read(str(tmp_path), options)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
