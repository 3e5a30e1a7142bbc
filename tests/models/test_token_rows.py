"""The rows beyond BERT's: RMS norm, rotary positions and the gated MLP against closed forms and torch."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface.model_config import model_config_fields
from bert_jax.models import Head, count_parameters, make_model, model_flops
from bert_jax.models.blocks import MLPS
from bert_jax.models.layers import add_bias
from bert_jax.models.norms import norm_layer
from bert_jax.models.positions import POSITIONS

CONFIG = EncoderConfig(vocab_size=128, num_layers=2, hidden_size=24, num_heads=3, mlp_size=40, max_positions=16)
MODERN = dataclasses.replace(CONFIG, norm="rms_norm", norm_bias=False, positions="rotary", mlp="gated")


@pytest.mark.parametrize(("scale", "bias"), [(True, False), (True, True), (False, True), (False, False)])
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "no_norm"])
def test_norms_equal_torch(name: str, scale: bool, bias: bool) -> None:
    x = 0.5 + np.random.default_rng(0).normal(size=(2, 5, 24)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    config = dataclasses.replace(CONFIG, norm=name, norm_scale=scale, norm_bias=bias, layer_norm_epsilon=1e-3)
    module = norm_layer(config, jnp.dtype("float32"))
    params = {"scale": np.linspace(0.5, 2, 24, dtype=np.float32), "bias": np.linspace(-1, 1, 24, dtype=np.float32)}
    params = {key: x for key, x in params.items() if {"scale": scale, "bias": bias}[key]}
    assert set(nn.unbox(module.init(jax.random.key(0), x)).get("params", {})) == set(params)

    def found(params, x):
        return module.apply({"params": params}, x)

    theirs = torch.tensor(x, requires_grad=True)
    parts = {key: torch.tensor(x, requires_grad=True) for key, x in params.items()}
    kinds = {"rms_norm": torch.nn.functional.rms_norm, "layer_norm": torch.nn.functional.layer_norm}
    kind = kinds.get(name, lambda x, _, scale, eps: x if scale is None else x * scale)
    expected = kind(theirs, (24,), parts.get("scale"), eps=1e-3) + parts.get("bias", 0)
    np.testing.assert_allclose(found(params, x), expected.detach(), rtol=0, atol=1e-6)
    (expected * torch.tensor(weights)).sum().backward()
    of_params, of_x = jax.grad(lambda params, x: (found(params, x) * weights).sum(), (0, 1))(params, x)
    np.testing.assert_allclose(of_x, theirs.grad, rtol=0, atol=1e-5)
    for key, gradient in of_params.items():
        np.testing.assert_allclose(gradient, parts[key].grad, rtol=0, atol=1e-5)


def rotated(config: EncoderConfig, x: np.ndarray, segments: np.ndarray | None = None, base: float = 1e4) -> jax.Array:
    scheme = POSITIONS["rotary"]
    return scheme.rotate(config, x, scheme.angles(config, base, x.shape[1], segments))


@pytest.mark.parametrize("base", [10_000.0, 160_000.0])
def test_rotary_is_a_product_of_complex_numbers(base: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 7, 24)).astype(np.float32)
    heads = x.reshape(2, 7, 3, 2, 4)
    angles = np.arange(7)[:, None] * base ** -(np.arange(4) / 4)
    product = (heads[:, :, :, 0] + 1j * heads[:, :, :, 1]) * np.exp(1j * angles)[:, None]
    expected = np.stack([product.real, product.imag], 3).reshape(x.shape)
    np.testing.assert_allclose(rotated(CONFIG, x, None, base), expected, rtol=0, atol=1e-5)

    segments = np.array([[1, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 1]], np.int32)
    packed = rotated(CONFIG, x, segments, base)
    np.testing.assert_allclose(packed[0, :3], expected[0, :3], rtol=0, atol=1e-5)
    np.testing.assert_allclose(packed[:1, 3:], rotated(CONFIG, x[:1, 3:], None, base), rtol=0, atol=1e-6)

    with pytest.raises(UserError, match="an even number of features per head, not 3"):
        rotated(dataclasses.replace(CONFIG, num_heads=8), x)


class Gated(nn.Module):
    """The row as a module of its own."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return add_bias(MLPS["gated"](CONFIG, jnp.dtype("float32"), x))


def test_the_gated_mlp_equals_torch() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 24)).astype(np.float32)
    shapes = nn.unbox(jax.eval_shape(Gated().init, jax.random.key(0), x))
    params = jax.tree.map(lambda s: rng.normal(size=s.shape).astype(np.float32), shapes)
    gate, up, down = (params["params"][name] for name in ("mlp_gate", "mlp_up", "mlp_down"))

    def linear(x, layer):
        return torch.nn.functional.linear(x, torch.tensor(layer["kernel"].T), torch.tensor(layer["bias"]))

    inner = torch.nn.functional.gelu(linear(torch.tensor(x), gate)) * linear(torch.tensor(x), up)
    expected = linear(inner, down)
    np.testing.assert_allclose(Gated().apply(params, x), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_a_model_of_all_three() -> None:
    h, m, layers = 24, 40, 2
    block = 4 * (h * h + h) + 2 * (h * m + m) + (m * h + h) + 2 * h
    assert count_parameters(MODERN, ()) == 128 * h + 2 * h + h + layers * block
    assert model_flops(MODERN, 16, 0) == 16 * layers * (6 * (4 * h * h + 3 * h * m) + 12 * 16 * h)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 128, (2, 16)).astype(np.int32)
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}
    model = make_model(MODERN, ComputeConfig(), (Head("hidden_states"),))
    params = jax.jit(model.init)(jax.random.key(0))
    gradient = jax.grad(lambda p: (model.apply(p, batch, jax.random.key(1))["hidden_states"] ** 3).sum())(params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


@pytest.mark.parametrize(("name", "row"), [("norm", "rms_norm"), ("positions", "rotary"), ("mlp", "gated")])
def test_no_family_of_today_expresses_them(name: str, row: str) -> None:
    with pytest.raises(UserError, match=f"no bert of transformers has model.{name}='{row}'"):
        model_config_fields(dataclasses.replace(CONFIG, **{name: row}), 0, "here")
