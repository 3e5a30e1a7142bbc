"""Documents -> records -> shards -> index and manifest: the corpus that `corpus/store.py` describes and reads."""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from bert_jax.corpus.manifest import FORMAT_VERSION, MANIFEST, manifest_fingerprint, manifest_seal
from bert_jax.corpus.store import MAX_RECORD, MAX_SENTENCE, SPLITS
from bert_jax.files import sha256_of, sync, write_text

# One record per chunk gives random access; uncompressed files are read 2.5 times as fast as zstd files.
WRITER_OPTIONS = "group_size:1,uncompressed"
ROW = np.dtype("<u4")
INDEX = 3  # number of columns of the index; these are the first columns of a row
COLUMNS = INDEX + 4
SIGNATURES, SKETCHES = "signatures.npy", "sketches.npy"
# A row of signatures: the hash of the normal form of a document or piece, and whether the row begins a document.
CONTENT = np.dtype([("equal", "<u8", 2), ("begins", "?")])
_NO_HASH = bytes(16)

# File name -> dtype and parts of the array in the file.
SignatureFiles = Mapping[str, tuple[np.dtype, Iterable[np.ndarray]]]


class BaseCorpus(NamedTuple):
    """A corpus that documents are added to: its directory, and its newest manifest."""

    directory: pathlib.Path
    manifest: Mapping[str, Any]

    @property
    def num_snapshots(self) -> int:
        """Number of snapshots; the file names of the next append contain this number."""
        return len(self.manifest.get("snapshots", ())) + 1

    @property
    def old_manifest_name(self) -> str:
        """File name of the current manifest after the next append."""
        return f"manifest.{self.num_snapshots - 1}.json"


class PackedRecords(NamedTuple):
    """Documents as records.

    `rows`: uint32 [records, 7], the columns of the corpus's index, then the hash (16 bytes) of the normal form of the
    document or piece that begins in the record. The hash is 0 if no document or piece begins in the record, or if the
    files of signatures contain the hash.
    """

    records: list[bytes]
    rows: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """A written shard; `vars(info)` is a JSON object. The file `rows_name` has the index rows of the shard.

    `documents`: number of documents that begin in the shard.
    """

    split: str
    partition: int
    block: int
    records: int = 0
    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    bytes: int = 0
    sha256: str = ""
    rows_sha256: str = ""

    @property
    def name(self) -> str:
        """File name of the shard until `assemble_corpus_from_shards` renames it."""
        return f"{self.partition:05}-{self.block:05}.{self.split}.arrayrecord"

    @property
    def rows_name(self) -> str:
        """Name of the file with the shard's rows: `PackedRecords.rows`, without a header."""
        return f"{self.name}.rows"


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the smallest dtype that holds all ids of a vocabulary: uint16 or uint32, little-endian."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def cut_long_sentence_lengths(lengths: np.ndarray, inside: np.ndarray | None = None) -> np.ndarray:
    """Return sentence lengths, int64 [sentences], with lengths above `MAX_SENTENCE` cut into parts.

    A sentence is not cut before a token that begins in the middle of a character. `inside`, bool [sum of lengths], is
    True for tokens that begin in the middle of a character; None: the text has no such token.
    """
    cut_lengths, token = list[int](), 0
    for length in lengths.tolist():
        end = token + length
        while end - token > MAX_SENTENCE:
            size = MAX_SENTENCE
            while inside is not None and size > 1 and inside[token + size]:
                size -= 1
            cut_lengths.append(size)
            token += size
        cut_lengths.append(end - token)
        token = end
    return np.array(cut_lengths, np.int64)


def pack_document(
    lengths: np.ndarray,
    tokens: np.ndarray,
    begins: bool = True,
    content_hash: bytes = _NO_HASH,
    words: np.ndarray | None = None,
) -> PackedRecords:
    """Return a document as records of at most `MAX_RECORD` tokens.

    Args:
        lengths: int64 [sentences], each from 1 to `MAX_SENTENCE`.
        tokens: uint16 or uint32 [sum of lengths].
        begins: True if the first returned record begins a document.
        content_hash: 16-byte hash of the normal form of the document; zeros if the files of signatures have the hash.
        words: bool [sum of lengths], True for a token that begins a word; None: the record stores no word starts.
    """
    ends = np.cumsum(lengths)
    records, rows = list[bytes](), list[tuple[int, ...]]()
    hash_columns = np.frombuffer(content_hash, ROW).tolist()
    sentence, token = 0, 0
    while sentence < len(lengths):
        stop = int(np.searchsorted(ends, token + MAX_RECORD, side="right"))
        end = int(ends[stop - 1])
        header = np.array([stop - sentence], "<u4").tobytes() + lengths[sentence:stop].astype("<u2").tobytes()
        bits = b"" if words is None else np.packbits(words[token:end], bitorder="little").tobytes()
        records.append(header + tokens[token:end].tobytes() + bits)
        is_first = sentence == 0
        rows.append((end - token, stop - sentence, begins and is_first, *(hash_columns if is_first else (0,) * 4)))
        sentence, token = stop, end
    return PackedRecords(records, np.array(rows, np.uint32).reshape(-1, COLUMNS))


def concatenate_records(parts: Sequence[PackedRecords]) -> PackedRecords:
    """Join several packed documents."""
    records = [record for part in parts for record in part.records]
    return PackedRecords(records, np.concatenate([np.zeros([0, COLUMNS], np.uint32), *(part.rows for part in parts)]))


class ShardWriter:
    """Writer of a shard and its rows under temporary file names, which `close` renames.

    As a context manager, the writer removes the files if the context ends before `close`. Equal records give equal
    bytes.
    """

    def __init__(self, directory: pathlib.Path, split: str, partition: int, block: int):
        self._directory = directory
        self._info = ShardInfo(split=split, partition=partition, block=block)
        self._shard = directory / f"{self._info.name}.open"
        self._rows = directory / f"{self._info.rows_name}.open"
        self._rows.write_bytes(b"")
        self._writer = ArrayRecordWriter(str(self._shard), WRITER_OPTIONS)
        self._num_records, self._index_sums = 0, np.zeros(INDEX, np.int64)

    def __enter__(self) -> Self:
        return self

    def write(self, packed: PackedRecords) -> None:
        """Append records to the shard."""
        for record in packed.records:
            self._writer.write(record)
        with open(self._rows, "ab") as file:
            file.write(packed.rows.astype(ROW, copy=False).tobytes())
        self._num_records += len(packed.records)
        self._index_sums += packed.rows[:, :INDEX].sum(axis=0, dtype=np.int64)

    def close(self) -> ShardInfo:
        """Complete the shard; return its description when the files are on disk under their final names."""
        self._writer.close()
        sync(self._shard)
        sync(self._rows)
        tokens, sentences, documents = self._index_sums.tolist()
        info = dataclasses.replace(
            self._info,
            records=self._num_records,
            documents=documents,
            sentences=sentences,
            tokens=tokens,
            bytes=self._shard.stat().st_size,
            sha256=sha256_of(self._shard),
            rows_sha256=sha256_of(self._rows),
        )
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
    """Write records, in order, as a shard into a directory, completely or not at all.

    Raises:
        OSError, RuntimeError: the disk is full, or the directory cannot be written.
    """
    with ShardWriter(pathlib.Path(directory), split, partition, block) as writer:
        for records in packed:
            writer.write(records)
        return writer.close()


def assemble_corpus_from_shards(
    source: pathlib.Path,
    target: pathlib.Path,
    shards: Iterable[ShardInfo],
    dtype: np.dtype,
    summary: Mapping[str, Any],
    signatures: SignatureFiles | None = None,
    base: BaseCorpus | None = None,
) -> dict[str, Any]:
    """Make a corpus: move shards from `source` to `target`, and write indexes, signatures and manifest.

    Args:
        source: directory with the shards and their rows.
        target: directory on the same file system, empty except for `tokenizer/`.
        shards: all shards, in any order; a split without records has no shard.
        dtype: dtype of the token ids.
        summary: copied into the manifest; `summary['tokenizer']` needs `sha256` and `vocab_size`.
        signatures: signatures of all documents; None: the hashes that `read_content_hashes` reads from the rows.
        base: the corpus that the shards are added to; the manifest then describes the old and the new shards.

    Returns:
        The manifest as written.
    """
    by_split = group_shards_by_split(shards)
    splits = write_indexes(source, target, by_split, dtype, base)
    if signatures is None:
        signatures = {SIGNATURES: (CONTENT, read_content_hashes(source, by_split))}
    signature_entries = write_signatures(target, signatures, base)
    num_appends = base.num_snapshots if base else 0
    for split, split_shards in by_split.items():
        for index, shard in enumerate(split_shards):
            os.replace(source / shard.name, target / shard_file_name(split, index, len(split_shards), num_appends))
    manifest = make_manifest(summary, splits, signature_entries, base)
    write_json(target / MANIFEST, manifest)
    for path in [*target.rglob("*"), target]:
        sync(path)
    return manifest


def group_shards_by_split(shards: Iterable[ShardInfo]) -> dict[str, list[ShardInfo]]:
    """Return a map from each split to its shards, in the order of their documents."""
    ordered = sorted(shards, key=lambda shard: (shard.partition, shard.block))
    return {split: [shard for shard in ordered if shard.split == split] for split in SPLITS}


def shard_file_name(split: str, index: int, num_shards: int, num_appends: int = 0) -> str:
    """Return the file name of a shard in a corpus; `num_appends` is 0 for a new corpus, 1 for the first append."""
    return f"{_insert_append_number(split, num_appends)}-{index:05}-of-{num_shards:05}.arrayrecord"


def _insert_append_number(name: str, num_appends: int) -> str:
    """Return a file name such as `train.index.npy` or, for the first append, `train.1.index.npy`."""
    stem, *suffixes = name.split(".")
    return ".".join([stem, *([str(num_appends)] if num_appends else []), *suffixes])


def write_indexes(
    source: pathlib.Path,
    target: pathlib.Path,
    by_split: Mapping[str, Sequence[ShardInfo]],
    dtype: np.dtype,
    base: BaseCorpus | None = None,
) -> dict[str, Any]:
    """Write the index of each split into `target`; return the part of the manifest about the splits.

    Args:
        source: directory with the rows of the shards.
        target, dtype, base: as in `assemble_corpus_from_shards`.
        by_split: result of `group_shards_by_split`.
    """
    splits: dict[str, Any] = {}
    num_appends = base.num_snapshots if base else 0
    for split, shards in by_split.items():
        entry = base.manifest["splits"][split] if base else {}
        if entry and not shards:
            splits[split] = entry
            continue
        # The new index has the rows of the old index, then the index columns of the new rows.
        old = [np.load(base.directory / entry["index"]["name"], mmap_mode="r", allow_pickle=False)] if base else []
        rows = (np.fromfile(source / shard.rows_name, ROW).reshape(-1, COLUMNS)[:, :INDEX] for shard in shards)
        index_path = target / _insert_append_number(f"{split}.index.npy", num_appends)
        _save_concatenated_arrays(index_path, itertools.chain(old, rows), ROW, (INDEX,))
        new_shards = [
            {
                "name": shard_file_name(split, index, len(shards), num_appends),
                "records": shard.records,
                "bytes": shard.bytes,
                "sha256": shard.sha256,
            }
            for index, shard in enumerate(shards)
        ]
        splits[split] = {
            **{
                noun: sum(getattr(shard, noun) for shard in shards) + entry.get(noun, 0)
                for noun in ("documents", "records", "sentences", "tokens")
            },
            "dtype": dtype.str,
            "shards": [*entry.get("shards", ()), *new_shards],
            "index": {"name": index_path.name, "sha256": sha256_of(index_path)},
        }
    return splits


def read_content_hashes(source: pathlib.Path, by_split: Mapping[str, Sequence[ShardInfo]]) -> Iterator[np.ndarray]:
    """Yield an array of dtype `CONTENT` for each shard: the hashes of documents and pieces, from the rows."""
    for shard in itertools.chain.from_iterable(by_split.values()):
        rows = np.fromfile(source / shard.rows_name, ROW).reshape(-1, COLUMNS)
        rows = rows[rows[:, INDEX:].any(axis=1)]
        hashes = np.zeros(len(rows), CONTENT)
        hashes["equal"] = np.ascontiguousarray(rows[:, INDEX:]).view("<u8")
        hashes["begins"] = rows[:, INDEX - 1]
        yield hashes


def write_signatures(
    target: pathlib.Path, signatures: SignatureFiles, base: BaseCorpus | None = None
) -> list[dict[str, str]]:
    """Write the files of signatures into `target`; return the manifest's part about old and new signatures."""
    entries = list(base.manifest["signatures"]) if base else []
    for name, (dtype, arrays) in signatures.items():
        path = target / _insert_append_number(name, base.num_snapshots if base else 0)
        _save_concatenated_arrays(path, arrays, dtype)
        entries.append({"name": path.name, "sha256": sha256_of(path)})
    return entries


def make_manifest(
    summary: Mapping[str, Any],
    splits: Mapping[str, Any],
    signatures: Sequence[Mapping[str, str]],
    base: BaseCorpus | None = None,
) -> dict[str, Any]:
    """Return the manifest, with fingerprint and seal, made of the results of `write_indexes` and `write_signatures`."""
    manifest = {"format_version": FORMAT_VERSION, **summary, "splits": splits, "signatures": signatures}
    if base:
        snapshot = {
            "name": base.old_manifest_name,
            "sha256": sha256_of(base.directory / MANIFEST),
            "fingerprint": base.manifest["fingerprint"],
            "documents": base.manifest["documents"],
        }
        manifest["snapshots"] = [*base.manifest.get("snapshots", ()), snapshot]
    manifest = {**manifest, "fingerprint": manifest_fingerprint(manifest)}
    return {**manifest, "seal": manifest_seal(manifest)}


def _save_concatenated_arrays(
    path: pathlib.Path, arrays: Iterable[np.ndarray], dtype: np.dtype, columns: tuple[int, ...] = ()
) -> None:
    """Write the concatenation of arrays to a .npy file, with a single array in memory at a time."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    rows = 0
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, *columns)})
        for array in arrays:
            file.write(np.ascontiguousarray(array).tobytes())
            rows += len(array)
        file.seek(0)  # the header has space for any number of rows
        np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, *columns)})


def write_json(path: pathlib.Path, content: Any) -> None:
    """Write content as JSON, completely or not at all; the file is on disk when this function returns."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
