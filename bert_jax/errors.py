"""The exception for a user's mistake, and functions that word its message."""

import contextlib
import difflib
import errno
import math
import os
import pathlib
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping

FULL = (errno.ENOSPC, errno.EDQUOT)  # error numbers of a full disk
SHOWN: dict[str, str] = {}  # path of a local copy -> the URL that the user gave (training/remote_workdir.py)
REASONS = {
    errno.EEXIST: "a file exists at this path",
    errno.ENOTDIR: "a part of its path is a file",
    errno.ELOOP: "a symbolic link leads to itself",
}
# Number of an operating-system error that a wrong path causes -> remedy. Every other number is a failure of the
# storage, which may end without the user's help.
WRONG_PATH = {
    errno.ENOENT: "check the name",
    errno.ENOTDIR: "check the name",
    errno.EISDIR: "give a file",
    errno.EEXIST: "choose another name",
    errno.ENOTEMPTY: "choose another name",
    errno.EACCES: "check the permissions (ls -l), or choose another place",
    errno.EPERM: "check the permissions (ls -l), or choose another place",
    errno.EROFS: "choose another place",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "remove the link, or give the name of the file",
    errno.EINVAL: "give a file or a directory on a disk",
    errno.ESPIPE: "give a file or a directory on a disk",
    errno.ENXIO: "give a file or a directory on a disk",
    errno.ENODEV: "give a file or a directory on a disk",
    errno.ENOTTY: "give a file or a directory on a disk",
    errno.EOPNOTSUPP: "give a file or a directory on a disk",
    errno.ETXTBSY: "choose another name",
    errno.EXDEV: "choose a place on one disk",
    errno.EILSEQ: "choose another name",
    errno.EFBIG: "choose a disk that holds larger files",
    errno.EMLINK: "choose another place",
    errno.EBUSY: "choose another place",
}
FAILED_STORAGE = {
    **dict.fromkeys(FULL, "make room, then start again"),
    errno.EMFILE: "raise the limit of open files (ulimit -n 65536), then start again",
    errno.ENFILE: "raise the limit of open files of the machine (sysctl fs.file-max), then start again",
}
# File names -> for messages, the content of a directory that has all of these files.
CONTENTS = {
    ("run.json",): "a run",
    ("config.json",): "a model",
    ("model.stablehlo",): "a model",
    ("manifest.json", "tokenizer"): "a corpus",
    ("tokenizer.json",): "a vocabulary",
    ("vocab.txt",): "a vocabulary",
}
START_AGAIN = "check the storage, then start again"
CONTROL_CHARACTER = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # without tab and line end


class UserError(Exception):
    """A mistake that the user can fix; the message gives the mistake, its place and the fix in one or two lines.

    The command line prints only the message, and exits with `status`.
    """

    status = 2

    def __str__(self) -> str:
        return shown(super().__str__())


class StorageError(UserError):
    """A failure of a disk or of object storage that may be temporary; launchers restart the run, as after a crash."""

    status = 1


def shown(text: str) -> str:
    """Return a text for the terminal: local copies get the names of their URLs; control characters are escaped."""
    for local_copy, url in SHOWN.items():
        text = text.replace(local_copy, url)
    return escaped(text)


def escaped(text: str) -> str:
    """Escape control characters of a terminal, as `\\x1b`, and bytes of a name that are not UTF-8, as `\\xff`.

    The names of files, tokens and labels may come from a stranger, and control characters in them could move the cursor
    or hide lines. Python stores a byte of a name that is not UTF-8 as half of a surrogate pair, which no terminal can
    show.
    """
    return CONTROL_CHARACTER.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def file_error(error: OSError, path: object = None, deed: str = "", fix: str = "") -> UserError:
    """Return the UserError for an error of the operating system: the path, the reason and the remedy on one line.

    A wrong path gives a `UserError`; every other error number, such as a full disk, gives a `StorageError`.

    Args:
        error: the error.
        path: path for the message; None: the paths that the error names.
        deed: "cannot be read" or "cannot be written"; "": the message has only the reason.
        fix: remedy; "": the usual remedy for the number of the error.
    """
    code = error.errno or 0
    reason = REASONS.get(code, error.strerror or str(error) or type(error).__name__)
    names = [path] if path is not None else [name for name in (error.filename, error.filename2) if name is not None]
    where = " and ".join(_path_on_one_line(name) for name in names)
    known = WRONG_PATH.get(code) or FAILED_STORAGE.get(code) or START_AGAIN
    what = f"{deed} ({reason})" if deed else reason
    kind = UserError if code in WRONG_PATH else StorageError
    return kind(f"{f'{where}: ' if where else ''}{what}; {fix or known}")


def os_error_in_message(error: Exception) -> OSError:
    """Return an OSError with the message of a library's error, and with the error number that the message describes."""
    text = str(error)
    codes = (code for code in errno.errorcode if os.strerror(code) in text)
    return OSError(next(codes, errno.EIO), text)


def with_message(error: UserError, message: str) -> UserError:
    """Return an error with the class and exit status of `error`, and with another message."""
    return (StorageError if isinstance(error, StorageError) else UserError)(message)


def _path_on_one_line(name: object) -> str:
    """Return a path as one line of at most 200 characters."""
    text = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else f"file descriptor {name}"
    text = text.replace("\n", "\\n") or "''"
    return text if len(text) <= 200 else f"{text[:90]} ... {text[-90:]}"


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return `; did you mean 'nearest'?`, or '' if no known name is similar; `name` may be a value of any type."""
    near = nearest(str(name), known)
    return f"; did you mean '{near}'?" if near else ""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return the known name that is most similar to `name`; '' if no similarity reaches `cutoff` (0 to 1).

    If exactly one known name begins with `name`, this known name is returned.
    """
    known = list(known)
    longer = [full for full in known if name and full.startswith(name)]
    if len(longer) == 1:
        return longer[0]
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], fix: str = "make room, or choose another place") -> Iterator[None]:
    """Turn the error of a full disk or a read-only directory into `file_error`, which names `path`.

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
        raise file_error(error, path, "cannot be written", fix) from error


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], fix: str = "") -> Iterator[None]:
    """Turn an error of the operating system into `file_error`, which names `path`; `fix` is the advice."""
    try:
        yield
    except OSError as error:
        raise file_error(error, path, "cannot be read", fix) from error


def resource_error_message(error: Exception, advice: str) -> str:
    """Return the message for a lack of memory, or of devices that JAX_PLATFORMS names; return '' for any other error.

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


def interrupt_status_and_message(interrupt: KeyboardInterrupt) -> tuple[int, str]:
    """Return the exit status, as a shell counts signals, and the message.

    The handler of `__main__` stores the number of the signal in the exception; Python stores none for Ctrl-C.
    """
    signum = signal.Signals(interrupt.args[0]) if interrupt.args else signal.SIGINT
    return 128 + signum, "interrupted" if signum == signal.SIGINT else f"stopped by {signum.name}"


@contextlib.contextmanager
def needs_packages(subject: str, packages: str, advice: str = "") -> Iterator[None]:
    """Turn a failed import in a `with` block into a UserError that names the packages to install.

    Args:
        subject: the thing that needs the packages, as the first words of the message, such as "notes.pdf: PDF".
        packages: names, as `pip install` takes them.
        advice: an alternative to the installation, appended to the message.
    """
    try:
        yield
    except ImportError:
        raise UserError(f"{subject} needs {packages}: pip install {packages}{advice}") from None


def check_not_input(
    output: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]], option: str = "--input"
) -> None:
    """Raise UserError if the output is one of the inputs; the message does not advise the user to remove the output.

    `option` is the option of the command line that names the inputs.
    """
    if any(os.path.realpath(output) == os.path.realpath(path) for path in inputs):
        raise UserError(f"{output}: --output is also {option}; choose another --output")


def check_positive(options: Mapping[str, float | None]) -> None:
    """Raise UserError if the value of an option is neither None nor a finite number above 0."""
    for name, value in options.items():
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"--{name} {value:g}: give a number above 0")


def refuse_existing_file(path: pathlib.Path) -> None:
    """Refuse an output file that exists; call this before any work."""
    if path.exists():
        raise UserError(f"{path} exists; name another file, or remove it")


def check_output(output: str | os.PathLike[str]) -> None:
    """Refuse an output that a new directory cannot replace; call this before any work.

    Raises:
        UserError: `output` is a file, or a directory that is not empty; or a link, a mount point or the current
            directory, even if empty.
    """
    output = pathlib.Path(output)
    refused = {
        "a symbolic link": output.is_symlink(),
        "a mount point": output.absolute().is_mount(),
        "the current directory": os.path.realpath(output) == os.getcwd(),
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise UserError(f"{output}: {name}, which no output can replace; name a new directory")
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists():
        known = (content for names, content in CONTENTS.items() if all((output / name).exists() for name in names))
        content = next(known, "something else")
        raise UserError(f"{output}: holds {content} already; remove it or choose another --output")
