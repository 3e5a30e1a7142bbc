"""The words and sentences of datatrove's spaCy tokenizers in a tenth of the time: spaCy splits each distinct word once.

spaCy splits a text at white space, and then splits each part separately. The tokens of a part between two white spaces
therefore do not depend on the rest of the text.
"""

import contextlib
import functools
import itertools
import locale
import re
from collections.abc import Iterator
from typing import NamedTuple

from datatrove.utils.word_tokenizers import SpaCyTokenizer, WordTokenizer, load_word_tokenizer, strip_strings
from spacy.lang.lex_attrs import is_punct
from spacy.tokenizer import Tokenizer

_CACHED_WORDS = 1 << 17  # maximum number of words in the cache, about 50 MB


class Token(NamedTuple):
    """A token of a word, whether the token ends a sentence, and whether the token is punctuation."""

    text: str
    ends_sentence: bool
    is_punctuation: bool


class CachedTokenizer(WordTokenizer):
    """A tokenizer that finds the same words and sentences as `SpaCyTokenizer`, with a cache of words."""

    def __init__(self, tokenizer: SpaCyTokenizer):
        super().__init__(tokenizer.language)
        self._tokenizer = tokenizer
        self._sentence_ends = tokenizer.tokenizer.get_pipe("sentencizer").punct_chars
        self._tokens_of = functools.lru_cache(maxsize=_CACHED_WORDS)(self._split_word)

    def _split_word(self, word: str) -> tuple[Token, ...]:
        """Return the tokens of a word, which contains no white space."""
        texts = self._tokenizer.word_tokenize(word)
        return tuple(Token(text, text in self._sentence_ends, is_punct(text)) for text in texts)

    def word_tokenize(self, text: str) -> list[str]:
        """Return the words of a text."""
        return [token.text for word in text.split() for token in self._tokens_of(word)]

    def sent_tokenize(self, text: str) -> list[str]:
        """Return the sentences of a text; a sentence includes all punctuation after its end, as in spaCy."""
        starts, is_ended, position = [0], False, 0
        for match in re.finditer(r"\S+", text):
            is_spaced = text[position : match.start()] not in ("", " ")  # spaCy makes a token of any other white space
            position = match.start()
            for token in self._tokens_of(match[0]):
                if is_ended and (is_spaced or not (token.is_punctuation or token.ends_sentence)):
                    starts.append(position)
                    is_ended = False
                is_ended, is_spaced = is_ended or token.ends_sentence, False
                position += len(token.text)
        sentences = [text[start:end] for start, end in itertools.pairwise([*starts, len(text)])]
        return list(strip_strings(sentences))

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """Return the positions of the sentences of a text."""
        spans: list[tuple[int, int]] = self._tokenizer.span_tokenize(text)
        return spans


@functools.cache
def load_cached_word_tokenizer(language: str) -> WordTokenizer:
    """Return the word tokenizer of a language.

    Raises:
        ValueError: datatrove has no tokenizer for the language. ImportError: a package is missing.
    """
    with _utf8_as_default_encoding():
        tokenizer = load_word_tokenizer(language)
    # Tokenizers of Chinese, Japanese, Thai and Vietnamese look at the whole text.
    is_by_word = isinstance(tokenizer, SpaCyTokenizer) and type(tokenizer.tokenizer.tokenizer) is Tokenizer
    return CachedTokenizer(tokenizer) if is_by_word else tokenizer


@contextlib.contextmanager
def _utf8_as_default_encoding() -> Iterator[None]:
    """Make UTF-8 the default encoding of `open`: datatrove reads its tables with the encoding of the locale."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        with contextlib.suppress(locale.Error):  # the system may lack this locale
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        yield
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
