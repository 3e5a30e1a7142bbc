"""Measure tokens per word, characters per token and unknown tokens, for a vocabulary of each kind of tokenizer.

    python benchmarks/fertility.py --vocab_size 6000 --test UD/ko_gsd-ud-test.conllu.gz \
        --train UD/ko_gsd-ud-dev.conllu.gz UD/ko_kaist-ud-dev.conllu.gz

Trains a cased vocabulary of each kind on the training files, and measures the vocabulary on the test treebank. Words
are the words of the treebank, since Japanese does not separate words by spaces. A file is CoNLL-U or plain text,
gzipped or not.
"""

import argparse
import functools
import gzip
from typing import NamedTuple

from bert_jax.tokenizer import TOKENIZERS
from bert_jax.tokenizer.train import train_from_texts
from bert_jax.tokenizer.training_report import count_tokens


class Text(NamedTuple):
    """Text of a file."""

    lines: list[str]
    words: int  # words of a treebank; 0 for plain text


def read(path: str) -> Text:
    """Return the sentences of a treebank, or the lines of a text."""
    with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    if ".conllu" not in path:
        return Text(lines, 0)
    texts = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")]
    return Text(texts, sum(line.split("\t")[0].isdigit() for line in lines))


def main() -> None:
    """Print a line for each kind of tokenizer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--test", required=True)
    parser.add_argument("--vocab_size", type=int, required=True)
    args = parser.parse_args()
    texts = ["\n".join(read(path).lines) for path in args.train]
    test = read(args.test)
    print(f"{args.vocab_size:,} tokens from {sum(map(len, texts)):,} characters; {args.test}, {test.words:,} words:")
    for kind in TOKENIZERS:
        tokenizer, _ = train_from_texts(functools.partial(iter, texts), args.vocab_size, kind, lowercase=False)
        counts = count_tokens(tokenizer, test.lines)
        print(
            f"{kind:18} {counts.tokens / test.words:.3f} tokens per word,"
            f" {counts.characters / counts.tokens:.2f} characters per token,"
            f" {counts.unknown / counts.tokens:.3%} unknown"
        )


if __name__ == "__main__":
    main()
