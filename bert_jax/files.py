"""Files and directories that appear complete or not at all, and digests of the files of a directory.

`SHA256SUMS` is written last into every directory that users pass on, in the format of `sha256sum --check`. An
unfinished file or directory has the name `.NAME.XXXXXXXX.partial`, in the directory of its target; only a killed
process leaves such a file or directory behind.
"""

import contextlib
import errno
import functools
import hashlib
import os
import pathlib
import re
import resource
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from bert_jax.errors import WRONG_PATH, StorageError, UserError, check_output, escaped, file_error, writing

SUMS = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
PIECE_BYTES = 1 << 20
# One path or several paths.
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

RUN_SCHEMES = ("gs", "s3")  # of URLs of a run or a model
MAX_SPARSE_BYTES = 1 << 30  # a larger file may be at most MAX_RATIO times as large as its bytes on disk
MAX_RATIO = 100
SMALL_BYTES = 32 << 20  # up to this size a file is read at every opening: config, tokenizer, small weights
MAX_SUMS_BYTES = 16 << 20
OTHER_FILES = 256  # open files reserved for the rest of the process
OPEN_FILES = 1 << 16  # limit of open files that the process requests at least, where the system allows it
OnRead = Callable[[int], None]
# Kind of a path that is no regular file -> its name in messages.
SPECIAL_FILES = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory",
}


def open_regular_file(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading; a stranger may have made the file and its directory.

    A pipe or a device could keep the reader waiting forever, so only regular files and links to them are opened. A pipe
    that takes the place of the file between the check and the opening is opened without waiting, and refused. A large
    file that consists almost only of holes is refused, too: 1 TiB of holes costs nothing to make, but takes hours to
    read.

    Raises:
        UserError: the path is no regular file, or has holes almost everywhere.
        StorageError: the storage fails.
        OSError: the path is wrong: absent, or not permitted.
    """
    try:
        _check_mode_is_regular_file(path, os.stat(path).st_mode)
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb")
    except OSError as error:
        if error.errno in WRONG_PATH:
            raise
        raise file_error(error, path, "cannot be read") from None
    try:
        _check_mode_is_regular_file(path, os.fstat(file.fileno()).st_mode)
        _check_holes(path, file.fileno())
    except UserError:
        file.close()
        raise
    return file


def read_file(path: str | os.PathLike[str], max_bytes: int | None = None, name: str = "") -> bytes:
    """Return the content of a file that a stranger may have made; raise the errors of `open_regular_file`.

    Args:
        path: path of the file.
        max_bytes: a larger file raises UserError; None: no limit.
        name: name of the file in messages; "": its path.
    """
    with open_regular_file(path) as file:
        try:
            data = file.read(-1 if max_bytes is None else max_bytes + 1)
        except OSError as error:
            raise file_error(error, name or path, "cannot be read") from None
    if max_bytes is not None and len(data) > max_bytes:
        raise UserError(
            f"{name or path} has more than {max_bytes >> 20} MiB, too many for such a file; give a smaller file"
        )
    return data


def check_is_regular_file(path: str | os.PathLike[str]) -> None:
    """Raise the errors of `open_regular_file` for a path that a library will open."""
    open_regular_file(path).close()


def allow_open_files(num_files: int, num_others: int | None = None) -> None:
    """Let this process open `num_files` files and `num_others` more; raise UserError if the system refuses.

    By default, `num_others` is `OTHER_FILES`.
    """
    num_others = OTHER_FILES if num_others is None else num_others
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(OPEN_FILES, num_files + num_others)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    if num_files + num_others > limit:
        raise UserError(
            f"{num_files:,} files may be open at once, but this system allows {limit:,}; raise `ulimit -Hn`"
        )
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def check_regular_files_below(directory: pathlib.Path) -> None:
    """Raise the errors of `check_is_regular_file` for the files below a directory that a library opens.

    Files that cannot be opened are left to the library, since another process may remove them at this time.
    """
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                check_is_regular_file(os.path.join(folder, name))


def _check_mode_is_regular_file(
    path: str | os.PathLike[str], mode: int, fix: str = "replace it by a file, or remove it"
) -> None:
    """Raise UserError, with the advice `fix`, unless `mode` is the mode of a regular file."""
    if not stat.S_ISREG(mode):
        kind = SPECIAL_FILES.get(stat.S_IFMT(mode), "no regular file")
        raise UserError(f"{os.fspath(path)}: {kind}, not a file; {fix}")


def _check_holes(path: str | os.PathLike[str], handle: int) -> None:
    """Raise UserError for a sparse file, which is large and has less than 1 / `MAX_RATIO` of its bytes on disk."""
    size = os.fstat(handle).st_size
    if size <= MAX_SPARSE_BYTES:
        return
    end = on_disk = 0
    try:
        while on_disk * MAX_RATIO < size:
            start = os.lseek(handle, end, os.SEEK_DATA)
            end = os.lseek(handle, start, os.SEEK_HOLE)
            on_disk += end - start
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data after `end`; other errors: the file system does not tell
            raise UserError(
                f"{os.fspath(path)}: {size >> 20:,} MiB, of which {on_disk >> 20:,} MiB are on disk, as after an "
                "interrupted copy; copy the file again, or remove it"
            ) from None
    os.lseek(handle, 0, os.SEEK_SET)


@contextlib.contextmanager
def new_directory(target: str | os.PathLike[str], replace: bool = False) -> Iterator[pathlib.Path]:
    """Yield a directory to write into.

    If the `with` block ends without an error, write the digests and rename the directory to `target`. With `replace`,
    replace an existing directory `target`.

    Raises:
        OSError: the directory cannot be written, or `target` is not empty at the end and `replace` is False.
    """
    target = pathlib.Path(target).absolute()
    partial = _partial_path(target)
    try:
        partial.mkdir(parents=True)
        yield partial
        write_sums(partial)
        for path in [*partial.rglob("*"), partial]:
            sync(path)
        aside = _partial_path(target)
        if replace and target.exists():
            os.rename(target, aside)
        os.rename(partial, target)
        sync(target.parent)
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def output_directory(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a directory to write into, like `new_directory`, for the option `--output`.

    Raise `UserError` if `output` exists and is not empty, or cannot be written.
    """
    target = output.absolute()
    check_output(target)
    with writing(target, "make room, or choose another --output"), new_directory(target) as partial:
        yield partial


@contextlib.contextmanager
def new_file(target: str | os.PathLike[str], binary: bool = False) -> Iterator[IO[Any]]:
    """Yield a file to write, UTF-8 or `binary`. If the `with` block ends without an error, the file replaces `target`.

    If `target` is a symbolic link, the file replaces the file to which the link points.

    Raises:
        UserError: `target` is a device, a pipe or a socket. If the user is root, a file written to such a path would
            replace a device such as /dev/null for all programs.
        OSError: the file cannot be written.
    """
    target = pathlib.Path(os.path.realpath(target))
    with contextlib.suppress(OSError):  # `open` raises the error again if the file cannot be written
        if not stat.S_ISDIR(mode := os.stat(target).st_mode):
            _check_mode_is_regular_file(target, mode, "choose another name")
    partial = _partial_path(target)
    try:
        with open(partial, "xb") if binary else open(partial, "x", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
        sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write a text file that appears only when it is complete; it is on disk when the function returns."""
    with new_file(target) as file:
        file.write(text)


def user_cache() -> pathlib.Path:
    """Return bert_jax's directory in the user's cache, whose files can be deleted and made again.

    Without a home directory, or if the cache cannot be written (as in many containers), return a private directory
    below the directory for temporary files, and say so once on stderr.

    Raises:
        UserError: no directory for temporary files can be written.
    """
    directory = _first_writable_cache(os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", ""), os.getuid())
    if directory is None:
        raise UserError(
            "neither the cache of the user nor a directory for temporary files can be written; set TMPDIR to a "
            "directory that you may write"
        )
    return directory


@functools.cache
def _first_writable_cache(xdg_cache: str, home: str, user: int) -> pathlib.Path | None:
    """Return the first directory that can be written: below XDG_CACHE_HOME, HOME or TMPDIR; None if there is none."""
    # Relative paths are not valid (XDG Base Directory Specification).
    wanted = xdg_cache if os.path.isabs(xdg_cache) else home and os.path.join(home, ".cache")
    if wanted:
        directory = pathlib.Path(wanted, "bert_jax")
        with contextlib.suppress(OSError, ValueError):
            directory.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=directory).close()
            return directory
    try:
        directory = pathlib.Path(tempfile.gettempdir(), f"bert_jax-{user}")
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077:
            directory = pathlib.Path(tempfile.mkdtemp(prefix="bert_jax-"))  # another user has taken the name
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return None
    reason = f"{escaped(wanted)} cannot be written" if wanted else "there is no HOME"
    print(f"bert-jax: the cache is {directory}, since {reason}; XDG_CACHE_HOME chooses another", file=sys.stderr)
    return directory


def reason_not_a_local_path(text: str, run: bool = False) -> str:
    """Return a message if a text is no local path, such as a URL or an empty text; return "" for a path.

    With `run=True`, the text may also be the URL of a run or a model on object storage.
    """
    if not text:
        return "an empty path; give a path, or . for the current directory"
    scheme, slashes, address = text.partition("://")
    if not slashes:
        mistyped = re.fullmatch(r"(gs|s3|hf):/?(.+)", text)
        return f"{text}: a slash is missing; write {mistyped[1]}://{mistyped[2].lstrip('/')}" if mistyped else ""
    advice = f"mount the storage (gcsfuse, mount-s3) and give the path there, such as /mnt/{address}"
    if not run:
        return f"{text} is a URL; {advice}"
    if scheme not in RUN_SCHEMES:
        return f"{text}: a run can be at {' and '.join(f'{known}://' for known in RUN_SCHEMES)}; {advice}"
    return "" if "/" in address.strip("/") else f"{text}: names no directory in a bucket; write {scheme}://BUCKET/NAME"


def local_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Return a local path; raise UserError for a URL or an empty text."""
    if reason := reason_not_a_local_path(os.fspath(path)):
        raise UserError(reason)
    return pathlib.Path(path)


def list_paths(paths: Paths) -> list[str]:
    """Return one path or several paths as a list of texts."""
    return [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def _partial_path(target: pathlib.Path) -> pathlib.Path:
    """Return a path next to `target` that no other process uses."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")


def remove_partial_files(directory: pathlib.Path, names: Iterable[str]) -> None:
    """Remove unfinished files and directories of killed processes. No other process may write `names` at this time."""
    for path in [path for name in names for path in directory.glob(f".{name}.????????.partial")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def sync(path: pathlib.Path) -> None:
    """Wait until a file or directory is on disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: str | os.PathLike[str], on_read: OnRead | None = None) -> str:
    """Return the hex SHA-256 of a file; bytes that are appended meanwhile are ignored.

    `on_read` is called with the number of bytes of each piece. The raised errors are the errors of `open_regular_file`.
    """
    digest = hashlib.sha256()
    with open_regular_file(path) as file:
        left = os.fstat(file.fileno()).st_size  # a file that grows as it is read would never end
        while left > 0 and (piece := file.read(min(left, PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
            if on_read:
                on_read(len(piece))
    return digest.hexdigest()


def write_sums(directory: pathlib.Path) -> None:
    """Write `SHA256SUMS` with the digests of all other files of a directory, subdirectories included."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file() and path != directory / SUMS)
    write_text(directory / SUMS, "".join(f"{sha256_of(path)}  {path.relative_to(directory)}\n" for path in paths))


def read_sums(directory: pathlib.Path) -> dict[str, str]:
    """Return file name -> hex SHA-256 from `SHA256SUMS` of a directory; {} if the directory has no such file.

    Raises:
        UserError: the file is damaged, or names a file outside of the directory.
    """
    path = directory / SUMS
    try:
        lines = read_file(path, MAX_SUMS_BYTES).decode().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise file_error(error, path, "cannot be read") from None
    except ValueError as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    matches = [LINE.fullmatch(line) for line in lines]
    digests = {match[2].removeprefix("./"): match[1] for match in matches if match}
    if not lines or len(digests) < len(lines):
        raise UserError(f"{path}: damaged, not lines of `DIGEST  NAME`; copy the directory again, or remove this file")
    for name in digests:
        if pathlib.PurePosixPath(name).is_absolute() or ".." in pathlib.PurePosixPath(name).parts:
            raise UserError(f"{path}: names {name}, which is not in this directory; remove this file")
        if name != escaped(name):
            raise UserError(f"{path}: names {name!r}, which has a control character; remove this file")
    digests.pop(SUMS, None)  # no file holds its own digest
    return digests


def damaged_files(
    directory: pathlib.Path,
    digests: Mapping[str, str] | None = None,
    source: str = SUMS,
    max_bytes: int | None = None,
    on_read: OnRead | None = None,
) -> list[str]:
    """Return a message for each file that is missing or has a wrong digest.

    Args:
        directory: the directory with the files.
        digests: file name -> hex SHA-256; None: the digests of `SHA256SUMS`, or no digests if this file is missing.
        source: name of the file with the digests, for the messages.
        max_bytes: larger files are not read; None: no limit.
        on_read: called with the number of bytes of each piece that was read.

    Raises:
        UserError: `read_sums` raises it.
    """
    lines = []
    for name, digest in (read_sums(directory) if digests is None else digests).items():
        path = directory / name
        try:
            if (max_bytes is None or path.stat().st_size <= max_bytes) and sha256_of(path, on_read) != digest:
                lines.append(f"{path}: differs from {source}")
        except FileNotFoundError:
            lines.append(f"{path}: missing, but listed in {source}")
        except OSError as error:
            lines.append(f"{path}: cannot be read ({error.strerror or error})")
        except StorageError:
            raise
        except UserError as error:  # no regular file
            lines.append(str(error))
    return lines


def check_sums(
    directory: pathlib.Path, names: Collection[str] | None = None, max_bytes: int | None = SMALL_BYTES
) -> None:
    """Raise UserError for the first damaged file of `SHA256SUMS`; only the files `names` are checked (None: all)."""
    digests = {name: digest for name, digest in read_sums(directory).items() if names is None or name in names}
    for line in damaged_files(directory, digests, max_bytes=max_bytes):
        raise UserError(f"{line}; copy the directory again, or remove {SUMS} if you changed the file yourself")
