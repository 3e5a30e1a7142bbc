"""The preparation as an Apache Beam pipeline: the bytes of `prepare`, from as many machines as the runner has.

    parts -> units -> records -> shards (each in the memory of one worker) -> indexes and manifest (by one worker)

Every step is a pure function of what it is given, and every file appears whole under its final name. So work that a
runner does again, or on two machines at once, leaves the same files.
"""

import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any

from bert_jax import __version__
from bert_jax.data import sources
from bert_jax.data.corpus import sha256_of
from bert_jax.data.preparation import corpus_writer, units
from bert_jax.data.preparation.account import account
from bert_jax.data.preparation.corpus_writer import Packed, ShardFacts, token_dtype
from bert_jax.data.preparation.encoding import Counts, Settings, Unit, encode, total
from bert_jax.data.preparation.prepare import LIBRARIES, check
from bert_jax.data.preparation.units import Part
from bert_jax.data.sources import Reading, storage
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer, save
from bert_jax.errors import UserError, check_output, writing

try:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
except ImportError:
    raise UserError("Apache Beam is missing: pip install 'bert-jax[beam]', into an environment of its own") from None

Key = tuple[str, int, int]  # split, part, block: a shard
MANIFEST = "manifest.json"


def prepare_with_beam(
    inputs: Sequence[str],
    tokenizer_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    reading: Reading = Reading(),
    heldout_fraction: float = Settings().heldout_fraction,
    language: str = "en",
    beam_options: Sequence[str] = (),
) -> dict[str, Any]:
    """Makes the corpus that `prepare` makes of the same arguments, byte for byte, on any runner of Beam.

    Args:
        inputs: as in `prepare`; all workers read them, so they are URLs, or paths that every machine has.
        tokenizer_directory, reading, heldout_fraction, language: as in `prepare`.
        output: a URL or directory that all workers write into. The manifest comes last: without it, it is no corpus.
        beam_options: the command line of a Beam pipeline, such as '--runner=FlinkRunner'.

    Returns:
        The manifest.

    Raises:
        UserError: as `prepare`, on whichever machine it happens; options that Beam does not take.
    """
    settings = Settings(reading, language, heldout_fraction)
    check(settings)
    pipeline = _pipeline(beam_options)
    tokenizer = load_tokenizer(tokenizer_directory)
    output = _output(os.fspath(output))
    files = sources.find_files(inputs)
    sources.check_reading(files, reading)
    parts = units.plan(files, [sources.total_bytes([path]) for path in files])
    _put_tokenizer(tokenizer, output)  # first of all: whether the output can be written is known before the work
    try:
        with pipeline:
            _build(pipeline, parts, tokenizer, settings, output)
    except Exception as error:
        left = f"{output}: incomplete; remove it before the next try"
        if mistake := _mistake(error):
            raise UserError(f"{mistake}\n{left}") from None
        error.add_note(left)
        raise
    with storage.open_file(f"{output}/{MANIFEST}") as file:
        return json.load(file)


def _pipeline(arguments: Sequence[str]) -> beam.Pipeline:
    try:
        options = PipelineOptions(list(arguments))
        options.get_all_options()  # read now, not in the middle of the work
        return beam.Pipeline(options=options)
    except SystemExit:
        raise UserError(f"--beam_options {' '.join(arguments)}: Apache Beam says above what it cannot read") from None
    except (ImportError, ValueError) as error:  # an unknown runner, or one without its package or options
        raise UserError(f"--beam_options {' '.join(arguments)}: {error}") from None


def _output(place: str) -> str:
    """The place as every worker calls it; refused where it holds something."""
    if not storage.is_url(place):
        place = os.path.abspath(place.removeprefix("file://"))
        check_output(place)
        return place
    place = place.rstrip("/")
    try:
        found = storage.find(place)
    except UserError:  # there is nothing yet; if it cannot be reached, the first file that is put there tells
        return place
    raise UserError(f"{place}: holds something already ({found[0]}); remove it or choose another --output")


def _put_tokenizer(tokenizer: Tokenizer, output: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory) / "tokenizer"
        save(tokenizer, place)
        for path in sorted(place.iterdir()):
            storage.put(path, f"{output}/{place.name}/{path.name}")


def _mistake(error: Exception) -> str:
    """What a UserError on any machine said, or ''. Other processes send it as the text of a traceback."""
    if not isinstance(error, UserError) and "UserError: " not in str(error):
        return ""
    return str(error).rpartition("UserError: ")[2].partition(" [while running")[0].strip()


def _build(
    pipeline: beam.Pipeline, parts: Sequence[Part], tokenizer: Tokenizer, settings: Settings, output: str
) -> None:
    encoded = (
        pipeline
        | "parts" >> beam.Create(parts).with_output_types(Any)
        | "read" >> beam.FlatMap(units.units, tokenizer, settings).with_output_types(Any)
        | "spread" >> beam.Reshuffle()  # a large file is read by one worker, but encoded by all
        | "encode" >> beam.ParDo(_Encode(tokenizer, settings)).with_outputs(_Encode.COUNTS, main="records")
    )
    shards = encoded.records | "names" >> beam.Keys() | "shards" >> beam.Distinct()
    written = (
        encoded.records
        | "group" >> beam.GroupByKey()
        | "write" >> beam.Map(_write_shard, output, beam.pvalue.AsList(shards)).with_output_types(Any)
    )
    counts = encoded[_Encode.COUNTS] | "count" >> beam.CombineGlobally(total)
    _ = (
        (written, counts | "no rows" >> beam.Map(lambda all_counts: (all_counts, b"")))
        | "gather" >> beam.Flatten()
        | "to one" >> beam.Map(lambda item: ("", item)).with_output_types(tuple[str, Any])
        | "in one" >> beam.GroupByKey()
        | "finish" >> beam.Map(_finish, output, tokenizer, settings)
    )


class _Encode(beam.DoFn):
    """Unit -> (shard, (number of the unit, records)) for each split; the account of its documents apart."""

    COUNTS = "counts"

    def __init__(self, tokenizer: Tokenizer, settings: Settings):
        self._tokenizer, self._settings = tokenizer, settings
        self._versions = _versions()

    def setup(self) -> None:
        """Called in a worker's process, before all units."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the runner has a process for each core
        if _versions() != self._versions:
            raise UserError(
                f"a worker has {_versions()}, this machine {self._versions}: other versions may make other bytes;"
                " give the workers the same"
            )

    def process(self, unit: Unit) -> Iterator[Any]:
        """Called for every unit."""
        encoded = encode(unit, self._tokenizer, self._settings)
        for split, packed in encoded.splits.items():
            yield (split, unit.part, unit.block), (unit.number, packed)
        yield beam.pvalue.TaggedOutput(self.COUNTS, encoded.counts)


def _versions() -> str:
    libraries = [f"{name} {metadata.version(name)}" for name in LIBRARIES]
    return ", ".join([f"bert_jax {__version__}", *libraries])


def _write_shard(
    group: tuple[Key, Iterable[tuple[int, Packed]]], output: str, shards: Sequence[Key]
) -> tuple[ShardFacts, bytes]:
    """Puts one of all the shards in its place; gives what is known of it, and its index rows."""
    key, records = group
    own = sorted(shard for shard in shards if shard[0] == key[0])
    name = corpus_writer.final_name(key[0], own.index(key), len(own))
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        in_order = sorted(records, key=lambda item: item[0])  # they come in any order
        facts = corpus_writer.write_shard(directory, *key, (packed for _, packed in in_order))
        storage.put(os.path.join(directory, facts.name), f"{output}/{name}")
        return facts, pathlib.Path(directory, facts.rows_name).read_bytes()


def _finish(
    group: tuple[str, Iterable[tuple[ShardFacts | Counts, bytes]]],
    output: str,
    tokenizer: Tokenizer,
    settings: Settings,
) -> None:
    """Puts the indexes in their places, then the manifest."""
    shards, counts, splits = [], Counts(), {}
    with tempfile.TemporaryDirectory() as directory, writing(directory):
        place = pathlib.Path(directory)
        for facts, rows in group[1]:
            if isinstance(facts, Counts):
                counts = facts
            else:
                (place / facts.rows_name).write_bytes(rows)
                shards.append(facts)
        said = account(tokenizer, settings, shards, counts)
        for split, own in corpus_writer.in_order(shards).items():
            index = place / f"{split}.index.npy"
            corpus_writer.write_index(index, [(place / shard.rows_name, shard.records) for shard in own])
            splits[split] = corpus_writer.describe_split(
                split, own, token_dtype(tokenizer.vocab_size), sha256_of(index)
            )
            storage.put(index, f"{output}/{index.name}")
        corpus_writer.write_json(place / MANIFEST, corpus_writer.manifest_of(said, splits))
        storage.put(place / MANIFEST, f"{output}/{MANIFEST}")
