"""The search for copies: a first pass over all documents, on all cores, then the decisions."""

import contextlib
import functools
import itertools
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from bert_jax.data.preparation.chunks import Partition, read_chunks
from bert_jax.data.preparation.duplicates import decisions
from bert_jax.data.preparation.duplicates.decisions import NEAR_COPIES, Decisions, Stored
from bert_jax.data.preparation.duplicates.first_pass import FirstPass
from bert_jax.data.preparation.duplicates.signatures import Signatures, sign_chunk
from bert_jax.data.preparation.encoding import Chunk, PrepareSettings
from bert_jax.data.preparation.workers import map_chunks
from bert_jax.data.tokenizer import Tokenizer


def find_copies(
    first_pass: FirstPass,
    partitions: Sequence[Partition],
    tokenizer: Tokenizer | None,
    settings: PrepareSettings,
    workers: int,
    progress: Callable[[int, int], None],
    stored: Mapping[str, Stored] = MappingProxyType({}),
) -> Decisions:
    """Return what is removed; finished blocks and decisions of a killed search are kept.

    Args:
        first_pass: the signatures that are on disk.
        partitions: the whole input.
        tokenizer, settings, workers: as in `prepare`.
        progress: called with (bytes of input read, documents done).
        stored: corpus -> its documents, whose copies are removed, too.

    Raises:
        UserError: as `read_chunks` and `sign_chunk`.
    """
    if all(first_pass.files.is_finished(partition.number) for partition in partitions):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
            return decisions.load(first_pass.decisions)
    near = NEAR_COPIES.get(settings.deduplicate, False)
    todo = (
        chunk
        for partition in partitions
        if not first_pass.files.is_finished(partition.number)
        for chunk in read_chunks(partition, tokenizer, settings)
        if (chunk.partition, chunk.block) not in first_pass.files.finished
    )
    work = functools.partial(sign_chunk, read_options=settings.read_options, near=near)
    number = 0

    def report(results: Iterator[tuple[Chunk, Signatures]]) -> Iterator[tuple[Chunk, Signatures]]:
        nonlocal number
        for chunk, signatures in results:
            yield chunk, signatures
            number += int(signatures.rows["begins"].sum())
            progress(chunk.bytes_read, number)

    with contextlib.closing(map_chunks(todo, work, workers)) as signed:
        for key, results in itertools.groupby(report(signed), lambda result: (result[0].partition, result[0].block)):
            first_pass.write_block(*key, ((chunk.last, signatures) for chunk, signatures in results))
    blocks = [partition for partition, _ in sorted(first_pass.files.finished)]
    found = decisions.decide(first_pass.open_all(), blocks, near, stored, settings.heldout_fraction)
    first_pass.save(found)
    return found
