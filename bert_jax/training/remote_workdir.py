"""A run or a model on object storage, whose small files are copied to a local directory of each process.

If the object storage and a local copy differ, the files on the object storage are valid. A process copies the small
files when it starts, and works on the copy as on any work directory. Process 0 of a training uploads changed files
before each checkpoint and at the end, so that no checkpoint is newer than its metrics. At a gs:// URL, Orbax writes the
checkpoints directly, and each host writes its part. At other URLs, Orbax writes the checkpoints to the local copy, and
the checkpoints are then uploaded like the small files.
"""

import concurrent.futures
import contextlib
import fcntl
import hashlib
import itertools
import os
import pathlib
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

from bert_jax.corpus.manifest import MANIFEST
from bert_jax.errors import SHOWN, UserError, writing
from bert_jax.files import SUMS, reason_not_a_local_path, user_cache

OWNER = "owner"  # file with the name of the process that trains, because object storage has no locks
ORBAX_WRITES = ("gs://",)  # beginnings of URLs to which Orbax writes checkpoints directly
COMMITTED = "commit_success.txt"  # the file that Orbax writes last in a checkpoint and in each of its parts
NOT_MIRRORED = {"damaged", "logs"}
SEALED = re.compile(r"(.*/)?(tokenizer|model|best-\d+|checkpoints/\d+)")  # directories that must be complete
LAST = re.compile(rf"(.*/)?({SUMS}|checkpoints/\d+/{COMMITTED})")  # the file that completes such a directory
CHECKPOINT = re.compile(r"(.*/)?checkpoints/\d+/.*")
STATE = re.compile(r"((?:.*/)?checkpoints/\d+)/state/.*")  # files of arrays, which `download_state` copies
UNFINISHED = re.compile(r"\.|.*\.orbax-checkpoint-tmp")  # names of unfinished files
AT_ONCE = 8  # files that are copied at the same time

_open: list["Mirror"] = []


class Mirror:
    """A local copy of the small files of the run at `url`, in a directory that no other process uses."""

    def __init__(self, url: str) -> None:
        self.url = url
        with writing(user_cache(), "set XDG_CACHE_HOME to a directory on another disk"):
            self.directory = _locked_cache_directory(url).resolve()  # `reports` compares resolved paths
        self._remote: dict[str, str] = {}  # name -> version of a file at the URL, as of the last listing
        self._fetched: dict[str, str] = {}  # name -> version of a downloaded file
        self._pushed: dict[str, _FileStat] = {}  # name -> size and time of a file that equals the file at the URL
        self._owner = b""
        SHOWN[str(self.directory)] = url
        _open.append(self)

    @property
    def copies_checkpoints(self) -> bool:
        """Return whether checkpoints are written to the local copy; otherwise Orbax writes them to the URL."""
        return not self.url.startswith(ORBAX_WRITES)

    def download_new_files(self) -> None:
        """Download new files from the URL and delete local files that the URL lacks, unless this process owns the run.

        If checkpoints are files of the local copy, only `download_state` downloads the arrays of checkpoints.

        Raises:
            UserError: the storage does not answer, or the URL has a corpus.
        """
        from bert_jax.readers import storage

        if self._owner:
            return
        remote = _files_to_copy(storage.list_file_versions(self.url), self.copies_checkpoints)
        if MANIFEST in remote:
            raise UserError(f"{self.url} holds a corpus (its {MANIFEST}); choose another --workdir")
        local = {name: _size_and_time(self.directory / name) for name in _finished_files(self.directory)}
        for name in local:
            is_stale = bool(STATE.fullmatch(name)) and self._fetched.get(name) != remote.get(name)
            if name in remote and self._pushed.get(name) == local[name] and not is_stale:
                continue
            (self.directory / name).unlink()  # the URL lacks the file: deleted there, or never uploaded by a failed run
            self._fetched.pop(name, None)
        self._remote = remote
        # A run that ended with an error may have removed a file only on the disk.
        self._fetched = {
            name: version for name, version in self._fetched.items() if remote.get(name) == version and name in local
        }
        self._pushed = {name: _size_and_time(self.directory / name) for name in self._fetched}
        self._download(name for name in remote if not STATE.fullmatch(name))

    def download_state(self, checkpoint: pathlib.Path) -> None:
        """Download the missing arrays of a checkpoint, which is a directory in the local copy."""
        name = checkpoint.relative_to(self.directory).as_posix()
        self._download(file for file in self._remote if file.startswith(f"{name}/state/"))

    def _download(self, names: Iterable[str]) -> None:
        """Download the files that the local copy lacks."""
        from bert_jax.readers import storage

        missing = [name for name in names if name not in self._fetched]
        with writing(self.directory, "make room, or set XDG_CACHE_HOME to a directory on another disk"):
            for name in missing:
                (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
            _call_in_threads(lambda name: storage.download(f"{self.url}/{name}", self.directory / name), missing)
        self._fetched |= {name: self._remote[name] for name in missing}
        self._pushed |= {name: _size_and_time(self.directory / name) for name in missing}

    @contextlib.contextmanager
    def as_owner(self) -> Iterator[None]:
        """Make this process the owner of the run during the `with` block.

        A previous owner stops before its next checkpoint. Changed files are uploaded at the end of the block, unless an
        error ends the block.
        """
        from bert_jax.readers import storage

        if self.copies_checkpoints:
            self.download_new_files()
            cut_off = [name for name in storage.list_file_versions(self.url) if CHECKPOINT.fullmatch(name)]
            _call_in_threads(lambda name: storage.remove(f"{self.url}/{name}"), set(cut_off) - self._remote.keys())
        self._owner = f"{secrets.token_hex(8)} {socket.gethostname()} {os.getpid()}".encode()
        try:
            storage.write_bytes(self._owner, f"{self.url}/{OWNER}")
            yield
            self.upload_changed_files()
        finally:
            self._owner = b""

    def upload_now(self, name: str) -> None:
        """Upload a file immediately, because `download_new_files` would delete a local file that the URL lacks."""
        _upload_files(self.directory, [name], self.url)

    def upload_changed_files(self) -> None:
        """Upload changed files, and remove deleted files at the URL, if this process owns the run.

        Raises:
            UserError: another process became the owner, or the storage does not answer.
        """
        from bert_jax.readers import storage

        if not self._owner:
            return
        owner = storage.read_url(f"{self.url}/{OWNER}")
        if owner != self._owner:
            new_owner = owner.decode(errors="replace").split(" ", 1)[-1] if owner else "unknown"
            raise UserError(
                f"{self.url}: another process trains here since (host and process {new_owner}), so this process stops "
                "before its next checkpoint; if both are meant to run, give each its own --workdir"
            )
        names = _finished_files(self.directory)
        present = {name: _size_and_time(self.directory / name) for name in names}
        changed = [name for name in names if self._pushed.get(name) != present[name]]
        _upload_files(self.directory, changed, self.url)
        removed = self._pushed.keys() - present.keys() | self._states_without_checkpoint(present)
        for last in (True, False):  # the completing file is removed first, so a half-removed directory is not complete
            gone = [name for name in removed if bool(LAST.fullmatch(name)) == last]
            _call_in_threads(lambda name: storage.remove(f"{self.url}/{name}"), gone)
        self._pushed = present
        self._remote = {name: version for name, version in self._remote.items() if name not in removed}

    def _states_without_checkpoint(self, present: Collection[str]) -> set[str]:
        """Return the array files at the URL that were never downloaded, and whose local checkpoint was removed."""
        checkpoint_by_file = {name: match[1] for name in self._remote if (match := STATE.fullmatch(name))}
        return {
            name
            for name, checkpoint in checkpoint_by_file.items()
            if name not in self._fetched and f"{checkpoint}/{COMMITTED}" not in present
        }


def local_copy(path_or_url: str | os.PathLike[str]) -> pathlib.Path:
    """Return a local directory of a run or a model: the path itself, or a copy of the small files at a URL.

    Raises:
        UserError: the URL has an unsupported kind, or the storage does not answer.
    """
    text = os.fspath(path_or_url)
    if refusal := reason_not_a_local_path(text, run=True):
        raise UserError(refusal)
    if "://" not in text:
        return pathlib.Path(path_or_url)
    url = text.rstrip("/")
    mirror = next((mirror for mirror in _open if mirror.url == url), None) or Mirror(url)
    mirror.download_new_files()
    return mirror.directory


@contextlib.contextmanager
def directory_to_upload(path_or_url: str) -> Iterator[pathlib.Path]:
    """Yield a directory to write: the path itself, or a temporary directory that is uploaded to a URL at the end.

    Raises:
        UserError: the URL has files already, or the storage does not answer.
    """
    from bert_jax.readers import storage

    if "://" not in path_or_url:
        yield pathlib.Path(path_or_url)
        return
    url = path_or_url.rstrip("/")
    if storage.list_file_versions(url):
        raise UserError(f"{url} exists already; name another --output")
    with tempfile.TemporaryDirectory(prefix="bert_jax-") as folder:
        directory = pathlib.Path(folder) / "output"
        SHOWN[str(directory)] = url
        yield directory
        _upload_files(directory, _finished_files(directory), url)


def mirror_of(directory: pathlib.Path) -> Mirror | None:
    """Return the mirror whose local copy contains a directory; None if the directory is not a copy of a URL."""
    return next((mirror for mirror in _open if mirror.directory in (directory, *directory.parents)), None)


def checkpoints_directory(workdir: pathlib.Path) -> Any:
    """Return the directory of a run's checkpoints, as an absolute path or, for a URL, as a path of `etils.epath`.

    Raises:
        UserError: the name of the directory is not UTF-8, so the libraries for checkpoints cannot open it.
    """
    if re.search("[\ud800-\udfff]", str(workdir.absolute())):
        raise UserError(f"{workdir}: this name is not UTF-8; rename the directory (mv), or choose another")
    mirror = mirror_of(workdir)
    if mirror is None or mirror.copies_checkpoints:
        return workdir.absolute() / "checkpoints"
    from etils import epath

    return epath.Path(mirror.url) / workdir.relative_to(mirror.directory) / "checkpoints"


def _locked_cache_directory(url: str) -> pathlib.Path:
    """Return an empty cache directory for a URL; this process locks the directory until it ends."""
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    for index in itertools.count():
        slot = (user_cache() / "runs" / name / str(index)).resolve()
        slot.mkdir(parents=True, exist_ok=True)
        lock = os.open(slot / ".lock", os.O_RDWR | os.O_CREAT, 0o600)  # the lock is held as long as the process lives
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        shutil.rmtree(slot / "files", ignore_errors=True)
        directory = slot / "files" / url.partition("://")[2]  # ends like the URL, because reports use this name
        directory.mkdir(parents=True)
        return directory
    raise AssertionError


def _files_to_copy(versions: dict[str, str], with_checkpoints: bool) -> dict[str, str]:
    """Return name -> version of the files to copy; directories that a killed process uploaded in part are left out."""
    left_out = NOT_MIRRORED if with_checkpoints else NOT_MIRRORED | {"checkpoints"}
    folders = {name: pathlib.PurePosixPath(name).parent for name in versions if name and not name.endswith("/")}
    for name in folders:  # object storage allows any name; the copy of such a file would be outside of the directory
        if name.startswith("/") or ".." in pathlib.PurePosixPath(name).parts:
            raise UserError(f"{name!r} is not a valid file name; remove this object, or choose another URL")
    complete = {str(folder) for name, folder in folders.items() if LAST.fullmatch(name)}
    return {
        name: versions[name]
        for name, folder in folders.items()
        if name != OWNER
        and not left_out & set(folder.parts)
        and all(str(part) in complete for part in (folder, *folder.parents) if SEALED.fullmatch(str(part)))
    }


def _finished_files(directory: pathlib.Path) -> list[str]:
    """Return the names of the files below a directory, without locks and unfinished files."""
    paths = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    return [path.as_posix() for path in paths if not any(UNFINISHED.match(part) for part in path.parts)]


def _upload_files(directory: pathlib.Path, names: Iterable[str], url: str) -> None:
    """Upload files to a URL; the files that complete a directory are uploaded last."""
    from bert_jax.readers import storage

    for last in (False, True):
        chosen = [name for name in names if bool(LAST.fullmatch(name)) == last]
        _call_in_threads(lambda name: storage.upload(directory / name, f"{url}/{name}"), chosen)


class _FileStat(NamedTuple):
    """The size of a file, and the time of its last change in nanoseconds."""

    num_bytes: int
    modified_ns: int


def _size_and_time(path: pathlib.Path) -> _FileStat:
    """Return the size of a file in bytes, and the time of its last change in nanoseconds."""
    status = path.stat()
    return _FileStat(status.st_size, status.st_mtime_ns)


def _call_in_threads(call: Callable[[str], None], names: Iterable[str]) -> None:
    """Call `call(name)` for all names, AT_ONCE at a time; raise the first error."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(call, names))
