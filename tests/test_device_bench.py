"""`make bench-device`: its parts at small sizes on the CPU, its deadline, what fails, and a machine without torch."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

from benchmarks.device import __main__ as command
from benchmarks.device import texts
from benchmarks.device.report import LeftOutError, Part, Report, Result

ROOT = pathlib.Path(__file__).resolve().parents[1]
WITHOUT_TORCH = "import runpy, sys; sys.modules.update(torch=None, transformers=None); sys.argv[1:] = {words}; "
HANGS = """
import pathlib, sys, time
from benchmarks.device.report import Part, Report, Result

def checked():
    yield Result("one", error={error}, bound=1.0)

def hangs():
    time.sleep(600)
    yield Result("two")

report = Report({{}}, pathlib.Path(sys.argv[1]))
report.end_at(time.monotonic() + 1, lambda: print("cleaned", flush=True))
report.run([Part("one", checked), Part("two", hangs), Part("three", hangs)])
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
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import check_layout

config = run_config(CheckSize("tiny", "modern_tiny", 32))
print(dict(check_layout(config, make_objective(config), plan_phases(config.train)).shape)["data"])
"""


def python(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environment, check=False)


def test_help_and_parts_need_no_torch() -> None:
    code = WITHOUT_TORCH.format(words=["--help"])
    ended = python(f"{code}import benchmarks.device.parts; runpy.run_module('benchmarks.device', run_name='__main__')")
    assert ended.returncode == 0, ended.stderr
    assert "--minutes" in ended.stdout


def test_a_full_run_on_a_cpu_is_refused() -> None:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    words = [sys.executable, "-m", "benchmarks.device"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert ended.returncode == 1
    assert "--tiny" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_failed_part_leaves_the_others_their_turn(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture) -> None:
    def breaks() -> list[Result]:
        raise ValueError("planted\nmore")

    def left_out() -> list[Result]:
        raise LeftOutError("torch not installed")

    parts = [
        Part("breaks", breaks),
        Part("left", left_out),
        Part("wrong", lambda: [Result("wrong", error=float("nan"), bound=1.0)]),
        Part("right", lambda: [Result("right", error=0.0, bound=0.0), Result("fast", ms=1.5, tokens_per_second=2.0)]),
    ]
    assert Report({"date": "today"}, tmp_path / "found.json").run(parts) == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failed"] == ["breaks", "wrong"]
    assert found["left_out"] == {"left": "torch not installed"}
    assert found["checks"] == {"run": 2, "failed": ["wrong"]}
    assert [one["name"] for one in found["results"]] == ["breaks", "wrong", "right", "fast"]
    printed = capsys.readouterr().out
    assert "FAILED: ValueError: planted" in printed
    assert "left out, torch not installed: left" in printed


@pytest.mark.parametrize(("error", "status"), [(0.5, 0), (2.0, 1)])
def test_the_deadline_ends_a_part_that_hangs_and_names_the_rest(
    tmp_path: pathlib.Path, error: float, status: int
) -> None:
    began = time.monotonic()
    ended = python(HANGS.format(error=error), str(tmp_path / "found.json"))
    assert time.monotonic() - began < 300
    assert ended.returncode == status, ended.stderr
    assert ended.stdout.endswith("left out, no time left: two; three\ncleaned\n")
    assert list(json.loads((tmp_path / "found.json").read_text())["left_out"]) == ["two", "three"]


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
        "import os; os.environ['JAX_PLATFORMS'] = 'cuda'; from benchmarks.device.__main__ import use_cpu_as_well; "
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
    assert all(word in names for word in ("torch compiled", "fine-tuning", "embed", "input", "packed", "resumed"))
    assert {"date", "versions", "device", "results"} <= found.keys()
