"""Files of pairs of texts from a corpus without labels, which a fine-tuning of sentence vectors reads."""

import json
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bert_jax.batches.text_pairs import PAIR_RULES, TextLimits, TextPairs
from bert_jax.corpus import store
from bert_jax.errors import UserError, did_you_mean
from bert_jax.files import local_path, output_directory
from bert_jax.tokenizer import load_tokenizer

TRAIN, DEV = "train.jsonl", "dev.jsonl"
CHUNK = 1_024  # pairs that are read at once
LIMITS = TextLimits(query=32, document=64)
RIGHT, WRONG = 1, 0  # labels of the pairs of the dev set


class PairCounts(NamedTuple):
    """Numbers of written pairs, and of records with too few sentences."""

    train: int
    dev: int
    num_without: int


def write_unlabeled_pairs(
    corpus_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    rule: str = "adjacent",
    num_pairs: int | None = None,
    num_dev_pairs: int = 1_000,
    limits: TextLimits = LIMITS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda num_done, total: None,
) -> PairCounts:
    """Write train.jsonl with the pairs of the training documents, and dev.jsonl with pairs of the held-out documents.

    Pair n depends only on the corpus, the rule, the limits, the seed and n. Half of the dev pairs belong together and
    have the label 1. The other half, with the label 0, join the first text of a pair to the second text of the next
    pair. Without held-out documents, there is no dev.jsonl.

    Args:
        corpus_directory: corpus that `prepare` made.
        output: directory to create.
        rule: a row of PAIR_RULES; its `dev_rule` makes the dev pairs.
        num_pairs: number of training pairs; None: one pair from each record.
        num_dev_pairs: number of dev pairs that belong together, at most one of each held-out record.
        limits: maximum numbers of tokens.
        seed: seed of the order of the pairs and of the draw of their texts.
        progress: called with the number of finished pairs and the number of all pairs.

    Raises:
        UserError: the rule is unknown, a limit is too small, or no record has enough sentences for the rule.
    """
    if rule not in PAIR_RULES:
        raise UserError(f"--rule {rule}: choose from {', '.join(PAIR_RULES)}{did_you_mean(rule, PAIR_RULES)}")
    if min(limits) < 4 or (num_pairs is not None and num_pairs < 1) or num_dev_pairs < 0:
        raise UserError("give at least 4 tokens for each text, and at least 1 pair")
    corpus = store.open_corpus(corpus_directory)
    tokenizer = load_tokenizer(corpus.tokenizer_directory)
    dev_rule = PAIR_RULES[rule].dev_rule or rule
    train, dev = (
        TextPairs(corpus.split(name), tokenizer.continues, rule_of_split, limits, seed)
        for name, rule_of_split in (("train", rule), ("heldout", dev_rule))
    )
    if not train.num_per_epoch:
        raise UserError(
            f"{corpus_directory}: no document has {PAIR_RULES[rule].min_sentences} sentences, which --rule {rule} "
            "needs; choose another rule"
        )
    total, num_dev = num_pairs or train.num_per_epoch, min(num_dev_pairs, dev.num_per_epoch)

    def decoded_pairs(pairs: TextPairs, first: int, end: int) -> list[tuple[str, str]]:
        return [
            (tokenizer.decode(pair.query.tolist()), tokenizer.decode(pair.document.tolist()))
            for pair in pairs.pairs(np.arange(first, end))
        ]

    with output_directory(local_path(output)) as directory:
        with (directory / TRAIN).open("w", encoding="utf-8") as file:
            for first in range(0, total, CHUNK):
                progress(first, total)
                for pair_id, (text, text_pair) in enumerate(
                    decoded_pairs(train, first, min(first + CHUNK, total)), first
                ):
                    file.write(_json_line({"id": str(pair_id), "text": text, "text_pair": text_pair}))
        if num_dev > 1:
            positives = decoded_pairs(dev, 0, num_dev)
            with (directory / DEV).open("w", encoding="utf-8") as file:
                for pair_id, (text, text_pair) in enumerate(positives):
                    others_text = positives[(pair_id + 1) % num_dev][1]
                    for label, second in ((RIGHT, text_pair), (WRONG, others_text)):
                        fields = {"id": f"{pair_id}-{label}", "text": text, "text_pair": second, "label": label}
                        file.write(_json_line(fields))
    return PairCounts(total, num_dev if num_dev > 1 else 0, train.num_without)


def _json_line(fields: dict[str, object]) -> str:
    """Return a JSON line."""
    return json.dumps(fields, ensure_ascii=False) + "\n"
