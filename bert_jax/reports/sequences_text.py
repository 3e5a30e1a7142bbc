"""Rows of a batch as text: what the model reads, what it is to predict, where texts and examples begin."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.sequences.pipeline import Batch
from bert_jax.data.tokenizer import Tokenizer

# What a label 0 and a label 1 say of a pair.
RELATIONS = {
    "next_sentence": ("B follows A in the same document", "B comes from another document"),
    "sentence_order": ("A and B stand in their order", "A and B have changed places"),
}
# Colours of a terminal: parameters of the control sequence that begins one.
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
    ("[word|word]", "kept", "left as it is"),
)
NAMES = "AB"
BROKEN = "\ufffd"


class Piece(NamedTuple):
    """A stretch of a row: `text` with the space before it, its style, and the text to predict there, if any."""

    text: str
    style: str
    wanted: str = ""


class Example(NamedTuple):
    """Texts of an example, with their special tokens, and the label of a pair; None where there is none."""

    parts: tuple[tuple[Piece, ...], ...]
    label: int | None


def examples_of_row(batch: Batch, row: int, tokenizer: Tokenizer) -> tuple[Example, ...]:
    """The examples of a row of a `pipeline.Batch` that was made with two token types."""
    read = batch["input_ids"][row]
    weights = batch["masked_weights"][row] > 0
    wanted, predicted = read.copy(), np.zeros(len(read), bool)
    wanted[batch["masked_positions"][row][weights]] = batch["masked_labels"][row][weights]
    predicted[batch["masked_positions"][row][weights]] = True
    segments = batch.get("segment_ids", batch["attention_mask"])[row]
    labels = np.atleast_1d(batch["next_sentence_labels"][row]) if "next_sentence_labels" in batch else None
    found = []
    for number in range(1, int(segments.max()) + 1):
        parts = []
        for kind in range(1 if labels is None else 2):
            here = (segments == number) & (batch["token_type_ids"][row] == kind)
            plain = "second" if kind else "text"
            parts.append(tuple(_pieces(read[here], wanted[here], predicted[here], plain, tokenizer)))
        found.append(Example(tuple(parts), None if labels is None else int(labels[number - 1])))
    return tuple(found)


def _pieces(
    read: np.ndarray, wanted: np.ndarray, predicted: np.ndarray, plain: str, tokenizer: Tokenizer
) -> Iterator[Piece]:
    # Neighbours that are neither predicted nor special are decoded together: a character may be several tokens.
    special = np.isin(read, [tokenizer.cls_id, tokenizer.sep_id]) & ~predicted
    alone = special | predicted
    begins = np.ones(len(read), bool)
    begins[1:] = alone[1:] | alone[:-1]
    for place in np.split(np.arange(len(read)), np.flatnonzero(begins)[1:]) if len(read) else []:
        first = place[0]
        text = _surface(wanted[place].tolist(), tokenizer)
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


def _surface(ids: list[int], tokenizer: Tokenizer) -> str:
    """The text of ids as it goes on after other text, so with the space before its first word."""
    before = [tokenizer.unk_id]
    return tokenizer.decode(before + ids)[len(tokenizer.decode(before)) :]


def _spelled(number: int, tokenizer: Tokenizer) -> str:
    """A token alone: its text, or as the vocabulary spells it where it has none: a space, part of a character."""
    text = _surface([number], tokenizer).strip()
    return text if text and BROKEN not in text else tokenizer.tokens[number]


def entry(number: int, tokenizer: Tokenizer) -> str:
    """A token as the vocabulary spells it, unless it spells characters as bytes and the token has whole ones."""
    text = _spelled(number, tokenizer)
    return tokenizer.tokens[number] if text in tokenizer.tokens[number] else text


def plain_text(pieces: Iterable[Piece]) -> str:
    """Pieces in one line, without colour."""
    return " ".join("".join(printable(piece.text) for piece in pieces).split())


def row_lines(examples: Sequence[Example], pairing: str, width: int, colour: bool) -> list[str]:
    """The lines of a row, none wider than `width`: each example, what its label says, its texts."""
    lines = []
    for number, example in enumerate(examples, 1):
        title = f"example {number} of {len(examples)}" if len(examples) > 1 else ""
        if example.label is not None:
            title += f"{', ' if title else ''}label {example.label}: {RELATIONS[pairing][example.label]}"
        if title:
            lines += [f"  {line}" for line in wrapped([(title, "title")], max(8, width - 2), colour)]
        for name, pieces in zip(NAMES, example.parts, strict=False):
            head = f"  {name} " if len(example.parts) > 1 else "    "
            spans = [(piece.text, piece.style) for piece in pieces]
            for at, line in enumerate(wrapped(spans, max(8, width - len(head)), colour)):
                lines.append((" " * len(head) if at else head) + line)
    return lines


def legend() -> list[tuple[str, str]]:
    """What the marks mean, as texts with their styles."""
    marks = [part for mark, style, says in LEGEND for part in ((f" {mark}", style), (f" {says},", "text"))]
    return [("To predict, as [what is read|what is right]:", "text"), *marks[:-1], (marks[-1][0].rstrip(","), "text")]


def paint(text: str, style: str, colour: bool) -> str:
    """`text` in a style, if there is colour."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and STYLES[style] and text else text


def wrapped(spans: Sequence[tuple[str, str]], width: int, colour: bool) -> list[str]:
    """Texts with their styles as lines of at most `width` columns, broken at spaces; wider words break anywhere but
    inside of a mark that a line has room for."""
    characters = [(one, style) for text, style in spans for one in printable(text)]
    marks = dict(_marks(spans))
    text = "".join(one for one, _ in characters)
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
        for place in range(word.start(), word.end()):
            own = columns(text[place])
            ahead = columns(text[place : marks.get(place, place + 1)])
            if used and used + (ahead if ahead <= width else own) > width:
                lines.append([])
                used = 0
            lines[-1].append(characters[place])
            used += own
    return [_painted(line, colour) for line in lines]


def _marks(spans: Sequence[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Begin and end of each mark among all characters, without the space before it."""
    place = 0
    for text, style in spans:
        if style in ("mask", "random", "kept"):
            yield place + text.startswith(" "), place + len(text)
        place += len(text)


def _painted(line: Sequence[tuple[str, str]], colour: bool) -> str:
    out = run = ""
    style = "text"
    for one, own in line:
        if own != style:
            out, run, style = out + paint(run, style, colour), "", own
        run += one
    return out + paint(run, style, colour)


def columns(text: str) -> int:
    """Columns that a terminal needs: two for a wide character, none for what combines with the one before."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text
    )


def printable(text: str) -> str:
    """Without control characters, which a text could command the terminal with."""
    return "".join(" " if one.isspace() else BROKEN if unicodedata.category(one) == "Cc" else one for one in text)
