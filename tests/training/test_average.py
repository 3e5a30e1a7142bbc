"""The moving average of the parameters against optax.ema, and where it is read."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax import config as c
from bert_jax.config import OptimizerConfig
from bert_jax.training.checkpoint import Checkpoints, digests
from bert_jax.training.metrics import read_metrics
from bert_jax.training.optimizers import AveragedState, make_optimizer
from tests.helpers.synthetic import random_batch, synthetic_data, tiny_config, train
from tests.training.test_optimizers import AXES, SECTIONS, flat, random_tree
from tests.training.test_train import stepper

STEPS = 30


@pytest.mark.parametrize("decay", [0.5, 0.99, 0.9999])
def test_the_average_is_optaxs_debiased_ema(decay: float) -> None:
    optimizer = make_optimizer(OptimizerConfig(ema_decay=decay), AXES, SECTIONS)(0.1)
    params = jax.tree.map(jnp.asarray, random_tree(0))
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    jax.tree.map(np.testing.assert_array_equal, state.average, params)
    reference = optax.ema(decay, debias=True)
    sums = reference.init(params)
    for step in range(STEPS):
        updates, state = update(random_tree(step + 1), state, params)
        params = optax.apply_updates(params, updates)
        expected, sums = reference.update(params, sums)
    for (name, found), other in zip(flat(state.average).items(), flat(expected).values(), strict=True):
        # optax divides by 1 - decay^n in float32, which has few digits left where the decay is close to 1.
        np.testing.assert_allclose(found, other, rtol=2e-6 / (1 - decay), atol=1e-6, err_msg=name)


def test_the_update_is_the_same_with_and_without_an_average() -> None:
    params, gradients = random_tree(0), random_tree(1)
    plain, averaged = (make_optimizer(OptimizerConfig(ema_decay=decay), AXES, SECTIONS)(0.1) for decay in (None, 0.9))
    assert not isinstance(plain.init(params), AveragedState)
    found, expected = (one.update(gradients, one.init(params), params)[0] for one in (averaged, plain))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.slow
def test_a_skipped_update_leaves_the_average_alone() -> None:
    config = tiny_config()
    state, step = stepper(dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, ema_decay=0.9)))
    poisoned = random_batch(0, 8, 16)
    poisoned["masked_weights"] = np.full_like(poisoned["masked_weights"], np.nan)
    before, _ = step(state, random_batch(0, 8, 16))
    after, _ = step(before, poisoned)
    assert int(after.skipped) == 1
    assert digests(before.opt_state) == digests(after.opt_state)


@pytest.mark.slow
def test_the_average_is_evaluated_and_exported(tmp_path: pathlib.Path) -> None:
    """Resuming with an average is a case of tests/training/test_train.py."""
    seen = []

    def evaluate(params, frozen, batches):
        list(batches)
        seen.append(digests(params))
        return {"loss": 0.0}

    config = tiny_config(steps=2, phases=c.phases({"seq_len": 16}))
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, ema_decay=0.5))
    data = dataclasses.replace(synthetic_data(config), evaluate=evaluate)
    assert train(config, data, tmp_path)
    (line,) = (line for line in read_metrics(tmp_path / "metrics.jsonl") if line["split"] == "heldout")
    assert line["ema_decay"] == 0.5
    checkpoints = Checkpoints(tmp_path, config.checkpoint, read_only=True)
    params, record = checkpoints.restore_params(2)
    checkpoints.close()
    assert seen == [digests(params)]
    average, last = (
        {name.removeprefix(part): x for name, x in record["digests"].items() if name.startswith(part)}
        for part in ("opt_state.average.", "params.")
    )
    assert digests(params) == average != last
