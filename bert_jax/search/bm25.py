"""Scores of documents by the words that they share with a query: BM25 (Robertson and Zaragoza 2009)."""

import functools
import logging
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bert_jax.corpus.languages import UNSPACED

_UNSPACED = UNSPACED + "\u3005-\u3007"  # with the marks of repetition and zero, which stand between Han characters
# The parameters of Anserini for BEIR.
K1, B = 0.9, 0.4

Bm25 = Callable[[Sequence[str]], Iterator[np.ndarray]]


def make_bm25_scorer(documents: Sequence[str]) -> Bm25:
    """Return a function that takes queries and yields the scores of all documents, float32 `[documents]`, per query.

    The words are the result of `split_into_words`. There is no stemming and no list of stop words, so the scores suit
    any language. A document that shares no word with the query has the score 0. The scores follow the formula of Lucene
    and are computed by the package `bm25s`.
    """
    import bm25s  # imported here, as this import runs a JAX computation

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # bm25s sets its own level to DEBUG
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    words = list(map(split_into_words, documents))
    has_words = any(words)
    if has_words:
        index.index(words, show_progress=False)

    def scores_of(queries: Sequence[str]) -> Iterator[np.ndarray]:
        for query in map(split_into_words, queries):
            known = [word for word in query if word in index.vocab_dict] if has_words else []
            yield index.get_scores(known).astype(np.float32) if known else np.zeros(len(documents), np.float32)

    return scores_of


def split_into_words(text: str) -> list[str]:
    """Return the words of a text, in lower case and in NFC: sequences of two or more letters, digits and underscores.

    Combining marks, such as the vowel signs of Hindi, belong to the word. In scripts without spaces, each pair of
    neighboring characters is a word, as in the CJKAnalyzer of Lucene; a character without a neighbor is a word, too.
    """
    text = unicodedata.normalize("NFC", text.lower())
    if text.isascii() or (_combining_marks().isdisjoint(text) and not re.search(f"[{_UNSPACED}]", text)):
        return re.findall(r"\w\w+", text)
    words = list[str]()
    for unspaced, word in _compile_word_pattern().findall(text):
        words += [unspaced[start : start + 2] for start in range(max(1, len(unspaced) - 1))] if unspaced else [word]
    return words


@functools.cache
def _combining_marks() -> frozenset[str]:
    """Return all combining marks of Unicode."""
    return frozenset(
        character for character in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(character)[0] == "M"
    )


@functools.cache
def _compile_word_pattern() -> re.Pattern[str]:
    """Return a pattern with two groups: characters of scripts without spaces, or a word of another script.

    Matching with this pattern is slow, so `split_into_words` uses the pattern only for texts that need it.
    """
    marks = "".join(sorted(_combining_marks()))
    letter = rf"(?:[^\W{_UNSPACED}]|(?![{_UNSPACED}])[{marks}])"
    return re.compile(rf"((?:(?=[{_UNSPACED}])[\w{marks}])+)|([^\W{_UNSPACED}]{letter}+)")
