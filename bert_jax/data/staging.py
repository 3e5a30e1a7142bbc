"""A corpus on object storage -> a copy on this machine that its manifest vouches for."""

import concurrent.futures
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax.data import corpus
from bert_jax.data.sources import storage
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.errors import UserError, writing

FILES_AT_ONCE = 8
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"


class _Remote(NamedTuple):
    """A corpus at a URL, as its manifest tells of it."""

    url: str
    manifest: bytes
    digests: dict[str, str]  # file name -> hex SHA-256, of all but the manifest
    tokenizer: str  # digest of what its files say together
    bytes: int  # of the shards


def staged(
    place: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> pathlib.Path:
    """A local directory with the corpus at `place`; what is local already comes back as it is.

    A corpus at a URL (gs://, s3://, file://, memory:// ...) is copied into the cache once, and every file is compared
    with the manifest's digest each time. The manifest is copied last, so that a copy that was killed is no corpus; the
    next call keeps the files that are whole and copies the others. Processes of one machine wait for the one that
    copies. Copies of other states of the corpus stay in the cache until somebody deletes them.

    Args:
        place: a local path or a URL.
        cache: where copies are kept; None takes `bert_jax/corpora` in the user's cache.
        say: is told, in a line, when something is copied.

    Raises:
        UserError: no corpus at the URL, one that cannot be read, is damaged or changes meanwhile, or too little room.
    """
    if "://" not in str(place):
        return pathlib.Path(place)
    remote = _look(str(place).rstrip("/"))
    folder = pathlib.Path(cache) if cache else _user_cache()
    name = f"{remote.url.rsplit('/', 1)[-1]}-{hashlib.sha256(remote.manifest).hexdigest()[:16]}"
    directory = folder / name
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(lock):
        fcntl.flock(lock, fcntl.LOCK_SH)  # any number may look at once; ends with the process, however that ends
        if _missing(remote, directory):
            fcntl.flock(lock, fcntl.LOCK_EX)
            _copy(remote, directory, say)
    return directory


def _user_cache() -> pathlib.Path:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "bert_jax" / "corpora"


def _look(url: str) -> _Remote:
    """Reads the manifest at a URL, and the tokenizer's files, whose own digests the manifest does not have."""
    try:
        text = _read(f"{url}/{MANIFEST}")
        manifest = json.loads(text)
        parts = [part for split in manifest["splits"].values() for part in (*split["shards"], split["index"])]
        digests = {part["name"]: part["sha256"] for part in parts}
        if corpus.fingerprint(manifest) != manifest["fingerprint"] or any("/" in name for name in digests):
            raise ValueError("changed since it was written")
        tokenizer, size = manifest["tokenizer"]["sha256"], _shard_bytes(manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{url}/{MANIFEST}: not the manifest of a corpus ({error}); prepare the corpus again") from None
    for file in storage.match_files(f"{url}/{TOKENIZER}"):
        digests[f"{TOKENIZER}/{file.rsplit('/', 1)[-1]}"] = hashlib.sha256(_read(file)).hexdigest()
    return _Remote(url, text, digests, tokenizer, size)


def _read(url: str) -> bytes:
    try:
        with storage.open_file(url) as file:
            return file.read()
    except UserError:
        raise
    except Exception as error:  # each library has exceptions of its own
        raise UserError(f"{url}: cannot be read ({error}); is there a corpus, and may you read it?") from None


def _shard_bytes(manifest: Mapping[str, Any]) -> int:
    return sum(shard["bytes"] for split in manifest["splits"].values() for shard in split["shards"])


def _missing(remote: _Remote, directory: pathlib.Path) -> list[str]:
    """The files that are not there, or not as they should be; the manifest is the last of them."""
    digests = {**remote.digests, MANIFEST: hashlib.sha256(remote.manifest).hexdigest()}
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        whole = pool.map(lambda name: _digest(directory / name) == digests[name], digests)
        return [name for name, good in zip(digests, whole, strict=True) if not good]


def _copy(remote: _Remote, directory: pathlib.Path, say: Callable[[str], None]) -> None:
    """Copies what is missing, unless another process has done so meanwhile."""
    missing = _missing(remote, directory)
    files = [name for name in missing if name != MANIFEST]
    with writing(directory):
        for path in directory.glob(".*"):  # what a killed copy left behind
            path.unlink()
        free = shutil.disk_usage(directory).free
    # With nothing there the room needed is known; a copy that goes on needs less.
    if len(files) == len(remote.digests) and free < remote.bytes:
        raise UserError(f"{directory}: {free:,} bytes free, {remote.url} has {remote.bytes:,}; choose another place")
    if files:
        say(f"copying {len(files)} of {len(remote.digests)} files from {remote.url} to {directory}")
    with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        try:
            list(pool.map(lambda name: _fetch(remote, name, directory), files))
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure no more is begun
    if load_tokenizer(directory / TOKENIZER).sha256 != remote.tokenizer:
        raise UserError(f"{remote.url}/{TOKENIZER}: not the tokenizer of the manifest; prepare the corpus again")
    if MANIFEST in missing:
        with writing(directory):
            partial = directory / f".{MANIFEST}"
            partial.write_bytes(remote.manifest)
            os.replace(partial, directory / MANIFEST)


def _fetch(remote: _Remote, name: str, directory: pathlib.Path) -> None:
    """One file, under its name only where its digest is right."""
    partial = directory / f".{name.replace('/', '-')}"
    with writing(directory):
        (directory / name).parent.mkdir(exist_ok=True)
        storage.download(f"{remote.url}/{name}", partial)
        if _digest(partial) != remote.digests[name]:
            partial.unlink()
            raise UserError(f"{remote.url}/{name}: digest differs from the manifest; prepare or upload it again")
        os.replace(partial, directory / name)


def _digest(path: pathlib.Path) -> str:
    """Hex SHA-256, or '' where there is no such file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
