"""The account of a preparation: where every document went, what is refused, what is worth a warning."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from bert_jax.data.corpus import MAX_RECORD, MAX_SENTENCE, SPLITS
from bert_jax.data.preparation.corpus_writer import ShardFacts
from bert_jax.data.preparation.encoding import Counts, Settings
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError

MANY_UNKNOWN = 0.05
HINTS = {
    "invalid UTF-8": "give UTF-8 text, or --encoding_errors replace",
    "binary": "give UTF-8 text",
    "empty": "give files with text in them",
    "no tokens": "the tokenizer knows nothing of this text",
}


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
    if not stored:
        raise UserError(f"0 of {found:,} documents could be used: {left_out}; {_hint(counts.rejected)}")
    if not train:
        raise UserError(f"0 training documents ({heldout:,} held out, {left_out}); lower --heldout_share, or give more")
    tokens, sentences = (sum(one[unit] for one in sums.values()) for unit in ("tokens", "sentences"))
    unknown = counts.unknown_tokens / tokens
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
            heldout == 0,
            "no document fell on the held-out side, so there is nothing to evaluate on; raise --heldout_share",
        ),
        (
            unknown > MANY_UNKNOWN,
            f"{unknown:.1%} of the tokens are {tokenizer.special.unk}: a tokenizer for another text?",
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
            "heldout_share": settings.heldout_share,
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


def _hint(rejected: Mapping[str, int]) -> str:
    """How to mend what most documents were rejected for."""
    commonest = max(rejected, key=lambda reason: rejected[reason], default="")
    return HINTS.get(commonest, "look at the input, and say with --format and --field what it is")


def describe(rejected: Mapping[str, int]) -> str:
    """`2 binary, 1 empty`, the commonest first."""
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(rejected.items(), key=lambda item: (-item[1], item[0])))


def summary(manifest: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Three lines of a manifest: where every document went, what each split holds, what was changed on the way."""
    documents, splits = manifest["documents"], manifest["splits"]
    held = ", ".join(
        f"{name} {split['documents']:,} documents / {split['sentences']:,} sentences / {split['tokens']:,} tokens"
        for name, split in splits.items()
    )
    return (
        f"{output}: {documents['in']:,} documents in = {documents['stored']:,} stored + "
        f"{sum(documents['rejected'].values()):,} rejected ({describe(documents['rejected']) or 'none'})\n"
        f"{held}\n"
        f"{manifest['unknown_token_share']:.2%} of the tokens unknown, "
        f"{manifest['sentences_split']:,} overlong sentences cut in pieces"
    )
