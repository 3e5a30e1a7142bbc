"""Text of MediaWiki dumps and of the output of WikiExtractor."""

import bz2
import html
import re

import pytest

from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, read_documents
from bert_jax.readers.documents import MAX_RECORD_BYTES
from bert_jax.readers.formats.wiki_markup import wiki_markup_to_text

SITE = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/"><siteinfo><namespaces>'
    '<namespace key="0"/><namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace>'
    "</namespaces></siteinfo>"
)


def page(markup, ns=0, more="", model="wikitext"):
    revision = f"<model>{model}</model><text>{html.escape(markup)}</text>"
    return f"<page><title>T</title><ns>{ns}</ns>{more}<revision>{revision}</revision></page>"


def read(path, data, **options):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return [(d.text or d.rejected) for d in read_documents([str(path)], ReadOptions(**options))]


def prose(markup, namespaces="datei|kategorie"):
    return wiki_markup_to_text(f"{namespaces}\n{markup}", ReadOptions())


@pytest.mark.parametrize(
    ("markup", "wanted"),
    [
        ("'''Bold''' and ''slanted'' [[link]]s to [[a page|some page]].", "Bold and slanted links to some page."),
        ("A fact.<ref name=a>{{cite|x}}</ref> More<ref name=a/> facts.", "A fact. More facts."),
        ("A [[Datei:x.jpg|thumb|a [[cat]]]] word.[[Kategorie:Cats]]\n[[de:Katze]]", "A word."),
        ("See [[:Kategorie:Cats]] and [[Bild:x.JPG|thumb|not here]]this.", "See Kategorie:Cats and this."),
        ("{{Infobox|a=b\n|c={{d}}}}\nText (born {{date|1}}) here{{cn}}, there.", "Text (born) here, there."),
        ("A name ({{lang|el|abc}}; {{IPA|x}}) of {{convert|3|to|5|km|mi}}.", "A name (abc) of 3 to 5 km."),
        ("One ({{x}}) two.", "One two."),
        ("One.\n\n== Head ==\nTwo,\nthree.\n* item\n# item\n: said\nFour.", "One.\n\nTwo, three.\n\nFour."),
        ("a\n{| class=x\n|-\n| cell || cell\n|}\nb <!-- c -->d", "a\n\nb d"),
        ("[http://a.b its name] and [http://a.b] or http://a.b are&nbsp;links &amp; &lt;b&gt;.", None),
        ("x<sub>2</sub> &#233;y <math>z</math>__NOTOC__ <br/>end</div>", "x2 éy end"),
        ("<nowiki>[[not a link]]</nowiki> stays", "[[not a link]] stays"),
        ("Text in {{unclosed\n\nNext [[open|here", None),
    ],
)
def test_markup(markup, wanted):
    found = prose(markup)
    assert not re.search(r"\{\{|http|<!--|[\ue000\ue001]", found) or "unclosed" in markup
    if wanted is not None:
        assert found == wanted


def test_a_dump(tmp_path):
    pages = [
        page("A text with [[Datei:x.png|thumb|y]] & more."),
        page("#REDIRECT [[x]]"),
        page("x", more='<redirect title="y"/>'),
        page("talk", ns=1),
        page("code", model="css"),
        page(" "),
        page("{{only|templates}}"),
        page("x" * (MAX_RECORD_BYTES + 1)),
    ]
    wanted = ["A text with & more.", "redirect", "redirect", "not an article", "not an article", "empty", "empty"]
    dump = SITE + "".join(pages) + "</mediawiki>"
    assert read(tmp_path / "a.xml", dump) == [*wanted, "too large"]
    assert read(tmp_path / "a.xml.bz2", bz2.compress(dump.encode())) == [*wanted, "too large"]
    two = page("old").replace("</page>", "<revision><text>new</text></revision></page>")
    assert read(tmp_path / "a.xml", f"{SITE}{two}</mediawiki>") == ["new"]
    assert read(tmp_path / "a.xml", f"{SITE}</mediawiki>") == read(tmp_path / "a.xml", "") == ["empty"]


LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 30))


@pytest.mark.parametrize(
    "data",
    [
        "<rss><page/></rss>",
        "no XML",
        f'<!DOCTYPE mediawiki [<!ENTITY a0 "ha">{LAUGHS}]>{SITE}{page("&a29;")}</mediawiki>',
        '<!DOCTYPE mediawiki SYSTEM "file:///etc/passwd"><mediawiki/>',
        "<" + "a" * 3_000_000,
    ],
)
def test_a_file_that_is_no_dump_is_rejected(tmp_path, data):
    assert read(tmp_path / "a.xml", data) == ["not a MediaWiki dump"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (SITE + page("x"), "no element found"),
        (SITE + page("x")[:-3], "unclosed token"),
        (SITE + "<page><text>&bomb;</text></page></mediawiki>", "undefined entity"),
        (SITE + "<a>" * 100_000, "nested elements"),
        (SITE + "<" + "a" * 3_000_000, "unterminated"),
        (SITE + page("x") + "</mediawiki><more/>", "junk"),
    ],
)
def test_a_broken_dump_is_named(tmp_path, data, words):
    with pytest.raises(UserError, match=rf"a\.xml: broken XML \(.*{words}"):
        read(tmp_path / "a.xml", data)


@pytest.mark.parametrize(
    "mark", ["{{a|", "<ref>", "{|\n", "[[a|", "<b><i>", "<!--", "[http://a ", "'''''", "* ", "&#", "("]
)
def test_markup_that_is_nothing_but_open_ends(mark):
    words = prose("Before.\n\n" + mark * 20_000 + "\n\nAfter.")
    assert words.startswith("Before.")


def test_a_real_dump_is_clean_prose(real_data):
    path = real_data / "enwiki-sample" / "enwiki-pages-articles-shortened.xml.bz2"
    found = list(read_documents([str(path)]))
    pages, redirects, articles = {"samples": (15, 8, 7), "data": (206, 100, 105)}[real_data.name]
    assert len(found) == bz2.decompress(path.read_bytes()).count(b"<page>") == pages
    assert sum(d.rejected == "redirect" for d in found) == redirects
    texts = [d.text for d in found if not d.rejected]
    assert len(texts) == articles
    assert sum(map(len, texts)) > 2_500_000 * articles / 105 * (real_data.name == "data") + 40_000
    for text in texts:
        assert not re.search(r"\{\{|\}\}|\[\[|\]\]|\{\||''|</?ref|https?://|==|File:|Category:|&nbsp;", text)
    anarchism = texts[0]
    assert anarchism.startswith(
        "Anarchism is a political philosophy that advocates self-governed societies based on voluntary institutions. "
        "These are often described as stateless societies, although several authors have defined them more specifically"
    )


def test_wiki_extractor(tmp_path, samples):
    doc = '<doc id="1" url="u" title="A &amp; B">\nA & B\n\nText &lt;x&gt; &amp; y.\n\nMore.\n</doc>\n'
    path = tmp_path / "wiki_00"
    assert read(path, doc + "\n" + doc.replace("A & B\n", "")) == ["Text <x> & y.\n\nMore."] * 2
    assert read(path, "out\nside\n" + doc) == ["outside of <doc>", "Text <x> & y.\n\nMore."]
    assert read(path, "") == ["empty"]
    for broken in (doc[:-7], doc[:-7] + doc):
        with pytest.raises(UserError, match=r"wiki_00:1: <doc> without </doc>"):
            read(path, broken)
    first, second = read_documents([str(samples / "enwiki-sample" / "wiki_00")])
    assert first.text.startswith("Anarchism is a political philosophy and movement that rejects all")
    assert not second.rejected
    assert "<doc" not in first.text + second.text
