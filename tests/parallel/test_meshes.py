"""Whole runs on eight virtual devices against runs on one device: every line of metrics agrees."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from bert_jax.training.metrics import read_metrics
from tests.helpers.mesh_run import STEPS

pytestmark = pytest.mark.slow  # compiles a run for each of several meshes; test_sharding.py compares one step

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Dropout masks follow the micro-batches, so a run is compared with one of the same accumulation.
MASKED, REPLACED, DISENTANGLED = "masked_tokens", "replaced_tokens", "disentangled"
ONE = {
    "one": ([1, 1, 1], 1, 1, MASKED),
    "one accumulated": ([1, 1, 1], 2, 1, MASKED),
    "one packed": ([1, 1, 1], 2, 4, MASKED),
    "one replaced": ([1, 1, 1], 1, 1, REPLACED),
    "one replaced, accumulated": ([1, 1, 1], 2, 1, DISENTANGLED),
}
EIGHT = {
    "data": ([8, 1, 1], 1, 1, MASKED),
    "tensor": ([1, 1, 8], 2, 1, MASKED),
    "fsdp and tensor": ([1, 2, 4], 2, 1, MASKED),
    "all axes, packed": ([2, 2, 2], 2, 4, MASKED),
    "replaced, all axes": ([2, 2, 2], 1, 1, REPLACED),
    "replaced, fsdp and tensor, accumulated": ([2, 2, 2], 2, 1, DISENTANGLED),
}


def run(workdir: pathlib.Path, devices: int, runs: dict[str, tuple[list[int], int, int, str]]) -> None:
    described = {
        name: dict(zip(("mesh", "grad_accum_steps", "packing", "objective"), one, strict=True))
        for name, one in runs.items()
    }
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "tests/helpers/mesh_run.py", workdir, json.dumps(described)],
        cwd=ROOT,
        # NPROC sizes XLA's thread pool: with only as many threads as cores, waiting collectives fill it.
        env=os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    place = tmp_path_factory.mktemp("meshes")
    run(place, 1, ONE)
    run(place, 8, EIGHT)
    return place


@pytest.mark.parametrize("name", EIGHT)
def test_eight_devices_train_like_one_device(workdir: pathlib.Path, name: str) -> None:
    (of_one,) = (one for one in ONE if ONE[one][1:] == EIGHT[name][1:])
    one = read_metrics(workdir / of_one / "metrics.jsonl")
    eight = read_metrics(workdir / name / "metrics.jsonl")
    assert [line["step"] for line in eight if line["split"] == "train"] == list(range(1, STEPS + 1))
    assert [(line["step"], line["split"]) for line in one] == [(line["step"], line["split"]) for line in eight]
    losses = [key for key in one[0] if key.endswith("loss")]
    assert len(losses) == 3, "two losses and their sum"
    for key in losses:
        # In nats a token: the weight of replaced tokens, 50, takes their loss to where float32 has steps of 4e-6.
        weight = 50 if EIGHT[name][3] in (REPLACED, DISENTANGLED) and key != "mlm_loss" else 1
        found, expected = ([line[key] / weight for line in lines] for lines in (eight, one))
        assert found == pytest.approx(expected, rel=0, abs=1e-5), key


def test_dropout_is_at_work(workdir: pathlib.Path) -> None:
    """Another cut into micro-batches draws other masks, and the losses move by far more than the tolerance."""
    one, accumulated = (
        [line["loss"] for line in read_metrics(workdir / name / "metrics.jsonl") if line["split"] == "train"]
        for name in ("one", "one accumulated")
    )
    assert max(abs(a - b) for a, b in zip(one, accumulated, strict=True)) > 1e-3
