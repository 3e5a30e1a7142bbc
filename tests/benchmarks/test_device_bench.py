"""`make bench-device`: its parts at small sizes on the CPU, its deadline, failures, and a machine without torch."""

import importlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from benchmarks.device import __main__ as command
from benchmarks.device import child, packages, texts
from benchmarks.device.packages import TORCH
from benchmarks.device.report import Part, Report, Result
from benchmarks.device.supervise import supervise

ROOT = pathlib.Path(__file__).resolve().parents[2]
WITHOUT = "import runpy, sys; sys.modules.update(dict.fromkeys({modules})); sys.argv[1:] = {words}; "
RUN = "runpy.run_module('benchmarks.device', run_name='__main__')"
OPTIONAL = ("array_record", "grain", "orbax", "safetensors", "sentencex", "tensorboardX", "tokenizers", *TORCH)
RUNS = """
import os, pathlib, signal, sys, time
from benchmarks.device.child import run_parts
from benchmarks.device.report import Part, Report, Result

place, log = map(pathlib.Path, sys.argv[1:3])
with log.open("a") as started:
    print("started", file=started)

def checked(error=0.5):
    yield Result("checked", error=error, bound=1.0)

def wrong():
    yield from checked(2.0)

def hangs():
    time.sleep(600)
    yield Result("hangs")

def crashes():
    yield from checked()
    os.kill(os.getpid(), signal.SIGABRT)

def loses_the_device():
    raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

parts = [Part(name, globals()[name.split(",")[0]]) for name in sys.argv[3:]]
report = Report.read(place) if place.exists() else Report({"date": "today"}, place, sys.argv[3:])
run_parts(report, parts, lambda: False)
"""
COUNTS_HITS = """
import collections, jax, sys
from benchmarks.device.resume_check import without_cache

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rpartition("/")[2]]))

def hits():
    jax.clear_caches()
    events.clear()
    jax.jit(lambda x: x * 2 + 1)(1.0).block_until_ready()
    return events["cache_hits"]

hits()
found = [hits()]
with without_cache():
    found.append(hits())
print(*found, hits())
"""
LAYS_OUT = """
from benchmarks.device.model_check import CheckSize
from benchmarks.device.resume_check import run_config
from bert_jax.objectives import make_objective
from bert_jax.parallel.sharding import make_mesh
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import check_divisible_by_mesh

config = run_config(CheckSize("tiny", "modern_tiny", 32))
mesh = make_mesh(config.mesh)
check_divisible_by_mesh(mesh, make_objective(config), plan_phases(config.train), config.evaluate.batch_size)
print(dict(mesh.shape)["data"])
"""


def python(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, check=False)


def test_help_and_parts_need_core_packages_alone() -> None:
    code = WITHOUT.format(modules=OPTIONAL, words=["--help"])
    ended = python(f"{code}import benchmarks.device.parts; {RUN}")
    assert ended.returncode == 0, ended.stderr
    assert "--minutes" in ended.stdout


def test_a_missing_core_package_is_named_in_one_line() -> None:
    ended = python(WITHOUT.format(modules=("flax", "ml_collections"), words=[]) + RUN)
    assert (ended.returncode, ended.stderr) == (2, "not installed: flax, ml_collections\n")


@pytest.mark.parametrize(("cuda", "expected"), [("'13.0'", True), ("None", False)])
def test_torch_of_a_cpu_needs_no_memory_of_a_gpu(
    cuda: str, expected: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").write_text("raise ValueError('imported')")
    (tmp_path / "version.py").write_text(f"from typing import Optional\ncuda: Optional[str] = {cuda}\n")
    spec = importlib.util.spec_from_file_location("torch", tmp_path / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert packages.torch_uses_cuda() is expected


def test_a_full_run_on_a_cpu_is_refused(tmp_path: pathlib.Path) -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    place = tmp_path / "bench.json"
    place.write_text("of an earlier run")
    words = [sys.executable, "-m", "benchmarks.device", "--json", str(place)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert ended.returncode == 1
    assert "--tiny" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (tmp_path / "bench.previous.json").read_text() == "of an earlier run"


def test_a_failed_part_leaves_the_others_their_turn(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture) -> None:
    def breaks() -> list[Result]:
        raise ValueError("planted\nmore")

    def left_out() -> list[Result]:
        importlib.import_module("a_package_that_nobody_has")
        return []

    parts = [
        Part("breaks", breaks),
        Part("left", left_out),
        Part("wrong", lambda: [Result("wrong", error=float("nan"), bound=1.0)]),
        Part("right", lambda: [Result("right", error=0.0, bound=0.0), Result("fast", ms=1.5, tokens_per_second=2.0)]),
    ]
    report = Report({"date": "today"}, tmp_path / "found.json", [part.name for part in parts])
    child.run_parts(report, parts, lambda: True)
    assert report.finish() == 1
    assert Report.read(report.path).__dict__.keys() == report.__dict__.keys()
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failed"] == ["breaks", "wrong"]
    assert found["left_out"] == {"left": "a_package_that_nobody_has is not installed"}
    assert found["checks"] == {"run": 2, "failed": ["wrong"]}
    assert [one["name"] for one in found["results"]] == ["breaks", "wrong", "right", "fast"]
    printed = capsys.readouterr().out
    assert "FAILED: ValueError: planted" in printed
    assert "left out, a_package_that_nobody_has is not installed: left" in printed


def supervised(directory: pathlib.Path, seconds: float, *names: str) -> tuple[int, dict, int]:
    """Return the exit status, the JSON file and the number of processes of a run of the parts of RUNS."""
    place, log = directory / "found.json", directory / "log"
    command = [sys.executable, "-c", RUNS, str(place), str(log), *names]
    status = supervise(command, place, time.monotonic() + seconds)
    return status, json.loads(place.read_text()), log.read_text().count("started")


@pytest.fixture
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.usefixtures("in_checkout")
@pytest.mark.parametrize(("first", "status"), [("checked", 0), ("wrong", 1)])
@pytest.mark.slow
def test_the_deadline_ends_a_part_that_hangs_and_names_the_rest(
    first: str, status: int, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
) -> None:
    began = time.monotonic()
    found = supervised(tmp_path, 15, first, "hangs", "hangs, too")
    assert time.monotonic() - began < 300
    assert (found[0], found[2]) == (status, 1)
    assert capsys.readouterr().out.endswith("left out, no time left: hangs; hangs, too\n")
    assert list(found[1]["left_out"]) == ["hangs", "hangs, too"]
    assert (found[1]["running"], found[1]["waiting"]) == (None, [])


@pytest.mark.usefixtures("in_checkout")
def test_a_crash_fails_its_part_alone_and_a_new_process_runs_the_rest(tmp_path: pathlib.Path) -> None:
    status, found, starts = supervised(tmp_path, 300, "crashes", "loses_the_device", "crashes, too", "checked")
    assert (status, starts) == (1, 4)
    faults = {one["name"]: one["fault"] for one in found["results"] if "fault" in one}
    assert faults == {
        "crashes": "the process ended by SIGABRT",
        "loses_the_device": "RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS",
        "crashes, too": "the process ended by SIGABRT",
    }
    assert [one["name"] for one in found["results"] if not one["failed"]] == ["checked"] * 3
    assert (found["left_out"], found["running"], found["waiting"]) == ({}, None, [])
    assert found["date"] == "today"


def test_a_process_that_no_longer_starts_ends_the_run(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "found.json"
    ends = [sys.executable, "-c", "import sys; sys.exit(3)"]
    assert supervise(ends, place, time.monotonic() + 300) == 3  # before the first part
    report = Report({}, place, ["one", "two"])
    report.begin("one")
    assert supervise(ends, place, time.monotonic() + 300) == 1
    found = json.loads(place.read_text())
    assert found["failed"] == ["one"]
    assert found["left_out"] == {"two": "the process ended with status 3 before it began"}


@pytest.mark.parametrize(
    ("torch_runs", "given", "expected"),
    [
        (True, {}, "0.5"),
        (False, {}, None),
        (True, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}, None),
        (True, {"XLA_CLIENT_MEM_FRACTION": "0.8"}, "0.8"),
    ],
)
def test_memory_is_shared_with_torch_alone_and_the_environment_wins(
    torch_runs: bool, given: dict, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in command.FRACTIONS:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    command.share_memory(torch_runs)
    assert os.environ.get("XLA_CLIENT_MEM_FRACTION") == expected
    monkeypatch.delenv("XLA_CLIENT_MEM_FRACTION", raising=False)


def test_the_cpu_is_there_beside_the_platform_that_is_asked_for() -> None:
    code = (
        "import os; os.environ['JAX_PLATFORMS'] = 'cuda'; from benchmarks.device.child import use_cpu_as_well; "
        "use_cpu_as_well(); import jax; print(jax.config.values['jax_platforms'])"
    )
    assert python(code).stdout == "cuda,cpu\n"


def test_the_resume_check_compiles_anew_and_gives_the_cache_back(tmp_path: pathlib.Path) -> None:
    ended = python(COUNTS_HITS, str(tmp_path))
    assert ended.stdout == "1 0 1\n", ended.stderr


def test_the_resume_check_takes_three_devices() -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=3"
    ended = python(LAYS_OUT, JAX_PLATFORMS="cpu", XLA_FLAGS=flags)
    assert ended.stdout == "3\n", ended.stderr


def test_each_part_reports_why_the_corpus_fails(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ValueError("planted")

    prepare = texts.prepare
    monkeypatch.setattr(texts, "prepare", breaks)
    for _ in range(2):
        with pytest.raises(ValueError, match="planted"):
            texts.make_corpus(tmp_path, 20)
    monkeypatch.setattr(texts, "prepare", prepare)
    assert list(texts.time_input(tmp_path, 20, 32, 1, 2))
    assert [found.name for found in tmp_path.iterdir()] == ["corpus"]


@pytest.mark.slow
def test_every_part_runs_at_small_sizes(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "found.json"
    words = [sys.executable, "-m", "benchmarks.device", "--tiny", "--minutes", "30", "--json", str(place)]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(place.read_text())
    assert set(found["left_out"].values()) == {"no kernel for a cpu"}
    assert found["failed"] == []
    assert found["checks"]["run"] > 30
    names = " ".join(one["name"] for one in found["results"])
    assert all(word in names for word in ("fine-tuning", "embed", "packed", "resumed"))
    assert names.index("input") < names.index("torch compiled") < names.index("scanned layers")
    assert {"date", "versions", "device", "results"} <= found.keys()
