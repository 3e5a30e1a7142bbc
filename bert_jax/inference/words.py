"""The words of texts, for models that label words: how a text is split, and which lines hold tokens."""

import functools
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

import tokenizers

from bert_jax.errors import UserError
from bert_jax.inference.inputs import Input
from bert_jax.tasks.reading.formats import CONLL_COMMENT, DOCUMENT_MARK, UNREAD_COLUMNS
from bert_jax.tasks.task import Columns, Record

NUM_EXAMINED = 1_000  # first lines of an input that decide how the input is read
NOT_GIVEN = "_"  # mark of CoNLL-U for a value that is not given
MAX_PARTS = 4  # parts of a token such as U.S.; a line without spaces that has more parts is a text, as in Chinese
TWO_WAYS = 'write a text as JSON line {"text": "..."}, or a token per line into a .conll file'


def split_text(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, as the BasicTokenizer of BERT separates them.

    White space separates words. Each punctuation mark and each Chinese character is a word of its own. No character is
    changed, and only white space is left out.
    """
    spaced = _normalizer().normalize_str(text)
    return [word for word, _ in tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str(spaced)]


@functools.cache
def _normalizer() -> tokenizers.normalizers.Normalizer:
    """Return the normalizer that only puts spaces around Chinese characters."""
    return tokenizers.normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
    )


def find_content_of_lines(
    lines: Sequence[str], labels: Collection[str], columns: Columns
) -> Literal["tokens", "texts", "unclear"]:
    """Return whether the lines of an input hold a token each, with columns as in CoNLL, or a text each.

    The lines hold tokens if a tab separates columns, if most lines have a label of the model in the column of labels,
    or if most lines are a single word. Otherwise, lines with different numbers of words hold texts, and a single line
    holds a text. Several lines with equal numbers of words are unclear.

    Args:
        lines: first lines of the input.
        labels: labels of the model.
        columns: the number of the column of 'labels', as text; the default is the last column.
    """
    lines = [line for line in lines if line.strip() and not line.startswith(DOCUMENT_MARK)]
    lines = [line for line in lines if not CONLL_COMMENT.match(line)]
    label_column = columns.get("labels", "-1")
    index = int(label_column) if label_column.removeprefix("-").isdecimal() else -1
    rows = [line.split() for line in lines]
    num_labeled = sum(len(row) > 1 and -len(row) <= index < len(row) and row[index] in labels for row in rows)
    num_single = sum(len(row) == 1 and len(split_text(row[0])) <= MAX_PARTS for row in rows)
    if any("\t" in line.strip() for line in lines) or 2 * num_labeled > len(rows):
        return "tokens"
    if len(rows) <= 1:
        return "texts"
    if 2 * num_single > len(rows):
        return "tokens"
    return "texts" if len({len(row) for row in rows}) > 1 else "unclear"


def has_token_per_line(source: str, text: str, labels: Collection[str], columns: Columns) -> bool:
    """Return whether a file has a token per line instead of a text per line; raise UserError if this is unclear.

    Args:
        source: name of the file, for messages.
        text: content of the file.
        labels: labels of the model.
        columns: the number of the column of 'labels', as text.
    """
    content = find_content_of_lines(text.split("\n", NUM_EXAMINED)[:NUM_EXAMINED], labels, columns)
    if content == "unclear":
        raise UserError(f"{source}: all lines have equally many words, so they may be texts or columns; {TWO_WAYS}")
    return content == "tokens"


def check_lines_are_texts(inputs: Iterable[Input], labels: Collection[str], columns: Columns) -> Iterator[Input]:
    """Yield the inputs; raise UserError if the first lines hold a token each. JSON lines are not checked.

    `find_content_of_lines` documents the other arguments.
    """
    inputs = iter(inputs)
    first = list(itertools.islice(inputs, NUM_EXAMINED))
    texts = [line.fields["text"] for line in first if line.has_field_names]
    if find_content_of_lines(texts, labels, columns) == "tokens":
        raise UserError(f"{first[0].where}: lines of texts are read here, but these lines hold tokens; {TWO_WAYS}")
    yield from first
    yield from inputs


def check_columns_are_labels(
    source: str, records: Sequence[Record], notes: Counter[str], labels: Collection[str]
) -> None:
    """Raise UserError if a file with a token per line has columns, but no column with labels of the model.

    Args:
        source: name of the file, for messages.
        records: records of the file.
        notes: notes of the reader of the file.
        labels: labels of the model.
    """
    given = dict.fromkeys(label for record in records for label in record.fields.get("labels", ()))
    if notes[UNREAD_COLUMNS] or (given and given.keys().isdisjoint({*labels, NOT_GIVEN})):
        which = f"such as {next(iter(given))!r:.30}" if given else "which are not read"
        raise UserError(f"{source}: has further columns, {which}, but no label of this model; {TWO_WAYS}")
