"""HTML elements whose text is always escaped, and the page around the elements."""

import html
import re
from collections.abc import Callable, Iterable

from bert_jax import __version__
from bert_jax.errors import UserError, writing
from bert_jax.files import new_file
from bert_jax.reports.html.style import STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# Elements without a closing tag in HTML, and elements of SVG without content.
EMPTY = {"meta", "rect", "line", "path", "circle", "image", "use", "input"}
SECTION = re.compile(r"<section><h2>(.*?)</h2>", re.DOTALL)
MIN_CONTENTS = 3  # a page of fewer sections has no table of contents
# Control characters except tab and newline, and halves of surrogate pairs, which no HTML file may hold.
SPACE, SHOWN_SPACE = "▁", "·"  # SentencePiece's space, which looks like the line below a mark, and its replacement
OPTION = re.compile(r"(--\w+)")
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Html(str):
    """Text that is already HTML; only the functions `element` and `join_html` make such text."""

    __slots__ = ()


def escape_html(text: object) -> Html:
    """Return a value as escaped text of a page; a value of type `Html` stays unchanged."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(UNPRINTABLE.sub("\ufffd", str(text)), quote=True))


def join_html(parts: Iterable[object]) -> Html:
    """Return the joined parts of a page; parts that are not `Html` are escaped."""
    return Html("".join(map(escape_html, parts)))


def element(tag: str, *children: object, **attributes: object) -> Html:
    """Return `<tag attributes>children</tag>`.

    Args:
        tag: a constant of this project.
        children: contents of the element; contents that are not `Html` are escaped.
        attributes: attributes of the element; `class_` stands for class, and `aria_label` for aria-label. None and
            False omit an attribute, and True writes the attribute without a value.
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = name.rstrip("_").replace("_", "-")
        parts.append(attribute if value is True else f'{attribute}="{escape_html(value)}"')
    if tag in EMPTY and not children:
        return Html(f"<{' '.join(parts)}/>")
    return Html(f"<{' '.join(parts)}>{join_html(children)}</{tag}>")


def table(head: Iterable[object], rows: Iterable[Iterable[object]], label: str, class_: str | None = None) -> Html:
    """Return a table that scrolls horizontally on a narrow screen; the keyboard can scroll the table, too.

    Each row begins with its name; a cell may be a `td` element. For a table without column titles, `head` is ().
    """
    cells = [element("th", cell, scope="col") for cell in head]
    top = element("thead", element("tr", *cells)) if cells else ""
    body = [element("tr", element("th", first, scope="row"), *map(_table_cell, rest)) for first, *rest in rows]
    return scrollable(element("table", top, element("tbody", *body), class_=class_), label)


def _table_cell(cell: object) -> Html:
    return cell if isinstance(cell, Html) and cell.startswith("<td") else element("td", cell)


def scrollable(child: Html, label: str, class_: str = "scroll") -> Html:
    """Return an element that scrolls, also by keyboard; `label` is its name for screen readers."""
    return element("div", child, class_=class_, tabindex=0, role="region", aria_label=label)


def collapsible(title: object, *children: object, open_: bool = False) -> Html:
    """Return a collapsible element, which opens by mouse or keyboard."""
    return element("details", element("summary", title), *children, open=open_)


def section(title: str, *children: object) -> Html:
    """Return a section of a page with a title."""
    return element("section", element("h2", title), *children)


def verdict_html(verdict: str, is_bad: bool, reasons: Iterable[object]) -> Html:
    """Return a verdict of two or three words, with the reasons for the verdict beside it."""
    badge = element("b", verdict, class_="bad" if is_bad else "good")
    return element(
        "div", badge, element("ul", *(element("li", text_with_options(reason)) for reason in reasons)), class_="health"
    )


def text_with_options(text: object) -> Html:
    """Return a text in which no line breaks after the `--` of an option; a text of type `Html` stays unchanged."""
    if isinstance(text, Html):
        return text
    parts = OPTION.split(str(text))
    return join_html(element("span", part, class_="option") if part.startswith("--") else part for part in parts)


def small_paragraph(*children: object) -> Html:
    """Return a paragraph in small letters."""
    return element("p", *children, class_="note")


def shortened(text: str, max_characters: int) -> str:
    """Return a text of at most `max_characters`, in which an ellipsis replaces the rest of a longer text."""
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


def page(title: str, *children: object, command: str = "", style: str = "") -> str:
    """Return the text of an HTML file that loads no other file and runs no script.

    A table of contents stays at the top of the window. The table has a link to each child that is a `section`.

    Args:
        title: title of the window.
        children: parts of the page.
        command: verb that wrote the page, for the last line; "": no last line.
        style: style rules in addition to `STYLE`.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        Html(f"<style>{STYLE}{style}</style>"),
    )
    foot = [small_paragraph(f"Written by bert-jax {command}, version {__version__}.")] if command else []
    links, parts = _links_and_anchored_sections(children)
    contents = element("nav", *links, class_="contents", aria_label="contents") if len(links) >= MIN_CONTENTS else ""
    body = element("body", contents, element("main", *parts, *foot))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _links_and_anchored_sections(children: Iterable[object]) -> tuple[list[Html], list[Html]]:
    """Return a link to each child that is a section, and all children, where sections have ids for the links."""
    links, parts = list[Html](), list[Html]()
    for child in map(escape_html, children):
        if title := SECTION.match(child):
            anchor = f"section{len(links)}"
            links.append(element("a", Html(title[1]), href=f"#{anchor}"))
            child = Html(child.replace("<section>", f'<section id="{anchor}">', 1))
        parts.append(child)
    return links, parts


def write_page(output: str, make: Callable[[], str]) -> str:
    """Write the page that the function `make` returns to a file, atomically, and return the name of the file.

    Raises UserError, before the page is made, if `output` is not an .html file or cannot be written.
    """
    check_html_name(output)
    with writing(output, "choose another place"), new_file(output) as file:
        file.write(make())
    return output


def check_html_name(output: str) -> None:
    """Raise UserError if the path `output` does not end in .html."""
    if not output.endswith(".html"):
        raise UserError(f"{output}: give the name of an .html file")
