"""Works on chunks in several processes, in order, with few chunks in memory."""

import collections
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Iterable
from typing import Any
from typing import TypeVar

from bert_jax.corpus.build.encoding import Chunk
from bert_jax.errors import UserError

Result = TypeVar("Result")
CHUNKS_PER_WORKER = 3  # one in work, one waiting, one done and waiting for its turn


def map_chunks(
    chunks: Iterable[Chunk], work: Callable[[Chunk], Result], workers: int
) -> Generator[tuple[Chunk, Result]]:
    """Yield each chunk, without its documents, and its result, in order. Close the generator to end the processes.

    Args:
        chunks: from `read_chunks`.
        work: what is done with a chunk; can be pickled.
        workers: number of processes; 1 works in this process.

    Raises:
        UserError: as `work`, and where a process was killed.
    """
    if workers == 1:
        for chunk in chunks:
            yield chunk._replace(documents=[]), work(chunk)
        return
    executor = concurrent.futures.ProcessPoolExecutor(
        workers,
        # Spawned: a fork copies the locks of the library's threads in whatever state they are.
        multiprocessing.get_context("spawn"),
        _start_worker,
        (work,),
    )
    waiting: collections.deque[tuple[Chunk, concurrent.futures.Future[Result]]] = collections.deque()
    try:
        for chunk in chunks:
            waiting.append((chunk._replace(documents=[]), executor.submit(_work, chunk)))
            if len(waiting) >= CHUNKS_PER_WORKER * workers:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError("a worker process was killed, perhaps for lack of memory; try fewer --workers") from None
    finally:
        executor.shutdown(cancel_futures=True)


_work_of_process: Callable[[Chunk], Any]


def _start_worker(work: Callable[[Chunk], Any]) -> None:
    global _work_of_process
    # Rebuilt by pickle: the library's tokenizers lose `encode_special_tokens` when they are pickled themselves.
    _work_of_process = work
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End a worker whose parent was killed; it would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _work(chunk: Chunk) -> Any:
    return _work_of_process(chunk)
