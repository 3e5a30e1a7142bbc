"""Hash dropout: rate, independence between elements, rows, calls and seeds, and that it is its own gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.interop.huggingface.peft import find_adapter_targets
from bert_jax.models import Head, adapters, encoder, heads, make_model
from bert_jax.models.dropout import dropout, dropout_seeds, random_uint32

SHAPE = (16, 4, 96, 96)  # as attention probabilities: 589,824 elements


def words(seed: int, shape=SHAPE) -> np.ndarray:
    return np.asarray(random_uint32(dropout_seeds(jax.random.key(seed), ()), shape))


def kept(seed: int, rate: float, shape=SHAPE) -> np.ndarray:
    return np.asarray(dropout(jnp.ones(shape), rate, dropout_seeds(jax.random.key(seed), ()))) != 0


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9, 1e-3])
@pytest.mark.parametrize("shape", [SHAPE, (500_000,), (1, 500_000), (500_000, 1)])
def test_rate(rate, shape):
    mask = kept(1, rate, shape)
    assert scipy.stats.binomtest(int((~mask).sum()), mask.size, rate).pvalue > 1e-4


def test_every_bit_and_byte_is_uniform():
    w = words(2)
    ones = [int(((w >> bit) & 1).sum()) for bit in range(32)]
    assert min(scipy.stats.binomtest(n, w.size).pvalue for n in ones) > 1e-4
    for byte in range(4):
        counts = np.bincount(((w >> (8 * byte)) & 255).ravel(), minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_rate_holds_along_every_axis():
    mask = kept(3, 0.1)
    for axis in range(mask.ndim):
        slices = mask.mean(tuple(i for i in range(mask.ndim) if i != axis))
        deviations = (slices - 0.9) / np.sqrt(0.09 * mask.shape[axis] / mask.size)
        assert scipy.stats.chi2.sf((deviations**2).sum(), len(deviations)) > 1e-4, axis


@pytest.mark.parametrize(
    "lag", [(0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 64), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0), (2, 0, 0, 0)]
)
def test_neighbors_are_independent(lag):
    mask = kept(4, 0.3)
    a = mask[tuple(slice(None, n - d) for n, d in zip(mask.shape, lag, strict=True))]
    b = mask[tuple(slice(d, None) for d in lag)]
    assert independent(a, b)


def test_neighboring_pairs_are_independent():
    mask = kept(5, 0.5).reshape(-1, 8)
    patterns = np.packbits(mask, axis=1).ravel()  # of 8 neighbours: all 256 equally likely
    assert scipy.stats.chisquare(np.bincount(patterns, minlength=256)).pvalue > 1e-4


def test_layers_and_steps_are_independent():
    seeds = np.concatenate([dropout_seeds(jax.random.fold_in(jax.random.key(6), step), (4,)) for step in range(4)])
    masks = [np.asarray(dropout(jnp.ones((32, 64, 64)), 0.3, seed)) != 0 for seed in seeds]
    pairs = [(a, b) for i, a in enumerate(masks) for b in masks[i + 1 :]]
    statistics = [abs(correlation(a, b)) * np.sqrt(a.size) for a, b in pairs]
    assert max(statistics) < scipy.stats.norm.isf(1e-4 / 2 / len(pairs))


def test_rows_with_close_keys_share_no_permuted_mask():
    """Seeds that differ in one bit: masks still independent, element by element and as counts within blocks."""
    seed = np.array([12345, 67890], np.uint32)
    base = np.asarray(random_uint32(seed, (8, 4096)))
    for word in range(2):
        for bit in range(32):
            flipped = seed.copy()
            flipped[word] ^= np.uint32(1 << bit)
            other = np.asarray(random_uint32(flipped, (8, 4096)))
            assert abs(correlation(base > 2**31, other > 2**31)) * np.sqrt(base.size) < 5.5
            assert np.intersect1d(base[0], other[0]).size < 4096 // 8, (word, bit)


def test_it_is_linear_and_its_own_transpose():
    x = jax.random.normal(jax.random.key(0), (8, 33))
    seed = dropout_seeds(jax.random.key(1), ())
    y, pullback = jax.vjp(lambda x: dropout(x, 0.25, seed), x)
    mask = np.asarray(y) != 0
    np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    np.testing.assert_allclose(pullback(jnp.ones_like(x))[0], mask / 0.75, rtol=1e-6)
    np.testing.assert_array_equal(y, jax.jit(lambda x: dropout(x, 0.25, seed))(x))


def test_the_backward_pass_keeps_the_seed_alone():
    seed = dropout_seeds(jax.random.key(1), ())
    _, pullback = jax.vjp(lambda x: dropout(x, 0.25, seed), jnp.ones((64, 64)))
    assert sum(x.size for x in jax.tree.leaves(pullback)) <= 8


def test_no_rate_or_no_seed_is_the_identity():
    x = jnp.arange(6.0)
    assert dropout(x, 0.0, dropout_seeds(jax.random.key(1), ())) is x
    assert dropout(x, 0.1, None) is x


def test_dtype_is_kept():
    assert dropout(jnp.ones((4, 4), jnp.bfloat16), 0.1, dropout_seeds(jax.random.key(1), ())).dtype == jnp.bfloat16


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def independent(a: np.ndarray, b: np.ndarray) -> bool:
    table = [[int((x & y).sum()) for y in (b, ~b)] for x in (a, ~a)]
    return scipy.stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("share_layers", [False, True])
def test_all_parts_of_a_model_with_an_adapter_have_seeds_of_their_own(monkeypatch, share_layers):
    """With equal seeds, the masks of two parts would be equal; the parts draw their seeds from one key."""
    drawn = []

    def recorded(rng, shape):
        seeds = dropout_seeds(rng, shape)
        drawn.append(np.asarray(seeds).reshape(-1, seeds.shape[-1]))
        return seeds

    for module in (encoder, heads, adapters):
        monkeypatch.setattr(module, "dropout_seeds", recorded)
    sizes = {"hidden_size": 16, "num_heads": 2, "max_positions": 16, "vocab_size": 30}
    config = EncoderConfig(**sizes, num_layers=3, share_layers=share_layers)
    targets = find_adapter_targets(config, ("all-linear",))
    model = make_model(config, ComputeConfig(), (Head("sequence_classification", 2),))
    model = adapters.with_adapter(model, adapters.Adapter(targets, rank=2, alpha=4.0, dropout=0.1))
    ids = jnp.arange(8)[None]
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}
    model.apply(model.init(jax.random.key(0)), batch, jax.random.key(1))
    seeds = np.concatenate(drawn)
    assert len(drawn) == 3
    assert len(np.unique(seeds, axis=0)) == len(seeds)
