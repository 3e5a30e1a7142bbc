"""Attention weights against those of `transformers`: global and local layers, padding."""

import functools

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.inference.load import read_weights
from bert_jax.models.encoder import attention_weights
from tests.tiny_models import CLASSES, save


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_weights_equal_those_of_transformers(family: str, tmp_path) -> None:
    save(tmp_path / family, family)
    kind = getattr(transformers, f"{CLASSES[family]}Model")
    theirs = kind.from_pretrained(tmp_path / family, attn_implementation="eager").eval()
    found = read_weights(tmp_path / family)
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(5, 15, (2, 12)), np.ones((2, 12), np.int64)
    mask[1, 8:] = 0
    with torch.no_grad():
        words = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
        expected = theirs(**words, output_attentions=True).attentions
    batch = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}
    weights = jax.jit(functools.partial(attention_weights, found.config))
    ours = weights(found.params["encoder"], {name: x.astype(np.int32) for name, x in batch.items()})
    assert len(ours) == len(expected) == 4
    real = mask.astype(bool)
    for layer, other in zip(ours, expected, strict=True):
        for row in range(2):  # what padding reads is nobody's business
            np.testing.assert_allclose(
                np.asarray(layer)[row][:, real[row]], other.numpy()[row][:, real[row]], atol=1e-5, rtol=0
            )
    np.testing.assert_allclose(np.sum(np.asarray(ours), -1), 1, atol=1e-5)
