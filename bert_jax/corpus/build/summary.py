"""The summary of a corpus for its manifest: counts of documents by split and by reason for rejection, and warnings."""

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.corpus_writer import SKETCHES, ShardInfo
from bert_jax.corpus.build.dedup_decisions import EXACT, NEAR, OF
from bert_jax.corpus.build.encoding import (
    MIN_HELDOUT,
    DocumentCounts,
    PrepareSettings,
    smallest_fraction_that_holds_out,
)
from bert_jax.corpus.build.segmenters import NO_SEGMENTER, SEGMENTERS, segmenter_manifest
from bert_jax.corpus.build.sentences import SENTENCE_ENDS
from bert_jax.corpus.languages import NO_LANGUAGE, two_letter_code
from bert_jax.corpus.manifest import SHORT, WORDS_VERSION
from bert_jax.corpus.statistics import expected_num_predictions, few_predictions_warning
from bert_jax.corpus.store import MAX_RECORD, MAX_SENTENCE, SPLITS
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions
from bert_jax.readers.archives import HIDDEN
from bert_jax.readers.rejections import HINTS, describe_rejections, hint_for_most_common_reason, most_common_reason
from bert_jax.tokenizer import Tokenizer
from bert_jax.tokenizer.changes import changes_warning

MANY_UNKNOWN = 0.05  # a warning is given if a larger fraction of the tokens is unknown
MANY_LOST = 0.001  # a warning is given if a larger fraction of the characters is in unknown tokens
MANY_REJECTED = 0.5  # a warning is given if a larger fraction of the documents is rejected for a fixable reason
# Reasons for rejection that the user chose, or by which no text is lost.
NO_FAULTS = {EXACT, NEAR, HIDDEN, "empty", "redirect", "not an article"}
CODE_LENGTH = 2  # number of letters of the language codes by which the sentence splitter knows most languages


class TooManyRejectedUserError(UserError):
    """More documents are rejected than the settings allow. Beam finds errors of workers by the text `UserError: `."""


def summarize_corpus(
    tokenizer: Tokenizer, settings: PrepareSettings, shards: Iterable[ShardInfo], counts: DocumentCounts
) -> dict[str, Any]:
    """Make the manifest's part about documents and settings from the counts and all shards, in any order.

    Raises:
        UserError: the corpus has no training document. TooManyRejectedUserError: see `check_rejected_fraction`.
    """
    num_documents = dict.fromkeys(SPLITS, 0)
    sentences = tokens = heldout_tokens = 0
    for shard in shards:
        num_documents[shard.split] += shard.documents
        sentences, tokens = sentences + shard.sentences, tokens + shard.tokens
        heldout_tokens += shard.tokens * (shard.split == "heldout")
    train, heldout = (num_documents[split] for split in SPLITS)
    stored = train + heldout
    rejected = describe_rejections(counts.rejected) or "none rejected"
    num_read = stored + sum(counts.rejected.values())
    assert counts.documents == num_read, f"{counts.documents} documents in, {stored} stored, {counts.rejected} rejected"
    if not stored:
        raise UserError(
            f"0 of {num_read:,} documents could be used: {rejected}; "
            f"{hint_about_rejected_documents(counts.rejected, counts.fields, settings.read_options)}"
        )
    check_rejected_fraction(counts.rejected, num_read, counts.fields, settings)
    if not train:
        raise UserError(
            f"0 training documents ({heldout:,} held out, {rejected}); lower --heldout_fraction, or give more documents"
        )
    unknown, lost = counts.unknown_tokens / tokens, counts.unknown_characters / max(1, counts.characters)
    changed = {kind: count / counts.characters for kind, count in counts.changed_characters.items()}
    character_changes = changes_warning(tokenizer, changed)
    warnings = [
        *_warnings_about_small_splits(settings, counts, train, heldout),
        *_content_warnings(tokenizer, settings, counts, stored, sentences, unknown, lost),
        *filter(None, [character_changes, few_predictions_warning(expected_num_predictions(heldout_tokens))]),
    ]
    return {
        **({} if settings.segmenter == NO_SEGMENTER else {"format_version": WORDS_VERSION}),
        "tokenizer": {
            "kind": tokenizer.kind.name,
            "sha256": tokenizer.sha256,
            "vocab_size": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
        },
        "settings": {
            **dataclasses.asdict(settings.read_options),
            "stretch": list(settings.read_options.stretch),  # a list, since JSON has no tuples
            "heldout_fraction": settings.heldout_fraction,
            "language": settings.language,
            "deduplicate": settings.deduplicate,
            "max_record": MAX_RECORD,
            "max_sentence": MAX_SENTENCE,
            **segmenter_manifest(settings.segmenter),
        },
        "documents": {"in": num_read, "stored": stored, "rejected": dict(sorted(counts.rejected.items()))},
        "sentences_split": counts.sentences_split,
        "sentences_per_document": round(sentences / stored, 3),
        "unknown_token_fraction": round(unknown, 6),
        "unknown_character_fraction": round(lost, 6),
        "changed_character_fractions": {kind: round(fraction, 6) for kind, fraction in changed.items()},
        "counts": {name: value for name, value in vars(counts).items() if name not in ("documents", "rejected")},
        "warnings": warnings,
    }


def check_rejected_fraction(
    rejected: Mapping[str, int], num_documents: int, fields: str, settings: PrepareSettings
) -> None:
    """Raise TooManyRejectedUserError if more documents have a fault than the settings allow.

    Args:
        rejected: reason -> number of documents.
        num_documents: number of all documents.
        fields: field names of a record that lacks the requested field; an error message shows these names.
        settings: settings of the preparation.
    """
    faults = {reason: count for reason, count in rejected.items() if not _is_intended_rejection(reason)}
    num_faults = sum(faults.values())
    if num_faults > settings.max_rejected_fraction * num_documents:
        raise TooManyRejectedUserError(
            f"{num_faults:,} of {num_documents:,} documents were rejected: {describe_rejections(faults)}; "
            f"{hint_for_most_common_reason(faults, fields, settings.read_options)}. Where that is right, allow it with "
            f"--max_rejected_fraction {math.ceil(100 * num_faults / num_documents) / 100:g}"
        )


def hint_about_rejected_documents(rejected: Mapping[str, int], fields: str, options: ReadOptions) -> str:
    """Return advice about the reason for which most documents were rejected."""
    if OF in (reason := most_common_reason(rejected)) and _is_intended_rejection(reason):
        return "they are in that corpus already; leave it out of the recipe's `against` to keep copies"
    if _is_cleaning_rule(reason):
        return "change the recipe of the cleaning, or leave its rule out"
    return hint_for_most_common_reason(rejected, fields, options)


def _is_cleaning_rule(reason: str) -> bool:
    """Return whether a reason for rejection is a rule of a cleaning."""
    return reason.partition(": ")[0] in RULES


def _is_intended_rejection(reason: str) -> bool:
    """Return whether a reason for rejection is intended, such as a rule of a cleaning, or causes no loss of text."""
    return reason.partition(OF)[0] in NO_FAULTS or _is_cleaning_rule(reason)


def _warnings_about_small_splits(
    settings: PrepareSettings, counts: DocumentCounts, train: int, heldout: int
) -> Iterator[str]:
    """Yield warnings about splits with too few documents."""
    if train == 1:
        yield (
            "one training document: next-sentence prediction draws sentences from another document, so it cannot be "
            "trained; give more files, or split this document with --documents blank-line or line"
        )
    elif heldout < MIN_HELDOUT and settings.heldout_fraction > 0:
        stored = train + heldout
        if heldout:
            problem = f"one document of {stored:,} is held out, and `evaluate` needs {MIN_HELDOUT} for sentence pairs"
        else:
            problem = f"no document of {stored:,} is held out, so `evaluate` has nothing to read"
        fraction = smallest_fraction_that_holds_out(counts.lowest_hashes[-1])
        if stored >= 2 * MIN_HELDOUT and len(counts.lowest_hashes) == MIN_HELDOUT and fraction < 1:
            yield f"{problem}: prepare again with --heldout_fraction {fraction:g}, to hold out {MIN_HELDOUT} or more"
        else:
            yield (
                f"{problem}: give at least {2 * MIN_HELDOUT} documents, or split these with --documents blank-line or "
                "line, and raise --heldout_fraction"
            )


def _content_warnings(
    tokenizer: Tokenizer,
    settings: PrepareSettings,
    counts: DocumentCounts,
    stored: int,
    sentences: int,
    unknown: float,
    lost: float,
) -> Iterator[str]:
    """Yield warnings about text that does not fit the tokenizer, the options or the training."""
    if sentences == stored:
        yield "every document is one sentence, so every pair is random; join lines that belong together"
    if lost > MANY_LOST or unknown > MANY_UNKNOWN:
        cure = "train a tokenizer on this text, or take --kind byte_level, which has no unknown tokens"
        if unknown > MANY_UNKNOWN:
            cure = "was the tokenizer trained on text of another language or kind?"
        yield (
            f"{lost:.2%} of the characters are lost: {unknown:.2%} of the tokens are {tokenizer.special.unk}, which "
            f"stands for a whole word that the vocabulary lacks; {cure}"
        )
    reason = most_common_reason(counts.rejected)
    num_rejected = counts.rejected.get(reason, 0)
    if reason in HINTS and num_rejected > MANY_REJECTED * counts.documents:
        hint = hint_for_most_common_reason(counts.rejected, counts.fields, settings.read_options)
        yield f"{num_rejected:,} of {counts.documents:,} documents were rejected ({reason}): {hint}"
    if (code := settings.language.partition("-")[0]) in SENTENCE_ENDS and not _finds_sentences(settings.segmenter):
        known = [name for name in SEGMENTERS if SEGMENTERS[name].language == code and _finds_sentences(name)]
        yield (
            f"--language {settings.language}: the library that splits sentences has no rules for it, so they end "
            f"{SENTENCE_ENDS[code].description}; for sentence pairs, put each sentence on a line of its own"
            + "".join(f", or give --segmenter {name}" for name in known)
        )
    two = two_letter_code(settings.language)
    if settings.language != NO_LANGUAGE and len(settings.language.partition("-")[0]) > CODE_LENGTH:
        yield (
            f"--language {settings.language}: the rules of English are used, because the library that splits sentences "
            f"knows most languages by two letters only (de, not deu){f'; did you mean {two!r}?' if two else ''}"
        )


def _finds_sentences(segmenter: str) -> bool:
    """Return whether a segmenter also finds sentences."""
    return segmenter in SEGMENTERS and SEGMENTERS[segmenter].load_sentences is not None


def describe_sentence_rule(language: str, segmenter: str) -> str:
    """Return a description of the rules by which a preparation finds sentences and words."""
    rule = "each line a sentence" if language == NO_LANGUAGE else f"sentences by the rules of {language}"
    if len(code := language.partition("-")[0]) > CODE_LENGTH and language != NO_LANGUAGE:
        rule += ", or of English where there are none"
    if code in SENTENCE_ENDS:
        rule = f"sentences of {language} end {SENTENCE_ENDS[code].description}"
    if segmenter == NO_SEGMENTER:
        return rule
    splits = language != NO_LANGUAGE and _finds_sentences(segmenter)
    return f"sentences and words by {segmenter}" if splits else f"{rule}, words by {segmenter}"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as '1 document' or '2,000 documents'."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def format_summary(manifest: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Return lines about a manifest: documents, changes by cleaning, contents of the splits, tokens, sentences.

    For a corpus with appends, the first line is about the documents of the newest append.
    """
    documents, settings = manifest["documents"], manifest["settings"]
    reasons = describe_rejections(documents["rejected"])
    first_line = ""
    if unchanged := manifest.get("unchanged"):
        first_line = f"{output}: unchanged; of {_format_counts_of_append(unchanged['in'], unchanged['rejected'])}\n"
    elif snapshots := manifest.get("snapshots"):
        before = snapshots[-1]["documents"]
        new = {reason: count - before["rejected"].get(reason, 0) for reason, count in documents["rejected"].items()}
        added = _format_counts_of_append(
            documents["in"] - before["in"], {reason: count for reason, count in new.items() if count}
        )
        first_line = f"{output}: snapshot {len(snapshots) + 1}, {manifest['fingerprint'][:SHORT]}: of {added}\n"
    cleaning = f"{format_cleaning(manifest['cleaning'])}\n" if "cleaning" in manifest else ""
    splits = ", ".join(
        f"{name} " + " / ".join(format_count(split[f"{noun}s"], noun) for noun in ("document", "sentence", "token"))
        for name, split in manifest["splits"].items()
    )
    return (
        f"{first_line}"
        f"{output}: {format_count(documents['in'], 'document')} in = {documents['stored']:,} stored + "
        f"{sum(documents['rejected'].values()):,} rejected{f' ({reasons})' if reasons else ''}\n"
        f"{cleaning}{splits}; an evaluation has about "
        f"{format_count(expected_num_predictions(manifest['splits']['heldout']['tokens']), 'prediction')}\n"
        f"{format_copies(manifest)}"
        f"{manifest['unknown_token_fraction']:.2%} of the tokens unknown, "
        f"{manifest['unknown_character_fraction']:.2%} of the characters lost, "
        f"{describe_sentence_rule(settings['language'], settings.get('segmenter', NO_SEGMENTER))}, "
        f"{format_count(manifest['sentences_split'], 'overlong sentence')} cut in pieces\n"
        f"{format_tokenizer_changes(manifest)}"
    )


def format_copies(manifest: Mapping[str, Any]) -> str:
    """Return lines about the kept copies, each of which is in the split of its original; '' without kept copies.

    A second line says if near copies of the documents of earlier snapshots were not searched.
    """
    exact, near = (manifest.get("copies", {}).get(kind, 0) for kind in (EXACT, NEAR))
    lines, settings = "", manifest["settings"]
    if exact + near:
        lines = (
            f"{format_count(exact, 'exact copy', 'exact copies')} and {format_count(near, 'near copy', 'near copies')} "
            "of earlier documents are kept, on the same side of the split; --deduplicate near removes copies\n"
        )
    needs_sketches = settings["deduplicate"] == "split" and settings["heldout_fraction"] > 0 and "snapshots" in manifest
    if needs_sketches and SKETCHES not in [entry["name"] for entry in manifest["signatures"]]:
        lines += (
            "near copies of documents of earlier snapshots were not searched, and may be in the other split; "
            "prepare all text at once, or with --deduplicate near, to keep near copies in one split\n"
        )
    return lines


def format_tokenizer_changes(manifest: Mapping[str, Any]) -> str:
    """Return a line about the characters that the tokenizer changed, from a manifest or from `summarize_corpus`."""
    fractions = sorted(manifest["changed_character_fractions"].items(), key=lambda item: -item[1])
    percent = [f"{f'{fraction:.2%}' if fraction >= 5e-5 else 'below 0.01%'} {kind}" for kind, fraction in fractions]
    compared, characters = (manifest["counts"][name] for name in ("compared_characters", "characters"))
    sample = f" (in a sample of {compared:,} of {characters:,})" if compared < characters else ""
    return f"characters changed by the tokenizer: {', '.join(percent) or 'none'}{sample}"


def _format_counts_of_append(num_documents: int, rejected: Mapping[str, int]) -> str:
    """Return the counts of new, added and rejected documents of an append, as text."""
    num_rejected = sum(rejected.values())
    reasons = f" ({describe_rejections(rejected)})" if num_rejected else ""
    added = num_documents - num_rejected
    return f"{format_count(num_documents, 'new document')} {added:,} are added, {num_rejected:,} rejected{reasons}"


def format_cleaning(cleaning: Mapping[str, Any]) -> str:
    """Return a line about the changes by rules, from the manifest's part about cleaning."""
    changed = ", ".join(f"{count:,} by {rule}" for rule, count in cleaning["changed"].items()) or "none"
    kept = cleaning["characters_kept"] / max(1, cleaning["characters"])
    return f"{kept:.1%} of {cleaning['characters']:,} characters left after cleaning; documents changed: {changed}"
