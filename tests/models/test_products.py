"""Matrix products on a CPU, whose factors are rounded to bfloat16 and whose result is float32."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from bert_jax.config import ComputeConfig
from bert_jax.models import Head, make_model
from bert_jax.models.layers import product
from tests.models.test_pretraining_model import SMALL

ROWS, INPUTS, OUTPUTS = 24, 16, 40


def rounded(x: np.ndarray) -> np.ndarray:
    """Return the float64 values of `x` rounded to bfloat16."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sizes", [(INPUTS, OUTPUTS), (OUTPUTS, INPUTS)], ids=["wide", "tall"])
@pytest.mark.parametrize("rows", [24, 25, 1])
def test_product_and_gradients_equal_the_products_of_rounded_factors(
    dtype: str, rows: int, sizes: tuple[int, int]
) -> None:
    random = np.random.default_rng(0)
    x, kernel = (random.normal(size=size).astype(np.float32) for size in ((rows, sizes[0]), sizes))
    gradient = random.normal(size=(rows, sizes[1])).astype(np.float32)
    y, pullback = jax.vjp(lambda x, kernel: product(x, kernel, jnp.dtype(dtype)), x, kernel)
    d_x, d_kernel = pullback(jnp.asarray(gradient))
    factor = rounded if dtype == "bfloat16" else np.float64
    assert y.dtype == d_x.dtype == d_kernel.dtype == jnp.float32
    np.testing.assert_allclose(y, factor(x) @ factor(kernel), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d_x, factor(gradient) @ factor(kernel).T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d_kernel, factor(x).T @ factor(gradient), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [(INPUTS, OUTPUTS), (OUTPUTS, INPUTS)], ids=["wide", "tall"])
@pytest.mark.parametrize("use", ["transposed", "stacked", "multiplied"])
def test_xla_compiles_every_use_of_the_gradient(use: str, sizes: tuple[int, int]) -> None:
    """XLA fails where it moves a transposition into a sum over two axes with factors in bfloat16."""
    random = np.random.default_rng(0)
    x, kernel = (random.normal(size=size).astype(np.float32) for size in ((ROWS, sizes[0]), sizes))
    gradient = random.normal(size=(ROWS, sizes[1])).astype(np.float32)
    functions = {
        "transposed": lambda d: d.T,
        "stacked": lambda d: jnp.stack([d, 2 * d]),
        "multiplied": lambda d: d @ jnp.asarray(kernel).T,
    }

    @jax.jit
    def used(x: jax.Array, gradient: jax.Array) -> jax.Array:
        _, pullback = jax.vjp(lambda kernel: product(x, kernel, jnp.dtype("bfloat16")), jnp.asarray(kernel))
        return functions[use](pullback(gradient)[0])

    d_kernel = jnp.asarray(rounded(x).T @ rounded(gradient), jnp.float32)
    np.testing.assert_allclose(used(x, gradient), functions[use](d_kernel), rtol=1e-4, atol=1e-4)


def test_a_model_with_bfloat16_products_differs_from_float32_by_their_rounding() -> None:
    heads = (Head("masked_token"),)
    batch = {
        "input_ids": jnp.arange(32).reshape(2, 16),
        "attention_mask": jnp.ones((2, 16), jnp.int32),
        "token_type_ids": jnp.zeros((2, 16), jnp.int32),
        "masked_positions": jnp.arange(8).reshape(2, 4),
    }
    model, rounded_model = (make_model(SMALL, ComputeConfig(dtype=dtype), heads) for dtype in ("float32", "bfloat16"))
    params = model.init(jax.random.key(0))
    exact, logits = (
        network.apply(params, batch, None)["mlm_logits"][..., : SMALL.vocab_size] for network in (model, rounded_model)
    )
    assert logits.dtype == jnp.float32
    difference = jnp.linalg.norm(logits - exact) / jnp.linalg.norm(exact)
    assert 1e-4 < difference < 2e-2, "bfloat16 has 8 bits of precision, and the norms keep errors from growing"


@pytest.mark.parametrize(
    "fields",
    [
        {"bilstm": True},
        {"positions": "disentangled", "relative_buckets": 8, "relative_max_distance": 16},
        {"positions": "rotary", "query_key_norm": True, "mlp": "gated"},
        {"bottleneck_size": 16},
    ],
    ids=str,
)
def test_only_factors_are_rounded(fields: dict) -> None:
    """The only operation with a bfloat16 result is the rounding of the factors."""
    heads = (Head("sparse_embedding"), Head("sequence_classification", 2))
    model = make_model(dataclasses.replace(SMALL, **fields), ComputeConfig(dtype="bfloat16"), heads)
    names = ("input_ids", "attention_mask", "token_type_ids")
    batch = {name: jnp.ones((2, 16), jnp.int32) for name in names}
    program = str(jax.make_jaxpr(model.apply)(model.shapes, batch, None))
    assert set(re.findall(r":bf16\[[^]]*\] = (\w+)", program)) == {"convert_element_type"}
