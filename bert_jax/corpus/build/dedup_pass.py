"""The removed documents as JSON lines, for a look at them.

The first pass over all documents: their signatures on disk, block by block; finished blocks survive a kill.

The search for copies: a first pass over all documents, on all cores, then the decisions.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable
from collections.abc import Iterator
import numpy as np
from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.dedup_decisions import Decisions
from bert_jax.readers import ReadOptions
from bert_jax.readers import to_document
from bert_jax.errors import UserError
from bert_jax.errors import writing
from collections.abc import Callable
from typing import Any
from bert_jax.corpus.build.cleaning.blocks import BlockFiles
from bert_jax.corpus.build.dedup_decisions import save
from bert_jax.corpus.build.dedup_signatures import ROW
from bert_jax.corpus.build.dedup_signatures import Signatures
import functools
import itertools
import zipfile
import zlib
from collections.abc import Mapping
from collections.abc import Sequence
from types import MappingProxyType
from bert_jax.corpus.build.chunks import read_chunks
from bert_jax.corpus.build import dedup_decisions as decisions
from bert_jax.corpus.build.dedup_decisions import NEAR_COPIES
from bert_jax.corpus.build.dedup_decisions import Stored
from bert_jax.corpus.build.dedup_signatures import sign_chunk
from bert_jax.corpus.build.encoding import Chunk
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.workers import map_chunks
from bert_jax.tokenizer import Tokenizer


@contextlib.contextmanager
def removed_file(path: str | os.PathLike[str] | None) -> Iterator[pathlib.Path | None]:
    """Give a file beside `path` to write, and rename it to `path` when the context ends without an error.

    Raises:
        UserError: `path` exists.
    """
    if path is None:
        yield None
        return
    final = pathlib.Path(path)
    if final.exists():
        raise UserError(f"{final}: exists already; remove it or choose another --keep_removed")
    partial = final.with_name(f".{final.name}.incomplete")
    with writing(final):
        partial.write_bytes(b"")  # a killed one may have left lines
    try:
        yield partial
        os.replace(partial, final)
    finally:
        partial.unlink(missing_ok=True)


def write_removed(
    path: pathlib.Path, partitions: Iterable[Partition], options: ReadOptions, decisions: Decisions, stored: str = ""
) -> None:
    """Read the input again, and append a line {name, reason, repeats, text} per removed document, in order.

    `repeats` is the name of the document that was kept. A long document has a line for each of its pieces.

    Args:
        path: the file.
        partitions: the whole input.
        options: as in `sources.read_documents`.
        decisions: about these documents.
        stored: the corpus that documents are added to. A corpus has no names of documents, so it stands for them.
    """
    repeated = set(np.unique(decisions.copy_of).tolist())
    names: dict[int, str] = {}
    number = int(decisions.partitions[0]) - 1
    with writing(path), open(path, "a", encoding="utf-8") as file:
        for partition in partitions:
            for raw in partition.read(partition.files, options):
                number += raw.piece == 0
                if number in repeated:
                    names[number] = raw.name
                if reason := decisions.reason(number):
                    copy_of = int(decisions.copy_of[number])
                    of = f"a document of {decisions.corpus_of(copy_of) or stored}"
                    line = {
                        "name": _readable(raw.name),
                        "reason": reason,
                        "repeats": _readable(names.get(copy_of, of)),
                        "text": to_document(raw, options).text,
                    }
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _readable(name: str) -> str:
    """A name of a file that may not be UTF-8, which JSON cannot hold, with escapes."""
    return name.encode(errors="backslashreplace").decode()


PARTS = ("rows", "sketches")


class FirstPass:
    """The signatures in a directory.

    Attributes:
        files: of the blocks.
        decisions: the file of the `Decisions` that are made from them.
    """

    def __init__(self, directory: pathlib.Path, writing: Callable[[], contextlib.AbstractContextManager[None]]):
        """Args: the directory; the context that words the errors of writing to it."""
        self.files = BlockFiles(directory, PARTS, writing)
        self.decisions = directory / "decisions.npz"

    def write_block(self, partition: int, block: int, signatures: Iterable[tuple[bool, Signatures]]) -> None:
        """Write the signatures of the chunks of a block as they arrive, each with whether its partition ends."""
        key, last = (partition, block), False
        self.files.begin(key)
        for ends, own in signatures:
            last = last or ends
            self.files.append(key, [array.tobytes() for array in own])
        self.files.finish(key, last)

    def save(self, decisions: Decisions) -> None:
        """Write what was decided."""
        with self.files.writing():
            save(decisions, self.decisions)

    def open_all(self) -> list[Signatures]:
        """Return the signatures of all blocks, in the order of their documents, mapped into memory."""
        return [
            Signatures(_mapped(self.files.path(key, "rows"), ROW), _mapped(self.files.path(key, "sketches"), "<u4"))
            for key in sorted(self.files.finished)
        ]


def _mapped(path: pathlib.Path, dtype: Any) -> np.ndarray:
    """Return the numbers of a file; an empty file cannot be mapped."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)


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
