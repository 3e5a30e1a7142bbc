"""The normal form of a text: equal for copies that differ in width, case, white space and punctuation alone."""

import functools
import hashlib
import re
import unicodedata

SPLIT_CHARACTERS = 1 << 16  # of the normal form that decide the split; long documents come in pieces
_IGNORED = "PZC"  # Unicode categories: punctuation, separators, controls
# Characters of scripts that do not separate words: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han.
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def _is_ignored(character: str) -> bool:
    return unicodedata.category(character)[0] in _IGNORED


_ASCII_IGNORED = [number for number in range(128) if _is_ignored(chr(number))]
# What stands for a white space -> the ASCII characters that are deleted.
_DELETED = {"": bytes(_ASCII_IGNORED), " ": bytes(number for number in _ASCII_IGNORED if not chr(number).isspace())}


def normal_form(text: str) -> str:
    """Return the letters, marks, numbers and symbols of a text in NFKC, case folded; of a text without any, itself."""
    return _folded(text, "") or text


def normal_words(text: str) -> list[str]:
    """Return the words of the normal form, split at white space; in scripts without spaces each character."""
    kept = _folded(text, " ")
    return (kept if kept.isascii() else _UNSPACED.sub(r" \g<0> ", kept)).split()


def split_hash(text: str) -> int:
    """Return a uniform hash below 2**64 of the start of the normal form."""
    start = normal_form(text)[:SPLIT_CHARACTERS]
    return int.from_bytes(hashlib.blake2b(start.encode(), digest_size=8).digest(), "big")


def _folded(text: str, space: str) -> str:
    """Return the normal form with `space`, '' or ' ', for each white space."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = text.casefold().encode().translate(None, _DELETED[space]).decode()
    if not text.isascii():
        for character in filter(_is_wide_ignored, set(text)):
            text = text.replace(character, space if character.isspace() else "")
    return text


@functools.cache
def _is_wide_ignored(character: str) -> bool:
    return not character.isascii() and _is_ignored(character)
