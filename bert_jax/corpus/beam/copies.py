"""Partitions -> decisions about copies: signatures on all workers, and the decisions, which see all of them, on one."""

import operator
import pathlib
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from bert_jax.corpus.beam.pipeline import beam, spread_chunks
from bert_jax.corpus.build.append import kept_signatures, named_signatures
from bert_jax.corpus.build.cleaning.blocks import Key
from bert_jax.corpus.build.corpus_writer import write_signatures
from bert_jax.corpus.build.dedup_decisions import NEAR_COPIES, decide
from bert_jax.corpus.build.dedup_pass import PARTS, FirstPass
from bert_jax.corpus.build.dedup_signatures import Signatures, sign_chunk
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings
from bert_jax.errors import writing
from bert_jax.readers import ReadOptions, storage

DECISIONS = "decisions.npz"


def find_copies(
    partitions: beam.PCollection, settings: PrepareSettings, against: Mapping[str, str], output: str, place: str
) -> beam.PCollection:
    """Return one item: the file of the `Decisions` in `place`, and the manifest's part about signatures.

    Args:
        partitions: whose documents are compared.
        settings: how they are read and compared.
        against: corpus, by its name in a recipe -> its place for a worker.
        output: of the corpus; the signatures that it keeps are uploaded there.
        place: directory or URL for the signatures of all documents, and the decisions.
    """
    near = NEAR_COPIES[settings.deduplicate]
    return (
        spread_chunks(partitions, "sign", settings)
        | "sign" >> beam.Map(_sign, settings.read_options, near).with_output_types(tuple[Any, Any])
        | "signatures of a block" >> beam.GroupByKey()
        | "write signatures" >> beam.Map(_write_block, place).with_output_types(tuple[str, Any])
        | "all signatures" >> beam.GroupByKey()
        | "decide" >> beam.Map(_decide, settings, against, output, place).with_output_types(Any)
    )


def _sign(chunk: Chunk, read_options: ReadOptions, near: bool) -> tuple[Key, tuple[int, tuple[bool, Signatures]]]:
    return (chunk.partition, chunk.block), (chunk.number, (chunk.last, sign_chunk(chunk, read_options, near)))


def _write_block(
    group: tuple[Key, Iterable[tuple[int, tuple[bool, Signatures]]]], place: str
) -> tuple[str, tuple[int, int]]:
    """Upload the signatures of a block; return its key."""
    key, chunks = group
    with tempfile.TemporaryDirectory() as directory:
        first_pass = _open(directory)
        in_order = sorted(chunks, key=operator.itemgetter(0))  # they arrive in any order
        first_pass.write_block(*key, (signed for _, signed in in_order))
        for part in PARTS:
            storage.upload(first_pass.files.path(key, part), f"{place}/{first_pass.files.path(key, part).name}")
    return "", key


def _decide(
    group: tuple[str, Iterable[Key]], settings: PrepareSettings, against: Mapping[str, str], output: str, place: str
) -> tuple[str, list[dict[str, str]]]:
    keys, near = sorted(group[1]), NEAR_COPIES[settings.deduplicate]
    stored = {name: named_signatures(own, near) for name, own in against.items()}
    with tempfile.TemporaryDirectory() as directory:
        first_pass, here = _open(directory), pathlib.Path(directory)
        for path in (first_pass.files.path(key, part) for key in keys for part in PARTS):
            storage.download(f"{place}/{path.name}", path)
        first_pass.files.finished.update({key: {} for key in keys})
        signatures = first_pass.open_all()
        found = decide(signatures, [number for number, _ in keys], near, stored, settings.heldout_fraction)
        first_pass.save(found)
        storage.upload(first_pass.decisions, f"{place}/{DECISIONS}")
        with writing(directory):
            kept = write_signatures(here, kept_signatures(signatures, found, near))
        for one in kept:
            storage.upload(here / one["name"], f"{output}/{one['name']}")
        return f"{place}/{DECISIONS}", kept


def _open(directory: str) -> FirstPass:
    return FirstPass(pathlib.Path(directory), lambda: writing(directory))
