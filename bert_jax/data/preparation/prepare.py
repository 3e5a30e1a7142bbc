"""Documents -> corpus on this machine: all cores, in the order of the input, in bounded memory, killed and gone on."""

import contextlib
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from typing import Any

from bert_jax import __version__
from bert_jax.data import corpus, sources
from bert_jax.data.preparation import encoding, units
from bert_jax.data.preparation.account import account, summary
from bert_jax.data.preparation.corpus_writer import ShardWriter, token_dtype
from bert_jax.data.preparation.encoding import Counts, Encoded, Settings, Unit, total
from bert_jax.data.preparation.unfinished import Block, Unfinished
from bert_jax.data.preparation.workers import encode_all
from bert_jax.data.sources import records
from bert_jax.data.sources.records import Reading
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.errors import UserError

__all__ = ["check", "prepare", "summary"]

# The library takes the rules of English for what it does not know, and says nothing.
LANGUAGE_CODE = "[a-z]{2,3}(-[a-z]+)*|none"
LIBRARIES = ("array_record", "sentencex", "tokenizers")  # another version may make other bytes

Progress = Callable[[int, int, int], None]


def prepare(
    inputs: Sequence[str],
    tokenizer_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    reading: Reading = Reading(),
    workers: int | None = None,
    heldout_fraction: float = Settings().heldout_fraction,
    language: str = "en",
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Makes the corpus `output` from text; the same input gives the same bytes for any number of workers.

    Killed or interrupted, it leaves `.NAME.incomplete` beside the output if any block of `units.UNITS_PER_SHARD` units
    was finished; the same call goes on from there and makes the same bytes. What has changed since (an input's name,
    size, time or etag, a setting, the tokenizer, a version) makes it start over.

    Args:
        inputs, reading: as in `sources.documents`.
        tokenizer_directory: for `load_tokenizer`; the tokenizer is saved in the corpus.
        workers: processes that encode; None takes one a core, 1 works in this process.
        heldout_fraction: of the documents, chosen by a hash of their text, so that equal texts fall on one side.
        language: ISO 639 code, of two letters where there is one, whose rules part the sentences.
        progress: called with (bytes of input read, bytes in all, documents done).
        say: told in a line what is gone on from, started over, or kept for the next time.

    Returns:
        The manifest. `manifest['documents']` has {in, stored, rejected: {reason: n}}, where in = stored + the sum of
        rejected; `manifest['warnings']` has lines to show.

    Raises:
        UserError: bad input, tokenizer or output; no training document.
    """
    settings = Settings(reading, language, heldout_fraction)
    check(settings)
    workers = (os.cpu_count() or 1) if workers is None else workers
    if workers < 1:
        raise UserError(f"--workers {workers}: give at least 1")
    tokenizer = load_tokenizer(tokenizer_directory)
    files = sources.find_files(inputs)
    sources.check_reading(files, reading)
    sizes = [sources.total_bytes([path]) for path in files]
    parts = units.plan(files, sizes)
    with Unfinished(output, _identity(files, sizes, tokenizer, settings), say) as place:
        todo = (
            unit
            for part in parts
            if not place.is_finished(part.number)
            for unit in units.units(part, tokenizer, settings)
            if (unit.part, unit.block) not in place.blocks
        )
        documents = sum(block.counts.documents for block in place.blocks.values())
        with contextlib.closing(encode_all(todo, tokenizer, settings, workers)) as encoded:
            for _, results in itertools.groupby(_told(encoded, documents, sum(sizes), progress), _block):
                place.add(_written(results, place))
        blocks = place.blocks.values()
        try:
            facts = account(
                tokenizer,
                settings,
                [shard for block in blocks for shard in block.shards],
                total(block.counts for block in blocks),
            )
        except UserError:
            place.discard()
            raise
        return place.publish(tokenizer, token_dtype(tokenizer.vocab_size), facts)


def check(settings: Settings) -> None:
    """Refuses, by UserError, a share that is none, and what cannot be the code of a language."""
    if not re.fullmatch(LANGUAGE_CODE, settings.language):
        raise UserError(
            f"--language {settings.language}: give a code such as de, ko or zh, as Wikipedia has them, or none for "
            "text without sentences"
        )
    if not 0 <= settings.heldout_fraction < 1:
        raise UserError(f"--heldout_fraction {settings.heldout_fraction}: give a share from 0 to below 1")


def _block(result: tuple[Unit, Encoded]) -> tuple[int, int]:
    return result[0].part, result[0].block


def _told(
    results: Iterator[tuple[Unit, Encoded]], documents: int, all_bytes: int, progress: Progress | None
) -> Iterator[tuple[Unit, Encoded]]:
    """The same results; after each has been dealt with, `progress` is."""
    for unit, encoded in results:
        yield unit, encoded
        documents += encoded.counts.documents
        if progress:
            progress(unit.bytes_read, all_bytes, documents)


def _written(results: Iterator[tuple[Unit, Encoded]], place: Unfinished) -> Block:
    """Writes the shards of a block, as its units come."""
    writers: dict[str, ShardWriter] = {}
    counts = Counts()
    with contextlib.ExitStack() as stack:
        for unit, encoded in results:
            counts = total([counts, encoded.counts])
            with place.writing():
                for split, packed in encoded.splits.items():
                    if split not in writers:
                        writer = ShardWriter(place.directory, split, unit.part, unit.block)
                        writers[split] = stack.enter_context(writer)
                    writers[split].write(packed)
        with place.writing():
            shards = tuple(writer.close() for writer in writers.values())
    return Block(unit.part, unit.block, unit.last, shards, counts)


def _identity(files: Sequence[str], sizes: Sequence[int], tokenizer: Tokenizer, settings: Settings) -> dict[str, Any]:
    """All that the bytes of shards depend on, by what a person calls it."""
    inputs = hashlib.sha256()
    for path, size in zip(files, sizes, strict=True):
        place = os.path.abspath(path) if os.path.exists(path) else path
        inputs.update(json.dumps([place, size, sources.stamp(path)]).encode())
    return {
        "the input": inputs.hexdigest(),
        "the tokenizer": tokenizer.sha256,
        "the settings": [*settings.reading, settings.language, settings.heldout_fraction],
        "the program": {
            "versions": [sys.version, __version__, *map(metadata.version, LIBRARIES)],
            "format": [corpus.FORMAT_VERSION, corpus.MAX_RECORD, corpus.MAX_SENTENCE, encoding.WINDOW],
            "pieces": [records.LARGE, records.PIECE],
            "units": [units.PART_BYTES, units.UNIT_BYTES, units.UNITS_PER_SHARD],
        },
    }
