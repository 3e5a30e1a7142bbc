"""How BERT cleans text and splits it into words, which `wordpiece` and `bpe` share.

After google-research/bert, tokenization.py: text is cleaned, Chinese characters are separated, and the text is split at
whitespace and punctuation.
"""

from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.tokenizer import tokenizer_json
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens

SPECIAL = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SEPARATORS = 1
PREFIX = "##"  # of a piece that continues a word
DECODER = {"type": "WordPiece", "prefix": PREFIX, "cleanup": True}


class Normalizer(NamedTuple):
    """How text is normalized before it is split; the field names are those of `tokenizer_config.json`."""

    do_lower_case: bool = True
    strip_accents: bool | None = None  # None: as do_lower_case
    tokenize_chinese_chars: bool = True


def splitting(normalizer: Normalizer) -> Definition:
    """Return the parts of a definition that clean text and split it into words."""
    return {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": normalizer.tokenize_chinese_chars,
            "strip_accents": normalizer.strip_accents,
            "lowercase": normalizer.do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
    }


def normalizer_of(definition: Definition) -> Normalizer:
    """Return the normalizer of a definition, as far as `Normalizer` expresses it."""
    part = next(iter(tokenizer_json.components(definition["normalizer"])), {})
    return Normalizer(
        bool(part.get("lowercase")), part.get("strip_accents"), bool(part.get("handle_chinese_chars", False))
    )


def continues(definition: Definition, tokens: Sequence[str]) -> list[bool]:
    """Return whether each token continues the word before it."""
    prefix = definition["model"].get("continuing_subword_prefix") or PREFIX
    return [token.startswith(prefix) for token in tokens]
