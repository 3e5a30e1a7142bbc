"""Measure how full the training sequences are, and how many tokens an epoch reads, for each kind of sentence pairs.

    python benchmarks/sequence_fill.py --input UD/ko_kaist-ud-dev.conllu.gz UD/ko_kaist-ud-test.conllu.gz --language ko

Trains a vocabulary on the text, prepares documents of `--sentences` sentences each, and prints a line per rule. A file
is CoNLL-U or has a sentence per line, gzipped or not.
"""

import argparse
import functools
import pathlib
import tempfile
from collections.abc import Sequence

from fertility import read

from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.batches.statistics import covered_token_fractions, sequence_figures
from bert_jax.config import DataConfig
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.store import open_corpus
from bert_jax.readers import ReadOptions
from bert_jax.tokenizer import Tokenizer, save_tokenizer
from bert_jax.tokenizer.train import train_from_texts

RULES = ("full_sentences", "document_sentences", "full_text")


def main() -> None:
    """Print a line per rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--language", required=True)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--seq_len", type=int, default=128)
    parser.add_argument("--vocab_size", type=int, default=6000)
    parser.add_argument("--kind", default="byte_level")
    args = parser.parse_args()
    lines = [line for path in args.input for line in read(path).lines if line.strip()]
    texts = ["\n\n".join(lines[at : at + args.sentences]) for at in range(0, len(lines), args.sentences)]
    tokenizer, _ = train_from_texts(functools.partial(iter, texts), args.vocab_size, args.kind, lowercase=False)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        inputs = write_inputs(directory, texts, tokenizer)
        prepare(inputs, directory / "tok", directory / "corpus", ReadOptions(), workers=1, language=args.language)
        split = open_corpus(directory / "corpus").split("train")
        print(
            f"{split.num_documents:,} documents, {split.num_tokens:,} tokens, "
            f"{split.num_tokens / split.num_sentences:.1f} a sentence; sequences of {args.seq_len}:"
        )
        for rule in RULES:
            data = DataConfig(sentence_pairs=rule)
            sequences = make_sequences(split, special_ids_and_vocabulary(tokenizer), args.seq_len, 0, data)
            figures = sequence_figures(sequences, tokenizer.mask_id)
            once, twice = covered_token_fractions(split, tokenizer.separators, args.seq_len, data)
            print(f"{rule:20} {figures.fill:7.2%} full; {once:7.2%} of the tokens in one epoch, {twice:7.2%} in two")


def write_inputs(directory: pathlib.Path, texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Write a file for each text, and the tokenizer as `tok`; return the inputs for `prepare`."""
    (directory / "texts").mkdir()
    for index, text in enumerate(texts):
        (directory / "texts" / f"{index:05}.txt").write_text(text, encoding="utf-8")
    save_tokenizer(tokenizer, directory / "tok")
    return [str(directory / "texts")]


if __name__ == "__main__":
    main()
