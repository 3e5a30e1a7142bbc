"""The rules of cleaning that are written here, one by one; test_datatrove.py tries the filters of datatrove."""

import collections
import gzip
import json
import random
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.corpus.build.cleaning import contamination, repeated_lines
from bert_jax.corpus.build.cleaning.datatrove_filters import FILTERS
from bert_jax.corpus.build.cleaning.recipe import Recipe, Step
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.cleaning.verdict import Removed
from bert_jax.errors import UserError

# Each 4 letters; no two 5-grams are equal.
RNG = random.Random(0)
UNIQUE = ["".join(RNG.choices("abcdefghij", k=4)) for _ in range(200)]


# (rule, parameters, text, the result: the text itself, or another text). K stays.
K = None
CASES = [
    ("mask_emails", {}, "Write to Jane.Doe+x@mail.example.co.uk, or a@b", "Write to email@example.com, or a@b"),
    ("mask_emails", {"replacement": "|"}, "<a@b.org> user@localhost x@y.de.", "<|> user@localhost |."),
    ("mask_emails", {}, "no address @all", K),
    (
        "mask_emails",
        {},
        "\u30e1taro@example.jp\u3001\u5230zhang@a.cn\u8054",
        "\u30e1email@example.com\u3001\u5230email@example.com\u8054",
    ),
    ("mask_emails", {}, "kim@a.kr\ub85c, s@a.co.th\u0e44", "email@example.com\ub85c, email@example.com\u0e44"),
    (
        "mask_emails",
        {},
        "info@m\u00fcller.de, \u00fc@\u043f\u0440.\u0440\u0444",
        "email@example.com, email@example.com",
    ),
    ("mask_ip_addresses", {}, "from 8.8.8.8, 192.168.0.1 and 999.8.8.8", "from 192.0.2.1, 192.168.0.1 and 999.8.8.8"),
    (
        "mask_ip_addresses",
        {},
        "Version 1.2.3.4.5 at 10:30:45, 2001:4860:4860::8888.",
        "Version 1.2.3.4.5 at 10:30:45, 2001:db8::1.",
    ),
    (
        "mask_ip_addresses",
        {},
        "8.8.8.8\uc5d0\uc11c, \u5230 2606:4700:4700::1111\u53f7",
        "192.0.2.1\uc5d0\uc11c, \u5230 2001:db8::1\u53f7",
    ),
    ("mask_ip_addresses", {"public_only": False}, "127.0.0.1 ::1 fe80::1", "192.0.2.1 2001:db8::1 2001:db8::1"),
    ("mask_ip_addresses", {}, "C++ std::cin face::8 a::b", K),
]


@pytest.mark.parametrize(
    ("rule", "parameters", "text", "expected"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_cases_computed_by_hand(rule, parameters, text, expected):
    assert RULES[rule].apply(text, **parameters) == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("line", "is_counted"),
    [
        *[("all rights reserved", True), ("版权所有 翻印必究", True), ("สงวนลิขสิทธิ์", True)],
        *[("利用規約に同意する", True), ("感谢您的阅读。", True)],
        *[("第 3 页", True), ("Yes, sir.", False), ("“好的”。", False), ("谢谢你。", False), ("我不知道。", False)],
        *[("ありがとう。", False), ("「・・・・・・」", False), ("ขอบคุณ", False), ("Café", False)],
    ],
)
def test_lines_of_few_words_are_not_repeated_lines_in_any_script(line, is_counted):
    assert bool([*repeated_lines.distinct_line_hashes(line, min_documents=2, min_words=3)]) is is_counted


def test_an_interrupted_cleaning_does_not_go_on_with_lines_counted_by_another_rule(monkeypatch):
    def identity(rule):
        return Recipe("", (Step(rule, {}),)).identity([])

    before = {rule: identity(rule) for rule in ("repeated_lines", "mask_emails")}
    monkeypatch.setattr(repeated_lines, "LETTERS_PER_WORD", 1)
    assert [rule for rule in before if identity(rule) != before[rule]] == ["repeated_lines"]


def test_every_rule_is_tried():
    elsewhere = {"repair_encoding", "language", "repeated_lines", "contamination", *FILTERS}
    assert {case[0] for case in CASES} | elsewhere == set(RULES)
    for name in {case[0] for case in CASES}:
        assert {case[3] is None for case in CASES if case[0] == name} == {True, False}, name


def test_broken_encodings_are_repaired_and_nothing_else_changes():
    repair = RULES["repair_encoding"].apply
    for text in ("na\u00efve caf\u00e9 \u2014 \u201cyes\u201d", "\u6d77\u8fba\u306e\u30ab\u30d5\u30ab", "plain"):
        assert repair(text) == text
        broken = text.encode().decode("windows-1252", "replace")
        if "\ufffd" not in broken:
            assert repair(f"{text}\n{broken}\n\uff11 \ufb01") == f"{text}\n{text}\n\uff11 \ufb01"


SENTENCES = {
    "en": "The committee will meet again next week to discuss the new proposals for the school.",
    "de": "Der Ausschuss trifft sich n\u00e4chste Woche wieder, um die neuen Vorschl\u00e4ge zu besprechen.",
    "ru": "\u041d\u0430 \u0441\u043b\u0435\u0434\u0443\u044e\u0449\u0435\u0439 \u043d\u0435\u0434\u0435\u043b\u0435.",
}


def test_texts_in_other_languages_are_removed_and_counted_by_language():
    rule = RULES["language"]
    for code, text in SENTENCES.items():
        assert rule.apply(text, keep=[code]) == text
        assert rule.apply(text, keep=["fr"]).group == code
        # A long text is looked at in five places, so a foreign start does not decide.
        long = SENTENCES["en"] + "\n" + text * 50
        assert rule.apply(long, keep=[code]) == long
    assert rule.apply("12345 67", keep=["en"]).group == "uncertain"
    assert rule.apply(SENTENCES["de"], keep=["de"], min_probability=1.1).group == "uncertain"
    with pytest.raises(UserError, match=r"keep: 'eng' is no language of py3langid; did you mean 'en'\?"):
        rule.check(keep=["eng"], min_probability=0.5, sample_characters=500)


EVALUATION = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen."


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps({"data": [{"paragraphs": [{"context": f"{EVALUATION}\nMore"}, {"n": 5}]}]}, indent=1)),
        ("a.jsonl", json.dumps({"x": "y"}) + "\n\n" + json.dumps({"q": [EVALUATION]}) + "\n"),
        ("b.jsonl", json.dumps({"q": [f"Line\u2028separators. {EVALUATION}"]}, ensure_ascii=False) + "\n{}\n"),
        ("a.tsv", f'index\tquestion\n0\t"{EVALUATION}\n'),
        ("b.tsv", f"{'word ' * 40_000}\t{EVALUATION}\n"),
        ("a.csv", f'index,question\n0,"{EVALUATION} ""Yes"", he said."\n'),
        ("a.txt", EVALUATION.replace(" seven", "\nseven")),
        ("utf16.csv", f"question,label\n{EVALUATION},1\n"),
        ("a.json.gz", json.dumps([EVALUATION])),
    ],
)
def test_a_text_with_13_words_of_an_evaluation_file_is_removed(tmp_path, name, content):
    (tmp_path / "none.txt").write_text(
        "Another text, which has more than thirteen words, so that it can be found in a text."
    )
    data = content.encode("utf-16" if name.startswith("utf16") else "utf-8")
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    find = RULES["contamination"].apply
    files = [str(tmp_path / "none.txt"), str(tmp_path / name)]
    words = EVALUATION.split()
    found = find("And so: " + " ".join(words[1:14]).upper() + "!", files=files)
    assert found == Removed(" ".join(words[1:14]).lower().rstrip("."), files[1])
    short = "And so: " + " ".join(words[2:14]) + " and then"
    assert find(short, files=files) == short
    assert isinstance(find(short, files=files, ngram=12), Removed)
    assert find("few words", files=files) == "few words"


def test_evaluation_files_without_text_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("too few words")
    (tmp_path / "b.json").write_text("{")
    for name, words in (("a.txt", "no text of 13 words"), ("b.json", "cannot be read"), ("c", "no such file|match")):
        with pytest.raises(UserError, match=words):
            contamination.check_evaluation_files(files=[str(tmp_path / name)], ngram=13)


def test_lines_of_many_documents_are_found_in_blocks_and_removed(tmp_path):
    """Beside a literal count over all documents, for counts around the limit and hashes in all ranges."""
    rng = random.Random(0)
    texts = [
        [f"Menu number {n % 7} {rng.choice(UNIQUE[:8] * 4 + UNIQUE[8:60])} x" for n in range(6)] for _ in range(60)
    ]
    texts[0] += ["Yes.", "All rights reserved, 2024"]
    for text in texts[1:5]:
        text += ["Yes.", "ALL rights  reserved, 19"]
    options = {"min_documents": 5, "min_words": 3}
    blocks = []
    for first in range(0, 60, 25):
        parts = []
        for text in texts[first : first + 25]:
            own = np.sort(np.fromiter(repeated_lines.distinct_line_hashes("\n".join(text), **options), "<u8"))
            parts.append(repeated_lines.LineCounts(own, np.zeros(len(own), "<u8"), np.ones(len(own), "<u4")))
        blocks.append(repeated_lines.sum_line_counts(parts))
    path = tmp_path / "repeated.npy"
    repeated_lines.write_repeated_line_hashes(path, blocks, **options)
    plain = [{"menu 0 " + line.split()[3] if "Menu" in line else line[:10].lower() for line in text} for text in texts]
    counts = collections.Counter(line for text in plain for line in text)
    often = {line for line, number in counts.items() if number >= 5}
    assert len(np.load(path)) == len(often - {"yes."})
    assert "all rights" in often
    assert 4 < len(often) < len(counts)
    remove = RULES["repeated_lines"].apply
    assert (
        remove("Yes.\nAll rights reserved, 3\nA text of its own.", str(path), **options) == "Yes.\nA text of its own."
    )
    assert remove("All rights reserved", str(path), **options) == "All rights reserved"
    # Another survey at the same place, in the same process.
    repeated_lines.write_repeated_line_hashes(path, [repeated_lines.NO_LINES] * len(blocks), **options)
    assert remove("All rights reserved, 3", str(path), **options) == "All rights reserved, 3"


def test_no_rule_loads_a_library_that_is_not_used():
    code = (
        "import sys; import bert_jax.corpus.build.prepare, bert_jax.corpus.build.clean\n"
        "sys.exit(bool({'datatrove', 'ftfy', 'py3langid', 'spacy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
