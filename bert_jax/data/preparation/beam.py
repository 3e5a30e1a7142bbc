"""The preparation as an Apache Beam pipeline: the same bytes as `prepare`, on as many machines as the runner has.

    partitions -> chunks -> records -> shards (each in the memory of one worker) -> indexes and manifest (on one worker)

Every step is a pure function of its input, and every file appears complete under its final name. So a step that the
runner repeats, or runs on two machines at once, leaves the same files.
"""

import functools
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any

from bert_jax import __version__
from bert_jax.data import sources
from bert_jax.data.manifest import MANIFEST
from bert_jax.data.preparation import chunks, corpus_writer
from bert_jax.data.preparation.corpus_writer import PackedRecords, ShardInfo, token_dtype
from bert_jax.data.preparation.encoding import Chunk, DocumentCounts, PrepareSettings, encode_chunk, sum_counts
from bert_jax.data.preparation.prepare import LIBRARIES, check_settings
from bert_jax.data.preparation.summary import summarize
from bert_jax.data.sources import ReadOptions, storage
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer, save_tokenizer
from bert_jax.errors import UserError, check_output, writing

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
except ImportError:
    raise UserError(
        "Apache Beam is missing: in an environment of its own, install bert_jax and pip install 'apache-beam>=2.77'"
    ) from None

Key = tuple[str, int, int]  # split, partition, block: a shard


def prepare_with_beam(
    inputs: Sequence[str],
    tokenizer_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    read_options: ReadOptions = ReadOptions(),
    heldout_fraction: float = PrepareSettings().heldout_fraction,
    language: str = "en",
    beam_options: Sequence[str] = (),
    max_rejected_fraction: float = PrepareSettings().max_rejected_fraction,
) -> dict[str, Any]:
    """Make the corpus that `prepare` makes from the same arguments, byte for byte, on any runner of Beam.

    Args:
        inputs: as in `prepare`; all workers read them, so they are URLs, or paths that every machine has.
        tokenizer_directory, read_options, heldout_fraction, language, max_rejected_fraction: as in `prepare`.
        output: a URL or directory that all workers write to. The manifest is written last: without it, there is no
            corpus.
        beam_options: the command line of a Beam pipeline, such as '--runner=FlinkRunner'.

    Returns:
        The manifest.

    Raises:
        UserError: as `prepare`, on any machine; options that Beam does not know.
    """
    settings = PrepareSettings(read_options, language, heldout_fraction, max_rejected_fraction=max_rejected_fraction)
    check_settings(settings)
    pipeline = _pipeline(beam_options)
    tokenizer = load_tokenizer(tokenizer_directory)
    output = _absolute_output(os.fspath(output))
    files = sources.find_files(inputs, read_options, functools.partial(print, file=sys.stderr))
    sources.check_read_options(files, read_options)
    partitions = chunks.plan_partitions(files, [sources.total_bytes([path]) for path in files])
    _upload_tokenizer(tokenizer, output)  # first: an output that cannot be written fails before the work
    try:
        with pipeline:
            _build(pipeline, partitions, tokenizer, settings, output)
    except Exception as error:
        note = f"{output}: incomplete; remove it before the next try"
        if message := _user_error(error):
            raise UserError(f"{message}\n{note}") from None
        error.add_note(note)
        raise
    with storage.open_file(f"{output}/{MANIFEST}") as file:
        return json.load(file)


def _pipeline(arguments: Sequence[str]) -> beam.Pipeline:
    try:
        options = PipelineOptions(list(arguments))
        options.get_all_options()  # parsed now, not in the middle of the work
        return beam.Pipeline(options=options)
    except SystemExit:
        raise UserError(f"--beam_options {' '.join(arguments)}: not accepted by Apache Beam, see above") from None
    except (ImportError, ValueError) as error:  # an unknown runner, or one that lacks its package or options
        raise UserError(f"--beam_options {' '.join(arguments)}: {error}") from None


def _absolute_output(output: str) -> str:
    """Return the output as every worker names it; refuse one that is not empty."""
    if not storage.is_url(output):
        output = os.path.abspath(output.removeprefix("file://"))
        check_output(output)
        return output
    output = output.rstrip("/")
    try:
        found = storage.match_files(output)
    except UserError:  # nothing there yet; if it cannot be reached, the first upload fails
        return output
    raise UserError(f"{output}: not empty, it holds {found[0]}; remove it or choose another --output")


def _upload_tokenizer(tokenizer: Tokenizer, output: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory) / "tokenizer"
        save_tokenizer(tokenizer, place)
        for path in sorted(place.iterdir()):
            storage.upload(path, f"{output}/{place.name}/{path.name}")


def _user_error(error: Exception) -> str:
    """Return the message of a UserError on any machine, or ''. Other processes send it inside a traceback."""
    if not isinstance(error, UserError) and "UserError: " not in str(error):
        return ""
    return str(error).rpartition("UserError: ")[2].partition(" [while running")[0].strip()


def _build(
    pipeline: beam.Pipeline,
    partitions: Sequence[chunks.Partition],
    tokenizer: Tokenizer,
    settings: PrepareSettings,
    output: str,
) -> None:
    encoded = (
        pipeline
        | "partitions" >> beam.Create(partitions).with_output_types(Any)
        | "read" >> beam.FlatMap(chunks.read_chunks, tokenizer, settings).with_output_types(Any)
        | "spread" >> beam.Reshuffle()  # one worker reads a large file, all encode it
        | "encode" >> beam.ParDo(_Encode(tokenizer, settings)).with_outputs(_Encode.COUNTS, main="records")
    )
    shards = encoded.records | "names" >> beam.Keys() | "shards" >> beam.Distinct()
    written = (
        encoded.records
        | "group" >> beam.GroupByKey()
        | "write" >> beam.Map(_write_shard, output, beam.pvalue.AsList(shards)).with_output_types(Any)
    )
    counts = encoded[_Encode.COUNTS] | "count" >> beam.CombineGlobally(sum_counts)
    _ = (
        (written, counts | "no rows" >> beam.Map(lambda all_counts: (all_counts, b"")))
        | "gather" >> beam.Flatten()
        | "to one" >> beam.Map(lambda item: ("", item)).with_output_types(tuple[str, Any])
        | "in one" >> beam.GroupByKey()
        | "finish" >> beam.Map(_finish, output, tokenizer, settings)
    )


class _Encode(beam.DoFn):
    """Chunk -> (shard, (number of the chunk, records)) for each split; the counts of its documents separately."""

    COUNTS = "counts"

    def __init__(self, tokenizer: Tokenizer, settings: PrepareSettings):
        self._tokenizer, self._settings = tokenizer, settings
        self._versions = _versions()

    def setup(self) -> None:
        """Run once in a worker's process, before the chunks."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the runner has a process per core
        if _versions() != self._versions:
            raise UserError(
                f"a worker has {_versions()}, this machine {self._versions}: other versions may produce other"
                " bytes; install the same on the workers"
            )

    def process(self, chunk: Chunk) -> Iterator[Any]:
        """Encode a chunk."""
        encoded = encode_chunk(chunk, self._tokenizer, self._settings)
        for split, packed in encoded.splits.items():
            yield (split, chunk.partition, chunk.block), (chunk.number, packed)
        yield beam.pvalue.TaggedOutput(self.COUNTS, encoded.counts)


def _versions() -> str:
    libraries = [f"{name} {metadata.version(name)}" for name in LIBRARIES]
    return ", ".join([f"bert_jax {__version__}", *libraries])


def _write_shard(
    group: tuple[Key, Iterable[tuple[int, PackedRecords]]], output: str, shards: Sequence[Key]
) -> tuple[ShardInfo, bytes]:
    """Write and upload one of all the shards; return its `ShardInfo` and its rows."""
    key, records = group
    own = sorted(shard for shard in shards if shard[0] == key[0])
    name = corpus_writer.final_name(key[0], own.index(key), len(own))
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        in_order = sorted(records, key=lambda item: item[0])  # they arrive in any order
        info = corpus_writer.write_shard(directory, *key, (packed for _, packed in in_order))
        storage.upload(os.path.join(directory, info.name), f"{output}/{name}")
        return info, pathlib.Path(directory, info.rows_name).read_bytes()


def _finish(
    group: tuple[str, Iterable[tuple[ShardInfo | DocumentCounts, bytes]]],
    output: str,
    tokenizer: Tokenizer,
    settings: PrepareSettings,
) -> None:
    """Upload indexes and signatures, then the manifest."""
    shards, counts = [], DocumentCounts()
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        place = pathlib.Path(directory)
        for info, rows in group[1]:
            if isinstance(info, DocumentCounts):
                counts = info
            else:
                (place / info.rows_name).write_bytes(rows)
                shards.append(info)
        summary = summarize(tokenizer, settings, shards, counts)
        by_split = corpus_writer.shards_by_split(shards)
        splits = corpus_writer.write_indexes(place, place, by_split, token_dtype(tokenizer.vocab_size))
        contents = {corpus_writer.SIGNATURES: (corpus_writer.CONTENT, corpus_writer.contents_of(place, by_split))}
        signatures = corpus_writer.write_signatures(place, contents)
        for name in [*(part["index"]["name"] for part in splits.values()), *(one["name"] for one in signatures)]:
            storage.upload(place / name, f"{output}/{name}")
        corpus_writer.write_json(place / MANIFEST, corpus_writer.make_manifest(summary, splits, signatures))
        storage.upload(place / MANIFEST, f"{output}/{MANIFEST}")
