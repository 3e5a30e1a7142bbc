"""Pretraining put together: corpus and config in, a work directory out."""

import contextlib
import dataclasses
import functools
import os
import pathlib
from typing import Any

import jax

from bert_jax.config import (
    PretrainConfig,
    check_choices,
    flatten,
    no_effect,
    refuse_fields_without_effect,
    to_json,
    with_vocab_size,
)
from bert_jax.console import Console
from bert_jax.corpus.mixture import Mixture, name_snapshots, open_mixture
from bert_jax.corpus.statistics import unigram_entropy
from bert_jax.errors import UserError
from bert_jax.objectives import make_objective
from bert_jax.parallel import sharding
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.pretraining.data import corpus_data, min_documents
from bert_jax.pretraining.evaluate import make_evaluation
from bert_jax.pretraining.initial_weights import as_begun, check_exportable, from_elsewhere, starting_weights
from bert_jax.pretraining.requirements import lock_versions
from bert_jax.pretraining.run_lines import run_lines
from bert_jax.pretraining.snapshots import ALL_PREPARED, Rest, check_snapshots
from bert_jax.pretraining.teacher import read_teacher
from bert_jax.scoring.minimal_pairs import PACKAGED
from bert_jax.training import workdir
from bert_jax.training.checkpoint import versions
from bert_jax.training.evaluation import sized_evaluation
from bert_jax.training.loop import RunContext, fit
from bert_jax.training.plateau import Plateau
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import check_layout


def pretrain(
    config: PretrainConfig,
    directory: pathlib.Path,
    console: Console,
    interrupt: Interrupt | None = None,
    watchdog: Watchdog | None = None,
    rest: Rest = ALL_PREPARED,
) -> bool:
    """Run or resume `config` in `directory`; False where a signal ended it early (its state is saved).

    Each of several processes calls it, with the same config and a directory that all of them see.

    Raises:
        UserError: a config, corpus, directory or devices that do not fit each other, before anything is written.
    """
    check_choices(config)
    if not config.data.corpus:
        raise UserError(
            "no corpus: give --config.data.corpus=DIR, made by `bert-jax prepare`, or --config.data.text=FILES"
        )
    recorded = workdir.recorded_config(directory)
    refuse_fields_without_effect(config, with_tables=not recorded)  # a run of an earlier version may resume
    known = (recorded.data.corpus or "") if recorded else ""
    corpus = open_mixture(config.data.corpus, console.say, known, console.progress)
    if len(corpus.corpora) == 1 and (config.data.weights is not None or config.data.smoothing != 1):
        name, default = ("smoothing", 1.0) if config.data.weights is None else ("weights", None)
        raise no_effect(f"config.data.{name}", "one corpus", default)
    config = _resolved(config, corpus)
    resumes = recorded is not None and workdir.has_checkpoints(directory)
    if recorded and resumes:
        config = as_begun(config, recorded, console)
    check_snapshots(config, corpus, rest)
    teacher = read_teacher(config, corpus.tokenizer(), console)
    objective, phases = make_objective(config, teacher.config), plan_phases(config.train)
    if watchdog:
        watchdog.check_agreement(run_fingerprint(config, corpus) | {"resumes": str(resumes)})
    mesh = check_layout(config, objective, phases)  # refused now, it leaves the directory to the corrected command
    params = None if resumes else starting_weights(config, corpus.tokenizer(), console, teacher)
    data = corpus_data(sized_evaluation(config, mesh), corpus, sharding.batch_blocks(mesh), rest=rest)
    data = data._replace(
        evaluate=make_evaluation(
            config, objective, mesh, corpus.tokenizer(), functools.partial(_beat, interrupt, watchdog)
        ),
        fingerprint={**data.fingerprint, **teacher.fingerprint},
    )
    first = jax.process_index() == 0
    with workdir.locked(directory) if first else contextlib.nullcontext():
        if first:
            workdir.claim(directory, config, data.fingerprint, corpus.tokenizer_directory)
            lock_versions(directory, console.say)
        for line in run_lines(config, corpus, phases):
            console.say(line)
        if data.heldout is None:
            console.say("no evaluation: too few held-out documents; `prepare --heldout_fraction` sets their number")
        elif left_out := corpus.left_out("heldout", min_documents(config)):
            console.say(f"too few held-out documents in {', '.join(left_out)}; the evaluation reads the others")
        run = RunContext(
            config, objective, phases, data, directory, console, interrupt, watchdog, params, teacher.params
        )
        return fit(_measured(run, config, corpus) if first else run)


def _beat(interrupt: Interrupt | None, watchdog: Watchdog | None) -> bool:
    """Between two parts of long work: restart the watchdog's clock; whether the run is to stop."""
    if watchdog:
        watchdog.alive()
    return interrupt is not None and interrupt.check()


def _measured(run: RunContext, config: PretrainConfig, corpus: Mixture) -> RunContext:
    """The run with the unigram entropy of what it is evaluated on, which follows from the corpus alone."""
    held = corpus.split("heldout", min_documents(config))
    split = held if run.data.heldout else corpus.split("train")
    entropy = unigram_entropy(split, corpus.vocab_size)
    run = run._replace(data=run.data._replace(unigram_entropy=entropy))
    # Weights from elsewhere have left the plateau before.
    return run if from_elsewhere(config) else run._replace(remarks=Plateau(config, run.phases, entropy).remarks)


def _resolved(config: PretrainConfig, corpus: Mixture) -> PretrainConfig:
    """The config with a vocabulary size, absolute paths, since the next call may come from elsewhere, and snapshots."""
    tokenizer = corpus.tokenizer()
    config = with_vocab_size(config, tokenizer.vocab_size)
    check_exportable(config, tokenizer.special_ids)
    assert config.data.corpus
    pairs = config.evaluate.pairs
    return dataclasses.replace(
        config,
        data=dataclasses.replace(config.data, corpus=name_snapshots(config.data.corpus, corpus)),
        evaluate=config.evaluate if pairs in PACKAGED else _absolute(config.evaluate, "pairs"),
        replaced_tokens=_absolute(config.replaced_tokens, "generator_from"),
        distillation=_absolute(config.distillation, "teacher"),
        init_from=_absolute(config, "init_from").init_from,
    )


def _absolute(part: Any, name: str) -> Any:
    """The part of a config with an absolute path or a URL in its field `name`, which may be None."""
    place = getattr(part, name)
    absolute = place if not place or "://" in place else os.path.abspath(place)
    return dataclasses.replace(part, **{name: absolute or None})


def run_fingerprint(config: PretrainConfig, corpus: Mixture) -> dict[str, str]:
    """Return what must be the same in every process of a run; the corpus may be elsewhere on each."""
    values = {f"config.{key}": str(value) for key, value in flatten(to_json(config)).items() if key != "data.corpus"}
    return values | versions() | {"corpus": corpus.fingerprint, "tokenizer": corpus.tokenizer_sha256}
