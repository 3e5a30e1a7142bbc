"""The text of each example of a sequence: the tokens that the model reads, and the tokens that it should predict."""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.pipeline import Batch

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

TEXT_NAMES = "AB"
REPLACEMENT = "\ufffd"  # shown for a control character, or for bytes that are no character


class TextPiece(NamedTuple):
    """A piece of a sequence: its `text`, with the space before it, its style, and the text to predict (perhaps '').

    The styles are "text", "second" (for the second text of a pair) and "special". Tokens to predict have the style
    "mask", "random" or "kept".
    """

    text: str
    style: str
    target: str = ""


class SequenceExample(NamedTuple):
    """The texts of an example with their special tokens, and the label of a pair of texts (None for a single text)."""

    texts: tuple[tuple[TextPiece, ...], ...]
    label: int | None


def sequence_examples(batch: Batch, row: int, tokenizer: "Tokenizer") -> tuple[SequenceExample, ...]:
    """Return the examples in the sequence with index `row` of a batch, which has two token types."""
    read, (targets, predicted) = batch["input_ids"][row], tokens_before_masking(batch, row)
    examples = []
    for texts, label in positions_of_examples(batch, row):
        pieces = []
        for order, positions in enumerate(texts):
            plain = "second" if order else "text"
            pieces.append(
                tuple(
                    _split_tokens_into_pieces(
                        read[positions], targets[positions], predicted[positions], plain, tokenizer
                    )
                )
            )
        examples.append(SequenceExample(tuple(pieces), label))
    return tuple(examples)


class TokensBeforeMasking(NamedTuple):
    """The tokens of a sequence before masking, int32 `[seq_len]`, and a mask of target tokens, bool `[seq_len]`."""

    ids: np.ndarray
    is_target: np.ndarray


def tokens_before_masking(batch: Batch, row: int) -> TokensBeforeMasking:
    """Return the tokens of a sequence before masking, int32 `[seq_len]`, and a target mask, bool `[seq_len]`."""
    used = batch["masked_weights"][row] > 0
    positions = batch["masked_positions"][row][used]
    targets = batch["input_ids"][row].copy()
    targets[positions] = batch["masked_labels"][row][used]
    predicted = np.zeros(len(targets), bool)
    predicted[positions] = True
    return TokensBeforeMasking(targets, predicted)


class ExamplePositions(NamedTuple):
    """The positions of each text of an example, int64 `[any]`, and the label of a pair of texts (else None)."""

    positions: list[np.ndarray]
    label: int | None


def positions_of_examples(batch: Batch, row: int) -> list[ExamplePositions]:
    """Return the positions of each text (int64 `[any]`) and the label, for each example of a sequence."""
    segments, types = batch.get("segment_ids", batch["attention_mask"])[row], batch["token_type_ids"][row]
    if "next_sentence_labels" not in batch:
        return [
            ExamplePositions([np.flatnonzero((segments == segment) & (types == 0))], None)
            for segment in range(1, segments.max() + 1)
        ]
    labels = np.atleast_1d(batch["next_sentence_labels"][row])
    return [
        ExamplePositions(
            [np.flatnonzero((segments == segment) & (types == kind)) for kind in (0, 1)], int(labels[segment - 1])
        )
        for segment in range(1, segments.max() + 1)
    ]


def _split_tokens_into_pieces(
    input_ids: np.ndarray, targets: np.ndarray, predicted: np.ndarray, plain_style: str, tokenizer: "Tokenizer"
) -> Iterator[TextPiece]:
    # Consecutive tokens that are neither predicted nor special are decoded together, as they may share a character.
    special = np.isin(input_ids, [tokenizer.cls_id, tokenizer.sep_id]) & ~predicted
    alone = special | predicted
    begins = np.ones(len(input_ids), bool)
    begins[1:] = alone[1:] | alone[:-1]
    starts = np.flatnonzero(begins).tolist()
    for first, end in zip(starts, [*starts[1:], len(input_ids)], strict=False):
        text = _decode_with_leading_space(targets[first:end].tolist(), tokenizer)
        if special[first]:
            yield TextPiece(f" {tokenizer.tokens[input_ids[first]]} ", "special")
        elif predicted[first]:
            hidden, same = input_ids[first] == tokenizer.mask_id, input_ids[first] == targets[first]
            style = "mask" if hidden else "kept" if same else "random"
            shown = tokenizer.special.mask.strip("[]<>") if hidden else _token_text(int(input_ids[first]), tokenizer)
            word = _token_text(int(targets[first]), tokenizer)
            yield TextPiece(f"{' ' * text.startswith(' ')}[{shown}|{word}]", style, text)
        else:
            yield TextPiece(text, plain_style)


def _decode_with_leading_space(ids: list[int], tokenizer: "Tokenizer") -> str:
    """Return the text of tokens as it is inside of a longer text, with the space before the first word."""
    before = [tokenizer.unk_id]
    return tokenizer.decode(before + ids)[len(tokenizer.decode(before)) :]


def _token_text(token_id: int, tokenizer: "Tokenizer") -> str:
    """Return the text of a token; return its vocabulary entry if the token is a space or a part of a character."""
    text = _decode_with_leading_space([token_id], tokenizer).strip()
    return text if text and REPLACEMENT not in text else tokenizer.tokens[token_id]


def vocabulary_entry(token_id: int, tokenizer: "Tokenizer") -> str:
    """Return the vocabulary's spelling of a token, or the token's text if the vocabulary spells bytes."""
    text = _token_text(token_id, tokenizer)
    return tokenizer.tokens[token_id] if text in tokenizer.tokens[token_id] else text


def plain_text(pieces: Iterable[TextPiece]) -> str:
    """Return the text of several pieces as one line without colors."""
    return " ".join("".join(replace_control_characters(piece.text) for piece in pieces).split())


def replace_control_characters(text: str) -> str:
    """Return text without control characters, which a terminal would interpret."""
    return "".join(
        " " if char.isspace() else REPLACEMENT if unicodedata.category(char) == "Cc" else char for char in text
    )
