"""The verb `compile` with the TPU compiler: its output, programs that do not fit, and mistakes."""

import json

import pytest

from tests.helpers.dry_run_process import ROOT, dry_run, phase, run

pytestmark = pytest.mark.tpu

DEMO = str(ROOT / "configs" / "demo.py")


def test_a_small_recipe_on_four_chips() -> None:
    found = dry_run(DEMO, "v5e:2x2", "--price_per_chip_hour=1.2", "--watts_per_chip=200")
    assert (found["devices"], found["chip"], found["mesh"]["data"]) == (4, "TPU v5e", 4)
    for one in found["phases"]:
        assert one["capacity_bytes_per_chip"] == int(15.75 * 2**30)
        assert one["fits"]
        assert 0 < one["seconds"][0] <= one["seconds"][1]
        assert one["bound"] in ("compute", "memory", "interconnect")
        assert one["total_bytes_per_chip"] >= one["argument_bytes_per_chip"] + one["temporary_bytes_per_chip"]
    hours = found["total"]["chip_hours"]
    assert found["total"]["cost"] == pytest.approx([1.2 * value for value in hours])
    assert found["total"]["energy_kwh"] == pytest.approx([0.2 * value for value in hours])


def test_scanned_layers_cost_as_much_as_unrolled_layers() -> None:
    """XLA's own count of the unrolled program, which has no loops, against ours of the scanned program."""
    words = ("mini", "v5e:2x2", 64, 128)
    scanned, unrolled = phase(*words), phase(*words, "--config.compute.scan_layers=False")
    assert scanned["flops_per_chip"] == pytest.approx(unrolled["flops_per_chip"], rel=0.02)
    assert scanned["bytes_accessed_per_chip"] == pytest.approx(unrolled["bytes_accessed_per_chip"], rel=0.1)


def test_attention_by_xla_compiles_with_dropout() -> None:
    """A select of the probabilities crashed the compiler with 12 heads in bfloat16: causal models, and MPNet."""
    words = ("--config.compute.attention=xla", "--config.model.num_layers=2", "--config.compute.scan_layers=True")
    assert phase("base", "v5e:2x2", 64, 128, *words)["fits"]


def test_micro_batches_cost_as_many_flops_as_the_batch() -> None:
    words = ("tiny", "v5e:1x1", 64, 128)
    whole, parts = phase(*words), phase(*words, "--config.train.grad_accum_steps=4")
    assert parts["flops_per_chip"] == pytest.approx(whole["flops_per_chip"], rel=0.03)
    assert parts["temporary_bytes_per_chip"] < whole["temporary_bytes_per_chip"]
    assert whole["collectives"] == []


def test_packed_sequences_cost_little_more() -> None:
    """They have an extra operand of the kernel, positions looked up by a product, and a few more predictions."""
    words = ("mini", "v5e:2x2", 64, 128)
    plain, packed = phase(*words), phase(*words, "--config.data.packing=8")
    assert packed["argument_bytes_per_chip"] > plain["argument_bytes_per_chip"], "segments and where examples begin"
    assert packed["flops_per_chip"] <= 1.06 * plain["flops_per_chip"]
    assert packed["bytes_accessed_per_chip"] <= 1.05 * plain["bytes_accessed_per_chip"]


def test_a_program_that_does_not_fit_suggests_changes() -> None:
    words = ["--config=bert:tiny", "--topology", "v5e:1x1"]
    words += ["--config.train.batch_size=65536", "--config.train.phases[1].batch_size=4"]
    done = run(*words, "--json")
    assert done.returncode == 1, done.stderr
    first, second = json.loads(done.stdout)["phases"]
    assert (first["fits"], second["fits"]) == (False, True)
    assert first["total_bytes_per_chip"] > first["capacity_bytes_per_chip"]
    assert first["flops_per_chip"] is None
    change = next(one.split()[0] for one in first["changes"] if "grad_accum_steps" in one)
    assert run(*words, change).returncode == 0


@pytest.mark.parametrize("topology", ["v4:2x2x1", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1"])
def test_other_chips(topology: str) -> None:
    found = dry_run(DEMO, topology, "--config.model.num_layers=1")
    assert found["chips"] == 4
    assert all(one["fits"] for one in found["phases"])


def test_reductions_on_the_sparse_cores_of_a_tpu7x_are_counted() -> None:
    """The gradient of 8 devices on 4 chips, and no more than padding and a second table beside it."""
    found = dry_run(DEMO, "tpu7x:2x2x1", "--config.model.num_layers=1", "--config.model.vocab_size=512")
    assert (found["devices"], found["chips"], found["mesh"]["data"]) == (8, 4, 8)
    (one,) = found["phases"]
    assert one["capacity_bytes_per_chip"] == int(94.75 * 2**30)
    (reduced,) = one["collectives"]
    assert reduced["kind"] == "all-reduce"
    assert 4 * found["parameters"] <= reduced["bytes"] <= 4 * (found["parameters"] + 640 * 192)


@pytest.mark.parametrize("mesh", [("data=8",), ("data=2", "fsdp=4")])
def test_two_slices_exchange_gradients_alone(mesh: tuple[str, ...]) -> None:
    """Of the gradients, each of the 4 chips of a slice sends a quarter, and what XLA pads them with."""
    words = ["--config.model.num_layers=1", "--config.model.vocab_size=512", "--config.train.batch_size=64"]
    found = dry_run(DEMO, "v5e:2x2:2", *words, *(f"--config.mesh.{size}" for size in mesh))
    assert found["devices"] == 8
    assert any("2 slices" in note for note in found["notes"])
    quarter = 4 * found["parameters"] / 4
    assert quarter <= found["phases"][0]["dcn_bytes_per_chip"] <= 1.5 * quarter


def test_mistakes_end_with_status_2() -> None:
    for words, says in [
        (["--topology=v5e:3x5"], "use whole hosts"),
        (["--topology=v5e:2x2", "--config.mesh.data=3"], "does not divide 4 devices"),
        (["--topology=v5e:2x2", "--config.train.batch_size=6"], "use 4 or 8"),
        (
            ["--topology=v5e:2x2:2", "--config.mesh.data=1", "--config.mesh.fsdp=8"],
            "multiple of the number of slices, 2",
        ),
    ]:
        done = run("--config", DEMO, *words)
        assert done.returncode == 2, done.stderr
        assert says in done.stderr
        assert not done.stdout
        assert len(done.stderr.splitlines()) <= 2
