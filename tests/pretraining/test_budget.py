"""`--budget`: accepted amounts, the choices of the rule, and that a resumed run keeps its choice."""

import dataclasses
import io
import itertools
import json
import math
import pathlib

import pytest

from bert_jax import api
from bert_jax import config as c
from bert_jax.cli.main import main
from bert_jax.config import PretrainConfig, read_config, with_vocab_size
from bert_jax.console import Console
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.models import count_parameters
from bert_jax.objectives import Objective, make_objective
from bert_jax.parallel import sharding
from bert_jax.pretraining.budget import measure as measuring
from bert_jax.pretraining.budget import plan as planning
from bert_jax.pretraining.budget.amounts import Budget, parse_budget
from bert_jax.pretraining.budget.plan import FILE, apply_choice, candidate_sizes, config_for_budget
from bert_jax.pretraining.budget.rule import (
    MAX_EPOCHS,
    SIZES,
    USABLE,
    Candidate,
    Choice,
    choose_size_and_steps,
    sequences_and_micro_batches,
)
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import check_divisible_by_mesh
from bert_jax.training.workdir import locked_workdir
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.run_data import batches_of

# Parameters are a sixth of the FLOPs per token: 1, 4 and 16 million.
LADDER = (Candidate(4, 128, 6e6), Candidate(6, 256, 24e6), Candidate(12, 512, 96e6))
LARGE = 10**12  # tokens of a corpus that no budget here reads through


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("30m", Budget(seconds=1_800)),
        ("1h30m", Budget(seconds=5_400)),
        ("0.5h", Budget(seconds=1_800)),
        ("2d", Budget(seconds=172_800)),
        ("90s", Budget(seconds=90)),
        ("50M tokens", Budget(tokens=50e6)),
        ("1.5B tokens", Budget(tokens=1.5e9)),
        ("400000tokens", Budget(tokens=400_000)),
        ("1e16 flops", Budget(flops=1e16)),
        ("3e17 FLOPs", Budget(flops=3e17)),
    ],
)
def test_amounts(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    "text", ["", "30", "30M", "m", "30 weeks", "-5m", "0m", "0 tokens", "50M", "1e16", "5 m 3", "1e400m"]
)
def test_a_budget_that_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="30m, 1h30m, '50M tokens', '1e16 flops'"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("tokens", "layers", "steps", "step_tokens"),
    [
        (1e6, 4, 488, 2048),  # too little for any size: the smallest
        (15.9e6, 4, 3_882, 4096),  # the second size has 4 M parameters, and needs 16 M tokens
        (16e6, 6, 3_906, 4096),
        (63.9e6, 6, 7_800, 8192),
        (64e6, 12, 7_812, 8192),
    ],
)
def test_tokens_choose_the_largest_size_that_they_can_train(
    tokens: float, layers: int, steps: int, step_tokens: int
) -> None:
    choice = choose_size_and_steps(Budget(tokens=tokens), None, LARGE, LADDER)
    assert (choice.num_layers, choice.steps, choice.step_tokens) == (layers, steps, step_tokens)
    assert choice.tokens == steps * step_tokens
    assert not choice.capped


def test_flops_buy_fewer_tokens_of_a_larger_size() -> None:
    """4 tokens for each of N parameters are 6 N x 4 N FLOPs: 3.84e14 for N = 4 million."""
    below, above = (choose_size_and_steps(Budget(flops=flops), None, LARGE, LADDER) for flops in (3.8e14, 3.9e14))
    assert (below.num_layers, above.num_layers) == (4, 6)
    assert below.tokens == pytest.approx(3.8e14 / 6e6, rel=1e-3)
    assert above.tokens == pytest.approx(3.9e14 / 24e6, rel=1e-3)
    assert above.flops == pytest.approx(3.9e14, rel=1e-3)


def test_a_time_is_the_flops_of_most_of_it() -> None:
    by_time = choose_size_and_steps(Budget(seconds=3_600), 1e11, LARGE, LADDER)
    assert by_time == choose_size_and_steps(Budget(flops=3_600 * 1e11 * USABLE), None, LARGE, LADDER)
    twice = choose_size_and_steps(Budget(seconds=1_800), 2e11, LARGE, LADDER)
    assert twice == by_time


def test_a_small_corpus_caps_the_tokens_and_so_the_size() -> None:
    free = choose_size_and_steps(Budget(tokens=1e9), None, LARGE, LADDER)
    choice = choose_size_and_steps(Budget(tokens=1e9), None, 10**6, LADDER)
    assert (free.num_layers, choice.num_layers) == (12, 4)
    assert choice.capped
    assert choice.epochs == pytest.approx(MAX_EPOCHS, rel=1e-3)


def test_steps_and_batch_grow_alike() -> None:
    """Four times the tokens are twice the batch and twice the steps."""
    choices = [choose_size_and_steps(Budget(tokens=2**power), None, LARGE, LADDER) for power in range(22, 40, 2)]
    for less, more in itertools.pairwise(choices):
        assert more.step_tokens == 2 * less.step_tokens
        assert more.steps == 2 * less.steps


@pytest.mark.parametrize(
    ("step_tokens", "seq_len", "devices", "parts"),
    [
        (2048, 64, 1, 1),
        (2**17, 512, 8, 1),
        (2048, 512, 8, 1),
        (4096, 96, 4, 1),
        (2**17, 512, 2, 16),
        (2**17, 2048, 1, 16),
        (2048, 256, 1, 16),
    ],
)
def test_batches_divide_over_devices_and_micro_batches(
    step_tokens: int, seq_len: int, devices: int, parts: int
) -> None:
    sequences, micro_batches = sequences_and_micro_batches(step_tokens, seq_len, devices, parts)
    assert sequences % (micro_batches * devices * parts) == 0
    assert sequences * seq_len / micro_batches / devices <= max(2**14, seq_len * parts)
    if step_tokens >= seq_len * devices * parts:
        assert math.isclose(sequences * seq_len, step_tokens, rel_tol=0.2)


@pytest.mark.parametrize(("seq_len", "devices"), [(64, 1), (512, 8), (512, 32)])
def test_many_devices_do_not_exceed_the_budget(seq_len: int, devices: int) -> None:
    tokens, smallest = 4e6, seq_len * devices
    choice = choose_size_and_steps(Budget(tokens=tokens), None, LARGE, LADDER, smallest)
    sequences, _ = sequences_and_micro_batches(choice.step_tokens, seq_len, devices)
    assert sequences * seq_len * choice.steps == pytest.approx(tokens, rel=0.01)


def recipe() -> PretrainConfig:
    made = c.pretrain_config()
    made.model.update(vocab_size=8_192, hidden_size=256, num_heads=4, mlp_size=512, max_positions=128)
    made.model.update(dropout=0.0, attention_dropout=0.0)
    made.train.update(steps=1_000)
    made.train.phases = c.phases({"seq_len": 64, "fraction": 0.75}, {"seq_len": 128, "fraction": 0.25})
    made.optimizer.update(warmup_steps=100, peak_learning_rate=1e-3)
    made.evaluate.batch_size = 16
    return c.resolve(PretrainConfig, made)


def test_every_size_has_whole_heads_and_costs_more_than_the_smaller_sizes() -> None:
    found = candidate_sizes(recipe())
    assert [one[:2] for one in found] == list(SIZES)
    costs = [one.flops_per_token for one in found]
    assert costs == sorted(costs)
    for size in found:
        choice = Choice(
            num_layers=size[0],
            hidden_size=size[1],
            tokens=2**20,
            step_tokens=2**11,
            steps=2**9,
            flops=1,
            epochs=1,
            capped=False,
        )
        model = apply_choice(recipe(), choice).model
        assert model.num_heads * 64 == model.hidden_size
        assert model.mlp_size == 2 * model.hidden_size
        # FLOPs of a token over 6 are the weights that a token passes, and attention: more than the blocks alone.
        blocks = count_parameters(model) - model.vocab_size * model.hidden_size
        assert 0.5 * blocks < size.flops_per_token / 6 < 2 * blocks


def test_a_choice_rescales_the_recipe() -> None:
    choice = Choice(
        num_layers=6,
        hidden_size=192,
        tokens=2_048_000,
        step_tokens=4096,
        steps=500,
        flops=1e13,
        epochs=1.0,
        capped=False,
    )
    config = apply_choice(recipe(), choice, given=("checkpoint.every",))
    phases = plan_phases(config.train)
    assert [(p.begin, p.end, p.seq_len, p.batch_size) for p in phases] == [(0, 375, 64, 64), (375, 500, 128, 32)]
    assert config.optimizer.warmup_steps == 50
    assert config.optimizer.peak_learning_rate == 1e-3
    assert (config.model.num_layers, config.model.hidden_size, config.model.mlp_size) == (6, 192, 384)
    assert (config.evaluate.every, config.checkpoint.every, config.train.log_every) == (50, 1_000, 5)
    # A run keeps the batches of the devices that it began on.
    assert [one.batch_size for one in apply_choice(recipe(), dataclasses.replace(choice, devices=3)).train.phases] == [
        63,
        33,
    ]


def test_all_steps_of_a_budget_have_equally_many_tokens(corpus: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A batch that grows would read fewer tokens than the budget has."""
    growing = c.pretrain_config("modern_base", {"data.corpus": str(corpus)})
    config = config_for_budget(c.resolve(PretrainConfig, growing), "4M tokens", tmp_path, Console(io.StringIO()))
    choice = json.loads((tmp_path / FILE).read_text())["choice"]
    read = sum((one.end - one.begin) * one.batch_size * one.seq_len for one in plan_phases(config.train))
    assert read == choice["tokens"] == choice["steps"] * choice["step_tokens"]
    with pytest.raises(UserError, match=r"--budget and config.train.phases\[0\].batch_stages set the same value"):
        config_for_budget(config, "4M tokens", tmp_path, Console(io.StringIO()), ["train.phases[0].batch_stages"])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("budget"))


def small(corpus: pathlib.Path) -> PretrainConfig:
    made = c.pretrain_config()
    made.model.update(hidden_size=256, num_heads=4, mlp_size=256, max_positions=64, dropout=0.0)
    made.data.corpus = str(corpus)
    made.train.phases = c.phases({"seq_len": 32})
    made.evaluate.batch_size = 16
    return c.resolve(PretrainConfig, made)


def test_larger_sizes_are_measured_until_none_is_chosen(corpus, tmp_path, monkeypatch) -> None:
    """A device that is faster on wide models, as GPUs are."""
    measured = []

    def measure(objective: Objective, *_: object, **__: object) -> float:
        scale = objective.shapes["encoder"]["layers"]["mlp_norm"]["scale"]
        measured.append(scale.shape)
        return 1e9 * scale.shape[1]

    monkeypatch.setattr(planning, "measure_flops_per_second", measure)
    monkeypatch.setattr(planning, "sequence_rules", lambda *_: None)
    monkeypatch.setattr(planning, "training_batches", lambda *_: lambda phase, step: None)
    monkeypatch.setattr(planning, "open_mixture", lambda *_, **__: _Large(corpus))
    out = io.StringIO()
    config = config_for_budget(small(corpus), "30m", tmp_path / "run", Console(out))
    assert measured[0] == SIZES[0]
    assert measured == sorted(set(measured), key=SIZES.index)
    assert len(measured) > 1
    assert (config.model.num_layers, config.model.hidden_size) in SIZES
    record = json.loads((tmp_path / "run" / FILE).read_text())
    assert record["budget"] == "30m"
    assert [one["flops_per_second"] for one in record["measured"]] == [1e9 * width for _, width in measured]
    # The same number gives the same choice.
    assert config_for_budget(small(corpus), "30m", tmp_path / "other", Console(out)) == config


class _Large:
    """A corpus of so many tokens that a budget does not read it through."""

    def __init__(self, corpus: pathlib.Path) -> None:
        self.vocab_size, self.tokenizer = open_corpus(corpus).vocab_size, lambda: None

    def split(self, name: str):
        return type("Split", (), {"num_tokens": LARGE})


def test_a_measurement_reads_only_the_prepared_part_of_a_text(corpus, tmp_path, monkeypatch) -> None:
    drawn = []

    def measure(objective: Objective, optimizer: object, phases: object, mesh: object, batches, **__: object) -> float:
        drawn.extend(next(batches)["input_ids"].shape[1] for _ in range(3))
        return 1e9

    monkeypatch.setattr(planning, "measure_flops_per_second", measure)
    config = small(corpus)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, snapshots=2))
    config_for_budget(config, "2s", tmp_path / "run", Console(io.StringIO()))
    assert drawn[:3] == [32] * 3


@pytest.mark.slow
def test_a_run_of_a_budget_resumes_without_a_measurement(corpus, tmp_path, monkeypatch) -> None:
    """A real measurement, and steps for two seconds."""
    monkeypatch.setattr(measuring, "SECONDS", 0.0)
    monkeypatch.setattr(planning, "EVALUATIONS", 1)
    out = io.StringIO()
    run = tmp_path / "run"
    assert api.pretrain(small(corpus), run, console=Console(out), budget="2s")
    text = out.getvalue()
    assert "GFLOP/s measured (4 layers x 128)" in text
    assert "size: 4 layers x 128" in text
    steps = read_steps(run)

    monkeypatch.setattr(planning, "measure_flops_per_second", None)
    again = io.StringIO()
    assert api.pretrain(small(corpus), run, console=Console(again), budget="2s")
    assert f"finished: all {steps:,} steps are done" in again.getvalue()
    assert "as chosen when the run began" in again.getvalue()
    with pytest.raises(UserError, match="a run with --budget '2s'"):
        api.pretrain(small(corpus), run, budget="3s")
    choice = (run / FILE).read_text()
    (run / "run.json").unlink()  # which a run writes again, of the same choice
    assert api.pretrain(small(corpus), run, console=Console(again), budget="2s")
    assert (run / FILE).read_text() == choice
    assert read_steps(run) == steps
    (run / FILE).write_text("{}")
    with pytest.raises(UserError, match="leave --budget out"):
        api.pretrain(small(corpus), run, budget="2s")
    (run / FILE).unlink()
    with pytest.raises(UserError, match="leave --budget out"):
        api.pretrain(small(corpus), run, budget="2s")


def read_steps(run: pathlib.Path) -> int:
    return json.loads((run / "run.json").read_text())["config"]["train"]["steps"]


def test_a_warmup_longer_than_the_run_is_refused_before_anything_is_written(corpus, tmp_path) -> None:
    config, key = small(corpus), "optimizer.warmup_steps"
    config = dataclasses.replace(config, optimizer=dataclasses.replace(config.optimizer, warmup_steps=1_000))
    with pytest.raises(UserError, match=r"optimizer\.warmup_steps=1000, but the run has"):
        config_for_budget(config, "20K tokens", tmp_path / "run", Console(io.StringIO()), given=(key,))
    assert not (tmp_path / "run").exists()


def test_a_second_command_does_not_replace_the_choice_of_a_run_that_has_not_begun(corpus, tmp_path) -> None:
    """The run that began first may still open its data, so that run.json does not exist."""
    config, run = small(corpus), tmp_path / "run"
    config_for_budget(config, "20K tokens", run, Console(io.StringIO()))
    choice = (run / FILE).read_text()
    with locked_workdir(run), pytest.raises(UserError, match="another process is training here"):
        config_for_budget(config, "40K tokens", run, Console(io.StringIO()))
    assert (run / FILE).read_text() == choice
    config_for_budget(config, "40K tokens", run, Console(io.StringIO()))
    assert (run / FILE).read_text() != choice
    with pytest.raises(UserError, match="holds a corpus"):
        config_for_budget(config, "20K tokens", corpus, Console(io.StringIO()))
    assert not (corpus / FILE).exists()


def test_a_hybrid_phase_has_whole_fractions_of_each_batch(corpus, tmp_path) -> None:
    """2,048 tokens, the smallest step, are 8 sequences of 256 tokens, which have no sixteenth."""
    config = small(corpus)
    phases = (dataclasses.replace(config.train.phases[0], seq_len=256, objective="hybrid"),)
    config = dataclasses.replace(
        config,
        train=dataclasses.replace(config.train, phases=phases),
        model=dataclasses.replace(config.model, max_positions=256),
        data=dataclasses.replace(config.data, sentence_pairs="full_sentences"),
    )
    config = config_for_budget(config, "40K tokens", tmp_path, Console(io.StringIO()))
    (phase,) = plan_phases(config.train)
    assert phase.batch_size == 16
    assert 36_000 < phase.batch_size * 256 * (phase.end - phase.begin) < 44_000
    mesh = sharding.make_mesh(config.mesh)
    check_divisible_by_mesh(mesh, make_objective(config), (phase,), config.evaluate.batch_size)


def test_a_warmup_of_a_phase_longer_than_the_phase_is_refused(corpus, tmp_path) -> None:
    config, key = small(corpus), "train.phases[0].warmup_steps"
    phases = (dataclasses.replace(config.train.phases[0], peak_learning_rate=1e-3, warmup_steps=1_000),)
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, phases=phases))
    with pytest.raises(UserError, match=r"phases\[0\]\.warmup_steps=1000, but the phase has"):
        config_for_budget(config, "20K tokens", tmp_path / "run", Console(io.StringIO()), given=(key,))


def test_a_field_that_a_phase_replaces_is_named(corpus, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("bert_jax.pretraining.pretrain.pretrain_in_directory", lambda *_: None)
    words = ["--config=small_cpu", "--budget=20K tokens", f"--workdir={tmp_path / 'run'}"]
    second = [f"--config.train.phases[1].{name}=None" for name in ("mask_probability", "mask_probability_end")]
    assert main(["pretrain", *words, f"--corpus={corpus}", "--config.data.mask_probability=0.4", *second]) == 0
    assert "warning: no effect of config.data.mask_probability in phase 1" in capsys.readouterr().err


def test_fields_that_the_budget_chooses_cannot_be_given(corpus, tmp_path) -> None:
    for key in ("train.steps", "model.hidden_size", "train.phases[0].batch_size"):
        with pytest.raises(UserError, match=r"--budget and config\."):
            config_for_budget(small(corpus), "30m", tmp_path, Console(io.StringIO()), given=(key,))
    generator = dataclasses.replace(small(corpus).replaced_tokens, generator_from="somewhere")
    for key, value in (("init_from", "somewhere"), ("replaced_tokens", generator)):
        config = dataclasses.replace(small(corpus), **{key: value})
        with pytest.raises(UserError, match=rf"--budget chooses the size of the model, but config\.{key}.* has a size"):
            config_for_budget(config, "30m", tmp_path, Console(io.StringIO()))
    assert read_config(PretrainConfig, planning.DEFAULT_RECIPE, [])


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("electra_cpu", [192, 384, 768]),  # a sixth: 21 features of 128 are no even width, 32 of 192 are
        pytest.param("electra_small", [width for _, width in SIZES], marks=pytest.mark.slow),
        pytest.param("electra_base", [192, 384, 768], marks=pytest.mark.slow),
    ],
)
def test_a_recipe_of_electra_leaves_out_the_sizes_that_have_no_generator(name: str, widths: list[int]) -> None:
    config = read_config(PretrainConfig, name, ["--config.model.vocab_size=1000"])
    assert [one.hidden_size for one in candidate_sizes(config)] == widths


@pytest.mark.slow
def test_every_process_measures_as_many_steps_as_the_first_process(corpus, monkeypatch) -> None:
    """Not as many as its own clock gives: a step more in one of them would wait for the others for ever."""
    placed, asked, place = [], [], measuring.sharding.place_batch
    monkeypatch.setattr(measuring.sharding, "place_batch", lambda *given: placed.append(0) or place(*given))
    monkeypatch.setattr(measuring.multihost_utils, "broadcast_one_to_all", lambda steps: asked.append(int(steps)) or 7)
    monkeypatch.setattr(measuring, "SECONDS", 0.0)
    config = small(corpus)
    mixture = planning.open_mixture(config.data.corpus)
    config = with_vocab_size(config, mixture.vocab_size)
    config = dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, num_layers=2),
        train=dataclasses.replace(config.train, batch_size=16),
    )
    objective, phases, mesh = make_objective(config), plan_phases(config.train), sharding.make_mesh(config.mesh)
    batches = batches_of(config, mixture)(phases[0], 0)
    assert (
        measuring.measure_flops_per_second(
            objective, config.optimizer, phases, mesh, batches, seed=0, deterministic=False
        )
        > 0
    )
    assert asked == [measuring.MIN_STEPS]
    assert len(placed) == 1 + 1 + 7  # to compile, the first one, and those that are timed
