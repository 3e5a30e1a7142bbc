"""A new rule of masking and a new rule of sentence pairs are a row of their table each: all verbs then know them."""

import functools
import json
import random

import numpy as np
import pytest

from bert_jax.batches.layout import Layout, Slots
from bert_jax.batches.masking import MASKINGS, Masking
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS, Examples, Sampler, SentencePairRule
from bert_jax.batches.windows import slot_windows
from bert_jax.config import PretrainConfig, check_choices, read_config
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.reports.corpus.inspect import inspect_corpus, open_inspection
from tests.helpers.written_corpus import text, write_corpus

QUIET = Console(silent=True)
OVERRIDES = ["--config.data.masking=two_words", "--config.data.sentence_pairs=halves"]


def halves(layout: Layout, short_seq_probability: float) -> Sampler:
    """The two halves of a slot, always in their order."""
    return Sampler(layout, functools.partial(sample_halves, layout))


def sample_halves(layout: Layout, seed: int, slots: Slots) -> Examples:
    windows = slot_windows(layout, seed, slots)
    middle = (windows.begin + windows.end + 1) // 2
    starts = np.stack([windows.begin, middle], axis=1)
    lengths = np.stack([middle - windows.begin, windows.end - middle], axis=1)
    return Examples(windows.tokens, starts, lengths, np.zeros(len(middle), np.int64))


def always_two(max_words: int, config) -> np.ndarray:
    return np.array([0.0, 1.0])


@pytest.fixture
def new_rules(monkeypatch):
    monkeypatch.setitem(MASKINGS, "two_words", Masking(whole_words=True, max_words=2, weights=always_two))
    rule = SentencePairRule(
        num_texts=2,
        min_documents=1,
        concatenates=False,
        slides=False,
        make_sampler=halves,
        label_meanings=("B follows A", "never"),
    )
    monkeypatch.setitem(SENTENCE_PAIRS, "halves", rule)


def test_a_config_names_new_rules(new_rules):
    config = read_config(PretrainConfig, None, OVERRIDES)
    check_choices(config.data, "config.data")
    with pytest.raises(UserError, match=r"config.data.masking='three_words': choose from .*two_words"):
        check_choices(read_config(PretrainConfig, None, ["--config.data.masking=three_words"]).data, "config.data")


def test_sequences_of_new_rules(new_rules, tmp_path, capsys):
    rng = random.Random(0)
    corpus = write_corpus(tmp_path, [text(rng, 20) for _ in range(20)])
    inspect_corpus(open_inspection(str(corpus), None, OVERRIDES, None, QUIET), as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["sequences"]["labelled"] == 0
    for example in report["examples"]:
        first, second = (len(words.replace("[SEP]", "").replace("[CLS]", "").split()) for words in example["texts"])
        assert abs(first - second) <= 0.3 * first
    few = [*OVERRIDES, "--config.data.mask_probability=0.02"]
    inspect_corpus(open_inspection(str(corpus), None, few, 3, QUIET), as_json=False)
    shown = capsys.readouterr().out
    assert "label 0: B follows A" in shown
    assert "2 to predict" in shown  # 2 % of up to 128 tokens: the two words of one candidate
