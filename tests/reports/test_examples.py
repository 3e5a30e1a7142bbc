"""Sequences as text: with every kind of vocabulary, marks show input and target, and the rest is the text."""

import numpy as np
import pytest

from bert_jax.console import terminal_columns, text_table
from bert_jax.reports.corpus.examples import plain_text, replace_control_characters, sequence_examples
from bert_jax.reports.corpus.inspect_text import example_lines
from bert_jax.reports.corpus.terminal import paint, styled_lines
from bert_jax.tokenizer import load_tokenizer

FIRST = "The unbelievable cat, who sat there: it purred!"
SECOND = "Nobody else was playing."


def make_batch(tokenizer, texts, positions, read):
    """Return a batch of one sequence with the tokens `read` at `positions`, and its original ids and token types."""
    parts = tokenizer.encode_sentences(texts)
    ids = [tokenizer.cls_id, *parts[0], tokenizer.sep_id]
    types = [0] * len(ids)
    for part in parts[1:]:
        ids += [*part, tokenizer.sep_id]
        types += [1] * (len(part) + 1)
    seen = np.array([*ids, tokenizer.pad_id])
    seen[positions] = read
    weights = np.array([1.0] * len(positions) + [0.0])
    batch = {
        "input_ids": seen[None],
        "attention_mask": np.array([[1] * len(ids) + [0]]),
        "token_type_ids": np.array([[*types, 0]]),
        "masked_positions": np.array([[*positions, 0]]),
        "masked_labels": np.array([[*(ids[position] for position in positions), 0]]),
        "masked_weights": weights[None],
    }
    if len(texts) > 1:
        batch["next_sentence_labels"] = np.array([1])
    return batch, ids, types


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased", "roberta-base", "albert-base", "koelectra"])
def test_every_kind_of_vocabulary(samples, name):
    tokenizer = load_tokenizer(samples / "vocab" / name)
    random = tokenizer.encode_sentences(["word"])[0][0]
    own = tokenizer.encode_sentences([FIRST])[0]
    batch, ids, types = make_batch(tokenizer, [FIRST, SECOND], [1, 3, 5], [tokenizer.mask_id, random, own[4]])
    (example,) = sequence_examples(batch, 0, tokenizer)
    assert example.label == 1
    for token_type, text_pieces in enumerate(example.texts):
        restored = " ".join("".join(piece.target or piece.text for piece in text_pieces).split())
        whole = [number for number, own in zip(ids, types, strict=True) if own == token_type]
        assert restored.replace(" ", "") == tokenizer.decode(whole).replace(" ", "")
        text = tokenizer.decode([number for number in whole if number not in (tokenizer.cls_id, tokenizer.sep_id)])
        assert text.strip() in restored
    predicted = [piece for piece in example.texts[0] if piece.target]
    assert [piece.style for piece in predicted] == ["mask", "random", "kept"]
    mask = tokenizer.special.mask[1:-1]
    read = [tokenizer.decode([tokenizer.unk_id, number]).removeprefix(tokenizer.special.unk) for number in ids]
    assert predicted[0].text.strip() == f"[{mask}|{read[1].strip()}]"
    assert predicted[1].text.strip() == f"[{tokenizer.decode([random]).strip()}|{read[3].strip()}]"
    assert predicted[2].text.strip() == f"[{read[5].strip()}|{read[5].strip()}]"
    assert {piece.style for piece in example.texts[1]} == {"second", "special"}


def test_a_character_of_several_tokens(samples):
    tokenizer = load_tokenizer(samples / "vocab" / "roberta-base")
    batch, ids, _ = make_batch(tokenizer, ["猫がいる"], [], [])
    assert len(ids) > len("猫がいる") + 2
    (example,) = sequence_examples(batch, 0, tokenizer)
    assert plain_text(example.texts[0]) == "<s> 猫がいる </s>"
    batch, ids, _ = make_batch(tokenizer, ["猫がいる"], [1], [tokenizer.mask_id])
    (example,) = sequence_examples(batch, 0, tokenizer)
    assert f"[mask|{tokenizer.tokens[ids[1]]}]" in plain_text(example.texts[0])


def test_a_special_token_that_is_predicted_is_marked(samples):
    tokenizer = load_tokenizer(samples / "vocab" / "bert-base-uncased")
    batch, _, _ = make_batch(tokenizer, ["the cat sat"], [2], [tokenizer.sep_id])  # a random token may be a special one
    (example,) = sequence_examples(batch, 0, tokenizer)
    assert plain_text(example.texts[0]) == "[CLS] the [[SEP]|cat] sat [SEP]"


def test_lines_are_no_wider_than_the_given_width():
    spans = [
        ("The quick ", "text"),
        ("brownish", "mask"),
        (" 狐が怠け者の犬を飛び越える jumps", "second"),
        ("!", "kept"),
    ]
    text = "".join(part for part, _ in spans)
    for width in range(8, 60):
        lines = styled_lines(spans, width, color=False)
        assert all(terminal_columns(line) <= width for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        colored = styled_lines(spans, width, color=True)
        for style in ("1;33", "36", "1;32"):
            colored = [line.replace(f"\x1b[{style}m", "").replace("\x1b[0m", "") for line in colored]
        assert colored == lines
    assert styled_lines(spans[:2], 60, color=True) == ["The quick \x1b[1;33mbrownish\x1b[0m"]
    assert styled_lines([("a  b\n\nc", "text")], 60, color=False) == ["a b c"]


@pytest.mark.parametrize("before", ["", "ab ", "\u6f22" * 7, "\u6f22 " * 9])
def test_a_mark_that_fits_on_a_line_is_not_broken(before):
    marks = ["[MASK|\u3042\u306e]", "[\u98db|\u98db\u3073]", "[MASK|##lo]"]
    spans = [(before, "text")]
    for mark, style in zip(marks * 3, ["mask", "random", "kept"] * 3, strict=True):
        spans += [(mark, style), ("\u3060\u304b\u3089", "text"), (f" {mark}", style)]
    whole = "".join(text for text, _ in spans)
    for width in range(4, 60):
        lines = styled_lines(spans, width, False)
        assert max(map(terminal_columns, lines)) <= width
        assert "".join("".join(lines).split()) == "".join(whole.split())
        for mark in marks:
            if terminal_columns(mark) <= width:
                assert sum(line.count(mark) for line in lines) == 6, (width, mark)


def test_columns():
    assert terminal_columns("abc") == 3
    assert terminal_columns("猫") == 2
    assert terminal_columns("e\u0301") == 1
    assert terminal_columns("ที่") == 1  # two marks
    assert terminal_columns("हिन्दी") == 5  # one of three vowel signs has no width of its own
    assert terminal_columns("\u1100\u1161\u11a8") == 2  # a Korean syllable in three parts
    assert terminal_columns("a\u200d") == 1


def test_columns_of_a_table_are_aligned_in_every_script():
    names = ["cat", "猫猫猫", "ที่นี่", "\u1100\u1161", "كلب"]
    lines = text_table([[name, str(10**index)] for index, name in enumerate(names)])
    assert len(set(map(terminal_columns, lines))) == 1


def test_a_text_cannot_control_the_terminal():
    assert replace_control_characters("a\x1b[31m\x07\x9bb\tc\u3000d") == "a\ufffd[31m\ufffd\ufffdb c d"
    assert paint("a", "mask", False) == "a"
    assert "\x1b" not in "".join(styled_lines([("\x1b[2J", "mask")], 60, color=False))


def test_meanings_of_labels(samples):
    tokenizer = load_tokenizer(samples / "vocab" / "bert-base-uncased")
    batch, _, _ = make_batch(tokenizer, [FIRST, SECOND], [], [])
    examples = sequence_examples(batch, 0, tokenizer)
    for sentence_pairs, meaning in [("next_sentence", "another document"), ("sentence_order", "are swapped")]:
        lines = example_lines(examples, sentence_pairs, 80, color=False)
        assert lines[0].startswith("  label 1: ")
        assert meaning in lines[0]
        assert lines[1:] == [
            "  A [CLS] the unbelievable cat, who sat there : it purred! [SEP]",
            "  B nobody else was playing. [SEP]",
        ]
