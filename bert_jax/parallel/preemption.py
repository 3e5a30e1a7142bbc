"""SIGTERM, Ctrl-C and SIGHUP: one process may receive the signal, but all processes stop after the same step."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STOPPED_BEFORE_STEP = "stopped before the first step; the same command starts the run"


class Interrupt:
    """A context manager that records SIGTERM, Ctrl-C and SIGHUP; a second Ctrl-C raises KeyboardInterrupt at once.

    A terminal that closes sends SIGHUP; `nohup` makes a process ignore SIGHUP, and then this class ignores it, too.

    If only one of several processes receives SIGTERM, JAX's preemption service handles the signal. All processes then
    agree to stop at the next call of `should_stop` that no process has made yet.
    """

    def __init__(self) -> None:
        self.received: str | None = None  # name of the signal that this process received
        self.stopping = False
        self._shared = False  # whether the decision is shared with other processes
        self._calls = 0
        self._old: dict[signal.Signals, Any] = {}  # the earlier handlers
        self._old_writer = -1  # the earlier wakeup file of Python
        self._writer: int | None = None  # Python writes the number of each signal here at once

    def __enter__(self) -> "Interrupt":
        """Begin to record signals.

        In a thread other than the main thread, do nothing, since Python delivers no signals there.
        """
        if threading.current_thread() is not threading.main_thread():
            return self
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        threading.Thread(target=_report_first_signal, args=(reader,), name="signals", daemon=True).start()
        self._set_handlers(self._writer)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._writer is not None:
            self._restore_handlers()
            os.close(self._writer)  # closing the writer ends the thread

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Leave signals to the earlier handlers, which raise KeyboardInterrupt, for work before the training.

        Raise KeyboardInterrupt if a signal was recorded before the block. This method changes nothing if processes
        share their decision to stop.
        """
        if self._writer is None or self._shared:
            yield
            return
        self._restore_handlers()
        if self.received:
            raise KeyboardInterrupt(signal.Signals[self.received])
        yield
        self._set_handlers(self._writer)

    def _set_handlers(self, writer: int) -> None:
        self._old_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else set()
        self._old = {signum: signal.signal(signum, self._handle_signal) for signum in {*STOP_SIGNALS} - ignored}

    def _restore_handlers(self) -> None:
        for signum, handler in self._old.items():
            signal.signal(signum, handler)
        self._old = {}
        signal.set_wakeup_fd(self._old_writer)

    def use_preemption_service(self) -> None:
        """Share the decision to stop with all processes; call this method once, after `jax.distributed.initialize`."""
        self._old.pop(signal.SIGTERM, None)  # from now on, JAX handles this signal
        self._shared = True
        if self.received:
            os.kill(os.getpid(), signal.SIGTERM)

    def should_stop(self) -> bool:
        """Return whether to stop now. All processes must call this method at the same points of the run."""
        if self.stopping:
            return True
        if not self._shared:
            self.stopping = self.received is not None
            return self.stopping
        from jax.experimental import multihost_utils

        self._calls += 1
        self.stopping = multihost_utils.reached_preemption_sync_point(self._calls)
        return self.stopping

    @property
    def name(self) -> str:
        """Name of the signal, such as SIGTERM."""
        return self.received or "SIGTERM"

    def _handle_signal(self, signum: int, _: Any) -> None:
        if self.received and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(signum).name
        if self._shared:
            os.kill(os.getpid(), signal.SIGTERM)


def _report_first_signal(signal_pipe: int) -> None:
    """Print a line when the first of the signals arrives; Python's handlers run only between two compiled steps."""
    answered = False
    with open(signal_pipe, "rb", buffering=0) as signals:
        while number := signals.read(1):
            if number[0] in STOP_SIGNALS and not answered:
                name = signal.Signals(number[0]).name
                with contextlib.suppress(OSError):  # the terminal may be closed
                    os.write(2, f"{name}: the run stops after this step or compilation, and saves its state\n".encode())
                answered = True
