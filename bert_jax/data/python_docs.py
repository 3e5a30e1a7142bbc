"""`python-docs`: the English that every Python installation carries, for a first run without a download.

Documentation strings of the standard library and of all packages installed beside bert_jax, read from their source
with `ast` (nothing is imported or run), the help topics of `pydoc`, and the packages' own descriptions. One document
a module, topic or description; code, tables and markup are left out as far as simple rules reach.
"""

import ast
import hashlib
import pathlib
import re
import sysconfig
import warnings
from collections.abc import Iterator

MAX_BYTES = 8_000_000  # so that a machine with many packages takes no longer than one with few
MIN_WORDS = 50  # a shorter document has no sentence pair to learn from
_SKIPPED_FOLDERS = {"tests", "test", "testing", "idlelib", "lib2to3", "site-packages", "dist-packages", "_vendor"}
_PROSE = re.compile(r"[A-Za-z][a-z]+(?:[ \n][^\n]*)?")
_MARKUP = (
    (re.compile(r":[a-z:+]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`"), r"\1"),  # :class:`~a.b`
    (re.compile(r"``?([^`]*)``?"), r"\1"),
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),  # Markdown links and images
    (re.compile(r"<[^<>]*>"), " "),
    (re.compile(r"\*\*([^*]+)\*\*"), r"\1"),
    (re.compile(r"https?://\S+"), " "),
)


def documents() -> Iterator[tuple[str, str]]:
    """(name, text) of each document, in an order that the installation alone decides, at most `MAX_BYTES` in all."""
    size = 0
    seen: set[bytes] = set()
    for name, blocks in _raw_documents():
        text = "\n\n".join(kept for block in blocks for kept in _paragraphs(block, seen))
        if len(text.split()) < MIN_WORDS:
            continue
        size += len(text.encode())
        if size > MAX_BYTES:
            return
        yield name, text


def _raw_documents() -> Iterator[tuple[str, list[str]]]:
    standard = pathlib.Path(sysconfig.get_path("stdlib"))
    yield from _topics(standard)
    yield from _modules(standard)
    installed = pathlib.Path(sysconfig.get_path("purelib"))
    # By a hash of the name, so that the cap takes a bit of every package rather than the first of the alphabet.
    paths = [path for pattern in ("*.dist-info/METADATA", "**/*.py") for path in installed.glob(pattern)]
    for path in sorted(
        paths, key=lambda path: hashlib.sha256(path.relative_to(installed).as_posix().encode()).digest()
    ):
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(installed).parts):
            yield path.relative_to(installed).as_posix(), _description(path) if path.suffix == "" else _docstrings(path)
