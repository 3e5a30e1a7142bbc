"""Several examples in a row: which lengths share one is planned once, which examples these are is drawn every epoch.

After Krell et al. 2021, "Efficient sequence packing without cross-contamination": the plan works on the histogram of
lengths. From the longest to the shortest, all examples of a length at once, each goes where it leaves least room.
The result is a list of patterns (lengths that fill a row) and how many rows have each. Since an epoch has the same
lengths as any other, the plan holds for all of them; the examples of one length are permuted anew.
"""

import collections
from typing import NamedTuple

import numpy as np

from bert_jax.data.sequences.hashing import Stream, permute, random_bits
from bert_jax.data.sequences.layout import running_total


class Packing(NamedTuple):
    """Rows of a split, planned; rows are numbered through all sources, one pattern after the other.

    `slots` int64 [slots] has the slots by source and length; a class is those of one source and length,
    slots[class_start[c]:class_start[c + 1]]. Pattern p has the rows first_row[p]:first_row[p + 1]; its entry e,
    where classes[p, e] is not -1, takes of that class the members from first_member[p, e] on, one a row.
    `rows` int64 [sources] counts the rows of each source.
    """

    slots: np.ndarray
    class_start: np.ndarray
    first_row: np.ndarray
    classes: np.ndarray
    first_member: np.ndarray
    rows: np.ndarray


def make_packing(lengths: np.ndarray, source_slot: np.ndarray, length: int, most: int) -> Packing:
    """Plans the rows.

    Args:
        lengths: int64 [slots], tokens of each example with its special ones, at most `length`.
        source_slot: int64 [sources + 1]; the slots of source k are [k]:[k + 1], and no row mixes sources.
        length: tokens of a row.
        most: examples in a row.
    """
    order, class_start = [np.zeros(0, np.int64)], [0]
    classes: list[list[int]] = []
    first_member: list[list[int]] = []
    counts: list[int] = []
    rows = []
    for first, stop in zip(source_slot[:-1].tolist(), source_slot[1:].tolist(), strict=True):
        own = lengths[first:stop]
        order.append(first + np.argsort(own, kind="stable"))
        sizes, members = np.unique(own, return_counts=True)
        class_of = dict(
            zip(sizes.tolist(), range(len(class_start) - 1, len(class_start) - 1 + len(sizes)), strict=True)
        )
        class_start += (class_start[-1] + np.cumsum(members)).tolist()
        used: collections.Counter[int] = collections.Counter()
        patterns = plan(dict(zip(sizes.tolist(), members.tolist(), strict=True)), length, most)
        for pattern, count in patterns:
            entries, members_from = [-1] * most, [0] * most
            for entry, size in enumerate(pattern):
                entries[entry], members_from[entry] = class_of[size], used[size]
                used[size] += count
            classes.append(entries)
            first_member.append(members_from)
            counts.append(count)
        rows.append(sum(count for _, count in patterns))
    return Packing(
        np.concatenate(order),
        np.array(class_start, np.int64),
        running_total(np.array(counts, np.int64)),
        np.array(classes, np.int64).reshape(-1, most),
        np.array(first_member, np.int64).reshape(-1, most),
        np.array(rows, np.int64),
    )


def plan(histogram: dict[int, int], length: int, most: int) -> list[tuple[tuple[int, ...], int]]:
    """Patterns of at most `most` lengths that add up to at most `length`, and how many rows have each.

    `histogram` says how many examples have which length; the patterns use each exactly once.
    """
    # By the room that is left: patterns that can take more, and how many rows of each there are.
    open_rows: list[list[tuple[tuple[int, ...], int]]] = [[] for _ in range(length + 1)]
    full: list[tuple[tuple[int, ...], int]] = []

    def put(pattern: tuple[int, ...], count: int, room: int) -> None:
        (full if len(pattern) == most else open_rows[room]).append((pattern, count))

    for size in sorted(histogram, reverse=True):
        left, room = histogram[size], size
        while left and room <= length:
            if not open_rows[room]:
                room += 1
                continue
            pattern, count = open_rows[room].pop()
            taken = min(left, count)
            if taken < count:
                open_rows[room].append((pattern, count - taken))
            put((*pattern, size), taken, room - size)
            left -= taken
            room = max(size, room - size) if len(pattern) + 1 < most else room
        # What found no room opens rows of its own, as many of this size in each as go in.
        each = min(length // size, most)
        if left >= each:
            put((size,) * each, left // each, length - each * size)
        if left % each:
            put((size,) * (left % each), 1, length - left % each * size)
    return full + [group for groups in open_rows for group in groups]


def examples_of(packing: Packing, seed: int, epoch: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The examples of rows in the order of the rows: for each the index of its row in `row`, and its slot.

    Args:
        packing: of the split.
        seed: of the run.
        epoch, row: int64 [rows]; row counted as in `Packing`.
    """
    pattern = np.searchsorted(packing.first_row, row, side="right") - 1
    nth = row - packing.first_row[pattern]  # row of its pattern
    index, entry = np.nonzero(packing.classes[pattern] >= 0)
    kind = packing.classes[pattern[index], entry]
    member = packing.first_member[pattern[index], entry] + nth[index]
    sizes = packing.class_start[kind + 1] - packing.class_start[kind]
    member = permute(member, sizes, random_bits(seed, Stream.PACKING, epoch[index], kind))
    return index, packing.slots[packing.class_start[kind] + member]
