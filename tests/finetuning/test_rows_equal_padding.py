"""Sequences in rows give the outputs, the loss and the gradients of padded sequences, on 1 and on 8 devices."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.rows import RowShape
from tests.helpers.rows_and_padding import (
    BATCH,
    ROWS,
    difference_on_mesh,
    gradient_function,
    make_task,
    padded_reference,
)
from tests.helpers.slow_cases import quick
from tests.helpers.tiny_models import MAX_POSITIONS

ROOT = pathlib.Path(__file__).resolve().parents[2]


def assert_trees_are_close(ours, theirs):
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5, err_msg=jax.tree_util.keystr(path))


CASES = [
    ("sequence_classification", "bert"),
    ("regression", "roberta"),
    ("token_classification", "distilbert"),
    ("question_answering", "electra"),
    ("multiple_choice", "albert"),
    ("multilabel_classification", "bert"),
    ("similarity", "bert"),
    ("reranking", "bert"),
    ("prompt_classification", "bert"),
    ("sequence_classification", "modernbert"),
    ("token_classification", "modernbert"),
]


def test_every_kind_is_compared():
    assert {kind for kind, _ in CASES} == set(KINDS)


QUICK = [
    ("sequence_classification", "bert"),
    ("similarity", "bert"),
    ("token_classification", "modernbert"),
]


@pytest.mark.parametrize(("kind", "family"), quick(CASES, *QUICK))
def test_outputs_loss_and_gradients_equal_padding(tmp_path, kind, family):
    model, objective, params, feed, features, batches = make_task(tmp_path, kind, family, RowShape(MAX_POSITIONS, 1))
    apply = jax.jit(lambda params, batch: model.apply(params, batch, None))
    gradients_of = gradient_function(objective)
    assert any(len(planned.indices) < BATCH for planned, _ in batches)
    for planned, batch in batches:
        assert len(batch["row_tokens"]) < batch["input_ids"].size // MAX_POSITIONS, "rows save nothing"
        in_rows = apply(params, batch)
        padded = apply(params, {name: x for name, x in batch.items() if name not in ROWS})
        real = batch["example_weights"] > 0
        token = (batch["attention_mask"] != 0) & real.reshape(-1, *[1] * (batch["attention_mask"].ndim - 1))
        for name, output in in_rows.items():
            of_tokens = output.shape[: token.ndim] == token.shape
            compared = token if of_tokens else real
            assert padded[name][compared].std() > 0.01
            np.testing.assert_allclose(output[compared], padded[name][compared], rtol=0, atol=1e-5, err_msg=name)
        loss, gradients = gradients_of(params, batch)
        expected = padded_reference(gradients_of, params, kind, feed, features, planned, batch)
        assert_trees_are_close((loss, gradients), expected)


@pytest.mark.parametrize("kind", ["sequence_classification", "similarity"])
def test_micro_batches_equal_padding(kind):
    """Of similarity, the cached gradient of rows equals the uncached gradient of the whole padded batch."""
    assert difference_on_mesh(kind, 4, 1, 1) < 1e-5


@pytest.mark.slow
def test_eight_devices_equal_padding():
    cases = [
        ("sequence_classification", 1, 8, 1),
        ("multiple_choice", 1, 4, 2),
        ("token_classification", 2, 4, 2),
        ("similarity", 2, 4, 2),
    ]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    run = subprocess.run(
        [sys.executable, "-m", "tests.helpers.rows_and_padding", json.dumps(cases)],
        cwd=ROOT,
        # NPROC sizes XLA's thread pool: with only as many threads as cores, waiting collectives fill it.
        env=os.environ | {"XLA_FLAGS": flags, "NPROC": "64", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    differences = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(differences) == len(cases)
    assert max(differences) < 1e-5, differences
