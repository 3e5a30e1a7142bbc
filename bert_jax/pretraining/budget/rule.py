"""The rule that chooses size, tokens, batch and steps for a budget; docs/learning.md explains it.

1. FLOPs: the budget or, for a time, the fraction `USABLE` of the time multiplied by the measured FLOP/s. Compilation
   and evaluation take the rest of the time.
2. Tokens of a size: the FLOPs of the budget divided by the FLOPs per token, at most `MAX_EPOCHS` passes over the
   corpus.
3. Size: the largest of `SIZES` with at least `TOKENS_PER_PARAMETER` tokens per parameter. The number of parameters is
   computed as the FLOPs per token divided by 6 (Kaplan et al. 2020); this number includes matrices of blocks, attention
   and predictions.
4. Tokens per step: the power of two nearest to `BATCH_FACTOR` times the square root of the number of tokens. So the
   number of steps also grows with the square root of the number of tokens. A step has at least one sequence per
   device.
5. The recipe sets everything else: phases, masking, optimizer, learning rates, the form of the schedule.

The constants are rules of thumb, not fits.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.pretraining.budget.amounts import Budget

# (layers, width) of each size, the smallest first. Heads have 64 features; the recipe sets the proportion of the MLP.
SIZES: tuple[tuple[int, int], ...] = ((4, 128), (6, 192), (6, 256), (8, 320), (12, 384), (12, 512), (12, 768))
HEAD_SIZE = 64
USABLE = 0.85
MAX_EPOCHS = 10
TOKENS_PER_PARAMETER = 4.0
BATCH_FACTOR = 1.3
MIN_STEP_TOKENS, MAX_STEP_TOKENS = 2**11, 2**20
MAX_MICRO_BATCH_TOKENS = 2**14  # maximum tokens of a micro-batch on one device
EVALUATIONS = 10
EVALUATED = 0.05  # FLOPs of all evaluations, as a fraction of the FLOPs of training


class Candidate(NamedTuple):
    """A possible size of the model, and its FLOPs per training token."""

    num_layers: int
    hidden_size: int
    flops_per_token: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """The size of the model, the tokens and the steps that are chosen for a budget.

    `epochs` is the number of passes over the corpus. `capped` is True if the number of tokens is limited by
    `MAX_EPOCHS`. `devices` is the number of devices that share a batch; None stands for the devices of this run.
    """

    num_layers: int
    hidden_size: int
    tokens: int
    step_tokens: int
    steps: int
    flops: float
    epochs: float
    capped: bool
    devices: int | None = None


def choose_size_and_steps(
    budget: Budget,
    flops_per_second: float | None,
    corpus_tokens: int,
    candidates: Sequence[Candidate],
    min_step_tokens: int = MIN_STEP_TOKENS,
) -> Choice:
    """Return the model size, tokens and steps for a budget; the result depends only on the arguments.

    Args:
        budget: a time, a number of tokens or a number of FLOPs.
        flops_per_second: measured speed; needed only if the budget is a time.
        corpus_tokens: number of tokens of the training split.
        candidates: possible sizes in ascending order, with the FLOPs per token of this run.
        min_step_tokens: tokens of a step in which each device has one sequence.
    """
    max_tokens = MAX_EPOCHS * corpus_tokens
    bought = [_tokens_within_budget(budget, flops_per_second, candidate.flops_per_token) for candidate in candidates]
    fitting = [
        index
        for index, candidate in enumerate(candidates)
        if 6 * min(bought[index], max_tokens) / candidate.flops_per_token >= TOKENS_PER_PARAMETER
    ]
    largest = max(fitting, default=0)
    size, tokens = candidates[largest], min(bought[largest], max_tokens)
    power = round(math.log2(BATCH_FACTOR * math.sqrt(max(1.0, tokens))))
    step_tokens = max(min(max(2**power, MIN_STEP_TOKENS), MAX_STEP_TOKENS), min_step_tokens)
    steps = max(1, round(tokens / step_tokens))
    tokens = steps * step_tokens
    return Choice(
        num_layers=size.num_layers,
        hidden_size=size.hidden_size,
        tokens=tokens,
        step_tokens=step_tokens,
        steps=steps,
        flops=tokens * size.flops_per_token,
        epochs=tokens / corpus_tokens,
        capped=bought[largest] > max_tokens,
    )


def _tokens_within_budget(budget: Budget, flops_per_second: float | None, flops_per_token: float) -> float:
    """Return the number of training tokens within a budget, for a model with `flops_per_token` FLOPs per token."""
    if budget.tokens is not None:
        return budget.tokens
    if budget.flops is not None:
        return budget.flops / flops_per_token
    assert budget.seconds is not None
    assert flops_per_second is not None, "a time needs a measurement"
    return budget.seconds * USABLE * flops_per_second / flops_per_token


class StepSizes(NamedTuple):
    """The numbers of sequences and of micro-batches of a training step."""

    num_sequences: int
    num_micro_batches: int


def sequences_and_micro_batches(step_tokens: int, seq_len: int, devices: int, num_parts: int = 1) -> StepSizes:
    """Return the numbers of sequences and micro-batches of a step of about `step_tokens` tokens.

    Both numbers are chosen so that the devices share each micro-batch evenly, and the sequences that a device
    reads at a time divide into `num_parts` equal parts.
    """
    smallest = devices * num_parts
    sequences = max(1, round(step_tokens / seq_len / smallest)) * smallest
    micro_batches = 1
    while (
        sequences * seq_len / micro_batches > MAX_MICRO_BATCH_TOKENS * devices
        and sequences % (2 * micro_batches * smallest) == 0
    ):
        micro_batches *= 2
    return StepSizes(sequences, micro_batches)
