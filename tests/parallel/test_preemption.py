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


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_is_answered_at_once(signum: signal.Signals, capfd: pytest.CaptureFixture[str]) -> None:
    num_threads, printed = threading.active_count(), ""
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signum)
        while not printed:
            time.sleep(0.01)
            printed = capfd.readouterr().err
        assert interrupt.should_stop()
    assert printed == f"{signum.name}: the run stops after this step or compilation, and saves its state\n"
    while threading.active_count() > num_threads:
        time.sleep(0.01)


def test_a_run_under_nohup_goes_on_without_its_terminal() -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.should_stop()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)
