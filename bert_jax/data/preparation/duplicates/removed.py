"""The removed documents as JSON lines, for a look at them."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np

from bert_jax.data.preparation.chunks import Partition
from bert_jax.data.preparation.duplicates.decisions import Decisions
from bert_jax.data.sources import ReadOptions, to_document
from bert_jax.errors import UserError, writing


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
