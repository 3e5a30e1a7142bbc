"""`python-docs`: the English that every Python installation carries, for a first run without a download.

Documentation strings of the standard library and of all packages installed beside bert_jax, read from their source
as literals (nothing is imported or run), the help topics of `pydoc`, and the packages' own descriptions. One document
a module, topic or description. Of each only the paragraphs of prose are kept, and each of those once.
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

MAX_BYTES = 8_000_000  # so that a machine with many packages takes no longer than one with few
MIN_WORDS = 50  # a document shorter than a row has little to learn from
_SKIPPED_FOLDERS = frozenset({"tests", "test", "site-packages", "dist-packages", "_vendor"})
# A string in three double quotes at the start of a module, or after a line that ends in a colon. A whole syntax tree
# would find a few more, in five times the time.
_DOCSTRING = re.compile(
    r'''(?:\A(?:\s*\#[^\n]*\n|\s)*|:[ \t]*\n\s*)([rR]?"""(?:[^"\\]|\\.|"(?!""))*+""")''',
    re.DOTALL,
)
_MARKUP = (
    (re.compile(r":[a-z:+]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`"), r"\1"),  # :class:`~a.b`
    (re.compile(r"\[!?\[?([^\]]*)\]\([^)]*\)"), r"\1"),  # [text](link)
    (re.compile(r"`+([^`<]*?)\s*(?:<[^>]*>)?`+_*"), r"\1"),  # ``code`` and `text <link>`_
    (re.compile(r"\*{1,2}([^*\s][^*]*)\*{1,2}"), r"\1"),  # *stressed*
)
_WORD = re.compile(r"[(\"']?[A-Za-z][A-Za-z'-]*[.,;:!?)\"']*$|\d+[.,]?$")
_MIN_SHARE_OF_WORDS = 0.8
_MIN_PARAGRAPH = 6  # words


@functools.cache
def documents() -> tuple[tuple[str, str], ...]:
    """(name, text) of each document, in an order that the installation alone decides, `MAX_BYTES` in all at most."""
    size = 0
    seen: set[bytes] = set()
    kept = []
    for name, strings in _sources():
        text = "\n\n".join(paragraph for string in strings for paragraph in _prose(string, seen))
        if len(text.split()) < MIN_WORDS:
            continue
        size += len(text)  # ASCII, so bytes
        if size > MAX_BYTES:
            break
        kept.append((name, text))
    return tuple(kept)


def stamp(_: str) -> str:
    """The packages whose documentation is read."""
    return ", ".join(sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions()))


def _sources() -> Iterator[tuple[str, list[str]]]:
    """Every topic, module and description with its strings: the standard library by name, then the packages."""
    standard = pathlib.Path(sysconfig.get_path("stdlib"))
    for topic, text in sorted(_topics(standard / "pydoc_data" / "topics.py").items()):
        yield f"topic {topic}", [text]
    for name in sorted(_below(standard, "**/*.py")):
        yield name, _docstrings(standard / name)
    installed = pathlib.Path(sysconfig.get_path("purelib"))
    names = [*_below(installed, "**/*.py"), *_below(installed, "*.dist-info/METADATA")]
    # By a hash of the name: where the cap cuts, it leaves some of every package, not the first of the alphabet.
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
        yield name, _docstrings(installed / name) if name.endswith(".py") else _description(installed / name)


def _below(folder: pathlib.Path, pattern: str) -> Iterator[str]:
    for path in folder.glob(pattern):
        inner = path.relative_to(folder)
        if _SKIPPED_FOLDERS.isdisjoint(inner.parts):
            yield inner.as_posix()


def _docstrings(path: pathlib.Path) -> list[str]:
    """The documentation strings of a module in source order; none where it is no UTF-8."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    return [text for literal in _DOCSTRING.findall(source) if (text := _literal(literal))]


def _topics(path: pathlib.Path) -> dict[str, str]:
    """The dict of help texts, which is all that its module holds."""
    try:
        return _literal(path.read_text(encoding="utf-8").partition("topics = ")[2]) or {}
    except (OSError, UnicodeDecodeError):
        return {}


def _description(path: pathlib.Path) -> list[str]:
    """The body of a package's METADATA: what stands after the first empty line."""
    return [path.read_text(encoding="utf-8", errors="replace").partition("\n\n")[2]]


def _literal(source: str) -> Any:
    """The value of a Python literal, or None where it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in other people's strings
            return ast.literal_eval(source)
    except (SyntaxError, ValueError):
        return None


def _prose(text: str, seen: set[bytes]) -> Iterator[str]:
    """The paragraphs of English, cleaned of markup, that were not seen before.

    Code, doctests, tables, lists and descriptions of parameters have indented lines, do not start with a letter, do
    not end like a sentence, or hold too few plain words.
    """
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if "\n " in block or ">>>" in block or not block[:1].isalpha() or not block.isascii():
            continue
        for pattern, replacement in _MARKUP:
            block = pattern.sub(replacement, block)
        words = block.split()
        plain = sum(map(bool, map(_WORD.match, words)))
        if len(words) < _MIN_PARAGRAPH or plain < _MIN_SHARE_OF_WORDS * len(words) or words[-1][-1] not in ".!?:":
            continue
        digest = hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            yield " ".join(words)
