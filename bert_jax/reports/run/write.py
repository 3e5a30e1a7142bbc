"""The page of one run or several, written or served for the command line."""

import contextlib
import os
import sys
from collections.abc import Sequence

from bert_jax.console import Console
from bert_jax.reports.html.markup import write_page


def write_report(
    workdirs: Sequence[str], output: str, watts: float | None = None, grams_per_kwh: float | None = None
) -> str:
    """Write `report_page` to the .html file `output` and return its name; UserError as there."""

    def make() -> str:
        _leave_devices()
        from bert_jax.reports.run.page import report_page
        from bert_jax.reports.run.sections import Assumed
        from bert_jax.training.remote_workdir import local_copy

        with contextlib.closing(Console()) as console, console.working("making the page"):
            return report_page([local_copy(place) for place in workdirs], console, Assumed(watts, grams_per_kwh))

    return write_page(output, make)


def serve_report(
    workdirs: Sequence[str], port: int, watts: float | None = None, grams_per_kwh: float | None = None
) -> None:
    """Serve the page until Ctrl-C; UserError as in `follow_runs`."""
    _leave_devices()
    from bert_jax.reports.run.follow import follow_runs
    from bert_jax.reports.run.sections import Assumed

    with contextlib.closing(Console()) as console:
        follow_runs(workdirs, port, Assumed(watts, grams_per_kwh), console)


def _leave_devices() -> None:
    """Let JAX, where it is not in use yet, have the CPU alone: a run that is still training has the other devices."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
