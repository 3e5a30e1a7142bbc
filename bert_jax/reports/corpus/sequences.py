"""A training sequence as HTML: every token, tokens that are masked together, pairs, packed examples."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.masking import MASKINGS
from bert_jax.batches.pipeline import Batch
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import DataConfig
from bert_jax.reports.corpus.checks import SequenceText, is_invisible, text_warnings
from bert_jax.reports.corpus.examples import (
    REPLACEMENT,
    TEXT_NAMES,
    positions_of_examples,
    tokens_before_masking,
    vocabulary_entry,
)
from bert_jax.reports.html.markup import SHOWN_SPACE, SPACE, Html, element, escape_html, join_html, small_paragraph

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

PREDICTED = ("hidden", "kept", "random")  # styles of tokens to predict


class ShownSequence(NamedTuple):
    """A sequence to show: its figures in words, the names of its warnings, and its texts."""

    figures: str
    warnings: list[str]
    body: Html


class ShownToken(NamedTuple):
    """A token of a sequence before masking, and the token that the model reads instead."""

    text: str
    read: str
    style: str  # a class of the page
    continues: bool  # True if the token continues a word, according to the vocabulary
    inside: bool  # True if the token is in a word that is masked together, and does not begin the word


def sequence_for_page(
    batch: Batch, row: int, data: DataConfig, tokenizer: "Tokenizer", begins_word: np.ndarray | None = None
) -> ShownSequence:
    """Return the sequence `row` of a batch with two token types, for the page; `data` has the settings of the batch.

    `begins_word` is bool [seq_len], True for the first token of a word, or None if the vocabulary marks the words.
    """
    read, (ids, predicted) = batch["input_ids"][row], tokens_before_masking(batch, row)
    real = batch["attention_mask"][row] == 1
    special = np.isin(read, [tokenizer.cls_id, tokenizer.sep_id]) & ~predicted
    hidden, unchanged = predicted & (read == tokenizer.mask_id), predicted & (read == ids)
    styles = np.select(
        [special, hidden, unchanged, predicted, ids == tokenizer.unk_id],
        ["special", "hidden", "kept", "random", "unknown"],
        "",
    )
    continues = tokenizer.continues[ids]
    inside = continues if begins_word is None else ~begins_word
    entries = {token: vocabulary_entry(token, tokenizer) for token in {*read.tolist(), *ids.tolist()}}
    columns = (ids.tolist(), read.tolist(), styles.tolist(), continues.tolist(), inside.tolist())
    tokens = [ShownToken(entries[token], entries[input_], *rest) for token, input_, *rest in zip(*columns, strict=True)]
    text_ids = ids[real & ~special]
    text = SequenceText(
        ids=text_ids,
        entries="".join(entries[token] for token in text_ids.tolist()),
        num_words=int((~tokenizer.continues[text_ids]).sum()),
        num_unknown=int((text_ids == tokenizer.unk_id).sum()),
        num_predicted=int(predicted.sum()),
        fill=float(real.mean()),
    )
    figures = (
        f"{len(real)} tokens, {(~real).sum()} of them padding; {text.num_predicted} to predict: {hidden.sum()} hidden, "
        f"{text.num_predicted - hidden.sum() - unchanged.sum()} random, {unchanged.sum()} kept"
    )
    return ShownSequence(figures, text_warnings(text), _examples_html(positions_of_examples(batch, row), tokens, data))


def legend_of_marks(tokenizer: "Tokenizer") -> Html:
    """Return the legend that explains the marks of tokens."""
    word = element("mark", "word", class_="hidden")
    has_spaces = any(token.startswith(SPACE) for token in tokenizer.tokens)
    pair = element("span", word, element("mark", "s" if has_spaces else "##s", class_="hidden"), class_="unit")
    marks = [
        (word, f"to predict, the model reads {tokenizer.special.mask}"),
        (_replaced_token_mark("other→", "word", "random"), "to predict, the model reads another token"),
        (_replaced_token_mark("=", "word", "kept"), "to predict, the model reads the word"),
        (pair, "masked together"),
        (element("i", tokenizer.special.unk, class_="unknown"), "unknown to the vocabulary"),
        (_visible_text(REPLACEMENT), "a broken character"),
        (_visible_text("\u202e"), "an invisible character"),
    ]
    if has_spaces:
        marks.append((element("i", SHOWN_SPACE), f"a space, which the vocabulary writes as {SPACE}"))
    return element("ul", *(element("li", mark, f" {meaning}") for mark, meaning in marks), class_="legend tokens")


def _examples_html(
    examples: Sequence[tuple[list[np.ndarray], int | None]], tokens: Sequence[ShownToken], data: DataConfig
) -> Html:
    """Return the texts of each example as HTML, with the label of a pair and the number of a packed example."""
    meanings, parts = SENTENCE_PAIRS[data.sentence_pairs].label_meanings or ("", ""), []
    for rank, (texts, label) in enumerate(examples, 1):
        titles = [f"example {rank} of {len(examples)}"] if len(examples) > 1 else []
        titles += [] if label is None else [f"label {label}: {meanings[label]}"]
        lines = [small_paragraph("; ".join(titles))] if titles else []
        for name, positions in zip(TEXT_NAMES, texts, strict=False):
            units = map(
                _unit_html, _split_into_masking_units([tokens[position] for position in positions.tolist()], data)
            )
            title = element("b", f"{name} ") if len(texts) > 1 else ""
            class_ = "tokens" if name == TEXT_NAMES[0] else "tokens pair"
            lines.append(element("p", title, *units, class_=class_, dir="auto"))
        parts.append(element("div", *lines, class_="example" if len(examples) > 1 else None))
    return join_html(parts)


def _split_into_masking_units(tokens: Sequence[ShownToken], data: DataConfig) -> Iterator[list[ShownToken]]:
    """Yield units, each a single token or several tokens that are masked together; adjacent spans are one unit."""
    masking = MASKINGS[data.masking]
    in_spans = masking.max_words > 1 and data.max_span_length != 1
    unit: list[ShownToken] = []
    for token in tokens:
        together = in_spans or (masking.whole_words and token.inside)
        if unit and not (together and token.style in PREDICTED and unit[-1].style in PREDICTED):
            yield unit
            unit = []
        unit.append(token)
    if unit:
        yield unit


def _unit_html(tokens: Sequence[ShownToken]) -> Html:
    space = "" if tokens[0].continues else " "
    shown = map(_token_html, tokens)
    return join_html([space, *([element("span", *shown, class_="unit")] if len(tokens) > 1 else shown)])


def _token_html(token: ShownToken) -> Html:
    text = _visible_text(token.text)
    if token.style == "hidden":
        return element("mark", text, class_="hidden")
    if token.style == "kept":
        return _replaced_token_mark("=", text, "kept")
    if token.style == "random":
        return _replaced_token_mark(join_html([_visible_text(token.read), "→"]), text, "random")
    return element("i", text, class_=token.style or None)


def _replaced_token_mark(read: str, text: str, class_: str) -> Html:
    return element("mark", element("span", read, class_="read"), text, class_=class_)


def _visible_text(text: str) -> Html:
    """Return a text with a framed code point for each invisible or broken character, and with a dot for each ▁."""
    return join_html(
        element("code", f"U+{ord(char):04X}") if char == REPLACEMENT or is_invisible(char) else escape_html(char)
        for char in text.replace(SPACE, SHOWN_SPACE)
    )
