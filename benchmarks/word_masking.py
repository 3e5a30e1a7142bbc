"""Measure how whole-word masking groups tokens with and without a word segmenter, and the cost of the segmenter.

    python benchmarks/word_masking.py --input tatoeba.cmn-eng.cmn --language zh --segmenter jieba --vocab_size 2000

Trains a vocabulary on the text, or takes `--tokenizer`, and prepares documents of `--sentences` lines each with and
without the segmenter in turn. Prints a line with and a line without the segmenter: the fraction of tokens in words of
several tokens, the fraction of tokens in words that are too long and are masked as single tokens, the number of
sentences, and the median CPU seconds of the runs. A file is CoNLL-U or has a sentence per line, gzipped or not. `--join
TEXT` puts all lines of a document on one line, separated by TEXT.
"""

import argparse
import functools
import pathlib
import statistics
import tempfile
import time

from fertility import read
from sequence_fill import write_inputs

from bert_jax.batches.masking import MAX_WORD_TOKENS
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.build.segmenters import check_segmenter, segmenter_manifest
from bert_jax.corpus.statistics import token_figures
from bert_jax.corpus.store import open_corpus
from bert_jax.readers import ReadOptions
from bert_jax.tokenizer import load_tokenizer
from bert_jax.tokenizer.train import train_from_texts

RUNS = 3


def main() -> None:
    """Print a line without the segmenter, and a line with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--language", required=True)
    parser.add_argument("--segmenter", required=True)
    parser.add_argument("--tokenizer", help="directory (default: train a tokenizer)")
    parser.add_argument("--kind", default="unigram")
    parser.add_argument("--vocab_size", type=int, default=8000)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--join", default="\n")
    args = parser.parse_args()
    check_segmenter(args.segmenter, args.language)  # loads the segmenter
    lines = [line for path in args.input for line in read(path).lines if line.strip()]
    texts = [args.join.join(lines[at : at + args.sentences]) for at in range(0, len(lines), args.sentences)]
    if args.tokenizer:
        tokenizer = load_tokenizer(args.tokenizer)
    else:
        tokenizer, _ = train_from_texts(functools.partial(iter, texts), args.vocab_size, args.kind, lowercase=False)
    characters = sum(map(len, texts))
    versions = segmenter_manifest(args.segmenter)["segmenter_versions"]
    print(f"{characters:,} characters, {tokenizer.kind.name} of {tokenizer.vocab_size:,}, {versions}")
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        inputs = write_inputs(directory, texts, tokenizer)
        seconds: dict[str, list[float]] = {"none": [], args.segmenter: []}
        for run in range(RUNS):
            for segmenter, times in seconds.items():
                begin = time.process_time()
                prepare(
                    inputs,
                    *(directory / "tok", directory / f"{segmenter}-{run}", ReadOptions()),
                    workers=1,
                    language=args.language,
                    segmenter=segmenter,
                )
                times.append(time.process_time() - begin)
        for segmenter, times in seconds.items():
            train = open_corpus(directory / f"{segmenter}-0").split("train")
            figures = token_figures(train, tokenizer, MAX_WORD_TOKENS)
            print(
                f"{segmenter:10} {figures.joined:7.2%} of {figures.tokens:,} tokens masked together, "
                f"{figures.long_words:7.2%} fall back; {train.num_sentences:,} sentences; "
                f"{statistics.median(times):.2f} s, {characters / 1e3 / statistics.median(times):,.0f} thousand "
                "characters/s"
            )


if __name__ == "__main__":
    main()
