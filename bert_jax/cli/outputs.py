"""Console and output file of a verb."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import IO, Any

from bert_jax.errors import writing
from bert_jax.files import new_file


@contextlib.contextmanager
def open_console(silent: bool = False) -> Iterator[Any]:
    """Yield the console of a verb; `silent` is for all processes of a run except process 0."""
    from bert_jax.console import Console

    with contextlib.closing(Console(silent=silent)) as console:
        yield console


@contextlib.contextmanager
def new_output(path: str | None) -> Iterator[IO[str] | None]:
    """Yield a text file that is written atomically, and opened before the work begins; None without a path."""
    if path is None:
        yield None
        return
    with writing(path, "choose another --output"):
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with new_file(path) as file:
            yield file
