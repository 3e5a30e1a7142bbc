"""Small files of formats with several parts: EPUB, PDF and Arrow, written by hand or by their libraries."""

import io
import struct
import zipfile
from collections.abc import Sequence

import google_crc32c
import pyarrow
from pyarrow import ipc

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="{}"/>'
    "</rootfiles></container>"
)


def epub(chapters: Sequence[str | bytes], folder: str = "OEBPS/", more: dict[str, str] | None = None) -> bytes:
    """A book of chapters of XHTML; `more`: other files by name."""
    items = "".join(
        f'<item id="c{n}" href="chapter%20{n}.xhtml" media-type="application/xhtml+xml"/>' for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{spine}</spine></package>'
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", CONTAINER.format(f"{folder}content.opf"))
        archive.writestr(f"{folder}content.opf", package)
        for name, content in (more or {}).items():
            archive.writestr(name, content)
        for number, chapter in enumerate(chapters):
            archive.writestr(f"{folder}chapter {number}.xhtml", chapter)
    return buffer.getvalue()


def pdf(pages: Sequence[Sequence[str]]) -> bytes:
    """A document of pages of lines of ASCII."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for lines in pages:
        shown = " ".join(f"({line}) Tj T*" for line in lines)
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET"
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
        page = "<< /Type /Page /Parent 2 0 R /Resources << /Font << /F1 3 0 R >> >> /MediaBox [0 0 612 792] /Contents"
        objects.append(f"{page} {len(objects)} 0 R >>")
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = (
        f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer << /Size {len(objects) + 1} /Root 1 0 R >>\n"
    )
    return out + f"{end}startxref\n{len(out)}\n%%EOF".encode()


def arrow(table: pyarrow.Table, rows: int = 2, compression: str | None = None) -> bytes:
    """The stream that `datasets.save_to_disk` writes, in batches of `rows`."""
    buffer = io.BytesIO()
    with ipc.new_stream(buffer, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return buffer.getvalue()


def tfrecord(texts: Sequence[str | None]) -> bytes:
    """Examples with a feature `text`, or none, each in a record with its checksums."""

    def field(number: int, data: bytes) -> bytes:  # of a protocol buffer
        size, length = len(data), b""
        while size > 127:
            size, length = size >> 7, length + bytes([size & 127 | 128])
        return bytes([number << 3 | 2]) + length + bytes([size]) + data

    def checksum(data: bytes) -> bytes:
        value = google_crc32c.value(data)
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) % 2**32)

    out = b""
    for text in texts:
        values = b"" if text is None else field(1, field(1, b"text") + field(2, field(1, field(1, text.encode()))))
        example, size = field(1, values), struct.pack("<Q", len(field(1, values)))
        out += size + checksum(size) + example + checksum(example)
    return out
