"""The one door to files: on the disk, or by URL (gs://, s3://, memory://) through fsspec."""

import contextlib
import glob
import os
import shutil
import uuid
from collections.abc import Iterator
from typing import IO, Any

from bert_jax.errors import UserError

_CHUNK = 1 << 20


def is_url(path: str) -> bool:
    """Whether a path lies in object storage; file:// is the disk."""
    return "://" in path and not path.startswith("file://")


def find(item: str) -> list[str]:
    """The regular files of a file name, directory (all files below) or glob, sorted.

    Raises:
        UserError: it matches nothing, is not a file, or cannot be reached.
    """
    if is_url(item):
        with _reaching(item):
            files = _find_url(item)
    else:
        files = _find_local(_local(item))
    if not files:
        raise UserError(f"{item}: holds no file")
    return files


def open_file(path: str) -> IO[bytes]:
    """A file for reading, seekable.

    Raises:
        UserError: a URL that cannot be reached. OSError: a file on the disk that cannot be opened.
    """
    if not is_url(path):
        return open(_local(path), "rb")
    with _reaching(path):
        system, inner = _system(path)
        return system.open(inner, "rb")


def size(path: str) -> int:
    """Bytes of a file.

    Raises:
        UserError: it cannot be reached.
    """
    with _reaching(path):
        if not is_url(path):
            return os.path.getsize(_local(path))
        system, inner = _system(path)
        return int(system.size(inner))


def stamp(path: str) -> str:
    """What changes when a file is written again, as far as its place tells: its time, a URL's etag or generation.

    Raises:
        UserError: it cannot be reached.
    """
    with _reaching(path):
        if not is_url(path):
            return str(os.stat(_local(path)).st_mtime_ns)
        system, inner = _system(path)
        return str(system.ukey(inner))


def put(local_path: str | os.PathLike[str], url: str) -> None:
    """Copies a file of the disk to a URL, where it appears whole or not at all; what was there is replaced.

    Raises:
        UserError: the file cannot be read, or the place not be written.
    """
    with _reaching(url):
        if not is_url(url):
            _copy(os.fspath(local_path), _local(url))
            return
        system, inner = _system(url, skip_instance_cache=True)  # a transaction is of a whole instance
        system.makedirs(system._parent(inner), exist_ok=True)
        with open(local_path, "rb") as source, system.transaction, system.open(inner, "wb") as target:
            shutil.copyfileobj(source, target, _CHUNK)


def get(url: str, local_path: str | os.PathLike[str]) -> None:
    """Copies a file from a URL to the disk, where it appears whole or not at all; what was there is replaced.

    Raises:
        UserError: the URL cannot be reached, or the place not be written.
    """
    with _reaching(url), open_file(url) as source:
        _write(source, os.fspath(local_path))


def _copy(source_path: str, target: str) -> None:
    with open(source_path, "rb") as source:
        _write(source, target)


def _write(source: IO[bytes], target: str) -> None:
    """Writes beside the target, then renames."""
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


def _find_local(item: str) -> list[str]:
    places = [item] if os.path.exists(item) else sorted(glob.glob(item, recursive=True))
    if not places:
        raise _absent(item)
    files = []
    for place in places:
        found = _below(place) if os.path.isdir(place) else [place]
        for path in found:
            if not os.path.isfile(path):
                raise UserError(f"{path}: not a regular file, or a link to none; give files or directories")
        files += found
    return files


def _below(place: str) -> list[str]:
    """What is below a directory and no directory, sorted; links are followed, no directory is read twice."""
    found: list[str] = []
    seen: set[str] = set()
    for folder, folders, names in os.walk(place, onerror=_unlisted, followlinks=True):
        folders.sort()  # of two ways to a directory always the same is gone
        if os.path.realpath(folder) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(folder))
        found += [os.path.join(folder, name) for name in names]
    return sorted(found)


def _unlisted(error: OSError) -> None:
    """`os.walk` goes over a directory that it cannot read."""
    raise UserError(f"{error.filename}: cannot be read ({error.strerror}); check the rights, or leave it out")


def _find_url(item: str) -> list[str]:
    system, inner = _system(item)
    places = [inner] if system.exists(inner) else sorted(system.glob(inner))
    if not places:
        raise _absent(item)
    files: list[str] = []
    for place in places:
        files += sorted(system.find(place)) if system.isdir(place) else [place]
    return [system.unstrip_protocol(path) for path in files]


def _absent(item: str) -> UserError:
    kind = "no file matches this pattern" if glob.has_magic(item) else "no such file or directory"
    return UserError(f"{item}: {kind}; check --input (quote patterns, or let the shell expand them)")


def _system(url: str, **options: bool) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UserError(f"{url}: needs the package fsspec: pip install 'bert-jax[storage]'") from None
    return url_to_fs(url, **options)


@contextlib.contextmanager
def _reaching(path: str) -> Iterator[None]:
    """Every error of a file system that is not ours as one line; each library has exceptions of its own."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(
            f"{path}: cannot be reached ({error.strerror or error}); check the name and the rights"
        ) from None
    except Exception as error:
        if not is_url(path):
            raise
        raise UserError(
            f"{path}: cannot be reached ({type(error).__name__}: {error}); check the URL and its package"
        ) from None
