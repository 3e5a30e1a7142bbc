"""Cleaning without a preparation: documents -> JSON lines, which `prepare` and other programs can read."""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax.corpus.build.append import open_signatures
from bert_jax.corpus.build.cleaning.recipe import read_recipe
from bert_jax.corpus.build.cleaning.stage import (
    CleanedDocuments,
    append_removed_documents,
    clean_documents,
    num_cleaning_passes,
)
from bert_jax.corpus.build.dedup_decisions import REMOVED_COPIES, Decisions
from bert_jax.corpus.build.dedup_pass import append_removed_copies, find_copies, removed_documents_file
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.passes import PassProgress, ShowProgress
from bert_jax.corpus.build.plan import make_settings, plan_inputs, preparation_identity, resolve_num_workers
from bert_jax.corpus.build.staging import UnfinishedCorpus
from bert_jax.corpus.build.summary import (
    check_rejected_fraction,
    format_cleaning,
    format_count,
    hint_about_rejected_documents,
)
from bert_jax.corpus.languages import NO_LANGUAGE
from bert_jax.errors import UserError, check_not_input
from bert_jax.files import Paths, list_paths, local_path
from bert_jax.readers import ReadOptions
from bert_jax.readers.rejections import describe_rejections

SUFFIX = ".jsonl"
NOTHING_LEFT = "nothing left"  # reason of rejection of a long document if all its pieces were removed


def clean_texts(
    inputs: Paths,
    recipe: str | os.PathLike[str],
    output: str | os.PathLike[str],
    read_options: ReadOptions = ReadOptions(),
    *,
    evaluation_files: Paths | None = None,
    keep_removed: str | os.PathLike[str] | None = None,
    max_rejected_fraction: float = PrepareSettings().max_rejected_fraction,
    workers: int | None = None,
    progress: ShowProgress | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Write the documents that a recipe keeps, as JSON lines {name, text}; `prepare` encodes the same texts.

    Like `prepare`, this function uses bounded memory, resumes after a kill, and writes equal bytes for any number of
    workers. A document of more than `documents.MAX_UNSPLIT_BYTES` has several lines {name, text, piece, last}.

    Args:
        inputs, read_options, keep_removed, max_rejected_fraction, workers, progress, say: as in `prepare`.
        recipe, evaluation_files: arguments of `read_recipe`.
        output: a file that ends in `.jsonl`, or a directory with a file per block of some 512 MB of text.

    Returns:
        The counts: {documents: {in, kept, rejected: {reason: n}}, cleaning: {rules, deduplicate, changed: {rule: n},
        characters, characters_kept}}, where in = kept + the sum of rejected.

    Raises:
        UserError: bad input, recipe or output; too many rejected documents; no kept document.
    """
    # Plan the work as in `prepare`, but without a tokenizer.
    inputs = list_paths(inputs)
    check_not_input(output, inputs)
    output = local_path(output)
    steps = read_recipe(recipe, evaluation_files)
    options = {
        "language": NO_LANGUAGE,
        "heldout_fraction": 0.0,
        "max_rejected_fraction": max_rejected_fraction,
    }
    settings = make_settings(read_options, options, steps)
    num_workers = resolve_num_workers(workers)
    planned = plan_inputs(inputs, read_options, say)
    finds_copies = bool(REMOVED_COPIES[settings.deduplicate])
    near = settings.deduplicate == "near"
    against = {corpus: open_signatures(corpus, near) for corpus in steps.against}
    identity = preparation_identity(planned, None, settings, steps, against, keep_removed is not None)
    pass_progress = PassProgress(progress, planned.num_bytes, num_cleaning_passes(steps) + finds_copies)

    with (
        removed_documents_file(keep_removed, inputs, say)
        if keep_removed is not None
        else contextlib.nullcontext() as removed,
        UnfinishedCorpus(output, identity, say) as unfinished,
    ):
        cleaned = clean_documents(
            unfinished.cleaned, unfinished.lines, planned.partitions, steps, settings, num_workers, pass_progress
        )
        counts, decisions = cleaned.counts, None
        check_rejected_fraction(counts.rejected, counts.documents, counts.fields, settings)
        if finds_copies:
            pass_progress.begin_pass(cleaned.num_bytes)
            decisions = find_copies(
                unfinished.signed, cleaned.partitions, settings, num_workers, pass_progress, against
            )
        if removed:
            append_removed_documents(removed, cleaned.removed)
        if removed and decisions:
            append_removed_copies(removed, cleaned.partitions, read_options, decisions)
        with unfinished.publishing() as path:
            written = _write_kept_documents(path, output.suffix == SUFFIX, cleaned, decisions)
            rejected = dict(sorted({**counts.rejected, **written.rejected}.items()))
            if not written.documents:
                unfinished.discard()
                raise UserError(
                    f"0 of {counts.documents:,} documents are kept: {describe_rejections(rejected)}; "
                    f"{hint_about_rejected_documents(rejected, counts.fields, read_options)}"
                )
    counts = dataclasses.replace(counts, characters_kept=written.characters)
    return {
        "documents": {"in": counts.documents, "kept": written.documents, "rejected": rejected},
        "cleaning": {**steps.for_manifest(), "deduplicate": steps.deduplicate, **counts.for_manifest()},
    }


def format_cleaning_result(account: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Return two lines about the result of `clean_texts`: counts of documents, and changes by rules."""
    documents = account["documents"]
    reasons = describe_rejections(documents["rejected"])
    return (
        f"{output}: {format_count(documents['in'], 'document')} in = {documents['kept']:,} kept + "
        f"{sum(documents['rejected'].values()):,} removed{f' ({reasons})' if reasons else ''}\n"
        f"{format_cleaning(account['cleaning'])}"
    )


class _Written(NamedTuple):
    """Numbers of written documents and characters, and the number of rejected documents by reason."""

    documents: int
    characters: int
    rejected: dict[str, int]


def _write_kept_documents(
    output: pathlib.Path, is_one_file: bool, cleaned: CleanedDocuments, decisions: Decisions | None
) -> _Written:
    """Write the cleaned documents that have text and repeat no earlier document."""
    if not is_one_file:
        output.mkdir()
    index = int(decisions.partitions[0]) - 1 if decisions else -1
    last_written, documents, characters = -1, 0, 0
    rejected: dict[str, int] = {}
    for partition in cleaned.partitions:
        for path in map(pathlib.Path, partition.files):
            with (
                path.open(encoding="utf-8", newline="\n") as source,
                open(output if is_one_file else output / path.name, "a", encoding="utf-8", newline="\n") as target,
            ):
                for line in source:
                    record = json.loads(line)
                    is_first_piece = record.get("piece", 0) == 0
                    index += is_first_piece
                    if decisions and (reason := decisions.removal_reason(index)):
                        rejected[reason] = rejected.get(reason, 0) + is_first_piece
                    elif record["text"]:
                        target.write(line)
                        characters += len(record["text"])
                        documents += index != last_written
                        last_written = index
    num_cleaned = cleaned.counts.documents - sum(cleaned.counts.rejected.values())
    if nothing_left := num_cleaned - documents - sum(rejected.values()):
        rejected[NOTHING_LEFT] = nothing_left
    return _Written(documents, characters, rejected)
