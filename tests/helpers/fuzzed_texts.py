"""Random texts, markup, records and tables: plain sentences of many languages, and troublesome characters."""

import json
import random
import string

WORDS = (  # noqa: SIM905  # in many scripts
    "the cat sat on mat dog runs fast and then sleeps I we they big small of to in for with "
    "der Hund läuft schnell über große Füße école naïve "
    "кошка сидит 고양이가 의자에 앉았다 猫は椅子に座った 北京大学的学生 हिन्दी العربية שלום ภาษาไทย"
).split()
ODD = (
    "[SEP]", "[CLS]", "[MASK]", "[UNK]", "[PAD]", "<s>", "</s>", "<mask>", "##ing", "▁", "Ġ",
    "Ċ", "😀", "👩‍👩‍👧‍👦", "🇩🇪", "e\u0301\u0323",
    "\u200b", "\u200b\u200b", "\ufeff", "\ufffd", "\ufffe", "\U0010ffff", "\ue000\ue001",
    "\u2028", "\u2029", "\u0085", "\u00a0",
    "\u3000", "\u1680", "\x01", "\x07", "\x0b", "\x0c", "\x1c", "\x1d\x1e\x1f", "\x7f", "\x80",
    "\x9f", "\u202e", "ﬃ", "İ", "ß", "ǅ",
    "Z̷͓̈́a̸͎͐l̶", "a.b.c", "U.S.A.", "e.g.", "...", "?!", "。", "!؟", "http://a.b/c?d=e",
    "x" * 300, "가" * 40, "\t", "\r", "&amp;",
    "&#0;", "1e999", "\U0001d518", "\u0600", "\u180e", "\u034f", "'", '"', "“”", "(((", "\\", "\u00ad",
)  # fmt: skip
SPACES = (" ", " ", " ", "\n", "  ", "\t", "\u3000", "\u2009", "\u00a0", "\u0085", "\x0b", "\n\n", "\r\n", "")
BROKEN = (b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xf0\x9f\x98")
MARKS = (
    "# ", "## ", "- ", "* ", "1. ", "> ", ">" * 60, "```\n", "~~~\n", "    ", "|a|b|\n|-|-|\n|",
    "**", "*", "_", "`", "[", "](", "](x)",
    "![", "<b>", "<!--", "-->", "<script>", "---\n", "===\n", "\\", "&#xd800;", "&#99999999;",
    "[a]: x\n", "[a]", "<http://a>", "\n", "\n\n",
)  # fmt: skip
WIKI = (
    "'''", "''", "[[", "]]", "|", "{{", "}}", "{|\n", "|}\n", "<ref>", "</ref>",
    "<ref name=a/>", "<nowiki>", "</nowiki>", "== H ==\n",
    "* ", "# ", ": ", "[[File:a.jpg|thumb|x]]", "[[a|b]]", "{{convert|5|km}}",
    "{{lang|de|Wort}}", "[http://a b]", "<!--", "-->", "&nbsp;",
    "&#0;", "&#xd800;", "&#x110000;", "<math>", "</math>", "__TOC__", "\n\n", "\n", "{{{",
    "}}}", "#REDIRECT [[x]]", "\x0c",
)  # fmt: skip


def sentence(rng: random.Random) -> str:
    """Return words separated by one space, and a period."""
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 12))).capitalize() + "."


def clean(rng: random.Random) -> str:
    """Return sentences that any tokenizer encodes equally, alone or together."""
    return " ".join(sentence(rng) for _ in range(rng.randint(1, 12)))


def odd(rng: random.Random) -> str:
    """Return words and troublesome strings between spaces of every kind."""
    parts = []
    for _ in range(rng.choice((1, 10, 60))):
        parts += [rng.choice(WORDS) if rng.random() < 0.5 else rng.choice(ODD), rng.choice(SPACES)]
        if rng.random() < 0.05:
            parts.append(chr(rng.choice([*range(1, 0xD800, 97), *range(0xE000, 0x110000, 4099)])))
    return "".join(parts)


def long(rng: random.Random) -> str:
    """Return a word, line or blank longer than the windows of sentences and tokens."""
    size = rng.choice((5_000, 8_191, 8_192, 8_193, 20_000, 70_000))
    return rng.choice(
        (
            "x",
            "word ",
            " ",
            "\t",
            "\u3000",
            "a. ",
            "。",
            "猫",
            "😀",
            "e\u0301",
            "\u200b",
            "\r",
            "\n \n",
            "&",
            "(",
            "'",
            "ab\u00a0",
            ".",
            "?! ",
        )
    ) * (size // rng.choice((1, 2)))


def text(rng: random.Random) -> bytes:
    """A file of text."""
    makers = (clean, clean, clean, odd, odd, long if rng.random() < 0.3 else clean)
    end = rng.choice(("\n", "\n", "\n\n", "\r\n", "\r\n\r\n", "\n \t\n", "\r"))
    found = end.join(rng.choice(makers)(rng) for _ in range(rng.choice((0, 1, 2, 2, 4, 10, 40))))
    data = found.encode()
    if rng.random() < 0.01:
        data = (sentence(rng) + " ").encode() * 100_000
    return spoiled(rng, data)


def spoiled(rng: random.Random, data: bytes) -> bytes:
    """Return the data, sometimes with marks, NULs or invalid UTF-8 in it."""
    if rng.random() < 0.15:
        data = b"\xef\xbb\xbf" + data
    if rng.random() < 0.12:
        place = rng.randint(0, len(data))
        data = data[:place] + rng.choice((b"\0", *BROKEN, b"\xef\xbb\xbf", b"\n\n", b"\r\n")) + data[place:]
    if rng.random() < 0.02:
        data = rng.choice(
            (b"", b"\n", b" ", b"\xef\xbb\xbf", b"\r\n\r\n", utf16(rng), rng.randbytes(2000), b"\0" * 100)
        )
    return data


def utf16(rng: random.Random) -> bytes:
    """A text in another encoding."""
    return clean(rng).encode("utf-16")


def marked(rng: random.Random, marks: tuple[str, ...]) -> str:
    """Return sentences with marks among them, or a repeated mark."""
    if rng.random() < 0.15:
        return rng.choice(marks) * rng.choice((10, 100, 3000)) + clean(rng)
    parts = [rng.choice(marks) if rng.random() < 0.5 else sentence(rng) for _ in range(rng.choice((2, 20, 80)))]
    return rng.choice(("", " ")).join(parts)


def markdown(rng: random.Random) -> bytes:
    """A file of Markdown."""
    return spoiled(rng, (clean(rng) if rng.random() < 0.3 else marked(rng, MARKS)).encode())


def markup(rng: random.Random) -> str:
    """Return the markup of a wiki page, without control characters, which XML does not allow."""
    return "".join(one for one in marked(rng, WIKI) if one >= " " or one in "\n\t")


def json_object(rng: random.Random, broken: float = 0.1) -> str:
    """Return a line of JSON, or a broken one."""
    if rng.random() < broken:
        return rng.choice(
            ("{", "nul", '{"text": "', '{"a": ' + "[" * 100_000, '{"text":' * 2000, "1" * 5000,
             '{"text": "a"} x', "{'text': 'a'}", '{"text": "\t"}',
             '{"text": "\\x"}', '{"a": ' + "9" * 5000 + "}", "\x00", '"\udcff"', '{"text": "a\udcffb"}')
        )  # fmt: skip
    value = rng.choice((clean, clean, clean, odd))(rng)
    shape = rng.random()
    if shape < 0.7:
        return json.dumps({"id": rng.randrange(99), "text": value, "a": {"b": value}}, ensure_ascii=rng.random() < 0.5)
    return rng.choice(
        ('{"text": "\\ud83d"}', '{"text": "a \\udc00\\ud800 b"}', '{"text": "\\ud83d\\ude00 cat"}',
         '{"text": null}', '{"text": 5}',
         '{"text": ""}', '{"text": " \\n"}', '{"text": "a\\u0000b"}',
         '{"text": "one", "text": "two"}', '{"text": ["a"]}', "[]", "{}", "5",
         '"text"', "NaN", '{"text": "cat", "n": 1e999}',
         '{"text": "cat", "deep": ' + "[" * 900 + "]" * 900 + "}", '{"a": {"b": "dog"}}',
         '{"a.b": "mat", "a": {"b": "dog"}}', '{"text": "' + "cat " * 3000 + '"}',
         '{"text": "\\ufeff"}', '{"a": {"b": {}}}')
    )  # fmt: skip


def table(rng: random.Random, kind: str) -> str:
    """Return CSV or TSV: with or without a header, rows of other widths, unterminated quotes."""
    end = rng.choice(("\n", "\n", "\r\n"))
    mark = "," if kind == "csv" else "\t"
    rows = [["id", "text"]] if rng.random() < 0.96 else []
    for number in range(rng.choice((0, 1, 5, 5, 30))):
        rows.append([str(number), rng.choice((clean, clean, clean, odd))(rng)])
        if rng.random() < 0.05:
            rows.append(rng.choice(([], [""], ["a", "b", "c"], ["9", ""], ["9", 'say "x", or\nnot']))[:])
    if kind == "tsv":
        return end.join(mark.join(" ".join(value.split("\t")) for value in row) for row in rows)
    lines = []
    for row in rows:
        quoted = [
            '"' + value.replace('"', '""') + '"' if set(value) & set('",\r\n') or rng.random() < 0.2 else value
            for value in row
        ]
        lines.append(mark.join(quoted))
        if rng.random() < 0.01:
            lines.append(rng.choice(('7,"open', '7,"a" b', '7,a "b" c', '"7"x,y', "7," + string.printable)))
    return end.join(lines)
