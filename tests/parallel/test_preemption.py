"""Signals where a run is not in the main thread."""

import threading

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
