"""Files of a model directory, and a new directory at an `--output`."""

import contextlib
import pathlib
from collections.abc import Iterator

from bert_jax.errors import UserError, writing
from bert_jax.files import new_directory

TASK_FILE = "task.json"  # beside a fine-tuned model: the task that `predict` answers
CARD = "README.md"  # for people, who may edit it


@contextlib.contextmanager
def appearing(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a directory to write into; when the block ends without an error, it is sealed and named `output`.

    Raises `UserError` where `output` exists and is not empty, and where it cannot be written.
    """
    target = output.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{target} exists and is not an empty directory; name another, or remove it")
    with writing(target, "make room, or choose another --output"), new_directory(target) as partial:
        yield partial
