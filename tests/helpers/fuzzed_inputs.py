"""Small trees of inputs at random from a seed, most of them odd: every format, container and kind of damage.

What was put in is kept beside each file, so that a test can say what has to come out.
"""

import bz2
import gzip
import io
import itertools
import lzma
import os
import random
import tarfile
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import pyarrow
import zstandard
from pyarrow import parquet

from tests.helpers import fuzzed_texts, page_files

PACK = {
    ".gz": gzip.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".bz2": lambda data: bz2.compress(data, 1),
    ".zst": lambda data: zstandard.ZstdCompressor(level=1).compress(data),
}
SUMMED = (".gz", ".xz", ".bz2")  # with a checksum: damage is noticed or harmless


class Stream(NamedTuple):
    """A decompressed text or table."""

    bare: str  # its name without the suffix of the compression
    data: bytes
    # For formats that only a library writes: the format, and the text of each document; None: rejected, ...: unknown.
    native: str = ""
    texts: tuple = ()


class Input(NamedTuple):
    """A file of the tree."""

    name: str
    data: bytes
    streams: tuple[Stream, ...] | None  # None: unknown, because of damage
    rejected: int = 0  # members of an archive that are not streams
    may_refuse: bool = False  # but if it is read, it has these `streams`


def tree(rng: random.Random) -> list[Input]:
    """Return one to eight files; in three of four trees all can be read."""
    damaging = rng.random() < 0.25
    files: dict[str, Input] = {}
    for _ in range(rng.choice((1, 2, 3, 5, 8))):
        made = rng.choices((_plain, _packed, _tar, _zip), (6, 2, 1, 1))[0](rng)
        if damaging and rng.random() < 0.3:
            made = _damaged(rng, made)
        if made.name not in files:
            files[made.name] = made
    return list(files.values())


def write(files: list[Input], place: str) -> None:
    """Write the files."""
    for file in files:
        path = os.path.join(place, file.name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as target:
            target.write(file.data)


def _plain(rng: random.Random) -> Input:
    stream = _stream(rng)
    return Input(_folder(rng) + stream.bare, stream.data, (stream,))


def _packed(rng: random.Random) -> Input:
    stream = _stream(rng)
    suffix = rng.choice(list(PACK))
    pack = PACK[suffix]
    if rng.random() < 0.05 and suffix != ".zst":
        zeros = bytes(rng.choice((1 << 10, 20 << 20)))
        stream = Stream("bomb.txt", zeros)
    cuts = sorted(rng.randint(0, len(stream.data)) for _ in range(rng.choice((0, 0, 1, 3))))
    ends = [0, *cuts, len(stream.data)]
    parts = [pack(stream.data[start:end]) for start, end in itertools.pairwise(ends)]
    made = Input(_folder(rng) + stream.bare + suffix, b"".join(parts), (stream,))
    if suffix in SUMMED and rng.random() < 0.08:  # a bit anywhere: also where a later stream of the file begins
        starts = [sum(map(len, parts[:number])) for number in range(len(parts))]
        place = rng.choice(starts) + rng.randrange(4) if rng.random() < 0.5 else rng.randrange(len(made.data))
        return made._replace(data=_flip(rng, made.data, place), may_refuse=True)
    return made


def _members(rng: random.Random) -> list[tuple[str, bytes, Stream | None]]:
    """Return name, bytes, and the decompressed stream; None for an archive in an archive."""
    made: list[tuple[str, bytes, Stream | None]] = []
    for number in range(rng.choice((0, 1, 2, 5))):
        stream = _stream(rng)
        folder = rng.choice(("", "a/b/", "../", "/abs/", "ünï/", "x" * 150 + "/")) + str(number)
        if rng.random() < 0.1:
            made.append((folder + rng.choice((".tar", ".zip", ".tgz", ".tar.xz")), b"", None))
        elif rng.random() < 0.2:
            suffix = rng.choice(list(PACK))
            made.append((folder + stream.bare + suffix, PACK[suffix](stream.data), stream))
        else:
            made.append((folder + stream.bare, stream.data, stream))
    return [
        (name, data, None if "/.hid" in f"/{name}" else stream and stream._replace(bare=name.split("/")[-1]))
        for name, data, stream in made
    ]


def _streams(members: list[tuple[str, bytes, Stream | None]]) -> tuple[Stream, ...]:
    found = []
    for name, _, stream in members:
        if stream is not None:
            base = name.split("/")[-1]
            bare, suffix = os.path.splitext(base)
            found.append(stream._replace(bare=bare if suffix in PACK else base))
    return tuple(found)


def _tar(rng: random.Random) -> Input:
    members, others = _members(rng), 0
    buffer = io.BytesIO()
    form = rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    with tarfile.open(fileobj=buffer, mode="w", format=form, errors="surrogateescape") as archive:
        for name, data, _ in members:
            if rng.random() < 0.2:
                other = tarfile.TarInfo(f"other{others}")
                other.type, other.linkname = rng.choice(
                    ((tarfile.SYMTYPE, "a.txt"), (tarfile.LNKTYPE, "/etc/passwd"), (tarfile.FIFOTYPE, ""))
                )
                archive.addfile(other)
                others += 1
            if rng.random() < 0.2:
                folder = tarfile.TarInfo("folder")
                folder.type = tarfile.DIRTYPE
                archive.addfile(folder)
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), rng.choice((0, 1e9, 2.5))
            archive.addfile(info, io.BytesIO(data))
    suffix, pack = rng.choice(
        (("tar", bytes), *((f"tar{key}", value) for key, value in PACK.items()), ("tgz", gzip.compress))
    )
    rejected = others + sum(stream is None for _, _, stream in members)
    return Input(f"{_folder(rng)}{rng.randrange(99)}.{suffix}", pack(buffer.getvalue()), _streams(members), rejected)


def _zip(rng: random.Random) -> Input:
    members, others = [(name.replace("\udcff", "?"), data, stream) for name, data, stream in _members(rng)], 0
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number, (name, data, _) in enumerate(members):
            info = zipfile.ZipInfo(name)
            info.compress_type = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            archive.writestr(info, data)
            if rng.random() < 0.2:
                link = zipfile.ZipInfo(f"other{others}")
                link.external_attr = 0o120777 << 16
                archive.writestr(link, b"a.txt")
                others += 1
            if rng.random() < 0.1:
                archive.writestr(zipfile.ZipInfo(f"folder{number}/"), b"")
            if rng.random() < 0.1:
                archive.writestr(
                    zipfile.ZipInfo(f"other{others}"), b"text", rng.choice((zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
                )
                others += 1
    rejected = others + sum(stream is None for _, _, stream in members)
    return Input(f"{_folder(rng)}{rng.randrange(99)}.zip", buffer.getvalue(), _streams(members), rejected)


def _stream(rng: random.Random) -> Stream:
    kinds: dict[Callable[[random.Random], Stream], int] = {
        _text: 6,
        _markdown: 2,
        _json_lines: 3,
        _json_list: 1,
        _table: 3,
        _parquet: 1,
        _extracted: 1,
        _dump: 1,
        _arrow: 1,
        _tfrecord: 1,
        _pages: 2,
    }
    return rng.choices(list(kinds), list(kinds.values()))[0](rng)


def _text(rng: random.Random) -> Stream:
    name = rng.choice(
        ("a.txt", "b.TXT", "noend", "über.txt", "a b.txt", "[x]*.txt", "-x", ".hidden", "new\nline.txt", "n" * 200,
         "\udcff.txt", "%s{0}.txt", "emoji😀.txt", "c.txt", "d.txt")
    )  # fmt: skip
    return Stream(name, fuzzed_texts.text(rng))


def _markdown(rng: random.Random) -> Stream:
    return Stream(rng.choice(("a.md", "b.markdown", "README.MD")), fuzzed_texts.markdown(rng))


def _json_lines(rng: random.Random) -> Stream:
    end = rng.choice(("\n", "\n", "\r\n", "\n\n"))
    data = end.join(fuzzed_texts.json_object(rng) for _ in range(rng.choice((0, 1, 3, 3, 3, 30))))
    return Stream(
        rng.choice(("a.jsonl", "b.ndjson", "c.json")), fuzzed_texts.spoiled(rng, data.encode("utf-8", "surrogatepass"))
    )


def _json_list(rng: random.Random) -> Stream:
    items = [fuzzed_texts.json_object(rng, broken=0.02) for _ in range(rng.choice((0, 1, 3, 3, 3, 30)))]
    data = (
        rng.choice(("[", " \n [", "\ufeff["))
        + rng.choice((",", " ,\n")).join(items)
        + rng.choice(("]", "]\n", "] ", "]", "]", "]", "]", "", "] x"))
    )
    return Stream("list.json", data.encode("utf-8", "surrogatepass"))


def _table(rng: random.Random) -> Stream:
    suffix = rng.choice(("csv", "tsv"))
    return Stream(
        f"table.{suffix}", fuzzed_texts.spoiled(rng, fuzzed_texts.table(rng, suffix).encode("utf-8", "surrogatepass"))
    )


def _parquet(rng: random.Random) -> Stream:
    texts = [rng.choice((fuzzed_texts.clean(rng), None, "", " ")) for _ in range(rng.choice((0, 1, 20)))]
    kind = rng.choice((pyarrow.string(), pyarrow.large_string()))
    table = pyarrow.table({"text": pyarrow.array(texts, kind), "number": list(range(len(texts)))})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, compression=rng.choice(("none", "snappy", "zstd")))
    known = tuple(one if one and one.strip() else None for one in texts)
    return Stream("table.parquet", buffer.getvalue(), "parquet", known)


def _arrow(rng: random.Random) -> Stream:
    texts = [rng.choice((fuzzed_texts.clean(rng), None, "", " ")) for _ in range(rng.choice((0, 1, 20)))]
    table = pyarrow.table({"text": pyarrow.array(texts, pyarrow.string()), "number": list(range(len(texts)))})
    known = tuple(one if one and one.strip() else None for one in texts)
    return Stream("data-00000-of-00001.arrow", page_files.arrow(table, rng.choice((1, 7, 100))), "arrow", known)


def _tfrecord(rng: random.Random) -> Stream:
    texts = [rng.choice((fuzzed_texts.clean(rng), None, "", " ")) for _ in range(rng.choice((0, 1, 20)))]
    known = tuple(one if one and one.strip() else None for one in texts)
    return Stream("a.tfrecord", page_files.tfrecord(texts), "tfrecord", known)


def _pages(rng: random.Random) -> Stream:
    """A book, a page or a document, whose text is not known exactly."""
    paragraphs = [fuzzed_texts.clean(rng) for _ in range(rng.choice((0, 1, 9)))]
    tags = rng.choice(
        (("<p>", "</p>"), ("<div><p>", ""), ("<li>", "</ul>"), ("<!--", "-->"), ("&lt;<a <", ">&nosuch;"))
    )
    body = "".join(f"{tags[0]}{one}{tags[1]}\n" for one in paragraphs)
    kind = rng.choice(("html", "epub", "pdf", "rst"))
    if kind == "html":
        head = rng.choice(("", '<meta charset="shift_jis">', "<!DOCTYPE html><html><body>"))
        return Stream("page.html", fuzzed_texts.spoiled(rng, (head + body).encode()), kind, (...,))
    if kind == "epub":
        return Stream("book.epub", page_files.epub([body] * rng.choice((0, 1, 3))), kind, (...,))
    if kind == "pdf":
        lines = [one.encode("ascii", "replace").decode().translate({40: "", 41: "", 92: ""}) for one in paragraphs]
        return Stream("file.pdf", page_files.pdf([lines] * rng.choice((0, 1, 3))), kind, (...,))
    odd = rng.choice(
        (
            ".. note:: x\n\n   y\n",
            ".. include:: /etc/passwd\n",
            "==\nab\n==\n",
            ":a:`b`",
            "* x\n  * y\n",
            "+--+\n|a |\n+--+",
        )
    )
    data = "\n\n".join(one + rng.choice(("", "\n====", "::")) + f"\n\n{odd}" for one in paragraphs)
    return Stream("page.rst", fuzzed_texts.spoiled(rng, data.encode()))


def _extracted(rng: random.Random) -> Stream:
    parts = []
    for number in range(rng.choice((0, 1, 4))):
        body = rng.choice(
            (fuzzed_texts.clean(rng), "", "A &amp; B &#xd800; &lt;doc&gt; &nosuch;", f"T{number}\n\nText.")
        )
        parts.append(f'<doc id="{number}" url="" title="T{number}">\n{body}\n</doc>\n')
        if rng.random() < 0.1:
            parts.append("lines\noutside\n")
    if rng.random() < 0.1:
        parts.append('<doc id="9" url="" title="open">\ncut short')
    return Stream(rng.choice(("wiki_00", "wiki_17")), fuzzed_texts.spoiled(rng, "".join(parts).encode()))


def _dump(rng: random.Random) -> Stream:
    pages = []
    for number in range(rng.choice((0, 1, 4))):
        markup = fuzzed_texts.markup(rng).replace("&", "&amp;").replace("<", "&lt;")
        redirect = '<redirect title="x"/>' if rng.random() < 0.1 else ""
        pages.append(
            f"<page><title>{number}</title><ns>{rng.choice((0, 0, 0, 1))}</ns>{redirect}<revision>"
            f"<model>wikitext</model><text>{markup}</text></revision></page>\n"
        )
    head = rng.choice(("", "", '<?xml version="1.0" encoding="utf-8"?>'))
    data = f"{head}<mediawiki>\n{''.join(pages)}</mediawiki>\n"
    odd = rng.random()
    if odd < 0.04:
        encoding = rng.choice(("latin-1", "big5", "utf-7", "nosuch", "base64", "utf-16", "idna"))
        return Stream("dump.xml", f'<?xml version="1.0" encoding="{encoding}"?>{data}'.encode(), "mediawiki")
    if odd < 0.08:
        bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
        return Stream("dump.xml", f"{bomb}{data}".encode(), "mediawiki", (None,))
    if odd < 0.12:
        return Stream(
            "dump.xml",
            rng.choice((b"<html><p>no dump</p></html>", b"no xml", b"<a" + b"a" * 2_000_000)),
            "mediawiki",
            (None,),
        )
    if odd < 0.16:
        return Stream("dump.xml", data.replace("</", rng.choice(("<", "&nbsp;</", "\x01</")), 1).encode(), "mediawiki")
    return Stream("dump.xml", data.encode(), "mediawiki", (...,) * len(pages) or (None,))


def _folder(rng: random.Random) -> str:
    return rng.choice(("", "", "sub/", "sub/deep er/", "übung/", ".hid/"))


def _flip(rng: random.Random, data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _damaged(rng: random.Random, made: Input) -> Input:
    """Cut the file short, flip some bits, or put something else under its name."""
    data = made.data
    if not data:
        return made
    how = rng.randrange(5)
    if how == 0:
        data = data[: rng.randrange(len(data))]
    elif how == 1:
        for _ in range(rng.choice((1, 3, 30))):
            data = _flip(rng, data, rng.randrange(len(data)))
    elif how == 2:
        data = rng.choice(
            (b"", b"\0" * 600, b"plain text\n" * 9, b"PK\x03\x04", b"\x1f\x8b\x08", b"PAR1PAR1", b"BZh9", b"[", b"{")
        )
    elif how == 3:
        data += rng.choice((b"more", b"\0\0\0", b"\n" * 600, b"\x1f\x8b"))
    else:
        start = rng.randrange(len(data))
        data = data[:start] + rng.randbytes(rng.choice((1, 20, 600))) + data[start + rng.choice((0, 20)) :]
    return made._replace(data=data, streams=None)


def bombs(size: int = 200 << 20) -> list[Input]:
    """Return files of a few KiB that decompress to `size` bytes, or to far more holes; none may be held in memory."""
    made = [
        Input("zeros.txt.gz", _repeated(b"", b"\0", size), None),
        Input("zeros.jsonl.gz", _repeated(b"", b"\0", size), None),
        Input("zeros.csv.gz", _repeated(b"", b"\0", size), None),
        Input("zeros.xml.gz", _repeated(b"", b"\0", size), None),
        Input("zeros.md.bz2", bz2.compress(bytes(1 << 20)) * (size >> 20), None),
        Input("line.jsonl.gz", _repeated(b"", b"x", size), None),
        Input("line.json.gz", _repeated(b"[", b"[", size), None),
        Input("string.json.gz", _repeated(b'["', b"x", size), None),
        Input("line.csv.gz", _repeated(b"", b"x", size), None),
        Input("quote.csv.gz", _repeated(b'text\n"', b"x\n", size), None),
        Input("line.tsv.gz", _repeated(b"", b"x", size), None),
        Input("page.html.gz", _repeated(b"<p>", b"x ", size), None),
        Input("deep.html", b"<div>" * 400_000 + b"x", None),
        Input("book.epub", page_files.epub([b"<p>" + b"x " * (10 << 20)]), None),
        Input("wiki_00.gz", _repeated(b"", b"x", size), None),
        Input("open.xml.gz", _repeated(b"<mediawiki><page><revision><text>", b"x", size), None),
        Input("deep.xml.gz", _repeated(b"<mediawiki>", b"<a>", size), None),
        Input("tag.xml.gz", _repeated(b"<mediawiki a='", b"x", size), None),
    ]
    for name, kind in (("name", b"L"), ("pax", b"x"), ("all", b"g")):
        header = tarfile.TarInfo("long")
        header.type, header.size = kind, size
        end = tarfile.TarInfo("a.txt").tobuf() + bytes(1024)
        data = _repeated(header.tobuf(tarfile.GNU_FORMAT), b"a", size) + gzip.compress(end)
        made.append(Input(f"{name}.tar.gz", data, None))
    sparse = tarfile.TarInfo("holes.txt")
    keys = {"major": "0", "minor": "1", "map": "0,0", "size": str(1 << 60)}
    sparse.pax_headers = {f"GNU.sparse.{key}": value for key, value in keys.items()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(sparse)
    return [*made, Input("sparse.tar", buffer.getvalue(), None)]


def _repeated(head: bytes, unit: bytes, size: int) -> bytes:
    """Return `size` bytes compressed, without holding them in memory."""
    once = (1 << 20) // len(unit) * len(unit)
    return gzip.compress(head) + gzip.compress(unit * (once // len(unit)), 9) * -(-size // once)
