"""Measure the speed of the input pipeline without training, and of `embed`, on generated texts and their corpus."""

import contextlib
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Iterator

import jax
import numpy as np

from benchmarks.device.report import Result
from bert_jax.batches.iteration import batches
from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.config import ComputeConfig, DataConfig, EncoderConfig
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.store import open_corpus
from bert_jax.inference.embed import HEADS, EmbedOptions, encode
from bert_jax.models import make_model
from bert_jax.tokenizer import load_tokenizer
from bert_jax.tokenizer.train import train_tokenizer

SYLLABLES = [start + middle + end for start in "bdfklmnprst" for middle in "aeiou" for end in ("", "n", "rd", "st")]
WORDS, VOCAB = 2_000, 512


def sentence(rng: np.random.Generator, words: list[str], count: int) -> str:
    """Return a sentence of the given number of words, drawn with Zipf's frequencies."""
    ranks = np.minimum(rng.zipf(1.3, count), len(words)) - 1
    return f"{' '.join(words[rank] for rank in ranks).capitalize()}."


def vocabulary(rng: np.random.Generator) -> list[str]:
    """Return a list of words of random syllables."""
    return ["".join(rng.choice(SYLLABLES, rng.integers(1, 4))) for _ in range(WORDS)]


def make_corpus(directory: pathlib.Path, documents: int) -> pathlib.Path:
    """Return the directory of a corpus and its tokenizer, which are made once; a crash leaves no partial directory."""
    corpus = directory / "corpus"
    if not corpus.is_dir():
        rng = np.random.default_rng(0)
        words = vocabulary(rng)
        with tempfile.TemporaryDirectory(dir=directory) as name:
            made = pathlib.Path(name)
            texts = made / "texts"
            texts.mkdir()
            for index in range(documents):  # a file is a document
                text = " ".join(sentence(rng, words, int(rng.integers(5, 25))) for _ in range(30))
                (texts / f"{index:04}.txt").write_text(text, encoding="utf-8")
            train_tokenizer([[str(texts)]], VOCAB, str(made / "tokenizer"))
            prepare([str(texts)], made / "tokenizer", made / "corpus", workers=1, heldout_fraction=0.0)
            (made / "corpus").rename(corpus)
    return corpus


def time_input(
    directory: pathlib.Path, documents: int, seq_len: int, packing: int, num_batches: int
) -> Iterator[Result]:
    """Yield the speed of building batches, padding included, with the threads of `pretrain`, while nothing trains."""
    corpus = open_corpus(make_corpus(directory, documents))
    symbols = special_ids_and_vocabulary(load_tokenizer(corpus.tokenizer_directory))
    data = DataConfig(packing=packing)
    sequences = make_sequences(corpus.split("train"), symbols, seq_len, 0, data)
    size = max(8, 32_768 // seq_len)
    with contextlib.closing(batches(sequences, 0, size, num_threads=data.num_threads)) as iterator:
        next(iterator)
        begin = time.perf_counter()
        for _ in range(num_batches):
            next(iterator)
        seconds = time.perf_counter() - begin
    name = f"input, {seq_len} tokens{f', packing {packing}' if packing > 1 else ''}"
    yield Result(name, ms=1e3 * seconds / num_batches, tokens_per_second=num_batches * size * seq_len / seconds)


def time_embed(
    directory: pathlib.Path, documents: int, size: str, config: EncoderConfig, num_texts: int, batch_size: int
) -> Iterator[Result]:
    """Yield the speed of `encode`, with tokenization, in bfloat16 on texts of up to 128 tokens; padding is not counted.

    The milliseconds are the time of a batch.
    """
    tokenizer = load_tokenizer(open_corpus(make_corpus(directory, documents)).tokenizer_directory)
    config = dataclasses.replace(config, vocab_size=max(config.vocab_size, tokenizer.vocab_size))
    params = jax.jit(make_model(config, ComputeConfig(), HEADS).init)(jax.random.key(0))
    model = OpenModel(config=config, heads=HEADS, params=params, labels=(), tokenizer=tokenizer, directory=directory)
    rng = np.random.default_rng(1)
    words = vocabulary(np.random.default_rng(0))
    texts = [sentence(rng, words, int(rng.integers(40, 80))) for _ in range(num_texts)]

    options = EmbedOptions(batch_size=batch_size, max_seq_len=128, truncate=True, dtype="bfloat16")

    def embed() -> None:
        encode(model, texts, options)

    begin = time.perf_counter()
    embed()
    ready = time.perf_counter() - begin
    begin = time.perf_counter()
    embed()
    seconds = time.perf_counter() - begin
    tokens = sum(min(128, len(tokenizer.encode(text))) for text in texts)
    name = f"embed, {size}, {num_texts:,} texts, batches of {batch_size}"
    yield Result(
        name, ms=1e3 * seconds * batch_size / num_texts, tokens_per_second=tokens / seconds, ready_seconds=ready
    )
