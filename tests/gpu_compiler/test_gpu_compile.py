"""The verb `compile` with the CUDA compiler: its output, the GPUs of the table, programs that do not fit, mistakes."""

import json

import pytest

from bert_jax.dryrun.gpus import GPUS
from bert_jax.parallel.chips import CHIPS
from tests.helpers.dry_run_process import ROOT, dry_run, run

pytestmark = pytest.mark.gpu_compiler

DEMO = str(ROOT / "configs" / "demo.py")


def test_a_small_recipe_on_eight_gpus() -> None:
    found = dry_run(DEMO, "h100:8", "--price_per_chip_hour=3", "--config.compute.dtype=bfloat16")
    assert (found["devices"], found["chip"], found["mesh"]["data"]) == (8, "NVIDIA H100", 8)
    for one in found["phases"]:
        assert one["capacity_bytes_per_chip"] == 60 * 2**30, "JAX takes three quarters"
        assert one["fits"]
        assert 0 < one["seconds"][0] <= one["seconds"][1]
        assert {each["kind"] for each in one["collectives"]} == {"all-reduce"}
        assert one["kernels"]["cuBLAS product"] > 0
    hours = found["total"]["chip_hours"]
    assert found["total"]["cost"] == pytest.approx([3 * value for value in hours])
    assert found["total"]["energy_kwh"] == pytest.approx([0.7 * value for value in hours])


@pytest.mark.parametrize("gpu", [name for name in GPUS if name != "h100"])
def test_other_gpus(gpu: str) -> None:
    found = dry_run(DEMO, gpu, "--config.model.num_layers=1")
    assert found["devices"] == 1
    assert found["peak"]["flops_per_second"] == CHIPS[GPUS[gpu].device_kind].flops
    assert all(phase["fits"] and phase["collectives"] == [] for phase in found["phases"])


def test_deterministic_kernels_compile() -> None:
    found = dry_run(DEMO, "h100", "--config.model.num_layers=1", "--config.compute.deterministic=True")
    assert all(phase["fits"] for phase in found["phases"])


def test_a_program_that_does_not_fit_suggests_changes() -> None:
    words = ["--config", DEMO, "--topology=l40s", "--config.model.vocab_size=512", "--config.train.steps=10"]
    done = run(*words, "--config.train.batch_size=262144", "--json")
    assert done.returncode == 1, done.stderr
    first = json.loads(done.stdout)["phases"][0]
    assert first["total_bytes_per_chip"] > first["capacity_bytes_per_chip"]
    assert any("grad_accum_steps" in change for change in first["changes"])
