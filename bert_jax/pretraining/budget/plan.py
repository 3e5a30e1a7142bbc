"""The config of a run for a recipe and a budget; the work directory records the choice for a resumed run."""

import contextlib
import dataclasses
import fractions
import json
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from bert_jax import strict_json
from bert_jax.config import (
    EncoderConfig,
    PretrainConfig,
    check_choices,
    refuse_fields_without_effect,
    with_vocab_size,
)
from bert_jax.config.checks import check_pretraining
from bert_jax.console import Console, format_seconds
from bert_jax.corpus.build.prepare_parts import estimate_text_tokens
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError, writing
from bert_jax.files import read_file, write_text
from bert_jax.objectives import OBJECTIVES, PHASE_OBJECTIVES, make_objective
from bert_jax.parallel import sharding
from bert_jax.pretraining.budget.amounts import Budget, parse_budget
from bert_jax.pretraining.budget.measure import measure_flops_per_second
from bert_jax.pretraining.budget.rule import (
    EVALUATED,
    EVALUATIONS,
    HEAD_SIZE,
    MAX_EPOCHS,
    SIZES,
    TOKENS_PER_PARAMETER,
    Candidate,
    Choice,
    choose_size_and_steps,
    sequences_and_micro_batches,
)
from bert_jax.pretraining.data import sequence_rules, training_batches
from bert_jax.training.remote_workdir import checkpoints_directory, mirror_of
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import check_divisible_by_mesh
from bert_jax.training.workdir import locked_workdir

DEFAULT_RECIPE = "small_cpu"
FILE = "budget.json"
MAX_BYTES = 1_000  # maximum size of a choice as JSON
# Config keys that every budget sets. If the user sets such a key, too, the command is refused.
CHOSEN = (
    *(f"model.{name}" for name in ("num_layers", "hidden_size", "num_heads", "mlp_size")),
    *("train.steps", "train.batch_size", "train.grad_accum_steps"),
)
CHOSEN_OF_PHASE = ("batch_size", "batch_stages", "grad_accum_steps")  # all steps of a budget have equally many tokens


def config_for_budget(
    config: PretrainConfig, text: str, directory: pathlib.Path, console: Console, given: Collection[str] = ()
) -> PretrainConfig:
    """Choose size and steps for a budget; print and record the choice, and return the config.

    Every process of a run must call this function. A resumed run uses the recorded choice and measures nothing.

    Args:
        config: the recipe; `data.corpus` is set.
        text: the text of the budget, as `parse_budget` reads it.
        directory: work directory of the run.
        console: console that prints the choice.
        given: keys that the user set on the command line.

    Raises:
        UserError: the budget or the corpus is missing, the budget sets a key of `given`, the run was started with a
            different budget, or another process has locked the work directory.
    """
    budget = parse_budget(text)
    check_choices(config)
    for key in given:
        if key in CHOSEN or (key.startswith("train.phases[") and key.rpartition(".")[2] in CHOSEN_OF_PHASE):
            raise UserError(f"--budget and config.{key} set the same value; leave one of them out")
    if OBJECTIVES[config.objective].has_teacher:
        raise UserError(
            "--budget chooses the size of the model, but the teacher sets the size of a student; leave one of them out"
        )
    generator_from = config.replaced_tokens.generator_from
    for key, path in (("init_from", config.init_from), ("replaced_tokens.generator_from", generator_from)):
        if path:
            raise UserError(
                f"--budget chooses the size of the model, but config.{key} has a size; leave one of them out"
            )
    if config.model.bottleneck_size:
        raise UserError("--budget chooses one width, but config.model.bottleneck_size makes two; leave one of them out")
    if not config.data.corpus:
        raise UserError("no corpus: give --config.data.corpus=DIR of `bert-jax prepare`, or --config.data.text=FILES")
    corpus = open_mixture(config.data.corpus, console.say, progress=console.progress)
    config = with_vocab_size(config, corpus.vocab_size)
    tokens = estimate_text_tokens(corpus.split("train").num_tokens, config.data.snapshots)

    def measured_rate(choice: Choice) -> float:
        """Return the FLOP/s that process 0 measured in training steps of a model of the chosen size."""
        sized = apply_choice(config, choice)
        objective, phases, mesh = make_objective(sized), plan_phases(sized.train), sharding.make_mesh(sized.mesh)
        check_divisible_by_mesh(mesh, objective, phases, sized.evaluate.batch_size)
        one_snapshot = dataclasses.replace(sized.data, snapshots=None)  # later snapshots may not be prepared yet
        rules = sequence_rules(dataclasses.replace(sized, data=one_snapshot), corpus.tokenizer())
        blocks = sharding.batch_blocks(mesh)
        batches = training_batches(corpus, rules, phases, blocks)(phases[0], 0)
        deterministic = sized.compute.deterministic
        rate = measure_flops_per_second(
            objective, sized.optimizer, phases, mesh, batches, seed=sized.seed, deterministic=deterministic
        )
        return float(multihost_utils.broadcast_one_to_all(np.array(rate)))

    recorded = _broadcast_choice(_read_recorded_choice(directory, text) if jax.process_index() == 0 else None)
    if recorded is None:
        refuse_fields_without_effect(config)
        smallest = max(
            phase.seq_len * num_equal_parts(phase.objective, phase.left_to_right_fraction)
            for phase in config.train.used_phases.values()
        )
        is_first = jax.process_index() == 0
        # A second command in this directory must not replace the choice of a run that has not yet written run.json.
        with locked_workdir(directory) if is_first else contextlib.nullcontext():
            choice, rates = _choose_by_measuring_sizes(
                budget, tokens, candidate_sizes(config), smallest * jax.device_count(), measured_rate, console
            )
            choice = dataclasses.replace(choice, devices=jax.device_count())
            check_pretraining(apply_choice(config, choice, given))  # checked before the choice is written
            if is_first:
                _write_choice(directory, text, choice, rates)
    else:
        choice = recorded
        console.say(f"budget {text}: as chosen when the run began ({directory / FILE})")
    print_choice(choice, text, console)
    return apply_choice(config, choice, given)


def candidate_sizes(config: PretrainConfig) -> list[Candidate]:
    """Return the possible sizes of a recipe's model, each with its FLOPs per training token.

    Some widths are impossible, for example because ELECTRA's generator has a fraction of the width. Raise UserError if
    no size is possible.
    """
    possible, refused = list[Candidate](), None
    for layers, hidden in SIZES:
        try:
            flops = make_objective(
                dataclasses.replace(config, model=resize_encoder(config.model, layers, hidden))
            ).flops
        except UserError as error:
            refused = error
            continue
        flops_per_token = sum(
            phase.fraction * flops(phase.seq_len, index) / phase.seq_len
            for index, phase in config.train.used_phases.items()
        )
        possible.append(Candidate(layers, hidden, flops_per_token))
    if refused and not possible:
        raise refused
    return possible


def num_equal_parts(phase_objective: str | None, left_to_right_fraction: float) -> int:
    """Return the number of equal parts into which each micro-batch must divide: 16 for a hybrid phase with 1/16."""
    if phase_objective is None or not PHASE_OBJECTIVES[phase_objective].splits_batch:
        return 1
    return fractions.Fraction(left_to_right_fraction).limit_denominator(1_000).denominator


def apply_choice(config: PretrainConfig, choice: Choice, given: Collection[str] = ()) -> PretrainConfig:
    """Return the recipe with the size, batches and steps of a choice; keys that the user set keep their values."""
    train, optimizer, scale = config.train, config.optimizer, choice.steps / config.train.steps
    devices = choice.devices or jax.device_count()
    phases = []
    for index, phase in enumerate(train.phases):
        num_parts = num_equal_parts(phase.objective, phase.left_to_right_fraction)
        sequences, micro_batches = sequences_and_micro_batches(choice.step_tokens, phase.seq_len, devices, num_parts)
        phases.append(dataclasses.replace(phase, batch_size=sequences, batch_stages=1, grad_accum_steps=micro_batches))
        if phase.warmup_steps is not None and f"train.phases[{index}].warmup_steps" not in given:
            phases[-1] = dataclasses.replace(phases[-1], warmup_steps=round(phase.warmup_steps * scale))
    if optimizer.warmup_steps is not None and "optimizer.warmup_steps" not in given:
        optimizer = dataclasses.replace(optimizer, warmup_steps=int(optimizer.warmup_steps * scale))
    evaluate_every = max(1, choice.steps // EVALUATIONS)
    # A forward pass is a third of a step.
    last_seq_len = train.phases[max(train.used_phases)].seq_len
    sequences = round(3 * EVALUATED * choice.tokens / EVALUATIONS / last_seq_len)
    batch_size = phases[0].batch_size
    assert batch_size
    return dataclasses.replace(
        config,
        model=resize_encoder(config.model, choice.num_layers, choice.hidden_size),
        optimizer=optimizer,
        train=dataclasses.replace(
            train,
            steps=choice.steps,
            batch_size=batch_size,
            phases=tuple(phases),
            **_values_user_did_not_set("train.", given, log_every=max(1, choice.steps // 100)),
        ),
        evaluate=dataclasses.replace(
            config.evaluate,
            **_values_user_did_not_set("evaluate.", given, every=evaluate_every, num_sequences=max(64, sequences)),
        ),
        checkpoint=dataclasses.replace(
            config.checkpoint, **_values_user_did_not_set("checkpoint.", given, every=evaluate_every)
        ),
    )


def print_choice(choice: Choice, budget: str, console: Console) -> None:
    """Print the size, the tokens and the steps that were chosen for a budget."""
    parameters = choice.flops / choice.tokens / 6
    console.say(
        f"  size: {choice.num_layers} layers x {choice.hidden_size}, the largest with {TOKENS_PER_PARAMETER:g} tokens "
        f"per parameter, or the smallest there is ({choice.tokens / parameters:.1f})"
    )
    console.say(
        f"  tokens: {choice.tokens / 1e6:,.2f} M, {choice.epochs:.2f} passes over the corpus, {choice.flops:.2e} FLOPs"
    )
    if choice.capped:
        console.say(
            f"  limit: {MAX_EPOCHS} passes over the corpus, which take less than {budget}; prepare more text to use it"
        )
    console.say(f"  steps: {choice.steps:,} of about {choice.step_tokens:,} tokens")


class _MeasuredRate(NamedTuple):
    """The measured FLOP/s of training a model of a size."""

    num_layers: int
    hidden_size: int
    flops_per_second: float


class _MeasuredChoice(NamedTuple):
    """The chosen size and steps, and the measured rates of the sizes."""

    choice: Choice
    rates: list[_MeasuredRate]


def _choose_by_measuring_sizes(
    budget: Budget,
    corpus_tokens: int,
    sizes: Sequence[Candidate],
    min_step_tokens: int,
    measured_rate: Callable[[Choice], float],
    console: Console,
) -> _MeasuredChoice:
    """Choose the size for a budget; return the choice and the measured rates.

    If the budget is a time, the FLOP/s of the smallest size are measured first. If these FLOP/s lead to the choice of a
    larger size, the FLOP/s of the larger size are measured. The measurements end when the chosen size is not larger
    than the last measured size.
    """
    if budget.seconds is None:
        console.say("budget, without a measurement:")
        return _MeasuredChoice(choose_size_and_steps(budget, None, corpus_tokens, sizes, min_step_tokens), [])
    rates: list[_MeasuredRate] = []
    choice = Choice(
        num_layers=sizes[0].num_layers,
        hidden_size=sizes[0].hidden_size,
        tokens=0,
        step_tokens=2**13,
        steps=1,
        flops=0.0,
        epochs=0.0,
        capped=False,
    )
    while not rates or SIZES.index((choice.num_layers, choice.hidden_size)) > SIZES.index(rates[-1][:2]):
        console.progress(f"measuring {choice.num_layers} layers x {choice.hidden_size}")
        rates.append(_MeasuredRate(choice.num_layers, choice.hidden_size, measured_rate(choice)))
        choice = choose_size_and_steps(budget, rates[-1].flops_per_second, corpus_tokens, sizes, min_step_tokens)
    layers, hidden, rate = rates[-1]
    time = format_seconds(choice.flops / rate)
    console.say(
        f"budget: {rate / 1e9:,.1f} GFLOP/s measured ({layers} layers x {hidden}); the steps take about {time}, "
        "evaluation and compilation come on top:"
    )
    return _MeasuredChoice(choice, rates)


def resize_encoder(model: EncoderConfig, layers: int, hidden: int) -> EncoderConfig:
    """Return the model config with another depth and width.

    Heads have 64 features, and the width of the MLP is in proportion to the width of the model.
    """
    mlp_size = 32 * max(1, round(hidden * model.mlp_size / model.hidden_size / 32))
    heads = hidden // HEAD_SIZE
    return dataclasses.replace(model, num_layers=layers, hidden_size=hidden, num_heads=heads, mlp_size=mlp_size)


def _values_user_did_not_set(section: str, given: Collection[str], **values: Any) -> dict[str, Any]:
    """Return the values of a config section, except values whose keys the user set (`given`)."""
    return {name: value for name, value in values.items() if section + name not in given}


def _read_recorded_choice(directory: pathlib.Path, text: str) -> Choice | None:
    """Return the recorded choice of the run in a directory; None if no run has begun."""
    if not (directory / "run.json").exists() and not checkpoints_directory(directory).exists():
        return None  # if the directory has a choice but no run, the choice is from a refused command
    try:
        values = strict_json.parse(read_file(directory / FILE, strict_json.MAX_BYTES).decode())
        budget, choice = values["budget"], Choice(**values["choice"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{directory} holds a run without a readable {FILE}: leave --budget out, or choose another --workdir"
        ) from None
    if budget != text:
        raise UserError(f"{directory} holds a run with --budget {budget!r}; choose another --workdir")
    return choice


def _broadcast_choice(choice: Choice | None) -> Choice | None:
    """Send the choice of process 0 to every process, and return it."""
    values = dataclasses.asdict(choice) if choice else None
    text = json.dumps(values).encode().ljust(MAX_BYTES)  # a broadcast of floats would round the numbers to 32 bits
    values = json.loads(multihost_utils.broadcast_one_to_all(np.frombuffer(text, np.uint8)).tobytes())
    return Choice(**values) if values else None


def _write_choice(directory: pathlib.Path, text: str, choice: Choice, rates: list[_MeasuredRate]) -> None:
    """Write the budget, the measured rates and the choice to a file in the work directory."""
    with writing(directory, "make room, or choose another --workdir"):
        directory.mkdir(parents=True, exist_ok=True)
        measured = [rate._asdict() for rate in rates]
        content = {"budget": text, "measured": measured, "choice": dataclasses.asdict(choice)}
        write_text(directory / FILE, json.dumps(content, indent=1) + "\n")
    if mirror := mirror_of(directory):
        mirror.upload_now(FILE)
