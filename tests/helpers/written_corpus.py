"""A corpus of texts that are known word by word, with a vocabulary of whole words, for tests that look at it."""

import pathlib
import random
from collections.abc import Sequence

from bert_jax.corpus.build.prepare import prepare
from bert_jax.readers import ReadOptions
from bert_jax.tokenizer import SPECIAL_TOKENS, Normalizer, save_tokenizer, wordpiece_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [first + vowel + last + "u" for first in "bdfgklmnpr" for vowel in "aeiou" for last in "dnst"]


def write_corpus(
    place: pathlib.Path, texts: Sequence[str], vocabulary: Sequence[str] = (), heldout_fraction: float = 0.0
) -> pathlib.Path:
    """Prepares `place`/corpus, a document a text; without a vocabulary it is WORDS, "." and pieces of one letter."""
    (place / "texts").mkdir(parents=True)
    for number, text in enumerate(texts):
        (place / "texts" / f"{number:05}.txt").write_text(text)
    pieces = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    save_tokenizer(
        wordpiece_tokenizer([*SPECIAL_TOKENS, *(vocabulary or [".", *pieces, *WORDS])], Normalizer()),
        place / "tokenizer",
    )
    inputs = [str(place / "texts")]
    options = {"heldout_fraction": heldout_fraction, "deduplicate": "none"}  # texts choose the split alone
    prepare(inputs, place / "tokenizer", place / "corpus", ReadOptions(), workers=1, **options)
    return place / "corpus"


def sentence(random: random.Random, words: int) -> str:
    """Words and a full stop: a token each."""
    return " ".join(random.choices(WORDS, k=words)).capitalize() + "."


def text(random: random.Random, sentences: int, words: int = 8) -> str:
    """Sentences of 1 to `words` words."""
    return " ".join(sentence(random, random.randint(1, words)) for _ in range(sentences))
