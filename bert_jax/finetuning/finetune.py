"""Fine-tuning put together: weights, a task and a config in; the best model, its scores and its predictions out.

A work directory holds `runs/lr..._seed...`, one training each, `model/`, the best of them all as a Hugging Face
directory, `results.json` with every score, and `predictions/`.
"""

import contextlib
import dataclasses
import pathlib
from typing import Any

import jax

from bert_jax.config import FinetuneConfig, check_choices, flatten, refuse_fields_without_effect, to_json
from bert_jax.console import Console
from bert_jax.finetuning.results import summarize, write_results
from bert_jax.finetuning.setup import Setup, learning_rates, prepare_task, task_objective
from bert_jax.finetuning.train import train_one
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.pretraining.initial_weights import describe_start
from bert_jax.training import workdir
from bert_jax.training.checkpoint import versions
from bert_jax.training.step import check_layout


def finetune(
    config: FinetuneConfig,
    directory: pathlib.Path,
    console: Console,
    interrupt: Interrupt | None = None,
    watchdog: Watchdog | None = None,
) -> dict[str, Any] | None:
    """Train `config.task` from `config.init_from` with each learning rate and seed.

    Each of several processes calls it, with a directory that all of them see.

    Returns:
        The content of `results.json`; None where a signal ended it early: the same call resumes.

    Raises:
        UserError: weights, data or settings that do not fit each other, before anything is written.
    """
    check_choices(config)
    refuse_fields_without_effect(config)
    rates = learning_rates(config)
    with console.working("reading the task"):
        setup = prepare_task(config, console)
    fingerprint = setup.fingerprint
    if watchdog:
        values = {f"config.{key}": str(value) for key, value in flatten(to_json(setup.config)).items()}
        watchdog.check_agreement(values | versions() | fingerprint)
    mesh = check_layout(setup.config, task_objective(setup), setup.phases)
    first = jax.process_index() == 0
    with workdir.locked(directory) if first else contextlib.nullcontext():
        if first:
            workdir.claim(directory, setup.config, fingerprint, setup.start.directory)
        _describe(setup, console)
        results = []
        for rate in rates:
            for seed in range(config.seed, config.seed + config.task.num_seeds):
                optimizer = dataclasses.replace(config.optimizer, peak_learning_rate=rate)
                one = setup._replace(config=dataclasses.replace(setup.config, seed=seed, optimizer=optimizer))
                place = directory / "runs" / f"lr{rate:g}_seed{seed}"
                console.say(f"training with learning rate {rate:g} and seed {seed} in {place}")
                found = train_one(one, place, mesh, fingerprint, console, interrupt, watchdog)
                if found is None:
                    return None
                results.append({"learning_rate": rate, "seed": seed, "run": place.name} | found)
        summary = summarize(setup, results)
        if first:
            write_results(setup, directory, summary, console)
        return summary


def _describe(setup: Setup, console: Console) -> None:
    describe_start(setup.config.init_from, setup.start, console)
    if setup.config.task.random_weights:
        console.say("config.task.random_weights: only the architecture and the tokenizer are used, no parameter")
    elif setup.start.labels and setup.task.labels not in ((), setup.start.labels):
        old, new = (", ".join(names) for names in (setup.start.labels, setup.task.labels))
        console.say(f"the head was trained for the labels {old}; training continues for {new}, in this order")
