"""The one exception that a user's mistake raises."""

import contextlib
import difflib
import errno
import os
import pathlib
from collections.abc import Iterable, Iterator

FULL = (errno.ENOSPC, errno.EDQUOT)
REASONS = {errno.EEXIST: "a file stands there", errno.ENOTDIR: "a part of its path is a file"}


class UserError(Exception):
    """What is wrong, where, and how to mend it, in one or two lines.

    The command line prints the message alone and exits with status 2.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'nearest'?`, or nothing where no known name is close."""
    near = nearest(name, known)
    return f"; did you mean '{near}'?" if near else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like `name`; '' where none is close."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)), "")


@contextlib.contextmanager
def writing(place: str | os.PathLike[str], mend: str = "make room, or choose another place") -> Iterator[None]:
    """Turns the error of a full disk or a read-only place into a UserError that names `place`.

    `mend` says what to do on a full disk: "make room, or X", of which X alone is said where room would not help, or
    "make room, then X".
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            mend = mend.removeprefix("make room, or ").replace("make room", "mend that")
        reason = REASONS.get(error.errno or 0, error.strerror or error)
        raise UserError(f"{place}: cannot be written ({reason}); {mend}") from error


def check_output(output: str | os.PathLike[str]) -> None:
    """Refuses a place that holds anything, before work is spent on it.

    Raises:
        UserError: the place is a file or a directory with something in it.
    """
    output = pathlib.Path(output)
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists():
        held = "a corpus" if (output / "manifest.json").exists() else "something else"
        raise UserError(f"{output}: holds {held} already; remove it or choose another --output")
