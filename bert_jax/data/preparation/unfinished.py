"""A corpus in the making, beside its final place: what of it is finished outlives the process, and is gone on from.

.NAME.incomplete/
    plan.json                           what the shards are made from, and by what
    blocks/00000-00001.json             the account of a finished block, written after its shards
    blocks/train-00000-00001.arrayrecord, ...arrayrecord.rows
    corpus/                             the corpus while it is put together; renamed to NAME when complete
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from bert_jax import errors
from bert_jax.data.corpus import sha256_of
from bert_jax.data.preparation.account import counted
from bert_jax.data.preparation.corpus_writer import ShardFacts, final_name, finish, in_order, sync, write_json
from bert_jax.data.preparation.encoding import Counts
from bert_jax.data.tokenizer import Tokenizer, save
from bert_jax.errors import UserError, check_output


class Block(NamedTuple):
    """A finished stretch of a part: one shard of each split that has records, and the account of its documents."""

    part: int
    block: int
    last: bool  # of its part
    shards: tuple[ShardFacts, ...]
    counts: Counts


class Unfinished:
    """The directory of a corpus in the making; one process at a time has it.

    A context manager: left before `publish`, it keeps what is finished; where nothing is, it leaves nothing behind.

    Attributes:
        blocks: (part, block) -> what is finished; at the start what a killed preparation of the same plan left.
        directory: for the shards of blocks.
    """

    def __init__(self, output: str | os.PathLike[str], plan: Mapping[str, Any], say: Callable[[str], None]):
        """Args: where the corpus shall be; all that its bytes depend on, as JSON; what to tell the user by."""
        self.output = pathlib.Path(output).absolute()
        self.blocks: dict[tuple[int, int], Block] = {}
        self._place = self.output.parent / f".{self.output.name}.incomplete"
        self.directory = self._place / "blocks"
        self._corpus = self._place / "corpus"
        self._plan, self._say = json.loads(json.dumps(plan)), say

    def __enter__(self) -> Self:
        check_output(self.output)
        with self.writing():
            self._place.mkdir(parents=True, exist_ok=True)
            # Held until the process ends, however it ends: an unlocked directory is a leftover.
            self._lock = os.open(self._place, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UserError(f"{self.output}: another preparation is writing this corpus; let it end") from None
        try:
            with self.writing():
                self._go_on()
        except BaseException:
            self._leave()
            raise
        return self

    def _go_on(self) -> None:
        """Takes over what a killed preparation finished, if it had the same plan, and removes all else."""
        before = _read_json(self._place / "plan.json")
        changed = [name for name, value in self._plan.items() if before.get(name) != value]
        if not changed:
            found = [_read_block(path) for path in sorted(self.directory.glob("*.json"))]
            blocks = [block for block in found if block]
            self._take_back(blocks)
            self.blocks = {(block.part, block.block): block for block in blocks if self._is_whole(block)}
        if self.blocks:
            self._say(
                f"{self.output}: goes on after {counted(len(self.blocks), 'finished block')} of an interrupted "
                "preparation"
            )
        elif before and changed:
            self._say(f"{self.output}: starts over, as {' and '.join(changed)} changed since it was interrupted")
        kept = {self._place / "plan.json", self.directory} if self.blocks else set()
        for block in self.blocks.values():
            kept.add(self._account(block.part, block.block))
            kept.update(self.directory / name for shard in block.shards for name in (shard.name, shard.rows_name))
        for path in [*self._place.iterdir(), *(self.directory.iterdir() if self.blocks else ())]:
            if path not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not self.blocks:
            self.directory.mkdir()
            write_json(self._place / "plan.json", self._plan)

    def _take_back(self, blocks: list[Block]) -> None:
        """Gives shards that had their final names already those of blocks again."""
        for split, shards in in_order(shard for block in blocks for shard in block.shards).items():
            for number, shard in enumerate(shards):
                path = self._corpus / final_name(split, number, len(shards))
                if path.exists():
                    os.replace(path, self.directory / shard.name)

    def _is_whole(self, block: Block) -> bool:
        try:
            return all(
                sha256_of(self.directory / shard.name) == shard.sha256
                and sha256_of(self.directory / shard.rows_name) == shard.rows_sha256
                for shard in block.shards
            )
        except OSError:
            return False

    def is_finished(self, part: int) -> bool:
        """Whether all blocks of a part are."""
        blocks = [block for block in self.blocks.values() if block.part == part]
        return any(block.last and block.block + 1 == len(blocks) for block in blocks)

    def add(self, block: Block) -> None:
        """A block whose shards are on the disk: from now on it is not made again."""
        with self.writing():
            sync(self.directory)
            content = {**block._asdict(), "shards": [shard._asdict() for shard in block.shards]}
            write_json(self._account(block.part, block.block), {**content, "counts": block.counts._asdict()})
        self.blocks[block.part, block.block] = block

    def publish(self, tokenizer: Tokenizer, dtype: np.dtype, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Puts the corpus together and moves it into its place; returns the manifest."""
        with self.writing():
            self._corpus.mkdir()
            save(tokenizer, self._corpus / "tokenizer")
            shards = [shard for block in self.blocks.values() for shard in block.shards]
            manifest = finish(self.directory, self._corpus, shards, dtype, facts)
            os.rename(self._corpus, self.output)
            sync(self.output.parent)
        self.blocks.clear()
        return manifest

    def discard(self) -> None:
        """Nothing is to be kept."""
        self.blocks.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.blocks:
            kept = counted(len(self.blocks), "finished block")
            self._say(f"{self.output}: kept {kept}; the same command goes on from there")
        elif isinstance(error, KeyboardInterrupt):
            self._say(f"{self.output}: no block was finished to go on from; the same command starts from the beginning")
        self._leave()

    def _leave(self) -> None:
        if not self.blocks:
            shutil.rmtree(self._place, ignore_errors=True)
        os.close(self._lock)

    def _account(self, part: int, block: int) -> pathlib.Path:
        return self.directory / f"{part:05}-{block:05}.json"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Says a full disk or a read-only place in one line; ArrayRecord's OSError is a RuntimeError."""
        kept = "finished blocks were kept" if self.blocks else "nothing was kept"
        with errors.writing(self.output, f"{kept}; make room, or choose another place"):
            try:
                yield
            except RuntimeError as error:
                raise OSError(str(error)) from error


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_block(path: pathlib.Path) -> Block | None:
    """None for a file that is damaged."""
    try:
        found = _read_json(path)
        shards = tuple(ShardFacts(**shard) for shard in found["shards"])
        return Block(**{**found, "shards": shards, "counts": Counts(**found["counts"])})
    except (KeyError, TypeError):
        return None
