"""`bert-jax VERB` and `python -m bert_jax VERB`: the command line."""

import os
import signal
import types

EXCEPTION_SWALLOWING_CALLBACKS = ("_xla_gc_callback", "__del__")  # Python prints and forgets their exceptions
RETRY_SECONDS = 0.02


def run() -> int:
    """Run the command line, and return its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have set SIGINT to be ignored
        signal.signal(signal.SIGINT, _raise_keyboard_interrupt)
        signal.signal(signal.SIGALRM, _raise_keyboard_interrupt)
    try:
        from bert_jax.cli.main import main

        return main()
    except KeyboardInterrupt:  # before the verb runs; a verb prints its own message
        os.write(2, b"bert-jax: interrupted\n")
        return 130


def _raise_keyboard_interrupt(signum: int, frame: types.FrameType | None) -> None:
    """Raise KeyboardInterrupt; inside an import, where compiled code would crash, end the process.

    In a callback of the garbage collector, Python would only print the exception, so send the signal again.
    """
    if frame is not None and frame.f_code.co_name in EXCEPTION_SWALLOWING_CALLBACKS:
        signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        return
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, b"bert-jax: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(run())
