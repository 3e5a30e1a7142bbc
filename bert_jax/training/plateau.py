"""The plateau: a masked-token loss at the unigram entropy of the text, which a run has to leave before it learns more.

The loss of a model that knows only how often each token occurs is the unigram entropy. Every encoder gets there in its
first steps, and reads no context while it stays there.
"""

import collections
from collections.abc import Callable
from typing import NamedTuple

from bert_jax.config import PretrainConfig
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.init import can_init_neighbor_heads, init_scales
from bert_jax.training.metrics import Line
from bert_jax.training.schedules import Phase, warmup_steps

MASKED_LOSS = "mlm_loss"
MARGIN = 0.5  # nats below the unigram entropy within which a loss is on the plateau
SMOOTHED_STEPS = 50  # over which the training loss is averaged: a line may be of one small batch
MIN_STEPS = 300  # after the warmup; no encoder that we measured needs fewer than 100
FRACTION = 0.05  # of the run, after the warmup
# A narrower encoder of BERT's kind, with random heads, was not seen to leave the plateau within a CPU's hour.
NARROW = 512
LONG, SHORT, MANY_MASKS = 256, 32, 0.5


class Cause(NamedTuple):
    """A likely cause and its cure, where `applies(config)`."""

    applies: Callable[[PretrainConfig], bool]
    text: Callable[[PretrainConfig], str]


def _finds_neighbors(config: PretrainConfig) -> bool:
    """Whether the heads of a narrow model have to find a token's neighbors, and could start there."""
    model = config.model
    possible = can_init_neighbor_heads(model) and model.embedding_size is None
    return model.hidden_size < NARROW and possible and not init_scales(model).neighbors


def _first_masks(config: PretrainConfig) -> float:
    """The masking rate at the start of the run."""
    return config.train.phases[0].mask_probability or config.data.mask_probability


CAUSES: tuple[Cause, ...] = (
    Cause(
        _finds_neighbors,
        lambda config: (
            f"at width {config.model.hidden_size} attention needs many steps to find a token's neighbors: with "
            "config.model.initialization=neighbors the first block starts there"
        ),
    ),
    Cause(
        lambda config: config.model.hidden_size < NARROW and not BLOCKS[config.model.norm_position].norm_reads_input,
        lambda config: "post-norm blocks of few features learn slowly: see --config=small_cpu for a modern preset",
    ),
    Cause(
        lambda config: True,
        lambda config: (
            f"config.optimizer.peak_learning_rate={config.optimizer.peak_learning_rate:g} is too low, or so "
            "high that grad_norm grows: try 3 times as much and a third"
        ),
    ),
    Cause(
        lambda config: config.train.phases[0].seq_len > LONG,
        lambda config: (
            f"sequences of {config.train.phases[0].seq_len} tokens are long to begin with: a first phase of "
            "64 or 128 tokens gives more and cheaper steps"
        ),
    ),
    Cause(
        lambda config: config.train.phases[0].seq_len < SHORT,
        lambda config: f"sequences of {config.train.phases[0].seq_len} tokens have little context: use 64 or more",
    ),
    Cause(
        lambda config: _first_masks(config) > MANY_MASKS,
        lambda config: f"masks on {_first_masks(config):.0%} of the tokens leave little context: use 15 to 50 %",
    ),
    Cause(
        lambda config: True,
        lambda config: "the text itself: `bert-jax inspect CORPUS` shows what the model reads, and likely problems",
    ),
)


class Plateau:
    """What to say about the lines of metrics of one run, given in order: at most one warning and one all-clear.

    Args:
        config: of the run; `train.plateau_steps` says when the warning is due.
        phases: of the run.
        entropy: unigram entropy of the text, nats per token.
    """

    def __init__(self, config: PretrainConfig, phases: tuple[Phase, ...], entropy: float) -> None:
        self.config, self.entropy = config, entropy
        self.expected, self.last_step = expected_step(config, phases), phases[-1].end
        self.left_at: int | None = None  # the step at which the plateau was left
        self._warned = False
        self._recent: collections.deque[tuple[int, float]] = collections.deque()

    def remarks(self, line: Line) -> list[str]:
        """Return what the console says about the next line of metrics: no text, one, or a warning of several lines."""
        loss, step = line.get(MASKED_LOSS), line["step"]
        if loss is None or self.left_at is not None:
            return []
        if line["split"] == "train":
            self._recent.append((step, loss))
            while self._recent[0][0] <= step - SMOOTHED_STEPS:
                self._recent.popleft()
            loss = sum(loss for _, loss in self._recent) / len(self._recent)
        if loss < self.entropy - MARGIN:
            self.left_at = step
            return [
                f"step {step:,}: left the plateau: the masked-token loss is {self.entropy - loss:.2f} nats below the "
                f"unigram entropy of {self.entropy:.2f}"
            ]
        if self._warned or step < min(self.expected, self.last_step):
            return []
        self._warned = True
        causes = [cause.text(self.config) for cause in CAUSES if cause.applies(self.config)]
        if step < self.expected:
            causes.insert(0, f"the run is over after {step:,} steps, before the plateau is expected to end")
        return [
            f"warning: step {step:,}: still on the plateau: the masked-token loss is {loss:.2f}, the unigram entropy "
            f"{self.entropy:.2f} nats; the model knows how often tokens occur and little more (docs/learning.md). "
            "Likely causes:",
            *(f"  - {text}" for text in causes),
        ]


def expected_step(config: PretrainConfig, phases: tuple[Phase, ...]) -> int:
    """Return the step by which a run is expected to have left the plateau."""
    if config.train.plateau_steps is not None:
        return config.train.plateau_steps
    first, total = phases[0], phases[-1].end
    own = first.peak_learning_rate is not None
    run_warmup = warmup_steps(config.optimizer.warmup_steps, config.optimizer.warmup_fraction, total)
    return (first.warmup_steps if own else run_warmup) + max(MIN_STEPS, round(FRACTION * total))
