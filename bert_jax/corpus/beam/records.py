"""Steps of Beam that write a corpus: each shard in the memory of one worker; indexes and manifest on one worker."""

import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax.corpus.beam.pipeline import beam, read_and_spread_chunks
from bert_jax.corpus.build import corpus_writer
from bert_jax.corpus.build.cleaning.chunk import CleaningCounts
from bert_jax.corpus.build.cleaning.recipe import Recipe
from bert_jax.corpus.build.corpus_writer import PackedRecords, ShardInfo, token_dtype
from bert_jax.corpus.build.encoding import Chunk, DocumentCounts, PrepareSettings, encode_chunk, sum_document_counts
from bert_jax.corpus.build.summary import summarize_corpus
from bert_jax.corpus.manifest import MANIFEST
from bert_jax.errors import writing
from bert_jax.readers import storage
from bert_jax.tokenizer import Tokenizer

ShardKey = tuple[str, int, int]  # split, partition, block


def write_corpus(
    partitions: beam.PCollection,
    tokenizer: Tokenizer,
    settings: PrepareSettings,
    recipe: Recipe | None,
    check: Callable[[], None],
    output: str,
    cleaned: Any = None,
    decided: Any = None,
    copies: Any = None,
) -> None:
    """Write all files of a corpus except its tokenizer.

    Args:
        partitions: partitions of the documents.
        tokenizer, settings, recipe: tokenizer, settings and recipe of the corpus.
        check: raises UserError on a worker whose package versions differ from the versions on this machine.
        output: directory or URL of the corpus.
        cleaned: side input with the `CleaningCounts`; None: without cleaning.
        decided: side input with the path of a `Decisions` file; None: no search for copies.
        copies: side input with the manifest's parts about signatures and about copies; None: no search for copies.
    """
    chunks = read_and_spread_chunks(partitions, "encode", settings, tokenizer, decided)
    encode = beam.ParDo(_Encode(tokenizer, settings, check))
    encoded = chunks | "encode" >> encode.with_outputs(_Encode.COUNTS, main="records")
    shards = encoded.records | "names" >> beam.Keys() | "shards" >> beam.Distinct()
    written = (
        encoded.records
        | "group" >> beam.GroupByKey()
        | "write" >> beam.Map(_write_and_upload_shard, output, beam.pvalue.AsList(shards)).with_output_types(Any)
    )
    counts = encoded[_Encode.COUNTS] | "count" >> beam.CombineGlobally(sum_document_counts)
    _ = (
        (written, counts | "no rows" >> beam.Map(lambda all_counts: (all_counts, b"")))
        | "gather" >> beam.Flatten()
        | "to a group" >> beam.Map(lambda item: ("", item)).with_output_types(tuple[str, Any])
        | "all in a group" >> beam.GroupByKey()
        | "finish" >> beam.Map(_upload_indexes_and_manifest, output, tokenizer, settings, recipe, cleaned, copies)
    )


class _Encode(beam.DoFn):
    """A Beam function: a chunk -> (shard, (chunk number, records)) for each split; a second output has the counts."""

    COUNTS = "counts"

    def __init__(self, tokenizer: Tokenizer, settings: PrepareSettings, check: Callable[[], None]):
        self._tokenizer, self._settings, self._check = tokenizer, settings, check

    def setup(self) -> None:
        """Check package versions; Beam calls this method once per process, before the chunks."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the runner of Beam already has a process per core
        self._check()

    def process(self, chunk: Chunk) -> Iterator[Any]:
        """Yield the records of a chunk for each split, and its counts."""
        encoded = encode_chunk(chunk, self._tokenizer, self._settings)
        for split, packed in encoded.splits.items():
            yield (split, chunk.partition, chunk.block), (chunk.index, packed)
        yield beam.pvalue.TaggedOutput(self.COUNTS, encoded.counts)


class _WrittenShard(NamedTuple):
    """A shard, and the rows of its index."""

    info: ShardInfo
    rows: bytes


def _write_and_upload_shard(
    group: tuple[ShardKey, Iterable[tuple[int, PackedRecords]]], output: str, shards: Sequence[ShardKey]
) -> _WrittenShard:
    """Write and upload a shard under its final name; return its `ShardInfo` and its index rows."""
    key, records = group
    of_split = sorted(shard for shard in shards if shard[0] == key[0])
    name = corpus_writer.shard_file_name(key[0], of_split.index(key), len(of_split))
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        in_order = sorted(records, key=lambda item: item[0])  # chunks arrive in any order
        info = corpus_writer.write_shard(directory, *key, (packed for _, packed in in_order))
        storage.upload(os.path.join(directory, info.name), f"{output}/{name}")
        return _WrittenShard(info, pathlib.Path(directory, info.rows_name).read_bytes())


def _upload_indexes_and_manifest(
    group: tuple[str, Iterable[tuple[ShardInfo | DocumentCounts, bytes]]],
    output: str,
    tokenizer: Tokenizer,
    settings: PrepareSettings,
    recipe: Recipe | None,
    cleaned: CleaningCounts | None,
    copies: tuple[Sequence[dict[str, str]], dict[str, int]] | None,
) -> None:
    """Upload the indexes, the signatures (unless they are uploaded already), and then the manifest."""
    shards, counts = [], DocumentCounts()
    signatures, num_copies = copies or (None, None)
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        target = pathlib.Path(directory)
        for info, rows in group[1]:
            if isinstance(info, DocumentCounts):
                counts = info
            else:
                (target / info.rows_name).write_bytes(rows)
                shards.append(info)
        if cleaned is not None:
            counts = sum_document_counts([cleaned.counts_of_removed_documents(), counts])
        summary = summarize_corpus(tokenizer, settings, shards, counts)
        if num_copies is not None:
            summary["copies"] = num_copies
        if recipe and cleaned is not None:
            summary["cleaning"] = {**recipe.for_manifest(), **cleaned.for_manifest()}
        by_split = corpus_writer.group_shards_by_split(shards)
        splits = corpus_writer.write_indexes(target, target, by_split, token_dtype(tokenizer.vocab_size))
        names = [split["index"]["name"] for split in splits.values()]
        if signatures is None:
            hashes = corpus_writer.read_content_hashes(target, by_split)
            contents = {corpus_writer.SIGNATURES: (corpus_writer.CONTENT, hashes)}
            signatures = corpus_writer.write_signatures(target, contents)
            names += [entry["name"] for entry in signatures]
        for name in names:
            storage.upload(target / name, f"{output}/{name}")
        corpus_writer.write_json(target / MANIFEST, corpus_writer.make_manifest(summary, splits, signatures))
        storage.upload(target / MANIFEST, f"{output}/{MANIFEST}")
