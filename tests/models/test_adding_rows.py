"""A row of one's own in each table of the architecture, and no other change."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import ComputeConfig, EncoderConfig, PretrainConfig, check_choices
from bert_jax.errors import UserError
from bert_jax.interop.huggingface.model_config import model_config_fields
from bert_jax.models import Head, describe_used_kernel, make_model
from bert_jax.models.attention import KERNELS, AttentionInputs, Kernel
from bert_jax.models.blocks import BLOCKS, MLPS, Residual
from bert_jax.models.init import INITIALIZATIONS, InitScales
from bert_jax.models.layers import ACTIVATIONS
from bert_jax.models.norms import NORMS
from bert_jax.models.positions import POSITIONS, PositionScheme

CONFIG = EncoderConfig(
    vocab_size=40, num_layers=2, hidden_size=16, num_heads=2, mlp_size=24, max_positions=8, attention_dropout=0.0
)
HEADS = (Head("hidden_states"),)


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    mask = (np.arange(8) < np.array([[8], [5], [2]])).astype(np.int32)
    ids = rng.integers(1, 40, mask.shape).astype(np.int32)
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}


def run(config: EncoderConfig, change=lambda params: params, **compute) -> tuple[dict, np.ndarray]:
    """Parameters and hidden states of all layers."""
    check_choices(PretrainConfig(model=config, compute=ComputeConfig(**compute)))
    model = make_model(config, ComputeConfig(**compute), HEADS)
    params = change(jax.jit(model.init)(jax.random.key(0)))
    return params, np.asarray(jax.jit(model.apply)(params, batch(), None)["hidden_states"])


def centered(x: jax.Array, epsilon: float, dtype: jnp.dtype) -> jax.Array:
    """Subtract the mean, and nothing else."""
    return (x - x.mean(-1, keepdims=True)).astype(dtype)


def test_a_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NORMS, "centered", centered)
    params, hidden = run(dataclasses.replace(CONFIG, norm="centered", norm_scale=False, norm_bias=False))
    assert "attention_norm" not in params["encoder"]["layers"], "this norm has no parameters"
    tables = params["encoder"]["embeddings"]
    summed = np.asarray(tables["token"])[batch()["input_ids"]] + tables["position"][:8] + tables["token_type"][0]
    np.testing.assert_allclose(hidden[0], summed - summed.mean(-1, keepdims=True), rtol=0, atol=1e-6)
    np.testing.assert_allclose(hidden.mean(-1), 0, rtol=0, atol=1e-6)


def test_an_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIVATIONS, "zero", jnp.zeros_like)
    config = dataclasses.replace(CONFIG, activation="zero", family="research", mlp_bias=False)
    params, hidden = run(config)
    layers = params["encoder"]["layers"]
    layers["mlp_down"] = jax.tree.map(jnp.zeros_like, layers["mlp_down"])
    model = make_model(dataclasses.replace(config, activation="gelu"), ComputeConfig(), HEADS)
    found = model.apply(params, batch(), None)["hidden_states"]
    np.testing.assert_allclose(found, hidden, rtol=0, atol=1e-6)
    assert model_config_fields(config, 0, "config.model")["activation"] == "zero"
    with pytest.raises(UserError, match=r"no bert of .* model\.activation='zero' \(it has 'gelu' or .*family=research"):
        model_config_fields(dataclasses.replace(config, family="bert"), 0, "config.model")


def averages(inputs: AttentionInputs, rate: float) -> jax.Array:
    """The mean of all values that may be read."""
    weights = inputs.mask / inputs.mask.sum(1, keepdims=True)
    return jnp.broadcast_to(jnp.einsum("bl,blh->bh", weights, inputs.v)[:, None], inputs.v.shape)


def test_an_attention_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(
        attend=averages, display_name="averages", platforms=("cpu",), dtypes=("float32",), dropout=False, window=False
    )
    monkeypatch.setitem(KERNELS, "average", kernel)

    def without_queries(params: dict) -> dict:
        query = params["encoder"]["layers"]["attention"]["query"]
        query["kernel"] = jnp.zeros_like(query["kernel"])
        return params

    _, expected = run(CONFIG, without_queries)  # scores of zero: the softmax is uniform
    _, found = run(CONFIG, attention="average")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)

    assert describe_used_kernel(CONFIG, ComputeConfig(attention="average"), "cpu") == "averages"
    assert (
        describe_used_kernel(CONFIG, ComputeConfig(), "cpu")
        == "XLA (averages is used with config.compute.attention=average)"
    )
    with pytest.raises(UserError, match="attention=average runs on cpu"):
        describe_used_kernel(CONFIG, ComputeConfig(attention="average"), "tpu")
    windows = dataclasses.replace(CONFIG, local_window=4, global_every=2)
    with pytest.raises(UserError, match=r"attention=average needs config\.model\.local_window=None"):
        make_model(windows, ComputeConfig(attention="average"), HEADS)
    unfit = dataclasses.replace(CONFIG, attention_dropout=0.1), ComputeConfig(attention="average", dtype="bfloat16")
    with pytest.raises(UserError, match=r"attention=average needs .*dtype=float32 and .*attention_dropout=0"):
        make_model(*unfit, HEADS)


def nowhere_else(module: nn.Module, config: EncoderConfig, length: int) -> jax.Array:
    """A bias with which every position reads itself alone."""
    itself = jnp.where(jnp.eye(length, dtype=bool), 0.0, -1e9)
    return jnp.broadcast_to(itself, (config.num_heads, length, length))


@pytest.mark.parametrize("attention", ["auto", "xla"])
def test_a_position_scheme(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITIONS, "alone", PositionScheme(bias=nowhere_else))
    config = dataclasses.replace(CONFIG, positions="alone")
    params, hidden = run(config, attention=attention)
    assert "position" not in params["encoder"]["embeddings"]
    # Without positions, and reading itself alone, a token has one vector wherever it stands.
    ids, real = batch()["input_ids"], batch()["attention_mask"].astype(bool)
    changed = {**batch(), "input_ids": np.where(np.arange(8) == 0, ids, ids[:, :1])}
    model = make_model(config, ComputeConfig(attention=attention), HEADS)
    repeated = np.asarray(jax.jit(model.apply)(params, changed, None)["hidden_states"])
    for row, kept in enumerate(real):
        vectors = repeated[:, row, kept]
        np.testing.assert_allclose(vectors, np.broadcast_to(hidden[:, row, :1], vectors.shape), rtol=0, atol=1e-5)
    gradient = jax.grad(lambda p: model.apply(p, batch(), None)["hidden_states"].sum())(params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


def test_a_position_scheme_that_rotates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITIONS, "nothing", PositionScheme(rotate=lambda config, x, angles: 0 * x))
    monkeypatch.setitem(POSITIONS, "none", PositionScheme())

    def without_queries(params: dict) -> dict:
        query = params["encoder"]["layers"]["attention"]["query"]
        query["kernel"] = jnp.zeros_like(query["kernel"])
        return params

    _, expected = run(dataclasses.replace(CONFIG, positions="none"), without_queries)
    _, found = run(dataclasses.replace(CONFIG, positions="nothing"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_an_mlp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MLPS, "double", lambda config, dtype, x: 2 * x)
    params, _ = run(dataclasses.replace(CONFIG, mlp="double"))
    assert "mlp_up" not in params["encoder"]["layers"]


def test_a_residual_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BLOCKS, "cut", Residual(lambda x, sublayer, norm: x + 0 * sublayer(norm(x)).array(), False))
    _, hidden = run(dataclasses.replace(CONFIG, norm_position="cut"))
    assert (hidden[1:] == hidden[0]).all(), "no sublayer reaches the stream"


def test_an_initialization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        INITIALIZATIONS, "small_outputs", lambda config: InitScales(inner=0.02, output=1e-6, dense=0.02)
    )
    params, _ = run(dataclasses.replace(CONFIG, initialization="small_outputs"))
    layers = params["encoder"]["layers"]
    for layer in (layers["attention"]["output"], layers["mlp_down"]):
        assert 0 < np.abs(layer["kernel"]).max() < 1e-5
    assert np.abs(layers["attention"]["value"]["kernel"]).max() > 0.01
