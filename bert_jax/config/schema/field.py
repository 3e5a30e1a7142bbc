"""A field of a config: its default, its meaning and what values it takes."""

import dataclasses
import math
from typing import Any

LARGEST = 3.4e38  # of a number in any field: what float32 can hold

Range = tuple[float, float]
FROM_0_TO_1: Range = (0.0, 1.0)
FROM_0_BELOW_1: Range = (0.0, math.nextafter(1.0, 0.0))
ABOVE_0_TO_1: Range = (1e-6, 1.0)
ABOVE_0_BELOW_1: Range = (1e-6, FROM_0_BELOW_1[1])
ABOVE_0: Range = (1e-6, math.inf)
AT_LEAST_0: Range = (0, math.inf)
AT_LEAST_1: Range = (1, math.inf)
AT_LEAST_4: Range = (4, math.inf)


def field(default: Any, meaning: str, allowed: Range | tuple[str, ...] | None = None, table: str | None = None) -> Any:
    """A dataclass field with its meaning in one line, and what values it takes.

    Args:
        default: the value that a recipe starts from.
        meaning: a noun phrase, printed by `bert-jax config`.
        allowed: (lowest, highest), or the names to choose from.
        table: dotted name of the table whose keys are the names to choose from; `check_choices` reads it when a run
            starts, so that a new row needs no change here.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, "allowed": allowed, "table": table})
