"""A pass over all documents: chunks on all cores, results in order, in blocks; finished blocks survive a kill."""

import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.corpus_writer import write_json
from bert_jax.corpus.build.encoding import Chunk
from bert_jax.corpus.manifest import manifest_seal
from bert_jax.errors import UserError
from bert_jax.files import read_file, sha256_of, sync

Result = TypeVar("Result")
BlockKey = tuple[int, int]  # index of a partition, and index of the block in the partition
ShowProgress = Callable[[int, int, int], None]  # (bytes of input read, all bytes of input, documents done)
CHUNKS_PER_WORKER = 3  # a chunk being processed, a waiting chunk, and a result that waits for earlier results


class PassProgress:
    """The total progress of several passes over the input."""

    def __init__(self, show: ShowProgress | None, input_bytes: int, num_passes: int):
        self._show, self._input_bytes, self._num_passes = show, input_bytes, num_passes
        self._begun, self._pass_bytes = 0, 0

    def begin_pass(self, pass_bytes: int | None = None) -> None:
        """Begin a pass that reads `pass_bytes` bytes; None means all bytes of the input."""
        self._begun, self._pass_bytes = self._begun + 1, self._input_bytes if pass_bytes is None else pass_bytes

    def report(self, bytes_read: int, num_documents: int) -> None:
        """Show the progress of the current pass as a part of the total."""
        if self._show:
            scaled = bytes_read * self._input_bytes // self._pass_bytes if self._pass_bytes else bytes_read
            done = (self._begun - 1) * self._input_bytes + scaled
            self._show(done, self._num_passes * self._input_bytes, num_documents)


class FinishedBlocks:
    """The blocks that a pass has finished, as files in a directory.

    00000-00001.PART     each part of a block
    00000-00001.json     the record of a block, with the digests of its parts; written after the parts

    Attributes:
        directory: directory of the files.
        writing: context manager that turns an error of writing into a UserError.
        records: the record of each block, which holds the arguments of `finish`; `is_last` is True for the last block
            of a partition.
    """

    def __init__(self, directory: pathlib.Path, writing: Callable[[], contextlib.AbstractContextManager[None]]):
        self.directory, self.writing = directory, writing
        self.records: dict[BlockKey, dict[str, Any]] = {}

    def read_records(self) -> dict[BlockKey, dict[str, Any]]:
        """Return the record of each block that a killed pass finished, even if the files of the block are missing."""
        records = {}
        for path in sorted(self.directory.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                record = json.loads(read_file(path))
                if record.get("seal") == manifest_seal(record):
                    records[record["partition"], record["block"]] = record
        return records

    def resume(self) -> None:
        """Reuse the blocks that a killed pass finished and whose files are intact."""
        for key, record in self.read_records().items():
            with contextlib.suppress(OSError):
                if all(sha256_of(self.directory / name) == digest for name, digest in record["sha256"].items()):
                    self.records[key] = record

    def in_order(self) -> list[BlockKey]:
        """Return the finished blocks in the order of their documents."""
        return sorted(self.records)

    def is_finished(self, partition: int) -> bool:
        """Return whether all blocks of a partition are finished."""
        blocks = sorted(block for index, block in self.records if index == partition)
        return bool(blocks) and blocks == list(range(len(blocks))) and self.records[partition, blocks[-1]]["is_last"]

    def path(self, key: BlockKey, part: str) -> pathlib.Path:
        """Return the path of the file of a part of a block."""
        return self.directory / f"{key[0]:05}-{key[1]:05}.{part}"

    def create_files_of_block(self, key: BlockKey, part_names: Iterable[str]) -> None:
        """Create an empty file for each part of a block."""
        with self.writing():
            self.directory.mkdir(exist_ok=True)
            for part in part_names:
                self.path(key, part).write_bytes(b"")

    def append(self, key: BlockKey, contents: Mapping[str, bytes]) -> None:
        """Append contents to the parts of a block."""
        with self.writing():  # includes the closing of the file, which writes the rest of the file's buffer
            for part, content in contents.items():
                with self.path(key, part).open("ab") as file:
                    file.write(content)

    def finish(self, key: BlockKey, is_last: bool, digests: Mapping[str, str] | None = None, **known: Any) -> None:
        """Record a block with complete files, so that a resumed pass skips it.

        Args:
            key: key of the block.
            is_last: True if the block is the last of its partition.
            digests: file name -> hex SHA-256 of files on disk; None: the files that `create_files_of_block` created.
            known: further fields of the record, as JSON.
        """
        with self.writing():
            if digests is None:
                digests = {}
                for path in sorted(self.directory.glob(self.path(key, "*").name)):
                    if path.suffix != ".json":
                        sync(path)
                        digests[path.name] = sha256_of(path)
            record = {"partition": key[0], "block": key[1], "is_last": is_last, **known, "sha256": digests}
            write_json(self.path(key, "json"), {**record, "seal": manifest_seal(record)})
        self.records[key] = record

    def load_array(self, key: BlockKey, part: str, dtype: Any) -> np.ndarray:
        """Return the numbers in a part of a block as an array that is mapped into memory."""
        path = self.path(key, part)
        # An empty file cannot be mapped.
        return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)


def map_blocks(
    finished: FinishedBlocks,
    partitions: Sequence[Partition],
    read: Callable[[Partition], Iterator[Chunk]],
    work: Callable[[Chunk], Result],
    num_workers: int,
) -> Generator[tuple[BlockKey, Iterator[tuple[Chunk, Result]]]]:
    """Yield each unfinished block, and its chunks with their results, in order; close the generator to end the work.

    Args:
        finished: the finished blocks of this pass.
        partitions: the whole input.
        read: function that yields the chunks of a partition.
        work, num_workers: as in `map_chunks`.
    """
    todo = (
        chunk
        for partition in partitions
        if not finished.is_finished(partition.index)
        for chunk in read(partition)
        if (chunk.partition, chunk.block) not in finished.records
    )
    with contextlib.closing(map_chunks(todo, work, num_workers)) as results:
        yield from itertools.groupby(results, lambda result: (result[0].partition, result[0].block))


class ChunkResult(NamedTuple, Generic[Result]):
    """A chunk without its documents, and the result of the work on the chunk."""

    chunk: Chunk
    result: Result


def map_chunks(
    chunks: Iterable[Chunk], work: Callable[[Chunk], Result], num_workers: int
) -> Generator[ChunkResult[Result]]:
    """Yield each chunk, without its documents, and its result, in order; close the generator to end the processes.

    Args:
        chunks: chunks that `read_chunks` made.
        work: picklable function that takes a chunk.
        num_workers: number of processes. With 1 process, or for a single chunk, the calling process does the work.

    Raises:
        UserError: `work` raises it, or a process was killed.
    """
    chunks = iter(chunks)
    first_chunks = list(itertools.islice(chunks, 2))
    chunks = itertools.chain(first_chunks, chunks)
    if num_workers > 1 and len(first_chunks) == 2:  # to start a process takes longer than to encode a chunk
        yield from _map_chunks_in_processes(chunks, work, num_workers)
        return
    for chunk in chunks:
        yield ChunkResult(dataclasses.replace(chunk, documents=()), work(chunk))


def _map_chunks_in_processes(
    chunks: Iterable[Chunk], work: Callable[[Chunk], Result], num_workers: int
) -> Generator[ChunkResult[Result]]:
    """Yield the results of `map_chunks`, which `num_workers` processes compute."""
    is_safe_path_set_here = "PYTHONSAFEPATH" not in os.environ
    if is_safe_path_set_here:
        os.environ["PYTHONSAFEPATH"] = "1"  # workers import no module that lies in the working directory
    executor = concurrent.futures.ProcessPoolExecutor(
        num_workers,
        # Processes are spawned, since a fork would copy locks that threads of the library may hold.
        multiprocessing.get_context("spawn"),
        _initialize_worker,
        (work,),
    )
    waiting: collections.deque[tuple[Chunk, concurrent.futures.Future[Result]]] = collections.deque()
    try:
        for chunk in chunks:
            waiting.append((dataclasses.replace(chunk, documents=()), executor.submit(_run_worker_function, chunk)))
            if len(waiting) >= CHUNKS_PER_WORKER * num_workers:
                done, future = waiting.popleft()
                yield ChunkResult(done, future.result())
        while waiting:
            done, future = waiting.popleft()
            yield ChunkResult(done, future.result())
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError(
            "a worker process ended, perhaps for lack of memory; try fewer --workers. "
            "A Python script must make this call below `if __name__ == '__main__':`, or with workers=1"
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)
        if is_safe_path_set_here:
            del os.environ["PYTHONSAFEPATH"]


_work_of_process: Callable[[Chunk], Any]


def _initialize_worker(work: Callable[[Chunk], Any]) -> None:
    """Prepare a worker process for `work`."""
    global _work_of_process
    # `work` arrives by pickle, which rebuilds the `Tokenizer` of bert_jax; a pickled tokenizer of the library
    # `tokenizers` would lose `encode_special_tokens`.
    _work_of_process = work
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker process when its parent is killed; otherwise, the worker would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _run_worker_function(chunk: Chunk) -> Any:
    """Return the result of the worker's function for a chunk."""
    return _work_of_process(chunk)
