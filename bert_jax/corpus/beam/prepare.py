"""The verb `prepare --runner beam`: the workers of Beam make the same bytes as `prepare` on one machine."""

import contextlib
import functools
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Unpack

from bert_jax.corpus.beam.cleaning import clean_partitions
from bert_jax.corpus.beam.copies import find_copies_with_beam
from bert_jax.corpus.beam.pipeline import (
    as_user_error,
    beam,
    check_worker_versions,
    installed_package_versions,
    make_pipeline,
)
from bert_jax.corpus.beam.records import write_corpus
from bert_jax.corpus.build.append import open_signatures
from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.cleaning import recipe as recipes
from bert_jax.corpus.build.cleaning.chunk import read_cleaned_documents
from bert_jax.corpus.build.cleaning.recipe import Recipe, read_recipe_if_given
from bert_jax.corpus.build.cleaning.stage import KEPT, REMOVED, append_removed_documents
from bert_jax.corpus.build.dedup_decisions import REMOVED_COPIES, load_decisions, searches_copies
from bert_jax.corpus.build.dedup_pass import DECISIONS, append_removed_copies, removed_documents_file
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.plan import LIBRARIES, PrepareOptions, make_settings, plan_inputs
from bert_jax.corpus.build.segmenters import NO_SEGMENTER, SEGMENTERS
from bert_jax.corpus.manifest import MANIFEST
from bert_jax.errors import UserError, check_output, with_message
from bert_jax.readers import ReadOptions, storage
from bert_jax.tokenizer import Tokenizer, load_tokenizer, save_tokenizer

UNFINISHED = "unfinished"  # folder of the output with the files of cleaning and copies, until the manifest exists
CLEANED, COPIES = f"{UNFINISHED}/cleaned", f"{UNFINISHED}/copies"


def prepare_with_beam(
    inputs: Sequence[str],
    tokenizer_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    read_options: ReadOptions = ReadOptions(),
    *,
    clean: str | os.PathLike[str] | None = None,
    evaluation_files: Sequence[str] | None = None,
    keep_removed: str | os.PathLike[str] | None = None,
    beam_options: Sequence[str] = (),
    **options: Unpack[PrepareOptions],
) -> dict[str, Any]:
    """Make the corpus that `prepare` makes from the same arguments, byte for byte, on any runner of Beam.

    Args:
        inputs: as in `prepare`; URLs, or paths that every machine has, since all workers read the inputs. The corpora
            and files that a recipe names must also be URLs or such paths.
        tokenizer_directory, read_options, clean, evaluation_files: as in `prepare`.
        output: a URL or directory that all workers write to. The manifest is written last: a directory without a
            manifest is not a corpus.
        keep_removed: as in `prepare`; after the workers have ended, this machine reads the documents again, and writes
            the file of removed documents.
        beam_options: command-line options of a Beam pipeline, such as '--runner=FlinkRunner'.
        options: see `PrepareOptions`.

    Returns:
        The manifest.

    Raises:
        UserError: an error that `prepare` raises, on this machine or on a worker; or Beam does not know an option.
    """
    recipe = read_recipe_if_given(clean, evaluation_files)
    settings = make_settings(read_options, options, recipe)
    removes_copies = bool(REMOVED_COPIES[settings.deduplicate])
    if keep_removed is not None and recipe is None and not removes_copies:
        raise UserError("--keep_removed: these options remove nothing; add --deduplicate exact or near, or --clean")
    for corpus in recipe.against if recipe else ():
        open_signatures(corpus, settings.deduplicate == "near")  # a wrong corpus is refused before the work begins
    pipeline = make_pipeline(beam_options)
    tokenizer = load_tokenizer(tokenizer_directory)
    output = _check_empty_output(os.fspath(output))
    say = functools.partial(print, file=sys.stderr)
    partitions = plan_inputs(inputs, read_options, say).partitions
    with (
        removed_documents_file(keep_removed, inputs, say)
        if keep_removed is not None
        else contextlib.nullcontext() as removed
    ):
        _upload_tokenizer(tokenizer, output)  # the first upload, so that an unwritable output fails early
        try:
            with pipeline:
                _add_steps(pipeline, partitions, tokenizer, settings, recipe, output)
            if removed:
                _write_removed(removed, partitions, settings, recipe, output)
            if recipe or searches_copies(settings.deduplicate, settings.heldout_fraction):
                storage.remove(f"{output}/{UNFINISHED}")
        except Exception as error:  # runners raise exceptions of many types
            note = f"{output}: incomplete; remove it before the next try"
            if worded := as_user_error(error):
                raise with_message(worded, f"{worded}\n{note}") from None
            error.add_note(note)
            raise
    with storage.open_file(f"{output}/{MANIFEST}") as file:
        return json.load(file)


def _check_empty_output(output: str) -> str:
    """Return the URL or absolute path of the output; raise UserError if the output is not empty."""
    if not storage.is_url(output):
        output = os.path.abspath(output.removeprefix("file://"))
        check_output(output)
        return output
    output = output.rstrip("/")
    try:
        files = storage.match_files(output)
    except UserError:  # the output is empty; if it cannot be reached, the first upload fails
        return output
    raise UserError(f"{output}: not empty, it holds {files[0]}; remove it or choose another --output")


def _upload_tokenizer(tokenizer: Tokenizer, output: str) -> None:
    """Upload the files of a tokenizer into the directory `tokenizer` of the output."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary) / "tokenizer"
        save_tokenizer(tokenizer, directory)
        for path in sorted(directory.iterdir()):
            storage.upload(path, f"{output}/{directory.name}/{path.name}")


def _add_steps(
    pipeline: beam.Pipeline,
    partitions: Sequence[Partition],
    tokenizer: Tokenizer,
    settings: PrepareSettings,
    recipe: Recipe | None,
    output: str,
) -> None:
    """Add the steps of a preparation to a pipeline: clean, find copies, write the corpus."""
    packages = [*LIBRARIES, *(recipes.LIBRARIES if recipe else ())]
    if settings.segmenter != NO_SEGMENTER:
        packages += SEGMENTERS[settings.segmenter].packages
    check = functools.partial(check_worker_versions, packages, installed_package_versions(packages))
    documents = pipeline | "partitions" >> beam.Create(partitions).with_output_types(Any)
    cleaned = decided = about_copies = None
    if recipe:
        documents, counts = clean_partitions(documents, recipe, settings, check, f"{output}/{CLEANED}")
        cleaned = beam.pvalue.AsSingleton(counts)
    if searches_copies(settings.deduplicate, settings.heldout_fraction):
        against = recipe.against if recipe else ()
        copies = find_copies_with_beam(documents, settings, against, output, f"{output}/{COPIES}")
        decided = beam.pvalue.AsSingleton(copies | "decisions" >> beam.Keys())
        about_copies = beam.pvalue.AsSingleton(copies | "kept signatures" >> beam.Values())
    write_corpus(documents, tokenizer, settings, recipe, check, output, cleaned, decided, about_copies)


def _write_removed(
    path: pathlib.Path,
    partitions: Sequence[Partition],
    settings: PrepareSettings,
    recipe: Recipe | None,
    output: str,
) -> None:
    """Write removed documents (removed by the recipe or as copies) to the end of a JSON lines file."""
    if recipe:
        files = storage.match_files(f"{output}/{CLEANED}")  # sorted names are in the order of the blocks
        append_removed_documents(path, [name for name in files if name.endswith(f".{REMOVED}")])
        kept_files = tuple(name for name in files if name.endswith(f".{KEPT}"))
        partitions = [Partition(0, kept_files, 0, read_cleaned_documents)]
    if REMOVED_COPIES[settings.deduplicate]:
        decisions = load_decisions(f"{output}/{COPIES}/{DECISIONS}")
        append_removed_copies(path, partitions, settings.read_options, decisions)
