"""The main function of `bert-jax finetune`: from weights, a task and a config to the best model and its scores.

A work directory holds a directory `runs/lr..._seed...` for each training, the best model as a Hugging Face directory
`model/`, `results.json` with all scores, and `predictions/`.
"""

import contextlib
import dataclasses
import pathlib
from typing import Any

import jax

from bert_jax.config import (
    FinetuneConfig,
    check_choices,
    check_warmup,
    refuse_fields_without_effect,
    to_json,
    values_that_hosts_share,
)
from bert_jax.finetuning.batch_shapes import with_packed_rows_if_cheaper
from bert_jax.finetuning.dev_retrieval import make_retrieval_scorer, with_retrieval_scores
from bert_jax.finetuning.inputs import (
    describe_adapter,
    describe_continued_head,
    learning_rates_to_try,
    objective_of_task,
    plan_training,
    read_task_inputs,
    small_encoder_warning,
    task_model,
)
from bert_jax.finetuning.results import summarize_trainings, write_results
from bert_jax.finetuning.task_data import make_dev_evaluation
from bert_jax.finetuning.training import train_one
from bert_jax.finetuning.training_sets import TrainingSet, describe_sets
from bert_jax.objectives.tasks import model_for_predictions
from bert_jax.parallel import sharding
from bert_jax.pretraining.initial_weights import print_initial_weights_summary
from bert_jax.readers.hub import make_local_path_absolute
from bert_jax.tasks.batching import describe_batch_rule, describe_batch_shapes
from bert_jax.training import workdir
from bert_jax.training.checkpoint import package_versions
from bert_jax.training.loop import Programs
from bert_jax.training.plan import Plan, Session
from bert_jax.training.profile import profiled_steps
from bert_jax.training.step import check_divisible_batches, check_divisible_by_mesh


def finetune_in_directory(config: FinetuneConfig, directory: pathlib.Path, session: Session) -> dict[str, Any] | None:
    """Train `config.task` from `config.init_from` with each learning rate and seed.

    If there are several processes, each process calls this function with a directory that all processes see.

    Returns:
        The content of `results.json`; None if a signal ended the training early. The same call then resumes the
            training.

    Raises:
        UserError: weights, data or settings do not fit each other. If UserError is raised, nothing has been written.
    """
    console, settings, is_first = session.console, config.task, jax.process_index() == 0

    # Open the inputs: weights, tokenizer, a teacher, and the sets of the task.
    check_choices(config)
    refuse_fields_without_effect(config)
    rates = learning_rates_to_try(settings.learning_rates, config.optimizer.peak_learning_rate)
    with console.working("reading the task"):
        freeze = config.optimizer.freeze_encoder
        inputs = read_task_inputs(
            config.init_from, settings, config.train, freeze, config.seed, console, config.adapter
        )
    settings = inputs.settings

    # Resolve the config: fill in the lengths to pad to, the numbers of steps, and absolute paths.
    mesh = sharding.make_mesh(config.mesh)
    feed, phase, order = plan_training(inputs, settings, config.train)
    check_divisible_batches(mesh, (phase,))  # checked before examples are distributed to devices
    sets = [TrainingSet(split.features, feed) for split in inputs.train]
    if not settings.buckets:  # lengths that the user chose are kept
        of_run = (inputs.architectures, inputs.weights.heads, config.compute, mesh)
        epochs, grad_accum_steps = settings.epochs, config.train.grad_accum_steps
        sets = [
            TrainingSet(features, with_packed_rows_if_cheaper(feed, features, epochs, grad_accum_steps, *of_run))
            for features, feed in sets
        ]
    config = resolve_finetune_config(config, steps_per_epoch=order.num_per_epoch)
    check_warmup(config.optimizer, phase.end)
    dev_sizes = ", ".join(f"{len(split.examples):,} in {split.name}" for split in inputs.dev)
    train_size = sum(len(split.examples) for split in inputs.train)
    shapes = [describe_batch_shapes(each.feed, each.features) for each in sets]
    console.say(
        f"task {inputs.task.name}: {train_size:,} examples in train, {dev_sizes}; {phase.end:,} steps of "
        f"{feed.batch_size} sequences, {'; '.join(shapes)}"
    )
    if len(sets) > 1:
        console.say(describe_sets([split.name for split in inputs.train], order))

    # Check that all processes have equal inputs, and make the plan that all trainings share.
    recorded_config = to_json(config)
    fingerprint = inputs.fingerprint | {"batches": "; ".join(describe_batch_rule(each.feed) for each in sets)}
    if jax.process_count() > 1:
        agreed = values_that_hosts_share(recorded_config)
        session.watchdog.check_agreement(agreed | package_versions() | fingerprint)
    plan = Plan(
        workdir=directory,
        root=directory,
        recorded_config=recorded_config,
        fingerprint=fingerprint,
        seed=config.seed,
        objective=objective_of_task(inputs, settings, config.compute, freeze, phase.end),
        phases=(phase,),
        mesh=mesh,
        optimizer=config.optimizer,
        compute=config.compute,
        train=config.train,
        evaluate_every=config.evaluate.every,
        evaluate_first=False,
        checkpoint=config.checkpoint,
        profiled_steps=profiled_steps(config.profile.steps, phase.end) if config.profile.steps else None,
    )
    check_divisible_by_mesh(plan.mesh, plan.objective, plan.phases, config.evaluate.batch_size)

    # Lock the work directory, and print a description of the initial weights.
    with workdir.locked_workdir(directory) if is_first else contextlib.nullcontext():
        if is_first:
            workdir.write_or_check_run(directory, recorded_config, fingerprint, inputs.weights.directory)
        print_initial_weights_summary(str(config.init_from), inputs.weights, console.say)
        if not inputs.adapter and (line := small_encoder_warning(inputs.architecture, rates)):
            console.say(line)
        if inputs.adapter:
            console.say(describe_adapter(inputs, plan.objective))
        if settings.random_weights:
            console.say("config.task.random_weights: only the architecture and the tokenizer are used, no parameter")
        elif line := describe_continued_head(inputs.task.labels, inputs.weights):
            console.say(line)
        if settings.verbalizers:
            console.say(f"words of the labels at the mask of '{settings.template}': {settings.verbalizers}")

        # Train with each learning rate and each seed. Trainings share the compiled programs that are equal.
        evaluation_feed = sets[0].feed._replace(batch_size=config.evaluate.batch_size)
        model = model_for_predictions(task_model(inputs, config.compute), inputs.task.kind, settings)
        evaluation = make_dev_evaluation(
            inputs.task, settings, inputs.dev, evaluation_feed, model, config.compute, mesh
        )
        score_collection = make_retrieval_scorer(inputs, settings, console)
        evaluation = evaluation._replace(evaluate=with_retrieval_scores(evaluation.evaluate, score_collection))
        results = []
        for rate in rates:
            programs: Programs = {}  # programs that all seeds with this rate share
            for seed in range(config.seed, config.seed + settings.num_seeds):
                optimizer = dataclasses.replace(config.optimizer, peak_learning_rate=rate)
                training_plan = dataclasses.replace(
                    plan,
                    workdir=directory / "runs" / f"lr{rate:g}_seed{seed}",
                    recorded_config=to_json(dataclasses.replace(config, seed=seed, optimizer=optimizer)),
                    seed=seed,
                    optimizer=optimizer,
                )
                console.say(f"training with learning rate {rate:g} and seed {seed} in {training_plan.workdir}")
                result = train_one(training_plan, inputs, settings, sets, evaluation, programs, session)
                if result is None:
                    return None
                results.append({"learning_rate": rate, "seed": seed, "run": training_plan.workdir.name} | result)

        # Write the best model, its predictions and all scores.
        summary = summarize_trainings(inputs.task.name, inputs.metric, results)
        if not is_first:
            return summary
        return write_results(inputs, settings, config.compute, evaluation_feed, directory, summary, console)


def resolve_finetune_config(config: FinetuneConfig, steps_per_epoch: int) -> FinetuneConfig:
    """Return the config with an absolute path of the weights, and `steps_per_epoch` for each missing `every`."""
    assert config.init_from
    return dataclasses.replace(
        config,
        init_from=make_local_path_absolute(config.init_from),
        evaluate=dataclasses.replace(config.evaluate, every=config.evaluate.every or steps_per_epoch),
        checkpoint=dataclasses.replace(config.checkpoint, every=config.checkpoint.every or steps_per_epoch),
    )
