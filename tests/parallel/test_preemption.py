"""Signals in a run: the answer at once, and a run outside of the main thread."""

import os
import signal
import threading
import time

import pytest

from bert_jax.parallel.preemption import Interrupt


def test_a_run_in_another_thread_goes_without_signals() -> None:
    stopping: list[bool] = []

    def run() -> None:
        with Interrupt() as interrupt:
            stopping.append(interrupt.should_stop())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert stopping == [False]


def test_the_first_signal_is_answered_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    num_threads, printed = threading.active_count(), ""
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        while not printed:
            time.sleep(0.01)
            printed = capfd.readouterr().err
        assert interrupt.should_stop()
    assert printed == "SIGINT: the run stops after this step or compilation, and saves its state\n"
    while threading.active_count() > num_threads:
        time.sleep(0.01)
