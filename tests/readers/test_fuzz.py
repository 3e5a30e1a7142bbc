"""`prepare` on trees of odd inputs: no traceback, no hang, every document counted, bounded memory.

BERT_JAX_FUZZED trees in `make test-slow`, 1,000 by default; `fuzzed_inputs.tree(Random(seed))` returns one of them.
"""

import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

from tests.helpers import fuzzed_inputs, fuzzing

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREES = int(os.environ.get("BERT_JAX_FUZZED", "1000"))
QUICK, TREES_PER_TEST = 60, 10
MAX_MEMORY = 640  # MiB of resident memory, about 80 of them for Python and the libraries


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    return fuzzing.make_tokenizers(tmp_path_factory.mktemp("tokenizers"))


@pytest.mark.parametrize("first", range(0, QUICK, TREES_PER_TEST))
def test_prepare_of_odd_inputs(tokenizers, first):
    found = [fuzzing.fault_of(seed, tokenizers) for seed in range(first, first + TREES_PER_TEST)]
    assert [fault for _, fault in found if fault] == []


def test_a_tree_depends_on_its_seed_alone():
    one, other = (fuzzed_inputs.tree(random.Random(1)) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("bomb", fuzzed_inputs.bombs(1 << 20), ids=lambda bomb: bomb.name)
def test_a_small_bomb(tokenizers, bomb, tmp_path):
    assert fuzzing.fault_of_bomb(bomb, tokenizers, tmp_path) == ""


@pytest.mark.slow
def test_many_trees_and_large_bombs_in_bounded_memory(tmp_path):
    """In a process of its own, so that its peak of memory is theirs."""
    command = [sys.executable, "-W", "error", "-m", "tests.helpers.fuzzing", str(tmp_path), "0", str(TREES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert found["outcomes"]["prepared, all documents known"] > TREES / 3
    assert found["outcomes"]["refused"] > TREES / 10
    assert found["MiB at the peak"] < MAX_MEMORY
