"""The input `python-docs`: English text that every Python installation has, for a first run without a download.

The text consists of the documentation strings of the standard library and the help topics of `pydoc`. The strings are
read from the source, and nothing is imported or run. A document is a module or a topic. Only paragraphs of prose are
kept, and repeated paragraphs are dropped. Installed packages are not read, so the text depends only on the version of
Python.
"""

import ast
import functools
import hashlib
import inspect
import pathlib
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

MIN_WORDS = 50  # minimum number of words of a document; a model learns little from a shorter document
_SKIPPED_FOLDERS = frozenset({"tests", "test", "site-packages", "dist-packages", "_vendor"})
# A string in three double quotes at the start of a module, or after a line that ends in a colon. Parsing a
# syntax tree would find a few more strings, but takes five times as long.
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
_MIN_PARAGRAPH = 6  # number of words


@functools.cache
def python_docs_names_and_texts() -> tuple[tuple[str, str], ...]:
    """Return (name, text) of each document: first the help topics, then the modules, both sorted by name."""
    seen: set[bytes] = set()
    documents = []
    for name, strings in _help_topics_and_docstrings():
        text = "\n\n".join(paragraph for string in strings for paragraph in _prose_paragraphs(string, seen))
        if len(text.split()) >= MIN_WORDS:
            documents.append((name, text))
    return tuple(documents)


def python_version(_: str) -> str:
    """Return the version of Python, on which the text of this input depends."""
    return f"Python {platform.python_version()}"


class _NamedStrings(NamedTuple):
    """The name of a help topic or of a module, and its strings."""

    name: str
    strings: list[str]


def _help_topics_and_docstrings() -> Iterator[_NamedStrings]:
    """Yield each topic and each module of the standard library with its strings."""
    standard = pathlib.Path(sysconfig.get_path("stdlib"))
    for topic, text in sorted(_help_topics(standard / "pydoc_data" / "topics.py").items()):
        yield _NamedStrings(f"topic {topic}", [text])
    paths = ((path.relative_to(standard), path) for path in standard.rglob("*.py"))
    modules = {name.as_posix(): path for name, path in paths if _SKIPPED_FOLDERS.isdisjoint(name.parts)}
    for name in sorted(modules):
        yield _NamedStrings(name, _docstrings(modules[name]))


def _docstrings(path: pathlib.Path) -> list[str]:
    """Return the documentation strings of a module in source order; [] if the source is not UTF-8."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [text for literal in _DOCSTRING.findall(source) if (text := _eval_literal(literal))]


def _help_topics(path: pathlib.Path) -> dict[str, str]:
    """Return topic -> help text of `pydoc`, read from the source of `pydoc_data/topics.py`."""
    try:
        return _eval_literal(path.read_text(encoding="utf-8").partition("topics = ")[2]) or {}
    except (OSError, UnicodeDecodeError):
        return {}


def _eval_literal(source: str) -> Any:
    """Return the value of a Python literal, or None if the source is no literal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no warnings about escapes in strings of the standard library
            return ast.literal_eval(source)
    except (SyntaxError, ValueError):
        return None


def _prose_paragraphs(text: str, seen: set[bytes]) -> Iterator[str]:
    """Yield the paragraphs of English prose in a text, without markup; skip paragraphs that are in `seen`.

    Prose starts with a letter, ends like a sentence, has no indented lines and has enough plain words. The conditions
    for prose exclude code, doctests, tables, lists and descriptions of parameters.
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
