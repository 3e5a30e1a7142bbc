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
    return text_hashes(text)[1]


def text_hashes(text: str) -> tuple[bytes, int]:
    """Return a hash of the normal form, 16 bytes, and `split_hash`."""
    form = normal_form(text)
    start = hashlib.blake2b(form[:SPLIT_CHARACTERS].encode(), digest_size=8).digest()
    return hashlib.blake2b(form.encode(), digest_size=16).digest(), int.from_bytes(start, "big")


def choose_split(own_hash: int, heldout_fraction: float) -> str:
    """Return 'train' or 'heldout': the same for equal `split_hash`es, whatever else is in the corpus."""
    return "heldout" if own_hash < heldout_fraction * 2**64 else "train"


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
