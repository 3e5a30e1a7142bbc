"""Files on a local disk, or by URL (gs://, s3://, hf://, memory://) through fsspec; the only file that opens inputs."""

import contextlib
import glob
import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

from bert_jax.errors import FULL, StorageError, UserError

Result = TypeVar("Result")
TRIES = 5  # of a request; gcsfs repeats each of its own six times
FIRST_PAUSE = 1.0  # seconds; each next pause is twice as long


def is_url(path: str) -> bool:
    """Return whether a path is in object storage; file:// is the local disk."""
    return "://" in path and not path.startswith("file://")


def match_files(item: str, wanted: Callable[[str], bool] = lambda path: True) -> list[str]:
    """Return the regular files of a file name, directory or glob, sorted.

    What fails in object storage is tried `TRIES` times, here and in the functions below.

    Args:
        item: a name, or a pattern of names.
        wanted: whether a file below a directory is one of them.

    Raises:
        UserError: it matches nothing, is not a file, or cannot be reached. StorageError: the storage does not answer.
    """
    if is_url(item):
        files = _ask(item, lambda system, inner: _find_url(item, system, inner, wanted))
    else:
        files = _find_local(_local(item), wanted)
    if not files:
        raise UserError(f"{item}: contains no file")
    return files


def open_file(path: str) -> IO[bytes]:
    """Open a file for reading; it is seekable. Raises as `match_files`; OSError: a local file that cannot be opened."""
    if not is_url(path):
        return open(_local(path), "rb")
    opened: IO[bytes] = _ask(path, lambda system, inner: system.open(inner, "rb"))
    return opened


def file_size(path: str) -> int:
    """Return the bytes of a file. Raises as `match_files`."""
    if is_url(path):
        return int(_ask(path, lambda system, inner: system.size(inner)))
    with _reaching(path):
        return os.path.getsize(_local(path))


def file_version(path: str) -> str:
    """Return a text that changes when a file is written again: its time, or the etag or generation of a URL.

    Raises as `match_files`.
    """
    if is_url(path):
        return str(_ask(path, lambda system, inner: system.ukey(inner)))
    with _reaching(path):
        return str(os.stat(_local(path)).st_mtime_ns)


def list_versions(url: str) -> dict[str, str]:
    """Return the name of each file below a URL -> a text that changes when it is written again. Raises as `upload`."""

    def listed(system: Any, inner: str) -> dict[str, str]:
        found = system.find(inner, detail=True)
        return {path.removeprefix(f"{inner}/"): str(found[path]) for path in found if path != inner}

    return _ask(url, listed)


def upload(local_path: str | os.PathLike[str], url: str) -> None:
    """Copy a local file to a URL or path, where it appears complete or not at all; an existing file is replaced.

    Raises:
        UserError: the file cannot be read, or the target cannot be written. StorageError: the storage does not answer.
    """

    def write(system: Any, inner: str) -> None:
        if system.async_impl:  # object storage: a file appears when it is complete
            system.put_file(os.fspath(local_path), inner)
            return
        system, inner = _system(url, skip_instance_cache=True)  # a transaction covers a whole instance
        system.makedirs(system._parent(inner), exist_ok=True)
        with open(local_path, "rb") as source, system.transaction, system.open(inner, "wb") as target:
            shutil.copyfileobj(source, target)

    if is_url(url):
        _ask(url, write)
    else:
        with _reaching(url):
            _write(_local(url), lambda partial: shutil.copyfile(local_path, partial))


def download(url: str, local_path: str | os.PathLike[str]) -> None:
    """Copy a file from a URL or path to the local disk, as `upload` writes it. Raises as `upload`."""
    target = os.fspath(local_path)
    if is_url(url):
        _ask(url, lambda system, inner: _write(target, lambda partial: system.get_file(inner, partial)))
    else:
        with _reaching(url):
            _write(target, lambda partial: shutil.copyfile(_local(url), partial))


def read_bytes(url: str) -> bytes | None:
    """Return the content of a file; None where there is none. Raises as `upload`."""

    def read(system: Any, inner: str) -> bytes | None:
        try:
            return bytes(system.cat_file(inner))
        except FileNotFoundError:
            return None

    if is_url(url):
        return _ask(url, read)
    with _reaching(url):
        return pathlib.Path(_local(url)).read_bytes() if os.path.exists(_local(url)) else None


def write_bytes(content: bytes, url: str) -> None:
    """Write a file of object storage, which appears complete or not at all. Raises as `upload`."""
    _ask(url, lambda system, inner: system.pipe_file(inner, content))


def remove(path: str) -> None:
    """Remove a directory, a file of object storage or all below it; there may be none. Raises as `upload`."""

    def removed(system: Any, inner: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            system.rm(inner, recursive=True)

    if is_url(path):
        _ask(path, removed)
    else:
        with _reaching(path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(_local(path))


def move(url: str, target: str) -> None:
    """Move all files below a URL; object storage copies them. Raises as `upload`."""

    def copied(system: Any, inner: str) -> None:
        for path in system.find(inner):
            system.cp_file(path, f"{_system(target)[1]}{path.removeprefix(inner)}")

    _ask(url, copied)
    remove(url)


def _ask(url: str, call: Callable[[Any, str], Result]) -> Result:
    """Call it with the file system of a URL and the path in it, again while that fails for a reason that may pass."""
    with _reaching(url):
        system, inner = _system(url)
    with _reaching(url, StorageError):
        for number in range(1, TRIES):
            try:
                return call(system, inner)
            except Exception as error:  # of whatever package: an error of the network looks different in each
                if _lasting(error):
                    raise
                time.sleep(FIRST_PAUSE * 2 ** (number - 1))
        return call(system, inner)


def _lasting(error: Exception) -> bool:
    """Whether another try would end alike: a wrong name, no permission, a full disk here."""
    return (
        isinstance(error, UserError | FileNotFoundError | PermissionError)
        or str(error).startswith("Forbidden")  # a status 403, as gcsfs raises it
        or "Credentials" in type(error).__name__  # botocore's NoCredentialsError
        or (isinstance(error, OSError) and error.errno in FULL)
    )


def _write(target: str, fill: Callable[[str], object]) -> None:
    """Write beside the target, then rename."""
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    partial = f"{target}.{uuid.uuid4().hex}.partial"
    try:
        fill(partial)
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def _local(path: str) -> str:
    return path.removeprefix("file://")


def _find_local(item: str, wanted: Callable[[str], bool]) -> list[str]:
    paths = [item] if os.path.exists(item) else sorted(glob.glob(item, recursive=True))
    if not paths:
        raise _missing(item)
    files = []
    for start in paths:
        found = list(filter(wanted, _files_below(start))) if os.path.isdir(start) else [start]
        for path in found:
            if not os.path.isfile(path):
                raise UserError(f"{path}: not a regular file, or a broken link; give files or directories")
        files += found
    return files


def _files_below(directory: str) -> list[str]:
    """Return the files below a directory, sorted; links are followed, and no directory is read twice."""
    found: list[str] = []
    seen: set[str] = set()
    for folder, folders, names in os.walk(directory, onerror=_refuse_unreadable, followlinks=True):
        folders.sort()  # of two paths to a directory always the same one is taken
        if os.path.realpath(folder) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(folder))
        found += [os.path.join(folder, name) for name in names]
    return sorted(found)


def _refuse_unreadable(error: OSError) -> None:
    """Raise for a directory that `os.walk` would skip."""
    raise UserError(f"{error.filename}: cannot be read ({error.strerror}); check the permissions, or leave it out")


def _find_url(item: str, system: Any, inner: str, wanted: Callable[[str], bool]) -> list[str]:
    paths = [inner] if system.exists(inner) else sorted(system.glob(inner))
    if not paths:
        raise _missing(item)
    files: list[str] = []
    for start in paths:
        files += sorted(filter(wanted, system.find(start))) if system.isdir(start) else [start]
    return [system.unstrip_protocol(path) for path in files]


def _missing(item: str) -> UserError:
    kind = "no file matches this pattern" if glob.has_magic(item) else "no such file or directory"
    return UserError(f"{item}: {kind}; check --input (quote patterns, or let the shell expand them)")


def _system(url: str, **options: bool) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    try:
        from fsspec.config import conf
        from fsspec.core import url_to_fs

        # Its listings do not see what TensorStore and other hosts write. Also for the instances of Orbax.
        for protocol in ("gcs", "s3"):
            conf.setdefault(protocol, {}).setdefault("use_listings_cache", False)
        return url_to_fs(url, **options)
    except ImportError:
        raise UserError(
            f"{url}: needs packages: pip install fsspec, and gcsfs for gs://, s3fs for s3://, huggingface_hub for hf://"
        ) from None


@contextlib.contextmanager
def _reaching(path: str, failure: type[UserError] = UserError) -> Iterator[None]:
    """Turn every error of a file system into a UserError of one line; each library has its own exceptions.

    `failure` is raised for those that may pass.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raised = UserError if _lasting(error) else failure
        if isinstance(error, OSError):
            if error.errno in FULL:
                raise UserError(f"{path}: cannot be copied ({error.strerror}); make room") from None
            raise raised(
                f"{path}: cannot be reached ({error.strerror or error}); check the name and the permissions"
            ) from None
        if not is_url(path):
            raise
        raise raised(
            f"{path}: cannot be reached ({type(error).__name__}: {error}); check the URL and its package"
        ) from None
