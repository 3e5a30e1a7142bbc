"""Parameters of tests, of which only some run in the quick suite."""

from collections.abc import Iterable
from typing import Any

import pytest


def quick(cases: Iterable[Any], *quick_cases: Any) -> list[Any]:
    """Return the cases as pytest parameters; all but the quick cases are marked as slow.

    A case is one value, or a tuple with a value for each argument.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else [case]), marks=[] if case in quick_cases else [pytest.mark.slow]
        )
        for case in cases
    ]
