"""The corpus store: ArrayRecord shards of token ids, an index a split, and a manifest that vouches for all of them.

    manifest.json                        counts, digests, settings; written last
    tokenizer/                           the files of the tokenizer that made the ids
    train-00000-of-00003.arrayrecord     records in the order of their documents; likewise heldout-...
    train.index.npy                      uint32 [records, 3]: tokens, sentences, 1 where a document begins

A record is a document, or the next piece of one: a document of more than `MAX_RECORD` tokens is cut at sentence
boundaries. Its bytes are, little-endian: uint32 number of sentences; uint16 length of each sentence; the token ids,
uint16 where the vocabulary allows, else uint32.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from bert_jax.errors import UserError

FORMAT_VERSION = 1
SPLITS = ("train", "heldout")
MAX_RECORD = 2048  # tokens; what is read for one row is at most this
MAX_SENTENCE = 512  # tokens; no row is longer, so a longer sentence would only be thrown away in part
SHARD_BYTES = 256 << 20  # a reader a shard and thread: few enough for the usual limit of open files
# One record a chunk gives random access; not compressing reads 2.5 times as fast as zstd (docs/decisions.md).
WRITER_OPTIONS = "group_size:1,uncompressed"
READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
READ_BUFFER_BYTES = 1 << 14  # the default of 1 MiB a seek is four times slower


class Packed(NamedTuple):
    """Documents as records, ready to be written: `rows` is uint32 [records, 3] as in the store."""

    records: list[bytes]
    rows: np.ndarray


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


def pack_document(lengths: np.ndarray, tokens: np.ndarray) -> Packed:
    """One document as records of at most `MAX_RECORD` tokens.

    Args:
        lengths: int64 [sentences], each from 1 to `MAX_SENTENCE`.
        tokens: uint16 or uint32 [sum of lengths].
    """
    ends = np.cumsum(lengths)
    records, index = [], []
    sentence, token = 0, 0
    while sentence < len(lengths):
        stop = int(np.searchsorted(ends, token + MAX_RECORD, side="right"))
        end = int(ends[stop - 1])
        header = np.array([stop - sentence], "<u4").tobytes() + lengths[sentence:stop].astype("<u2").tobytes()
        records.append(header + tokens[token:end].tobytes())
        index.append((end - token, stop - sentence, sentence == 0))
        sentence, token = stop, end
    return Packed(records, np.array(index, np.uint32).reshape(-1, 3))


def concatenate(parts: Sequence[Packed]) -> Packed:
    """Several packed documents as one."""
    records = [record for part in parts for record in part.records]
    return Packed(records, np.concatenate([np.zeros([0, 3], np.uint32), *(part.rows for part in parts)]))


class Split:
    """One side of a corpus, readable at random by any number of threads at once.

    Attributes:
        tokens_per_record, sentences_per_record: int64 [records].
        first_record: int64 [documents + 1]; document d is the records first_record[d]:first_record[d + 1].
        dtype: of the token ids, uint16 or uint32.
    """

    def __init__(self, directory: pathlib.Path, manifest: Mapping[str, Any], index: np.ndarray):
        self.tokens_per_record = index[:, 0].astype(np.int64)
        self.sentences_per_record = index[:, 1].astype(np.int64)
        self.first_record = np.append(np.flatnonzero(index[:, 2]), len(index)).astype(np.int64)
        self.dtype = np.dtype(manifest["dtype"])
        self._paths = [directory / shard["name"] for shard in manifest["shards"]]
        self._shards = manifest["shards"]
        self._open = threading.local()  # a reader's position is its own: one reader a thread
        for path, shard in zip(self._paths, self._shards, strict=True):
            _open_shard(path, shard).close()  # refuse what is missing or damaged now, not in the middle of a run
        self._first_of_shard = np.cumsum([0] + [shard["records"] for shard in manifest["shards"]])

    @property
    def num_records(self) -> int:
        """Records in the split."""
        return len(self.tokens_per_record)

    @property
    def num_documents(self) -> int:
        """Documents in the split."""
        return len(self.first_record) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens in the split."""
        return int(self.tokens_per_record.sum())

    @property
    def num_sentences(self) -> int:
        """Sentences in the split."""
        return int(self.sentences_per_record.sum())

    def read(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The records asked for, in that order, repeats allowed; everything flat.

        Args:
            records: int64 [n], each from 0 to `num_records` - 1.

        Returns:
            tokens: uint16 or uint32 [tokens of all n], read-only.
            sentence_lengths: int32 [sentences of all n].
            sentences_per_record: int32 [n].

        Raises:
            IndexError: a record that does not exist.
            UserError: a damaged shard, by name.
        """
        records = np.asarray(records, np.int64)
        if records.size and not (records.min() >= 0 and records.max() < self.num_records):
            raise IndexError(f"records {records.min()}..{records.max()} of a split of {self.num_records}")
        data = self._read_bytes(records)
        sentences = self.sentences_per_record[records]
        starts = (4 + 2 * sentences).tolist()
        lengths = np.frombuffer(b"".join([d[4:k] for d, k in zip(data, starts, strict=True)]), "<u2").astype(np.int32)
        tokens = np.frombuffer(b"".join([d[k:] for d, k in zip(data, starts, strict=True)]), self.dtype)
        if len(tokens) != self.tokens_per_record[records].sum() or lengths.sum() != len(tokens):
            raise UserError(f"{self._paths[0].parent}: index and shards disagree; prepare the corpus again")
        return tokens, lengths, sentences.astype(np.int32)

    def _read_bytes(self, records: np.ndarray) -> list[bytes]:
        if len(self._paths) == 1:
            return self._read_shard(0, records)
        shard_of = np.searchsorted(self._first_of_shard, records, side="right") - 1
        data = [b""] * len(records)
        for shard in np.unique(shard_of).tolist():
            places = np.flatnonzero(shard_of == shard)
            found = self._read_shard(shard, records[places] - self._first_of_shard[shard])
            for place, item in zip(places.tolist(), found, strict=True):
                data[place] = item
        return data

    def _read_shard(self, shard: int, records: np.ndarray) -> list[bytes]:
        """One seek and one read a record: a batched `read` hands each to a thread pool, at twice the cost and more."""
        reader, found = self._reader(shard), []
        try:
            for record in records.tolist():
                reader.seek(record)
                found.append(reader.read())
        except (RuntimeError, OSError, IndexError) as error:
            raise UserError(f"{self._paths[shard]}: damaged shard ({error}); copy the corpus again") from None
        return found

    def _reader(self, shard: int) -> ArrayRecordReader:
        """This thread's reader, opened when it is first needed."""
        if not hasattr(self._open, "readers"):
            self._open.readers = {}
        if shard not in self._open.readers:
            self._open.readers[shard] = _open_shard(self._paths[shard], self._shards[shard])
        return self._open.readers[shard]


class Corpus(NamedTuple):
    """An open corpus; made by `open_corpus`."""

    directory: pathlib.Path
    manifest: dict[str, Any]
    splits: dict[str, Split]

    @property
    def fingerprint(self) -> str:
        """Hex digest of everything that rows are made from; two corpora of one fingerprint give the same rows."""
        return self.manifest["fingerprint"]

    @property
    def tokenizer_sha256(self) -> str:
        """Digest of the tokenizer that made the ids."""
        return self.manifest["tokenizer"]["sha256"]

    @property
    def vocab_size(self) -> int:
        """Every id is below this."""
        return self.manifest["tokenizer"]["vocab_size"]

    @property
    def tokenizer_directory(self) -> pathlib.Path:
        """The tokenizer's files, for `tokenizer.load_tokenizer`."""
        return self.directory / "tokenizer"

    def split(self, name: str) -> Split:
        """'train' or 'heldout'; the latter may be empty."""
        return self.splits[name]


def open_corpus(directory: str | os.PathLike[str]) -> Corpus:
    """The corpus in a directory that `prepare` made.

    Checks the manifest, the digests of the indexes and the sizes of the shards; `verify` reads all of it.

    Raises:
        UserError: not a corpus, an unknown format, a missing, truncated or changed file, no training document.
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise UserError(f"{directory}: no such corpus directory; make one with `prepare --output {directory}`")
    try:
        manifest = json.loads((directory / "manifest.json").read_text())
        version = manifest["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{directory}: no complete manifest.json, so not a corpus (or one whose preparation was interrupted);"
            " run `prepare` again"
        ) from None
    if version != FORMAT_VERSION:
        raise UserError(
            f"{directory}: corpus format {version}, this bert_jax reads format {FORMAT_VERSION}; prepare it again"
        )
    if fingerprint(manifest) != manifest["fingerprint"]:
        raise UserError(f"{directory / 'manifest.json'}: changed since it was written; prepare the corpus again")
    splits = {name: Split(directory, part, _load_index(directory, part)) for name, part in manifest["splits"].items()}
    if not splits["train"].num_documents:
        raise UserError(f"{directory}: no training document in this corpus; prepare it from more text")
    return Corpus(directory, manifest, splits)


def verify(corpus: Corpus) -> None:
    """Reads every shard and compares its digest with the manifest.

    Raises:
        UserError: the first shard that differs.
    """
    for part in corpus.manifest["splits"].values():
        for shard in part["shards"]:
            path = corpus.directory / shard["name"]
            if _sha256(path) != shard["sha256"]:
                raise UserError(f"{path}: digest differs from the manifest; copy or prepare the corpus again")


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Hex SHA-256 of the format, the tokenizer and the digests of all shards and indexes."""
    parts = {
        name: [part["dtype"], part["index"]["sha256"], *(shard["sha256"] for shard in part["shards"])]
        for name, part in manifest["splits"].items()
    }
    content = [manifest["format_version"], manifest["tokenizer"]["sha256"], parts]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class CorpusWriter:
    """Writes a corpus beside its final place and moves it there when `commit` is called.

    A context manager: leaving it without `commit` removes what was written. A killed process leaves
    `.NAME.incomplete`, which `open_corpus` refuses and the next writer for the same place removes.
    """

    def __init__(self, output: str | os.PathLike[str], dtype: np.dtype):
        self.output = pathlib.Path(output).absolute()
        self.dtype = dtype
        self._directory = self.output.absolute().parent / f".{self.output.name}.incomplete"
        self._shards: dict[str, list[dict[str, Any]]] = {name: [] for name in SPLITS}
        self._index: dict[str, list[np.ndarray]] = {name: [np.zeros([0, 3], np.uint32)] for name in SPLITS}
        self._open: dict[str, ArrayRecordWriter] = {}
        self._open_bytes: dict[str, int] = {}

    def __enter__(self) -> Self:
        check_output(self.output)
        with self._writing():
            self._directory.mkdir(parents=True, exist_ok=True)
            # Held until the process ends, however it ends: an unlocked directory is a leftover.
            self._lock = os.open(self._directory, os.O_RDONLY)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
                raise UserError(f"{self.output}: another preparation is writing this corpus; let it end") from None
            for path in self._directory.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return self

    def write(self, split: str, packed: Packed) -> None:
        """Appends records to 'train' or 'heldout'."""
        with self._writing():
            for record in packed.records:
                if split not in self._open:
                    self._open[split] = ArrayRecordWriter(str(self._shard_path(split)), WRITER_OPTIONS)
                    self._open_bytes[split] = 0
                    self._shards[split].append({"records": 0})
                self._open[split].write(record)
                self._shards[split][-1]["records"] += 1
                self._open_bytes[split] += len(record)
                if self._open_bytes[split] >= SHARD_BYTES:
                    self._close_shard(split)
        self._index[split].append(packed.rows)

    def totals(self, split: str) -> dict[str, int]:
        """Documents, records, sentences and tokens written so far."""
        rows = np.concatenate(self._index[split])
        tokens, sentences, documents = rows.sum(axis=0, dtype=np.int64).tolist()
        return {"documents": documents, "records": len(rows), "sentences": sentences, "tokens": tokens}

    @property
    def tokenizer_directory(self) -> pathlib.Path:
        """Where to save the tokenizer before `commit`."""
        return self._directory / "tokenizer"

    def commit(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Completes the corpus and moves it into place.

        Args:
            facts: goes into the manifest as it is; `facts['tokenizer']` needs `sha256` and `vocab_size`.

        Returns:
            The manifest as written.
        """
        with self._writing():
            for split in list(self._open):
                self._close_shard(split)
            splits = {split: self._finish_split(split) for split in SPLITS}
            manifest = {"format_version": FORMAT_VERSION, **facts, "splits": splits}
            manifest["fingerprint"] = fingerprint(manifest)
            text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
            (self._directory / "manifest.json").write_text(text)
            for path in [*self._directory.rglob("*"), self._directory]:
                _sync(path)
            os.rename(self._directory, self.output)
            _sync(self.output.absolute().parent)
        return manifest

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._open.values():
            with contextlib.suppress(RuntimeError, OSError):
                writer.close()
        shutil.rmtree(self._directory, ignore_errors=True)  # gone already where `commit` has moved it
        os.close(self._lock)

    def _shard_path(self, split: str) -> pathlib.Path:
        return self._directory / f"{split}-{len(self._shards[split]):05}.open"

    def _close_shard(self, split: str) -> None:
        self._open.pop(split).close()
        path = self._directory / f"{split}-{len(self._shards[split]) - 1:05}.open"
        self._shards[split][-1] |= {"bytes": path.stat().st_size, "sha256": _sha256(path)}

    def _finish_split(self, split: str) -> dict[str, Any]:
        """Gives the shards their final names, writes the index, returns the split's part of the manifest."""
        shards = self._shards[split]
        for number, shard in enumerate(shards):
            name = f"{split}-{number:05}-of-{len(shards):05}.arrayrecord"
            os.rename(self._directory / f"{split}-{number:05}.open", self._directory / name)
            shards[number] = {"name": name, **shard}
        path = self._directory / f"{split}.index.npy"
        np.save(path, np.concatenate(self._index[split]), allow_pickle=False)
        return {
            **self.totals(split),
            "dtype": self.dtype.str,
            "shards": shards,
            "index": {"name": path.name, "sha256": _sha256(path)},
        }

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Says a full disk or a read-only place in one line; ArrayRecord's OSError is a RuntimeError."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise UserError(f"{self.output}: could not write the corpus ({reason}); nothing was kept") from None


def check_output(output: str | os.PathLike[str]) -> None:
    """Refuses a place that holds anything, before work is spent on it.

    Raises:
        UserError: the place is a file or a directory with something in it.
    """
    output = pathlib.Path(output)
    if output.is_dir() and not any(output.iterdir()):
        return
    if output.exists():
        held = "a corpus" if (output / "manifest.json").exists() else "something else"
        raise UserError(f"{output}: holds {held} already; remove it or choose another --output")


def _open_shard(path: pathlib.Path, shard: Mapping[str, Any]) -> ArrayRecordReader:
    try:
        size = path.stat().st_size
        # ArrayRecord opens a truncated file without a word, so the size is ours to check.
        if size != shard["bytes"]:
            raise UserError(f"{path}: {size:,} bytes, the manifest says {shard['bytes']:,}; copy the corpus again")
        reader = ArrayRecordReader(str(path), READER_OPTIONS, file_reader_buffer_size=READ_BUFFER_BYTES)
        if reader.num_records() != shard["records"]:
            raise UserError(
                f"{path}: {reader.num_records():,} records, the manifest says {shard['records']:,}; "
                "copy the corpus again"
            )
    except (OSError, RuntimeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); copy or prepare the corpus again") from None
    return reader


def _load_index(directory: pathlib.Path, part: Mapping[str, Any]) -> np.ndarray:
    path = directory / part["index"]["name"]
    try:
        if _sha256(path) == part["index"]["sha256"]:
            return np.load(path, allow_pickle=False)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); copy or prepare the corpus again") from None
    raise UserError(f"{path}: digest differs from the manifest; copy or prepare the corpus again")


def _sha256(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
