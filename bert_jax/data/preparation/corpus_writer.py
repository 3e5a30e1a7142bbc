"""Writes the corpus store that corpus.py describes and reads: documents -> records -> shards -> index and manifest."""

import contextlib
import json
import os
import pathlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from bert_jax.data.corpus import FORMAT_VERSION, MAX_RECORD, MAX_SENTENCE, SPLITS, fingerprint, sha256_of

# One record per chunk gives random access; uncompressed files read 2.5 times as fast as zstd (docs/decisions/).
WRITER_OPTIONS = "group_size:1,uncompressed"
COPY_BYTES = 1 << 20
ROW = np.dtype("<u4")


class Packed(NamedTuple):
    """Documents as records, ready to be written: `rows` is uint32 [records, 3] as in the store."""

    records: list[bytes]
    rows: np.ndarray


class ShardFacts(NamedTuple):
    """What is known of a written shard; `_asdict()` is JSON. Its index rows lie beside it, in the file `rows_name`."""

    split: str
    part: int
    block: int
    records: int
    documents: int  # that begin in it
    sentences: int
    tokens: int
    bytes: int
    sha256: str
    rows_sha256: str

    @property
    def name(self) -> str:
        """Of the file until `finish` gives it its number: shards sorted by it are in the order of their documents."""
        return f"{self.split}-{self.part:05}-{self.block:05}.arrayrecord"

    @property
    def rows_name(self) -> str:
        """Of the file of its index rows, '<u4' [records, 3] without a header."""
        return f"{self.name}.rows"


def token_dtype(vocab_size: int) -> np.dtype:
    """The narrowest type that holds every id: uint16 or uint32, little-endian."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def cut_sentences(lengths: np.ndarray) -> np.ndarray:
    """Sentence lengths int64 [sentences] with every one over `MAX_SENTENCE` cut into several; the sum is kept."""
    if not lengths.size or lengths.max() <= MAX_SENTENCE:
        return lengths
    pieces = np.maximum(-(-lengths // MAX_SENTENCE), 1)
    cut = np.full(pieces.sum(), MAX_SENTENCE, np.int64)
    cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * MAX_SENTENCE
    return cut


def pack_document(lengths: np.ndarray, tokens: np.ndarray, begins: bool = True) -> Packed:
    """One document as records of at most `MAX_RECORD` tokens.

    Args:
        lengths: int64 [sentences], each from 1 to `MAX_SENTENCE`.
        tokens: uint16 or uint32 [sum of lengths].
        begins: False where records of the same document went before.
    """
    ends = np.cumsum(lengths)
    records, index = [], []
    sentence, token = 0, 0
    while sentence < len(lengths):
        stop = int(np.searchsorted(ends, token + MAX_RECORD, side="right"))
        end = int(ends[stop - 1])
        header = np.array([stop - sentence], "<u4").tobytes() + lengths[sentence:stop].astype("<u2").tobytes()
        records.append(header + tokens[token:end].tobytes())
        index.append((end - token, stop - sentence, begins and sentence == 0))
        sentence, token = stop, end
    return Packed(records, np.array(index, np.uint32).reshape(-1, 3))


def concatenate(parts: Sequence[Packed]) -> Packed:
    """Several packed documents as one."""
    records = [record for part in parts for record in part.records]
    return Packed(records, np.concatenate([np.zeros([0, 3], np.uint32), *(part.rows for part in parts)]))


class ShardWriter:
    """Writes one shard and its index rows under temporary names, without holding them; `close` gives the right ones.

    A context manager: leaving it before `close` removes what was written. Written again, a shard is the same file.
    """

    def __init__(self, directory: pathlib.Path, split: str, part: int, block: int):
        self._directory = directory
        self._facts = ShardFacts(split, part, block, 0, 0, 0, 0, 0, "", "")
        unique = uuid.uuid4().hex  # two processes may write the same shard at once
        self._shard = directory / f"{self._facts.name}.{unique}.open"
        self._rows = directory / f"{self._facts.rows_name}.{unique}.open"
        self._rows.touch()
        self._writer = ArrayRecordWriter(str(self._shard), WRITER_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def write(self, packed: Packed) -> None:
        """Appends records."""
        for record in packed.records:
            self._writer.write(record)
        with open(self._rows, "ab") as file:
            file.write(packed.rows.astype(ROW, copy=False).tobytes())
        facts = self._facts
        tokens, sentences, documents = packed.rows.sum(axis=0, dtype=np.int64).tolist()
        self._facts = facts._replace(
            records=facts.records + len(packed.records),
            documents=facts.documents + documents,
            sentences=facts.sentences + sentences,
            tokens=facts.tokens + tokens,
        )

    def close(self) -> ShardFacts:
        """Completes the shard; it is on the disk under its name when this returns."""
        self._writer.close()
        sync(self._shard)
        sync(self._rows)
        size = self._shard.stat().st_size
        facts = self._facts._replace(bytes=size, sha256=sha256_of(self._shard), rows_sha256=sha256_of(self._rows))
        os.replace(self._rows, self._directory / facts.rows_name)
        os.replace(self._shard, self._directory / facts.name)
        return facts

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self._writer.close()
        for path in (self._shard, self._rows):
            path.unlink(missing_ok=True)


def write_shard(
    directory: str | os.PathLike[str], split: str, part: int, block: int, packed: Iterable[Packed]
) -> ShardFacts:
    """Writes the shard of the records given, in that order, into a directory, whole or not at all.

    Raises:
        OSError, RuntimeError: no room, or a place that cannot be written.
    """
    with ShardWriter(pathlib.Path(directory), split, part, block) as writer:
        for records in packed:
            writer.write(records)
        return writer.close()


def finish(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    shards: Iterable[ShardFacts],
    dtype: np.dtype,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """Makes a corpus of shards: moves them from `source` to `target`, and writes indexes and manifest there.

    Args:
        source: directory with the shards and their index rows.
        target: directory that holds nothing but `tokenizer/`, on the same file system.
        shards: all of them, in any order; none of a split without records.
        dtype: of the token ids.
        facts: goes into the manifest as it is; `facts['tokenizer']` needs `sha256` and `vocab_size`.

    Returns:
        The manifest as written.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    splits: dict[str, Any] = {}
    for split, own in in_order(shards).items():
        index = target / f"{split}.index.npy"
        write_index(index, [(source / shard.rows_name, shard.records) for shard in own])
        for number, shard in enumerate(own):
            os.replace(source / shard.name, target / final_name(split, number, len(own)))
        splits[split] = describe_split(split, own, dtype, sha256_of(index))
    manifest = manifest_of(facts, splits)
    write_json(target / "manifest.json", manifest)
    for path in [*target.rglob("*"), target]:
        sync(path)
    return manifest


def in_order(shards: Iterable[ShardFacts]) -> dict[str, list[ShardFacts]]:
    """The shards of each split, in the order of their documents."""
    ordered = sorted(shards, key=lambda shard: (shard.part, shard.block))
    return {split: [shard for shard in ordered if shard.split == split] for split in SPLITS}


def final_name(split: str, number: int, of: int) -> str:
    """Of a shard in a corpus."""
    return f"{split}-{number:05}-of-{of:05}.arrayrecord"


def describe_split(split: str, shards: Sequence[ShardFacts], dtype: np.dtype, index_sha256: str) -> dict[str, Any]:
    """The split's part of the manifest."""
    return {
        **{
            unit: sum(getattr(shard, unit) for shard in shards)
            for unit in ("documents", "records", "sentences", "tokens")
        },
        "dtype": dtype.str,
        "shards": [
            {
                "name": final_name(split, number, len(shards)),
                "records": shard.records,
                "bytes": shard.bytes,
                "sha256": shard.sha256,
            }
            for number, shard in enumerate(shards)
        ],
        "index": {"name": f"{split}.index.npy", "sha256": index_sha256},
    }


def manifest_of(facts: Mapping[str, Any], splits: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest, complete with the fingerprint; of facts as in `finish`, and of `describe_split` for each split."""
    manifest = {"format_version": FORMAT_VERSION, **facts, "splits": splits}
    return {**manifest, "fingerprint": fingerprint(manifest)}


def write_index(path: pathlib.Path, parts: Sequence[tuple[pathlib.Path, int]]) -> None:
    """The index rows of several shards, (file, records) each, as one uint32 [records, 3] that `np.load` reads."""
    with open(path, "wb") as file:
        shape = (sum(records for _, records in parts), 3)
        header = {"descr": ROW.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for part, _ in parts:
            with open(part, "rb") as rows:
                while data := rows.read(COPY_BYTES):
                    file.write(data)


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes a file that appears whole or not at all, and is on the disk when this returns."""
    partial = path.with_name(f"{path.name}.open")
    partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sync(partial)
    os.replace(partial, path)
    sync(path.parent)


def sync(path: pathlib.Path) -> None:
    """Returns when the file or directory is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
