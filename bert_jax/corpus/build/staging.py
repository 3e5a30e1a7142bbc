"""The directory of a corpus that is being written, beside the final directory; finished blocks survive a kill.

.NAME.incomplete/
    plan.json      everything that the bytes of shards depend on: input, tokenizer, settings, versions
    cleaned/       documents after the rules of `--clean`, see cleaning/stage.py
    lines/         counts of lines for the rule `repeated_lines`
    copies/        the signatures of `--deduplicate`, see dedup_pass.py
    blocks/        the shards of encoded documents, 00000-00001.train.arrayrecord and so on, and their rows
    corpus/        the corpus during its assembly; renamed to NAME when complete
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from bert_jax import errors, strict_json
from bert_jax.corpus.build.corpus_writer import (
    BaseCorpus,
    ShardInfo,
    group_shards_by_split,
    shard_file_name,
    write_json,
)
from bert_jax.corpus.build.passes import FinishedBlocks
from bert_jax.corpus.build.summary import format_count
from bert_jax.corpus.manifest import MANIFEST, read_manifest
from bert_jax.errors import UserError, check_output
from bert_jax.files import SUMS, new_file, read_file, sync, write_sums


class UnfinishedCorpus:
    """The directory of a corpus that is being written, with a lock for a single process.

    A context that ends before the end of `publishing` keeps the finished blocks on disk; without finished blocks, the
    context removes the directory.

    Attributes:
        cleaned, lines, signed, encoded: the finished blocks of each pass. Blocks that a killed preparation of equal
            identity finished are included. The record of an encoded block has a list `shards` with the fields of each
            `ShardInfo`.
    """

    def __init__(
        self,
        output: pathlib.Path,
        identity: Mapping[str, Any],
        say: Callable[[str], None],
        base: BaseCorpus | None = None,
    ):
        """Store the arguments; the context manager creates the directory.

        Args:
            output: the final directory.
            identity: result of `preparation_identity`, JSON.
            say: function that prints a line.
            base: for an append, the corpus in the final directory.
        """
        self._output = output.absolute()
        self._directory = self._output.parent / f".{self._output.name}.incomplete"
        self._corpus = self._directory / "corpus"
        self.cleaned, self.lines, self.signed, self.encoded = self._passes = [
            FinishedBlocks(self._directory / name, self.writing) for name in ("cleaned", "lines", "copies", "blocks")
        ]
        self._identity, self._say, self._base = json.loads(json.dumps(identity)), say, base

    def __enter__(self) -> Self:
        if not self._base:
            check_output(self._output)
        with self.writing():
            self._directory.mkdir(parents=True, exist_ok=True)
            # The system releases the lock when the process ends, so only a killed process leaves an unlocked directory.
            self._lock = os.open(self._directory, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UserError(f"{self._output}: another preparation is writing this corpus; wait for its end") from None
        try:
            if self._base and read_manifest(self._output)["fingerprint"] != self._base.manifest["fingerprint"]:
                raise UserError(
                    f"{self._output}: another preparation has added to this corpus meanwhile; run the command again"
                )
            with self.writing():
                self._keep_finished_blocks()
        except BaseException:
            self._close()
            raise
        return self

    def _keep_finished_blocks(self) -> None:
        """Reuse the blocks that a killed preparation of equal identity finished, and remove everything else."""
        try:
            before = strict_json.parse(read_file(self._directory / "plan.json").decode())
        except (OSError, ValueError):
            before = None
        before = before if isinstance(before, dict) else {}
        changed = [name for name, value in self._identity.items() if before.get(name) != value]
        if not changed:
            self._rename_shards_back()
            for blocks in self._passes:
                blocks.resume()
        num_finished = self._num_finished()
        if num_finished:
            blocks_text = format_count(num_finished, "finished block")
            self._say(f"{self._output}: resumes after {blocks_text} of an interrupted preparation")
        elif before and changed:
            self._say(f"{self._output}: starts over, as {' and '.join(changed)} changed since it was interrupted")
        reused = {self._directory / "plan.json", *(blocks.directory for blocks in self._passes)} if num_finished else {}
        for path in self._directory.iterdir():
            if path not in reused:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.encoded.directory.mkdir(exist_ok=True)
        if not num_finished:
            write_json(self._directory / "plan.json", self._identity)

    def _rename_shards_back(self) -> None:
        """Rename shards that already have their final names back to their names in the blocks."""
        records = self.encoded.read_records().values()
        shards = [ShardInfo(**shard) for record in records for shard in record["shards"]]
        directories, num_appends = [self._corpus], 0
        if self._base:
            directories, num_appends = [self._corpus, self._output], self._base.num_snapshots
        for split, split_shards in group_shards_by_split(shards).items():
            for index, shard in enumerate(split_shards):
                for directory in directories:
                    path = directory / shard_file_name(split, index, len(split_shards), num_appends)
                    if path.exists():
                        os.replace(path, self.encoded.directory / shard.name)

    def _num_finished(self) -> int:
        return sum(len(blocks.records) for blocks in self._passes)

    @contextlib.contextmanager
    def publishing(self) -> Iterator[pathlib.Path]:
        """Yield a temporary path for the corpus; at the end, move the corpus to its final path."""
        with self.writing():
            yield self._corpus
            if self._base:
                _publish_append(self._corpus, self._base)
            else:
                os.rename(self._corpus, self._output)
                sync(self._output.parent)
        self.discard()

    def discard(self) -> None:
        """Forget the finished blocks, so that the exit removes the directory."""
        for blocks in self._passes:
            blocks.records.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if num_finished := self._num_finished():
            remaining = format_count(num_finished, "finished block")
            self._say(f"{self._output}: kept {remaining}; the same command resumes from there")
        elif isinstance(error, KeyboardInterrupt):
            self._say(f"{self._output}: no block was finished; the same command starts from the beginning")
        self._close()

    def _close(self) -> None:
        if not self._num_finished():
            shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._lock)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Turn an error of Python or ArrayRecord about a full disk or a read-only directory into a UserError."""
        remaining = "finished blocks were kept" if self._num_finished() else "nothing was kept"
        with errors.writing(self._output, f"{remaining}; make room, or choose another --output"):
            try:
                yield
            except RuntimeError as error:
                raise errors.os_error_in_message(error) from error


def _publish_append(source: pathlib.Path, base: BaseCorpus) -> None:
    """Move the files in `source` into a corpus, the manifest last, so that a reader sees all files or none.

    A kill may leave files that no manifest names; the next append replaces or removes these files.
    """
    for path in base.directory.glob(f"*.{base.num_snapshots}-*-of-*.arrayrecord"):
        path.unlink()
    for path in sorted(source.iterdir()):
        if path.name != MANIFEST:
            os.replace(path, base.directory / path.name)
    with new_file(base.directory / base.old_manifest_name, binary=True) as file:
        file.write((base.directory / MANIFEST).read_bytes())
    os.replace(source / MANIFEST, base.directory / MANIFEST)
    sync(base.directory)
    if (base.directory / SUMS).exists():
        write_sums(base.directory)
