"""The one exception that a user's mistake raises."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What is wrong, where, and how to mend it, in one or two lines.

    The command line prints the message alone and exits with status 2.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'nearest'?`, or nothing where no known name is close."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""
