"""Remarks about the plateau, on made-up curves and in a run that is stopped and resumed."""

import collections
import dataclasses
import io
import json
import math
import pathlib
import re

import pytest

from bert_jax import config as c
from bert_jax.api import open_run, pretrain
from bert_jax.config import PretrainConfig
from bert_jax.console import Console
from bert_jax.reports.run.plot import plot_run
from bert_jax.training.plateau import (
    MARGIN,
    Plateau,
    expected_end_of_plateau,
    has_plateau,
    likely_causes,
    plateau_in_words,
)
from bert_jax.training.schedules import plan_phases
from tests.helpers.generated_corpus import generated_corpus

REFERENCE = 6.3


def recipe(steps: int = 2_000, warmup: int = 100, **train: object) -> PretrainConfig:
    made = c.pretrain_config()
    made.train.update(steps=steps, **train)
    made.optimizer.warmup_steps = warmup
    return c.resolve(PretrainConfig, made)


def watch(config: PretrainConfig) -> Plateau:
    phases, masks = plan_phases(config.train), config.train.phases[0].mask_probability
    expected = expected_end_of_plateau(config.train.plateau_steps, config.optimizer, phases)
    peak, mask_probability = config.optimizer.peak_learning_rate, masks or config.data.mask_probability
    causes = likely_causes(config.model, peak, phases[0], mask_probability)
    return Plateau(expected, phases[-1].end, causes)


def line(step: int, loss: float | None, split: str = "train") -> dict:
    return {"step": step, "split": split, "mlm_loss": loss, "unigram_loss": REFERENCE}


def remarks(config: PretrainConfig, curve: dict[int, float]) -> dict[int, str]:
    """Step -> what is said there."""
    plateau = watch(config)
    said = {step: "\n".join(plateau.remarks(line(step, loss))) for step, loss in curve.items()}
    return {step: text for step, text in said.items() if text}


def test_the_plateau_is_warned_of_once_and_its_end_is_reported() -> None:
    """Warmup of 100 steps, and 300 more; the mean of the last 50 steps crosses 5.8 after the loss itself does."""
    curve = {step: 6.1 if step < 900 else 5.5 for step in range(20, 2_001, 20)}
    said = remarks(recipe(), curve)
    assert list(said) == [400, 920]
    assert said[400].startswith(
        "warning: step 400: still on the plateau: the masked-token loss is 6.10, the unigram loss 6.30"
    )
    # Lines of 880, 900 and 920 steps: (6.1 + 5.5 + 5.5) / 3.
    assert said[920].startswith(
        f"step 920: left the plateau: the masked-token loss is {REFERENCE - 17.1 / 3:.2f} nats below"
    )


def test_a_healthy_run_gets_no_warning() -> None:
    said = remarks(recipe(), {step: 7 - step / 100 for step in range(20, 2_001, 20)})
    assert len(said) == 1
    assert "left the plateau" in next(iter(said.values()))


def test_one_lucky_batch_does_not_leave_the_plateau() -> None:
    curve = {step: 6.1 - (step == 100) for step in range(10, 400, 10)}
    assert not remarks(recipe(), curve)
    assert list(remarks(recipe(), {10: 6.1 - MARGIN, 20: 6.1 - MARGIN})) == [10]


def test_heldout_loss_is_taken_as_it_is() -> None:
    plateau = watch(recipe())
    assert not plateau.remarks(line(200, 6.2))
    assert plateau.remarks(line(200, 5.7, "heldout"))
    assert plateau.left_at == 200
    assert not plateau.remarks(line(2_000, 6.2))


def test_losses_that_are_not_finite_or_of_another_kind_say_nothing() -> None:
    plateau = watch(recipe())
    assert not plateau.remarks(line(1_000, None))
    assert not plateau.remarks({"step": 1_000, "split": "train", "loss": 6.2})


def test_the_end_of_a_short_run_is_named() -> None:
    said = remarks(recipe(steps=120, warmup=10), dict.fromkeys(range(20, 121, 20), 6.2))
    assert list(said) == [120]
    assert "the run is over after 120 steps" in said[120]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (recipe(), 400),
        (recipe(steps=100_000, warmup=1_000), 6_000),
        (recipe(plateau_steps=77), 77),
        (
            recipe(
                phases=c.phases(
                    {"seq_len": 64, "fraction": 0.5, "peak_learning_rate": 1e-3, "warmup_steps": 50}, {"fraction": 0.5}
                )
            ),
            350,
        ),
    ],
)
def test_when_a_run_is_expected_to_have_left(config: PretrainConfig, expected: int) -> None:
    assert expected_end_of_plateau(config.train.plateau_steps, config.optimizer, plan_phases(config.train)) == expected


def test_causes_name_the_fields_that_are_unusual() -> None:
    def causes(**data: object) -> str:
        made = c.pretrain_config()
        phase = {"seq_len": data.pop("seq_len", 128), "mask_probability": data.pop("of_phase", None)}
        made.train.update(steps=2_000, phases=c.phases(phase))
        start = data.pop("initialization", "normal")
        made.model.update(hidden_size=data.pop("hidden_size", 768), num_heads=2, initialization=start)
        made.data.update(data)
        return "\n".join(watch(c.resolve(PretrainConfig, made)).remarks(line(1_500, 6.2)))

    usual = causes()
    assert "peak_learning_rate=0.0001" in usual
    assert not any(words in usual for words in ("neighbors", "post-norm", "are long", "little context"))
    assert "post-norm blocks of few features" in causes(hidden_size=128)
    assert "512 tokens are long" in causes(seq_len=512)
    assert "16 tokens have little context" in causes(seq_len=16)
    assert "masks on 60% of the tokens" in causes(mask_probability=0.6)
    assert "masks on 70% of the tokens" in causes(of_phase=0.7)
    for start in ("normal", "identity_head"):
        assert "config.model.initialization=neighbors" in causes(hidden_size=128, initialization=start)
    assert "config.model.initialization" not in causes(hidden_size=128, initialization="neighbors")


def test_the_cause_names_the_learning_rate_that_the_first_phase_has() -> None:
    """A command with the named key and three times the rate is accepted."""
    for recipe, named in (
        ("bert_large_lamb", "config.train.phases[0].peak_learning_rate=0.006"),
        ("bert_large", "config.optimizer.peak_learning_rate=0.0001"),
    ):
        config = c.read_config(PretrainConfig, recipe, [])
        assert f"{named} is too low" in "\n".join(watch(config).remarks(line(config.train.steps, 6.2)))
        key, _, rate = named.partition("=")
        assert c.read_config(PretrainConfig, recipe, [f"--{key}={3 * float(rate)}"])


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        ((None, False, False, [True, True]), True),
        (("runs/before", False, False, [True]), False),
        ((None, True, False, [True]), False),
        ((None, False, True, [True]), False),
        ((None, False, False, [False, True]), False),
    ],
)
def test_only_a_run_of_masked_tokens_from_random_weights_has_a_plateau(begins: tuple, expected: bool) -> None:
    assert has_plateau(*begins) == expected


@pytest.mark.parametrize(("distance", "knows"), [(-0.4, True), (0.4, True), (0.6, False), (3.0, False)])
def test_a_loss_above_the_unigram_loss_is_not_on_the_plateau(distance: float, knows: bool) -> None:
    words = plateau_in_words(REFERENCE + distance, REFERENCE)
    assert words.level == ("still on the plateau" if knows else "still above the plateau")
    assert words.knowledge.startswith("the model knows how often" if knows else "the model does not know")


def small_run(corpus: pathlib.Path, steps: int = 8) -> PretrainConfig:
    made = c.pretrain_config()
    made.model.update(hidden_size=16, num_layers=1, num_heads=2, mlp_size=32, max_positions=32)
    made.data.update(corpus=str(corpus), num_threads=1)
    made.train.update(steps=steps, batch_size=4, log_every=2, plateau_steps=4, phases=c.phases({"seq_len": 32}))
    made.evaluate.update(every=4, batch_size=4, num_sequences=8)
    made.checkpoint.every = 4
    return c.resolve(PretrainConfig, made)


@pytest.mark.slow
def test_a_run_keeps_the_unigram_loss_says_it_once_and_draws_it(tmp_path: pathlib.Path) -> None:
    """The warning falls due at step 4; a run that is resumed there does not repeat it."""
    corpus = generated_corpus(tmp_path)
    config, out = small_run(corpus), io.StringIO()
    assert pretrain(config, tmp_path / "run", console=Console(out))
    text = out.getvalue()
    assert len(re.findall("warning: step 4: still (on|above) the plateau", text)) == 1
    lines = [json.loads(one) for one in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len({(one["split"], one["unigram_loss"]) for one in lines}) == 2
    held = next(one for one in lines if one["split"] == "heldout")
    below = held["unigram_loss"] - held["mlm_loss"]
    assert f"({abs(below):.2f} nats {'below' if below > 0 else 'above'} the unigram loss)" in text

    (last,) = (tmp_path / "run" / "checkpoints").glob("8")
    last.rename(tmp_path / "gone")
    again = io.StringIO()
    assert pretrain(config, tmp_path / "run", console=Console(again))
    assert "resuming at step 4" in again.getvalue()
    assert "warning: step" not in again.getvalue()

    for plateau_steps, count in ((4, 1), (None, 0)):  # a run from trained weights warns only on demand
        train = dataclasses.replace(config.train, plateau_steps=plateau_steps)
        further, console = dataclasses.replace(config, train=train, init_from=str(tmp_path / "run")), io.StringIO()
        assert pretrain(further, tmp_path / f"further-{count}", console=Console(console))
        assert len(re.findall("warning: step 4: still (on|above) the plateau", console.getvalue())) == count
        warnings = open_run(tmp_path / f"further-{count}").summary.warnings
        assert sum("the plateau: the masked-token loss" in warning for warning in warnings) == count

    data = dataclasses.replace(config.data, rarity_power=0.5)
    assert pretrain(dataclasses.replace(config, data=data), tmp_path / "rare", console=Console(io.StringIO()))
    lines = [json.loads(one) for one in (tmp_path / "rare" / "metrics.jsonl").read_text().splitlines()]
    assert {one["split"]: one.get("unigram_loss") for one in lines} == {
        "train": None,
        "heldout": pytest.approx(held["unigram_loss"]),
    }

    plot_run(tmp_path / "run", tmp_path / "curves.svg")
    assert "<!-- unigram loss -->" in (tmp_path / "curves.svg").read_text()


def test_the_unigram_loss_equals_a_literal_count(tmp_path: pathlib.Path) -> None:
    """Against counts in dicts and the formula of Witten and Bell, token by token."""
    from bert_jax.corpus.statistics import token_counts, token_fractions, unigram_loss
    from bert_jax.corpus.store import open_corpus

    corpus = open_corpus(generated_corpus(tmp_path))
    splits = [corpus.split(name) for name in ("train", "heldout")]
    train, heldout = (
        collections.Counter(token for record in range(split.num_records) for token in split.read([record])[0].tolist())
        for split in splits
    )

    def probability(token: int) -> float:
        known = train.total() / (train.total() + len(train))
        return known * train[token] / train.total() + (1 - known) / corpus.vocab_size

    assert math.fsum(map(probability, range(corpus.vocab_size))) == pytest.approx(1)
    wanted = -math.fsum(count / heldout.total() * math.log(probability(token)) for token, count in heldout.items())
    counts = [token_counts(split, corpus.vocab_size) for split in splits]
    assert unigram_loss(*counts) == pytest.approx(wanted, rel=1e-12)
    fractions = token_fractions(splits[1], corpus.vocab_size)
    assert fractions == pytest.approx([heldout[token] / heldout.total() for token in range(corpus.vocab_size)])
    sampled = token_counts(splits[0], corpus.vocab_size, limit=train.total() // 2)
    assert 0 < sampled.sum() <= train.total() // 2
