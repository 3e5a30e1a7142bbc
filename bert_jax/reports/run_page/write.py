"""The page of one run or several, written for the command line."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Sequence

from bert_jax.console import Console
from bert_jax.reports.html.markup import write_page


def write_report(workdirs: Sequence[str], output: str, watts: float | None = None) -> str:
    """Write `report_page` to the .html file `output` and return its name; UserError as there.

    JAX, where it is not in use yet, gets the CPU alone: a run that is still training has the other devices.
    """
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")

    def make() -> str:
        from bert_jax.reports.run_page.page import report_page

        with contextlib.closing(Console()) as console:
            return report_page([pathlib.Path(place) for place in workdirs], console, watts)

    return write_page(output, make)
