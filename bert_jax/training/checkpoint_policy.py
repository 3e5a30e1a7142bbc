"""When a run saves, and which checkpoints it keeps."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.experimental import multihost_utils

from bert_jax.config import CheckpointConfig

MIN_SECONDS = 10.0  # of work between two checkpoints by the clock (docs/reliability.md)
MAX_RATE = 10e6  # bytes per second that these checkpoints write on average: disks wear, buckets have a price


class Cadence:
    """When a run saves: at multiples of `every` and `keep_period`, and between them by the clock.

    By the clock, MIN_SECONDS of work or more lie between two checkpoints, enough for saving to take at most
    `max_time_fraction` of the time and to write at most MAX_RATE. Process 0's clock decides, at steps that all
    processes know.
    """

    def __init__(self, config: CheckpointConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._save_seconds = (0.0, 0.0)  # that the last two saves held up the steps
        self._size = 0  # bytes of the last
        self._since: tuple[int, float] | None = None  # step and time from which on work is not saved
        self._look = 0  # the next step at which the clock is read

    def due(self, step: int) -> bool:
        """Whether to save after `step`. Every process calls it after every step."""
        if any(every and step % every == 0 for every in (self._config.every, self._config.keep_period)):
            return True
        fraction = self._config.max_time_fraction
        if fraction is None or step < self._look:
            return False
        if self._since is None:  # the step before compiled
            self._since, self._look = (step, self._clock()), step + 1
            return False
        first, began = self._since
        save_seconds = min(self._save_seconds)  # the first save compiles, and any may be slow
        wanted = max(MIN_SECONDS, save_seconds / fraction, self._size / MAX_RATE)
        wait = np.array(steps_until_save(step - first, self._clock() - began, wanted), np.int32)
        self._look = step + int(multihost_utils.broadcast_one_to_all(wait))
        return self._look == step

    def saved(self, step: int, seconds: float, size: int) -> None:
        """Count from `step` on, whose save held up the steps for `seconds` and writes `size` bytes."""
        self._save_seconds, self._size = (self._save_seconds[1], seconds), size
        self._since, self._look = (step, self._clock()), step + 1


def steps_until_save(steps: int, seconds: float, wanted: float) -> int:
    """Return how many more steps `wanted` seconds need, where `steps` took `seconds`; 0 where that time is over.

    At most as many as there were, so that an estimate from few steps cannot be far off.
    """
    return 0 if seconds >= wanted else min(steps, math.ceil((wanted - seconds) * steps / max(seconds, 1e-9)))


def kept_steps(steps: Sequence[int], config: CheckpointConfig) -> set[int]:
    """Return which of the ascending steps keep their checkpoints; of those between multiples of `every`, the newest."""
    regular = [step for step in steps if step % (config.every or 1) == 0]
    forever = [step for step in steps if config.keep_period and step % config.keep_period == 0]
    return {*steps[-1:], *regular[-config.keep :], *forever}


class KeptSteps:
    """`kept_steps`, as Orbax asks for it."""

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
        """Return for each checkpoint whether it stays."""
        kept = kept_steps([one.step for one in checkpoints], self._config)
        return [one.step in kept for one in checkpoints]
