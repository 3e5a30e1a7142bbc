"""Attention weights against `transformers`: global and local layers, relative positions, padding."""

import functools

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.checkpoints.load_model import read_weights
from bert_jax.models.encoder import attention_weights
from tests.helpers.family_cases import CASES, batch_of, model_of

CLASSES = {
    "bert": "Bert",
    "modernbert": "ModernBert",
    "mpnet": "MPNet",
    "deberta-v2": "DebertaV2",
    "nomic_bert": "NomicBert",
}


@pytest.mark.parametrize("family", CLASSES)
def test_attention_weights_equal_the_weights_of_transformers(family: str, tmp_path) -> None:
    case = CASES[family]
    model_of(case, f"{CLASSES[family]}Model").save_pretrained(tmp_path / family)
    eager = getattr(transformers, f"{CLASSES[family]}Model").from_pretrained
    theirs = eager(tmp_path / family, attn_implementation="eager").eval()
    found = read_weights(tmp_path / family)
    batch = {name: x.reshape(-1, x.shape[-1]) for name, x in batch_of(case).items()}
    batch["token_type_ids"][:] = 0
    mask = batch["attention_mask"]
    with torch.no_grad():
        words = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "attention_mask")}
        expected = theirs(**words, output_attentions=True).attentions
    weights = jax.jit(functools.partial(attention_weights, found.config))
    ours = weights(found.params["encoder"], batch)
    assert len(ours) == len(expected) == case.ours.num_layers
    for layer, other in zip(ours, expected, strict=True):
        for row, real in enumerate(mask.astype(bool)):  # what padding reads does not matter
            np.testing.assert_allclose(np.asarray(layer)[row][:, real], other.numpy()[row][:, real], atol=1e-5, rtol=0)
    np.testing.assert_allclose(np.sum(np.asarray(ours), -1), 1, atol=1e-5)
