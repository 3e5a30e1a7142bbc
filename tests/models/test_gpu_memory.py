"""Values that GPUs save for the backward pass, and their layout: results and gradients equal those on a CPU."""

import dataclasses
import importlib
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig, MeshConfig
from bert_jax.models import make_model
from bert_jax.parallel.sharding import make_mesh
from tests.models.test_blocks import CASES, HEADS, LENGTH, batch_of, random_params

ROOT = pathlib.Path(__file__).resolve().parents[2]
READERS = ("models.norms", "models.layers", "models.encoder", "parallel.sharding")


@pytest.mark.parametrize(
    ("name", "scan"),
    [
        pytest.param("post", False, marks=pytest.mark.slow),
        pytest.param("post", True, marks=pytest.mark.slow),
        pytest.param("pre, gated silu, query-key norm", False, marks=pytest.mark.slow),
        ("pre, gated silu, query-key norm", True),
    ],
)
def test_gradients_are_equal_under_the_policy_of_saved_values_for_gpus(
    name: str, scan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(CASES[name], num_layers=3, dropout=0.1, attention_dropout=0.1)
    compute = ComputeConfig(scan_layers=scan)
    params, batch = random_params(config, compute), batch_of(config, [LENGTH, 7])
    weights = np.random.default_rng(2).normal(size=(4, 2, LENGTH, 16)).astype(np.float32)

    def found() -> tuple[str, np.ndarray, dict]:
        def loss(params: dict) -> tuple[jax.Array, jax.Array]:  # a function of its own: JAX remembers what it traced
            states = make_model(config, compute, HEADS).apply(params, batch, jax.random.key(3))["hidden_states"]
            return (states * weights).sum(), states

        with jax.set_mesh(make_mesh(MeshConfig(), jax.devices()[:1])):
            (_, states), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
            return str(jax.make_jaxpr(jax.grad(loss, has_aux=True))(params)), np.asarray(states), gradient

    here, states, gradient = found()
    for module in READERS:
        monkeypatch.setattr(importlib.import_module(f"bert_jax.{module}"), "traced_platform", lambda: "gpu")
    there, same, close = found()
    assert ("layout_constraint" in here, "layout_constraint" in there) == (False, True)
    np.testing.assert_allclose(same, states, rtol=0, atol=2e-6 * np.abs(states).max())
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(gradient))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * largest), gradient, close)


@pytest.mark.slow
def test_layouts_add_no_collectives() -> None:
    """XLA gathers a sharded array whole to pin its layout, unless each device pins its own part."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "tests/helpers/layout_collectives.py"],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    meshes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(meshes) == 2
    for without, pinned in meshes:
        assert without["all-reduce"] > 0
        assert pinned == without
