"""Sequences as text: what the model reads, what it is to predict, where texts and examples begin."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.pipeline import Batch
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

# Styles of a terminal: parameters of the control sequence that begins the style.
STYLES = {
    "text": "",
    "second": "36",  # cyan: the second text of a pair
    "special": "2",  # dim
    "mask": "1;33",  # yellow
    "random": "1;31",  # red
    "kept": "1;32",  # green
    "title": "1",
}
LEGEND = (
    ("[MASK|word]", "mask", "hidden"),
    ("[other|word]", "random", "replaced at random"),
    ("[word|word]", "kept", "kept"),
)
TEXT_NAMES = "AB"
REPLACEMENT = "\ufffd"  # of a control character, or of bytes that are no character


class Piece(NamedTuple):
    """A stretch of a sequence: `text` with the space before it, its style, and the text to predict there, if any."""

    text: str
    style: str
    wanted: str = ""


class Example(NamedTuple):
    """Texts of an example with their special tokens, and the label of a pair; None for a single text."""

    texts: tuple[tuple[Piece, ...], ...]
    label: int | None


def examples_of(batch: Batch, row: int, tokenizer: "Tokenizer") -> tuple[Example, ...]:
    """Return the examples of one sequence of a batch, row `row`; the batch has two token types."""
    read, (wanted, predicted) = batch["input_ids"][row], targets_of(batch, row)
    return tuple(
        Example(
            tuple(
                tuple(_pieces(read[here], wanted[here], predicted[here], "second" if order else "text", tokenizer))
                for order, here in enumerate(places)
            ),
            label,
        )
        for places, label in texts_of(batch, row)
    )


def targets_of(batch: Batch, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of a sequence before masking, int32 `[seq_len]`, and which are to predict, bool `[seq_len]`."""
    weights = batch["masked_weights"][row] > 0
    wanted, predicted = batch["input_ids"][row].copy(), np.zeros(batch["input_ids"].shape[1], bool)
    wanted[batch["masked_positions"][row][weights]] = batch["masked_labels"][row][weights]
    predicted[batch["masked_positions"][row][weights]] = True
    return wanted, predicted


def texts_of(batch: Batch, row: int) -> list[tuple[list[np.ndarray], int | None]]:
    """Return for each example of a sequence the positions of each of its texts, int64 `[any]`, and its label."""
    segments = batch.get("segment_ids", batch["attention_mask"])[row]
    labels = np.atleast_1d(batch["next_sentence_labels"][row]) if "next_sentence_labels" in batch else None
    return [
        (
            [
                np.flatnonzero((segments == number) & (batch["token_type_ids"][row] == token_type))
                for token_type in range(1 if labels is None else 2)
            ],
            None if labels is None else int(labels[number - 1]),
        )
        for number in range(1, int(segments.max()) + 1)
    ]


def _pieces(
    read: np.ndarray, wanted: np.ndarray, predicted: np.ndarray, plain: str, tokenizer: "Tokenizer"
) -> Iterator[Piece]:
    # Neighbors that are neither predicted nor special are decoded together: a character may be several tokens.
    special = np.isin(read, [tokenizer.cls_id, tokenizer.sep_id]) & ~predicted
    alone = special | predicted
    begins = np.ones(len(read), bool)
    begins[1:] = alone[1:] | alone[:-1]
    for indexes in np.split(np.arange(len(read)), np.flatnonzero(begins)[1:]) if len(read) else []:
        first = indexes[0]
        text = _decode_after_text(wanted[indexes].tolist(), tokenizer)
        if special[first]:
            yield Piece(f" {tokenizer.tokens[read[first]]} ", "special")
        elif predicted[first]:
            hidden, same = read[first] == tokenizer.mask_id, read[first] == wanted[first]
            style = "mask" if hidden else "kept" if same else "random"
            shown = tokenizer.special.mask.strip("[]<>") if hidden else _spelled(int(read[first]), tokenizer)
            word = _spelled(int(wanted[first]), tokenizer)
            yield Piece(f"{' ' * text.startswith(' ')}[{shown}|{word}]", style, text)
        else:
            yield Piece(text, plain)


def _decode_after_text(ids: list[int], tokenizer: "Tokenizer") -> str:
    """The text of ids after other text, and so with the space before its first word."""
    before = [tokenizer.unk_id]
    return tokenizer.decode(before + ids)[len(tokenizer.decode(before)) :]


def _spelled(token_id: int, tokenizer: "Tokenizer") -> str:
    """A token alone: its text, or its vocabulary entry where it is a space or a part of a character."""
    text = _decode_after_text([token_id], tokenizer).strip()
    return text if text and REPLACEMENT not in text else tokenizer.tokens[token_id]


def vocabulary_entry(token_id: int, tokenizer: "Tokenizer") -> str:
    """Return a token as the vocabulary spells it; its text, where the vocabulary spells characters as bytes."""
    text = _spelled(token_id, tokenizer)
    return tokenizer.tokens[token_id] if text in tokenizer.tokens[token_id] else text


def plain_text(pieces: Iterable[Piece]) -> str:
    """Return pieces as one line without color."""
    return " ".join("".join(printable(piece.text) for piece in pieces).split())


def example_lines(examples: Sequence[Example], sentence_pairs: str, width: int, color: bool) -> list[str]:
    """Return the lines of the examples of a sequence, at most `width` wide: label and its meaning, then the texts."""
    meanings = SENTENCE_PAIRS[sentence_pairs].label_meanings or ("", "")
    lines = []
    for number, example in enumerate(examples, 1):
        title = f"example {number} of {len(examples)}" if len(examples) > 1 else ""
        if example.label is not None:
            title += f"{', ' if title else ''}label {example.label}: {meanings[example.label]}"
        if title:
            lines += [f"  {line}" for line in wrapped([(title, "title")], max(8, width - 2), color)]
        for name, pieces in zip(TEXT_NAMES, example.texts, strict=False):
            head = f"  {name} " if len(example.texts) > 1 else "    "
            spans = [(piece.text, piece.style) for piece in pieces]
            for at, line in enumerate(wrapped(spans, max(8, width - len(head)), color)):
                lines.append((" " * len(head) if at else head) + line)
    return lines


def legend() -> list[tuple[str, str]]:
    """Return the meaning of the marks, as texts with their styles."""
    marks = [part for mark, style, says in LEGEND for part in ((f" {mark}", style), (f" {says},", "text"))]
    return [("Tokens to predict, as [input|target]:", "text"), *marks[:-1], (marks[-1][0].rstrip(","), "text")]


def paint(text: str, style: str, color: bool) -> str:
    """Return `text` in a style, or unchanged without color."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if color and STYLES[style] and text else text


def wrapped(spans: Sequence[tuple[str, str]], width: int, color: bool) -> list[str]:
    """Return texts with their styles as lines of at most `width` columns, broken at spaces.

    A word that is wider than a line is broken anywhere except inside a mark that fits on a line.
    """
    characters = [(character, style) for text, style in spans for character in printable(text)]
    marks = dict(_marks(spans))
    text = "".join(character for character, _ in characters)
    lines: list[list[tuple[str, str]]] = [[]]
    used = 0
    for word in re.finditer(r"\S+", text):
        size = columns(word[0])
        if used and used + 1 + size > width and (size <= width or used + 3 > width):
            lines.append([])
            used = 0
        elif used:
            style = characters[word.start()][1]
            lines[-1].append((" ", style if lines[-1][-1][1] == style else "text"))
            used += 1
        for index in range(word.start(), word.end()):
            own = columns(text[index])
            unbroken = columns(text[index : marks.get(index, index + 1)])
            if used and used + (unbroken if unbroken <= width else own) > width:
                lines.append([])
                used = 0
            lines[-1].append(characters[index])
            used += own
    return [_painted(line, color) for line in lines]


def _marks(spans: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Begin and end of each mark among all characters, without the space before it."""
    begin = 0
    for text, style in spans:
        if style in ("mask", "random", "kept"):
            yield begin + text.startswith(" "), begin + len(text)
        begin += len(text)


def _painted(line: Sequence[tuple[str, str]], color: bool) -> str:
    out = run = ""
    style = "text"
    for character, own in line:
        if own != style:
            out, run, style = out + paint(run, style, color), "", own
        run += character
    return out + paint(run, style, color)


def columns(text: str) -> int:
    """Return the columns that a terminal needs: two for a wide character, none for a combining character."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def printable(text: str) -> str:
    """Return text without control characters, which could control the terminal."""
    return "".join(
        " " if each.isspace() else REPLACEMENT if unicodedata.category(each) == "Cc" else each for each in text
    )
