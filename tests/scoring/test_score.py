"""Pseudo-log-likelihoods against minicons's and against one forward pass of `transformers` per token."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from bert_jax.checkpoints.load_model import open_model
from bert_jax.errors import UserError
from bert_jax.scoring.log_probabilities import padded_lengths, plan_query_batches
from bert_jax.scoring.queries import MASKINGS
from bert_jax.scoring.score import make_scoring_model, token_log_probabilities
from tests.helpers import tiny_models
from tests.scoring.scored_models import METRICS, SAMPLES, SENTENCES, VOCABULARIES, save

ROOT = pathlib.Path(__file__).resolve().parents[2]


def token_by_token(model, tokenizer, text, masking, temperature=1.0):
    """The log-probability of each token, each with a forward pass of its own."""
    encoded = tokenizer(text)
    ids, words = encoded["input_ids"], encoded.word_ids()
    found = []
    for place, word in enumerate(words):
        if word is None:
            continue
        masked = list(ids)
        for later in range(place, len(ids)):
            if later == place or (masking == "within_word_l2r" and words[later] == word):
                masked[later] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(torch.tensor([masked])).logits[0, place].double() / temperature
        found.append(torch.log_softmax(logits, -1)[ids[place]].item())
    return found


@pytest.mark.parametrize("name", VOCABULARIES)
def test_sentences_score_as_with_minicons(tmp_path, name):
    wanted = json.loads((SAMPLES / "minicons" / "scores.json").read_text())
    assert wanted["sentences"] == list(SENTENCES)
    save(tmp_path, name)
    model = open_model(tmp_path)
    for masking in METRICS:
        found = [one.sum() for one in token_log_probabilities(make_scoring_model(model, masking), SENTENCES)]
        np.testing.assert_allclose(found, wanted[name][masking], rtol=0, atol=1e-4)
    assert not np.allclose(wanted[name]["original"], wanted[name]["within_word_l2r"], rtol=0, atol=1e-2)


@pytest.mark.parametrize("family", tiny_models.CLASSES)
def test_each_token_scores_as_in_a_pass_of_its_own(tmp_path, family):
    model, tokenizer = tiny_models.save(tmp_path, family)
    texts = ["abc de. fg hij", "a b", "jab cabbage deaf.", "a b", "abcdefghijabcdefg"]
    for masking in MASKINGS:
        found = token_log_probabilities(make_scoring_model(open_model(tmp_path), masking, temperature=2.5), texts)
        for text, ours in zip(texts, found, strict=True):
            np.testing.assert_allclose(ours, token_by_token(model, tokenizer, text, masking, 2.5), rtol=0, atol=2e-5)


def test_bad_texts_settings_and_models_are_refused(tmp_path):
    tiny_models.save(tmp_path / "bert", "bert")
    model = open_model(tmp_path / "bert")
    with pytest.raises(UserError, match="text 1: a sentence of 40 tokens; this model reads 30"):
        token_log_probabilities(make_scoring_model(model), ["a", "a" * 40])
    with pytest.raises(UserError, match="masking all: choose from within_word_l2r, original"):
        make_scoring_model(model, "all")
    for temperature in (0, -1, 1e-40, 1e40, float("inf"), float("nan")):
        with pytest.raises(UserError, match=re.escape(f"temperature {temperature}: give a number from 0.001")):
            make_scoring_model(model, temperature=temperature)
    tiny_models.save(tmp_path / "classifier", "bert", "ForSequenceClassification")
    with pytest.raises(UserError, match="sequence_classification, which cannot score"):
        make_scoring_model(open_model(tmp_path / "classifier"))


def test_texts_of_big_bird_are_scored_by_the_attention_of_their_own_length(tmp_path):
    """Up to 14 tokens, the attention of transformers is dense; longer and shorter texts are scored in one call."""
    model, tokenizer = tiny_models.save_big_bird(tmp_path)
    texts = [" ".join("abcdefghij"[(n * 7 + size) % 10] for n in range(size)) for size in (16, 3, 12, 13, 11, 20)]
    found = token_log_probabilities(make_scoring_model(open_model(tmp_path), "original"), texts)
    for text, ours in zip(texts, found, strict=True):
        np.testing.assert_allclose(ours, token_by_token(model, tokenizer, text, "original", 1.0), rtol=0, atol=2e-5)


@pytest.mark.parametrize("shards", [1, 8])
def test_every_query_is_in_one_batch_of_few_shapes(shards):
    lengths = np.random.default_rng(0).integers(3, 129, 20_000)
    planned = list(plan_query_batches(lengths, 128, shards))
    assert sorted(np.concatenate([one.indices for one in planned])) == list(range(len(lengths)))
    assert all(lengths[one.indices].max() <= one.length <= 128 for one in planned)
    assert all(len(one.indices) <= one.batch_size and one.batch_size % shards == 0 for one in planned)
    assert len({(one.length, one.batch_size) for one in planned}) <= len(padded_lengths(128)) + 1
    assert sum(one.length * one.batch_size for one in planned) < 1.2 * lengths.sum()
    assert [list(one.indices) for one in plan_query_batches(np.array([5]), 512, shards)] == [[0]]


@pytest.mark.slow
def test_eight_devices_score_as_one():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "tests/helpers/mesh_scores.py"],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, *eight = (np.concatenate(scores) for scores in json.loads(done.stdout).values())
    assert len(eight) == 3
    for scores in eight:
        np.testing.assert_allclose(scores, one, rtol=0, atol=1e-5)
