"""A process that prepares the rest of a text while a run reads the first part; the process ends with the run."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.prepare_parts import prepare_missing_parts
from bert_jax.errors import UserError

LOWER_PRIORITY = 10  # increase of the niceness of the process, so that the run has priority
ROOT = str(pathlib.Path(__file__).parents[2])


@contextlib.contextmanager
def prepare_in_background(inputs: Sequence[str], corpus: pathlib.Path, num_parts: int) -> Iterator[Callable[[], bool]]:
    """Prepare the missing parts of a text's corpus, up to `num_parts`, in a process that ends with the `with` block.

    Yield a function that returns whether the process is running, and raises UserError if the process failed.
    """
    log = corpus.parent / "rest.log"
    command = [sys.executable, "-m", __name__, json.dumps([list(inputs), str(corpus), num_parts])]
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH"))))
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,  # Ctrl-C does not reach the process, because the run must save first
            env=os.environ | {"PYTHONPATH": path},
        )

    def is_running() -> bool:
        """Return whether the process of the preparation is running; raise UserError if the process failed."""
        status = process.poll()
        if status:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            cause = f"killed by signal {-status}, perhaps for lack of memory" if status < 0 else (lines or [""])[-1]
            raise UserError(f"the rest of config.data.text cannot be prepared: {cause} ({log})")
        return status is None

    try:
        yield is_running
    finally:
        process.kill()
        process.communicate()


def prepare_rest_of_text(job: str) -> int:
    """Prepare the rest of a text, and return the exit status of the process.

    `job` is JSON with the inputs, the directory of the corpus and the number of parts.
    """
    inputs, corpus, num_parts = json.loads(job)
    os.nice(LOWER_PRIORITY)
    threading.Thread(target=_end_when_run_ends, daemon=True).start()
    try:
        with open(os.path.join(os.path.dirname(corpus), "rest.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be preparing the text
            prepare_missing_parts(inputs, PrepareSettings().read_options, pathlib.Path(corpus), num_parts)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _end_when_run_ends() -> None:
    """End this process and its workers when the run closes this process's standard input."""
    os.read(0, 1)  # an unbuffered read, because a buffer locked by this thread would make the normal exit fail
    os._exit(1)


if __name__ == "__main__":
    raise SystemExit(prepare_rest_of_text(sys.argv[1]))
