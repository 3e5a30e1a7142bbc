"""The corpus store: ArrayRecord shards of token ids, one index per split, and a manifest with all digests.

    manifest.json                        counts, digests, settings; written last, see manifest.py
    tokenizer/                           files of the tokenizer that made the ids
    train-00000-of-00003.arrayrecord     records in the order of their documents; heldout-... for the held-out split
    train.index.npy                      uint32 [records, 3]: numbers of tokens and sentences; 1 if a document begins
    signatures.npy                       hashes that find copies; training does not read them

`prepare --append` adds shards (train.1-00000-of-00001.arrayrecord and so on), an index of all shards, and signatures.
The previous manifest is kept as manifest.0.json; each manifest of a corpus describes a snapshot.

A record is a document or a part of a document, since a document of more than `MAX_RECORD` tokens is cut at sentence
boundaries. The bytes of a record are, little-endian: uint32 number of sentences; uint16 length of each sentence; token
ids, uint16 if the vocabulary allows it, else uint32. If a segmenter found words, one bit per token follows: 1 if the
token begins a word. In each byte of word starts, the lowest bit comes first.
"""

import concurrent.futures
import errno
import os
import pathlib
import statistics
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from bert_jax.console import notebook_table
from bert_jax.corpus.manifest import WORDS_VERSION, read_manifest
from bert_jax.errors import UserError, file_error
from bert_jax.files import allow_open_files, check_is_regular_file, sha256_of

if TYPE_CHECKING:
    from array_record.python.array_record_module import ArrayRecordReader

SPLITS = ("train", "heldout")
READING_THREADS = 8  # number of threads for which open files are reserved; a thread has a reader for each shard
MAX_RECORD = 1024  # maximum number of tokens in a record; the text of an example is in one or two records
MAX_SENTENCE = 512  # maximum number of tokens in a sentence; no published model reads longer sequences
READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
READ_BUFFER_BYTES = 1 << 12  # the default of 1 MiB per seek is four times slower
DAMAGE = (RuntimeError, OSError, IndexError)  # exceptions that ArrayRecord raises for a damaged file
# Storage, such as a mounted bucket, counts as slow if the median of PROBES reads takes more than SLOW_READ seconds.
PROBES, SLOW_READ = 16, 2e-3
SHARDS_AT_ONCE = 32


class Shard(NamedTuple):
    """A file of a split, with its numbers of records and bytes according to the manifest.

    `has_words`: True if the records of the shard say which tokens begin a word.
    """

    path: pathlib.Path
    records: int
    bytes: int
    has_words: bool = False


class RecordArrays(NamedTuple):
    """The contents of records, one after the other, as flat arrays; see `Split.read`."""

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    sentences_per_record: np.ndarray


class RecordArraysWithWords(NamedTuple):
    """The fields of `RecordArrays`, and whether each token begins a word, bool [tokens]."""

    tokens: np.ndarray
    sentence_lengths: np.ndarray
    sentences_per_record: np.ndarray
    begins_word: np.ndarray


class ReadableSplit(Protocol):
    """The part of the interface of `Split` that is needed to make sequences and to count tokens."""

    tokens_per_record: np.ndarray
    sentences_per_record: np.ndarray
    first_record: np.ndarray
    source_documents: np.ndarray

    def read(self, record_indices: np.ndarray) -> RecordArrays:
        """Return tokens, sentence lengths, and numbers of sentences per record of the given records, as flat arrays."""


class Split:
    """The training or the held-out documents of one or more corpora, for random access by any number of threads.

    Attributes:
        tokens_per_record, sentences_per_record: int64 [records].
        first_record: int64 [documents + 1]; document d has the records first_record[d]:first_record[d + 1].
        source_documents: int64 [sources + 1]; source k has the documents source_documents[k]:source_documents[k + 1].
        dtype: dtype of the token ids, uint16 or uint32.
        has_words: True if some records say which tokens begin a word.
        num_records, num_documents, num_sentences, num_tokens: counts over the whole split.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        *,
        tokens_per_record: np.ndarray,
        sentences_per_record: np.ndarray,
        first_record: np.ndarray,
        source_documents: np.ndarray,
        dtype: np.dtype,
    ):
        allow_open_files(READING_THREADS * len(shards))
        self.tokens_per_record, self.sentences_per_record = tokens_per_record, sentences_per_record
        self.first_record, self.source_documents = first_record, source_documents
        self.dtype = dtype
        self.num_records, self.num_documents = len(tokens_per_record), len(first_record) - 1
        self.num_tokens, self.num_sentences = int(tokens_per_record.sum()), int(sentences_per_record.sum())
        self._shards = list(shards)
        self._first_of_shard = np.cumsum([0] + [shard.records for shard in shards])
        self._shard_has_words = np.array([shard.has_words for shard in shards], bool)
        self.has_words = bool(self._shard_has_words.any())
        self._open = threading.local()  # a reader has a position, so each thread has its own
        self._slow, self._seconds, self._lock = False, list[float](), threading.Lock()

    @classmethod
    def join(cls, splits: Sequence["Split"]) -> "Split":
        """Join splits: return one split that has the records and the sources of all splits, in order.

        Raises:
            UserError: the token ids of the splits have two dtypes, so the vocabularies differ.
        """
        if len({split.dtype for split in splits}) != 1:
            raise UserError(
                "corpora with uint16 and with uint32 ids cannot be mixed; prepare them with the same tokenizer"
            )
        # A running total over the differences of all splits makes each split continue where the previous split ends.
        return cls(
            [shard for split in splits for shard in split._shards],
            tokens_per_record=np.concatenate([split.tokens_per_record for split in splits]),
            sentences_per_record=np.concatenate([split.sentences_per_record for split in splits]),
            first_record=running_total(np.concatenate([np.diff(split.first_record) for split in splits])),
            source_documents=running_total(np.concatenate([np.diff(split.source_documents) for split in splits])),
            dtype=splits[0].dtype,
        )

    def read(self, record_indices: np.ndarray) -> RecordArrays:
        """Return records in the given order, as flat arrays.

        Args:
            record_indices: int64 [n], each from 0 to `num_records` - 1; may repeat.

        Returns:
            tokens: uint16 or uint32 [tokens of all n], read-only.
            sentence_lengths: int32 [sentences of all n].
            sentences_per_record: int32 [n].

        Raises:
            IndexError: a record does not exist.
            UserError: a shard is damaged; the message names it.
        """
        data = [memoryview(record) for record in self._read_bytes(record_indices)]
        if self.has_words:
            ends = self._ends_of_tokens(record_indices).tolist()
            data = [d[:k] for d, k in zip(data, ends, strict=True)]
        return self._parse_records_without_word_starts(data, record_indices)

    def read_words(self, record_indices: np.ndarray, continues: np.ndarray) -> RecordArraysWithWords:
        """Return the arrays of `read`, and an array bool [tokens of all n], True for a token that begins a word.

        Args:
            record_indices: as in `read`.
            continues: whether each token of the vocabulary continues a word, bool [vocab_size]; needed for records
                that store no word starts.
        """
        data = [memoryview(record) for record in self._read_bytes(record_indices)]
        ends, sizes = self._ends_of_tokens(record_indices).tolist(), self.tokens_per_record[record_indices]
        without_words = [d[:k] for d, k in zip(data, ends, strict=True)]
        tokens, lengths, sentences = self._parse_records_without_word_starts(without_words, record_indices)
        has_words = self._shard_has_words[self._shard_of(record_indices)]
        packed = b"".join([d[k:] for d, k in zip(data, ends, strict=True)])
        filling = np.where(has_words, -sizes % 8, 0)  # number of unused bits in the last byte of each record
        unused = np.repeat(np.cumsum(np.where(has_words, sizes, 0)), filling) + np.arange(filling.sum())
        begins = np.delete(np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little"), unused).view(bool)
        if not has_words.all():
            stored, begins = begins, ~continues[tokens]
            begins[np.repeat(has_words, sizes)] = stored
        return RecordArraysWithWords(tokens, lengths, sentences, begins)

    def _parse_records_without_word_starts(self, data: Sequence[memoryview], records: np.ndarray) -> RecordArrays:
        """Return the arrays of `read` from the bytes of records, without the bits for word starts."""
        sentences = self.sentences_per_record[records]
        starts = (4 + 2 * sentences).tolist()
        lengths = np.frombuffer(b"".join([d[4:k] for d, k in zip(data, starts, strict=True)]), "<u2").astype(np.int32)
        tokens = np.frombuffer(b"".join([d[k:] for d, k in zip(data, starts, strict=True)]), self.dtype)
        return RecordArrays(tokens, lengths, sentences.astype(np.int32))

    def _ends_of_tokens(self, records: np.ndarray) -> np.ndarray:
        """Return the number of bytes of each record up to the end of its tokens, int64 [n]."""
        return 4 + 2 * self.sentences_per_record[records] + self.dtype.itemsize * self.tokens_per_record[records]

    def _shard_of(self, records: np.ndarray) -> np.ndarray:
        """Return the index of the shard of each record, int64 [n]."""
        return np.searchsorted(self._first_of_shard, records, side="right") - 1

    def _read_bytes(self, records: np.ndarray) -> list[bytes]:
        """Return the bytes of records, in the given order; raise UserError if a size differs from the index."""
        records = np.asarray(records, np.int64)
        if records.size and not (records.min() >= 0 and records.max() < self.num_records):
            raise IndexError(f"records {records.min()}..{records.max()} of a split with {self.num_records} records")
        shard_of = self._shard_of(records)
        positions = records - self._first_of_shard[shard_of]
        data = [] if self._slow else self._read_one_by_one(shard_of, positions)
        if len(data) < len(records):
            data += self._read_in_parallel(shard_of[len(data) :], positions[len(data) :])
        sizes = self._ends_of_tokens(records)
        if self.has_words:
            sizes += np.where(self._shard_has_words[shard_of], -(-self.tokens_per_record[records] // 8), 0)
        wrong = np.flatnonzero(np.fromiter(map(len, data), np.int64, len(data)) != sizes)
        if wrong.size:
            path = self._shards[shard_of[wrong[0]]].path
            raise UserError(f"{path}: damaged shard (its records differ from the index); copy the corpus again")
        return data

    def _read_one_by_one(self, shard_of: np.ndarray, positions: np.ndarray) -> list[bytes]:
        """Read each record by a seek and a read; on a local disk, this takes half the time of `_read_in_parallel`.

        Stop if the median time of PROBES reads of all threads shows that the storage is slow.
        """
        readers: dict[int, ArrayRecordReader] = vars(self._open).setdefault("readers", {})  # readers of this thread
        data, shard = list[bytes](), 0
        try:
            for shard, position in zip(shard_of.tolist(), positions.tolist(), strict=True):
                if shard not in readers:
                    readers[shard] = _open_shard(self._shards[shard])
                began = time.perf_counter()
                readers[shard].seek(position)
                data.append(readers[shard].read())
                seconds = time.perf_counter() - began
                with self._lock:
                    self._seconds.append(seconds)
                    if len(self._seconds) == PROBES:
                        self._slow |= statistics.median(self._seconds) > SLOW_READ
                        self._seconds.clear()
                    if self._slow:
                        break
        except DAMAGE as error:
            raise _damaged_shard_error(self._shards[shard], error) from None
        return data

    def _read_in_parallel(self, shard_of: np.ndarray, positions: np.ndarray) -> list[bytes]:
        """Read the records of each shard by one call, which reads in parallel; read several shards at a time."""
        readers: dict[int, ArrayRecordReader] = vars(self._open).setdefault("readers", {})  # readers of this thread
        data = [b""] * len(positions)

        def read_shard_into_data(shard: int) -> None:
            indexes = np.flatnonzero(shard_of == shard)
            try:
                if shard not in readers:
                    readers[shard] = _open_shard(self._shards[shard])
                for index, record in zip(indexes, readers[shard].read(positions[indexes].tolist()), strict=True):
                    data[index] = record
            except (*DAMAGE, ValueError) as error:
                raise _damaged_shard_error(self._shards[shard], error) from None

        with concurrent.futures.ThreadPoolExecutor(SHARDS_AT_ONCE) as pool:
            list(pool.map(read_shard_into_data, np.unique(shard_of).tolist()))
        return data


def _damaged_shard_error(shard: Shard, error: Exception) -> UserError:
    return UserError(f"{shard.path}: damaged shard ({error}); copy the corpus again")


def running_total(counts: np.ndarray) -> np.ndarray:
    """Return the sums of the first 0, 1, 2, ... counts, int64 [counts + 1]."""
    total = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=total[1:])
    return total


class Corpus:
    """An open corpus; made by `open_corpus`.

    Attributes:
        directory: directory of the files.
        manifest: see manifest.py.
        splits: name -> split.
        fingerprint: hex digest of everything that sequences depend on; corpora with equal fingerprints give the same
            sequences.
        vocab_size: size of the vocabulary; every id is smaller.
        tokenizer_sha256: digest of the tokenizer that made the ids.
        tokenizer_directory: directory of the tokenizer's files, for `tokenizer.load_tokenizer`.
    """

    def __init__(self, directory: pathlib.Path, manifest: dict[str, Any], splits: dict[str, Split]):
        self.directory, self.manifest, self.splits = directory, manifest, splits
        self.fingerprint: str = manifest["fingerprint"]
        self.vocab_size: int = manifest["tokenizer"]["vocab_size"]
        self.tokenizer_sha256: str = manifest["tokenizer"]["sha256"]
        self.tokenizer_directory = directory / "tokenizer"

    def split(self, name: str) -> Split:
        """Return the split 'train' or 'heldout'; the held-out split may be empty."""
        return self.splits[name]

    def __repr__(self) -> str:
        sizes = (f"{name} {split.num_documents:,} documents" for name, split in self.splits.items())
        return f"<Corpus {self.directory}: {', '.join(sizes)}, {self.vocab_size:,} tokens in the vocabulary>"

    def _repr_html_(self) -> str:
        """Return the corpus as an HTML table for a notebook."""
        manifest = self.manifest
        rejected = ", ".join(f"{count:,} {reason}" for reason, count in manifest["documents"]["rejected"].items())
        rows: dict[str, object] = {"directory": self.directory}
        for name, split in self.splits.items():
            rows[name] = f"{split.num_documents:,} documents, {split.num_tokens:,} tokens"
        rows |= {
            "rejected": rejected,
            "language": manifest["settings"]["language"],
            "vocabulary": f"{manifest['tokenizer']['kind']}, {self.vocab_size:,} tokens",
        }
        return notebook_table(rows)


def open_corpus(directory: str | os.PathLike[str], snapshot: str = "") -> Corpus:
    """Open the corpus in a directory that `prepare` made.

    The manifest, the digests of the indexes and the sizes of the shards are checked; `verify` reads every byte.

    Args:
        directory: directory of the corpus.
        snapshot: the fingerprint of a snapshot, or the beginning of the fingerprint; "": the newest snapshot.

    Raises:
        UserError: the directory is not a corpus, or its format is unknown; the corpus has no training document, or
            lacks the snapshot; a file of the corpus is missing, truncated or changed.
    """
    directory = pathlib.Path(directory)
    manifest = read_manifest(directory, snapshot)
    has_words = manifest["format_version"] == WORDS_VERSION
    splits = {}
    for name, entry in manifest["splits"].items():
        shards = [
            Shard(directory / shard["name"], shard["records"], shard["bytes"], has_words) for shard in entry["shards"]
        ]
        index = load_array(directory / entry["index"]["name"], entry["index"]["sha256"])
        first_record = np.append(np.flatnonzero(index[:, 2]), len(index)).astype(np.int64)
        splits[name] = Split(
            shards,
            tokens_per_record=index[:, 0].astype(np.int64),
            sentences_per_record=index[:, 1].astype(np.int64),
            first_record=first_record,
            source_documents=np.array([0, len(first_record) - 1], np.int64),
            dtype=np.dtype(entry["dtype"]),
        )
        for shard in shards:
            _open_shard(shard).close()  # a missing or damaged file is reported now, not in the middle of a run
    if not splits["train"].num_documents:
        raise UserError(f"{directory}: the corpus has no training document; prepare it from more text")
    return Corpus(directory, manifest, splits)


def _open_shard(shard: Shard) -> "ArrayRecordReader":
    """Open a shard for random access; raise UserError if its size or number of records differs from the manifest."""
    from array_record.python.array_record_module import ArrayRecordReader

    try:
        size = shard.path.stat().st_size
        if not shard.path.is_file():
            check_is_regular_file(shard.path)  # raises an error that names the kind of file
        # ArrayRecord opens a truncated file without an error, so the size is checked here.
        if size != shard.bytes:
            raise UserError(f"{shard.path}: {size:,} bytes, the manifest says {shard.bytes:,}; copy the corpus again")
        reader = ArrayRecordReader(str(shard.path), READER_OPTIONS, file_reader_buffer_size=READ_BUFFER_BYTES)
        if reader.num_records() != shard.records:
            open(shard.path, "rb").close()  # ArrayRecord reads a file that it cannot open as an empty file
            raise UserError(
                f"{shard.path}: {reader.num_records():,} records, the manifest says {shard.records:,}; "
                "copy the corpus again"
            )
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            fix = "lower --config.data.num_threads, or raise `ulimit -n`"
            raise file_error(error, shard.path, fix=fix) from None
        raise UserError(f"{shard.path}: cannot be read ({error}); copy or prepare the corpus again") from None
    return reader


def load_array(path: pathlib.Path, sha256: str, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """Return the array of a .npy file; raise UserError if it cannot be read or has a different digest."""
    try:
        if sha256_of(path) == sha256:
            return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno:
            raise file_error(error, path, "cannot be read", "copy or prepare the corpus again") from None
        raise UserError(f"{path}: cannot be read ({error}); copy or prepare the corpus again") from None
    raise UserError(f"{path}: digest differs from the manifest; copy or prepare the corpus again")
