"""The prose of wiki markup: paragraphs, without templates, tables, lists, headings, files and references."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bert_jax.readers.documents import ReadOptions

# The time of the parser grows with the square or cube of the number of unclosed marks, so the parser gets one section
# at a time, with few open marks.
_SECTION = 32_000  # maximum number of characters of a section
_MAX_OPEN = 30
_PAIRS = (  # patterns of opening and closing marks; group 1 matches a closing mark
    re.compile(r"\{\{|(\}\})"),
    re.compile(r"\[\[|(\]\])"),
    re.compile(r"\{\||(\|\})"),
    re.compile(r"<!--|(-->)"),
    re.compile(r"\[(?:https?:)?//|(\])"),
    re.compile(r"<(?!br\b|hr\b|li\b|[^<>]{0,300}/>)[a-z]|(</[a-z])", re.IGNORECASE),
)
_MARK = re.compile(r"\{[{|]|\}\}|\|\}|\[\[|\]\]|<!--|-->|<[^<>\s]{0,20}")
_HEADING = re.compile(r"^(?==+[^=\n])", re.MULTILINE)

_NAMESPACES = ("file", "image", "media", "category")  # names that every wiki knows besides its local names
_MEDIA = re.compile(
    r"[^:|]+:.*\.(jpe?g|png|svg|gif|tiff?|webp|xcf|og[agv]|webm|wav|flac|mp3|midi?|pdf|djvu|stl)\s*", re.IGNORECASE
)
_OTHER_LANGUAGE = re.compile(r"\s*[a-z]{2,3}(-[a-z]+)*:\S")

# Characters that mark removed parts of a rendered section. They are private-use characters, which are removed from the
# markup first.
_GONE, _LIST = "\ue000", "\ue001"
_MARKS = str.maketrans("", "", _GONE + _LIST)

_NO_TEXT = (
    "ref|references|table|gallery|math|chem|ce|score|timeline|hiero|imagemap|source|syntaxhighlight|pre|graph"
    "|mapframe|maplink|style|templatestyles|ul|ol|dl|categorytree|inputbox|noinclude"
)
_TAGS = {**dict.fromkeys(_NO_TEXT.split("|"), _GONE), **dict.fromkeys(("li", "dd", "dt", "hr"), _LIST), "br": " "}

# The repetitions are bounded, because an unbounded pattern that may start anywhere and never ends takes quadratic time.
_CLEANINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[^\S\n]+", " "),
        (r"__[A-Z]{1,40}__", ""),
        (r"'{2,}", ""),
        (r"</?[A-Za-z][^<>]{0,300}>", ""),  # a start tag without its end tag, or an end tag alone
        (rf"\((?:[\s,;:/–-]{{0,8}}{_GONE}){{1,8}}[\s,;:/–-]{{0,8}}\)", _GONE),  # noqa: RUF001  # empty parentheses
        (rf"\((?:\s?{_GONE}[\s,;:]{{0,8}}){{1,8}}", "("),
        (rf"[\s,;]{{0,8}}{_GONE}[\s,;]{{0,8}}\)", ")"),
        (rf" ?{_GONE}(?= ?[,.;:!?])", _GONE),
        (rf"{_GONE} (?=[,.;:!?])", ""),
        (_GONE, ""),
        (r" {2,}", " "),
    )
)
_NO_PROSE = (_LIST, "{|", "|", "!", "}}", "{{", "]]", "<!--", "=")  # starts of lines that are not prose


def wiki_markup_to_text(data: str, options: ReadOptions) -> str:
    """Return the prose of a page from `read_wiki_dump`; empty lines separate the paragraphs.

    BERT's training corpus also has only text passages, without lists, tables and headers (Devlin et al., 2019, 3.1).
    """
    header, _, markup = data.partition("\n")
    render = _Renderer(frozenset((*_NAMESPACES, *filter(None, header.split("|")))))
    markup = markup.replace("\r\n", "\n").translate(_MARKS)
    return "\n\n".join(
        itertools.chain.from_iterable(_prose_paragraphs(render(part)) for part in _split_into_sections(markup))
    )


def _split_into_sections(markup: str) -> Iterator[str]:
    """Yield the sections of a page; a long section comes in parts."""
    for section in _HEADING.split(markup):
        rest = section
        while len(rest) > _SECTION:
            ends = (rest.rfind("\n\n", _SECTION // 2, _SECTION), rest.rfind("\n", 1, _SECTION), _SECTION)
            end = next(end for end in ends if end > 0)
            yield rest[:end]
            rest = rest[end:]
        yield rest


def _prose_paragraphs(rendered: str) -> Iterator[str]:
    """Yield the paragraphs of a rendered section: consecutive lines of prose."""
    for pattern, replacement in _CLEANINGS:
        rendered = pattern.sub(replacement, rendered)
    lines: list[str] = []
    for line in (*map(str.strip, rendered.split("\n")), ""):
        if line and not line.startswith(_NO_PROSE):
            lines.append(line)
        elif lines:
            yield " ".join(lines)
            lines = []


class _Renderer:
    """Renderer of wiki markup as text, with marks in place of removed parts."""

    def __init__(self, namespaces: frozenset[str]):
        import mwparserfromhell

        self._namespaces = namespaces
        self._parse = mwparserfromhell.parse
        self._parser_error = mwparserfromhell.parser.ParserError
        self._nodes: dict[str, Callable[[Any], str]] = {
            "Text": lambda node: node.value,
            "Wikilink": self._text_of_link,
            "Template": self._text_of_template,
            "Tag": self._text_of_tag,
            "ExternalLink": lambda node: _GONE if node.title is None else self._text_of_wikicode(node.title),
            "HTMLEntity": _entity_character,
            "Heading": lambda node: "\n\n",
            "Comment": lambda node: "",
            "Argument": lambda node: _GONE,
        }

    def __call__(self, markup: str) -> str:
        if max(_max_open_marks(markup, pair) for pair in _PAIRS) > _MAX_OPEN:
            return _MARK.sub(" ", markup)  # such a text is no wiki markup, but its words are kept
        try:
            return self._text_of_wikicode(self._parse(markup))
        except self._parser_error:  # a bug of the parser
            return _MARK.sub(" ", markup)

    def _text_of_wikicode(self, code: Any) -> str:
        return "".join(self._nodes[type(node).__name__](node) for node in code.nodes)

    def _text_of_link(self, node: Any) -> str:
        title = str(node.title)
        namespace, colon, _ = title.partition(":")
        is_special = colon and namespace.strip().lower().replace("_", " ") in self._namespaces
        if is_special or _MEDIA.fullmatch(title):
            return _GONE
        label = self._text_of_wikicode(node.text) if node.text is not None else ""
        if not label and _OTHER_LANGUAGE.match(title):
            return _GONE
        return label or self._text_of_wikicode(node.title).removeprefix(":")

    def _text_of_tag(self, node: Any) -> str:
        name = str(node.tag).strip().lower()
        if name in _TAGS:
            return _TAGS[name]
        return self._text_of_wikicode(node.contents) if node.contents is not None else ""

    def _text_of_template(self, node: Any) -> str:
        keep = _TEMPLATES.get(str(node.name).strip().lower())
        if keep is None:
            return _GONE
        return (
            keep(
                [self._text_of_wikicode(parameter.value).strip() for parameter in node.params if not parameter.showkey]
            )
            or _GONE
        )


def _max_open_marks(markup: str, pair: re.Pattern[str]) -> int:
    """Return the maximum depth of nested marks in wiki markup; `pair` matches opening and closing marks."""
    depth = most = 0
    for match in pair.finditer(markup):
        depth = max(0, depth - 1) if match[1] else depth + 1
        most = max(most, depth)
    return most


def _entity_character(node: Any) -> str:
    try:
        character = str(node.normalize())
    except (ValueError, OverflowError):  # a number that is not a character
        return ""
    return character if character.isprintable() or character.isspace() else ""


def _template_argument(index: int) -> Callable[[Sequence[str]], str]:
    return lambda values: values[index] if -len(values) <= index < len(values) else ""


def _constant_text(value: str) -> Callable[[Sequence[str]], str]:
    return lambda _: value


_BETWEEN = frozenset(("to", "and", "or", "by", "x", "-", "–"))  # noqa: RUF001


def _measurement_text(values: Sequence[str]) -> str:
    """Return the text of a measurement: `3|to|5|km|...` gives `3 to 5 km`."""
    numbers = list(itertools.takewhile(lambda value: value in _BETWEEN or value[-1:].isdigit(), values))
    return " ".join(values[: len(numbers) + 1])


# Templates of the English Wikipedia that produce words of a sentence; all other templates are left out.
_TEMPLATES: dict[str, Callable[[Sequence[str]], str]] = {
    **dict.fromkeys(("lang", "transl", "transliteration", "rtl-lang"), _template_argument(-1)),
    **dict.fromkeys(
        ("nowrap", "small", "smaller", "big", "nihongo", "quote", "angbr", "abbr", "vanchor", "sic", "not a typo"),
        _template_argument(0),
    ),
    **dict.fromkeys(("convert", "cvt"), _measurement_text),
    "as of": lambda values: " ".join(("As of", *values[:1])),
    **dict.fromkeys(("circa", "c.", "ca."), lambda values: " ".join(("c.", *values[:1]))),
    **dict.fromkeys(("spaced ndash", "snd", "spnd"), _constant_text(" – ")),  # noqa: RUF001
    **dict.fromkeys(("ndash", "endash"), _constant_text("–")),  # noqa: RUF001
    **dict.fromkeys(("mdash", "emdash"), _constant_text("—")),
    "'": _constant_text("'"),
    "nbsp": _constant_text(" "),
}
