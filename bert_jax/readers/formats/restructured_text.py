"""The text of reStructuredText, also of Sphinx: paragraphs, headings and list items; no code, tables or images."""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax.errors import needs_packages
from bert_jax.readers.documents import ReadOptions, RejectedError

_MAX_CHARACTERS = 1 << 20  # docutils takes some seconds and 500 MB for this many characters
_DIRECTIVE = re.compile(r"([ \t]*)\.\.[ \t]+([\w:+.-]+)::(?:[ \t]+(.*))?")
_FIELD = re.compile(r"[ \t]+:(?![: ])[^:`]+:(?:[ \t].*)?")
_OPTION = re.compile(r"[ \t]+:(?!subtitle:)[\w-]+:(?:[ \t].*)?")
_ROLE = re.compile(r"(?<!\w):[\w+.-]+(?::[\w+.-]+){0,3}:`[~!]?([^`<\n]*[^`<\s])(?:\s*<[^`>\n]*>)?[^\S\n]*`")
_WIDE_TABLE = re.compile(r"^[ \t]*\+[-+]{1000,}", re.MULTILINE)  # docutils takes quadratic time in the width
# The indented text of directives is kept. For the directives below, the words on the first line are also kept, except
# for the given number of words at its beginning.
_WORDS = {
    "admonition attention card caution centered compound danger dropdown error grid-item-card hint important note "
    "rubric seealso sidebar tip todo topic warning": 0,
    "deprecated versionadded versionchanged versionremoved": 1,
    "deprecated-removed": 2,
}
_QUOTES = frozenset({"epigraph", "highlights", "pull-quote"})  # directives that docutils reads; they have no options
_LEFT_OUT_NAMES = (
    "code code-block contents csv-table currentmodule default-role doctest figure graphviz highlight image "
    "include index list-table literalinclude math meta module parsed-literal plot raw replace role sectnum "
    "sourcecode table target-notes testcode testoutput testsetup title toctree unicode"
)
_LEFT_OUT = frozenset(_LEFT_OUT_NAMES.split())
_WORDS_BEFORE = {name: count for names, count in _WORDS.items() for name in names.split()}
_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "report_level": 5,
    "halt_level": 5,
    "warning_stream": False,
    "_disable_config": True,
    "line_length_limit": _MAX_CHARACTERS,
}


def restructured_text(data: str, options: ReadOptions) -> str:
    """Return the plain text of reStructuredText; a paragraph becomes one line, and empty lines separate the blocks.

    An inline role is replaced by its text. A directive, even an unknown directive, is replaced by its indented text;
    some directives also keep the words of their first line. Directives for code, tables and images are dropped.

    Raises:
        RejectedError: 'too large', or 'broken reStructuredText'.
        UserError: docutils is not installed.
    """
    docutils = _load_docutils()
    if len(data) > _MAX_CHARACTERS:
        raise RejectedError("too large")
    source = _WIDE_TABLE.sub("", data.replace("\r\n", "\n"))
    source = _ROLE.sub(r"\1", "\n".join(_directives_to_containers_or_comments(source.split("\n"))))
    settings = docutils.frontend.get_default_settings(docutils.parsers.rst.Parser)
    for name, value in _SETTINGS.items():
        setattr(settings, name, value)
    document = docutils.utils.new_document("", settings)
    try:
        docutils.parsers.rst.Parser().parse(source, document)
        blocks = [" ".join(node.astext().split()) for node in document.findall(_make_text_block_filter(docutils.nodes))]
    except (RecursionError, docutils.ApplicationError, AssertionError, AttributeError, IndexError, ValueError):
        raise RejectedError("broken reStructuredText") from None
    return "\n\n".join(filter(None, blocks))


@functools.cache
def _load_docutils() -> Any:
    with needs_packages("reStructuredText", "docutils"):
        import docutils
        import docutils.frontend
        import docutils.nodes
        import docutils.parsers.rst
        import docutils.utils
    return docutils


def _directives_to_containers_or_comments(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines; a directive becomes a container, whose text is kept, or a comment, which docutils drops.

    docutils would drop a directive together with its text if the directive has an unknown option or is misplaced.
    """
    directive = option = -1  # indentation of a directive and of an option that may continue
    for index, line in enumerate(lines):
        indent = _indentation(line) if line.strip() else -1
        if match := _DIRECTIVE.fullmatch(line):
            directive, option = indent, -1
            yield from _rewrite_directive(match, lines[index + 1] if index + 1 < len(lines) else "")
        elif indent <= directive:
            directive = option = -1
            yield line
        elif directive >= 0 and _OPTION.fullmatch(line):
            option = indent
        elif not 0 <= option < indent:  # the line is no part of the value of an option
            if directive >= 0 and _FIELD.fullmatch(line):
                yield ""
            option = -1
            yield line


def _rewrite_directive(match: re.Match[str], following: str) -> Iterator[str]:
    before, words = match[1], match[3] or ""
    name = match[2].lower()
    if name in _QUOTES:
        yield match[0]
    elif name in _LEFT_OUT:
        yield from (f"{before}..", f"{before}   {name}")
    else:
        yield from (f"{before}.. container:: other", "")
        content = words.split(None, _WORDS_BEFORE[name])[_WORDS_BEFORE[name] :] if name in _WORDS_BEFORE else []
        if content:
            inner = (
                following[: len(following) - len(following.lstrip())] if _indentation(following) > len(before) else ""
            )
            yield f"{inner or before + '   '}{content[0]}"


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _make_text_block_filter(nodes: Any) -> Any:
    """Return a function that says whether a node is a block of text that is kept."""
    texts = nodes.paragraph, nodes.title, nodes.term, nodes.rubric, nodes.subtitle, nodes.attribution, nodes.line
    left_out = nodes.system_message, nodes.table, nodes.comment, nodes.substitution_definition

    def is_kept_text(node: Any) -> bool:
        if not isinstance(node, texts):
            return False
        while node is not None and not isinstance(node, left_out):
            if isinstance(node, nodes.field_list) and isinstance(node.parent, (nodes.document, nodes.section)):
                return False  # metadata of the page
            node = node.parent
        return node is None

    return is_kept_text
