"""The input `python-docs`: the English text in every Python installation, for a first run without a download.

Documentation strings of the standard library and of all installed packages, read from their source
as literals (nothing is imported or run), the help topics of `pydoc`, and the packages' own descriptions. A document is
a module, a topic or a description. Only paragraphs of prose are kept, and each of those once.
"""

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import pathlib
import re
import sysconfig
import warnings
from collections.abc import Iterator
from typing import Any

MAX_BYTES = 8_000_000  # a machine with many packages needs no more time than a machine with few
MIN_WORDS = 50  # of a document; shorter documents hold little to learn from
_SKIPPED_FOLDERS = frozenset({"tests", "test", "site-packages", "dist-packages", "_vendor"})
# A string in three double quotes at the start of a module, or after a line that ends in a colon. A syntax tree would
# find a few more, in five times the time.
_DOCSTRING = re.compile(
    r'''(?:\A(?:\s*\#[^\n]*\n|\s)*|:[ \t]*\n\s*)([rR]?"""(?:[^"\\]|\\.|"(?!""))*+""")''',
    re.DOTALL,
)
_MARKUP = (
    (re.compile(r":[a-z:+]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`"), r"\1"),  # :class:`~a.b`
    (re.compile(r"\[!?\[?([^\]]*)\]\([^)]*\)"), r"\1"),  # [text](link)
    (re.compile(r"`+([^`<]*?)\s*(?:<[^>]*>)?`+_*"), r"\1"),  # ``code`` and `text <link>`_
    (re.compile(r"\*{1,2}([^*\s][^*]*)\*{1,2}"), r"\1"),  # *emphasized*
)
_WORD = re.compile(r"[(\"']?[A-Za-z][A-Za-z'-]*[.,;:!?)\"']*$|\d+[.,]?$")
_MIN_WORD_FRACTION = 0.8
_MIN_PARAGRAPH = 6  # words


@functools.cache
def python_documents() -> tuple[tuple[str, str], ...]:
    """Return (name, text) of each document, at most `MAX_BYTES` in all; the installation alone decides the order."""
    size = 0
    seen: set[bytes] = set()
    documents = []
    for name, strings in _named_strings():
        text = "\n\n".join(paragraph for string in strings for paragraph in _prose_paragraphs(string, seen))
        if len(text.split()) < MIN_WORDS:
            continue
        size += len(text)  # ASCII, so bytes
        if size > MAX_BYTES:
            break
        documents.append((name, text))
    return tuple(documents)


def installed_packages(_: str) -> str:
    """Return the names and versions of the packages whose documentation is read."""
    return ", ".join(sorted(f"{package.name} {package.version}" for package in importlib.metadata.distributions()))


def _named_strings() -> Iterator[tuple[str, list[str]]]:
    """Yield each topic, module and description with its strings: the standard library by name, then the packages."""
    standard = pathlib.Path(sysconfig.get_path("stdlib"))
    for topic, text in sorted(_help_topics(standard / "pydoc_data" / "topics.py").items()):
        yield f"topic {topic}", [text]
    for name in sorted(_files_below(standard, "**/*.py")):
        yield name, _docstrings(standard / name)
    installed = pathlib.Path(sysconfig.get_path("purelib"))
    names = [*_files_below(installed, "**/*.py"), *_files_below(installed, "*.dist-info/METADATA")]
    # By a hash of the name: where the limit cuts, it leaves some of every package, not the first of the alphabet.
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
        yield name, _docstrings(installed / name) if name.endswith(".py") else _package_description(installed / name)


def _files_below(folder: pathlib.Path, pattern: str) -> Iterator[str]:
    """Yield the relative paths of the files below a folder that match a pattern, without tests and packages in it."""
    for path in folder.glob(pattern):
        inner = path.relative_to(folder)
        if _SKIPPED_FOLDERS.isdisjoint(inner.parts):
            yield inner.as_posix()


def _docstrings(path: pathlib.Path) -> list[str]:
    """Return the documentation strings of a module in source order; none where it is not UTF-8."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [text for literal in _DOCSTRING.findall(source) if (text := _eval_literal(literal))]


def _help_topics(path: pathlib.Path) -> dict[str, str]:
    """Return the help texts by topic, the only content of their module."""
    try:
        return _eval_literal(path.read_text(encoding="utf-8").partition("topics = ")[2]) or {}
    except (OSError, UnicodeDecodeError):
        return {}


def _package_description(path: pathlib.Path) -> list[str]:
    """Return the body of a package's METADATA, after the first empty line."""
    return [path.read_text(encoding="utf-8", errors="replace").partition("\n\n")[2]]


def _eval_literal(source: str) -> Any:
    """Return the value of a Python literal, or None where the source is no literal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in other people's strings
            return ast.literal_eval(source)
    except (SyntaxError, ValueError):
        return None


def _prose_paragraphs(text: str, seen: set[bytes]) -> Iterator[str]:
    """Yield the paragraphs of English that were not seen before, without markup.

    Code, doctests, tables, lists and descriptions of parameters have indented lines, do not start with a letter, do
    not end like a sentence, or have too few plain words.
    """
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if "\n " in block or ">>>" in block or not block[:1].isalpha() or not block.isascii():
            continue
        for pattern, replacement in _MARKUP:
            block = pattern.sub(replacement, block)
        words = block.split()
        plain = sum(map(bool, map(_WORD.match, words)))
        if len(words) < _MIN_PARAGRAPH or plain < _MIN_WORD_FRACTION * len(words) or words[-1][-1] not in ".!?:":
            continue
        digest = hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            yield " ".join(words)
