"""The text of the pages of a PDF."""

import io
import logging
import re
from collections.abc import Iterator
from typing import IO

from bert_jax.errors import needs_packages
from bert_jax.readers.documents import MAX_RECORD_BYTES, RawDocument, ReadOptions, RejectedError
from bert_jax.readers.pieces import read_bounded_document

_MAX_CHARACTERS = 1 << 24
_HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_])")


def read_pdf(name: str, stream: IO[bytes], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield a PDF file as a document; a file above MAX_RECORD_BYTES is rejected.

    Raises:
        UserError: pypdf is not installed.
    """
    with needs_packages(f"{name}: PDF", "pypdf"):
        import pypdf  # noqa: F401  # raises before any file is read
    yield read_bounded_document(name, stream, "pdf", MAX_RECORD_BYTES)


def pdf_to_text(data: bytes, options: ReadOptions) -> str:
    """Return the text of the pages of a PDF, with empty lines between the pages; words that a hyphen splits are joined.

    Raises:
        RejectedError: 'encrypted', 'broken PDF', 'too large', or 'no text', for example for scanned pages.
    """
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # a broken file is counted, not logged
    pages, size = [], 0
    try:
        reader = pypdf.PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise RejectedError("encrypted")
        for page in reader.pages:
            pages.append(_HYPHEN.sub("", page.extract_text()).strip())
            size += len(pages[-1])
            if size > _MAX_CHARACTERS:
                raise RejectedError("too large")
    except RejectedError:
        raise
    except Exception:  # the library raises exceptions of many types for damaged files
        raise RejectedError("broken PDF") from None
    text = "\n\n".join(filter(None, pages)).replace("\0", "")
    if not text:
        raise RejectedError("no text")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
