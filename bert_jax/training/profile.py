"""The trace of some steps of a run, which jax.profiler writes for XProf or Perfetto (docs/performance.md)."""

import contextlib
import pathlib
import re
from collections.abc import Callable

import jax

from bert_jax.errors import UserError


def profiled_steps(text: str, num_steps: int) -> range:
    """Return the steps that the text of `config.profile.steps` names, counted from 0.

    Raise UserError unless the text is FIRST:END with 0 <= FIRST < END <= `num_steps`.
    """
    numbers = re.fullmatch(r"(\d+):(\d+)", text)
    steps = range(*map(int, numbers.groups())) if numbers else range(0)
    if not steps or steps.stop > num_steps:
        raise UserError(
            f"config.profile.steps={text}: give FIRST:END with 0 <= FIRST < END <= {num_steps:,}, the steps of the "
            "run, such as 10:13 for three of them"
        )
    return steps


class Profile:
    """The trace of some steps of a run, in the directory `profile` of its work directory.

    With several processes, each process has a subdirectory: the profiler names files by the host, so two processes of
    one host would otherwise write the same file.

    Args:
        steps: steps to trace, counted from 0. A run that resumes among these steps traces the remaining steps.
        workdir: work directory of the run.
        say: function that prints a line when a trace is complete.
    """

    def __init__(self, steps: range, workdir: pathlib.Path, say: Callable[[str], None]) -> None:
        self._steps, self._directory, self._say = steps, workdir / "profile", say
        if jax.process_count() > 1:
            self._directory /= f"process_{jax.process_index()}"
        self._is_tracing = False
        self._first = steps.start  # the first step of the trace

    def begins_at(self, step: int) -> bool:
        """Return whether the trace begins before `step` is launched."""
        return step in self._steps and not self._is_tracing

    def annotation(self, step: int) -> contextlib.AbstractContextManager[None]:
        """Return a context manager in which `step` must be launched, so that the trace shows the number of the step."""
        return (
            jax.profiler.StepTraceAnnotation("train", step_num=step) if self._is_tracing else contextlib.nullcontext()
        )

    def ends_at(self, step: int) -> bool:
        """Return whether the trace ends when all steps before `step` are computed."""
        return self._is_tracing and step not in self._steps

    def begin(self, step: int) -> None:
        """Begin to trace this process and its devices before `step` is launched."""
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # every call of a Python function would hide the devices' work
        jax.profiler.start_trace(self._directory, profiler_options=options)
        self._is_tracing, self._first = True, step

    def end(self) -> None:
        """Write the trace; do nothing if no trace was begun."""
        if self._is_tracing:
            self._is_tracing = False
            jax.profiler.stop_trace()
            self._say(
                f"a profile of steps {self._first:,} to {self._steps.stop - 1:,} is in {self._directory}: open "
                f"it with `xprof --logdir {self._directory}`, or its .trace.json.gz on https://ui.perfetto.dev"
            )
