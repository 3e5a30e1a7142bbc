"""Tokens that begin within a character: a sentence that is too long is not cut before them."""

import re

import numpy as np

from bert_jax.data.tokenizer.tokenizer import Tokenizer
from bert_jax.data.tokenizer.tokenizer_json import components

# How ByteLevel writes bytes (Radford et al. 2019): printable ones as they are, the others in order from 256 on.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
_LETTERS = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
_BYTE = re.compile("<0x([89AB][0-9A-F])>")  # of SentencePiece: a byte that begins no character


def inside_character(tokenizer: Tokenizer) -> np.ndarray:
    """Return for each token whether its first byte continues a character of UTF-8: bool `[vocab_size]`."""
    parts = components(tokenizer.definition.get("pre_tokenizer"))
    letters = _LETTERS if any(one.get("type") == "ByteLevel" for one in parts) else {}
    within = [0x80 <= letters.get(token[:1], 0) < 0xC0 or bool(_BYTE.fullmatch(token)) for token in tokenizer.tokens]
    return np.array(within, bool)
