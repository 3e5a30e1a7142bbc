"""Limits on a `tokenizer.json` that others wrote: encoding always ends, and never makes a text much longer.

The library matches regular expressions by backtracking, which may take forever or end in a panic. No short program can
decide whether a pattern is safe, and a thread of the library cannot be stopped. Therefore only the patterns in
PATTERNS, which are from published tokenizers, are accepted.
"""

import base64
import binascii
import collections
from collections.abc import Iterator
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tokenizer.tokenizer_json import Definition, steps_of_part

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_WORD_THEN_REST = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {
    "spaces": " {2,}",  # pattern of SentencePiece, for example in ALBERT, T5 and XLM-R
    "white space": r"\s+",
    "white space or line end": r"\s{2,}|[\n\r\t]",
    "one white space": r"\s",
    "line end": r"\n",
    "line ends and tabs": r"[\n\r\t]",
    "number": r"\p{N}",
    "digits": r"\p{N}{1,3}",
    "gpt2": rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+",
    "gpt4": rf"(?i:{_CONTRACTIONS})|" + _WORD_THEN_REST % "{1,3}",  # Llama 3, EuroBERT
    "qwen2": rf"(?i:{_CONTRACTIONS})|" + _WORD_THEN_REST % "",
}
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
MAX_COMPONENTS = 16  # maximum number of steps in a part; ALBERT's normalizer has eight
LENGTHENING = (
    "ByteLevel",
    "NFKC",
    "NFKD",
    "Precompiled",
    "Prepend",
)  # types of steps that may double the length of a text or more; each type may occur once
MAX_MAPPED = 64  # maximum number of bytes that replace a character; Unicode's tables need at most 33, for U+FDFA
MAX_PREFIX = 8  # maximum number of characters that a step puts before every text
MAX_WORD = 1_000  # maximum characters of a word, because WordPiece tries all prefixes of a word; BERT's limit is 100


def refuse_unsafe_definition(definition: Definition) -> None:
    """Raise UserError for a definition that may encode a text forever, or make a text many times longer."""
    for part in PARTS:
        steps = list(steps_of_part(definition[part]))
        counts = collections.Counter(str(step.get("type")) for step in steps)
        if len(steps) > MAX_COMPONENTS or any(counts[kind] > 1 for kind in LENGTHENING):
            raise UserError(f"its {part} has {len(steps)} steps, some of them repeated, which may lengthen a text much")
        for step in steps:
            _refuse_lengthening_step(part, step)
        for pattern in _find_regular_expressions(definition[part]):
            if pattern not in PATTERNS.values():
                raise UserError(
                    f"its {part} has the regular expression {str(pattern)!r:.80}, which is of no published tokenizer "
                    "we know and may never end; if it is safe, add it to PATTERNS in tokenizer/bounds.py"
                )
    longest = definition["model"].get("max_input_chars_per_word", 0)
    if definition["model"]["type"] == "WordPiece" and not (isinstance(longest, int) and longest <= MAX_WORD):
        raise UserError(f"max_input_chars_per_word is {longest!r:.40}; give an integer of at most {MAX_WORD:,}")


def _refuse_lengthening_step(part: str, component: Definition) -> None:
    """Raise UserError if a step of a part, such as the normalizer, may lengthen a text."""
    kind = component.get("type")
    if not isinstance(kind, str):  # the library would infer a type from the other keys
        raise UserError(f"its {part} has a step without a type")
    if kind == "Replace":
        pattern, content = component.get("pattern"), component.get("content")
        replaced = pattern.get("String") if isinstance(pattern, dict) else None
        if len(str(content)) > max(1, len(str(replaced or ""))):
            raise UserError(f"its {part} replaces {pattern!r:.40} with {content!r:.40}, which is longer")
    elif kind == "Prepend" and len(str(component.get("prepend"))) > MAX_PREFIX:
        raise UserError(f"its {part} begins every text with more than {MAX_PREFIX} characters")
    elif kind == "Precompiled":
        try:
            table = base64.b64decode(component["precompiled_charsmap"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise UserError(f"its {part} has a precompiled_charsmap that is not base64") from None
        texts = table[4 + int.from_bytes(table[:4], "little") :]  # the table: length of a trie, the trie, texts
        if max(map(len, texts.split(b"\0"))) > MAX_MAPPED:
            raise UserError(f"its {part} maps a character to more than {MAX_MAPPED} bytes")


def _find_regular_expressions(value: Any) -> Iterator[Any]:
    """Yield every regular expression in a part of a definition."""
    if isinstance(value, dict):
        if "Regex" in value:
            yield value["Regex"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _find_regular_expressions(item)
