"""Names of labels: order, similar names, names that look like lists, and the rows of a trained head."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)
DIGITS = re.compile(r"(\d+)", re.ASCII)
MISSING = {"nan", "na", "n/a", "none", "null", "?", "<na>"}  # how programs write a missing value
SEPARATORS = ";|,/+"  # possible separators between the labels of a text with several labels
MAX_SHOWN = 60  # maximum number of labels in a message


def sort_labels_naturally(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels in natural order, in which numbers, also inside of names, are compared by value.

    If a model has no names of labels, transformers calls the labels LABEL_0, LABEL_1 and so on. The natural order of
    these names is the order of their rows in the head.
    """
    distinct = set(names)
    if all(NUMBER.fullmatch(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (float(name), name)))
    return tuple(sorted(distinct, key=_natural_key))


def _natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """Return a sort key that splits a name into letters and numbers, so that B-X2 precedes B-X10."""
    parts = DIGITS.split(name)
    return (*((text, int(number)) for text, number in zip(parts[::2], [*parts[1::2], "-1"], strict=True)), (name, 0))


def labels_text(texts: Sequence[str]) -> str:
    """Return texts about labels, joined by commas; after `MAX_SHOWN` texts, the number of all other texts."""
    rest = [f"and {len(texts) - MAX_SHOWN:,} labels more"] if len(texts) > MAX_SHOWN else []
    return ", ".join([*texts[:MAX_SHOWN], *rest])


def label_counts_text(labels: Sequence[str], counts: Mapping[int, int]) -> str:
    """Return a line with index, name and count of each label, such as "labels 0 'no' 12, 1 'yes' 8"."""
    names = [repr(name) if not name.isprintable() else f"'{name}'" for name in labels]  # repr escapes line breaks
    return "labels " + labels_text([f"{index} {name} {counts.get(index, 0):,}" for index, name in enumerate(names)])


def label_warnings(labels: Sequence[str], counts: Mapping[int, int]) -> list[str]:
    """Return warnings about labels that differ only in spelling, look like missing values, or look like lists.

    Args:
        labels: names in the order of the indices.
        counts: index of a label -> number of examples.
    """

    def with_counts(indices: Iterable[int]) -> str:
        return ", ".join(f"'{labels[index]}' ({counts.get(index, 0):,})" for index in indices)

    alike: dict[str, list[int]] = {}
    for index, name in enumerate(labels):
        alike.setdefault(_comparable_label_name(name), []).append(index)
    lines = [
        f"labels that differ in spelling alone: {with_counts(group)}; give a single spelling in all rows"
        for group in alike.values()
        if len(group) > 1
    ]
    if missing := [index for index, name in enumerate(labels) if name.casefold() in MISSING]:
        lines.append(f"labels that may be missing values: {with_counts(missing)}; remove them from the file if so")
    if separator := detect_list_separator(labels):
        joined = [index for index, name in enumerate(labels) if separator in name]
        lines.append(
            f"{len(joined)} labels look like lists: {with_counts(joined[:5])}; to split them, add "
            f"--label_separator '{separator}' (config.task.label_separator) and --kind multilabel_classification"
        )
    return lines


def _comparable_label_name(name: str) -> str:
    """Return a name for comparisons: in lower case, with one encoding of accents, without white space, '-' and '_'.

    Two spellings of the same number, such as 1 and 1.0, give the same result.
    """
    if NUMBER.fullmatch(name):
        return format(float(name), ".12g")
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", name).casefold()) or name


def detect_list_separator(labels: Iterable[str]) -> str:
    """Return the separator that splits some labels into parts that are mostly labels, too; "" if there is none."""
    names = set(labels)
    for separator in SEPARATORS:
        joined = [[part.strip() for part in name.split(separator)] for name in names if separator in name]
        parts = Counter(part for split in joined for part in split)
        known = sum(part in names or count > 1 for part, count in parts.items())
        if joined and all(all(split) for split in joined) and 2 * known > len(parts):
            return separator
    return ""


def match_head_rows_to_labels(labels: Sequence[str], head_labels: Sequence[str]) -> list[int]:
    """Return the row of a trained head for each label of a task.

    A label takes the row that has the same name or, without such a row, the row whose name differs only in case. Labels
    that match no row by name take the remaining rows in order.

    Args:
        labels: labels of the task.
        head_labels: labels of the head, as many as `labels`.
    """
    rows: dict[int, int] = {}

    def free_rows() -> list[int]:
        used = set(rows.values())
        return [row for row in range(len(head_labels)) if row not in used]

    for spelling in (str, str.casefold):
        rows_of_name: dict[str, list[int]] = {}  # free rows, the last row first
        for row in reversed(free_rows()):
            rows_of_name.setdefault(spelling(head_labels[row].strip()), []).append(row)
        for index, name in enumerate(labels):
            if index not in rows and rows_of_name.get(spelling(name)):
                rows[index] = rows_of_name[spelling(name)].pop()
    left = iter(free_rows())
    return [rows[index] if index in rows else next(left) for index in range(len(labels))]
