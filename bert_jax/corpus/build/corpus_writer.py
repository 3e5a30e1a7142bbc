"""Documents -> records -> shards -> index and manifest: the corpus that `corpus/store.py` describes and reads."""

import contextlib
import itertools
import json
import os
import pathlib
import uuid
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from types import TracebackType
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from bert_jax.corpus.store import MAX_RECORD
from bert_jax.corpus.store import MAX_SENTENCE
from bert_jax.corpus.store import SPLITS
from bert_jax.corpus.manifest import FORMAT_VERSION
from bert_jax.corpus.manifest import MANIFEST
from bert_jax.corpus.manifest import fingerprint
from bert_jax.corpus.manifest import seal
from bert_jax.files import sha256_of
from bert_jax.files import sync
from bert_jax.files import write_text

# One record per chunk gives random access; uncompressed files read 2.5 times as fast as zstd (docs/decisions/).
WRITER_OPTIONS = "group_size:1,uncompressed"
ROW = np.dtype("<u4")
INDEX = 3  # columns of a row that go to the index
COLUMNS = INDEX + 4
SIGNATURES = "signatures.npy"
# A row of signatures: the hash of the normal form of a document or piece of one, and whether a document begins.
CONTENT = np.dtype([("equal", "<u8", 2), ("begins", "?")])


# Name of a file -> type and parts of the array in it.
Signatures = Mapping[str, tuple[np.dtype, Iterable[np.ndarray]]]


class Base(NamedTuple):
    """A corpus that documents are added to: its directory, and its newest manifest."""

    directory: pathlib.Path
    manifest: Mapping[str, Any]

    @property
    def number(self) -> int:
        """Number of snapshots, which the names of added files have."""
        return len(self.manifest.get("snapshots", ())) + 1

    @property
    def kept_name(self) -> str:
        """Name that its manifest has when a newer one takes the place."""
        return f"manifest.{self.number - 1}.json"

    def description(self) -> dict[str, Any]:
        """Return what the next manifest says about it."""
        return {
            "name": self.kept_name,
            "sha256": sha256_of(self.directory / MANIFEST),
            "fingerprint": self.manifest["fingerprint"],
            "documents": self.manifest["documents"],
        }


class PackedRecords(NamedTuple):
    """Documents as records.

    `rows`: uint32 [records, 7], the index row as in the corpus, and the hash of the normal form (16 bytes) of the
    document or piece that begins in the record; 0 where none begins, or where the hash is known from elsewhere.
    """

    records: list[bytes]
    rows: np.ndarray


class ShardInfo(NamedTuple):
    """A written shard; `_asdict()` is JSON. Its rows are beside it, in the file `rows_name`."""

    split: str
    partition: int
    block: int
    records: int
    documents: int  # that begin in the shard
    sentences: int
    tokens: int
    bytes: int
    sha256: str
    rows_sha256: str

    @property
    def name(self) -> str:
        """File name until `assemble_corpus` gives the final one; its order is that of the documents."""
        return f"{self.split}-{self.partition:05}-{self.block:05}.arrayrecord"

    @property
    def rows_name(self) -> str:
        """Name of the file of its rows, as in `PackedRecords`, without a header."""
        return f"{self.name}.rows"


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the narrowest type for every id: uint16 or uint32, little-endian."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def cut_sentences(lengths: np.ndarray, inside: np.ndarray | None = None) -> np.ndarray:
    """Return sentence lengths, int64 [sentences], with each over `MAX_SENTENCE` cut into several; the sum stays.

    No cut is before a token of `inside`, bool [sum of lengths], which begins within a character; None: no token does.
    """
    if not lengths.size or lengths.max() <= MAX_SENTENCE:
        return lengths
    found, token = list[int](), 0
    for length in lengths.tolist():
        end = token + length
        while end - token > MAX_SENTENCE:
            size = MAX_SENTENCE
            while inside is not None and size > 1 and inside[token + size]:
                size -= 1
            found.append(size)
            token += size
        found.append(end - token)
        token = end
    return np.array(found, np.int64)


def pack_document(
    lengths: np.ndarray,
    tokens: np.ndarray,
    begins: bool = True,
    content: bytes = bytes(16),
    words: np.ndarray | None = None,
) -> PackedRecords:
    """Return one document as records of at most `MAX_RECORD` tokens.

    Args:
        lengths: int64 [sentences], each from 1 to `MAX_SENTENCE`.
        tokens: uint16 or uint32 [sum of lengths].
        begins: False where the document has records already.
        content: hash of its normal form.
        words: bool [sum of lengths], whether each token begins a word; None: as its vocabulary marks it.
    """
    ends = np.cumsum(lengths)
    records, index = list[bytes](), list[tuple[int, ...]]()
    own: Sequence[int] = np.frombuffer(content, ROW).tolist()
    sentence, token = 0, 0
    while sentence < len(lengths):
        stop = int(np.searchsorted(ends, token + MAX_RECORD, side="right"))
        end = int(ends[stop - 1])
        header = np.array([stop - sentence], "<u4").tobytes() + lengths[sentence:stop].astype("<u2").tobytes()
        bits = b"" if words is None else np.packbits(words[token:end], bitorder="little").tobytes()
        records.append(header + tokens[token:end].tobytes() + bits)
        index.append((end - token, stop - sentence, begins and sentence == 0, *(own if sentence == 0 else (0,) * 4)))
        sentence, token = stop, end
    return PackedRecords(records, np.array(index, np.uint32).reshape(-1, COLUMNS))


def concatenate_records(parts: Sequence[PackedRecords]) -> PackedRecords:
    """Join several packed documents."""
    records = [record for part in parts for record in part.records]
    return PackedRecords(records, np.concatenate([np.zeros([0, COLUMNS], np.uint32), *(part.rows for part in parts)]))


class ShardWriter:
    """Writes one shard and its rows to disk under temporary names; `close` renames them.

    A context manager: leaving it before `close` removes the files. A shard that is written again has the same bytes.
    """

    def __init__(self, directory: pathlib.Path, split: str, partition: int, block: int):
        self._directory = directory
        self._info = ShardInfo(split, partition, block, 0, 0, 0, 0, 0, "", "")
        unique = uuid.uuid4().hex  # two processes may write the same shard at once
        self._shard = directory / f"{self._info.name}.{unique}.open"
        self._rows = directory / f"{self._info.rows_name}.{unique}.open"
        self._rows.touch()
        self._writer = ArrayRecordWriter(str(self._shard), WRITER_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def write(self, packed: PackedRecords) -> None:
        """Append records."""
        for record in packed.records:
            self._writer.write(record)
        with open(self._rows, "ab") as file:
            file.write(packed.rows.astype(ROW, copy=False).tobytes())
        info = self._info
        tokens, sentences, documents = packed.rows[:, :INDEX].sum(axis=0, dtype=np.int64).tolist()
        self._info = info._replace(
            records=info.records + len(packed.records),
            documents=info.documents + documents,
            sentences=info.sentences + sentences,
            tokens=info.tokens + tokens,
        )

    def close(self) -> ShardInfo:
        """Complete the shard; it is on disk under its name when this returns."""
        self._writer.close()
        sync(self._shard)
        sync(self._rows)
        size = self._shard.stat().st_size
        info = self._info._replace(bytes=size, sha256=sha256_of(self._shard), rows_sha256=sha256_of(self._rows))
        os.replace(self._rows, self._directory / info.rows_name)
        os.replace(self._shard, self._directory / info.name)
        return info

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self._writer.close()
        for path in (self._shard, self._rows):
            path.unlink(missing_ok=True)


def write_shard(
    directory: str | os.PathLike[str], split: str, partition: int, block: int, packed: Iterable[PackedRecords]
) -> ShardInfo:
    """Write the shard of the records, in order, into a directory, completely or not at all.

    Raises:
        OSError, RuntimeError: no space, or a directory that cannot be written.
    """
    with ShardWriter(pathlib.Path(directory), split, partition, block) as writer:
        for records in packed:
            writer.write(records)
        return writer.close()


def assemble_corpus(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    shards: Iterable[ShardInfo],
    dtype: np.dtype,
    summary: Mapping[str, Any],
    signatures: Signatures | None = None,
    base: Base | None = None,
) -> dict[str, Any]:
    """Make a corpus of shards: move them from `source` to `target`, and write indexes, signatures and manifest there.

    Args:
        source: directory with the shards and their rows.
        target: directory on the same file system that holds at most `tokenizer/`.
        shards: all shards, in any order; none of a split without records.
        dtype: of the token ids.
        summary: copied into the manifest; `summary['tokenizer']` needs `sha256` and `vocab_size`.
        signatures: of all documents; None: `contents_of` the rows.
        base: the corpus that the shards are added to; the manifest is that of all shards.

    Returns:
        The manifest as written.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    by_split = shards_by_split(shards)
    append = base.number if base else 0
    splits = write_indexes(source, target, by_split, dtype, base)
    if signatures is None:
        signatures = {SIGNATURES: (CONTENT, contents_of(source, by_split))}
    for split, own in by_split.items():
        for number, shard in enumerate(own):
            os.replace(source / shard.name, target / final_name(split, number, len(own), append))
    manifest = make_manifest(summary, splits, write_signatures(target, signatures, base), base)
    write_json(target / MANIFEST, manifest)
    for path in [*target.rglob("*"), target]:
        sync(path)
    return manifest


def shards_by_split(shards: Iterable[ShardInfo]) -> dict[str, list[ShardInfo]]:
    """Return the shards of each split, in the order of their documents."""
    ordered = sorted(shards, key=lambda shard: (shard.partition, shard.block))
    return {split: [shard for shard in ordered if shard.split == split] for split in SPLITS}


def final_name(split: str, number: int, num_shards: int, append: int = 0) -> str:
    """Return the file name of a shard in a corpus; `append`: how often something was added before and with it."""
    return f"{numbered(split, append)}-{number:05}-of-{num_shards:05}.arrayrecord"


def numbered(name: str, append: int) -> str:
    """Return `train.index.npy` or, for what is added later, `train.1.index.npy`."""
    stem, *suffixes = name.split(".")
    return ".".join([stem, *([str(append)] if append else []), *suffixes])


def write_indexes(
    source: pathlib.Path,
    target: pathlib.Path,
    by_split: Mapping[str, Sequence[ShardInfo]],
    dtype: np.dtype,
    base: Base | None = None,
) -> dict[str, Any]:
    """Write the index of each split into `target`; return the part of the manifest about the splits.

    Args:
        source: directory with the rows of the shards.
        target, dtype, base: as in `assemble_corpus`.
        by_split: from `shards_by_split`.
    """
    splits = {}
    for split, own in by_split.items():
        before = base.manifest["splits"][split] if base else None
        if base and before and not own:
            splits[split] = before
            continue
        append = base.number if base else 0
        index = target / numbered(f"{split}.index.npy", append)
        parts = [source / shard.rows_name for shard in own]
        write_index(index, parts, base.directory / before["index"]["name"] if base and before else None)
        splits[split] = split_manifest(split, own, dtype, index, append, before)
    return splits


def split_manifest(
    split: str,
    shards: Sequence[ShardInfo],
    dtype: np.dtype,
    index: pathlib.Path,
    append: int = 0,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the part of the manifest about a split; `before`: that of the corpus the shards are added to."""
    sums = {
        noun: sum(getattr(shard, noun) for shard in shards) + (before[noun] if before else 0)
        for noun in ("documents", "records", "sentences", "tokens")
    }
    own = [
        {
            "name": final_name(split, number, len(shards), append),
            "records": shard.records,
            "bytes": shard.bytes,
            "sha256": shard.sha256,
        }
        for number, shard in enumerate(shards)
    ]
    return {
        **sums,
        "dtype": dtype.str,
        "shards": [*(before["shards"] if before else ()), *own],
        "index": {"name": index.name, "sha256": sha256_of(index)},
    }


def make_manifest(
    summary: Mapping[str, Any],
    splits: Mapping[str, Any],
    signatures: Sequence[Mapping[str, str]],
    base: Base | None = None,
) -> dict[str, Any]:
    """Return the manifest with its fingerprint and seal, of `summarize`, `write_indexes` and `write_signatures`."""
    manifest = {"format_version": FORMAT_VERSION, **summary, "splits": splits, "signatures": signatures}
    if base:
        manifest["snapshots"] = [*base.manifest.get("snapshots", ()), base.description()]
    manifest = {**manifest, "fingerprint": fingerprint(manifest)}
    return {**manifest, "seal": seal(manifest)}


def write_index(path: pathlib.Path, parts: Sequence[pathlib.Path], before: pathlib.Path | None = None) -> None:
    """Write the index columns of the rows of several shards, after those of another index, for `np.load`."""
    old = [np.load(before, mmap_mode="r", allow_pickle=False)] if before else []
    rows = (np.fromfile(part, ROW).reshape(-1, COLUMNS)[:, :INDEX] for part in parts)
    save_parts(path, itertools.chain(old, rows), ROW, (INDEX,))


def contents_of(source: pathlib.Path, by_split: Mapping[str, Sequence[ShardInfo]]) -> Iterator[np.ndarray]:
    """Yield the hashes in the rows of each shard, `CONTENT` [documents and pieces]."""
    for shard in (shard for own in by_split.values() for shard in own):
        rows = np.fromfile(source / shard.rows_name, ROW).reshape(-1, COLUMNS)
        rows = rows[rows[:, INDEX:].any(axis=1)]
        own = np.zeros(len(rows), CONTENT)
        own["equal"] = np.ascontiguousarray(rows[:, INDEX:]).view("<u8")
        own["begins"] = rows[:, INDEX - 1]
        yield own


def write_signatures(target: pathlib.Path, signatures: Signatures, base: Base | None = None) -> list[dict[str, str]]:
    """Write the files of signatures; return the part of the manifest about all signatures."""
    found = list(base.manifest["signatures"]) if base else []
    for name, (dtype, parts) in signatures.items():
        path = target / numbered(name, base.number if base else 0)
        save_parts(path, parts, dtype)
        found.append({"name": path.name, "sha256": sha256_of(path)})
    return found


def save_parts(path: pathlib.Path, parts: Iterable[np.ndarray], dtype: np.dtype, columns: tuple[int, ...] = ()) -> None:
    """Write arrays, one after the other, as one for `np.load`; one is in memory at a time."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    rows = 0
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, *columns)})
        for part in parts:
            file.write(np.ascontiguousarray(part).tobytes())
            rows += len(part)
        file.seek(0)  # the header has room for any number
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, *columns)})


def write_json(path: pathlib.Path, content: Any) -> None:
    """Write a file that appears complete or not at all, and is on disk when this returns."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
