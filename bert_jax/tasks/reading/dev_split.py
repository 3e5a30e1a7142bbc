"""Choice of a dev set from a training file, with the same fraction of the examples of each label."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bert_jax.batches.hashing import Stream, random_bits


def choose_dev_rows(label_lists: Sequence[Sequence[int]], fraction: float, seed: int) -> np.ndarray:
    """Return a mask of the held-out examples, bool `[examples]`; the result depends only on the arguments.

    An example is assigned to the rarest of its labels. The dev set has the given fraction of all examples, rounded to
    the nearest example. The dev set also has this fraction of the examples of each label, with an error of less than
    one example. If a label has only one example, the example stays in the training set.

    Args:
        label_lists: the labels of each example; an example may have several labels or no label.
        fraction: fraction of the examples in the dev set, above 0 and at most 1/2.
        seed: seed of the choice among the examples of a label.
    """
    counts = Counter(label for labels in label_lists for label in set(labels))
    strata = np.array(
        [min(set(labels), key=lambda label: (counts[label], label), default=-1) for labels in label_lists], np.int64
    )
    order = np.lexsort((random_bits(seed, Stream.ORDER, 0, np.arange(len(strata))), strata))
    _, members = np.unique(strata, return_inverse=True)
    order = order[np.bincount(members)[members][order] > 1] if len(strata) > 1 else order[:0]
    # In the order of the labels, the dev set takes every (1 / fraction)-th example.
    steps = np.floor(np.arange(len(order) + 1) * fraction + 0.5)
    chosen = np.zeros(len(strata), bool)
    chosen[order[np.diff(steps) > 0]] = True
    return chosen
