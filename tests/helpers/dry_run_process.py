"""Dry runs in separate processes, for the tests of the TPU and of the CUDA compiler."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import pytest

from bert_jax.dryrun.gpus import GPUS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The finished process of `python -m bert_jax compile WORDS`."""
    gpu = any(word.removeprefix("--topology=").startswith(tuple(GPUS)) for word in words)
    compiler, target = ("jax_cuda13_plugin", "test-gpu-compiler") if gpu else ("libtpu", "test-tpu")
    if importlib.util.find_spec(compiler) is None:
        pytest.skip(f"{compiler} is not installed; `make {target}` installs it")
    env = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    command = [sys.executable, "-m", "bert_jax", "compile", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def dry_run(config: str, topology: str, *words: str) -> dict[str, Any]:
    """The object that `--json` prints; nothing else is on stdout."""
    done = run("--config", config, "--topology", topology, *words, "--json")
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


RECIPE = """
from bert_jax.config import phases
from bert_jax.config.recipes import bert_recipe_of_devlin2019

def get_config():
    config = bert_recipe_of_devlin2019({size!r})
    config.train.batch_size = {rows}
    config.train.phases = phases({{"seq_len": {length}}})
    config.evaluate.batch_size = {rows}
    config.compute.scan_layers = {size!r} != "base"
    return config
"""


def phase(size: str, topology: str, rows: int, length: int, *words: str) -> dict[str, Any]:
    """The report of a recipe with one phase, of `rows` sequences per step over all chips."""
    with tempfile.TemporaryDirectory() as place:
        recipe = pathlib.Path(place) / "recipe.py"
        recipe.write_text(RECIPE.format(size=size, rows=rows, length=length))
        return dry_run(str(recipe), topology, *words)["phases"][0]
