"""The plateau: the time in which the masked-token loss stays at the unigram loss.

The unigram loss is the loss of a model that knows only how often each token occurs. Every encoder reaches the unigram
loss in its first steps. While the loss stays at the unigram loss, the model does not use the context.
"""

import collections
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax.config import EncoderConfig, OptimizerConfig
from bert_jax.models.blocks import BLOCKS
from bert_jax.models.init import can_init_neighbor_heads, init_scales
from bert_jax.training.metrics import Line
from bert_jax.training.schedules import Phase, warmup_steps

MASKED_LOSS = "mlm_loss"
MARGIN = 0.5  # nats; a loss is on the plateau if it is less than 0.5 nats below the unigram loss
SMOOTHED_STEPS = 50  # steps over which the training loss is averaged, because a line may cover one small batch
# The plateau is expected to end this many steps after the warmup: at least MIN_STEPS, or FRACTION of the steps of the
# run. No encoder that we measured needs fewer than 100 steps.
MIN_STEPS = 300
FRACTION = 0.05
# Encoders of BERT's kind that are narrower than NARROW and have random heads did not leave the plateau in an hour on a
# CPU.
NARROW = 512
LONG, SHORT, MANY_MASKS = 256, 32, 0.5


def likely_causes(
    model: EncoderConfig, peak_learning_rate: float, first_phase: Phase, mask_probability: float
) -> list[str]:
    """Return the likely causes of a long plateau with their remedies, the most likely cause first.

    Args:
        model: architecture of the run.
        peak_learning_rate: peak learning rate of the run.
        first_phase: first phase of the run, which may have its own peak learning rate.
        mask_probability: mask probability of the first phase.
    """
    seq_len, peak_key = first_phase.seq_len, "config.optimizer"
    if first_phase.peak_learning_rate is not None:
        peak_learning_rate, peak_key = first_phase.peak_learning_rate, f"config.train.phases[{first_phase.index}]"
    narrow = model.hidden_size < NARROW
    neighbors = can_init_neighbor_heads(model) and model.embedding_size is None and not init_scales(model).neighbors
    causes = [
        (
            narrow and neighbors,
            f"at width {model.hidden_size} attention needs many steps to find a token's neighbors: with "
            "config.model.initialization=neighbors the first block starts there",
        ),
        (
            narrow and not BLOCKS[model.norm_position].norm_reads_input,
            "post-norm blocks of few features learn slowly: see --config=small_cpu for a modern preset",
        ),
        (
            True,
            f"{peak_key}.peak_learning_rate={peak_learning_rate:g} is too low, or so high that grad_norm grows: "
            "try 3 times as much and a third",
        ),
        (
            seq_len > LONG,
            f"sequences of {seq_len} tokens are long to begin with: a first phase of 64 or 128 tokens gives more and "
            "cheaper steps",
        ),
        (seq_len < SHORT, f"sequences of {seq_len} tokens have little context: use 64 or more"),
        (
            mask_probability > MANY_MASKS,
            f"masks on {mask_probability:.0%} of the tokens leave little context: use 15 to 50 %",
        ),
        (True, "the text itself: `bert-jax inspect CORPUS` shows the input of the model, and likely problems"),
    ]
    return [text for applies, text in causes if applies]


def has_plateau(
    init_from: str | None, copies_teacher_layers: bool, corpus_vectors: bool, predicts_masks: Iterable[bool]
) -> bool:
    """Return whether a run begins above the plateau, and its loss can be compared with the unigram loss.

    Trained weights and corpus vectors begin below the plateau. After a phase with an objective other than masked
    tokens, the weights are trained, too.

    Args:
        init_from: `config.init_from`.
        copies_teacher_layers: whether the run begins with layers of a teacher.
        corpus_vectors: `config.corpus_vectors`.
        predicts_masks: for each phase, whether it predicts masked tokens.
    """
    return not (init_from or copies_teacher_layers or corpus_vectors) and all(predicts_masks)


class PlateauInWords(NamedTuple):
    """Words for the level of a loss that has not left the plateau, and for the knowledge of a model with this loss."""

    level: str
    knowledge: str


def plateau_in_words(loss: float, reference: float) -> PlateauInWords:
    """Return words for a loss that is at or above the unigram loss `reference`; both losses are in nats."""
    if loss > reference + MARGIN:
        return PlateauInWords("still above the plateau", "the model does not know yet how often tokens occur")
    return PlateauInWords("still on the plateau", "the model knows how often tokens occur and little more")


class Plateau:
    """The remarks about the plateau of a run: at most one warning, and one line when the loss has left the plateau.

    The lines of metrics must be given in order.

    Args:
        expected_step: the step by which the run is expected to have left the plateau.
        last_step: last step of the run.
        causes: likely causes of a long plateau, which the warning lists.
    """

    def __init__(self, expected_step: int, last_step: int, causes: Sequence[str]) -> None:
        self.expected_step, self.last_step, self.causes = expected_step, last_step, causes
        self.left_at: int | None = None  # the step at which the plateau was left
        self._warned = False
        self._recent: collections.deque[tuple[int, float]] = collections.deque()

    def remarks(self, line: Line) -> list[str]:
        """Return console lines about the next line of metrics: none, a remark, or a warning with causes."""
        loss, reference, step = line.get(MASKED_LOSS), line.get("unigram_loss"), line["step"]
        if loss is None or reference is None or self.left_at is not None:
            return []
        if line["split"] == "train":
            self._recent.append((step, loss))
            while self._recent[0][0] <= step - SMOOTHED_STEPS:
                self._recent.popleft()
            loss = sum(loss for _, loss in self._recent) / len(self._recent)
        if loss < reference - MARGIN:
            self.left_at = step
            return [
                f"step {step:,}: left the plateau: the masked-token loss is {reference - loss:.2f} nats below the "
                f"unigram loss of {reference:.2f}"
            ]
        if self._warned or step < min(self.expected_step, self.last_step):
            return []
        self._warned = True
        causes = list(self.causes)
        if step < self.expected_step:
            causes.insert(0, f"the run is over after {step:,} steps, before the plateau is expected to end")
        level, knowledge = plateau_in_words(loss, reference)
        return [
            f"warning: step {step:,}: {level}: the masked-token loss is {loss:.2f}, the unigram loss "
            f"{reference:.2f} nats; {knowledge} (docs/learning.md). Likely causes:",
            *(f"  - {text}" for text in causes),
        ]


def expected_end_of_plateau(plateau_steps: int | None, optimizer: OptimizerConfig, phases: tuple[Phase, ...]) -> int:
    """Return the step by which a run should have left the plateau, which is `plateau_steps` if the user set it."""
    if plateau_steps is not None:
        return plateau_steps
    first, total = phases[0], phases[-1].end
    warmup = first.warmup_steps
    if first.peak_learning_rate is None:
        warmup = warmup_steps(optimizer.warmup_steps, optimizer.warmup_fraction, total)
    return warmup + max(MIN_STEPS, round(FRACTION * total))
