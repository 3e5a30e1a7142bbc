"""SIGTERM and Ctrl-C: asked of one process, answered by all of them at the same step."""

import os
import signal
from typing import Any


class Interrupt:
    """Notes the wish to stop; a second Ctrl-C stops at once. A context manager that puts the old handlers back.

    Of several processes only one may be asked. JAX's preemption service, which has its own handler of SIGTERM, then
    lets all of them agree on the next call of `check` that none has made yet.
    """

    def __init__(self) -> None:
        self.asked: str | None = None  # name of the signal that this process got
        self.stopping = False
        self._together = False
        self._calls = 0

    def __enter__(self) -> "Interrupt":
        self._old = {number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def together(self) -> None:
        """From now on agree with the other processes: called once, after `jax.distributed.initialize`."""
        del self._old[signal.SIGTERM]  # the handler is JAX's now
        self._together = True
        if self.asked:
            os.kill(os.getpid(), signal.SIGTERM)

    def check(self) -> bool:
        """Whether to stop here. Every process must ask as often, and at the same places."""
        if self.stopping:
            return True
        if not self._together:
            self.stopping = self.asked is not None
            return self.stopping
        from jax.experimental import multihost_utils

        self._calls += 1
        self.stopping = multihost_utils.reached_preemption_sync_point(self._calls)
        return self.stopping

    @property
    def name(self) -> str:
        """Of the signal."""
        return self.asked or "SIGTERM"

    def _ask(self, number: int, _: Any) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name
        if self._together:
            os.kill(os.getpid(), signal.SIGTERM)
