"""The first pass over all documents: their signatures on disk, block by block; finished blocks survive a kill.

00000-00001.rows, .sketches     signatures of a block
00000-00001.json                their digests, written after them
"""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bert_jax.data.corpus import sha256_of
from bert_jax.data.preparation.corpus_writer import sync, write_json
from bert_jax.data.preparation.duplicates.decisions import Decisions, save
from bert_jax.data.preparation.duplicates.signatures import ROW, Signatures

PARTS = ("rows", "sketches")


class FirstPass:
    """The signatures in a directory.

    Attributes:
        finished: (partition, block) -> whether the block is the last of its partition.
        decisions: the file of the `Decisions` that are made from them.
    """

    def __init__(self, directory: pathlib.Path, writing: Callable[[], contextlib.AbstractContextManager[None]]):
        """Args: the directory; the context that words the errors of writing to it."""
        self._directory, self._writing = directory, writing
        self.decisions = directory / "decisions.npz"
        self.finished: dict[tuple[int, int], bool] = {}

    def resume(self) -> None:
        """Take over the blocks that a killed pass finished."""
        for path in sorted(self._directory.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found = json.loads(path.read_text())
                if found["sha256"] == self._digests(path.stem):
                    self.finished[int(found["partition"]), int(found["block"])] = bool(found["last"])

    def is_finished(self, partition: int) -> bool:
        """Return whether all blocks of a partition are finished."""
        own = sorted(block for number, block in self.finished if number == partition)
        return bool(own) and self.finished[partition, own[-1]] and own == list(range(len(own)))

    def write_block(self, partition: int, block: int, signatures: Iterable[tuple[bool, Signatures]]) -> None:
        """Write the signatures of the chunks of a block as they arrive, each with whether its partition ends."""
        name, last = _name(partition, block), False
        with self._writing():
            self._directory.mkdir(exist_ok=True)
            for part in PARTS:
                self._path(name, part).write_bytes(b"")
        for ends, own in signatures:
            last = last or ends
            with self._writing():  # around the closing, too, which writes what is left
                for part, array in zip(PARTS, own, strict=True):
                    with self._path(name, part).open("ab") as file:
                        file.write(array.tobytes())
        with self._writing():
            for part in PARTS:
                sync(self._path(name, part))
            content = {"partition": partition, "block": block, "last": last, "sha256": self._digests(name)}
            write_json(self._path(name, "json"), content)
        self.finished[partition, block] = last

    def save(self, decisions: Decisions) -> None:
        """Write what was decided."""
        with self._writing():
            save(decisions, self.decisions)

    def open_all(self) -> list[Signatures]:
        """Return the signatures of all blocks, in the order of their documents, mapped into memory."""
        return [
            Signatures(
                _mapped(self._path(_name(*key), "rows"), ROW), _mapped(self._path(_name(*key), "sketches"), "<u4")
            )
            for key in sorted(self.finished)
        ]

    def _digests(self, name: str) -> list[str]:
        return [sha256_of(self._path(name, part)) for part in PARTS]

    def _path(self, name: str, part: str) -> pathlib.Path:
        return self._directory / f"{name}.{part}"


def _name(partition: int, block: int) -> str:
    return f"{partition:05}-{block:05}"


def _mapped(path: pathlib.Path, dtype: Any) -> np.ndarray:
    """Return the numbers of a file; an empty file cannot be mapped."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)
