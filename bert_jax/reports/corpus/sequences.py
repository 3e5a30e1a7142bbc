"""One sequence as HTML: every token, those that are masked together, pairs, packed examples."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.batches.masking import MASKINGS
from bert_jax.batches.pipeline import Batch
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import DataConfig
from bert_jax.reports.corpus.sequences_text import REPLACEMENT, TEXT_NAMES, targets_of, texts_of, vocabulary_entry
from bert_jax.reports.corpus.warnings import Text, is_invisible, signs_of
from bert_jax.reports.html.markup import Html, element, escaped, joined

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer


class Shown(NamedTuple):
    """A sequence to show: figures in words, the names of its signs, its texts."""

    figures: str
    signs: list[str]
    body: Html


class Token(NamedTuple):
    """A token: as it is read and as it was before masking, and what it is."""

    read: int
    right: int
    predicted: bool
    special: bool
    continues: bool  # the word before it, by the vocabulary
    inside: bool  # of a word that is masked together, not at its beginning


def show_sequence(
    batch: Batch, row: int, data: DataConfig, tokenizer: "Tokenizer", begins_word: np.ndarray | None = None
) -> Shown:
    """Return sequence `row` of a batch with two token types, which `data` and `tokenizer` made.

    `begins_word`: bool [seq_len], where words that are masked together begin; None: as the vocabulary marks it.
    """
    read, (right, predicted) = batch["input_ids"][row], targets_of(batch, row)
    real = batch["attention_mask"][row] == 1
    special = np.isin(read, [tokenizer.cls_id, tokenizer.sep_id]) & ~predicted
    continues = tokenizer.continues[right]
    columns = (read, right, predicted, special, continues, continues if begins_word is None else ~begins_word)
    tokens = [Token(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]
    entries = {each: vocabulary_entry(each, tokenizer) for token in tokens for each in token[:2]}
    ids = right[real & ~special]
    text = Text(
        ids,
        entries="".join(entries[each] for each in ids.tolist()),
        num_words=int((~tokenizer.continues[ids]).sum()),
        num_unknown=int((ids == tokenizer.unk_id).sum()),
        num_predicted=int(predicted.sum()),
        fill=float(real.mean()),
    )
    hidden = int((predicted & (read == tokenizer.mask_id)).sum())
    kept = int((predicted & (read == right)).sum())
    figures = (
        f"{len(real)} tokens, {(~real).sum()} of them padding; {text.num_predicted} to predict: {hidden} hidden, "
        f"{text.num_predicted - hidden - kept} random, {kept} kept"
    )
    return Shown(figures, signs_of(text), _examples(texts_of(batch, row), tokens, entries, data, tokenizer))


def legend(tokenizer: "Tokenizer") -> Html:
    """Return what the marks mean."""
    word = element("mark", "word", class_="hidden")
    pair = element("span", word, element("mark", "##s", class_="hidden"), class_="unit")
    marks = (
        (word, f"to predict, the model reads {tokenizer.special.mask}"),
        (_changed("other→", "word", "random"), "to predict, the model reads another token"),
        (_changed("=", "word", "kept"), "to predict, the model reads the word"),
        (pair, "masked together"),
        (element("i", tokenizer.special.unk, class_="unknown"), "unknown to the vocabulary"),
        (_visible(REPLACEMENT), "a broken character"),
        (_visible("\u202e"), "an invisible character"),
    )
    return element("ul", *(element("li", mark, f" {says}") for mark, says in marks), class_="legend tokens")


def _examples(
    examples: Sequence[tuple[list[np.ndarray], int | None]],
    tokens: Sequence[Token],
    entries: dict[int, str],
    data: DataConfig,
    tokenizer: "Tokenizer",
) -> Html:
    """The texts of each example, under its number where several are packed and the label of a pair."""
    meanings, parts = SENTENCE_PAIRS[data.sentence_pairs].label_meanings or ("", ""), []
    for number, (texts, label) in enumerate(examples, 1):
        titles = [f"example {number} of {len(examples)}"] if len(examples) > 1 else []
        titles += [] if label is None else [f"label {label}: {meanings[label]}"]
        lines = [element("p", "; ".join(titles), class_="note")] if titles else []
        for name, positions in zip(TEXT_NAMES, texts, strict=False):
            units = _units([tokens[at] for at in positions.tolist()], data)
            shown = joined(_unit(unit, entries, tokenizer) for unit in units)
            title = element("b", f"{name} ") if len(texts) > 1 else ""
            lines.append(
                element("p", title, shown, class_="tokens pair" if name != TEXT_NAMES[0] else "tokens", dir="auto")
            )
        parts.append(element("div", *lines, class_="example" if len(examples) > 1 else None))
    return joined(parts)


def _units(tokens: Sequence[Token], data: DataConfig) -> Iterator[list[Token]]:
    """Tokens that are masked together, the others alone. Two spans beside each other are one."""
    masking = MASKINGS[data.masking]
    in_spans = masking.max_words > 1 and data.max_span_length != 1
    unit: list[Token] = []
    for token in tokens:
        together = in_spans or (masking.whole_words and token.inside)
        if unit and not (together and token.predicted and unit[-1].predicted):
            yield unit
            unit = []
        unit.append(token)
    if unit:
        yield unit


def _unit(unit: Sequence[Token], entries: dict[int, str], tokenizer: "Tokenizer") -> Html:
    space = "" if unit[0].continues else " "
    shown = [_token(token, entries, tokenizer) for token in unit]
    return joined([space, element("span", *shown, class_="unit") if len(unit) > 1 else joined(shown)])


def _token(token: Token, entries: dict[int, str], tokenizer: "Tokenizer") -> Html:
    right = _visible(entries[token.right])
    if token.special:
        return element("i", right, class_="special")
    if token.predicted and token.read == tokenizer.mask_id:
        return element("mark", right, class_="hidden")
    if token.predicted and token.read == token.right:
        return _changed("=", right, "kept")
    if token.predicted:
        return _changed(joined([_visible(entries[token.read]), "→"]), right, "random")
    return element("i", right, class_="unknown" if token.right == tokenizer.unk_id else None)


def _changed(read: str, right: str, class_: str) -> Html:
    return element("mark", element("span", read, class_="read"), right, class_=class_)


def _visible(text: str) -> Html:
    """Text in which characters that cannot be seen, or that are broken, are code points in a frame."""
    return joined(
        element("code", f"U+{ord(each):04X}") if each == REPLACEMENT or is_invisible(each) else escaped(each)
        for each in text
    )
