"""The exception for a user's mistake, and functions that word its message."""

import contextlib
import difflib
import errno
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator

FULL = (errno.ENOSPC, errno.EDQUOT)
SHOWN: dict[str, str] = {}  # local copy -> the URL that the user gave (training/remote_workdir.py)
REASONS = {errno.EEXIST: "a file exists at this path", errno.ENOTDIR: "a part of its path is a file"}


class UserError(Exception):
    """A mistake that the user can fix; the message gives the mistake, its place and the fix in one or two lines.

    The command line prints the message alone and exits with `status`.
    """

    status = 2

    def __str__(self) -> str:
        return shown(super().__str__())


class StorageError(UserError):
    """A failure of object storage, which may be temporary; launchers start the run again, as after a crash."""

    status = 1


def shown(text: str) -> str:
    """Return a message in which the user's URL replaces each local copy of `SHOWN`."""
    for local_copy, url in SHOWN.items():
        text = text.replace(local_copy, url)
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'nearest'?`, or '' if no known name is similar."""
    near = nearest(name, known)
    return f"; did you mean '{near}'?" if near else ""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the known name that is most similar to `name`; '' if no similarity reaches `cutoff` (0 to 1).

    If a single known name begins with `name`, it is the most similar.
    """
    known = list(known)
    longer = [full for full in known if name and full.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], fix: str = "make room, or choose another place") -> Iterator[None]:
    """Turn the error of a full disk or a read-only directory into a UserError that names `path`.

    Args:
        path: the file or directory that is being written.
        fix: advice for a full disk, "make room, or X" or "make room, then X". After any other error, "make room, or X"
        becomes "X", and "make room, then X" becomes "fix that, then X".
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            fix = fix.removeprefix("make room, or ").replace("make room", "fix that")
        reason = REASONS.get(error.errno or 0, error.strerror or error)
        raise UserError(f"{path}: cannot be written ({reason}); {fix}") from error


def resource_error_message(error: Exception, advice: str) -> str:
    """Return a message if an error is a lack of memory, or of devices that JAX_PLATFORMS names; '' for other errors.

    Args:
        error: an error of a verb.
        advice: a way to use less memory.
    """
    text = str(error)
    # The text of XLA's error; a `std::bad_alloc` in a library becomes a MemoryError.
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in text):
        reason = (text.splitlines() or [""])[0][:200]
        return f"out of memory{f' ({reason})' if reason else ''}; {advice}"
    platforms, jax = os.environ.get("JAX_PLATFORMS"), sys.modules.get("jax")
    if not platforms or not jax:
        return ""
    try:
        jax.devices()
    except Exception:  # a backend may raise any exception as it starts, even an AssertionError without a message
        return (
            f"JAX_PLATFORMS={platforms}: no such devices here, or JAX is installed without their plugin; install it, "
            "such as pip install 'jax[cuda12]', or unset JAX_PLATFORMS"
        )
    return ""


@contextlib.contextmanager
def needs_packages(subject: str, packages: str, advice: str = "") -> Iterator[None]:
    """Turn a failed import in a `with` block into a UserError that names the packages to install.

    Args:
        subject: the purpose of the packages, such as "notes.pdf: PDF".
        packages: names, as `pip install` takes them.
        advice: an alternative to the installation, appended to the message.
    """
    try:
        yield
    except ImportError:
        raise UserError(f"{subject} needs {packages}: pip install {packages}{advice}") from None


def check_output(output: str | os.PathLike[str]) -> None:
    """Refuse an existing output directory that is not empty; call this before any work.

    Raises:
        UserError: `output` is a file, or a directory that is not empty.
    """
    output = pathlib.Path(output)
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists():
        is_corpus = (output / "manifest.json").exists() and (output / "tokenizer").is_dir()  # as no other directory
        content = "a corpus" if is_corpus else "something else"
        raise UserError(f"{output}: holds {content} already; remove it or choose another --output")
