"""The import of a report loads no library that only some of its work needs."""

import subprocess
import sys

import pytest

HEAVY = ("jax", "grain", "array_record", "sentencex", "tokenizers", "matplotlib")


@pytest.mark.parametrize(
    "module", ["bert_jax.reports.corpus.inspect", "bert_jax.batches.statistics", "bert_jax.corpus.mixture"]
)
def test_heavy_libraries_are_loaded_at_their_first_use(module: str) -> None:
    code = f"import {module}, sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
