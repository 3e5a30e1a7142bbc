"""Disentangled attention: rows of distances against transformers, scores against a loop, gradients against torch."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.models import Head, make_model, model_flops
from bert_jax.models.attention import AttentionInputs, xla
from bert_jax.models.attention.inputs import RelativeKeysAndQueries
from bert_jax.models.positions import distance_embedding_rows as bucket
from tests.helpers.family_cases import CASES, batch_of, model_of


def config_of(buckets: int, most: int) -> EncoderConfig:
    return EncoderConfig(positions="disentangled", relative_buckets=2 * buckets, relative_max_distance=most)


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (8, 19), (10, 14), (4, 5), (6, 300)])
def test_distance_buckets_equal_the_buckets_of_deberta(buckets: int, most: int) -> None:
    """Within the positions that the model has; (256, 512) are those of all published models of version 3."""
    away = np.arange(1 - most, most)
    expected = make_log_bucket_position(torch.tensor(away), buckets, most).long() + buckets
    np.testing.assert_array_equal(bucket(jnp.asarray(away), config_of(buckets, most)), expected)


def test_farther_distances_share_the_last_row() -> None:
    found = np.asarray(bucket(jnp.asarray([-9000, -19, 19, 9000]), config_of(8, 19)))
    np.testing.assert_array_equal(found, [0, 0, 15, 15])


@pytest.mark.parametrize(("buckets", "most"), [(2, 19), (8, 5)])
def test_too_few_rows_are_refused(buckets: int, most: int) -> None:
    with pytest.raises(UserError, match=f"relative_buckets={2 * buckets}, model.relative_max_distance={most}"):
        bucket(jnp.arange(3), config_of(buckets, most))


def test_scores_have_three_terms() -> None:
    batch, length, heads, features = 2, 7, 2, 4
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, batch, length, heads * features))
    there = RelativeKeysAndQueries(*rng.normal(size=(2, 2 * length, heads * features)))
    mask = np.ones((batch, length), np.int32)
    mask[1, 5:] = 0
    inputs = AttentionInputs(
        **{name: jnp.asarray(x) for name, x in zip("qkv", (q, k, v), strict=True)},
        mask=jnp.asarray(mask),
        segments=None,
        dropout_keys=jnp.zeros((batch, heads, 2), jnp.uint32),
        distances=RelativeKeysAndQueries(*map(jnp.asarray, there)),
    )
    found = xla.xla_forward(inputs, 0.0)
    q, k, v, keys, queries, found = (
        x.reshape(*x.shape[:-1], heads, features) for x in (q, k, v, there.keys, there.queries, np.asarray(found))
    )
    for row, i, head in itertools.product(range(batch), range(length), range(heads)):
        read = [j for j in range(length) if mask[row, j]]
        scores = np.array(
            [
                q[row, i, head] @ k[row, j, head]
                + q[row, i, head] @ keys[j - i + length, head]
                + queries[i - j + length, head] @ k[row, j, head]
                for j in read
            ]
        ) / np.sqrt(3 * features)
        weights = np.exp(scores - scores.max())
        expected = weights / weights.sum() @ v[row, read, head]
        np.testing.assert_allclose(found[row, i, head], expected, rtol=0, atol=1e-5)


def test_gradients_equal_the_gradients_of_torch(tmp_path) -> None:
    """Of the table of distances and its norm, and of the maps that tokens and distances share."""
    case = CASES["deberta-v2"]
    batch = batch_of(case, rows=1)
    theirs = model_of(case, "DebertaV2ForMaskedLM")
    theirs.save_pretrained(tmp_path)
    inputs = {name: torch.tensor(batch[name]).long()[0] for name in ("input_ids", "attention_mask")}
    weights = (
        np.random.default_rng(1).normal(size=(2, case.length, case.ours.vocab_size))
        * batch["attention_mask"][0][..., None]
    )
    (theirs(**inputs).logits * torch.tensor(weights)).sum().backward()
    loaded = load_model(tmp_path)
    model = make_model(loaded.config, ComputeConfig(), loaded.heads)

    def total(params):
        return (model.apply(params, batch, None)["mlm_logits"][..., : case.ours.vocab_size] * weights).sum()

    found = jax.jit(jax.grad(total))(loaded.params)["encoder"]
    encoder = theirs.deberta.encoder
    pairs = [
        (found["distances"]["table"], encoder.rel_embeddings.weight),
        (found["distances"]["norm"]["scale"], encoder.LayerNorm.weight),
        *(
            (
                found["layers"]["attention"][name]["kernel"][i].T,
                getattr(encoder.layer[i].attention.self, f"{name}_proj").weight,
            )
            for name in ("query", "key", "value")
            for i in range(2)
        ),
    ]
    for ours, reference in pairs:
        expected = reference.grad.numpy()
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_reading_distances_counts_as_much_as_reading_tokens() -> None:
    config = dataclasses.replace(config_of(256, 512), vocab_size=9)
    plain = dataclasses.replace(config, positions="relative")
    more = model_flops(config, 128, 0) - model_flops(plain, 128, 0)
    assert more == 12 * 12 * 768 * 128 * 128  # layers, and what 128 queries cost that read 128 keys


def test_packing_changes_nothing() -> None:
    """Packed or alone, a sequence has the same hidden states."""
    config = dataclasses.replace(CASES["deberta-v2"].ours, dropout=0.0)
    model = make_model(config, ComputeConfig(), (Head("hidden_states"),))
    params = jax.jit(model.init)(jax.random.key(0))
    ids = np.random.default_rng(2).integers(5, config.vocab_size, (1, 12)).astype(np.int32)

    def states(ids, **more):
        batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": np.ones_like(ids), **more}
        return model.apply(params, batch, None)["hidden_states"][-1][0]

    segments = np.array([[1] * 7 + [2] * 5], np.int32)
    packed = states(ids, segment_ids=segments, cls_positions=np.array([[0, 7]], np.int32))
    np.testing.assert_allclose(packed[:7], states(ids[:, :7]), rtol=0, atol=1e-5)
    np.testing.assert_allclose(packed[7:], states(ids[:, 7:]), rtol=0, atol=1e-5)
