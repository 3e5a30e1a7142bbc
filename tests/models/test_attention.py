"""The fused kernels, interpreted, against plain attention written out, and plain attention against torch; the table."""

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax._src.cudnn import fused_attention_stablehlo

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.models import Head, make_model
from bert_jax.models.attention import (
    KERNELS,
    AttentionInputs,
    cudnn,
    describe_used_kernel,
    kernels,
    self_attention,
    tpu,
    triton,
    xla,
)
from bert_jax.models.attention.inputs import FusedQKV, readable_key_mask, with_fused_qkv
from bert_jax.models.dropout import row_keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {
    "two heads fill the lanes": (2, 24, 4, 64),
    "heads that do not": (2, 16, 3, 32),
    "a head fills them": (2, 136, 2, 128),
    "small": (3, 8, 8, 16),
}


def random_inputs(shape, dtype=jnp.float32, packed=False):
    """The inputs of a kernel, and a gradient of its context."""
    batch, length, heads, head_dim = shape
    rng = np.random.default_rng(0)
    q, k, v, gradient = (jnp.asarray(rng.normal(size=(batch, length, heads * head_dim)), dtype) for _ in range(4))
    mask = (rng.random((batch, length)) > 0.2).astype(np.int32)
    mask[-1] = 0  # a row of padding alone
    starts = rng.integers(0, length, (batch, 3, 1))  # of the second segment to the fourth, in any order
    segments = jnp.asarray((1 + (np.arange(length) >= starts).sum(1)) * mask, jnp.int32) if packed else None
    keys = jnp.stack(row_keys(jnp.array([3, 9], jnp.uint32), batch * heads), -1).reshape(batch, heads, 2)
    inputs = AttentionInputs(q=q, k=k, v=v, mask=jnp.asarray(mask), segments=segments, dropout_keys=keys)
    return inputs, gradient


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rate", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("name", SHAPES)
def test_the_kernels_equal_plain_attention(name, rate, packed):
    inputs, gradient = random_inputs(SHAPES[name], packed=packed)
    assert tpu.fits_tpu(inputs)
    plain, pull = jax.vjp(
        lambda q, k, v: xla.xla_forward(dataclasses.replace(inputs, q=q, k=k, v=v), rate), inputs.q, inputs.k, inputs.v
    )
    fused = tpu.tpu_forward(inputs, rate, interpret=True)
    np.testing.assert_allclose(fused, plain, rtol=0, atol=1e-5)
    found = tpu.tpu_backward(inputs, gradient, rate, interpret=True)
    for ours, theirs in zip(found, pull(gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_the_kernels_in_bfloat16_are_as_near_to_float32_as_plain_attention():
    shape = SHAPES["two heads fill the lanes"]
    inputs, _ = random_inputs(shape, jnp.bfloat16, packed=True)
    exact = dataclasses.replace(inputs, **{name: getattr(inputs, name).astype(jnp.float32) for name in ("q", "k", "v")})
    reference = xla.xla_forward(exact, 0.1)
    fused = tpu.tpu_forward(inputs, 0.1, interpret=True)
    plain = xla.xla_forward(inputs, 0.1)
    error, bound = (float(jnp.abs(x.astype(jnp.float32) - reference).max()) for x in (fused, plain))
    assert fused.dtype == jnp.bfloat16
    assert error < 1.5 * bound


@pytest.mark.parametrize(
    ("shape", "packed", "reach", "rate"),
    [((2, 48, 2, 16), True, None, 0.1), ((2, 80, 2, 32), False, 20, 0.1), ((2, 64, 2, 64), False, None, 0.0)],
    ids=["packed", "window", "one block, no dropout"],
)
@pytest.mark.parametrize("joint", [False, True])
def test_the_kernel_in_triton_equals_plain_attention(shape, packed, reach, rate, joint, monkeypatch):
    for name in ("triton_forward", "triton_backward"):
        monkeypatch.setattr(triton, name, functools.partial(getattr(triton, name), interpret=True))
    inputs, gradient = random_inputs(shape, packed=packed)
    inputs = dataclasses.replace(inputs, radius=reach)
    separate = inputs.q, inputs.k, inputs.v
    biases = jnp.asarray(np.random.default_rng(1).normal(size=(3, separate[0].shape[-1])), jnp.float32)

    def plainly(biases, *maps):
        q, k, v = (one + bias for one, bias in zip(maps, biases, strict=True)) if joint else maps
        return xla.dense_attention(dataclasses.replace(inputs, q=q, k=k, v=v), rate)

    def fused(biases, *maps):
        if not joint:
            return triton.triton_attention(dataclasses.replace(inputs, **dict(zip("qkv", maps, strict=True))), rate)
        return triton.triton_attention(with_fused_qkv(inputs, FusedQKV(jnp.stack(maps, axis=2), biases)), rate)

    plain, pull = jax.vjp(plainly, biases, *separate)
    # The mean of what a query without a key reads is over the blocks in reach, not over all keys.
    some = readable_key_mask(inputs).any(-1)[:, 0, :, None]
    reads = some | (reach is None)
    context, back = jax.vjp(fused, biases, *separate)
    np.testing.assert_allclose(context * reads, plain * reads, rtol=0, atol=1e-5)
    (of_biases, *ours), (expected, *theirs) = back(gradient * some), pull(gradient * some)  # no loss reads that mean
    np.testing.assert_allclose(of_biases, expected, rtol=0, atol=1e-5 * float(jnp.abs(expected).max()))  # sums
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_triton_kernel_computes_the_same_result_on_a_mesh():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    command = [sys.executable, "-m", "tests.helpers.mesh_attention"]
    env = os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu"}  # threads for waiting devices
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kernel", ["auto", "xla"])
def test_attention_equals_torch(kernel, packed):
    batch, length, heads, head_dim = SHAPES["two heads fill the lanes"]
    inputs, gradient = random_inputs(SHAPES["two heads fill the lanes"], packed=packed)
    segments, mask = inputs.segments, inputs.mask.at[-1, :5].set(1)  # torch gives NaN where a row may read nothing
    readable = np.broadcast_to(np.asarray(mask == 1)[:, None, :], (batch, length, length))
    if packed:
        segments = jnp.where(mask == 1, jnp.maximum(segments, 1), 0)
        own = np.asarray(segments[:, :, None] == segments[:, None, :]) & readable
        readable = np.where(own.any(2, keepdims=True), own, True)
        gradient = gradient * mask[:, :, None]  # of a query that is padding nothing is asked

    def parts(x):
        return torch.tensor(np.asarray(x)).reshape(batch, length, heads, head_dim).transpose(1, 2).requires_grad_()

    theirs = [parts(x) for x in (inputs.q, inputs.k, inputs.v)]
    out = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=torch.tensor(readable)[:, None])
    inputs = dataclasses.replace(inputs, mask=mask, segments=segments)

    def attend(q, k, v):
        return KERNELS[kernel].attend(dataclasses.replace(inputs, q=q, k=k, v=v), 0.0)

    ours, pull = jax.vjp(attend, inputs.q, inputs.k, inputs.v)
    asked = np.asarray(mask == 1) if packed else np.full((batch, length), True)
    expected = out.detach().transpose(1, 2).reshape(ours.shape).numpy()
    np.testing.assert_allclose(ours[asked], expected[asked], rtol=0, atol=1e-5)
    out.backward(parts(gradient).detach())
    for found, x in zip(pull(gradient), theirs, strict=True):
        np.testing.assert_allclose(found, x.grad.transpose(1, 2).reshape(found.shape), rtol=0, atol=1e-5)


def test_sequences_that_do_not_fit_are_left_to_xla():
    def fits(length, heads, head_dim):
        return tpu.fits_tpu(random_inputs((1, length, heads, head_dim))[0])

    assert fits(1024, 4, 16)
    assert not fits(17, 4, 16), "sequences are tiled by 8"
    assert not fits(2048, 4, 16), "too long for vector memory"
    assert not fits(16, 3, 11), "heads are tiled by 8"


@pytest.mark.parametrize(
    ("compute", "dropout", "platform", "says"),
    [
        (ComputeConfig(), 0.1, "cpu", "XLA"),
        (ComputeConfig(), 0.1, "tpu", "one fused kernel"),
        (ComputeConfig(attention="xla"), 0.1, "tpu", "XLA"),
        (ComputeConfig(dtype="bfloat16"), 0.1, "gpu", "our kernel in Triton"),
        (ComputeConfig(), 0.0, "gpu", "XLA (cuDNN is used with config.compute.dtype=bfloat16; our"),
        (ComputeConfig(dtype="bfloat16"), 0.0, "gpu", "cuDNN"),
        (ComputeConfig(dtype="bfloat16", attention="xla"), 0.0, "gpu", "XLA (cuDNN is used with config.compute.att"),
        (ComputeConfig(dtype="bfloat16", attention="cudnn"), 0.0, "gpu", "cuDNN"),
        (ComputeConfig(dtype="bfloat16", attention="triton"), 0.1, "gpu", "our kernel in Triton"),
    ],
)
def test_the_kernel_in_use_is_reported(compute, dropout, platform, says):
    config = dataclasses.replace(EncoderConfig(), attention_dropout=dropout)
    assert says in describe_used_kernel(config, compute, platform)


def test_the_kernel_of_windows_on_gpus_is_reported():
    config = dataclasses.replace(EncoderConfig(), attention_dropout=0.0, local_window=128)
    chosen = {name: ComputeConfig(dtype="bfloat16", attention=name) for name in ("auto", "cudnn")}
    assert describe_used_kernel(config, chosen["auto"], "gpu") == (
        "cuDNN, for windows, packed rows, up to 512 tokens our kernel in Triton"
    )
    assert describe_used_kernel(config, chosen["cudnn"], "gpu") == "cuDNN"


@pytest.mark.parametrize(
    ("rate", "changes", "dtype", "chosen"),
    [
        (0.0, {}, jnp.bfloat16, "cudnn"),
        (0.1, {}, jnp.bfloat16, "triton"),
        (0.0, {"radius": 20}, jnp.bfloat16, "triton"),
        (0.0, {"segments": jnp.ones((2, 64), jnp.int32)}, jnp.bfloat16, "triton"),
        (0.0, {}, jnp.float32, "recomputed"),
        (0.1, {"radius": 20}, jnp.float32, "recomputed"),
    ],
)
def test_auto_chooses_the_kernel_of_a_gpu(rate, changes, dtype, chosen, monkeypatch):
    called = []
    attentions = {"cudnn_attention": cudnn, "triton_attention": triton, "recomputed_attention": xla}
    for name, module in attentions.items():
        monkeypatch.setattr(module, name, lambda inputs, rate, name=name: called.append(name.partition("_")[0]))
    monkeypatch.setattr(kernels, "traced_platform", lambda: "gpu")
    inputs = dataclasses.replace(random_inputs((2, 64, 2, 16), dtype)[0], **changes)
    kernels.KERNELS["auto"].attend(inputs, rate)
    assert called == [chosen]
    assert kernels.KERNELS["auto"].prefers_fused_qkv(inputs, rate) == (chosen != "recomputed"), (
        "of short rows cuDNN's, too"
    )
    long = dataclasses.replace(random_inputs((1, 1024, 2, 16), dtype)[0], **changes | {"segments": None})
    assert kernels.KERNELS["auto"].prefers_fused_qkv(long, rate) == (chosen == "triton" and "segments" not in changes)
    assert not any(KERNELS[name].prefers_fused_qkv(inputs, rate) for name in ("xla", "cudnn"))


def test_a_gpus_kernel_adds_the_biases_of_a_model(monkeypatch):
    """The states and gradients of a model whose queries, keys and values are one product, against plain attention."""
    config = EncoderConfig(
        vocab_size=50, num_layers=2, hidden_size=32, num_heads=2, mlp_size=64, max_positions=16, dropout=0.1
    )
    heads = (Head("hidden_states"),)
    model = make_model(config, ComputeConfig(), heads)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: x + rng.normal(0, 0.1, x.shape).astype(x.dtype), jax.jit(model.init)(jax.random.key(0))
    )
    ids, mask = rng.integers(0, 50, (3, 16), np.int32), (np.arange(16) < [[16], [9], [3]]).astype(np.int32)
    batch = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}
    weights = rng.normal(size=(config.num_layers + 1, 3, 16, 32)).astype(np.float32) * mask[:, :, None]

    def found(kernel):
        model = make_model(config, ComputeConfig(attention=kernel), heads)

        def loss(params):
            states = model.apply(params, batch, jax.random.key(3))["hidden_states"] * mask[:, :, None]
            return (states * weights).sum(), states

        program = str(jax.make_jaxpr(jax.grad(loss, has_aux=True))(params))
        (_, states), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
        return program, states, gradient

    plain, states, gradient = found("xla")
    for name in ("triton_forward", "triton_backward"):
        monkeypatch.setattr(triton, name, functools.partial(getattr(triton, name), interpret=True))
    monkeypatch.setattr(self_attention, "traced_platform", lambda: "gpu")
    monkeypatch.setitem(
        KERNELS, "triton", dataclasses.replace(KERNELS["triton"], dtypes=("float32",))
    )  # which bfloat16 hides
    fused, same, close = found("triton")
    assert ("[3,16,3,32]" in plain, "[3,16,3,32]" in fused) == (False, True)
    np.testing.assert_allclose(same, states, rtol=0, atol=1e-5)
    largest = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(gradient))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * largest), close, gradient)


@pytest.mark.parametrize("scan_layers", [True, False])
def test_a_gpu_calls_its_fused_kernel_once_a_layer_in_each_direction(scan_layers, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(cudnn, "is_cudnn_available", lambda: True)
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91_900)
    config = dataclasses.replace(EncoderConfig(), vocab_size=9, num_layers=2, attention_dropout=0.0)
    compute = ComputeConfig(dtype="bfloat16", scan_layers=scan_layers, attention="cudnn")
    model = make_model(config, compute, (Head("masked_token"),))
    names = ("input_ids", "token_type_ids", "attention_mask", "masked_positions")
    batch = {name: jax.ShapeDtypeStruct((4, 32), jnp.int32) for name in names}

    def loss(params, batch):
        return jnp.sum(model.apply(params, batch, jax.random.key(0))["mlm_logits"])

    program = str(jax.make_jaxpr(jax.grad(loss))(jax.eval_shape(model.init, jax.random.key(0)), batch))
    layers = 1 if scan_layers else 2
    for direction in ("fwd", "bwd"):
        assert program.count(f"dot_product_attention_{direction}") == layers
    assert "[4,1,32,32]" not in program, "the kernel reads lengths instead of a mask"


def test_cudnn_refuses_dropout_float32_and_odd_shapes():
    inputs, _ = random_inputs(SHAPES["small"], jnp.bfloat16)
    assert cudnn.fits_cudnn(inputs, 0.0)
    assert not cudnn.fits_cudnn(inputs, 0.1), "it has no dropout"
    assert not cudnn.fits_cudnn(dataclasses.replace(inputs, bias=jnp.zeros((8, 8, 8))), 0.0)
    assert not cudnn.fits_cudnn(random_inputs(SHAPES["small"])[0], 0.0), "it has no float32"
    assert not cudnn.fits_cudnn(random_inputs((3, 9, 8, 16), jnp.bfloat16)[0], 0.0), "lengths are even"
    assert not cudnn.fits_cudnn(random_inputs((3, 8, 8, 12), jnp.bfloat16)[0], 0.0), "heads are multiples of 8"
    assert not cudnn.fits_cudnn(random_inputs((3, 8, 1, 256), jnp.bfloat16)[0], 0.0), "and have up to 128 features"


@pytest.mark.parametrize(
    ("version", "capability", "has"),
    [
        ("PJRT C API\ncuda 13000", "9.0", True),
        ("cuda 13000", "10.3", True),
        ("cuda 12090", "7.5", False),
        ("rocm", "gfx942", False),
    ],
)
def test_gpus_without_the_kernel_compute_by_xla(version, capability, has, monkeypatch):
    device = types.SimpleNamespace(
        client=types.SimpleNamespace(platform_version=version), compute_capability=capability
    )
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert cudnn.is_cudnn_available() == has
    config = dataclasses.replace(EncoderConfig(), attention_dropout=0.0)
    used = describe_used_kernel(config, ComputeConfig(dtype="bfloat16"), "gpu")
    assert used.startswith("cuDNN, " if has else "XLA")


def test_windows_and_relative_positions_choose_the_kernel():
    config = EncoderConfig(vocab_size=9, attention_dropout=0.0, local_window=4, global_every=2)
    relative = dataclasses.replace(config, positions="relative")
    assert describe_used_kernel(config, ComputeConfig(), "tpu").startswith("one fused kernel")
    assert "with config.model.positions other than relative" in describe_used_kernel(relative, ComputeConfig(), "tpu")
    cudnn = ComputeConfig(attention="cudnn", dtype="bfloat16")
    assert describe_used_kernel(config, cudnn, "gpu") == "cuDNN"
    with pytest.raises(UserError, match=r"attention=cudnn needs config\.model.positions other than relative"):
        make_model(relative, cudnn, ())
