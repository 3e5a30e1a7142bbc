"""The step and the loop: against torch, on another mesh, in other micro-batches, and after a stop."""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import MeshConfig, PretrainConfig
from bert_jax.errors import UserError
from bert_jax.objectives import make_objective
from bert_jax.parallel import sharding
from bert_jax.training import checkpoint as cadence
from bert_jax.training.checkpoint import digests
from bert_jax.training.metrics import read_metrics
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.plan import Data
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import TrainState, init_state, train_step
from tests.helpers.synthetic import NO_DROPOUT, random_batch, synthetic_data, tiny_config, train
from tests.helpers.tensorboard_events import shown


def stepper(config: PretrainConfig, grad_accum_steps: int = 1):
    objective = make_objective(config)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    state = jax.jit(functools.partial(init_state, config.seed, objective, optimizer))()
    phases = plan_phases(config.train)
    phase = dataclasses.replace(phases[0], grad_accum_steps=grad_accum_steps)
    return state, jax.jit(
        functools.partial(
            train_step,
            objective,
            optimizer,
            functools.partial(learning_rate, config.optimizer, phases),
            phase.grad_accum_steps,
        )
    )


def no_dropout(**model: object) -> dict:
    return {"dropout": 0.0, "attention_dropout": 0.0} | model


@pytest.mark.slow
def test_accumulation_changes_nothing_but_rounding() -> None:
    """Micro-batches hold different numbers of masked tokens, so that a mean of means would show."""
    config = tiny_config(model=no_dropout())
    batch = random_batch(0, 8, 16)
    assert len(set(batch["masked_weights"].sum(1))) > 1
    results = []
    for grad_accum_steps in (1, 2, 4):
        state, step = stepper(config, grad_accum_steps)
        for _ in range(3):
            state, metrics = step(state, batch)
        results.append((state, metrics))
    for state, metrics in results[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), state.params, results[0][0].params)
        np.testing.assert_allclose(
            metrics["means"]["mlm_loss"].total, results[0][1]["means"]["mlm_loss"].total, rtol=1e-5
        )


@pytest.mark.slow
def test_accumulation_needs_the_memory_of_one_micro_batch() -> None:
    config = tiny_config(model=no_dropout(hidden_size=64, mlp_size=256))
    batch = random_batch(0, 64, 24)

    def temporaries(grad_accum_steps: int) -> int:
        state, step = stepper(config, grad_accum_steps)
        return step.lower(state, batch).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(8) < temporaries(1) / 2


def test_not_finite_updates_are_skipped_and_counted() -> None:
    state, step = stepper(tiny_config())
    good, bad = random_batch(0, 8, 16), random_batch(8, 8, 16)
    bad["masked_weights"] = np.full_like(bad["masked_weights"], np.nan)
    before, _ = step(state, good)
    after, metrics = step(before, bad)
    assert digests((before.params, before.opt_state)) == digests((after.params, after.opt_state))
    assert [int(x) for x in (after.step, after.skipped, after.skipped_in_a_row)] == [2, 1, 1]
    assert all(mean.weight == 0 for mean in metrics["means"].values())
    later, _ = step(after, good)
    assert [int(x) for x in (later.step, later.skipped, later.skipped_in_a_row)] == [3, 1, 0]
    assert digests(later.params) != digests(before.params)


def test_too_many_bad_steps_stop_the_run(tmp_path: pathlib.Path) -> None:
    config = tiny_config(max_skipped_steps=3)

    def poisoned(phase, step):
        for batch in synthetic_data(config).batches(phase, step):
            yield batch | {"masked_weights": np.full_like(batch["masked_weights"], np.inf)}

    data = Data(batches=poisoned)
    with pytest.raises(UserError, match="not finite for 3 consecutive steps"):
        train(config, data, tmp_path)


def test_a_step_ignores_labels_of_weight_0() -> None:
    """Label 0 is a token like any other: only weights say what counts."""
    config = tiny_config(model=no_dropout())
    objective = make_objective(config)
    params = jax.jit(objective.init)(jax.random.PRNGKey(0))
    batch = random_batch(0, 8, 16)
    ignored = {**batch, "masked_labels": np.where(batch["masked_weights"] > 0, batch["masked_labels"], 7)}
    zeros = {**batch, "masked_labels": np.zeros_like(batch["masked_labels"])}

    @jax.jit
    def loss(batch):
        return objective.loss(params, (), batch, NO_DROPOUT, objective.normalizers(batch))[1]["mlm_loss"]

    assert float(loss(batch).total) == float(loss(ignored).total)
    assert float(loss(zeros).weight) == batch["masked_weights"].sum()


@pytest.mark.parametrize("mesh", [MeshConfig(data=3), MeshConfig(data=-1, fsdp=-1), MeshConfig(data=1, tensor=2)])
def test_meshes_that_do_not_fit_are_refused(mesh: MeshConfig) -> None:
    with pytest.raises(UserError, match=r"mesh\.data"):
        sharding.make_mesh(mesh, jax.devices()[:1])


def run(config: PretrainConfig, workdir: pathlib.Path) -> tuple[TrainState, list[dict]]:
    """A whole run; its final state as saved, and its metrics without the times."""
    from bert_jax.training.checkpoint import Checkpoints
    from bert_jax.training.step import abstract_state, state_layout

    objective = make_objective(config)
    workdir.mkdir(exist_ok=True)
    assert train(config, synthetic_data(config), workdir)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    mesh = sharding.make_mesh(config.mesh)
    abstract = abstract_state(*state_layout(objective, optimizer, mesh))
    checkpoints = Checkpoints(workdir, config.checkpoint, read_only=True)
    state, record = checkpoints.restore(config.train.steps, abstract)
    checkpoints.close()
    assert record["sequence"] == config.train.steps * config.train.batch_size
    timing = ("tokens_per_second", "model_flops_utilization", "input_wait_fraction", "energy_joules", "memory_bytes")
    lines = read_metrics(workdir / "metrics.jsonl")
    return state, [{k: v for k, v in line.items() if k not in timing} for line in lines]


@pytest.mark.slow
def test_same_seed_twice_is_bit_identical_and_another_seed_is_not(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the second run saves."""
    config = tiny_config()
    first, lines = run(config, tmp_path / "a")
    with monkeypatch.context() as patch:
        asked: list[int] = []
        patch.setattr(cadence, "steps_until_save", lambda *_: asked.append(0) or 0)
        second, again = run(config, tmp_path / "b")
    assert len(asked) == 2  # at steps 3 and 5; those between are multiples of `checkpoint.every`
    other, _ = run(tiny_config(seed=1), tmp_path / "c")
    assert digests(first) == digests(second)
    assert lines == again
    assert digests(first.params) != digests(other.params)
    assert [line["step"] for line in lines if line["split"] == "train"] == list(range(1, 7))
    assert [line["step"] for line in lines if line["split"] == "heldout"] == [3, 6]
    for line in lines:
        assert {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"} <= line.keys()


@pytest.mark.parametrize(
    "optimizer", [pytest.param({}, marks=pytest.mark.slow), {"name": "muon", "ema_decay": 0.9}], ids=str
)
def test_resumed_across_a_phase_is_bit_identical(tmp_path: pathlib.Path, optimizer: dict) -> None:
    """Every checkpoint of a run is resumed from; lines between two checkpoints merge their means exactly."""
    import shutil

    config = tiny_config(steps=8, log_every=3)
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, **optimizer))
    whole, lines = run(config, tmp_path / "whole")
    for step in (2, 4, 6):
        workdir = tmp_path / str(step)
        shutil.copytree(tmp_path / "whole", workdir)
        for newer in [p for p in (workdir / "checkpoints").iterdir() if int(p.name) > step]:
            shutil.rmtree(newer)
        if not (workdir / "checkpoints" / str(step)).exists():
            continue  # not kept
        resumed, again = run(config, workdir)
        assert digests(resumed) == digests(whole)
        assert again == lines


def test_evaluation_is_exact_over_batches_of_any_size() -> None:
    from bert_jax.training.evaluation import make_evaluate

    config = tiny_config(model=no_dropout())
    objective = make_objective(config)
    params = jax.jit(objective.init)(jax.random.PRNGKey(0))
    mesh = sharding.make_mesh(config.mesh)
    with jax.set_mesh(mesh):
        evaluate = make_evaluate(objective, mesh)
        whole = evaluate(params, (), iter([random_batch(0, 12, 16)]))
        parts = evaluate(params, (), iter([random_batch(first, 4, 16) for first in (0, 4, 8)]))
        filler = {k: np.concatenate([v, v[:4]]) for k, v in random_batch(8, 4, 16).items()}
        for weights in ("masked_weights", "example_weights"):
            filler[weights][4:] = 0
        padded = evaluate(params, (), iter([random_batch(0, 8, 16), filler]))
    for other in (parts, padded):
        assert other == pytest.approx(whole, rel=1e-6)


def test_gradient_norm_and_rate_are_reported() -> None:
    config = tiny_config(model=no_dropout())
    state, step = stepper(config)
    objective = make_objective(config)
    batch = random_batch(0, 8, 16)
    gradients = jax.jit(jax.grad(lambda p: objective.loss(p, (), batch, NO_DROPOUT, objective.normalizers(batch))[0]))(
        state.params
    )
    _, metrics = step(state, batch)
    norm = np.sqrt(sum((np.asarray(g, np.float64) ** 2).sum() for g in jax.tree.leaves(gradients)))
    np.testing.assert_allclose(metrics["report"]["grad_norm"], norm, rtol=1e-4)
    assert metrics["report"]["learning_rate"] == jnp.float32(config.optimizer.peak_learning_rate)


def test_the_last_step_of_a_phase_ends_a_line(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 steps of 8 x 16 tokens, then 3 of 8 x 24: a line each, of 2 seconds at a peak of 1 MFLOP/s."""
    from bert_jax.training import loop

    monkeypatch.setattr(loop.MetricsInterval, "seconds_without_pauses", lambda watch: 2.0)
    monkeypatch.setattr(loop, "peak_flops", lambda: 1e6)
    config = tiny_config(log_every=6)
    objective = make_objective(config)
    assert train(config, synthetic_data(config), tmp_path)
    lines = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line["split"] == "train"]
    written = [value.histo for _, value in shown(tmp_path) if value.tag == "train/grad_norms"]
    assert [line["step"] for line in lines] == [3, 6]
    for index, (line, norms, seq_len) in enumerate(zip(lines, written, (16, 24), strict=True)):
        assert line["tokens_per_second"] == 3 * 8 * seq_len / 2
        assert line["model_flops_utilization"] == pytest.approx(3 * 8 * objective.flops(seq_len, index) / 2 / 1e6)
        assert line["memory_bytes"] > 0
        assert norms.num == 3
        assert norms.min <= line["grad_norm"] <= norms.max


def test_the_checkpoint_of_another_run_is_refused(tmp_path: pathlib.Path) -> None:
    config, other = tiny_config(steps=2), tiny_config(steps=2, seed=1)
    (tmp_path / "other").mkdir()
    assert train(config, synthetic_data(config), tmp_path / "other")
    with pytest.raises(UserError, match=r"belongs to a run that differs \(seed: 0 -> 1\)"):
        train(other, synthetic_data(other), tmp_path / "other")
