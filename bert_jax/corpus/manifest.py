"""The manifest of a corpus: counts, settings, and the digests of all files; a corpus that has grown has several.

`manifest.json` describes the newest snapshot. Its `snapshots` names the manifests of those before it, oldest first, as
they were written. A snapshot has the shards of the one before it and further ones, and an index of its own.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax import strict_json
from bert_jax.errors import UserError
from bert_jax.files import compare

FORMAT_VERSION = 1
WORDS_VERSION = 2  # the same, where a segmenter has found words: records also say which tokens begin a word
MANIFEST = "manifest.json"
SHORT = 12  # hex digits that name a snapshot
_NAMED = re.compile(r"(.+)@([0-9a-f]{8,64})")


def split_snapshot(place: str) -> tuple[str, str]:
    """Return directory or URL of a corpus, and the snapshot in `CORPUS@FINGERPRINT`; "" for the newest."""
    found = None if pathlib.Path(place).exists() else _NAMED.fullmatch(place)
    return (found[1], found[2]) if found else (place, "")


def read_manifest(directory: pathlib.Path, snapshot: str = "") -> dict[str, Any]:
    """Return the manifest of a corpus.

    Args:
        directory: of the corpus.
        snapshot: its fingerprint, or the beginning of it; "": the newest.

    Raises:
        UserError: it is missing, of another format, or changed; no such snapshot.
    """
    if not directory.is_dir():
        raise UserError(f"{directory}: no such corpus directory; make one with `prepare --output {directory}`")
    manifest = _read(directory, MANIFEST)
    name = snapshot_file(manifest, snapshot)
    if name is None:
        known = ", ".join(one[:SHORT] for one in fingerprints(manifest))
        raise UserError(f"{directory}: no snapshot {snapshot}; it has {known}, the newest last")
    return manifest if name == MANIFEST else _read(directory, name)


def fingerprints(manifest: Mapping[str, Any]) -> list[str]:
    """Return the fingerprints of all snapshots, the newest last."""
    return [*(one["fingerprint"] for one in manifest.get("snapshots", ())), manifest["fingerprint"]]


def snapshot_file(manifest: Mapping[str, Any], snapshot: str) -> str | None:
    """Return the name of the manifest of a snapshot, from the newest manifest; None where there is no such snapshot."""
    names = [*(one["name"] for one in manifest.get("snapshots", ())), MANIFEST]
    found = [name for name, one in zip(names, fingerprints(manifest), strict=True) if one.startswith(snapshot)]
    return found[-1] if found else None


def _read(directory: pathlib.Path, name: str) -> dict[str, Any]:
    try:
        manifest = strict_json.parse((directory / name).read_text(encoding="utf-8"))
        version = manifest["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        hints = {
            "*/manifest.json": f"its subdirectories are corpora: give '{directory}/*'",
            "*.arrayrecord": "its preparation or copying was interrupted: run that again",
            "": "make a corpus with `prepare`",
        }
        hint = next(hint for pattern, hint in hints.items() if not pattern or any(directory.glob(pattern)))
        raise UserError(f"{directory}: no complete {name}, so not a corpus; {hint}") from None
    if version not in (FORMAT_VERSION, WORDS_VERSION):
        raise UserError(
            f"{directory}: corpus format {version}, but this bert_jax reads the formats {FORMAT_VERSION} and "
            f"{WORDS_VERSION}; prepare it again"
        )
    try:
        same = is_unchanged(manifest)
        names = [*digests_of(manifest), *other_digests(manifest)]
    except (AttributeError, KeyError, TypeError):
        same = False
    if not same:
        raise UserError(f"{directory / name}: changed since it was written; prepare the corpus again")
    for one in names:
        if not isinstance(one, str) or one != pathlib.PurePath(one).name:
            raise UserError(f"{directory / name}: {one!r} is no plain file name; prepare the corpus again")
    return manifest


def is_unchanged(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest has the fingerprint and the seal that it says; the first ones had no seal.

    Raises AttributeError, KeyError or TypeError where it is not a manifest.
    """
    return fingerprint(manifest) == manifest["fingerprint"] and manifest.get("seal") in (None, seal(manifest))


def verify(directory: pathlib.Path, read: Callable[[int], None] = lambda count: None) -> list[str]:
    """Read every file of all snapshots; return a line for each that is missing or differs from its manifest.

    `read` is called with the number of bytes of each piece that was read. A staged copy has no signatures, which
    training does not read.

    Raises:
        UserError: as `read_manifest`.
    """
    return compare(directory, all_digests(directory), "the manifest", read=read)


def all_digests(directory: pathlib.Path) -> dict[str, str]:
    """Return file name -> hex SHA-256 of the shards, indexes and older manifests of all snapshots, and of signatures.

    The latter are left out where there is no file of them.
    """
    newest, found = read_manifest(directory), dict[str, str]()
    for one in fingerprints(newest):
        manifest = read_manifest(directory, one)
        found |= digests_of(manifest) | other_digests(manifest)
    signatures = {one["name"] for one in newest.get("signatures", ())}
    none_there = not any((directory / name).exists() for name in signatures)
    return {name: digest for name, digest in found.items() if not (none_there and name in signatures)}


def digests_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return file name -> hex SHA-256 of the shards and indexes, which training reads."""
    return {
        one["name"]: one["sha256"] for part in manifest["splits"].values() for one in (*part["shards"], part["index"])
    }


def other_digests(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return file name -> hex SHA-256 of signatures and of the manifests of older snapshots."""
    return {one["name"]: one["sha256"] for key in ("signatures", "snapshots") for one in manifest.get(key, ())}


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of format, tokenizer digest, and the digests of all shards and indexes."""
    parts = {
        name: [part["dtype"], part["index"]["sha256"], *(shard["sha256"] for shard in part["shards"])]
        for name, part in manifest["splits"].items()
    }
    content = [manifest["format_version"], manifest["tokenizer"]["sha256"], parts]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def seal(manifest: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of all else that a manifest says."""
    content = json.dumps({name: value for name, value in manifest.items() if name != "seal"})
    return hashlib.sha256(json.dumps(json.loads(content), sort_keys=True).encode()).hexdigest()
