"""Files on a local disk or at a URL (gs://, s3://, hf://, memory://), through fsspec and with retries."""

import collections
import contextlib
import datetime
import glob
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypeVar

from bert_jax.errors import FULL, StorageError, UserError, file_error, needs_packages
from bert_jax.files import new_file

Result = TypeVar("Result")
# Scheme of a URL -> the package that fsspec needs for it; the extra `storage` has the first three.
STORAGE_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "hf": "huggingface_hub"}
TRIES = 5  # attempts of a request; gcsfs also repeats each of its requests up to six times
MIN_NAMED = 8  # a directory with at least this number of named files is listed in one call
FIRST_PAUSE = 1.0  # seconds before the second attempt; each further pause is twice as long

# URL of a file that `match_files` has found -> the size and the version of the file. A listing of a directory describes
# a thousand files in a request; a request for each of a million files would take a day.
_listed_files: dict[str, "_SizeAndVersion"] = {}


# Entries in the details of a file that change when the file is written, in the order of preference. An entry has equal
# values in the list of a directory and in the details of a single file.
_VERSION_KEYS = (
    "generation",
    "ETag",
    "etag",
    "blob_id",
    "md5Hash",
    "mtime",
    "LastModified",
    "last_modified",
    "created",
)


class _SizeAndVersion(NamedTuple):
    """The number of bytes of a file, and a text that changes when the file is written."""

    size: int
    version: str


def is_url(path: str) -> bool:
    """Return whether a path is a URL of object storage; a path that begins with file:// is on the local disk."""
    return "://" in path and not path.startswith("file://")


def is_hidden(path: str) -> bool:
    """Return whether a part of a relative path begins with a dot, or is the metadata folder in archives of macOS."""
    return any(part == "__MACOSX" or (part.startswith(".") and part.strip(".")) for part in path.split("/"))


def drop_hidden_paths(paths: Iterable[str]) -> list[str]:
    """Return the paths that are not hidden."""
    return [path for path in paths if not is_hidden(path)]


def match_files(item: str, select: Callable[[Sequence[str]], Sequence[str]] = drop_hidden_paths) -> list[str]:
    """Return the regular files that a file name, directory or glob matches, sorted.

    This function and the functions below try a request to object storage up to `TRIES` times.

    Args:
        item: name or pattern of names.
        select: function that chooses the files to return from all files of a directory. The argument and the result are
            paths relative to the directory, sorted. A hidden directory on the local disk is one path, without its
            files.

    Raises:
        UserError: `item` matches nothing, is not a file, or cannot be reached. StorageError: the storage does not
        answer.
    """
    if is_url(item):
        files = _request_with_retries(item, lambda system, inner: _find_remote_files(item, system, inner, select))
    else:
        files = _find_local_files(_local_path(item), select)
    if not files:
        raise UserError(f"{item}: contains no file")
    return files


def list_named_files(items: Sequence[str]) -> dict[str, str]:
    """Return a map from item to URL, with the items that are files in a directory of at least `MIN_NAMED` items.

    Each such directory is listed once. All other items, and the items of a directory that cannot be listed, are absent
    from the map, and need a call of `match_files`.
    """
    items_by_directory = collections.defaultdict[str, list[str]](list)
    for item in dict.fromkeys(items):
        if is_url(item) and not item.startswith("http"):  # the list of a directory on the web is a page for people
            items_by_directory[item.rpartition("/")[0]].append(item)
    urls: dict[str, str] = {}
    for directory, named in items_by_directory.items():
        if len(named) < MIN_NAMED:
            continue
        with contextlib.suppress(UserError):
            details = _request_with_retries(directory, lambda system, inner: system.ls(inner, detail=True))
            files = {file["name"]: file for file in details if file["type"] == "file"}
            for item in named:
                system, inner = _file_system_and_path(item)
                if inner in files:
                    urls[item] = system.unstrip_protocol(inner)
                    _remember_details(urls[item], files[inner])
    return urls


def open_file(path: str) -> IO[bytes]:
    """Open a file for reading and seeking; raise the errors of `match_files`, and OSError for a local file."""
    if not is_url(path):
        return open(_local_path(path), "rb")
    opened: IO[bytes] = _request_with_retries(path, lambda system, inner: system.open(inner, "rb"))
    return opened


def file_size(path: str) -> int:
    """Return the number of bytes of a file (of a URL, as of the last listing); raise the errors of `match_files`."""
    if path in _listed_files:
        return _listed_files[path].size
    if is_url(path):
        return int(_request_with_retries(path, lambda system, inner: system.size(inner)))
    with _local_errors_as_user_errors(path):
        return os.path.getsize(_local_path(path))


def file_version(path: str) -> str:
    """Return a text that changes when a file is written: a local file's time, or a URL's etag or generation.

    For a URL, the text is as of the last listing. The function raises the errors of `match_files`.
    """
    if path in _listed_files:
        return _listed_files[path].version
    if is_url(path):
        return _request_with_retries(
            path, lambda system, inner: _version_in(system.info(inner)) or str(system.ukey(inner))
        )
    with _local_errors_as_user_errors(path):
        return str(os.stat(_local_path(path)).st_mtime_ns)


def list_file_versions(url: str) -> dict[str, str]:
    """Return a map from relative path to `file_version` for all files below a URL; raise the errors of `upload`."""

    def versions_of_files(system: Any, inner: str) -> dict[str, str]:
        details = system.find(inner, detail=True)
        return {path.removeprefix(f"{inner}/"): str(details[path]) for path in details if path != inner}

    return _request_with_retries(url, versions_of_files)


def upload(local_path: str | os.PathLike[str], url: str) -> None:
    """Copy a local file to a URL or path, where the copy replaces an existing file only when the copy is complete.

    Raises:
        UserError: the file cannot be read, or the target cannot be written. StorageError: the storage does not answer.
    """

    def write_file(system: Any, inner: str) -> None:
        if system.async_impl:  # object storage: a file appears when it is complete
            system.put_file(os.fspath(local_path), inner)
            return
        system, inner = _file_system_and_path(url, skip_instance_cache=True)  # a new instance for this transaction
        system.makedirs(system._parent(inner), exist_ok=True)
        with open(local_path, "rb") as source, system.transaction, system.open(inner, "wb") as target:
            shutil.copyfileobj(source, target)

    if is_url(url):
        _request_with_retries(url, write_file)
    else:
        with _local_errors_as_user_errors(url):
            _write_local_atomically(_local_path(url), lambda partial: shutil.copyfile(local_path, partial))


def download(url: str, local_path: str | os.PathLike[str]) -> None:
    """Copy a file from a URL or path to the local disk, where the file appears only when it is complete.

    Raises the errors of `upload`.
    """
    target = os.fspath(local_path)
    if is_url(url):
        _request_with_retries(
            url, lambda system, inner: _write_local_atomically(target, lambda partial: system.get_file(inner, partial))
        )
    else:
        with _local_errors_as_user_errors(url):
            _write_local_atomically(target, lambda partial: shutil.copyfile(_local_path(url), partial))


def read_url(url: str) -> bytes | None:
    """Return the content of the file at a URL or path; None if there is no file; raise the errors of `upload`."""

    def read_file(system: Any, inner: str) -> bytes | None:
        try:
            return bytes(system.cat_file(inner))
        except FileNotFoundError:
            return None

    if is_url(url):
        return _request_with_retries(url, read_file)
    with _local_errors_as_user_errors(url):
        return pathlib.Path(_local_path(url)).read_bytes() if os.path.exists(_local_path(url)) else None


def write_bytes(content: bytes, url: str) -> None:
    """Write bytes to a file of object storage; the file appears when complete; raise the errors of `upload`."""
    _request_with_retries(url, lambda system, inner: system.pipe_file(inner, content))


def remove(path: str) -> None:
    """Remove a local directory, or all objects at or below a URL, if they exist; raise the errors of `upload`."""

    def remove_file(system: Any, inner: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            system.rm(inner, recursive=True)

    if is_url(path):
        _request_with_retries(path, remove_file)
    else:
        with _local_errors_as_user_errors(path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(_local_path(path))


def move(url: str, target: str) -> None:
    """Move all files below a URL, by copying and then removing the files; raise the errors of `upload`."""

    def copy_all_to_target(system: Any, inner: str) -> None:
        for path in system.find(inner):
            system.cp_file(path, f"{_file_system_and_path(target)[1]}{path.removeprefix(inner)}")

    _request_with_retries(url, copy_all_to_target)
    remove(url)


def _request_with_retries(url: str, call: Callable[[Any, str], Result]) -> Result:
    """Return the result of `call` for the URL's file system and path; try up to `TRIES` times if a retry may help."""
    with _remote_errors_as_user_errors(url):
        system, inner = _file_system_and_path(url)
    with _remote_errors_as_user_errors(url, StorageError):
        for attempt in range(1, TRIES):
            try:
                return call(system, inner)
            except Exception as error:  # each package has different exceptions for network errors
                if _is_permanent(error):
                    raise
                time.sleep(FIRST_PAUSE * 2 ** (attempt - 1))
        return call(system, inner)


def _is_permanent(error: Exception) -> bool:
    """Return whether a retry would fail as well, because a name is wrong, a permission is missing or a disk is full."""
    return (
        isinstance(error, UserError | FileNotFoundError | PermissionError)
        or str(error).startswith("Forbidden")  # gcsfs's error for status 403
        or "Credentials" in type(error).__name__  # botocore's NoCredentialsError
        or (isinstance(error, OSError) and error.errno in FULL)
    )


def _write_local_atomically(target: str, fill: Callable[[str], object]) -> None:
    """Call `fill` with the path of a new file, which then replaces the target."""
    path = pathlib.Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with new_file(path, binary=True) as file:
        fill(file.name)


def _local_path(path: str) -> str:
    return path.removeprefix("file://")


def _find_local_files(item: str, select: Callable[[Sequence[str]], Sequence[str]]) -> list[str]:
    paths = [item] if os.path.exists(item) else sorted(glob.glob(item, recursive=True))
    if not paths:
        raise _no_such_file_error(item)
    files = []
    for start in paths:
        matches = _select_below(start, _files_below(start), select) if os.path.isdir(start) else [start]
        for path in matches:
            if not os.path.isfile(path):
                raise UserError(f"{path}: not a regular file, or a broken link; give files or directories")
        files += matches
    return files


def _files_below(directory: str) -> list[str]:
    """Return the files and the hidden directories below a directory, sorted.

    Links are followed, but no directory is read twice, and no hidden directory is read.
    """
    paths: list[str] = []
    seen: set[str] = set()
    for folder, folders, names in os.walk(directory, onerror=_raise_unreadable_directory, followlinks=True):
        hidden = [name for name in folders if is_hidden(name)]
        folders[:] = sorted({*folders} - {*hidden})  # sorted: of two paths to a directory, every run takes the first
        if os.path.realpath(folder) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(folder))
        paths += [os.path.join(folder, name) for name in (*names, *hidden)]
    return sorted(paths)


def _select_below(directory: str, paths: Sequence[str], select: Callable[[Sequence[str]], Sequence[str]]) -> list[str]:
    """Return the paths below a directory whose relative paths `select` chooses."""
    path_by_name = {path.removeprefix(os.path.join(directory, "")): path for path in paths}
    return [path_by_name[name] for name in select(list(path_by_name))]


def _raise_unreadable_directory(error: OSError) -> None:
    """Raise UserError for an unreadable directory, which `os.walk` would skip."""
    raise file_error(error, error.filename, "cannot be read", "check the permissions, or leave it out")


def _find_remote_files(
    item: str, system: Any, inner: str, select: Callable[[Sequence[str]], Sequence[str]]
) -> list[str]:
    try:
        matches = {inner: system.info(inner)}
    except FileNotFoundError:
        matches = system.glob(inner, detail=True)
    if not matches:
        raise _no_such_file_error(item)
    urls: list[str] = []
    for start in sorted(matches):
        details = matches
        paths = [start]
        if matches[start]["type"] == "directory":
            details = system.find(start, detail=True)
            paths = _select_below(start, sorted(details), select)
        for path in paths:
            urls.append(system.unstrip_protocol(path))
            _remember_details(urls[-1], details[path])
    return urls


def _remember_details(url: str, details: Mapping[str, Any]) -> None:
    """Keep the size and the version of a file for `file_size` and `file_version`; http:// may give neither."""
    _listed_files.pop(url, None)
    size, version = details.get("size"), _version_in(details)
    if size is not None and version is not None:
        _listed_files[url] = _SizeAndVersion(int(size), version)


def _version_in(details: Mapping[str, Any]) -> str | None:
    """Return a text that changes when a file is written, from the details of a file system; None if no entry has it."""
    for key in _VERSION_KEYS:
        if value := details.get(key):
            # In memory://, a list has a number of seconds, and the details of a single file have a `datetime`.
            return str(value.timestamp() if isinstance(value, datetime.datetime) else value)
    return None


def _no_such_file_error(item: str) -> UserError:
    kind = "no file matches this pattern" if glob.has_magic(item) else "no such file or directory"
    return UserError(f"{item}: {kind}; check --input (quote patterns, or let the shell expand them)")


class _SystemAndPath(NamedTuple):
    """The file system of a URL, and the path in it."""

    system: Any
    path: str


def _file_system_and_path(url: str, **options: bool) -> _SystemAndPath:
    """Return the file system of a URL, and the path in it."""
    package = STORAGE_PACKAGES.get(url.partition("://")[0], "fsspec")
    with needs_packages(url, package):
        from fsspec.config import conf
        from fsspec.core import url_to_fs

        # Caching is off, also for the file systems that Orbax opens, because cached listings do not show files that
        # TensorStore and other hosts write.
        for protocol in ("gcs", "s3"):
            conf.setdefault(protocol, {}).setdefault("use_listings_cache", False)
        return _SystemAndPath(*url_to_fs(url, **options))


@contextlib.contextmanager
def _local_errors_as_user_errors(path: str) -> Iterator[None]:
    """Turn an error of the operating system about a local file into a UserError of one line."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise file_error(error, path, "cannot be copied", "make room") from None
        if error.errno:
            raise file_error(error, path, "cannot be reached", "check the name and the permissions") from None
        raise UserError(f"{path}: cannot be reached ({error}); check the name and the permissions") from None


@contextlib.contextmanager
def _remote_errors_as_user_errors(url: str, failure: type[UserError] = UserError) -> Iterator[None]:
    """Turn every error of object storage into a UserError of one line, because each library has its own exceptions.

    An error that a retry may fix becomes an error of the type `failure`.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each package of object storage raises its own types
        if isinstance(error, OSError) and error.errno in FULL:
            raise file_error(error, url, "cannot be copied", "make room") from None
        raised = UserError if _is_permanent(error) else failure
        if isinstance(error, OSError):
            reason, advice = error.strerror or error, "check the name and the permissions"
        else:
            reason, advice = f"{type(error).__name__}: {error}", "check the URL and its package"
        raise raised(f"{url}: cannot be reached ({reason}); {advice}") from None
