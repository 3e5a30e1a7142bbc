"""An objective, an optimizer and a schedule are one row each: toys are added in a test and touch no other file."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax import config as c
from bert_jax.errors import UserError
from bert_jax.models import Head, make_model
from bert_jax.objectives import OBJECTIVES, Objective, ObjectiveRow, make_objective
from bert_jax.objectives.losses import Mean
from bert_jax.training.metrics import read_metrics
from bert_jax.training.optimizers import OPTIMIZERS, make_optimizer
from bert_jax.training.schedules import SCHEDULES, learning_rate, plan_phases
from tests.helpers.synthetic import random_batch, synthetic_data, tiny_config, train


def with_values(**values: object) -> c.PretrainConfig:
    """The tiny config with values by dotted key, its choices checked as at the start of a run."""
    overrides = [f"--config.{key.replace('__', '.')}={value}" for key, value in values.items()]
    config = c.read_config(c.PretrainConfig, None, overrides)
    c.check_choices(config)
    return config


def norm_objective(architecture: c.EncoderConfig, compute: c.ComputeConfig) -> Objective:
    """Every token's hidden state is to have the squared length of 1: (|x|^2 - 1)^2, and the teacher's bias is read."""
    model = make_model(architecture, compute, (Head("hidden_states"),))

    def loss(params, frozen, batch, rngs, normalizers):
        last = model.apply(params, batch, rngs.dropout)["hidden_states"][-1]
        weights = batch["attention_mask"].astype(jnp.float32)
        mean = Mean.of((jnp.square(last).sum(-1) - frozen["target"]) ** 2, weights)
        return mean.total / normalizers["tokens"], {"norm_loss": mean}

    return Objective(
        init=model.init,
        normalizers=lambda batch: {"tokens": batch["attention_mask"].sum().astype(jnp.float32)},
        loss=loss,
        shapes=model.shapes,
        logical_axes=model.logical_axes,
        sections=model.sections,
        flops=lambda seq_len, phase: 1.0,
        num_heads=architecture.num_heads,
        frozen_axes={"target": ()},
        init_frozen=lambda rng: {"target": jnp.float32(0)},
    )


def test_an_objective_is_one_row(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains with a frozen parameter, which stays as it is, and resumes."""
    with pytest.raises(UserError, match=r"config\.objective='norm': choose from masked_tokens"):
        with_values(objective="norm")
    monkeypatch.setitem(
        OBJECTIVES, "norm", ObjectiveRow(lambda made: norm_objective(made.model, made.compute), lambda pairs: ())
    )
    assert with_values(objective="norm").objective == "norm"
    config = tiny_config(steps=12, log_every=1, phases=c.phases({"seq_len": 16}))
    config = c.from_json(c.to_json(config) | {"objective": "norm"})
    target = {"target": np.float32(1.0)}
    assert train(config, dataclasses.replace(synthetic_data(config), frozen=target), tmp_path)
    losses = [line["norm_loss"] for line in read_metrics(tmp_path / "metrics.jsonl") if line["split"] == "train"]
    # After the last LayerNorm |x|^2 is the width, 16, so the loss begins at 15^2, and falls as the scale shrinks.
    assert losses[0] == pytest.approx(15**2, rel=1e-3)
    assert losses[-1] < losses[0]
    assert [line["split"] for line in read_metrics(tmp_path / "metrics.jsonl")].count("heldout") > 0


def test_an_optimizer_of_optax_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "lion", lambda learning_rate, config, info: optax.lion(learning_rate))
    config = with_values(optimizer__name="lion", optimizer__clip_norm=None).optimizer
    objective = make_objective(tiny_config())
    params = jax.jit(objective.init)(jax.random.PRNGKey(0))
    gradients = jax.tree.map(jnp.ones_like, params)
    ours = make_optimizer(config, objective.logical_axes, objective.sections)(0.01)
    theirs = optax.lion(0.01)
    found, _ = ours.update(gradients, ours.init(params), params)
    expected, _ = theirs.update(gradients, theirs.init(params), params)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_schedule_of_optax_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        SCHEDULES, "restarts", lambda config, peak, warmup, total: optax.sgdr_schedule([
            {"init_value": 0.0, "peak_value": peak, "warmup_steps": warmup, "decay_steps": total // 2, "end_value": 0.0}
        ] * 2)
    )  # fmt: skip
    config = with_values(optimizer__schedule="restarts", train__steps=100, optimizer__warmup_steps=5)
    rates = [float(learning_rate(config.optimizer, plan_phases(config.train), np.int32(s))) for s in range(100)]
    assert rates[:50] == pytest.approx(rates[50:], rel=1e-6)
    assert max(rates) == pytest.approx(config.optimizer.peak_learning_rate)


def test_sampling_is_the_same_in_every_evaluation_and_another_in_every_step() -> None:
    """What an objective draws follows from the step in training, and from the batch's number in an evaluation."""
    from bert_jax.objectives.base import training_rngs
    from bert_jax.parallel import sharding
    from bert_jax.training.evaluation import make_evaluate

    config = tiny_config()
    model = norm_objective(config.model, config.compute)

    def loss(params, frozen, batch, rngs, normalizers):
        assert rngs.dropout is None
        drawn = jax.random.uniform(rngs.sampling)
        return drawn, {"drawn_loss": Mean(drawn, jnp.float32(1))}

    objective = dataclasses.replace(model, loss=loss)
    mesh = sharding.make_mesh(config.mesh)
    with jax.set_mesh(mesh):
        evaluate = make_evaluate(objective, mesh)
        found = [evaluate({}, (), iter([random_batch(0, 8, 16)] * number))["drawn_loss"] for number in (1, 2, 1)]
    assert found[0] == found[2] != found[1]
    keys = [training_rngs(jax.random.PRNGKey(step)) for step in range(3)]
    words = {tuple(np.asarray(key).tolist()) for one in keys for key in one}
    assert len(words) == 6
