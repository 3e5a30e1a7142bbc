"""Metadata of a config field: meaning, range, table of values, and the conditions under which it has an effect."""

import dataclasses
import math
from typing import Any

MAX_NUMBER = 3.4e38  # largest number in a field, the range of float32
MAX_WHOLE_NUMBER = 2**63 - 1  # largest whole number in a field, the range of int64
MIN_POSITIVE = 1.2e-38  # smallest number above 0 in a field; float32 has no smaller normal number

Range = tuple[float, float]
FROM_0_TO_1: Range = (0.0, 1.0)
FROM_0_BELOW_1: Range = (0.0, math.nextafter(1.0, 0.0))
ABOVE_0_TO_1: Range = (MIN_POSITIVE, 1.0)
ABOVE_0_BELOW_1: Range = (MIN_POSITIVE, FROM_0_BELOW_1[1])
ABOVE_0_TO_HALF: Range = (MIN_POSITIVE, 0.5)
ABOVE_0: Range = (MIN_POSITIVE, math.inf)
AT_LEAST_0: Range = (0, math.inf)
SEED: Range = (0, 2**32 - 1)  # JAX's keys have 32 bits of a seed
AT_LEAST_1: Range = (1, math.inf)
NUM_STEPS: Range = (1, 2**31 - 1)  # steps are int32
AT_LEAST_4: Range = (4, math.inf)
AT_LEAST_8: Range = (8, math.inf)


@dataclasses.dataclass(frozen=True)
class ReadBy:
    """A condition, on the value of another field `choice`, under which a field has an effect.

    Exactly one of `values`, `not_values` and `row_property` is given.

    Attributes:
        choice: name of a field in the same section, or a dotted key of the config.
        values: values of `choice` with which the field has an effect.
        not_values: values of `choice` with which the field has no effect.
        row_property: attribute of the row that `choice` selects in its table; true if the field has an effect.
        recipe_may_set: True if a recipe may set the field without an effect; the command line may not.
    """

    choice: str
    values: tuple[Any, ...] = ()
    not_values: tuple[Any, ...] = ()
    row_property: str = ""
    recipe_may_set: bool = False


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
    is_path: bool = False,
) -> Any:
    """Return a dataclass field with its meaning, its allowed values, and the conditions under which it has an effect.

    Args:
        default: the value that a recipe starts from.
        meaning: a noun phrase with its subject, printed by `bert-jax config`.
        allowed: (lowest, highest), or the names to choose from.
        table: dotted name of the table whose keys are the names to choose from; `check_choices` reads it when a run
            starts, so that a new row needs no change here.
        read_by: conditions that must all hold for the field to have an effect; the conditions of a section apply to all
        of its fields.
        replaced_by: name, as in `ReadBy.choice`, of another field, which replaces the new field if the other field is
            set.
        replaced_by_phase: a field of PhaseConfig that replaces the new field if every phase sets it.
        still_read_by: condition under which the field has an effect even if every phase replaces it.
        is_path: True if the value is a path, or several paths separated by commas; a model card leaves out the
        directories of paths.
    """
    metadata = {
        "meaning": meaning,
        "allowed": allowed,
        "table": table,
        "read_by": (read_by,) if isinstance(read_by, ReadBy) else read_by,
        "replaced_by": replaced_by,
        "replaced_by_phase": replaced_by_phase,
        "still_read_by": still_read_by,
        "is_path": is_path,
    }
    return dataclasses.field(default=default, metadata=metadata)
