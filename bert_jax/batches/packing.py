"""Several examples in a sequence: a plan of the lengths that share a sequence, and the examples of each epoch.

The plan follows Krell et al. 2021, "Efficient sequence packing without cross-contamination", and works on the histogram
of lengths. Lengths are placed from the longest to the shortest, each length in a sequence in which it leaves the fewest
free tokens. The result is a list of patterns (lengths that share a sequence), and the number of sequences of each
pattern. The number of examples of each length is equal in all epochs, so the plan is valid for all epochs. Each epoch
permutes the examples of equal length.
"""

import collections
import dataclasses
from typing import NamedTuple

import numpy as np

from bert_jax.batches.hashing import Stream, permuted_indices, random_bits
from bert_jax.corpus.store import running_total

Pattern = tuple[int, ...]  # lengths of the examples of one sequence


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackingPlan:
    """The packed sequences of a split, numbered through all sources, one pattern after the other.

    A class consists of all slots of a source that have the same length; these slots are the members of the class. Each
    entry of a pattern has a class, and takes a different member of the class in each sequence with the pattern.

    Attributes:
        slots: slot numbers, sorted by source and length, int64 [slots].
        class_start: int64 [classes + 1]; class c has slots[class_start[c]:class_start[c + 1]].
        first_sequence: int64 [patterns + 1]; pattern p has the sequences first_sequence[p]:first_sequence[p + 1].
        classes: the class of each entry, or -1 for no entry, int64 [patterns, examples].
        first_member: index of the first member that each entry takes from its class, int64 [patterns, examples].
        num_sequences: number of packed sequences of each source, int64 [sources].
    """

    slots: np.ndarray
    class_start: np.ndarray
    first_sequence: np.ndarray
    classes: np.ndarray
    first_member: np.ndarray
    num_sequences: np.ndarray


def plan_packing(lengths: np.ndarray, source_slot: np.ndarray, seq_len: int, max_examples: int) -> PackingPlan:
    """Plan the packed sequences of a split: which example lengths share a sequence.

    Args:
        lengths: number of tokens of each example with special tokens, at most `seq_len`, int64 [slots].
        source_slot: int64 [sources + 1]; source k has the slots source_slot[k]:source_slot[k + 1], and no sequence
        mixes sources.
        seq_len: tokens per sequence.
        max_examples: maximum number of examples per sequence.
    """
    order, class_start = [np.zeros(0, np.int64)], [0]
    classes: list[list[int]] = []
    first_member: list[list[int]] = []
    counts: list[int] = []
    num_sequences = []
    for first, stop in zip(source_slot[:-1].tolist(), source_slot[1:].tolist(), strict=True):
        source_lengths = lengths[first:stop]
        order.append(first + np.argsort(source_lengths, kind="stable"))
        sizes, members = np.unique(source_lengths, return_counts=True)
        class_of = {size: len(class_start) - 1 + index for index, size in enumerate(sizes.tolist())}
        class_start += (class_start[-1] + np.cumsum(members)).tolist()
        used: collections.Counter[int] = collections.Counter()
        patterns = pack_lengths_into_patterns(
            dict(zip(sizes.tolist(), members.tolist(), strict=True)), seq_len, max_examples
        )
        for pattern, count in patterns:
            entries, members_from = [-1] * max_examples, [0] * max_examples
            for entry, size in enumerate(pattern):
                entries[entry], members_from[entry] = class_of[size], used[size]
                used[size] += count
            classes.append(entries)
            first_member.append(members_from)
            counts.append(count)
        num_sequences.append(sum(count for _, count in patterns))
    return PackingPlan(
        slots=np.concatenate(order),
        class_start=np.array(class_start, np.int64),
        first_sequence=running_total(np.array(counts, np.int64)),
        classes=np.array(classes, np.int64).reshape(-1, max_examples),
        first_member=np.array(first_member, np.int64).reshape(-1, max_examples),
        num_sequences=np.array(num_sequences, np.int64),
    )


class PatternCount(NamedTuple):
    """A pattern of example lengths, and the number of sequences that have it."""

    pattern: Pattern
    num_sequences: int


def pack_lengths_into_patterns(histogram: dict[int, int], seq_len: int, max_examples: int) -> list[PatternCount]:
    """Return patterns of lengths that fit into `seq_len` tokens, and the number of sequences of each pattern.

    `histogram` maps each length to its number of examples. The patterns use every example exactly once.
    """
    # The patterns that can take a further example, by their number of free tokens.
    open_patterns: list[list[PatternCount]] = [[] for _ in range(seq_len + 1)]
    full: list[PatternCount] = []

    def add_pattern(pattern: Pattern, num_sequences: int, free_tokens: int) -> None:
        patterns = full if len(pattern) == max_examples else open_patterns[free_tokens]
        patterns.append(PatternCount(pattern, num_sequences))

    for size in sorted(histogram, reverse=True):
        left, free = histogram[size], size
        while left and free <= seq_len:
            if not open_patterns[free]:
                free += 1
                continue
            pattern, count = open_patterns[free].pop()
            taken = min(left, count)
            if taken < count:
                open_patterns[free].append(PatternCount(pattern, count - taken))
            add_pattern((*pattern, size), taken, free - size)
            left -= taken
            free = max(size, free - size) if len(pattern) + 1 < max_examples else free
        # The remaining examples open new sequences, with the maximum number of examples of this length in each.
        each = min(seq_len // size, max_examples)
        if left >= each:
            add_pattern((size,) * each, left // each, seq_len - each * size)
        if left % each:
            add_pattern((size,) * (left % each), 1, seq_len - left % each * size)
    return full + [group for groups in open_patterns for group in groups]


class PackedSlots(NamedTuple):
    """The sequence (`row`) and the slot of each example; both are indices, int64 [examples]."""

    row: np.ndarray
    slot: np.ndarray


def slots_of_packed_sequences(plan: PackingPlan, seed: int, epoch: np.ndarray, sequence: np.ndarray) -> PackedSlots:
    """Return the sequence and the slot of each example in the given packed sequences, in order.

    Args:
        plan: plan of the split.
        seed: seed of the run.
        epoch: epoch of each sequence, int64 [sequences].
        sequence: number of each packed sequence in the `PackingPlan`, int64 [sequences].

    Returns:
        row: for each example, the index of its sequence in `sequence`, ascending, int64 [examples].
        slot: slot numbers, int64 [examples].
    """
    pattern = np.searchsorted(plan.first_sequence, sequence, side="right") - 1
    nth = sequence - plan.first_sequence[pattern]  # index of the sequence among the sequences with its pattern
    row, entry = np.nonzero(plan.classes[pattern] >= 0)
    kind = plan.classes[pattern[row], entry]
    member = plan.first_member[pattern[row], entry] + nth[row]
    sizes = plan.class_start[kind + 1] - plan.class_start[kind]
    member = permuted_indices(member, sizes, random_bits(seed, Stream.PACKING, epoch[row], kind))
    return PackedSlots(row, plan.slots[plan.class_start[kind] + member])
