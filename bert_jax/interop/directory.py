"""Files of a model directory, and a directory that appears whole or not at all."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

from bert_jax.errors import UserError, writing

TASK_FILE = "task.json"  # beside a fine-tuned model: the task that `predict` answers


@contextlib.contextmanager
def appearing(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a directory to write into, which gets the name `output` when the block ends without an error.

    Raises `UserError` where `output` exists and is not empty, and where it cannot be written.
    """
    target = output.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists and is not an empty directory; name another, or remove it")
    partial = target.with_name(f"{target.name}.partial")
    try:
        with writing(target, "make room, or choose another --output"):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            yield partial
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
