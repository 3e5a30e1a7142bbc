"""Files on a local disk, or by URL (gs://, s3://, hf://, memory://) through fsspec; the only file that opens inputs."""

import contextlib
import glob
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

from bert_jax.errors import StorageError, UserError

Result = TypeVar("Result")
TRIES = 5  # of a request on a run; gcsfs repeats each of its own six times
FIRST_PAUSE = 1.0  # seconds; each next pause is twice as long
_CHUNK = 1 << 20


def is_url(path: str) -> bool:
    """Return whether a path is in object storage; file:// is the local disk."""
    return "://" in path and not path.startswith("file://")


def match_files(item: str, wanted: Callable[[str], bool] = lambda path: True) -> list[str]:
    """Return the regular files of a file name, directory or glob, sorted.

    Args:
        item: a name, or a pattern of names.
        wanted: whether a file below a directory is one of them.

    Raises:
        UserError: it matches nothing, is not a file, or cannot be reached.
    """
    if is_url(item):
        with _reaching(item):
            files = _find_url(item, wanted)
    else:
        files = _find_local(_local(item), wanted)
    if not files:
        raise UserError(f"{item}: contains no file")
    return files


def open_file(path: str) -> IO[bytes]:
    """Open a file for reading; it is seekable.

    Raises:
        UserError: a URL that cannot be reached. OSError: a local file that cannot be opened.
    """
    if not is_url(path):
        return open(_local(path), "rb")
    with _reaching(path):
        system, inner = _system(path)
        return system.open(inner, "rb")


def file_size(path: str) -> int:
    """Return the bytes of a file.

    Raises:
        UserError: it cannot be reached.
    """
    with _reaching(path):
        if not is_url(path):
            return os.path.getsize(_local(path))
        system, inner = _system(path)
        return int(system.size(inner))


def file_version(path: str) -> str:
    """Return a text that changes when a file is written again: its time, or the etag or generation of a URL.

    Raises:
        UserError: it cannot be reached.
    """
    with _reaching(path):
        if not is_url(path):
            return str(os.stat(_local(path)).st_mtime_ns)
        system, inner = _system(path)
        return str(system.ukey(inner))


def upload(local_path: str | os.PathLike[str], url: str) -> None:
    """Copy a local file to a URL or path, where it appears complete or not at all; an existing file is replaced.

    Raises:
        UserError: the file cannot be read, or the target cannot be written.
    """
    with _reaching(url):
        if not is_url(url):
            _copy(os.fspath(local_path), _local(url))
            return
        system, inner = _system(url, skip_instance_cache=True)  # a transaction covers a whole instance
        system.makedirs(system._parent(inner), exist_ok=True)
        with open(local_path, "rb") as source, system.transaction, system.open(inner, "wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)


def download(url: str, local_path: str | os.PathLike[str]) -> None:
    """Copy a file from a URL to the local disk, where it appears complete or not at all; an existing file is replaced.

    Raises:
        UserError: the URL cannot be reached, or the target cannot be written.
    """
    with _reaching(url), open_file(url) as source:
        _write(source, os.fspath(local_path))


def remove(directory: str) -> None:
    """Remove a directory, or all files whose URLs begin with it.

    Raises:
        UserError: it cannot be reached or changed.
    """
    with _reaching(directory):
        if not is_url(directory):
            shutil.rmtree(_local(directory))
            return
        system, inner = _system(directory)
        system.rm(inner, recursive=True)


def list_versions(url: str) -> dict[str, str]:
    """Return the name of each file below a URL -> a text that changes when the file is written again.

    This and the functions below repeat what fails, `TRIES` times.

    Raises:
        UserError: it cannot be reached.
    """

    def listed() -> dict[str, str]:
        system, inner = _system(url)
        found = system.find(inner, detail=True)
        return {path.removeprefix(f"{inner}/"): str(found[path]) for path in found if path != inner}

    return _repeated(url, listed)


def read_bytes(url: str) -> bytes | None:
    """Return the content of a file; None where there is none. Raises UserError as `list_versions`."""

    def read() -> bytes | None:
        system, inner = _system(url)
        try:
            return bytes(system.cat_file(inner))
        except FileNotFoundError:
            return None

    return _repeated(url, read)


def write_bytes(content: bytes, url: str) -> None:
    """Write a file, which appears whole or not at all. Raises UserError as `list_versions`."""

    def write() -> None:
        system, inner = _system(url)
        system.pipe_file(inner, content)

    _repeated(url, write)


def put(local_path: str | os.PathLike[str], url: str) -> None:
    """Copy a local file to object storage, as `write_bytes`."""

    def write() -> None:
        system, inner = _system(url)
        system.put_file(os.fspath(local_path), inner)

    _repeated(url, write)


def get(url: str, local_path: str | os.PathLike[str]) -> None:
    """Copy a file of object storage to the local disk. Raises UserError as `list_versions`."""

    def read() -> None:
        system, inner = _system(url)
        system.get_file(inner, os.fspath(local_path))

    _repeated(url, read)


def delete(url: str) -> None:
    """Remove a file, or all files below a URL; there may be none. Raises UserError as `list_versions`."""

    def removed() -> None:
        system, inner = _system(url)
        with contextlib.suppress(FileNotFoundError):
            system.rm(inner, recursive=True)

    _repeated(url, removed)


def move(url: str, target: str) -> None:
    """Move all files below a URL; object storage copies them. Raises UserError as `list_versions`."""

    def moved() -> None:
        system, inner = _system(url)
        for path in system.find(inner):
            system.cp_file(path, f"{_system(target)[1]}{path.removeprefix(inner)}")

    _repeated(target, moved)
    delete(url)


def _repeated(url: str, call: Callable[[], Result]) -> Result:
    """The result of a call that may fail while the storage does not answer; StorageError where it never does."""
    with _reaching(url, StorageError):
        for number in range(1, TRIES):
            try:
                return call()
            except (UserError, FileNotFoundError, PermissionError):
                raise
            except Exception as error:  # of whatever package: an error of the network looks different in each
                if str(error).startswith("Forbidden"):  # a status 403, as gcsfs raises it
                    raise PermissionError(str(error)) from None
                time.sleep(FIRST_PAUSE * 2 ** (number - 1))
        return call()


def _copy(source_path: str, target: str) -> None:
    with open(source_path, "rb") as source:
        _write(source, target)


def _write(source: IO[bytes], target: str) -> None:
    """Write beside the target, then rename."""
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    partial = f"{target}.{uuid.uuid4().hex}.partial"
    try:
        with open(partial, "xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
            file.flush()
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


def _find_url(item: str, wanted: Callable[[str], bool]) -> list[str]:
    system, inner = _system(item)
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
        conf.setdefault("gcs", {}).setdefault("use_listings_cache", False)
        return url_to_fs(url, **options)
    except ImportError:
        raise UserError(
            f"{url}: needs packages: pip install fsspec, and gcsfs for gs://, s3fs for s3://, huggingface_hub for hf://"
        ) from None


@contextlib.contextmanager
def _reaching(path: str, failure: type[UserError] = UserError) -> Iterator[None]:
    """Turn every error of a file system into a UserError of one line; each library has its own exceptions.

    `failure` is raised for those that do not come from a wrong name or a missing permission.
    """
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise (UserError if isinstance(error, FileNotFoundError | PermissionError) else failure)(
            f"{path}: cannot be reached ({error.strerror or error}); check the name and the permissions"
        ) from None
    except Exception as error:
        if not is_url(path):
            raise
        raise failure(
            f"{path}: cannot be reached ({type(error).__name__}: {error}); check the URL and its package"
        ) from None
