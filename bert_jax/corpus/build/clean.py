"""Cleaning alone: documents -> JSON lines that every reader of text takes."""

import json
import os
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from bert_jax import readers as sources
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build.cleaning.recipe import read_recipe
from bert_jax.corpus.build.cleaning.stage import Cleaned
from bert_jax.corpus.build.cleaning.stage import clean_documents
from bert_jax.corpus.build.cleaning.stage import copy_removed
from bert_jax.corpus.build.cleaning.stage import num_passes
from bert_jax.corpus.build.cleaning.stage import pass_reports
from bert_jax.corpus.build.dedup_decisions import NEAR_COPIES
from bert_jax.corpus.build.dedup_decisions import Decisions
from bert_jax.corpus.build.dedup_pass import removed_file
from bert_jax.corpus.build.dedup_pass import write_removed
from bert_jax.corpus.build.dedup_pass import find_copies
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.append import named_signatures
from bert_jax.corpus.build.prepare import Progress
from bert_jax.corpus.build.prepare import check_settings
from bert_jax.corpus.build.prepare import identity
from bert_jax.corpus.build.summary import check_rejected
from bert_jax.corpus.build.summary import count_noun
from bert_jax.corpus.build.summary import format_cleaning
from bert_jax.corpus.build.summary import hint_about
from bert_jax.corpus.build.staging import UnfinishedCorpus
from bert_jax.readers import ReadOptions
from bert_jax.readers.rejections import describe_rejections
from bert_jax.errors import UserError

SUFFIX = ".jsonl"
NOTHING_LEFT = "nothing left"  # of a long document, all of whose pieces were removed


def clean_texts(
    inputs: Sequence[str],
    recipe: str | os.PathLike[str],
    output: str | os.PathLike[str],
    read_options: ReadOptions = ReadOptions(),
    workers: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda line: None,
    keep_removed: str | os.PathLike[str] | None = None,
    max_rejected_fraction: float = PrepareSettings().max_rejected_fraction,
) -> dict[str, Any]:
    """Write the documents that a recipe keeps as JSON lines {name, text}; `prepare` with the recipe reads the same.

    Bounded in memory, resumed after a kill, and the same bytes for any number of workers, as `prepare`. A document of
    more than `documents.MAX_UNSPLIT_BYTES` has several lines {name, text, piece, last}.

    Args:
        inputs, read_options, workers, progress, say, keep_removed, max_rejected_fraction: as in `prepare`.
        recipe: for `read_recipe`.
        output: a file that ends in `.jsonl`, or a directory with a file per block of some 512 MB of text.

    Returns:
        The account: {documents: {in, kept, rejected: {reason: n}}, cleaning: {rules, deduplicate, changed: {rule: n},
        characters, characters_kept}}, where in = kept + the sum of rejected.

    Raises:
        UserError: bad input, recipe or output; too many rejected documents; no document that is kept.
    """
    found = read_recipe(recipe)
    settings = PrepareSettings(read_options, "none", 0.0, found.deduplicate, max_rejected_fraction)
    check_settings(settings)
    workers = (os.cpu_count() or 1) if workers is None else workers
    if workers < 1:
        raise UserError(f"--workers {workers}: give at least 1")
    files = sources.find_files(inputs, read_options, say)
    sources.check_read_options(files, read_options)
    sizes = [sources.total_bytes([path]) for path in files]
    partitions = chunks.plan_partitions(files, sizes)
    removing, all_bytes = found.deduplicate in NEAR_COPIES, sum(sizes)
    near = NEAR_COPIES.get(found.deduplicate, False)
    stored = {place: named_signatures(place, near) for place in found.against}
    reports = pass_reports(progress, all_bytes, num_passes(found) + removing)
    plan = identity(files, sizes, None, settings, found, keep_removed is not None)
    with removed_file(keep_removed) as removed, UnfinishedCorpus(output, plan, say) as unfinished:
        cleaned = clean_documents(
            unfinished.cleaned, unfinished.lines, partitions, found, settings, workers, reports, all_bytes
        )
        counts, decisions = cleaned.counts, None
        check_rejected(counts.rejected, counts.documents, counts.fields, settings)
        if removing:
            report = reports(cleaned.bytes_kept)
            decisions = find_copies(unfinished.first_pass, cleaned.partitions, None, settings, workers, report, stored)
        if removed:
            copy_removed(removed, cleaned.removed)
        if removed and decisions:
            write_removed(removed, cleaned.partitions, read_options, decisions)
        with unfinished.publishing() as place:
            written = _write_documents(place, pathlib.Path(output).suffix == SUFFIX, cleaned, decisions)
            rejected = dict(sorted({**counts.rejected, **written.rejected}.items()))
            if not written.documents:
                unfinished.discard()
                raise UserError(
                    f"0 of {counts.documents:,} documents are kept: {describe_rejections(rejected)}; "
                    f"{hint_about(rejected, counts.fields, read_options)}"
                )
    counts = counts._replace(characters_kept=written.characters)
    return {
        "documents": {"in": counts.documents, "kept": written.documents, "rejected": rejected},
        "cleaning": {**found.description(), "deduplicate": found.deduplicate, **counts.description()},
    }


def format_account(account: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Return two lines about an account: all documents, and what the rules changed."""
    documents = account["documents"]
    reasons = describe_rejections(documents["rejected"])
    return (
        f"{output}: {count_noun(documents['in'], 'document')} in = {documents['kept']:,} kept + "
        f"{sum(documents['rejected'].values()):,} removed{f' ({reasons})' if reasons else ''}\n"
        f"{format_cleaning(account['cleaning'])}"
    )


class _Written(NamedTuple):
    documents: int
    characters: int
    rejected: dict[str, int]


def _write_documents(place: pathlib.Path, one_file: bool, cleaned: Cleaned, decisions: Decisions | None) -> _Written:
    """Write the lines that have text and repeat no other document."""
    if not one_file:
        place.mkdir()
    number = int(decisions.partitions[0]) - 1 if decisions else -1
    last_written, documents, characters = -1, 0, 0
    rejected: dict[str, int] = {}
    for partition in cleaned.partitions:
        for path in map(pathlib.Path, partition.files):
            with (
                path.open(encoding="utf-8", newline="\n") as source,
                open(place if one_file else place / path.name, "a", encoding="utf-8", newline="\n") as target,
            ):
                for line in source:
                    found = json.loads(line)
                    begins = found.get("piece", 0) == 0
                    number += begins
                    if decisions and (reason := decisions.reason(number)):
                        rejected[reason] = rejected.get(reason, 0) + begins
                    elif found["text"]:
                        target.write(line)
                        characters += len(found["text"])
                        documents += number != last_written
                        last_written = number
    if nothing_left := cleaned.counts.kept - documents - sum(rejected.values()):
        rejected[NOTHING_LEFT] = nothing_left
    return _Written(documents, characters, rejected)
