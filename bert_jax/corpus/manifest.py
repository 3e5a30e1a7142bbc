"""The manifest of a corpus: counts, settings, and the digests of all files; each append adds a manifest.

`manifest.json` describes the newest snapshot. The entry `snapshots` of this file names the manifests of the earlier
snapshots, oldest first; the named files stay unchanged. A snapshot has the shards of the previous snapshot, further
shards, and an index of all these shards.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax import strict_json
from bert_jax.errors import UserError
from bert_jax.files import damaged_files, read_file

FORMAT_VERSION = 1
WORDS_VERSION = 2  # like version 1, but records also store which tokens begin a word that a segmenter found
MANIFEST = "manifest.json"
SHORT = 12  # number of hex digits of a fingerprint in messages and in `CORPUS@FINGERPRINT`
_NAMED = re.compile(r"(.+)@([0-9a-f]{8,64})")


class CorpusAndSnapshot(NamedTuple):
    """The directory or URL of a corpus, and the fingerprint of a snapshot; "" means the newest snapshot."""

    corpus: str
    snapshot: str


def parse_corpus_and_snapshot(corpus: str) -> CorpusAndSnapshot:
    """Split `CORPUS@FINGERPRINT` into the directory or URL, and the fingerprint, which is "" if it is absent."""
    match = None if pathlib.Path(corpus).exists() else _NAMED.fullmatch(corpus)
    return CorpusAndSnapshot(match[1], match[2]) if match else CorpusAndSnapshot(corpus, "")


def read_manifest(directory: pathlib.Path, snapshot: str = "") -> dict[str, Any]:
    """Return the manifest of a corpus.

    Args:
        directory: directory of the corpus.
        snapshot: the fingerprint of a snapshot, or the beginning of the fingerprint; "": the newest snapshot.

    Raises:
        UserError: the manifest is missing, changed, or of another format; there is no such snapshot.
    """
    if not directory.is_dir() or (directory / "run.json").is_file():
        raise _no_corpus_error(directory)
    manifest = _read_manifest_file(directory, MANIFEST)
    name = snapshot_manifest_name(manifest, snapshot, str(directory)) if snapshot else MANIFEST
    return manifest if name == MANIFEST else _read_manifest_file(directory, name)


def _no_corpus_error(directory: pathlib.Path) -> UserError:
    """Return the UserError for a path that is no directory, or the directory of a run."""
    if directory.is_dir():
        return UserError(
            f"{directory}: a run, not a corpus; give the corpus, or show the run: "
            f"`bert-jax report {directory} --output FILE.html`"
        )
    if directory.is_file():
        return UserError(
            f"{directory}: a file, not a corpus; make a corpus of it with `prepare --input`, or give text as "
            "--config.data.text=FILES"
        )
    return UserError(f"{directory}: no such corpus directory; make a corpus with `prepare --output {directory}`")


def snapshot_fingerprints(manifest: Mapping[str, Any]) -> list[str]:
    """Return the fingerprints of all snapshots that the newest manifest names, the newest last."""
    return [*(entry["fingerprint"] for entry in manifest.get("snapshots", ())), manifest["fingerprint"]]


def snapshot_manifest_name(manifest: Mapping[str, Any], snapshot: str, corpus: str) -> str:
    """Return the file name of a snapshot's manifest; the newest manifest of `corpus` lists these names.

    Raises:
        UserError: there is no such snapshot.
    """
    names = [*(entry["name"] for entry in manifest.get("snapshots", ())), MANIFEST]
    known = snapshot_fingerprints(manifest)
    matches = [name for name, value in zip(names, known, strict=True) if value.startswith(snapshot)]
    if not matches:
        shown = ", ".join(value[:SHORT] for value in known)
        raise UserError(f"{corpus}: no snapshot {snapshot}; it has {shown}, the newest last")
    return matches[-1]


def _read_manifest_file(directory: pathlib.Path, name: str) -> dict[str, Any]:
    """Return the manifest in the file `name`; raise UserError if it is missing, changed, or of another format."""
    path = directory / name
    try:
        manifest = strict_json.parse(read_file(path, strict_json.MAX_TABLE_BYTES).decode())
        version = manifest["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{directory}: no complete {name}, so not a corpus; {_advice_without_manifest(directory)}"
        ) from None
    if version not in (FORMAT_VERSION, WORDS_VERSION):
        raise UserError(
            f"{directory}: corpus format {version}, but this bert_jax reads the formats {FORMAT_VERSION} and "
            f"{WORDS_VERSION}; prepare it again"
        )
    try:
        unchanged = has_valid_seal(manifest)
        names = [*digests_of_training_files(manifest), *digests_of_other_files(manifest)]
    except (AttributeError, KeyError, TypeError):
        unchanged = False
    if not unchanged:
        old = isinstance(manifest, dict) and "seal" not in manifest
        reason = "has no seal, as before the first release" if old else "changed since it was written"
        raise UserError(f"{path}: {reason}; prepare the corpus again")
    for file_name in names:
        if not isinstance(file_name, str) or file_name != pathlib.PurePath(file_name).name:
            raise UserError(f"{path}: {file_name!r} is no plain file name; prepare the corpus again")
    return manifest


def _advice_without_manifest(directory: pathlib.Path) -> str:
    """Return advice about a directory without a manifest, by its other files."""
    hints = {
        "*/manifest.json": f"its subdirectories are corpora: give '{directory}/*'",
        "*.arrayrecord": "its preparation or copying was interrupted: run that again",
        "config.json": "the directory holds a model",
        "*.txt": "make a corpus of its texts with `prepare --input`",
    }
    known = (hint for pattern, hint in hints.items() if any(directory.glob(pattern)))
    return next(known, "make a corpus with `prepare`")


def has_valid_seal(manifest: Mapping[str, Any]) -> bool:
    """Return whether the fingerprint and the seal of a manifest match its content.

    AttributeError, KeyError or TypeError is raised for a value that is not a manifest.
    """
    return manifest_fingerprint(manifest) == manifest["fingerprint"] and manifest_seal(manifest) == manifest["seal"]


def verify_corpus(directory: pathlib.Path, on_read: Callable[[int], None] = lambda count: None) -> list[str]:
    """Read every file of all snapshots; return a line for each file that is missing or differs from its manifest.

    `on_read` is called with the number of bytes of each piece that was read. A copy in the cache has no files of
    signatures, since training does not read them.

    Raises:
        UserError: `read_manifest` raises it.
    """
    return damaged_files(directory, digests_of_all_files(directory), "the manifest", on_read=on_read)


def digests_of_all_files(directory: pathlib.Path) -> dict[str, str]:
    """Return file name -> hex SHA-256 of all files of all snapshots: shards, indexes, older manifests, signatures.

    The signatures are left out if their files were deleted.
    """
    newest, digests = read_manifest(directory), dict[str, str]()
    older = [_read_manifest_file(directory, entry["name"]) for entry in newest.get("snapshots", ())]
    for manifest in (*older, newest):
        digests |= digests_of_training_files(manifest) | digests_of_other_files(manifest)
    signatures = {entry["name"] for entry in newest["signatures"]}
    has_signatures = any((directory / name).exists() for name in signatures)
    return {name: digest for name, digest in digests.items() if has_signatures or name not in signatures}


def digests_of_training_files(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return file name -> hex SHA-256 of the shards and indexes, which training reads."""
    return {
        file["name"]: file["sha256"]
        for split in manifest["splits"].values()
        for file in (*split["shards"], split["index"])
    }


def digests_of_other_files(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return file name -> hex SHA-256 of signatures and of the manifests of older snapshots."""
    return {file["name"]: file["sha256"] for file in (*manifest["signatures"], *manifest.get("snapshots", ()))}


def manifest_fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of format, tokenizer digest, and the digests of all shards and indexes."""
    parts = {
        name: [part["dtype"], part["index"]["sha256"], *(shard["sha256"] for shard in part["shards"])]
        for name, part in manifest["splits"].items()
    }
    content = [manifest["format_version"], manifest["tokenizer"]["sha256"], parts]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def manifest_seal(manifest: Mapping[str, Any]) -> str:
    """Return the seal of a manifest: hex SHA-256 of its whole content except the seal."""
    content = json.dumps({name: value for name, value in manifest.items() if name != "seal"})
    return hashlib.sha256(json.dumps(json.loads(content), sort_keys=True).encode()).hexdigest()
