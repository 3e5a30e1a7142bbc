"""A corpus on object storage -> a copy on this machine, checked against the digests of its manifest."""

import concurrent.futures
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.corpus.manifest import (
    MANIFEST,
    digests_of_training_files,
    has_valid_seal,
    read_manifest,
    snapshot_fingerprints,
    snapshot_manifest_name,
)
from bert_jax.errors import UserError, writing
from bert_jax.files import new_file, sha256_of, user_cache

# The imports of readers and tokenizer are inside functions, because readers and tokenizer load large libraries, which a
# local corpus does not need.

FILES_AT_ONCE = 8
PAUSE = 1.0  # seconds between two measurements of the size of a copy that is being made
ShowProgress = Callable[[str, int, int | None, str], None]  # (stage, done, total, unit), as in `Console.progress`
TOKENIZER = "tokenizer"


class _RemoteCorpus(NamedTuple):
    """A corpus at a URL: its manifest, and the facts that a copy is checked against."""

    url: str
    manifest: bytes
    digests: dict[str, str]  # file name -> hex SHA-256, for all files except the manifest
    tokenizer_sha256: str  # `Tokenizer.sha256`, which is not the digest of a file
    num_bytes: int  # total size of the shards that are copied


def copy_corpus_to_cache(
    url: str,
    cache: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
    snapshot: str = "",
    progress: ShowProgress = lambda what, done, total, unit: None,
    only_signatures: bool = False,
) -> pathlib.Path:
    """Return a local directory with the corpus at a URL (gs://, s3://, file://, memory:// ...).

    The corpus is copied into the cache once, and every call compares all files with the digests of the manifest. The
    manifest is copied last, so an interrupted copy is not a valid corpus; the next call keeps the complete files and
    copies the remaining files. One process of a machine copies while the other processes wait. Copies of earlier
    snapshots of the corpus stay in the cache until the user deletes them.

    Args:
        url: URL of the corpus.
        cache: directory of the copies; None: `corpora` in the user's cache.
        say: function that prints a line; called when files are copied.
        snapshot: beginning of the fingerprint of a snapshot; "": the newest snapshot. The copy has the chosen snapshot
            and all earlier snapshots.
        progress: called as the copy grows, in the copying process and in the waiting processes.
        only_signatures: True to copy the signatures and not the documents; the copy is in a separate directory, in
            which `open_corpus` finds no documents.

    Raises:
        UserError: the URL has no corpus; the corpus cannot be read, is damaged or changes during the copy; the disk has
            too little space.
    """
    remote = _read_remote_manifest_and_tokenizer_digests(url.rstrip("/"), snapshot, only_signatures)
    folder = pathlib.Path(cache) if cache else user_cache() / "corpora"
    name = f"{remote.url.rsplit('/', 1)[-1]}-{hashlib.sha256(remote.manifest).hexdigest()[:16]}"
    name += "-signatures" if only_signatures else ""
    directory = folder / name
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(lock):
        growth = _GrowthReport(directory, remote.num_bytes, progress)
        _wait_for_lock(lock, fcntl.LOCK_SH, growth)  # many processes may check at once; the lock ends with the process
        if _missing_files(remote, directory):
            _wait_for_lock(lock, fcntl.LOCK_EX, growth)
            _copy_missing_files(remote, directory, say, growth)
    return directory


def read_snapshot_fingerprints(corpus: str) -> list[str]:
    """Return the fingerprints of all snapshots of the corpus in a directory or at a URL, the newest last."""
    if "://" not in corpus:
        return snapshot_fingerprints(read_manifest(pathlib.Path(corpus)))
    return snapshot_fingerprints(_download_manifest(corpus.rstrip("/"), MANIFEST)[1])


class _GrowthReport:
    """Report of the progress of a copy: the size of its directory. A copy that hangs reports nothing."""

    def __init__(self, directory: pathlib.Path, num_bytes: int, progress: ShowProgress):
        self._directory, self._num_bytes, self._progress, self._reported = directory, num_bytes, progress, 0

    def update(self) -> None:
        """Report the size of the directory if it has changed."""
        size = 0
        for path in self._directory.rglob("*"):
            with contextlib.suppress(OSError):  # the file was renamed meanwhile
                size += path.stat().st_size
        if size != self._reported:
            self._reported = size
            self._progress("copying the corpus", size // 10**6, self._num_bytes // 10**6, "MB")


def _wait_for_lock(lock: int, mode: int, growth: _GrowthReport) -> None:
    """Lock a file; while another process holds a conflicting lock, wait and report the growth of the copy."""
    while True:
        try:
            return fcntl.flock(lock, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_UN)  # two waiting processes that keep a shared lock would wait forever
            growth.update()
            time.sleep(PAUSE)


class _DownloadedManifest(NamedTuple):
    """A manifest as bytes, and parsed."""

    content: bytes
    manifest: dict[str, Any]


def _download_manifest(url: str, name: str) -> _DownloadedManifest:
    """Return a manifest at a URL, as bytes and parsed."""
    try:
        content = _download(f"{url}/{name}")
        manifest = strict_json.parse(content.decode())
        if not has_valid_seal(manifest) or any("/" in file for file in digests_of_training_files(manifest)):
            raise ValueError("changed since it was written")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{url}/{name}: not the manifest of a corpus ({error}); prepare the corpus again") from None
    return _DownloadedManifest(content, manifest)


def _read_remote_manifest_and_tokenizer_digests(url: str, snapshot: str, only_signatures: bool) -> _RemoteCorpus:
    """Read the manifest at a URL, and the files of the tokenizer, since the manifest lacks their digests.

    With `only_signatures`, the digests are the digests of the signatures and of the tokenizer.
    """
    from bert_jax.readers import storage

    content, manifest = _download_manifest(url, MANIFEST)
    name = snapshot_manifest_name(manifest, snapshot, url)
    if name != MANIFEST:
        content, manifest = _download_manifest(url, name)
    try:
        digests = {entry["name"]: entry["sha256"] for entry in manifest["signatures"]}
        if not only_signatures:
            digests = digests_of_training_files(manifest)
            for older in manifest.get("snapshots", ()):
                digests |= {
                    older["name"]: older["sha256"],
                    **digests_of_training_files(_download_manifest(url, older["name"])[1]),
                }
        tokenizer_sha256 = manifest["tokenizer"]["sha256"]
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
        num_bytes = 0 if only_signatures else sum(shard["bytes"] for shard in shards)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{url}/{MANIFEST}: not the manifest of a corpus ({error}); prepare the corpus again") from None
    for file in storage.match_files(f"{url}/{TOKENIZER}"):
        digests[f"{TOKENIZER}/{file.rsplit('/', 1)[-1]}"] = hashlib.sha256(_download(file)).hexdigest()
    return _RemoteCorpus(url, content, digests, tokenizer_sha256, num_bytes)


def _download(url: str) -> bytes:
    """Return the content of the file at a URL; raise UserError if the file does not exist."""
    from bert_jax.readers import storage

    content = storage.read_url(url)
    if content is None:
        raise UserError(f"{url}: no such file; check the URL")
    return content


def _missing_files(remote: _RemoteCorpus, directory: pathlib.Path) -> list[str]:
    """Return the names of the files that are absent or differ from their digests; the manifest is last."""
    digests = {**remote.digests, MANIFEST: hashlib.sha256(remote.manifest).hexdigest()}
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        intact = pool.map(lambda name: _is_intact(directory / name, digests[name]), digests)
        return [name for name, is_intact in zip(digests, intact, strict=True) if not is_intact]


def _is_intact(path: pathlib.Path, digest: str) -> bool:
    """Return whether a file exists and has the hex SHA-256 `digest`."""
    try:
        return sha256_of(path) == digest
    except OSError:
        return False


def _copy_missing_files(
    remote: _RemoteCorpus, directory: pathlib.Path, say: Callable[[str], None], growth: _GrowthReport
) -> None:
    """Copy the missing files of a remote corpus into a directory; skip files that another process copied meanwhile."""
    from bert_jax.tokenizer import load_tokenizer

    missing = _missing_files(remote, directory)
    files = [name for name in missing if name != MANIFEST]
    with writing(directory):
        for path in directory.glob(".*"):  # files that a killed copy left
            path.unlink()
        free = shutil.disk_usage(directory).free
    # An empty directory needs space for the whole corpus; a copy that is resumed needs less.
    if len(files) == len(remote.digests) and free < remote.num_bytes:
        raise UserError(
            f"{directory}: {free:,} bytes free, but {remote.url} has {remote.num_bytes:,}; "
            "set XDG_CACHE_HOME to a directory on another disk, or mount the storage and give the path"
        )
    if files:
        say(f"copying {len(files)} of {len(remote.digests)} files from {remote.url} to {directory}")
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        try:
            copies = [pool.submit(_copy_file, remote, name, directory) for name in files]
            while concurrent.futures.wait(copies, PAUSE, concurrent.futures.FIRST_EXCEPTION).not_done:
                growth.update()
                if any(copy.done() and copy.exception() for copy in copies):
                    break
            for copy in copies:
                copy.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure, no further copy starts
    if load_tokenizer(directory / TOKENIZER).sha256 != remote.tokenizer_sha256:
        raise UserError(f"{remote.url}/{TOKENIZER}: not the tokenizer of the manifest; prepare the corpus again")
    if MANIFEST in missing:
        with writing(directory), new_file(directory / MANIFEST, binary=True) as file:
            file.write(remote.manifest)


def _copy_file(remote: _RemoteCorpus, name: str, directory: pathlib.Path) -> None:
    """Copy one file of a remote corpus; the file gets its name only after its digest is checked."""
    from bert_jax.readers import storage

    partial = directory / f".{name.replace('/', '-')}"
    with writing(directory):
        (directory / name).parent.mkdir(exist_ok=True)
        storage.download(f"{remote.url}/{name}", partial)
        if not _is_intact(partial, remote.digests[name]):
            partial.unlink()
            raise UserError(f"{remote.url}/{name}: digest differs from the manifest; prepare or upload it again")
        os.replace(partial, directory / name)
