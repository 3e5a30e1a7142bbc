"""Text of Markdown files, whole books, and front matter."""

import re

import pytest

from bert_jax.readers import ReadOptions, pieces, read_documents
from bert_jax.readers.formats import markdown


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("# A *head*\n\nSome **strong**\ntext.", "A head\n\nSome strong text."),
        ("Under\n=====\n\n---\n\n> quoted [link](http://a.b 'title')\n> text", "Under\n\nquoted link text"),
        ("- one\n- `two`\n  1. three", "one\n\ntwo\n\nthree"),
        ("a ![picture](x.png) b<br>c\\*d &amp; e  \nf", "a  bc*d & e f"),
        ("```python\ncode\n```\n\n    code\n\ntext", "text"),
        ("<div>\nhtml\n</div>\n\n[text][1] <http://a.b>\n\n[1]: http://c.d", "text http://a.b"),
        ("before\n\n| a | b |\n|---|---|\n| c | d |\n\nafter", "before\n\nafter"),
        ("*a " * 10_000 + "b", "*a " * 10_000 + "b"),
        ("", ""),
        ("---\ntitle: A: b\ntags:\n  - x\n- y\n\n# note\n---\n\n# Head\n\ntext", "Head\n\ntext"),
        ("---\r\ntitle: A\r\n\r\n---\r\ntext", "text"),
        ('+++\ntitle = "A"\n[params]\nx = 1\n+++\ntext\n\n+++ more', "text\n\n+++ more"),
        ("---\n\nA break, then prose.\n\n---\n\ntext", "A break, then prose.\n\ntext"),
        ("text\n\n---\ntitle: A\n\n---\n", "text\n\ntitle: A"),
        ("---\n" + "-a: b\n" * 1000 + "end", None),  # in linear time
    ],
)
def test_text(source, wanted):
    found = markdown.markdown_to_text(source, ReadOptions())
    assert found == wanted if wanted is not None else found.endswith("end")


def test_long_texts_are_parsed_in_sections():
    paragraphs = [f"Paragraph *{number}* ends." for number in range(40_000)]
    assert markdown.markdown_to_text("\n\n".join(paragraphs), ReadOptions()) == "\n\n".join(paragraphs).replace("*", "")


def test_books(real_data):
    found = read_documents([str(real_data / "books" / "classic-books-md.tar.xz")])
    first = next(found)
    assert first.text.startswith(
        "Title: An Occurrence at Owl Creek Bridge\n\nAuthor: Ambrose Bierce\n\nYear: 1890\n\nI\n\nA man"
    )
    assert not re.search(r"^#|^---|\*\*", first.text, re.MULTILINE)


@pytest.mark.parametrize("fence", ["```", "~~~~"])
def test_a_code_block_over_several_sections_is_left_out_but_not_the_prose_after_it(fence, monkeypatch):
    """The same text, wherever the sections end."""
    code = f"{fence}python\n" + "x = 1\n\n" * 30 + f"{fence}\n\n"
    content = "".join(f"Before {n}.\n\n{code}After {n}.\n\n" for n in range(5))
    whole = markdown.markdown_to_text(content, ReadOptions())
    assert whole == "\n\n".join(f"{word} {n}." for n in range(5) for word in ("Before", "After"))
    for size in range(20, 300):
        monkeypatch.setattr(markdown, "_SECTION", size)
        assert markdown.markdown_to_text(content, ReadOptions()) == whole, size


def test_a_code_block_over_several_pieces_is_left_out_but_not_the_prose_after_it(monkeypatch, tmp_path):
    """The same text, wherever the pieces of a long file end."""
    blocks = [
        f"Before {n}.\n\n~~~~\n" + "x = 1\n\n```\n\n" * n + f"~~~~~\n\n```a `b` c\n\nAfter {n}." for n in range(30)
    ]
    (tmp_path / "a.md").write_text("\n\n".join(blocks))
    wanted = " ".join(f"Before {n}. ```a b c After {n}." for n in range(30))
    monkeypatch.setattr(pieces, "MAX_UNSPLIT_BYTES", 1000)
    for size in range(200, 900, 25):
        monkeypatch.setattr(pieces, "MAX_PIECE_BYTES", size)
        found = " ".join(document.text for document in read_documents([str(tmp_path / "a.md")]))
        assert " ".join(found.split()) == wanted, size


@pytest.mark.parametrize(
    "text",
    [
        "---\n# Title\n---\nbody",
        "+++\nlots of prose here\nmore\n+++\nbody",
        "---\nNote: a line of prose.\n---\nbody",
        "---\nWarning:\n\n- a prose list: of one\n\n---\n\nbody",
        "---\nhttps://a.b/prose\n---\nbody",
        "---\ntitle: A\nthis is prose\n---\nbody",
    ],
)
def test_text_between_rules_is_no_front_matter(text):
    found = markdown.markdown_to_text(text, ReadOptions())
    assert "body" in found
    assert any(word in found for word in ("Title", "prose"))


@pytest.mark.parametrize("key", ["title", "Title", "layout", "ms.date", "_build", "tags", "Date"])
@pytest.mark.parametrize("value", [" x: y", "", "\n  - a", " >\n  folded\n\n  text"])
def test_front_matter_as_sites_write_it(key, value):
    assert markdown.markdown_to_text(f"---\n{key}:{value}\nother: b\n---\nbody", ReadOptions()) == "body"
