"""The kernel of GPUs for sum and norm, interpreted, against the plain functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models import fused_norm
from bert_jax.models.dropout import dropout, row_keys
from bert_jax.models.norms import layer_norm

EPSILON, SEED = 1e-6, jnp.array([3, 9], jnp.uint32)


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(2, 24, 192), (3, 5, 64)], ids=["three chunks", "odd length"])
def test_one_kernel_equals_sum_and_norm(shape: tuple[int, ...], rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sum_norm_forward", "sum_norm_backward"):
        monkeypatch.setattr(fused_norm, name, functools.partial(getattr(fused_norm, name), interpret=True))
    rng = np.random.default_rng(0)
    x, product, gradient = (jnp.asarray(rng.normal(size=shape), jnp.float32) for _ in range(3))
    bias, scale, shift = (jnp.asarray(rng.normal(size=shape[-1]), jnp.float32) for _ in range(3))
    keys = jnp.stack(row_keys(SEED, shape[0]), axis=-1)

    def plain(x, product, bias, scale, shift):
        unit = layer_norm(x + dropout(product + bias, rate, SEED), EPSILON, jnp.dtype(jnp.float32))
        return unit * scale + shift

    def fused(x, product, bias, scale, shift):
        return fused_norm.sum_norm(x, product, bias, keys, scale, shift, rate, EPSILON)

    arrays = (x, product, bias, scale, shift)
    expected, pull = jax.vjp(plain, *arrays)
    np.testing.assert_allclose(fused(*arrays), expected, rtol=0, atol=1e-5)
    found, back = jax.vjp(fused, *arrays)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    for one, other in zip(back(gradient), pull(gradient), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * float(jnp.abs(other).max()))


def test_widths_that_fit() -> None:
    assert [fused_norm.fits_sum_norm(width) for width in (128, 256, 384, 512, 768, 1024)] == [True] * 6
    assert [fused_norm.fits_sum_norm(width) for width in (16, 312, 1000, 16_384)] == [False] * 4
