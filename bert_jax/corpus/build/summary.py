"""The summary of a corpus for its manifest: documents by split and by reason of rejection, settings, warnings."""

import math
import os
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from bert_jax.corpus.store import MAX_RECORD
from bert_jax.corpus.store import MAX_SENTENCE
from bert_jax.corpus.store import SPLITS
from bert_jax.corpus.manifest import SHORT
from bert_jax.corpus.manifest import WORDS_VERSION
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.corpus_writer import ShardInfo
from bert_jax.corpus.build.dedup_decisions import EXACT
from bert_jax.corpus.build.dedup_decisions import NEAR
from bert_jax.corpus.build.dedup_decisions import OF
from bert_jax.corpus.build.encoding import MIN_HELDOUT
from bert_jax.corpus.build.encoding import NO_LANGUAGE
from bert_jax.corpus.build.encoding import SENTENCE_ENDS
from bert_jax.corpus.build.encoding import DocumentCounts
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.encoding import fraction_above
from bert_jax.corpus.build.segmenters import NO_SEGMENTER
from bert_jax.corpus.build.segmenters import SEGMENTERS
from bert_jax.corpus.build.segmenters import description
from bert_jax.readers import ReadOptions
from bert_jax.readers.rejections import HINTS
from bert_jax.readers.rejections import describe_rejections
from bert_jax.readers.rejections import most_common_reason
from bert_jax.readers.rejections import rejection_hint
from bert_jax.tokenizer import Tokenizer
from bert_jax.tokenizer.changes import changes_warning
from bert_jax.tokenizer.changes import unexpected_changes
from bert_jax.errors import UserError

MANY_UNKNOWN = 0.05  # of the tokens
MANY_LOST = 0.001  # of the characters, in unknown tokens
MANY_REJECTED = 0.5  # of the documents, for one reason that can be fixed
# Reasons that are choices, or that lose no text.
NO_FAULTS = {EXACT, NEAR, "empty", "redirect", "not an article"}
CODE_LENGTH = 2  # of the codes by which the sentence splitter knows most languages


class TooManyRejectedUserError(UserError):
    """More documents are rejected than the settings allow; Beam knows the errors of its workers by `UserError: `."""


def summarize(
    tokenizer: Tokenizer, settings: PrepareSettings, shards: Iterable[ShardInfo], counts: DocumentCounts
) -> dict[str, Any]:
    """Return the part of the manifest that describes documents and settings, for all shards and documents in any order.

    Raises:
        UserError: nothing to train on. TooManyRejectedUserError: see there.
    """
    sums = {split: dict.fromkeys(("documents", "sentences", "tokens"), 0) for split in SPLITS}
    for shard in shards:
        for noun in sums[shard.split]:
            sums[shard.split][noun] += getattr(shard, noun)
    train, heldout = (sums[split]["documents"] for split in SPLITS)
    stored = train + heldout
    rejected = describe_rejections(counts.rejected) or "none rejected"
    found = stored + sum(counts.rejected.values())
    assert counts.documents == found, f"{counts.documents} documents in, {stored} stored, {counts.rejected} rejected"
    if not stored:
        raise UserError(
            f"0 of {found:,} documents could be used: {rejected}; "
            f"{hint_about(counts.rejected, counts.fields, settings.read_options)}"
        )
    check_rejected(counts.rejected, found, counts.fields, settings)
    if not train:
        raise UserError(
            f"0 training documents ({heldout:,} held out, {rejected}); lower --heldout_fraction, or give more documents"
        )
    tokens, sentences = (sum(one[noun] for one in sums.values()) for noun in ("tokens", "sentences"))
    unknown, lost = counts.unknown_tokens / tokens, counts.unknown_characters / max(1, counts.characters)
    changed = {kind: number / counts.characters for kind, number in counts.changed_characters.items()}
    warnings = [
        *_split_warnings(settings, counts, train, heldout),
        *_content_warnings(tokenizer, settings, counts, stored, found, sentences, unknown, lost),
        *filter(None, [changes_warning(unexpected_changes(tokenizer, changed))]),
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
            **settings.read_options._asdict(),
            "stretch": list(settings.read_options.stretch),  # as JSON reads it
            "heldout_fraction": settings.heldout_fraction,
            "language": settings.language,
            "deduplicate": settings.deduplicate,
            "max_record": MAX_RECORD,
            "max_sentence": MAX_SENTENCE,
            **description(settings.segmenter),
        },
        "documents": {"in": found, "stored": stored, "rejected": dict(sorted(counts.rejected.items()))},
        "sentences_split": counts.sentences_split,
        "sentences_per_document": round(sentences / stored, 3),
        "unknown_token_fraction": round(unknown, 6),
        "unknown_character_fraction": round(lost, 6),
        "changed_character_fractions": {kind: round(fraction, 6) for kind, fraction in changed.items()},
        "counts": {name: value for name, value in counts._asdict().items() if name not in ("documents", "rejected")},
        "warnings": warnings,
    }


def check_rejected(rejected: Mapping[str, int], found: int, fields: str, settings: PrepareSettings) -> None:
    """Raise TooManyRejectedUserError where more documents have a fault than the settings allow.

    Args:
        rejected: reason -> number of documents.
        found: number of all documents.
        fields: of a record that lacks the requested one.
        settings: of the preparation.
    """
    faults = {reason: number for reason, number in rejected.items() if not _is_choice(reason)}
    number = sum(faults.values())
    if number > settings.max_rejected_fraction * found:
        raise TooManyRejectedUserError(
            f"{number:,} of {found:,} documents were rejected: {describe_rejections(faults)}; "
            f"{rejection_hint(faults, fields, settings.read_options)}. Where that is right, allow it with "
            f"--max_rejected_fraction {math.ceil(100 * number / found) / 100:g}"
        )


def hint_about(rejected: Mapping[str, int], fields: str, options: ReadOptions) -> str:
    """Return how to fix what most documents were rejected for."""
    if OF in (reason := most_common_reason(rejected)) and _is_choice(reason):
        return "they are there already; leave that corpus out of the recipe's `against` to keep copies"
    if _is_rule(reason):
        return "change the recipe of the cleaning, or leave its rule out"
    return rejection_hint(rejected, fields, options)


def _is_rule(reason: str) -> bool:
    return reason.partition(": ")[0] in RULES


def _is_choice(reason: str) -> bool:
    """Return whether a reason is a choice, such as a rule of a cleaning, or loses no text."""
    return reason.partition(OF)[0] in NO_FAULTS or _is_rule(reason)


def _split_warnings(settings: PrepareSettings, counts: DocumentCounts, train: int, heldout: int) -> Iterator[str]:
    """Yield warnings about splits with too few documents."""
    if train == 1:
        yield (
            "one training document: next-sentence prediction draws sentences from another document, so it cannot be "
            "trained; give more files, or split this one with --documents blank-line or line"
        )
    elif heldout < MIN_HELDOUT and settings.heldout_fraction > 0:
        stored = train + heldout
        if heldout:
            problem = f"one document of {stored:,} is held out, and `evaluate` needs {MIN_HELDOUT} for sentence pairs"
        else:
            problem = f"no document of {stored:,} is held out, so `evaluate` has nothing to read"
        fraction = fraction_above(counts.lowest_hashes[-1])
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
    found: int,
    sentences: int,
    unknown: float,
    lost: float,
) -> Iterator[str]:
    """Yield warnings about text that does not fit tokenizer, options or training."""
    if sentences == stored:
        yield "every document is one sentence, so every pair is a random one; join lines that belong together"
    if lost > MANY_LOST or unknown > MANY_UNKNOWN:
        cure = "train one on this text, or take --kind byte_level, which has no unknown tokens"
        if unknown > MANY_UNKNOWN:
            cure = "was the tokenizer trained on text of another language or kind?"
        yield (
            f"{lost:.2%} of the characters are lost: {unknown:.2%} of the tokens are {tokenizer.special.unk}, which "
            f"stands for a whole word that the vocabulary lacks; {cure}"
        )
    reason = most_common_reason(counts.rejected)
    number = counts.rejected.get(reason, 0)
    if reason in HINTS and number > MANY_REJECTED * found:
        hint = rejection_hint(counts.rejected, counts.fields, settings.read_options)
        yield f"{number:,} of {found:,} documents were rejected ({reason}): {hint}"
    if (code := settings.language.partition("-")[0]) in SENTENCE_ENDS and not _finds_sentences(settings.segmenter):
        known = [name for name in SEGMENTERS if SEGMENTERS[name].language == code and _finds_sentences(name)]
        yield (
            f"--language {settings.language}: the library that splits sentences has no rules for it, so they end "
            f"{SENTENCE_ENDS[code].where}; for sentence pairs, put each sentence on a line of its own"
            + "".join(f", or give --segmenter {name}" for name in known)
        )
    if settings.language != NO_LANGUAGE and len(settings.language.partition("-")[0]) > CODE_LENGTH:
        yield (
            f"--language {settings.language}: sentencex knows most languages by two letters only (de, not deu), and "
            "uses the rules of English for a code that it does not know"
        )


def _finds_sentences(segmenter: str) -> bool:
    """Return whether a row of SEGMENTERS finds sentences, too."""
    return segmenter in SEGMENTERS and SEGMENTERS[segmenter].sentences is not None


def sentence_rule(language: str, segmenter: str) -> str:
    """Return what decides where sentences end, and words where it is not the vocabulary."""
    rule = "each line a sentence" if language == NO_LANGUAGE else f"sentences by the rules of {language}"
    if len(code := language.partition("-")[0]) > CODE_LENGTH and language != NO_LANGUAGE:
        rule += ", or of English where there are none"
    if code in SENTENCE_ENDS:
        rule = f"sentences of {language} end {SENTENCE_ENDS[code].where}"
    if segmenter == NO_SEGMENTER:
        return rule
    splits = language != NO_LANGUAGE and _finds_sentences(segmenter)
    return f"sentences and words by {segmenter}" if splits else f"{rule}, words by {segmenter}"


def count_noun(number: int, noun: str) -> str:
    """Return `1 document`, `2,000 documents`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_summary(manifest: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Return lines about a manifest: all documents, what cleaning did, the content of each split, tokens, sentences.

    Of a corpus that documents were added to, the first line is about those of this time, or of the newest snapshot.
    """
    documents, language = manifest["documents"], manifest["settings"]["language"]
    reasons = describe_rejections(documents["rejected"])
    splits = ", ".join(
        f"{name} " + " / ".join(count_noun(split[f"{noun}s"], noun) for noun in ("document", "sentence", "token"))
        for name, split in manifest["splits"].items()
    )
    changes = f"{format_cleaning(manifest['cleaning'])}\n" if "cleaning" in manifest else ""
    rule = sentence_rule(language, manifest["settings"].get("segmenter", NO_SEGMENTER))
    return (
        f"{_append_line(manifest, output)}"
        f"{output}: {count_noun(documents['in'], 'document')} in = {documents['stored']:,} stored + "
        f"{sum(documents['rejected'].values()):,} rejected{f' ({reasons})' if reasons else ''}\n"
        f"{changes}{splits}\n"
        f"{manifest['unknown_token_fraction']:.2%} of the tokens unknown, "
        f"{manifest['unknown_character_fraction']:.2%} of the characters lost, {rule}, "
        f"{count_noun(manifest['sentences_split'], 'overlong sentence')} cut in pieces\n"
        f"{format_changes(manifest)}"
    )


def format_changes(manifest: Mapping[str, Any]) -> str:
    """Return a line about the characters that the tokenizer changed, from a manifest or this part of it."""
    if "changed_character_fractions" not in manifest:
        return "characters changed by the tokenizer: not known, as an earlier version of bert_jax prepared the corpus"
    found = sorted(manifest["changed_character_fractions"].items(), key=lambda item: -item[1])
    percent = {kind: f"{fraction:.2%}" if fraction >= 5e-5 else "below 0.01%" for kind, fraction in found}
    changed = ", ".join(f"{percent[kind]} {kind}" for kind in percent) or "none"
    read, characters = (manifest["counts"][name] for name in ("compared_characters", "characters"))
    sample = f" (in a sample of {read:,} of {characters:,})" if read < characters else ""
    return f"characters changed by the tokenizer: {changed}{sample}"


def _append_line(manifest: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Return a line about documents that were to be added: nothing new now, or the newest snapshot; "" without any."""
    if "unchanged" in manifest:
        found = manifest["unchanged"]
        return f"{output}: unchanged; of {_added(found['in'], found['rejected'])}\n"
    if not manifest.get("snapshots"):
        return ""
    before, now = manifest["snapshots"][-1]["documents"], manifest["documents"]
    rejected = {reason: number - before["rejected"].get(reason, 0) for reason, number in now["rejected"].items()}
    return (
        f"{output}: snapshot {len(manifest['snapshots']) + 1}, {manifest['fingerprint'][:SHORT]}: of "
        f"{_added(now['in'] - before['in'], {reason: one for reason, one in rejected.items() if one})}\n"
    )


def _added(found: int, rejected: Mapping[str, int]) -> str:
    """Return words about documents that were read to be added."""
    number = sum(rejected.values())
    reasons = f" ({describe_rejections(rejected)})" if number else ""
    return f"{count_noun(found, 'new document')} {found - number:,} are added, {number:,} rejected{reasons}"


def format_cleaning(cleaning: Mapping[str, Any]) -> str:
    """Return a line about what the rules changed."""
    changed = ", ".join(f"{number:,} by {rule}" for rule, number in cleaning["changed"].items()) or "none"
    kept = cleaning["characters_kept"] / max(1, cleaning["characters"])
    return f"{kept:.1%} of {cleaning['characters']:,} characters left after cleaning; documents changed: {changed}"
