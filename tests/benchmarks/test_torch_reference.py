"""The comparison with torch that benchmarks/torch_reference.py makes at length, in a few steps."""

import numpy as np
import pytest

from benchmarks import torch_reference
from bert_jax.corpus.mixture import open_mixture
from tests.helpers.generated_corpus import generated_corpus

RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=32, num_layers=2, num_heads=4, mlp_size=64, max_positions=32)
    config.train.update(batch_size=8, phases=phases({"seq_len": 16, "fraction": 0.5}, {"seq_len": 32, "fraction": 0.5}))
    config.optimizer.update(peak_learning_rate=3e-3, warmup_fraction=0.1, schedule="linear", weight_decay=0.1)
    config.evaluate.num_sequences = 32
    return config
"""


@pytest.mark.slow
def test_both_sides_end_at_the_same_loss(tmp_path) -> None:
    corpus = open_mixture(str(place := generated_corpus(tmp_path)))
    (tmp_path / "recipe.py").write_text(RECIPE)
    recipe = str(tmp_path / "recipe.py")
    config = torch_reference.reference_config(recipe, corpus, str(place), 30, ["--config.seed=3"])
    assert (config.seed, config.train.steps, config.data.sentence_pairs) == (3, 30, "full_sentences")
    found = torch_reference.compare(config, corpus, tmp_path / "reference")
    ours, theirs = found["ours"], found["theirs"]
    assert np.mean(ours["training"][:5]) - np.mean(ours["training"][-5:]) > 0.3, "the loss hardly moves"
    np.testing.assert_allclose(ours["training"], theirs["training"], rtol=0, atol=2e-4)
    assert ours["loss"] == pytest.approx(theirs["loss"], abs=2e-4)
    assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.01)
    text = torch_reference.report(found)
    assert "30 steps of the same batches" in text
    assert "met" in text
