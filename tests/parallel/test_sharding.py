"""The mesh, the table of axes, the placement of batches, and eight virtual devices against one device."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from bert_jax.config import ComputeConfig, MeshConfig
from bert_jax.errors import UserError
from bert_jax.models import PRESETS, pretraining_model
from bert_jax.parallel.sharding import (
    RULES,
    batch_sharding,
    check_mesh_divides_batch,
    check_mesh_divides_heads,
    check_mesh_divides_parameters,
    constrain,
    make_mesh,
    named_shardings,
    partition_spec,
    place_batch,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def mesh_of(data: int, fsdp: int, tensor: int) -> jax.sharding.AbstractMesh:
    """A mesh of any size without devices: a shape."""
    return jax.sharding.AbstractMesh((data, fsdp, tensor), ("data", "fsdp", "tensor"))


def on_eight_devices(script: str, *words: str) -> list[dict]:
    """Return the lines that a script prints."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    run = subprocess.run(
        [sys.executable, ROOT / "tests" / "helpers" / script, *words],
        # NPROC sizes XLA's thread pool: with only as many threads as cores, waiting collectives fill it.
        env=os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def eight_devices() -> list[dict]:
    return on_eight_devices("sharded_loss.py", "bert")


def check_losses_and_gradients(rows: list[dict], expected: dict[str, list[int]]) -> None:
    """Check the rows of sharded_loss.py; `expected` is a mesh for each model."""
    assert {row["model"]: row["mesh"] for row in rows} == expected
    for row in rows:
        assert row["loss"] == pytest.approx(row["reference"], abs=1e-5), row
        assert row["gradients"] < 1e-4, row


def test_eight_devices_compute_like_one_device(eight_devices):
    """With dropout, whose masks are the same on every mesh."""
    check_losses_and_gradients(eight_devices, {"bert": [2, 2, 2]})


@pytest.mark.slow
def test_eight_devices_compute_other_models_like_one_device():
    rows = on_eight_devices("sharded_loss.py", "tensor", "rotary", "relative")
    check_losses_and_gradients(rows, {"tensor": [1, 1, 8], "rotary": [2, 2, 2], "relative": [2, 2, 2]})


@pytest.mark.slow
def test_eight_devices_train_other_objectives_as_one():
    """Three steps with dropout: losses and gradient norms, and the parameters after them."""
    rows = on_eight_devices("sharded_steps.py")
    assert len(rows) == 14
    for row in rows:
        assert row["eight"]["losses"] == pytest.approx(row["one"]["losses"], rel=0, abs=1e-5), row
        assert row["eight"]["norms"] == pytest.approx(row["one"]["norms"], rel=1e-5), row
        assert row["apart"] < 1e-5 < 1e-3 < row["moved"], row


def test_the_token_table_is_gathered_once_and_stays_split_over_the_tensor_axis(eight_devices):
    assert eight_devices[0]["moved"] == ["all-gather"]


def test_an_axis_of_size_minus_one_takes_the_rest():
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    assert dict(mesh.shape) == {"data": 1, "fsdp": 1, "tensor": 1}
    assert set(mesh.axis_types) == {jax.sharding.AxisType.Auto}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (MeshConfig(data=2), "mesh.data=2, .* does not divide 1 devices"),
        (MeshConfig(data=-1, fsdp=3), "does not divide 1 devices"),
        (MeshConfig(data=-1, fsdp=-1), "one size may be -1"),
        (MeshConfig(data=0), "positive"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused(config, words):
    with pytest.raises(UserError, match=words):
        make_mesh(config, jax.devices()[:1])


@dataclasses.dataclass(frozen=True)
class Chip:
    """A device of one of several TPU slices, as far as the placement looks at it."""

    id: int
    slice_index: int
    coords: tuple[int, ...]
    platform: str = "tpu"
    device_kind: str = "TPU v5 lite"
    process_index: int = 0
    core_on_chip: int = 0


def two_slices():
    return [Chip(4 * slice_ + 2 * y + x, slice_, (x, y, 0)) for slice_ in range(2) for y in range(2) for x in range(2)]


@pytest.mark.parametrize("config", [MeshConfig(), MeshConfig(data=2, fsdp=-1), MeshConfig(data=2, fsdp=2, tensor=2)])
def test_of_several_slices_only_the_data_axis_crosses_them(config):
    placed = make_mesh(config, two_slices()).devices
    for halves, expected in zip(np.split(placed, 2), (0, 1), strict=True):
        assert {chip.slice_index for chip in halves.flat} == {expected}


def test_slices_that_another_axis_would_cross_are_refused():
    with pytest.raises(UserError, match=r"mesh.data=1, .*: mesh.data must be a multiple of the number of slices, 2"):
        make_mesh(MeshConfig(data=1, fsdp=8), two_slices())


@pytest.mark.parametrize(
    ("batch_size", "grad_accum_steps", "words"),
    [(30, 1, "use 24 or 32, or any multiple of 8"), (3, 1, "use 8,"), (24, 2, "use 16 or 32"), (0, 1, "use 8,")],
)
def test_a_batch_that_does_not_divide_is_refused(batch_size, grad_accum_steps, words):
    with pytest.raises(UserError, match=words):
        check_mesh_divides_batch(mesh_of(4, 2, 3), batch_size, grad_accum_steps)


def test_a_batch_that_divides_passes():
    check_mesh_divides_batch(mesh_of(4, 2, 3), 32, 4)


def test_parameters_that_do_not_divide_are_refused():
    model = pretraining_model(PRESETS["mini"], ComputeConfig())
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    check_mesh_divides_parameters(model.logical_axes, shapes, mesh_of(3, 2, 4))
    with pytest.raises(UserError, match=r"vocab axis has size 30592 .* = 3 does not divide; choose one of 1, 2, 4"):
        check_mesh_divides_parameters(model.logical_axes, shapes, mesh_of(1, 1, 3))


def test_a_mesh_that_cuts_a_head_is_refused():
    check_mesh_divides_heads(mesh_of(3, 2, 4), 4)
    with pytest.raises(UserError, match=r"mesh.tensor=8 does not divide model.num_heads=4; choose one of 1, 2, 4"):
        check_mesh_divides_heads(mesh_of(1, 1, 8), 4)


def test_every_parameter_has_a_rule_and_embeddings_keep_their_features_whole():
    model = pretraining_model(PRESETS["tiny"], ComputeConfig())
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    placement = named_shardings(model.logical_axes, mesh)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    jax.tree.map(lambda x, s: s.shard_shape(x.shape), shapes, placement)
    assert placement["encoder"]["embeddings"]["token"].spec == PartitionSpec(("tensor", "fsdp"), None)
    assert partition_spec(("layers", "embed", "heads")) == PartitionSpec(None, "fsdp", "tensor")
    assert {axis for rule in RULES.values() for axis in ((rule,) if isinstance(rule, str) else rule or ())} == {
        "data", "fsdp", "tensor",
    }  # fmt: skip


def test_a_placed_batch_is_the_batch():
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    batch = {"input_ids": np.arange(12, dtype=np.int32).reshape(4, 3), "weights": np.ones(4, np.float32)}
    placed = place_batch(batch, mesh)
    assert all(x.sharding == batch_sharding(mesh) for x in placed.values())
    jax.tree.map(np.testing.assert_array_equal, dict(batch), placed)


def test_without_a_mesh_nothing_is_constrained():
    x = jnp.ones((2, 3))
    assert constrain(x, "batch", "length") is x
