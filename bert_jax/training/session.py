"""What a process has while it trains: a console, the signals that it was sent, and a watchdog."""

import contextlib
import dataclasses
from collections.abc import Iterator

from bert_jax.config import WatchdogConfig
from bert_jax.console import Console
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog


@dataclasses.dataclass(frozen=True, kw_only=True)
class Session:
    """One process at work; the command line makes it for one process of several, `open_session` for one alone."""

    console: Console
    interrupt: Interrupt
    watchdog: Watchdog

    def heartbeat(self) -> bool:
        """Restart the watchdog's clock between two parts of long work; return whether the run is to stop."""
        self.watchdog.alive()
        return self.interrupt.check()


@contextlib.contextmanager
def open_session(console: Console, limits: WatchdogConfig) -> Iterator[Session]:
    """Yield the session of a process that trains alone."""
    with Interrupt() as interrupt, contextlib.closing(Watchdog(limits)) as watchdog:
        console.beat = watchdog.alive
        yield Session(console=console, interrupt=interrupt, watchdog=watchdog)
