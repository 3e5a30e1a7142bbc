"""Changes that a resumed run may make: a decay that begins late, and no step that was taken."""

import dataclasses
import functools
import pathlib
import shutil

import numpy as np
import pytest

from bert_jax import config as c
from bert_jax.errors import UserError
from bert_jax.training.checkpoint import digests
from bert_jax.training.resuming import num_equal_first_steps, refused_changes
from tests.helpers.synthetic import synthetic_data, tiny_config, train
from tests.training.test_train import run


def planned(steps: int, decay: float, optimizer: dict | None = None, **train: object) -> c.PretrainConfig:
    """Two steps of warmup, the peak, and the decay in the last fraction of the steps."""
    train.setdefault("phases", c.phases({"seq_len": 16}))
    config = tiny_config(steps=steps, **train)
    values = {"schedule": "warmup_stable_decay", "warmup_steps": 2, "decay_fraction": decay, "name": "muon"}
    return dataclasses.replace(
        config, optimizer=dataclasses.replace(config.optimizer, **values | (optimizer or {})),
        evaluate=c.EvaluateConfig(every=None, batch_size=8),
    )  # fmt: skip


def refused(saved: c.Config, wanted: c.Config, step: int) -> list[str]:
    return refused_changes(c.to_json(saved), c.to_json(wanted), step)


def num_same(saved: c.PretrainConfig, wanted: c.PretrainConfig, steps: int) -> int:
    return num_equal_first_steps(c.to_json(saved), c.to_json(wanted), steps)


@pytest.mark.slow
def test_a_late_decay_is_the_run_that_was_planned_that_way(tmp_path: pathlib.Path) -> None:
    """A run planned without a decay resumes at step 4 and decays to step 8, as a run planned so from the start."""
    whole, lines = run(planned(8, 0.5), tmp_path / "planned")
    stable = planned(6, 0.0)
    (tmp_path / "stable").mkdir()
    assert train(stable, synthetic_data(stable), tmp_path / "stable")
    with pytest.raises(UserError, match="would have changed step 6 of the 6 done; go back to a checkpoint of step 5"):
        train(planned(8, 0.5), synthetic_data(planned(8, 0.5)), tmp_path / "stable")
    shutil.rmtree(tmp_path / "stable" / "checkpoints" / "6")
    resumed, again = run(planned(8, 0.5), tmp_path / "stable")
    assert digests(resumed) == digests(whole)
    assert [line for line in again if line["split"] == "train"] == [line for line in lines if line["split"] == "train"]


@pytest.mark.parametrize(
    ("saved", "wanted", "same"),
    [
        (planned(100, 0.2), planned(100, 0.2), 90),
        (planned(100, 0.2), planned(200, 0.2), 81),  # the first step of a decay still has the peak
        (planned(200, 0.2), planned(50, 0.2), 41),
        (planned(100, 0.2), planned(100, 0.5), 51),
        (planned(100, 0.2), planned(100, 0.2, {"decay_power": 0.5}), 81),
        (planned(100, 0.2), planned(100, 0.2, {"warmup_steps": 3}), 1),
        (planned(100, 0.2), planned(100, 0.2, {"warmup_steps": None, "warmup_fraction": 0.02}), 90),
        (planned(100, 0.2, {"schedule": "linear"}), planned(200, 0.2, {"schedule": "linear"}), 3),
        (planned(100, 0.0), planned(20, 0.0), 20),
        (planned(100, 0.2), planned(100, 0.2, grad_accum_steps=4), 90),
        (planned(100, 0.2), planned(100, 0.2, phases=c.phases({"seq_len": 16, "grad_accum_steps": 2})), 90),
        (planned(100, 0.0), planned(100, 0.0, phases=c.phases({"seq_len": 16, "batch_size": 16})), 0),
        (
            planned(100, 0.0),
            planned(100, 0.0, phases=c.phases({"seq_len": 16, "fraction": 0.3}, {"seq_len": 32, "fraction": 0.7})),
            30,
        ),
        (
            planned(100, 0.0),
            planned(
                100,
                0.0,
                phases=c.phases(
                    {"seq_len": 16, "fraction": 0.4}, {"seq_len": 16, "fraction": 0.6, "mask_probability": 0.3}
                ),
            ),
            40,
        ),
        (
            planned(100, 0.0),
            planned(
                100,
                0.0,
                phases=c.phases(
                    {"seq_len": 16, "fraction": 0.4}, {"seq_len": 16, "fraction": 0.6, "rarity_power": 0.5}
                ),
            ),
            40,
        ),
    ],
)  # fmt: skip
def test_steps_are_the_same_until_the_plans_part(saved: c.PretrainConfig, wanted: c.PretrainConfig, same: int) -> None:
    assert num_same(saved, wanted, 90) == num_same(wanted, saved, 90) == same
    assert not refused(saved, wanted, same)
    assert same == 90 or refused(saved, wanted, same + 1)


@pytest.mark.parametrize(
    "change",
    [
        {"weight_decay": 0.5},
        {"rotary_base": 5e3},
        {"batch_stages": 2},
        {"weights": (1.0, 2.0)},
        {"smoothing": 0.5},
        {"peak_learning_rate": 1e-5},
    ],
    ids=str,
)
def test_a_phase_that_has_not_begun_may_change(change: dict) -> None:
    """After the warmup, the first phase keeps its rate, so that the plans part where the second phase begins."""
    halves = [{"seq_len": 16, "fraction": 0.5}] * 2
    model = {"positions": "rotary", "num_token_types": 0}
    saved = planned(100, 0.0, phases=c.phases(*halves), model=model)
    wanted = planned(100, 0.0, phases=c.phases(halves[0], halves[1] | change), model=model)
    assert num_same(saved, wanted, 90) == num_same(wanted, saved, 90) == 50
    assert not refused(saved, wanted, 50)
    assert refused(saved, wanted, 51)


def test_a_mixture_that_begins_elsewhere_is_another() -> None:
    """A phase with weights begins new epochs: its first sequence is a part of its sequences."""
    short, long = ({"seq_len": 16, "fraction": fraction} for fraction in (0.4, 0.6))
    own, other = {"weights": (1.0, 2.0)}, {"seq_len": 16, "fraction": 0.2} | {"weights": (1.0, 2.0)}
    saved = planned(100, 0.0, phases=c.phases(short, long | own))
    wanted = planned(100, 0.0, phases=c.phases(short, {"seq_len": 16, "fraction": 0.4} | own, other))
    assert num_same(saved, wanted, 90) == 80


def test_a_rate_of_masks_that_falls_with_the_steps_is_not_extended() -> None:
    falling = c.phases({"seq_len": 16, "mask_probability": 0.3, "mask_probability_end": 0.15})
    assert num_same(planned(100, 0.0, phases=falling), planned(120, 0.0, phases=falling), 50) == 0


@pytest.mark.slow
def test_a_run_may_resume_with_more_micro_batches(tmp_path: pathlib.Path) -> None:
    """The way on after a lack of memory; without dropout the losses are equal up to rounding."""
    config = functools.partial(planned, decay=0.0, model={"dropout": 0.0, "attention_dropout": 0.0})
    _, expected = run(config(4), tmp_path / "whole")
    run(config(2), tmp_path / "resumed")
    _, lines = run(config(4, grad_accum_steps=2), tmp_path / "resumed")
    losses = [[line["loss"] for line in metrics if line["split"] == "train"] for metrics in (lines, expected)]
    assert len(losses[0]) == 4
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_no_other_change_is_let_through() -> None:
    saved = planned(100, 0.2)
    wanted = dataclasses.replace(planned(150, 0.2), seed=1)
    assert refused(saved, wanted, 10) == ["seed: 0 -> 1"]
    assert refused(saved, planned(150, 0.2, {"beta2": 0.9}), 10) == ["optimizer.beta2: 0.999 -> 0.9"]
    finetuning = c.resolve(c.FinetuneConfig, c.finetune_config())
    longer = dataclasses.replace(finetuning, optimizer=c.OptimizerConfig(warmup_steps=7))
    smaller = dataclasses.replace(finetuning, train=dataclasses.replace(finetuning.train, grad_accum_steps=2))
    assert not refused(finetuning, smaller, 5)
    assert refused(finetuning, longer, 0) == ["optimizer.warmup_steps: None -> 7"]
