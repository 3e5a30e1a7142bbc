"""The batch sizes of a phase whose batch grows."""

from typing import NamedTuple


class BatchStage(NamedTuple):
    """A part of a phase with a constant batch size."""

    num_steps: int
    batch_size: int


def ramp_stages(batch_size: int, num_stages: int, num_steps: int) -> list[BatchStage]:
    """Return the stages in which the batch of a phase of `num_steps` steps grows to `batch_size`.

    Stage k of n has k / n of the batch size, rounded up. Up to rounding, all stages have the same number of steps, as
    in ModernBERT (Warner et al. 2024). Stages without steps are left out; a phase without steps has only the last
    stage.
    """
    ends = [round(num_steps * index / num_stages) for index in range(num_stages + 1)]
    stages = [
        BatchStage(ends[index] - ends[index - 1], -(-batch_size * index // num_stages))
        for index in range(1, num_stages + 1)
    ]
    return [stage for stage in stages if stage.num_steps] or stages[-1:]
