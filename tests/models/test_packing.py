"""Packed rows: the outputs of an example equal the outputs of a row with this example alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models import Head, make_model
from bert_jax.models.positions import positions_within_segments
from tests.helpers.synthetic import VOCAB, packed_batch, unpacked

LENGTH, ROWS, EXAMPLES = 40, 6, 5
BERT = EncoderConfig(
    vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=4, mlp_size=48, max_positions=48, initializer_range=0.2
)
FAMILIES = {
    "bert": BERT,
    "roberta": dataclasses.replace(BERT, position_offset=2, num_token_types=1, pooler_dropout=True),
    "albert": dataclasses.replace(BERT, share_layers=True, embedding_size=16),
    "distilbert": dataclasses.replace(BERT, num_token_types=0),
}
HEADS = tuple(Head(name) for name in ("hidden_states", "masked_token", "next_sentence", "pooled"))


def made(config: EncoderConfig, compute: ComputeConfig, heads: tuple[Head, ...] = HEADS):
    model = make_model(config, compute, heads)
    return model, jax.jit(model.init)(jax.random.key(0))


@pytest.mark.parametrize(
    ("family", "compute"),
    [
        *(
            pytest.param(family, ComputeConfig(), marks=() if family in ("bert", "roberta") else pytest.mark.slow)
            for family in FAMILIES
        ),
        ("bert", ComputeConfig(attention="xla")),
        ("bert", ComputeConfig(scan_layers=False)),
        pytest.param("bert", ComputeConfig(remat=True), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_packed_examples_equal_separate_examples(family, compute):
    config, batch = FAMILIES[family], packed_batch(0, ROWS, LENGTH, EXAMPLES)
    batch["token_type_ids"] %= max(config.num_token_types, 1)
    alone = unpacked(batch)
    model, params = made(config, compute)
    packed, single = (jax.jit(model.apply)(params, rows, None) for rows in (batch, alone))

    there = batch["example_weights"].astype(bool).ravel()
    assert 1 < there.sum() < there.size, "some examples are there and some are not"
    assert packed["nsp_logits"].shape == (ROWS * EXAMPLES, 2)
    for name in ("nsp_logits", "pooled"):
        assert single[name].std() > 0.05
        np.testing.assert_allclose(packed[name][there], single[name], rtol=0, atol=2e-5)
    # Tokens, and masked ones, come in the same order either way.
    real, real_alone = (rows["attention_mask"].astype(bool) for rows in (batch, alone))
    np.testing.assert_allclose(
        packed["hidden_states"][:, real], single["hidden_states"][:, real_alone], rtol=0, atol=2e-5
    )
    masked, masked_alone = (rows["masked_weights"].astype(bool) for rows in (batch, alone))
    np.testing.assert_allclose(packed["mlm_logits"][masked], single["mlm_logits"][masked_alone], rtol=0, atol=1e-4)


def test_positions_restart_at_each_example():
    segments = jnp.array([[1, 1, 1, 2, 2, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 0]])
    expected = [[0, 1, 2, 0, 1, 0, 0, 1], [*range(8)], [*range(8)]]
    assert positions_within_segments(segments).tolist() == expected


@pytest.mark.parametrize("offset", [0, 2])
def test_positions_count_within_the_example(offset):
    """With all tokens and types at zero, what enters the first block is the normalized row of the position table."""
    config = dataclasses.replace(BERT, position_offset=offset)
    model, params = made(config, ComputeConfig())
    embeddings = params["encoder"]["embeddings"]
    table = np.asarray(embeddings["position"])
    embeddings |= {name: jnp.zeros_like(embeddings[name]) for name in ("token", "token_type")}
    batch = packed_batch(0, 1, LENGTH, EXAMPLES) | {"segment_ids": np.array([[1] * 7 + [2] * 4 + [3] * 20 + [0] * 9])}
    batch["attention_mask"] = np.sign(batch["segment_ids"])
    found = jax.jit(model.apply)(params, batch, None)["hidden_states"][0, 0, :31]
    rows = table[offset + np.array([*range(7), *range(4), *range(20)])]
    normalized = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    np.testing.assert_allclose(found, normalized, rtol=0, atol=1e-5)


def test_no_token_of_another_example_and_no_padding_changes_a_bit():
    batch = packed_batch(0, ROWS, LENGTH, EXAMPLES)
    model, params = made(BERT, ComputeConfig())
    apply = jax.jit(model.apply)
    before = apply(params, batch, None)["hidden_states"]
    second = batch["segment_ids"] == 2
    assert second.any()
    for changed in (second, batch["segment_ids"] == 0):
        ids = np.where(changed, (batch["input_ids"] + 1) % VOCAB, batch["input_ids"])
        after = apply(params, dict(batch, input_ids=ids), None)["hidden_states"]
        others = ~changed & (batch["attention_mask"] == 1)
        np.testing.assert_array_equal(before[:, others], after[:, others])
        assert not np.array_equal(before[:, changed], after[:, changed])


def test_a_sequence_of_padding_alone_is_finite_and_so_is_its_gradient():
    batch = {name: np.zeros_like(x) for name, x in packed_batch(0, 2, LENGTH, EXAMPLES).items()}
    model, params = made(BERT, ComputeConfig())

    def total(params):
        out = model.apply(params, batch, jax.random.key(1))
        return sum(jnp.sum(out[name] ** 2) for name in ("hidden_states", "nsp_logits"))

    value, gradients = jax.jit(jax.value_and_grad(total))(params)
    assert np.isfinite(value)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))


def test_one_example_per_sequence_equals_no_packing():
    """One segment is no other program in its results: with dropout, whose masks go by row and column, too."""
    batch = packed_batch(0, ROWS, LENGTH, 1)
    plain = {name: x for name, x in batch.items() if name not in ("segment_ids", "cls_positions")}
    model, params = made(BERT, ComputeConfig())
    packed, alone = (jax.jit(model.apply)(params, rows, jax.random.key(2)) for rows in (batch, plain))
    real = batch["attention_mask"].astype(bool)
    np.testing.assert_allclose(packed["nsp_logits"], alone["nsp_logits"], rtol=0, atol=2e-5)
    np.testing.assert_allclose(packed["hidden_states"][:, real], alone["hidden_states"][:, real], rtol=0, atol=2e-5)
