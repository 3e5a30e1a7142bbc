"""What a field of a config says of itself: meaning, range, table of its values, and what reads it."""

import dataclasses
import math
from typing import Any

MAX_NUMBER = 3.4e38  # of a number in any field: what float32 can hold

Range = tuple[float, float]
FROM_0_TO_1: Range = (0.0, 1.0)
FROM_0_BELOW_1: Range = (0.0, math.nextafter(1.0, 0.0))
ABOVE_0_TO_1: Range = (1e-6, 1.0)
ABOVE_0_BELOW_1: Range = (1e-6, FROM_0_BELOW_1[1])
ABOVE_0: Range = (1e-6, math.inf)
AT_LEAST_0: Range = (0, math.inf)
AT_LEAST_1: Range = (1, math.inf)
AT_LEAST_4: Range = (4, math.inf)


@dataclasses.dataclass(frozen=True)
class ReadBy:
    """The values of another field with which this one has an effect; one of the three.

    choice: the other field: a name in the same section, or a dotted key of the config.
    values: the values with which this field is read.
    not_values: the values with which it is not.
    row_property: attribute of the chosen row of the other field's table, true where this field is read.
    """

    choice: str
    values: tuple[Any, ...] = ()
    not_values: tuple[Any, ...] = ()
    row_property: str = ""


def field(
    default: Any,
    meaning: str,
    allowed: Range | tuple[str, ...] | None = None,
    table: str | None = None,
    *,
    read_by: ReadBy | tuple[ReadBy, ...] = (),
    replaced_by: str | None = None,
    replaced_by_phase: str | None = None,
    still_read_by: ReadBy | None = None,
) -> Any:
    """Return a dataclass field that says its meaning in one line, its values and what reads it.

    Args:
        default: the value that a recipe starts from.
        meaning: a noun phrase, printed by `bert-jax config`.
        allowed: (lowest, highest), or the names to choose from.
        table: dotted name of the table whose keys are the names to choose from; `check_choices` reads it when a run
            starts, so that a new row needs no change here.
        read_by: each must hold for the field to be read; of a section, for all of its fields.
        replaced_by: the field that, where it is set, takes the place of this one; named as in `ReadBy.choice`.
        replaced_by_phase: the field of PhaseConfig that, where every phase sets it, takes the place of this one.
        still_read_by: reads the field though every phase replaces it.
    """
    metadata = {
        "meaning": meaning,
        "allowed": allowed,
        "table": table,
        "read_by": (read_by,) if isinstance(read_by, ReadBy) else read_by,
        "replaced_by": replaced_by,
        "replaced_by_phase": replaced_by_phase,
        "still_read_by": still_read_by,
    }
    return dataclasses.field(default=default, metadata=metadata)
