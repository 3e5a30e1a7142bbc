"""The files of finished blocks of a pass over all documents; they survive a kill.

00000-00001.PART     for each part
00000-00001.json     their digests, and what else is known of the block; written after them
"""

import contextlib
import json
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from bert_jax.corpus.build.corpus_writer import write_json
from bert_jax.files import sha256_of
from bert_jax.files import sync

Key = tuple[int, int]  # partition, block


class BlockFiles:
    """The files in a directory.

    Attributes:
        directory: as given.
        writing: as given.
        finished: (partition, block) -> what is known of the block: at least whether it is the `last` of its partition.
    """

    def __init__(
        self,
        directory: pathlib.Path,
        parts: Sequence[str],
        writing: Callable[[], contextlib.AbstractContextManager[None]],
    ):
        """Args: the directory; names of the parts; the context that words the errors of writing to it."""
        self.directory, self.writing, self._parts = directory, writing, tuple(parts)
        self.finished: dict[Key, dict[str, Any]] = {}

    def resume(self) -> None:
        """Take over the blocks that a killed pass finished."""
        for path in sorted(self.directory.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found = json.loads(path.read_text())
                key = (int(found["partition"]), int(found["block"]))
                if found["sha256"] == self._digests(key) and "last" in found:
                    self.finished[key] = found

    def is_finished(self, partition: int) -> bool:
        """Return whether all blocks of a partition are finished."""
        own = sorted(block for number, block in self.finished if number == partition)
        return bool(own) and self.finished[partition, own[-1]]["last"] and own == list(range(len(own)))

    def keys_of(self, partition: int) -> list[Key]:
        """Return the finished blocks of a partition, in order."""
        return sorted(key for key in self.finished if key[0] == partition)

    def path(self, key: Key, part: str) -> pathlib.Path:
        """Return the file of a part."""
        return self.directory / f"{key[0]:05}-{key[1]:05}.{part}"

    def begin(self, key: Key) -> None:
        """Make the files of a block, empty."""
        with self.writing():
            self.directory.mkdir(exist_ok=True)
            for part in self._parts:
                self.path(key, part).write_bytes(b"")

    def append(self, key: Key, contents: Sequence[bytes]) -> None:
        """Write more to each part of a block."""
        with self.writing():  # around the closing, too, which writes what is left
            for part, content in zip(self._parts, contents, strict=True):
                with self.path(key, part).open("ab") as file:
                    file.write(content)

    def finish(self, key: Key, last: bool, **known: Any) -> None:
        """Record a block whose files are complete, with what is known of it as JSON."""
        with self.writing():
            for part in self._parts:
                sync(self.path(key, part))
            content: Mapping[str, Any] = {"partition": key[0], "block": key[1], "last": last, **known}
            write_json(self.path(key, "json"), {**content, "sha256": self._digests(key)})
        self.finished[key] = dict(content)

    def _digests(self, key: Key) -> list[str]:
        return [sha256_of(self.path(key, part)) for part in self._parts]
