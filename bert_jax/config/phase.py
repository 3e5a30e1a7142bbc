"""The fields of a phase of a pretraining run, and the function that resolves the settings of a phase."""

import dataclasses
from typing import TYPE_CHECKING, TypeVar

from bert_jax.config.field import (
    ABOVE_0,
    ABOVE_0_BELOW_1,
    ABOVE_0_TO_1,
    AT_LEAST_0,
    AT_LEAST_1,
    FROM_0_BELOW_1,
    FROM_0_TO_1,
    ReadBy,
    field,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Conditions of several fields.
WITH_MASKS = ReadBy("objective", row_property="has_masks")
WITH_PEAK = ReadBy("peak_learning_rate", not_values=(None,))


@dataclasses.dataclass(frozen=True)
class PhaseConfig:
    """A phase of the run; a field that is None takes the value in `train`, `optimizer`, `data` or `model`."""

    seq_len: int = field(128, "tokens per sequence in this phase", AT_LEAST_1)
    fraction: float = field(1.0, "fraction of train.steps in this phase; 0: no such phase", FROM_0_TO_1)
    batch_size: int | None = field(None, "sequences per step in this phase; None: train.batch_size", AT_LEAST_1)
    batch_stages: int = field(
        1,
        "number n of stages, of equally many steps, in which the batch grows: 1/n, 2/n, ... of the batch size, and all "
        "of it in the last stage; 1: the batch does not grow",
        AT_LEAST_1,
    )
    grad_accum_steps: int | None = field(
        None, "micro-batches per step in this phase; None: train.grad_accum_steps", AT_LEAST_1
    )
    peak_learning_rate: float | None = field(
        None,
        "peak learning rate of a separate schedule in this phase; None: the schedule of the run continues",
        AT_LEAST_0,
    )
    warmup_fraction: float = field(
        0.0,
        "warmup of this phase's schedule as a fraction of the phase's steps",
        FROM_0_BELOW_1,
        read_by=WITH_PEAK,
        replaced_by="warmup_steps",
    )
    warmup_steps: int | None = field(
        None,
        "warmup of this phase's schedule in steps; None: the phase's warmup_fraction",
        AT_LEAST_0,
        read_by=WITH_PEAK,
    )
    decay_fraction: float | None = field(
        None,
        "warmup_stable_decay: fraction of the phase's steps, at its end, in which the learning rate falls; None: "
        "optimizer.decay_fraction",
        FROM_0_TO_1,
        read_by=(WITH_PEAK, ReadBy("optimizer.schedule", values=("warmup_stable_decay",))),
    )
    weight_decay: float | None = field(None, "weight decay in this phase; None: optimizer.weight_decay", AT_LEAST_0)
    objective: str | None = field(
        None,
        "objective of this phase in a run of objective=masked_tokens; left_to_right: causal attention, and the "
        "masked-token head predicts the next token; hybrid: left_to_right for a fraction of each batch, and masked "
        "tokens for the other sequences; None: the objective of the run",
        table="bert_jax.objectives.PHASE_OBJECTIVES",
    )
    left_to_right_fraction: float = field(
        1 / 16,
        "hybrid: fraction of the sequences of a batch, and of the loss, that are left to right; 1/16 is GPT-BERT's "
        "value",
        ABOVE_0_BELOW_1,
        read_by=ReadBy("objective", values=("hybrid",)),
    )
    rotary_base: float | None = field(
        None,
        "rotary base of global layers in this phase; None: model.rotary_base; a checkpoint has the base of its phase",
        ABOVE_0,
        read_by=ReadBy("model.positions", row_property="angles"),
    )
    local_window: int | None = field(
        None,
        "attention window of local blocks in this phase; None: model.local_window; a checkpoint has the window of its "
        "phase",
        AT_LEAST_1,
        read_by=(
            ReadBy("model.local_window", not_values=(None,)),
            ReadBy("model.local_windows", values=(None,)),
        ),
    )
    weights: tuple[float, ...] | None = field(
        None,
        "sampling weight of each corpus of a mixture in this phase, 0 for a corpus that the phase does not read; None: "
        "data.weights",
    )
    smoothing: float | None = field(
        None,
        "exponent on the corpus sizes in this phase; None: data.smoothing",
        FROM_0_TO_1,
        read_by=(ReadBy("weights", values=(None,)), ReadBy("data.weights", values=(None,))),
    )
    mask_probability: float | None = field(
        None,
        "fraction of the tokens to predict; None: data.mask_probability; evaluation uses 15 %",
        ABOVE_0_TO_1,
        read_by=WITH_MASKS,
    )
    mask_probability_end: float | None = field(
        None,
        "value that mask_probability reaches, linearly, at the end of the phase; None: no change",
        ABOVE_0_TO_1,
        read_by=WITH_MASKS,
    )
    mask_token_fraction: float | None = field(
        None,
        "fraction of the predicted tokens replaced by [MASK]; None: data.mask_token_fraction",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
    )
    random_token_fraction: float | None = field(
        None,
        "fraction of the predicted tokens replaced by a random token; None: data.random_token_fraction",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
    )
    rarity_power: float | None = field(
        None,
        "power of rarity in the choice of the tokens to predict; None: data.rarity_power",
        FROM_0_TO_1,
        read_by=WITH_MASKS,
    )

    @property
    def has_mixture(self) -> bool:
        """Return whether the phase has its own weights of the corpora."""
        return self.weights is not None or self.smoothing is not None


Section = TypeVar("Section", bound="DataclassInstance")


def section_of_phase(section: Section, phase: PhaseConfig) -> Section:
    """Return a section of the config, such as `config.data`, with the values of a phase.

    A field takes the phase's value if the phase sets the field that `replaced_by_phase` names.
    """
    names = {field.name: field.metadata["replaced_by_phase"] for field in dataclasses.fields(section)}
    replaced = [name for name, replacing in names.items() if replacing and getattr(phase, replacing) is not None]
    return dataclasses.replace(section, **{name: getattr(phase, name) for name in replaced})
