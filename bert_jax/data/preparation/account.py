"""The account of a preparation: where every document went, what is refused, what is worth a warning."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from bert_jax.data.corpus import MAX_RECORD, MAX_SENTENCE, SPLITS
from bert_jax.data.preparation.corpus_writer import ShardFacts
from bert_jax.data.preparation.encoding import NO_LANGUAGE, Counts, Settings
from bert_jax.data.sources.rejections import HINTS, commonest, describe, hint
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError

__all__ = ["account", "counted", "describe", "summary"]

MANY_UNKNOWN = 0.05
MANY_REJECTED = 0.5  # of the documents, for one reason that can be mended
LETTERS = 2  # of the codes by which the library knows most languages


def account(tokenizer: Tokenizer, settings: Settings, shards: Iterable[ShardFacts], counts: Counts) -> dict[str, Any]:
    """What the manifest says beside shards: of all shards and of all documents, in whatever order they were made.

    Raises:
        UserError: nothing to train on.
    """
    sums = {split: dict.fromkeys(("documents", "sentences", "tokens"), 0) for split in SPLITS}
    for shard in shards:
        for unit in sums[shard.split]:
            sums[shard.split][unit] += getattr(shard, unit)
    train, heldout = (sums[split]["documents"] for split in SPLITS)
    stored = train + heldout
    left_out = describe(counts.rejected) or "none rejected"
    found = stored + sum(counts.rejected.values())
    assert counts.documents == found, f"{counts.documents} documents in, {stored} stored, {counts.rejected} rejected"
    mend = hint(counts.rejected, counts.fields, settings.reading)
    if not stored:
        raise UserError(f"0 of {found:,} documents could be used: {left_out}; {mend}")
    if not train:
        raise UserError(
            f"0 training documents ({heldout:,} held out, {left_out}); lower --heldout_fraction, or give more"
        )
    tokens, sentences = (sum(one[unit] for one in sums.values()) for unit in ("tokens", "sentences"))
    unknown = counts.unknown_tokens / tokens
    reason = commonest(counts.rejected)
    rejected = counts.rejected.get(reason, 0)
    warnings = (
        (
            train == 1,
            "one training document: next-sentence prediction draws from another document and cannot be trained on it;"
            " give more files, or part this one with --documents blank-line or line",
        ),
        (
            sentences == stored,
            "every document is one sentence, so every pair will be a random one; join lines that belong together",
        ),
        (
            heldout == 0 and train > 1 and settings.heldout_fraction > 0,
            "no document fell on the held-out side, so there is nothing to evaluate on; raise --heldout_fraction",
        ),
        (
            heldout == 1 and train > 1,
            "one document fell on the held-out side, and next sentences are evaluated on two or more; raise "
            "--heldout_fraction",
        ),
        (
            unknown > MANY_UNKNOWN,
            f"{unknown:.1%} of the tokens are {tokenizer.special.unk}: a tokenizer for another text?",
        ),
        (
            reason in HINTS and rejected > MANY_REJECTED * found,
            f"{rejected:,} of {found:,} documents were rejected ({reason}): {mend}",
        ),
        (
            settings.language != NO_LANGUAGE and len(settings.language.partition("-")[0]) > LETTERS,
            f"--language {settings.language}: sentencex knows most languages by two letters alone (de, not deu), and "
            "takes the rules of English for a code that it does not know",
        ),
    )
    return {
        "tokenizer": {
            "kind": tokenizer.kind.name,
            "sha256": tokenizer.sha256,
            "vocab_size": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
        },
        "settings": {
            **settings.reading._asdict(),
            "heldout_fraction": settings.heldout_fraction,
            "language": settings.language,
            "max_record": MAX_RECORD,
            "max_sentence": MAX_SENTENCE,
        },
        "documents": {"in": found, "stored": stored, "rejected": dict(sorted(counts.rejected.items()))},
        "sentences_split": counts.sentences_split,
        "sentences_per_document": round(sentences / stored, 3),
        "unknown_token_share": round(unknown, 6),
        "warnings": [line for holds, line in warnings if holds],
    }


def counted(number: int, noun: str) -> str:
    """`1 document`, `2,000 documents`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def summary(manifest: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Three lines of a manifest: where every document went, what each split holds, what was done on the way."""
    documents, language = manifest["documents"], manifest["settings"]["language"]
    reasons = describe(documents["rejected"])
    held = ", ".join(
        f"{name} " + " / ".join(counted(split[f"{noun}s"], noun) for noun in ("document", "sentence", "token"))
        for name, split in manifest["splits"].items()
    )
    rule = "a line is a sentence" if language == NO_LANGUAGE else f"sentences by the rules of {language}"
    return (
        f"{output}: {counted(documents['in'], 'document')} in = {documents['stored']:,} stored + "
        f"{sum(documents['rejected'].values()):,} rejected{f' ({reasons})' if reasons else ''}\n"
        f"{held}\n"
        f"{manifest['unknown_token_share']:.2%} of the tokens unknown, {rule}, "
        f"{counted(manifest['sentences_split'], 'overlong sentence')} cut in pieces"
    )
