"""Examples -> rows: text becomes token ids and special tokens, and what does not fit is cut by rule and counted."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError
from bert_jax.tasks.encoding import encode_distinct
from bert_jax.tasks.row import LABEL, Example, Row, collate
from bert_jax.tasks.tagging import tagging_rows
from bert_jax.tasks.windows import span_rows

__all__ = ["Row", "collate", "rows", "truncated_lengths"]

Counts = dict[str, int]  # what was cut or split -> how often


class Layout(NamedTuple):
    """How an example of single texts or pairs of texts is laid out."""

    pairs: Callable[[Example], list[tuple[str, str | None]]]  # one, or one a choice
    target: str  # its key in `Row.targets`
    number: Callable[[Any], float]  # of the label


LAYOUTS = {
    "classification": Layout(lambda example: [(example["text"], example.get("text_pair"))], "label", int),
    "regression": Layout(lambda example: [(example["text"], example.get("text_pair"))], "value", float),
    "choice": Layout(lambda example: [(example["text"], choice) for choice in example["choices"]], "label", int),
}


def rows(
    kind: str, examples: Sequence[Example], tokenizer: Tokenizer, settings: TaskConfig
) -> tuple[list[Row], Counts]:
    """The rows of all examples, in their order, and how much was cut or split.

    Args:
        kind: classification, regression, tagging, span or choice.
        examples: all labelled or none.
        tokenizer: of the model.
        settings: `max_seq_len`, and for span `max_query_length` and `doc_stride`.

    Returns:
        The rows, and counts that are there even if 0. `truncated_texts`: inputs whose texts were cut to fit, the
        longer of a pair first. tagging: `split_sentences` into several rows, `truncated_words` longer than a row.
        span: `split_contexts` (questions whose context has several windows), `truncated_questions`.

    Raises:
        UserError: `max_seq_len` holds no text, or an example is not what its kind needs; it is named by its id.
    """
    key = LABEL[kind]
    labelled = [key in example for example in examples]
    if any(labelled) and not all(labelled):
        odd = examples[labelled.index(False)]["id"]
        raise UserError(f"example '{odd}' has no {key}, but others have; give all of them, or none")
    if kind in LAYOUTS:
        return _text_rows(LAYOUTS[kind], examples, tokenizer, settings.max_seq_len)
    return {"tagging": tagging_rows, "span": span_rows}[kind](examples, tokenizer, settings)


def truncated_lengths(first: int, second: int, limit: int) -> tuple[int, int]:
    """Tokens that two texts keep in `limit`, where the longer loses its last token until both fit.

    Of two that are equally long the second loses, as in google-research/bert. With `second` 0, a single text.
    """
    return min(first, max(limit - second, limit - limit // 2)), min(second, max(limit - first, limit // 2))


def _text_rows(
    layout: Layout, examples: Sequence[Example], tokenizer: Tokenizer, max_seq_len: int
) -> tuple[list[Row], Counts]:
    if max_seq_len < tokenizer.separators + 4:
        raise UserError(f"config.task.max_seq_len={max_seq_len} holds no two texts; give at least 16")
    laid_out = [layout.pairs(example) for example in examples]
    for example, pairs in zip(examples, laid_out, strict=True):
        if len(pairs) != len(laid_out[0]) or not pairs:
            raise UserError(
                f"example '{example['id']}' has {len(pairs)} choices, the first has {len(laid_out[0])};"
                " every example of a task needs as many"
            )
    texts = (text for pairs in laid_out for pair in pairs for text in pair if text is not None)
    ids = encode_distinct(texts, tokenizer.encode_sentences)
    made, truncated = [], 0
    for number, (example, pairs) in enumerate(zip(examples, laid_out, strict=True)):
        inputs, seconds = [], []
        for text, text_pair in pairs:
            first, second = ids[text], [] if text_pair is None else ids[text_pair]
            between = [] if text_pair is None else [tokenizer.sep_id] * tokenizer.separators
            limit = max_seq_len - 2 - len(between)
            kept = truncated_lengths(len(first), len(second), limit)
            truncated += kept != (len(first), len(second))
            head = [tokenizer.cls_id, *first[: kept[0]], *between]
            tail = [*second[: kept[1]], tokenizer.sep_id]
            inputs.append(np.array(head + tail, np.int32))
            seconds.append(len(head) if between else len(head) + 1)
        targets = {layout.target: layout.number(example["label"])} if "label" in example else {}
        several = "choices" in example
        made.append(Row(inputs if several else inputs[0], seconds if several else seconds[0], number, targets))
    return made, {"truncated_texts": truncated}
