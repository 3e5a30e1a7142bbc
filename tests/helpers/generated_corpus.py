"""A small corpus of English-like text, made through the project's own preparation, for tests that train."""

import pathlib

import numpy as np

from bert_jax.corpus.build.prepare import prepare
from bert_jax.tokenizer.train import train_tokenizer

SYLLABLES = [start + middle + end for start in "bdfklmnprst" for middle in "aeiou" for end in ("", "n", "rd", "st")]


def generated_corpus(directory: pathlib.Path, documents: int = 60, vocab_size: int = 300) -> pathlib.Path:
    """The corpus in `directory`; words have Zipf's frequencies, and each document a few favourite ones."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(SYLLABLES, rng.integers(1, 4))) for _ in range(400)]
    texts = directory / "texts"
    texts.mkdir(parents=True)
    for number in range(documents):
        own = rng.permutation(len(words))
        sentences = [_sentence(rng, words, own) for _ in range(rng.integers(5, 60))]
        (texts / f"{number:03}.txt").write_text(" ".join(sentences))
    train_tokenizer([[str(texts)]], vocab_size, str(directory / "tokenizer"))
    prepare(
        [str(texts)], directory / "tokenizer", directory / "corpus", workers=1, heldout_fraction=0.1, deduplicate="none"
    )
    return directory / "corpus"


def _sentence(rng: np.random.Generator, words: list[str], own: np.ndarray) -> str:
    ranks = np.minimum(rng.zipf(1.3, rng.integers(3, 15)), len(words)) - 1
    favourite = rng.random(len(ranks)) < 0.3
    return (
        " ".join(words[own[rank] if f else rank] for rank, f in zip(ranks, favourite, strict=True)).capitalize() + "."
    )
