"""Losses of sentence vectors, as rows of a table: pure functions of the vectors and the labels of a whole batch.

The score of two texts is the inner product of their vectors, or another row of SCORES, divided by a temperature.
Example i has texts 0 to t: an anchor (a query), its positive, and perhaps negatives. The functions compute scores of
all pairs of texts in blocks of rows, so that a batch of any size needs memory for its vectors and one block.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.models.heads import scale_to_unit_length
from bert_jax.objectives.losses import LossAndCorrectness, cross_entropy, softened_kl_divergence
from bert_jax.objectives.vector_scores import Scores, inner_products
from bert_jax.parallel.sharding import constrain

NEVER = -1e9  # a score whose exponential is 0
# Scores in a block of rows, unless the block would have fewer rows than MIN_BLOCK_ROWS.
BLOCK_SCORES, MIN_BLOCK_ROWS = 1 << 16, 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorLossOptions:
    """The options of the rows of VECTOR_LOSSES; each row reads some of them.

    Attributes:
        scores: the comparison of vectors; the functions below call the scores cosines, because scores of vectors of
            length 1 are cosines.
        symmetric: True if `info_nce` also compares each positive with all anchors, and the loss is the mean of both
            directions.
        false_negative_margin: `info_nce` leaves out negatives whose cosine with the anchor exceeds the cosine of the
            positive by more than the margin (Qwen3 Embedding, Zhang et al. 2025); None: no such rule.
        triplet_margin: margin of `triplet`, a difference of cosines.
        score_temperature: divisor of the teacher's scores in `teacher_kl`.
        matryoshka_sizes: widths of the shortened vectors; each of their losses has the weight of the loss of the whole
            vectors.
    """

    scores: Scores = inner_products
    symmetric: bool = False
    false_negative_margin: float | None = None
    triplet_margin: float = 0.2
    score_temperature: float = 1.0
    matryoshka_sizes: tuple[int, ...] = ()


class VectorLabels(NamedTuple):
    """The labels of a batch of examples; each row of VECTOR_LOSSES reads some of them."""

    weights: jax.Array  # float32 [examples]: 1, or 0 for an example that is absent or not a positive pair
    text_ids: jax.Array  # int32 [examples, texts]: equal texts have equal numbers
    grades: jax.Array | None = None  # float32 [examples]: similarity of the first two texts, in any unit
    scores: jax.Array | None = None  # float32 [examples, texts - 1]: a teacher's score of the anchor with each text


# The batch's loss is the weighted mean of the losses of its examples.
VectorLoss = Callable[[jax.Array, VectorLabels, jax.Array | float, VectorLossOptions], LossAndCorrectness]


def info_nce(
    vectors: jax.Array, labels: VectorLabels, temperature: jax.Array | float, options: VectorLossOptions
) -> LossAndCorrectness:
    """Return the cross entropy of each positive among the positives and negatives of all examples.

    The loss is from Henderson et al. 2017 and van den Oord et al. 2018. If several examples have equal anchors, the
    positives of all these examples are right for each of the anchors. A candidate that equals a right text or the
    anchor is not a negative.

    Args:
        vectors: float32 `[examples, texts, ...]` as `options.scores` compares them.
        labels: `weights` and `text_ids`.
        temperature: divisor of the cosines.
        options: `scores`, `symmetric` and `false_negative_margin`.
    """

    def one_direction(first: int, others: slice) -> LossAndCorrectness:
        """Return the losses of the texts at index `first` as anchors, with the texts at `others` as candidates."""
        x, ids = (array[:, others].swapaxes(0, 1).reshape(-1, *array.shape[2:]) for array in (vectors, labels.text_ids))
        return _info_nce_by_row(
            vectors[:, first], labels.text_ids[:, first], x, ids, labels.weights, temperature,
            options,
        )  # fmt: skip

    losses, correct = one_direction(0, slice(1, None))
    if options.symmetric:
        losses = (losses + one_direction(1, slice(0, 1)).loss) / 2
    return LossAndCorrectness(losses, correct)


def margin_mse(
    vectors: jax.Array, labels: VectorLabels, temperature: jax.Array | float, options: VectorLossOptions
) -> LossAndCorrectness:
    """Return the mean squared error of the margins between the positive and each negative (Hofstätter et al. 2021).

    Args:
        vectors: as in `info_nce`, with at least one negative.
        labels: `scores` of a teacher.
        temperature: divisor of the cosines.
        options: `scores`.
    """
    assert labels.scores is not None
    scores = _scores_within_example(vectors, options.scores) / temperature
    student, teacher = (x[:, :1] - x[:, 1:] for x in (scores, labels.scores))
    return LossAndCorrectness(jnp.mean((student - teacher) ** 2, axis=1), _is_positive_best(scores))


def teacher_kl(
    vectors: jax.Array, labels: VectorLabels, temperature: jax.Array | float, options: VectorLossOptions
) -> LossAndCorrectness:
    """Return T^2 KL(teacher || student) of the softmaxes over an example's positive and negatives (Lin et al. 2020).

    T is `temperature`, the divisor of the student's cosines; the divisor of the teacher's scores is an option.

    Args:
        vectors: as in `info_nce`, with at least one negative.
        labels: `scores` of a teacher.
        temperature: divisor of the cosines.
        options: `scores` and `score_temperature`.
    """
    assert labels.scores is not None
    scores = _scores_within_example(vectors, options.scores)
    # The loss divides the scores of student and teacher by one temperature.
    teacher = labels.scores * (temperature / options.score_temperature)
    return LossAndCorrectness(
        softened_kl_divergence(scores, teacher, jnp.asarray(temperature)), _is_positive_best(scores)
    )


def cosent(
    vectors: jax.Array, labels: VectorLabels, temperature: jax.Array | float, options: VectorLossOptions
) -> LossAndCorrectness:
    """Return CoSENT (Huang et al. 2024), a single value for the batch, as the loss of each example.

    The value is the log of 1 plus the sum of exp(score i - score j) over all pairs of examples with grade i < grade j.
    The correctness has no meaning.

    Args:
        vectors: as in `info_nce`, with two texts.
        labels: `weights` and `grades`.
        temperature: divisor of the cosines.
        options: `scores`.
    """
    assert labels.grades is not None
    order = jnp.argsort(labels.grades)
    grades, present = labels.grades[order], labels.weights[order] > 0
    scores = _scores_within_example(vectors, options.scores)[order, 0] / temperature
    # Entry i is the log of the sum of exp(-score) over the examples from i on, which have the higher grades.
    sums_from = jnp.append(jax.lax.cumlogsumexp(jnp.where(present, -scores, NEVER), reverse=True), NEVER)
    terms = scores + sums_from[jnp.searchsorted(grades, grades, side="right")]
    loss = jax.nn.logsumexp(jnp.append(jnp.where(present, terms, NEVER), 0.0))
    return LossAndCorrectness(jnp.broadcast_to(loss, labels.weights.shape), jnp.zeros(labels.weights.shape))


def triplet(
    vectors: jax.Array, labels: VectorLabels, temperature: jax.Array | float, options: VectorLossOptions
) -> LossAndCorrectness:
    """Return the triplet loss: max(0, negative's cosine - positive's cosine + margin) (FaceNet, 2015).

    The loss of an example is the mean over its negatives.

    Args:
        vectors: as in `info_nce`, with at least one negative.
        labels: not read.
        temperature: not read.
        options: `scores` and `triplet_margin`.
    """
    cosines = _scores_within_example(vectors, options.scores)
    missed = jax.nn.relu(cosines[:, 1:] - cosines[:, :1] + options.triplet_margin)
    return LossAndCorrectness(missed.mean(axis=1), _is_positive_best(cosines))


class VectorLossRow(NamedTuple):
    """A row of VECTOR_LOSSES.

    Attributes:
        loss: the loss function, whose docstring names the labels and options that the function reads
        needs: keys of a batch that the loss reads, besides the texts
        min_texts: the smallest number of texts of an example
        max_texts: the largest number of texts of an example
        is_graded: True if all examples have a loss; False if only positive examples have a loss
        reads_temperature: True if the loss divides scores by the temperature
    """

    loss: VectorLoss
    needs: tuple[str, ...] = ()
    min_texts: int = 2
    max_texts: float = math.inf
    is_graded: bool = False
    reads_temperature: bool = True

    @property
    def selects_positives(self) -> bool:
        """True if only positive pairs count."""
        return not self.is_graded


VECTOR_LOSSES: dict[str, VectorLossRow] = {
    "info_nce": VectorLossRow(info_nce),
    "margin_mse": VectorLossRow(margin_mse, ("scores",), min_texts=3),
    "teacher_kl": VectorLossRow(teacher_kl, ("scores",), min_texts=3),
    "cosent": VectorLossRow(cosent, ("grades",), max_texts=2, is_graded=True),
    "triplet": VectorLossRow(triplet, min_texts=3, reads_temperature=False),
}


def vector_losses(
    name: str,
    vectors: jax.Array,
    labels: VectorLabels,
    temperature: jax.Array | float,
    options: VectorLossOptions = VectorLossOptions(),
) -> LossAndCorrectness:
    """Return the losses of a row of VECTOR_LOSSES, and the correctness of the whole vectors.

    With `matryoshka_sizes`, the losses are the means over the whole vectors and the shortened vectors, scaled to length
    1 (Kusupati et al. 2022).
    """
    loss = VECTOR_LOSSES[name].loss
    losses, correct = loss(vectors, labels, temperature, options)
    for size in options.matryoshka_sizes:
        losses += loss(scale_to_unit_length(vectors[..., :size]), labels, temperature, options).loss
    return LossAndCorrectness(losses / (1 + len(options.matryoshka_sizes)), correct)


def _scores_within_example(vectors: jax.Array, scores: Scores) -> jax.Array:
    """Return the scores of each anchor with the other texts of its example, `[examples, texts - 1]`."""
    return jax.vmap(lambda texts: scores(texts[:1], texts[1:])[0])(vectors)


def _is_positive_best(scores: jax.Array) -> jax.Array:
    """Return 1 where no score exceeds the first score, float32 `[examples]`."""
    return jnp.all(scores[:, :1] >= scores, axis=1).astype(jnp.float32)


def _info_nce_by_row(
    anchors: jax.Array,
    anchor_ids: jax.Array,
    candidates: jax.Array,
    candidate_ids: jax.Array,
    weights: jax.Array,
    temperature: jax.Array | float,
    options: VectorLossOptions,
) -> LossAndCorrectness:
    """Return the InfoNCE loss of each anchor over all candidates; candidate i is the positive of anchor i.

    If there are m examples, candidate n belongs to example n modulo m.
    """
    num_rows, num_candidates = len(anchors), len(candidates)
    # The texts get numbers from 0 on, so that an array can have an entry for each text.
    _, numbers = jnp.unique(candidate_ids, return_inverse=True, size=num_candidates)
    present = jnp.tile(weights, num_candidates // num_rows) > 0
    candidates = constrain(candidates, "accumulation", *["features"] * (candidates.ndim - 1))

    def block_losses(rows: jax.Array) -> LossAndCorrectness:
        ids = jnp.take(anchor_ids, rows)
        equal_anchor = (anchor_ids[:, None] == ids) & (weights[:, None] > 0)  # [examples, rows]
        is_right = jnp.zeros((num_candidates, len(rows)), bool).at[numbers[:num_rows]].max(equal_anchor)
        is_right = is_right[numbers].T | (candidate_ids == ids[:, None])
        is_own = jnp.arange(num_candidates) == rows[:, None]
        cosines = options.scores(anchors[rows], candidates)
        counts = is_own | (present & ~is_right)
        if options.false_negative_margin is not None:
            positive = jnp.sum(jnp.where(is_own, cosines, 0.0), axis=1, keepdims=True)
            counts &= is_own | (cosines <= positive + options.false_negative_margin)
        return cross_entropy(jnp.where(counts, cosines / temperature, NEVER), rows)

    blocks = num_score_blocks(num_rows, num_candidates)
    # Block i has the rows i, i + blocks, ..., so that every device has equally many rows of each block.
    rows = jnp.arange(num_rows).reshape(-1, blocks).T
    if blocks == 1:
        return block_losses(rows[0])
    # The backward pass computes the scores of a block again.
    losses, correct = jax.lax.map(jax.checkpoint(block_losses), rows)
    return LossAndCorrectness(losses.T.reshape(-1), correct.T.reshape(-1))


def num_score_blocks(num_rows: int, num_candidates: int) -> int:
    """Return the least number of equal blocks of rows, each of at most BLOCK_SCORES scores or MIN_BLOCK_ROWS rows."""
    max_rows = max(MIN_BLOCK_ROWS, BLOCK_SCORES // num_candidates)
    return next(n for n in range(1, num_rows + 1) if num_rows % n == 0 and num_rows // n <= max_rows)
