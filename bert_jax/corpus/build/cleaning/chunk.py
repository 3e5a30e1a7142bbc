"""A chunk of documents -> the documents that the rules keep, as JSON lines, and counts: pure functions."""

import collections
import dataclasses
import functools
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.corpus.build.cleaning.recipe import Step
from bert_jax.corpus.build.cleaning.repeated_lines import LineCounts, key_of_long_document, sum_line_counts
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.cleaning.verdict import Removed
from bert_jax.corpus.build.encoding import Chunk, DocumentCounts
from bert_jax.readers import RawDocument, ReadOptions, storage, to_document
from bert_jax.readers.rejections import Rejections

EMPTIED = "piece removed: "  # prefix of a rule's name in the count of pieces that the rule removed
BoundRule = tuple[str, Callable[[str], str | Removed]]  # name of a rule, and the rule with its parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleaningCounts:
    """Counts, summed over documents; `vars(counts)` is a JSON object.

    Attributes:
        documents: number of documents that were read.
        rejected: reason -> number of documents that were removed or rejected.
        changed: rule -> number of documents, or pieces of long documents, that the rule changed.
        characters: number of characters of the documents that were read.
        characters_kept: number of characters of the kept documents, after all changes.
        fields: field names of a record that lacks the requested field; an error message shows these names.
    """

    documents: int = 0
    rejected: Mapping[str, int] = dataclasses.field(default_factory=dict)
    changed: Mapping[str, int] = dataclasses.field(default_factory=dict)
    characters: int = 0
    characters_kept: int = 0
    fields: str = ""

    def counts_of_removed_documents(self) -> DocumentCounts:
        """Return the `DocumentCounts` of the removed and rejected documents."""
        return DocumentCounts(documents=sum(self.rejected.values()), rejected=self.rejected, fields=self.fields)

    def for_manifest(self) -> dict[str, Any]:
        """Return the counts for the manifest's part about cleaning."""
        return {name: getattr(self, name) for name in ("changed", "characters", "characters_kept")}


class CleanedChunk(NamedTuple):
    """JSON lines of the kept documents and of the removed documents, and counts."""

    kept_lines: bytes
    removed_lines: bytes
    counts: CleaningCounts


def sum_cleaning_counts(counts: Iterable[CleaningCounts]) -> CleaningCounts:
    """Return the sum of the counts of chunks or blocks."""
    counts = list(counts)
    rejected: collections.Counter[str] = collections.Counter()
    changed: collections.Counter[str] = collections.Counter()
    for part in counts:
        rejected.update(part.rejected)
        changed.update(part.changed)
    return CleaningCounts(
        documents=sum(part.documents for part in counts),
        rejected=dict(sorted(rejected.items())),
        changed=dict(sorted(changed.items())),
        characters=sum(part.characters for part in counts),
        characters_kept=sum(part.characters_kept for part in counts),
        fields=min((part.fields for part in counts if part.fields), default=""),
    )


def clean_chunk(
    chunk: Chunk, steps: Sequence[Step], read_options: ReadOptions, repeated_lines_file: str = ""
) -> CleanedChunk:
    """Apply the rules to the documents of a chunk; return kept documents, removed documents, and counts.

    The pieces of a long document are cleaned separately. A piece that a rule removes becomes empty.

    Args:
        chunk: a chunk that `read_chunks` made.
        steps: steps of a recipe.
        read_options: how the input is read.
        repeated_lines_file: file of the repeated lines, which the rule `repeated_lines` reads.

    Raises:
        UserError: `readers.to_document` raises it.
    """
    rules = bind_rules(steps, repeated_lines_file)
    rejections = Rejections()
    changed: collections.Counter[str] = collections.Counter()
    kept_lines: list[str] = []
    removed_lines: list[str] = []
    num_documents = characters = characters_kept = 0
    for raw in chunk.documents:
        is_complete = raw.piece == 0 and raw.last
        document = to_document(raw, read_options)
        num_documents += raw.piece == 0
        if document.rejected and is_complete:
            rejections.add(document)
            continue
        characters += len(document.text)
        text, reason, verdict = apply_rules(document.text, rules, changed)
        if verdict:
            removed_lines.append(_json_line(raw.name, reason=reason, found=verdict.evidence, text=document.text))
            if is_complete:
                rejections.reasons[reason] += 1
                continue
            changed[EMPTIED + reason] += 1
        characters_kept += len(text)
        piece = {} if is_complete else {"piece": raw.piece, "last": raw.last}
        kept_lines.append(_json_line(raw.name, text=text, **piece))
    counts = CleaningCounts(
        documents=num_documents,
        rejected=dict(rejections.reasons),
        changed=dict(changed),
        characters=characters,
        characters_kept=characters_kept,
        fields=rejections.fields,
    )
    return CleanedChunk("".join(kept_lines).encode(), "".join(removed_lines).encode(), counts)


def bind_rules(steps: Sequence[Step], repeated_lines_file: str = "") -> list[BoundRule]:
    """Return the name of each step's rule, and the function of the rule with all parameters bound."""
    rules: list[BoundRule] = []
    for step in steps:
        survey = {"repeated": repeated_lines_file} if RULES[step.rule].survey else {}
        rules.append((step.rule, functools.partial(RULES[step.rule].apply, **step.parameters, **survey)))
    return rules


class RulesResult(NamedTuple):
    """A cleaned text; for a removed text: "", the reason of the removal, and the verdict of the rule."""

    text: str
    reason: str
    removed: Removed | None


def apply_rules(text: str, rules: Sequence[BoundRule], changed: collections.Counter[str]) -> RulesResult:
    """Apply rules to a text until a rule removes the text; `changed` counts the rules that changed a kept text."""
    changes = []
    for name, rule in rules:
        result = rule(text)
        if isinstance(result, Removed):
            return RulesResult("", f"{name}: {result.group}" if result.group else name, result)
        if result != text:
            changes.append(name)
            text = result
    changed.update(changes)
    return RulesResult(text, "", None)


def count_documents_per_line_hash(
    chunk: Chunk, earlier_steps: Sequence[Step], step: Step, read_options: ReadOptions
) -> LineCounts:
    """Return the number of documents of a chunk with each line.

    Args:
        chunk: a chunk that `read_chunks` made.
        earlier_steps: the steps before `step`, which are applied first.
        step: the step with a survey.
        read_options: how the input is read.
    """
    rules, survey = bind_rules(earlier_steps), RULES[step.rule].survey
    assert survey is not None
    counters = collections.defaultdict[int, collections.Counter[int]](collections.Counter)
    for raw in chunk.documents:
        document = to_document(raw, read_options)
        if document.text:
            long = key_of_long_document(raw.name) if raw.piece or not raw.last else 0
            text = apply_rules(document.text, rules, collections.Counter())[0]
            counters[long].update(survey(text, **step.parameters))
    return sum_line_counts(
        LineCounts(
            np.fromiter(counter, "<u8", len(counter)),
            np.full(len(counter), long, "<u8"),
            np.fromiter(counter.values(), "<u4", len(counter)),
        )
        for long, counter in counters.items()
    )


def read_cleaned_documents(files: Sequence[str], options: ReadOptions) -> Iterator[RawDocument]:
    """Yield the documents that `clean_chunk` wrote as JSON lines, in the form of `readers.read_raw_documents`."""
    del options  # the input was read with these options already
    bytes_read = 0
    for path in files:
        with io.TextIOWrapper(storage.open_file(path), encoding="utf-8", newline="\n") as file:
            for line in file:
                bytes_read += len(line.encode())
                record = json.loads(line)
                yield RawDocument(
                    name=record["name"],
                    data=record["text"].encode(),
                    bytes_read=bytes_read,
                    piece=record.get("piece", 0),
                    last=record.get("last", True),
                )


def _json_line(name: str, **fields: Any) -> str:
    """Return a line of JSON about a document."""
    return json.dumps({"name": escape_non_utf8_name(name), **fields}, ensure_ascii=False) + "\n"


def escape_non_utf8_name(name: str) -> str:
    """Return a file name with escapes in place of bytes that are not UTF-8; JSON cannot hold such bytes."""
    return name.encode(errors="backslashreplace").decode()
