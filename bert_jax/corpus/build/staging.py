"""The directory of a corpus that is being written, beside the final one; finished blocks survive a kill.

.NAME.incomplete/
    plan.json                           what the shards are made from: input, tokenizer, settings, versions
    blocks/00000-00001.json             the counts of a finished block, written after its shards
    blocks/train-00000-00001.arrayrecord, ...arrayrecord.rows
    cleaned/                            documents as the rules of `--clean` leave them, see cleaning/stage.py
    lines/                              the lines that are counted for them
    copies/                             the first pass of `--deduplicate`, see duplicates/first_pass.py
    corpus/                             the corpus while it is assembled; renamed to NAME when complete
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from bert_jax import errors
from bert_jax import strict_json
from bert_jax.corpus.manifest import read_manifest
from bert_jax.corpus.build.cleaning import repeated_lines
from bert_jax.corpus.build.cleaning import stage
from bert_jax.corpus.build.cleaning.blocks import BlockFiles
from bert_jax.corpus.build.corpus_writer import Base
from bert_jax.corpus.build.corpus_writer import ShardInfo
from bert_jax.corpus.build.corpus_writer import Signatures
from bert_jax.corpus.build.corpus_writer import assemble_corpus
from bert_jax.corpus.build.corpus_writer import final_name
from bert_jax.corpus.build.corpus_writer import shards_by_split
from bert_jax.corpus.build.corpus_writer import write_json
from bert_jax.corpus.build.dedup_pass import FirstPass
from bert_jax.corpus.build.encoding import DocumentCounts
from bert_jax.corpus.build.append import publish_append
from bert_jax.corpus.build.summary import count_noun
from bert_jax.tokenizer import Tokenizer
from bert_jax.tokenizer import save_tokenizer
from bert_jax.errors import UserError
from bert_jax.errors import check_output
from bert_jax.files import sha256_of
from bert_jax.files import sync


class Block(NamedTuple):
    """A finished block: one shard of each split that has records, and the counts of its documents."""

    partition: int
    block: int
    last: bool  # of its partition
    shards: tuple[ShardInfo, ...]
    counts: DocumentCounts


class UnfinishedCorpus:
    """The directory of a corpus that is being written; one process at a time holds it.

    A context manager: left before `publish`, it keeps the finished blocks; without any, it leaves nothing behind.

    Attributes:
        blocks: (partition, block) -> the finished block; at first those of a killed preparation with the same plan.
        directory: for the shards of blocks.
        cleaned: documents after cleaning, whose blocks are kept like those of the corpus.
        lines: the lines that a cleaning counts before, likewise.
        first_pass: the signatures of documents, likewise.
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        plan: Mapping[str, Any],
        say: Callable[[str], None],
        base: Base | None = None,
    ):
        """Args: the final directory; everything that its bytes depend on, as JSON; a function that prints a line; the
        corpus in the final directory, where documents are added to it.
        """
        self.output = pathlib.Path(output).absolute()
        self.blocks: dict[tuple[int, int], Block] = {}
        self._incomplete = self.output.parent / f".{self.output.name}.incomplete"
        self.directory = self._incomplete / "blocks"
        self._corpus = self._incomplete / "corpus"
        self.cleaned = BlockFiles(self._incomplete / "cleaned", stage.PARTS, self.writing)
        self.lines = BlockFiles(self._incomplete / "lines", repeated_lines.PARTS, self.writing)
        self.first_pass = FirstPass(self._incomplete / "copies", self.writing)
        self._passes = (self.cleaned, self.lines, self.first_pass.files)
        self._base = base
        self._plan, self._say = json.loads(json.dumps(plan)), say

    def __enter__(self) -> Self:
        if not self._base:
            check_output(self.output)
        with self.writing():
            self._incomplete.mkdir(parents=True, exist_ok=True)
            # Held until the process ends, however it ends: a directory without a lock is a leftover.
            self._lock = os.open(self._incomplete, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UserError(f"{self.output}: another preparation is writing this corpus; wait for it to end") from None
        try:
            if self._base and read_manifest(self.output)["fingerprint"] != self._base.manifest["fingerprint"]:
                raise UserError(f"{self.output}: another preparation has added to this corpus meanwhile; run it again")
            with self.writing():
                self._resume()
        except BaseException:
            self._leave()
            raise
        return self

    def _resume(self) -> None:
        """Keep the blocks that a killed preparation finished, if it had the same plan, and remove everything else."""
        before = _read_json(self._incomplete / "plan.json")
        changed = [name for name, value in self._plan.items() if before.get(name) != value]
        if not changed:
            found = [_read_block(path) for path in sorted(self.directory.glob("*.json"))]
            blocks = [block for block in found if block]
            self._take_back(blocks)
            self.blocks = {(block.partition, block.block): block for block in blocks if self._is_whole(block)}
            for files in self._passes:
                files.resume()
        if self._num_finished:
            self._say(
                f"{self.output}: resumes after {count_noun(self._num_finished, 'finished block')} of an interrupted "
                "preparation"
            )
        elif before and changed:
            self._say(f"{self.output}: starts over, as {' and '.join(changed)} changed since it was interrupted")
        directories = {files.directory for files in self._passes}
        kept = {self._incomplete / "plan.json", self.directory, *directories} if self._num_finished else set()
        for block in self.blocks.values():
            kept.add(self._block_file(block.partition, block.block))
            kept.update(self.directory / name for shard in block.shards for name in (shard.name, shard.rows_name))
        for path in [*self._incomplete.iterdir(), *(self.directory.iterdir() if self._num_finished else ())]:
            if path not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not self._num_finished:
            self.directory.mkdir()
            write_json(self._incomplete / "plan.json", self._plan)

    @property
    def _num_finished(self) -> int:
        """Number of finished blocks, of all passes."""
        return len(self.blocks) + sum(len(files.finished) for files in self._passes)

    def _take_back(self, blocks: list[Block]) -> None:
        """Rename shards that have their final names already back to those of blocks."""
        append, places = (self._base.number, [self._corpus, self.output]) if self._base else (0, [self._corpus])
        for split, shards in shards_by_split(shard for block in blocks for shard in block.shards).items():
            for number, shard in enumerate(shards):
                for path in (place / final_name(split, number, len(shards), append) for place in places):
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

    def is_finished(self, partition: int) -> bool:
        """Return whether all blocks of a partition are finished."""
        blocks = [block for block in self.blocks.values() if block.partition == partition]
        return any(block.last and block.block + 1 == len(blocks) for block in blocks)

    def add(self, block: Block) -> None:
        """Record a block whose shards are on disk, so that it is not made again."""
        with self.writing():
            sync(self.directory)
            content = {**block._asdict(), "shards": [shard._asdict() for shard in block.shards]}
            write_json(self._block_file(block.partition, block.block), {**content, "counts": block.counts._asdict()})
        self.blocks[block.partition, block.block] = block

    def publish(
        self, tokenizer: Tokenizer, dtype: np.dtype, summary: Mapping[str, Any], signatures: Signatures | None = None
    ) -> dict[str, Any]:
        """Assemble the corpus, move it to its final directory, and return the manifest."""
        with self.publishing() as place:
            place.mkdir()
            if not self._base:
                save_tokenizer(tokenizer, place / "tokenizer")
            shards = [shard for block in self.blocks.values() for shard in block.shards]
            return assemble_corpus(self.directory, place, shards, dtype, summary, signatures, self._base)

    @contextlib.contextmanager
    def publishing(self) -> Iterator[pathlib.Path]:
        """Give a place for what is published, move it to the final one at the end, and forget the finished blocks."""
        with self.writing():
            yield self._corpus
            if self._base:
                publish_append(self._corpus, self._base)
            else:
                os.rename(self._corpus, self.output)
                sync(self.output.parent)
        self.discard()

    def discard(self) -> None:
        """Forget the finished blocks, so that nothing is kept."""
        self.blocks.clear()
        for files in self._passes:
            files.finished.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._num_finished:
            kept = count_noun(self._num_finished, "finished block")
            self._say(f"{self.output}: kept {kept}; the same command resumes from there")
        elif isinstance(error, KeyboardInterrupt):
            self._say(f"{self.output}: no block was finished; the same command starts from the beginning")
        self._leave()

    def _leave(self) -> None:
        if not self._num_finished:
            shutil.rmtree(self._incomplete, ignore_errors=True)
        os.close(self._lock)

    def _block_file(self, partition: int, block: int) -> pathlib.Path:
        return self.directory / f"{partition:05}-{block:05}.json"

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turn the error of a full disk or a read-only directory into a UserError; ArrayRecord raises RuntimeError."""
        kept = "finished blocks were kept" if self._num_finished else "nothing was kept"
        with errors.writing(self.output, f"{kept}; make room, or choose another --output"):
            try:
                yield
            except RuntimeError as error:
                raise OSError(str(error)) from error


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        found = strict_json.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_block(path: pathlib.Path) -> Block | None:
    """Return the block of a file; None where the file is damaged."""
    try:
        found = _read_json(path)
        shards = tuple(ShardInfo(**shard) for shard in found["shards"])
        return Block(**{**found, "shards": shards, "counts": DocumentCounts(**found["counts"])})
    except (KeyError, TypeError):
        return None
