"""A chunk of documents -> those that the rules keep, as JSON lines, and counts. Pure functions."""

import collections
import functools
import io
import json
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.build.cleaning.recipe import Step
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.cleaning.texts import Removed
from bert_jax.corpus.build.encoding import Chunk
from bert_jax.readers import RawDocument
from bert_jax.readers import ReadOptions
from bert_jax.readers import storage
from bert_jax.readers import to_document
from bert_jax.readers.rejections import Rejections
from bert_jax.readers.rejections import first_fields

EMPTIED = "piece removed: "  # before the reason, of a piece of a long document


class CleaningCounts(NamedTuple):
    """Counts over documents; `_asdict()` is JSON.

    Attributes:
        documents: found.
        rejected: reason -> number of documents that are not kept.
        changed: rule -> number of documents, or pieces of long ones, that it changed.
        characters: of the documents that were read.
        characters_kept: of those that are kept, after all changes.
        fields: of a record that lacks the requested one.
    """

    documents: int = 0
    rejected: Mapping[str, int] = {}
    changed: Mapping[str, int] = {}
    characters: int = 0
    characters_kept: int = 0
    fields: str = ""

    @property
    def kept(self) -> int:
        """Number of documents that are kept."""
        return self.documents - sum(self.rejected.values())

    def description(self) -> dict[str, Any]:
        """Return what a manifest says beside the rejected documents."""
        return {
            "changed": dict(self.changed),
            "characters": self.characters,
            "characters_kept": self.characters_kept,
        }


class CleanedChunk(NamedTuple):
    """JSON lines of the documents that are kept, and of those that were removed; counts."""

    kept: bytes
    removed: bytes
    counts: CleaningCounts


def sum_counts(counts: Iterable[CleaningCounts]) -> CleaningCounts:
    """Return the sum of several counts."""
    rejected: collections.Counter[str] = collections.Counter()
    changed: collections.Counter[str] = collections.Counter()
    documents = characters = kept = 0
    fields = ""
    for one in counts:
        documents, characters, kept = (
            documents + one.documents,
            characters + one.characters,
            kept + one.characters_kept,
        )
        rejected.update(one.rejected)
        changed.update(one.changed)
        fields = first_fields(fields, one.fields)
    return CleaningCounts(
        documents, dict(sorted(rejected.items())), dict(sorted(changed.items())), characters, kept, fields
    )


def clean_chunk(chunk: Chunk, steps: Sequence[Step], read_options: ReadOptions, repeated: str = "") -> CleanedChunk:
    """Return the documents of a chunk as the rules leave them.

    A long document comes in pieces, each of which is cleaned by itself. A piece that a rule removes becomes empty.

    Args:
        chunk: from `read_chunks`.
        steps: of a recipe.
        read_options: as in `sources.read_documents`.
        repeated: the file of a survey, for the rule that has one.

    Raises:
        UserError: as `sources.to_document`.
    """
    rules = bind(steps, repeated)
    rejections = Rejections()
    changed: collections.Counter[str] = collections.Counter()
    kept: list[str] = []
    removed: list[str] = []
    documents = characters = characters_kept = 0
    for raw in chunk.documents:
        whole = raw.piece == 0 and raw.last
        document = to_document(raw, read_options)
        documents += raw.piece == 0
        if document.rejected and whole:
            rejections.add(document)
            continue
        characters += len(document.text)
        text, reason, verdict = apply_rules(document.text, rules, changed)
        if verdict:
            removed.append(_line(name=raw.name, reason=reason, found=verdict.found, text=document.text))
            if whole:
                rejections.reasons[reason] += 1
                continue
            changed[EMPTIED + reason] += 1
        characters_kept += len(text)
        kept.append(_line(name=raw.name, text=text, **({} if whole else {"piece": raw.piece, "last": raw.last})))
    counts = CleaningCounts(
        documents, dict(rejections.reasons), dict(changed), characters, characters_kept, rejections.fields
    )
    return CleanedChunk("".join(kept).encode(), "".join(removed).encode(), counts)


def bind(steps: Sequence[Step], repeated: str = "") -> list[tuple[str, Callable[[str], str | Removed]]]:
    """Return the name of each rule, and the rule with its parameters."""
    return [
        (
            step.rule,
            functools.partial(
                RULES[step.rule].apply, **step.parameters, **({"repeated": repeated} if RULES[step.rule].survey else {})
            ),
        )
        for step in steps
    ]


def apply_rules(
    text: str, rules: Sequence[tuple[str, Callable[[str], str | Removed]]], changed: collections.Counter[str]
) -> tuple[str, str, Removed | None]:
    """Return (text, '', None), or ('', reason, verdict) of the rule that removes it; count the rules that change it."""
    changes = []
    for name, rule in rules:
        found = rule(text)
        if isinstance(found, Removed):
            return "", f"{name}: {found.group}" if found.group else name, found
        if found != text:
            changes.append(name)
            text = found
    changed.update(changes)
    return text, "", None


def survey_chunk(
    chunk: Chunk, before: Sequence[Step], step: Step, read_options: ReadOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the survey of a rule counts: hashes, uint64, ascending, and the documents that have each, uint32.

    Args:
        chunk: from `read_chunks`.
        before: the steps before it, whose results it sees.
        step: the step with a survey.
        read_options: as in `sources.read_documents`.
    """
    rules, survey = bind(before), RULES[step.rule].survey
    assert survey is not None
    found: collections.Counter[int] = collections.Counter()
    for raw in chunk.documents:
        document = to_document(raw, read_options)
        if document.text:
            found.update(survey(apply_rules(document.text, rules, collections.Counter())[0], **step.parameters))
    keys = np.sort(np.fromiter(found, "<u8", len(found)))
    return keys, np.fromiter((found[key] for key in keys.tolist()), "<u4", len(keys))


def read_cleaned(files: Sequence[str], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the documents of the files or URLs that `clean_chunk` filled, as `sources.read_raw_documents` does."""
    del options  # how the input was read
    bytes_read = 0
    for path in files:
        with io.TextIOWrapper(storage.open_file(path), encoding="utf-8", newline="\n") as file:
            for line in file:
                bytes_read += len(line.encode())
                found = json.loads(line)
                data, piece, last = found["text"].encode(), found.get("piece", 0), found.get("last", True)
                yield RawDocument(found["name"], data, "text", "", bytes_read, piece, last)


def _line(name: str, **fields: Any) -> str:
    name = name.encode(errors="backslashreplace").decode()  # of a file whose name is not UTF-8
    return json.dumps({"name": name, **fields}, ensure_ascii=False) + "\n"
