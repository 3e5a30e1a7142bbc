"""Muon on stacked blocks against optax.contrib.muon on the same blocks unstacked, and against one device on meshes."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax.config import ComputeConfig, OptimizerConfig
from bert_jax.errors import UserError
from bert_jax.models import PRESETS, pretraining_model
from bert_jax.training.optimizers import make_optimizer, make_param_info
from tests.training.test_optimizers import decays, flat

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYERS, STEPS = 3, 6
# name -> (shape, logical axes, section): stacked matrices, wide, tall and square, and what Adam updates.
PARAMETERS = {
    "layers": {
        "up": {
            "kernel": ((LAYERS, 4, 10), ("layers", "embed", "mlp"), "layers"),
            "bias": ((LAYERS, 10), ("layers", "mlp"), "layers"),
        },
        "down": {"kernel": ((LAYERS, 10, 4), ("layers", "mlp", "embed"), "layers")},
        "query": {"kernel": ((LAYERS, 4, 4), ("layers", "embed", "heads"), "layers")},
        "norm": {"scale": ((LAYERS, 4), ("layers", "features"), "layers")},
        "relative": ((LAYERS, 8, 2), ("layers", "positions", "heads"), "layers"),
    },
    "token": ((7, 4), ("vocab", "features"), "embeddings"),
    "projection": {"kernel": ((4, 4), ("embed", "features"), "embeddings")},
    "head": {"kernel": ((4, 4), ("embed", "features"), "heads"), "bias": ((4,), ("features",), "heads")},
}


def part(index: int) -> dict:
    return jax.tree.map(lambda x: x[index], PARAMETERS, is_leaf=lambda x: isinstance(x, tuple))


AXES, SECTIONS = part(1), part(2)


def random_tree(seed: int, scale: float = 1.0) -> dict:
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: jnp.asarray(scale * rng.normal(size=shape), jnp.float32),
        part(0),
        is_leaf=lambda x: isinstance(x, tuple),
    )


def unstacked(tree: dict) -> dict:
    """One subtree a layer, "0" to "2", instead of arrays with an axis of layers."""
    layers = {str(i): jax.tree.map(lambda x, i=i: x[i], tree["layers"]) for i in range(LAYERS)}
    return {**tree, "layers": layers}


def is_block_matrix(path: tuple) -> bool:
    """Of an unstacked tree: the kernels of the blocks."""
    return path[0].key == "layers" and path[-1].key == "kernel"


def follow(optimizer: optax.GradientTransformation, params: dict, gradients: list[dict]) -> list[dict]:
    """The parameters after each step."""
    # Compiled as in a user's run (tests/conftest.py): without LLVM's passes, sums of products are rounded more often.
    options = {"xla_backend_optimization_level": 3}
    state, trail, update = optimizer.init(params), [], jax.jit(optimizer.update, compiler_options=options)
    for gradient in gradients:
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        trail.append(params)
    return trail


@pytest.mark.parametrize("nesterov", [False, True])
def test_muon_equals_optax_on_unstacked_blocks(nesterov: bool) -> None:
    """The matrices of the blocks follow optax.contrib.muon, each by itself, and all else optax.adamw."""
    config = OptimizerConfig(
        name="muon",
        peak_learning_rate=0.02,
        muon_learning_rate=0.08,
        momentum=0.9,
        nesterov=nesterov,
        weight_decay=0.1,
        clip_norm=None,
    )
    params, gradients = random_tree(0), [random_tree(10 + step, scale=3.0) for step in range(STEPS)]
    rate = 0.01  # half of the peak, so Muon's is half of its own peak
    ours = follow(make_optimizer(config, AXES, SECTIONS)(rate), params, gradients)

    start, theirs = unstacked(params), [unstacked(gradient) for gradient in gradients]
    numbers = jax.tree_util.tree_map_with_path(
        lambda path, _: optax.contrib.MuonDimensionNumbers() if is_block_matrix(path) else None, start
    )
    muon = optax.contrib.muon(
        0.04, beta=0.9, nesterov=nesterov, weight_decay=0.1, muon_weight_dimension_numbers=numbers
    )
    mask = jax.tree_util.tree_map_with_path(lambda path, _: decays(jax.tree_util.keystr(path)), start)
    adam = optax.adamw(rate, eps=config.epsilon, weight_decay=0.1, mask=mask)
    for found, by_muon, by_adam in zip(ours, follow(muon, start, theirs), follow(adam, start, theirs), strict=True):
        expected = jax.tree_util.tree_map_with_path(
            lambda path, x, y: x if is_block_matrix(path) else y, by_muon, by_adam
        )
        for (name, one), other in zip(flat(unstacked(found)).items(), flat(expected).values(), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6, err_msg=name)


def test_every_matrix_moves_by_an_orthogonal_matrix() -> None:
    """Singular values of an update are near 1 (Jordan et al.: 0.7 to 1.2) times the factor of the shape."""
    config = OptimizerConfig(name="muon", peak_learning_rate=1.0, muon_learning_rate=1.0, weight_decay=0.0)
    optimizer, params = make_optimizer(config, AXES, SECTIONS)(1.0), random_tree(0)
    updates, _ = jax.jit(optimizer.update)(random_tree(1), optimizer.init(params), params)
    for name, factor in (("up", np.sqrt(10 / 4)), ("down", 1.0), ("query", 1.0)):
        values = np.linalg.svd(np.asarray(updates["layers"][name]["kernel"]), compute_uv=False) / factor
        assert values.shape == (LAYERS, 4)
        assert np.all((values > 0.6) & (values < 1.3)), (name, values)


@pytest.mark.slow
def test_eight_devices_update_as_one() -> None:
    """Replicated, sharded by fsdp and by tensor; the script also checks that the momentum is sharded."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    run = subprocess.run(
        [sys.executable, "-m", "tests.helpers.sharded_update"],
        # NPROC sizes XLA's thread pool: with only as many threads as cores, waiting collectives fill it.
        env=os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert [row["mesh"] for row in rows] == [[8, 1, 1], [1, 8, 1], [1, 1, 8], [2, 2, 2]]
    assert all(row["updates"] < 1e-5 for row in rows), rows


def test_the_matrices_of_berts_blocks_are_muons() -> None:
    model = pretraining_model(PRESETS["tiny"], ComputeConfig())
    linear = flat(make_param_info(model.logical_axes, model.sections).linear)
    kernels = {name.split("'")[-4] for name, of_muon in linear.items() if of_muon}
    assert kernels == {"query", "key", "value", "output", "mlp_up", "mlp_down"}
    assert all("['layers']" in name for name, of_muon in linear.items() if of_muon)


def test_a_rate_relative_to_none_is_refused() -> None:
    with pytest.raises(UserError, match="peak_learning_rate=0"):
        make_optimizer(OptimizerConfig(name="muon", peak_learning_rate=0.0), AXES, SECTIONS)(0.0)
