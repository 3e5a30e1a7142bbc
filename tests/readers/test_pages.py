"""Faulty pages: the text stays complete where a library of the format would drop a part."""

import pytest

from bert_jax.readers import ReadOptions, read_documents
from bert_jax.readers.formats.restructured_text import restructured_text
from tests.helpers.page_files import epub

CHAPTER = "<html xmlns='http://www.w3.org/1999/xhtml'><body>{}</body></html>"


@pytest.mark.parametrize("opened", ["<!-- ", "<title>", "<script>", "<style>", "<textarea>", "<![CDATA[", "\x1e"])
def test_open_tags_end_with_their_chapter(tmp_path, opened):
    chapters = [CHAPTER.format(f"<p>One.</p>{opened}"), "", CHAPTER.format("<p>Two.</p>")]
    (tmp_path / "a.epub").write_bytes(epub(chapters))
    (book,) = read_documents([str(tmp_path / "a.epub")])
    assert (book.text.split()[0], book.text.split()[-1]) == ("One.", "Two.")


@pytest.mark.parametrize(
    ("chapter", "text"),
    [
        ("<p>One <![CDATA[<b> & ]]>two.</p>", "One <b> & two."),
        ("<p>One <![CDATA[a]]><![CDATA[b]]></p>", "One ab"),
        ("<!-- <![CDATA[ --><p>One ]]></p>", "One ]]>"),
        ("<script>//<![CDATA[\nx < '</script>'\n//]]></script><p>One.</p>", "One."),
    ],
)
def test_cdata_of_a_chapter_is_text(tmp_path, chapter, text):
    (tmp_path / "a.epub").write_bytes(epub([CHAPTER.format(chapter)]))
    (book,) = read_documents([str(tmp_path / "a.epub")])
    assert book.text == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (".. rubric:: Some words\n   :heading-level: 2\n", "Some words"),
        (".. note::\n   :collapsible:\n\n   Some words.\n", "Some words."),
        (".. warning:: Some\n   words.\n   :icon: a\n      b\n\n   More.\n", "Some words.\n\nMore."),
        (".. tip::\n   :icon: a\n   Some words.\n", "Some words."),
        (".. container:: !\n   :odd: x\n\n   Some words.\n", "Some words."),
        (".. admonition::\n\n   Some words.\n", "Some words."),
        (".. sidebar:: A\n   :subtitle: B\n   :odd:\n\n   Some words.\n", "A\n\nB\n\nSome words."),
        (".. note::\n   :param x: Some words.\n", "Some words."),
        (".. note::\n\n   .. topic:: A\n\n      Some words.\n", "A\n\nSome words."),
        (".. deprecated:: 1.2 Use other words.\n", "Use other words."),
        (".. versionchanged:: 1.2 Some\n    :func:`words <f>` of\n    more.\n", "Some words of more."),
        (".. versionadded:: 3.2\n   Some words.\n", "Some words."),
        (".. deprecated-removed:: 3.2 3.4\n", ""),
        (".. seealso:: Other words.\n\nThe end.", "Other words.\n\nThe end."),
        (".. function:: f(x)\n   :no-index:\n\n   Some words.\n", "Some words."),
        (".. epigraph::\n\n   Some words.\n\n   -- Someone\n", "Some words.\n\nSomeone"),
        ("* A\n\n  .. note:: Some words.\n\n* B\n", "A\n\nSome words.\n\nB"),
    ],
)
def test_a_directive_keeps_its_words_whatever_options_it_has(source, text):
    assert restructured_text(source, ReadOptions()) == text


@pytest.mark.parametrize(
    ("role", "text"),
    [(":a:`b`", "b"), (":a:`b <c>`", "b"), (":a:`b\n<c>`", "b"), (":a:`b c `", "b c"), (":a:`~b.c`", "b.c")],
)
def test_a_role_is_its_text(role, text):
    assert restructured_text(f"One {role} two.", ReadOptions()) == f"One {text} two."


def test_a_role_that_does_not_end_takes_linear_time():
    """In quadratic time this is an hour."""
    assert restructured_text(f"One :a:`{' ' * 1_000_000}two", ReadOptions()) == "One :a:` two"


@pytest.mark.parametrize(
    ("label", "data", "text"),
    [
        ("iso-8859-1", b"\x93Caf\xe9\x94 costs 3 \x80", "“Café” costs 3 €"),
        ("US-ASCII", b"don\x85", "don…"),
        ("latin5", b"\xdd \x80", "İ €"),
        ("tis-620", b"\xa1\x80", "ก€"),
        ("iso-8859-8-i", b"\xf9\xec\xe5\xed", "שלום"),
        ("gb2312", b"\xe9F", "镕"),
        ("x-gbk", b"\xe9F", "镕"),
        ("gbk", b"\xfe\x9f", "䶮"),
        ("Big5", b"\xf9\xd6", "碁"),
        ("x-x-big5", b"\xa4\xa4", "中"),
        ("shift_jis", b"\x87@", "①"),
        ("x-sjis", b"\x87@", "①"),
        ("windows-31j", b"\x87@", "①"),
        ("euc-kr", b"\x8cc", "똠"),
        ("ks_c_5601-1987", b"\x8cc", "똠"),
        ("x-euc-jp", b"\xc7\xad\xa1\xa3", "猫。"),
        ("x-cp1251", b"\xec\xe8\xf0", "мир"),
    ],
)
def test_a_page_is_decoded_as_browsers_decode_its_label(tmp_path, label, data, text):
    """The bytes are from the indexes of the Encoding Standard of WHATWG, in which browsers decode pages."""
    words = b"word " * 60
    (tmp_path / "page.html").write_bytes(b'<meta charset="%s"><p>%s%s</p>' % (label.encode(), words, data))
    (document,) = read_documents([str(tmp_path / "page.html")])
    assert document.text == words.decode() + text


def test_a_page_that_calls_itself_utf_16_in_single_bytes_is_rejected(tmp_path):
    (tmp_path / "page.html").write_bytes(b'<meta charset="utf-16"><p>%s</p>' % (b"caf\xe9" * 64))
    (document,) = read_documents([str(tmp_path / "page.html")])
    assert document.rejected == "invalid UTF-8"
