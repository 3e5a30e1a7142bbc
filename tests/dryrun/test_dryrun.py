"""The dry run: its counts against closed forms on virtual devices, its arithmetic, and the verb `compile`."""

import dataclasses
import functools
import json
import math
import os
import pathlib
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bert_jax.cli.main import main
from bert_jax.dryrun import gpus, topology
from bert_jax.dryrun.dry_run import PhaseReport, Report, recipe_total
from bert_jax.dryrun.estimate import Machine, estimate_step_time, peak_figures_of_device
from bert_jax.dryrun.hlo_cost import Collective, Cost
from bert_jax.dryrun.report import report_json, report_text
from bert_jax.errors import UserError
from bert_jax.models import PRESETS, Head, count_parameters, padded_vocab
from bert_jax.parallel.chips import CHIPS, fraction_of_chip
from bert_jax.parallel.memory import BatchSettings, Memory, overrides_to_fit_memory
from bert_jax.training.schedules import Phase
from bert_jax.verbs import compile_recipe
from tests.helpers.dryrun_meshes import LENGTH, ROWS, SIZES

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = {
    "data": {"mesh": [8, 1, 1], "grad_accum_steps": 1},
    "accumulated": {"mesh": [8, 1, 1], "grad_accum_steps": 4},
    "fsdp": {"mesh": [1, 8, 1], "grad_accum_steps": 1},
    "tensor": {"mesh": [1, 1, 8], "grad_accum_steps": 1},
}
HIDDEN, LAYERS, MLP, VOCABULARY = SIZES["hidden_size"], SIZES["num_layers"], SIZES["mlp_size"], SIZES["vocab_size"]
LAYER_KERNELS = 4 * LAYERS * (4 * HIDDEN**2 + 2 * HIDDEN * MLP)  # bytes in float32
TABLE = 4 * VOCABULARY * HIDDEN
PARAMETERS = (
    TABLE  # tied: embedding and output
    + LAYER_KERNELS
    + 4 * LAYERS * (4 * HIDDEN + MLP + HIDDEN + 4 * HIDDEN)  # their biases, two LayerNorms
    + 4 * (SIZES["max_positions"] + 2 + 2) * HIDDEN  # positions, token types, LayerNorm of the embeddings
    + 4 * (HIDDEN**2 + 3 * HIDDEN + VOCABULARY)  # masked-token head
    + 4 * (HIDDEN**2 + HIDDEN + 2 * HIDDEN + 2)  # pooler, next-sentence head
)


@functools.cache
def phase_on(name: str) -> dict[str, Any]:
    """The report of the one phase on a mesh of eight devices."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "helpers" / "dryrun_meshes.py", json.dumps({name: RUNS[name]})],
        env=os.environ
        | {
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8",
            "NPROC": "64",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[name]["phases"][0]


def moved(phase: dict[str, Any]) -> dict[str, int]:
    return {collective["kind"]: collective["bytes"] for collective in phase["collectives"]}


def test_flops_are_the_models_and_little_more() -> None:
    tokens, predicted = ROWS * LENGTH / 8, round(0.15 * LENGTH) * ROWS / 8
    products = 6 * tokens * LAYER_KERNELS / 4 + 3 * 4 * LAYERS * LENGTH * HIDDEN * tokens  # kernels; scores and sums
    products += 6 * predicted * (VOCABULARY * HIDDEN + HIDDEN**2)
    assert phase_on("data")["model_flops_per_chip"] == pytest.approx(products, rel=0.01)
    # the element-wise work of so narrow a model is a tenth
    assert 1 <= phase_on("data")["flops_per_chip"] / products <= 1.2


def test_data_parallel_reduces_the_gradient_and_gathers_nothing() -> None:
    found = moved(phase_on("data"))
    assert phase_on("data")["parameter_bytes_per_chip"] == PARAMETERS
    assert set(found) == {"all-reduce"}
    # XLA's CPU backend reduces the gradients of the tied table's two uses apart.
    assert PARAMETERS <= found["all-reduce"] <= 1.01 * (PARAMETERS + TABLE)


@pytest.mark.slow
def test_accumulation_reduces_the_gradient_once() -> None:
    """Each parameter once, after the loop over micro-batches; the work of a step is the same."""
    once, four = phase_on("data"), phase_on("accumulated")
    assert four["flops_per_chip"] == pytest.approx(once["flops_per_chip"], rel=0.03)
    assert moved(four)["all-reduce"] == pytest.approx(PARAMETERS, rel=0.01)
    assert four["temporary_bytes_per_chip"] < once["temporary_bytes_per_chip"] + 2 * PARAMETERS


@pytest.mark.slow
def test_fsdp_gathers_each_kernel_forward_and_backward() -> None:
    found = moved(phase_on("fsdp"))
    kernels = 2 * LAYER_KERNELS + TABLE + 2 * 4 * HIDDEN**2  # those of the heads stay gathered for the backward pass
    assert found["all-gather"] == pytest.approx(kernels, rel=0.05)
    # The CPU backend has no reduce-scatter: it reduces all and takes its part.
    assert found["all-reduce"] <= 1.01 * (PARAMETERS + TABLE)
    assert phase_on("fsdp")["parameter_bytes_per_chip"] < PARAMETERS / 6


@pytest.mark.slow
def test_tensor_parallel_reduces_activations() -> None:
    """Forward: after attention and mlp. Backward: before the mlp, and before query, key and value, three sums."""
    activation = 4 * ROWS * LENGTH * HIDDEN
    lookup, layers = 1, LAYERS * (2 + 1 + 3)
    assert moved(phase_on("tensor"))["all-reduce"] == pytest.approx((lookup + layers) * activation, rel=0.03)


# A chip with round figures: 100 FLOP/s, 10 bytes/s to memory, 1 byte/s sent.
ROUND = Machine(100.0, 10.0, 1.0, 1000, "made up")
COST = Cost(400.0, 80.0, 30.0, (Collective("all-reduce", 2, 4, 2.0),), {"fusion": 3})


def test_bounds_and_range() -> None:
    found = estimate_step_time(COST, ROUND)
    assert (found.compute, found.memory, found.interconnect) == (4.0, 3.0, 2.0)
    assert found.bound == "compute"
    assert found.fastest == 4.0
    assert found.slowest == 4.0 / 0.5 + 80 / 10 + 2.0


def test_unknown_figures_are_left_out() -> None:
    found = estimate_step_time(COST, Machine(None, None, None, None, "unknown"))
    assert found == (None,) * 6
    assert estimate_step_time(COST, ROUND._replace(flops=None)).bound == "memory"


def report(*phases: PhaseReport) -> Report:
    return Report(
        name="chip",
        devices=8,
        chips=4.0,
        watts=None,
        machine=ROUND,
        mesh={"data": 8, "fsdp": 1, "tensor": 1},
        parameters=7,
        notes=(),
        phases=phases,
    )


def phase(fits: bool = True, steps: int = 3600, index: int = 0) -> PhaseReport:
    changes = () if fits else ("--config.compute.remat=True",)
    costs = COST if fits else None
    return PhaseReport(
        phase=Phase(end=steps, seq_len=128, batch_size=16, index=index),
        tokens=16 * 128,
        parameter_bytes=10,
        optimizer_bytes=20,
        memory=Memory(40, 100, 140 if fits else 1400),
        fits=fits,
        changes=changes,
        model_flops=390.0,
        cost=costs,
        estimate=estimate_step_time(costs, ROUND) if costs else None,
        compile_seconds=1.0,
    )


def test_the_whole_recipe() -> None:
    found = recipe_total(report(phase(), phase(steps=1800)), price_per_chip_hour=2.0, watts_per_chip=500.0)
    assert (found.steps, found.tokens) == (5400, 5400 * 16 * 128)
    assert found.chip_hours == (4.0 * 1.5 * 4, 18.0 * 1.5 * 4)  # seconds a step x hours of steps x chips
    assert found.days == (4.0 * 1.5 / 24, 18.0 * 1.5 / 24)
    assert found.cost == (48.0, 216.0)
    assert found.energy_kwh == (12.0, 54.0)
    bare = recipe_total(report(phase()), None, None)
    assert (bare.cost, bare.energy_kwh) == (None, None)


@pytest.mark.parametrize("option", ["price_per_chip_hour", "watts_per_chip"])
def test_an_impossible_price_or_power_is_refused_before_any_work(option, capsys) -> None:
    with pytest.raises(UserError, match=f"--{option} -1: give a number above 0"):
        compile_recipe("no_such_recipe", **{option: -1.0})
    assert main(["compile", "--config=no_such_recipe", f"--{option}=nan"]) == 2
    assert f"--{option} nan: give a number above 0" in capsys.readouterr().err


def test_a_phase_that_does_not_fit_leaves_the_total_unknown() -> None:
    found = report(phase(), phase(), phase(fits=False, index=1))
    whole = recipe_total(found, None, None)
    assert whole.days is None
    text = report_text(found, whole)
    assert "phase 2 does not fit in memory" in text
    assert "--config.compute.remat=True" in text
    values = report_json(found, whole)
    json.dumps(values, allow_nan=False)
    assert [one["fits"] for one in values["phases"]] == [True, True, False]
    assert values["phases"][2]["flops_per_chip"] is None


class Shape:
    """The part of a mesh that `overrides_to_fit_memory` reads."""

    def __init__(self, **shape: int) -> None:
        self.shape = shape


@pytest.mark.parametrize(
    ("parameters", "memory", "changes"),
    [
        # activations alone: 64 sequences per device; a quarter of 3,600 and 40 of arguments fit into 1,000
        (
            10,
            Memory(40, 3600, 3640),
            ["phases[0].grad_accum_steps=4 (16 sequences per device at a time instead of 64)"],
        ),
        # parameters alone: a quarter of 3,000 fits
        (1000, Memory(3000, 100, 3100), ["--config.mesh.data=2 --config.mesh.fsdp=4"]),
        (10, Memory(40, 1100, 1140), ["--config.compute.remat=True", "grad_accum_steps=2"]),
        (9000, Memory(27000, 27000, 54000), []),
    ],
)
def test_suggested_changes(parameters: int, memory: Memory, changes: list[str]) -> None:
    mesh: Any = Shape(data=8, fsdp=1, tensor=1)
    settings = BatchSettings(512, 128, 1, False, "config.train.phases[0]")
    found = overrides_to_fit_memory(memory, 1000, mesh, settings, parameters)
    assert len(found) == len(changes)
    for change, expected in zip(found, changes, strict=True):
        assert expected in change


def test_a_core_of_a_tpu7x_has_half_of_its_chip() -> None:
    """By Google's page: 2,307 TFLOP/s and 1,200 GB/s in both directions a chip; 94.75 GiB a device by the compiler."""
    device = SimpleNamespace(device_kind="TPU7x", num_cores=1)
    half = peak_figures_of_device(CHIPS[device.device_kind], fraction_of_chip(device))
    assert half[:4] == (1153.5e12, 3.69e12, 300e9, 97_024 * 2**20)


def test_the_table_of_chips() -> None:
    for chip in CHIPS.values():
        figures = peak_figures_of_device(chip, 1.0)
        # Balance points of accelerators lie at a hundred to a thousand FLOPs a byte.
        assert 100 < chip.flops / chip.hbm_bandwidth < 1000
        assert figures.capacity is not None
        assert 15 * 2**30 < figures.capacity < 200 * 2**30
        assert chip.interconnect < chip.hbm_bandwidth


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("v5f:2x2", "did you mean 'v5"),
        ("v5e", "has 2 sizes"),
        ("v4:2x2", "such as v4:2x2x1"),
        ("tpu7x:4x4", "such as tpu7x:2x2x1"),
        ("tpu7:4x4", "did you mean 'tpu7x'"),
        ("v5e:0x4", "has 2 sizes"),
        ("v5e:2x2;rm", "has 2 sizes"),
        ("v5e:2x2:0", r"such as v5e:4x4 \(v5e:4x4:2 for two slices\)"),
        ("v5e:2x2:", "has 2 sizes"),
        ("h100:8:2", "1 to 8 GPUs"),
        ("h10:8", "did you mean 'h100'"),
        ("h100:9", "1 to 8 GPUs of one host"),
        ("h100:", "such as h100:8"),
        ("a100:2x2", "1 to 8 GPUs"),
        ("v5e-63", "there are v5e-1, v5e-4, v5e-8"),
        ("v5p-4", "there are v5p-8, v5p-16"),
        ("v5litepod-", "unknown chip 'v5litepod-'"),
    ],
)
def test_names_of_slices(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        topology.parse_topology(name)


def test_names_of_gpus_and_slices() -> None:
    assert topology.parse_topology("h100") == ("h100", (1,), 1)
    assert topology.parse_topology("l40s:8") == ("l40s", (8,), 1)
    assert topology.parse_topology("v5e:16x8") == ("v5e", (16, 8), 1)
    assert topology.parse_topology("v5p:2x2x4:12") == ("v5p", (2, 2, 4), 12)
    assert topology.parse_topology("tpu7x:4x4x8") == ("tpu7x", (4, 4, 8), 1)


def test_accelerator_types_of_the_cloud() -> None:
    assert topology.parse_topology("v5litepod-64") == topology.parse_topology("v5e-64") == ("v5e", (8, 8), 1)
    for kind, sizes_of in (("v6e", topology.CLOUD_SIZES[2]), ("v5p", topology.CLOUD_SIZES[3])):
        for count in sizes_of:
            chip, sizes, slices = topology.parse_topology(f"{kind}-{count}")
            assert (chip, slices) == (kind, 1)
            assert math.prod(sizes) == count // (2 if kind == "v5p" else 1)


def test_descriptions_of_gpus_agree_with_the_table_of_chips() -> None:
    """Peak FLOP/s is processors x clock x the FLOPs of a processor's matrix units, a power of two by generation.

    The boost clock of the tensor cores' peak is lower than the largest clock on Hopper and Blackwell.
    """
    per_clock = {(8, 0): 2048, (8, 9): 1024, (9, 0): 4096, (10, 0): 8192}
    for gpu in gpus.GPUS.values():
        peak = gpu.processors * gpu.gigahertz * 1e9 * per_clock[gpu.capability]
        assert CHIPS[gpu.device_kind].flops == pytest.approx(peak, rel=0.1)
        text = gpus.xla_target_config_text(gpu)
        assert text.count("{") == text.count("}")
        assert f'device_description_str: "{gpu.device_kind}"' in text
        assert f"memory_bandwidth: {CHIPS[gpu.device_kind].hbm_bandwidth:.0f}\n" in text


def test_the_error_without_the_cuda_compiler_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'jax\[cuda13-local\]'"):
        topology.compile_only_devices("h100:8")


def test_the_error_without_libtpu_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'jax\[tpu\]'"):
        topology.compile_only_devices("v5e:2x2")


SMALL = [
    f"--config={ROOT / 'configs' / 'small_cpu.py'}",
    "--config.model.vocab_size=512",
    "--config.optimizer.name=adamw",
    "--config.model.num_layers=1",
    "--config.train.steps=100",
]


def test_the_verb_prints_one_object_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", *SMALL, "--json", "--price_per_chip_hour=2"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert [(one["seq_len"], one["batch_size"], one["steps"]) for one in found["phases"]] == [
        (64, 64, 80),
        (128, 32, 20),
    ]
    for one in found["phases"]:
        assert one["fits"] is True
        assert one["capacity_bytes_per_chip"] is None
        assert one["collectives"] == []
        assert 0 < one["model_flops_per_chip"] < one["flops_per_chip"]
        assert one["argument_bytes_per_chip"] >= one["parameter_bytes_per_chip"] + one["optimizer_bytes_per_chip"]
        assert one["optimizer_bytes_per_chip"] == pytest.approx(2 * one["parameter_bytes_per_chip"], rel=1e-3)
    assert found["total"]["tokens"] == 100 * 64 * 64
    assert found["total"]["cost"][0] == pytest.approx(2 * found["total"]["chip_hours"][0])
    assert "compiling program 2 of 2" in err


RECIPE = """
from bert_jax.config import phases, pretrain_config
def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=8, num_layers=1, num_heads=1, mlp_size=8, max_positions=8)
    config.train.update(batch_size=4)
    config.train.phases = phases({"seq_len": 8})
    return config
"""


@pytest.mark.slow
def test_a_growing_batch_has_a_column_for_each_size(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its steps are counted at their own sizes."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    words = ["--config.train.phases[0].batch_stages=2", "--config.train.steps=9", "--config.model.vocab_size=100"]
    words += ["--config.optimizer.warmup_fraction=0"]
    assert main(["compile", f"--config={tmp_path / 'recipe.py'}", *words, "--json"]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert [(one["batch_size"], one["steps"]) for one in found["phases"]] == [(2, 4), (4, 5)]
    assert found["total"]["tokens"] == 8 * (4 * 2 + 5 * 4)
    assert found["total"]["steps"] == 9
    flops = [one["model_flops_per_chip"] for one in found["phases"]]
    assert flops[1] == 2 * flops[0]
    assert found["total"]["model_flops"] == 4 * flops[0] + 5 * flops[1]
    assert "compiling program 2 of 2" in err


@pytest.mark.slow
def test_the_verb_prints_a_table(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    assert main(["compile", f"--config={tmp_path / 'recipe.py'}"]) == 0
    out = capfd.readouterr().out
    assert "assuming a vocabulary of 30,522" in out
    rows = {line[:24].strip(): line.split()[-1] for line in out.splitlines() if line}
    assert rows["sequences per step"] == "4"
    assert rows["capacity"] == "unknown"
    assert rows["limited by"] == "compute"


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "linear"), [("longformer_base", True), ("big_bird_base", True), ("base", False)])
def test_memory_and_work_of_windows_are_linear_in_the_length(
    preset: str, linear: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Steps of as many tokens need as much at 1,024, 4,096 and 8,192 tokens a sequence; those of all pairs more."""
    sizes = ["hidden_size=16", "num_layers=1", "num_heads=2", "mlp_size=16", "vocab_size=128"]
    sizes += ["local_window=128"] if preset == "longformer_base" else []
    words = [f"--config={ROOT / 'benchmarks' / 'long_inputs.py'}:{preset}", *(f"--config.model.{one}" for one in sizes)]
    assert main(["compile", *words, "--json"]) == 0
    phases = json.loads(capfd.readouterr().out)["phases"]
    assert [(one["seq_len"], one["batch_size"]) for one in phases] == [(1024, 8), (4096, 2), (8192, 1)]
    for name in ("temporary_bytes_per_chip", "flops_per_chip", "bytes_accessed_per_chip"):
        first, *longer = (one[name] for one in phases)
        assert all((more < 1.2 * first) == linear for more in longer), name


@pytest.mark.slow
def test_a_preset_is_teacher_enough(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its parameters are on the device, beside those of the student and its moments."""
    (tmp_path / "recipe.py").write_text(RECIPE)
    student = ["hidden_size=128", "num_heads=2", "mlp_size=512", "max_positions=512", "vocab_size=200"]
    words = [f"--config.model.{one}" for one in student]
    words += [
        "--config.objective=distillation",
        "--config.data.sentence_pairs=none",
        "--config.distillation.teacher=tiny",
    ]
    assert main(["compile", f"--config={tmp_path / 'recipe.py'}", *words, "--json"]) == 0
    (found,) = json.loads(capfd.readouterr().out)["phases"]
    student_bytes = found["parameter_bytes_per_chip"] + found["optimizer_bytes_per_chip"]
    teacher = dataclasses.replace(PRESETS["tiny"], vocab_size=200)
    teacher_bytes = 4 * count_parameters(teacher, (Head("masked_token"),))
    padding = 4 * (padded_vocab(200) - 200) * (128 + 1)
    assert 0 < found["argument_bytes_per_chip"] - student_bytes - teacher_bytes - padding < 10_000  # the batch


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--config.mesh.data=3"], "does not divide"),
        (["--config.data.corpus=nowhere"], "nowhere"),
        (["--topology=v9:2x2"], "unknown chip 'v9'"),
    ],
)
def test_mistakes_end_with_status_2(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", *SMALL, *words]) == 2
    assert says in capsys.readouterr().err


def test_an_unknown_option_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compile", *SMALL, "--topolgy=v5e:2x2"])
    assert ended.value.code == 2
    assert "did you mean '--topology'" in capsys.readouterr().err
