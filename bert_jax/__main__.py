"""`bert-jax VERB` and `python -m bert_jax VERB`: the command line."""

import contextlib
import os
import signal
import sys
import types

EXCEPTION_SWALLOWING_CALLBACKS = ("_xla_gc_callback", "__del__")  # Python prints and forgets their exceptions
RETRY_SECONDS = 0.02
# Signals that end a verb: the verb removes its incomplete files first.
USUAL_HANDLERS = {
    signal.SIGINT: signal.default_int_handler,  # Ctrl-C
    signal.SIGTERM: signal.SIG_DFL,  # `kill`, schedulers and container runtimes
    signal.SIGHUP: signal.SIG_DFL,  # the terminal is closed
}
RESTARTED = "BERT_JAX_RESTARTED"  # variable of the environment of a process that has started Python again


def run() -> int:
    """Run the command line, and return its exit status."""
    _restart_with_huge_pages()  # first, so that the new process starts with the environment of this process
    _remove_working_directory_from_path()
    _open_standard_streams()
    for signum, usual in USUAL_HANDLERS.items():
        if signal.getsignal(signum) is usual:  # a shell may have set a signal to be ignored
            signal.signal(signum, _raise_keyboard_interrupt)
    try:
        from bert_jax.cli.main import main

        return main()
    except KeyboardInterrupt as interrupt:  # before the verb runs; later, the verb prints a message
        return _report_interrupt(interrupt)


def _remove_working_directory_from_path() -> None:
    """Prevent imports from the working directory, which may contain data, in this process and in its workers.

    `python -m bert_jax` puts the working directory first in the path of modules, and so do Python's worker processes.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with contextlib.suppress(FileNotFoundError):  # the working directory was removed
        if sys.path and not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()) and sys.path[0] != root:
            del sys.path[0]


def _restart_with_huge_pages(setting: str = "/sys/kernel/mm/transparent_hugepage/enabled") -> None:
    """Start a training again with huge pages for large arrays, if Linux gives huge pages only to programs that ask.

    With pages of 4 KiB, a step on a CPU takes about a tenth longer than with huge pages, because each step uses new
    memory. glibc (2.35 or newer) reads the setting for huge pages only when a program starts, so this process replaces
    itself with a new Python. Three cases do not restart: other commands, an environment that has GLIBC_TUNABLES, and
    Python programs that call `run` with their own words.
    """
    words = sys.argv[1:]
    if words[:1] not in (["pretrain"], ["finetune"]) or sys.orig_argv[-len(words) :] != words:
        return
    # glibc removes GLIBC_TUNABLES from the environment of a Python with capabilities.
    if "GLIBC_TUNABLES" in os.environ or RESTARTED in os.environ or not sys.executable:
        return
    with contextlib.suppress(OSError), open(setting, encoding="ascii") as file:
        if "[madvise]" in file.read():
            environment = os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", RESTARTED: "1"}
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _open_standard_streams() -> None:
    """Replace standard streams that are closed; use streams of `console` for standard output and standard error.

    Otherwise the next file that is opened would get the descriptor of the closed stream, and messages would be written
    into this file.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Writing to standard output must fail, so /dev/null is opened for reading only.
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (until the exit)
    from bert_jax.console import escaping_stream

    sys.stdout, sys.stderr = escaping_stream(1, sys.stdout), escaping_stream(2, sys.stderr)


def _raise_keyboard_interrupt(signum: int, frame: types.FrameType | None) -> None:
    """Raise KeyboardInterrupt with the number of the signal; during an import or a callback, raise it a little later.

    In an import, compiled code would crash. In a callback of the garbage collector, Python would only print the
    exception. A second signal, while the first signal waits, ends the process at once.
    """
    interrupt = KeyboardInterrupt(signum)
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        os._exit(_report_interrupt(interrupt))
    if not _is_safe_to_raise(frame):
        signal.signal(signal.SIGALRM, lambda _, later_frame: _raise_keyboard_interrupt(signum, later_frame))
        signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
        return
    raise interrupt


def _is_safe_to_raise(frame: types.FrameType | None) -> bool:
    """Return whether `frame` is neither in a callback that swallows exceptions nor in an import."""
    if frame is not None and frame.f_code.co_name in EXCEPTION_SWALLOWING_CALLBACKS:
        return False
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return False
        frame = frame.f_back
    return True


def _report_interrupt(interrupt: KeyboardInterrupt) -> int:
    """Print a line for an interrupt outside of a verb, and return the exit status."""
    from bert_jax.errors import interrupt_status_and_message  # `console` has already imported this module

    status, message = interrupt_status_and_message(interrupt)
    os.write(2, f"bert-jax: {message}\n".encode())
    return status


if __name__ == "__main__":
    raise SystemExit(run())
