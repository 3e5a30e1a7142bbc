"""Predict next sentences only from shared words: a model that matches words should be as accurate as this.

    python benchmarks/shared_words.py --corpus CORPUS --seq_len 128

A logistic regression (scikit-learn) reads five features of each training pair. Words are weighted by rarity; the
features are the weight of the shared words, this weight as a fraction of the smaller text's weight, the weight of each
text, and the weight of the rarest shared word. Three quarters of the pairs are training examples, and the remaining
pairs are scored. Tokens are masked as in training.
"""

import argparse
import itertools
import sys

import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression

import bert_jax
from bert_jax.config import phases, pretrain_config


def main() -> None:
    """Print the accuracy of the regression, and the fraction of the pairs that are random."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="a directory made by `prepare`")
    parser.add_argument("--seq_len", type=int, default=128, help="tokens of a pair")
    parser.add_argument("--batches", type=int, default=150, help="of 64 pairs")
    args = parser.parse_args()
    config = pretrain_config()
    config.data.update(corpus=args.corpus, sentence_pairs="next_sentence")
    config.train.update(batch_size=64, steps=args.batches)
    config.train.phases = phases({"seq_len": args.seq_len, "fraction": 1.0})
    read = bert_jax.make_batches(bert_jax.resolve(bert_jax.PretrainConfig, config))
    pairs, labels = [], []
    for batch in itertools.islice(read, args.batches):
        ids, types, mask = (np.asarray(batch[name]) for name in ("input_ids", "token_type_ids", "attention_mask"))
        labels += np.asarray(batch["next_sentence_labels"]).tolist()
        pairs += [
            tuple(set(row[(kind == text) & (real > 0)].tolist()) for text in (0, 1))
            for row, kind, real in zip(ids, types, mask, strict=True)
        ]
    features, y = numbers_of(pairs), np.array(labels)
    first = len(y) * 3 // 4
    accuracy = LogisticRegression(max_iter=1_000).fit(features[:first], y[:first]).score(features[first:], y[first:])
    random = y[first:].mean()
    print(
        f"{args.seq_len} tokens: {accuracy:.1%} of {len(y) - first:,} pairs right from shared words, {random:.1%} are "
        f"random (scikit-learn {sklearn.__version__}, Python {sys.version.split()[0]})"
    )


def numbers_of(pairs: list[tuple[set[int], ...]]) -> np.ndarray:
    """Return the five features of each pair, scaled to mean 0 and standard deviation 1."""
    size = 1 + max(max(a | b) for a, b in pairs)
    num_pairs_with = np.bincount([token for a, b in pairs for token in a | b], minlength=size)
    rarity = np.log((len(pairs) + 1) / (num_pairs_with + 1))
    rows = []
    for a, b in pairs:
        of_a, of_b, of_both = (rarity[list(tokens)] for tokens in (a, b, a & b))
        smaller = min(of_a.sum(), of_b.sum())
        rows.append(
            [of_both.sum(), of_both.sum() / max(smaller, 1e-6), of_a.sum(), of_b.sum(), max(of_both, default=0)]
        )
    numbers = np.array(rows)
    return (numbers - numbers.mean(0)) / numbers.std(0)


if __name__ == "__main__":
    main()
