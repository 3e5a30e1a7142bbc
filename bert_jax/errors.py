"""The one exception that a user's mistake raises."""

import contextlib
import difflib
import os
import pathlib
from collections.abc import Iterable, Iterator


class UserError(Exception):
    """What is wrong, where, and how to mend it, in one or two lines.

    The command line prints the message alone and exits with status 2.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'nearest'?`, or nothing where no known name is close."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


@contextlib.contextmanager
def writing(place: str | os.PathLike[str], mend: str = "make room, or choose another place") -> Iterator[None]:
    """Turns the error of a full disk or a read-only place into a UserError that names `place`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{place}: cannot be written ({error.strerror or error}); {mend}") from error


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
