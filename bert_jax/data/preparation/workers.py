"""Units -> encoded units by several processes, in order, with few units in memory."""

import collections
import concurrent.futures
import concurrent.futures.process
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Generator, Iterable

from bert_jax.data.preparation.encoding import Encoded, Settings, Unit, encode
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError

UNITS_IN_FLIGHT = 3  # a worker: one in work, one waiting, one done and waiting for its turn


def encode_all(
    units: Iterable[Unit], tokenizer: Tokenizer, settings: Settings, workers: int
) -> Generator[tuple[Unit, Encoded]]:
    """Each unit, without its documents, and what it is encoded to, in order. Close it to end the processes.

    Args:
        workers: processes; 1 works in this one.

    Raises:
        UserError: as `encode`, and where a process was killed.
    """
    if workers == 1:
        for unit in units:
            yield unit._replace(documents=[]), encode(unit, tokenizer, settings)
        return
    executor = concurrent.futures.ProcessPoolExecutor(
        workers,
        # Spawned: a fork copies the locks of the library's threads as they happen to be.
        multiprocessing.get_context("spawn"),
        _start_worker,
        (tokenizer, settings),
    )
    waiting: collections.deque[tuple[Unit, concurrent.futures.Future[Encoded]]] = collections.deque()
    try:
        for unit in units:
            waiting.append((unit._replace(documents=[]), executor.submit(_work, unit)))
            if len(waiting) >= UNITS_IN_FLIGHT * workers:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError("a worker process was killed, perhaps for want of memory; try fewer --workers") from None
    finally:
        executor.shutdown(cancel_futures=True)


_worker: tuple[Tokenizer, Settings]


def _start_worker(tokenizer: Tokenizer, settings: Settings) -> None:
    global _worker
    # Built anew: the library's tokenizers lose `encode_special_tokens` on their way to another process.
    _worker = tokenizer, settings
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _work(unit: Unit) -> Encoded:
    return encode(unit, *_worker)
