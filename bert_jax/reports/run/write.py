"""Functions that write the page of one or several runs to a file, or serve the page, with JAX on the CPU."""

import contextlib
import os
import sys
from collections.abc import Sequence

from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.reports.html.markup import write_page


def write_report(
    workdirs: Sequence[str], output: str, watts: float | None = None, grams_per_kwh: float | None = None
) -> str:
    """Write `report_page` to the .html file `output`, and return `output`.

    Raises:
        UserError: there is no work directory, or `report_page` raises it.
    """
    if not workdirs:
        raise UserError("no work directory to report on; give one or more")

    def make_page() -> str:
        _use_only_the_cpu()
        from bert_jax.reports.run.cost import AssumedPower
        from bert_jax.reports.run.page import report_page
        from bert_jax.training.remote_workdir import local_copy

        with contextlib.closing(Console()) as console, console.working("making the page"):
            return report_page(
                [local_copy(workdir) for workdir in workdirs], console, AssumedPower(watts, grams_per_kwh)
            )

    return write_page(output, make_page)


def serve_report(
    workdirs: Sequence[str], port: int, watts: float | None = None, grams_per_kwh: float | None = None
) -> None:
    """Serve the page of runs until Ctrl-C; the raised errors are the errors of `serve_live_page`."""
    _use_only_the_cpu()
    from bert_jax.reports.run.cost import AssumedPower
    from bert_jax.reports.run.follow import serve_live_page

    with contextlib.closing(Console()) as console:
        serve_live_page(workdirs, port, AssumedPower(watts, grams_per_kwh), console)


def _use_only_the_cpu() -> None:
    """Hide the accelerators from JAX, because a training run may use them; do nothing if JAX is already loaded."""
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
