"""Verbs that train, print a recipe, or estimate its run: config, compile, pretrain, finetune."""

import argparse
import dataclasses
import json
import pathlib
from typing import Any

from bert_jax.cli.command import (
    Verb,
    add_flag,
    add_platform,
    add_processes,
    add_recipe,
    add_workdir,
)
from bert_jax.cli.outputs import open_console
from bert_jax.errors import UserError

MEMORY_ADVICE = "lower config.train.batch_size, or raise config.train.grad_accum_steps, or the values of the phase"


def _run_in_processes(args: argparse.Namespace, kind: Any, run: Any) -> tuple[Any, bool]:
    """Call `run(config, workdir, session)` in this process of a run of one process or several.

    Returns the result of `run`, and whether this is the first process.
    """
    from bert_jax.checkpoints.architecture import read_run_config
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.parallel.joining import find_peers, joined_processes
    from bert_jax.parallel.platform import use_platform
    from bert_jax.parallel.preemption import Interrupt
    from bert_jax.training.plan import Session
    from bert_jax.training.remote_workdir import local_copy

    peers = find_peers(args.coordinator, args.num_processes, args.process_id)
    first = peers is None or peers.process_id == 0
    try:
        config, refused = read_run_config(kind, args.config, args.overrides), None
    except UserError as error:
        if peers is None:
            raise
        config, refused = kind(), error  # the other processes wait for this process, and must learn of its error
    use_compilation_cache()
    use_platform(args.platform)
    with (
        Interrupt() as interrupt,
        open_console(silent=not first) as console,
        joined_processes(peers, config.watchdog, interrupt, args.verb, MEMORY_ADVICE) as watchdog,
    ):
        if refused:
            raise refused
        console.beat = watchdog.alive
        session = Session(console=console, interrupt=interrupt, watchdog=watchdog)
        return run(config, local_copy(args.workdir), session), first


def _config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="name or file of a recipe (default: list the recipes)"
    )
    add_flag(parser, "--json", "print one JSON object")


def run_config(args: argparse.Namespace) -> None:
    """Print the fields of a recipe, or the recipes."""
    from bert_jax.cli.config_text import config_json, config_text

    if args.json:
        print(json.dumps(config_json(args.recipe, args.overrides)))
    else:
        print(config_text(args.recipe, args.overrides))


CONFIG = Verb(
    summary="print the fields of a recipe",
    description=(
        "Prints key, value and meaning of every field, and the values it takes; fields that differ from their default "
        "are marked. Without a recipe: the names of the recipes, and the defaults."
    ),
    example="bert_base --config.train.steps=500000",
    add_options=_config_options,
    run=run_config,
    config_kinds=("pretrain", "finetune"),
    positional_hint="; a field is overridden by --config.KEY=VALUE",
)


def _compile_options(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser, "bert_base")
    parser.add_argument(
        "--topology",
        metavar="CHIP:SIZES",
        help="TPU slice, such as v5e:16x16, v4:2x2x2 or tpu7x:2x2x1 (v5e:16x16:2 for two), or GPUs of one host, as "
        "h100:8 (a100, h100, h200, b200, l40s); needs the TPU compiler (pip install 'jax[tpu]') or the CUDA compiler "
        "(pip install 'jax[cuda13-local]' nvidia-cudnn-cu13), each in its own environment (default: the devices "
        "present)",
    )
    parser.add_argument("--price_per_chip_hour", type=float, metavar="PRICE", help="price, to estimate the run's cost")
    parser.add_argument(
        "--watts_per_chip",
        type=float,
        metavar="W",
        help="power, to estimate the run's energy (default: a typical value, where published)",
    )
    add_flag(parser, "--json", "print one JSON object with a list `phases`")


def run_compile(args: argparse.Namespace) -> int:
    """Print the memory, time and cost of a recipe; return 1 if a phase does not fit into memory."""
    from bert_jax.checkpoints.architecture import read_run_config
    from bert_jax.config import FinetuneConfig
    from bert_jax.config.load import recipe_kind
    from bert_jax.dryrun.topology import topology_devices

    config = read_run_config(recipe_kind(args.config), args.config, args.overrides)
    devices = topology_devices(args.topology) if args.topology else None

    from bert_jax.dryrun.dry_run import dry_run, finetuning_work, pretraining_work, recipe_total
    from bert_jax.dryrun.report import report_json, report_text

    with open_console() as console, console.working("compiling"):
        work = finetuning_work(config, console) if isinstance(config, FinetuneConfig) else pretraining_work(config)
        report = dry_run(work, devices, console.say)
    total = recipe_total(report, args.price_per_chip_hour, args.watts_per_chip)
    print(json.dumps(report_json(report, total)) if args.json else report_text(report, total))
    return 0 if all(phase.fits for phase in report.phases) else 1


COMPILE = Verb(
    summary="estimate memory, time and cost of a recipe before it runs",
    description=(
        "A dry run: compiles each phase for the devices present, or for a TPU slice or GPUs that are not present, "
        "reads memory, FLOPs, bytes, kernels and collectives from the compiled programs, and estimates times from "
        "them. Exit status 1 if a phase does not fit. A recipe for fine-tuning needs its weights and data. Every "
        "field of the recipe can be overridden, as in --config.compute.remat=True."
    ),
    example="--config=bert_base --topology v5e:4x4",
    add_options=_compile_options,
    run=run_compile,
    config_kinds=("pretrain", "finetune"),
)


def _pretrain_options(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser, "bert_base", without_recipe="default: with --budget small_cpu")
    add_workdir(
        parser,
        "work directory for checkpoints, metrics.jsonl and TensorBoard events: a path, gs:// or s3://BUCKET/NAME",
    )
    parser.add_argument(
        "--budget",
        metavar="AMOUNT",
        help="time, tokens or FLOPs to spend: 30m, 1h30m, '50M tokens', '1e16 flops'; chooses size, tokens, batch and "
        "steps of the recipe (for a time, after some steps that measure the devices), and prints the choice",
    )
    add_platform(parser)
    add_processes(parser)


def run_pretrain(args: argparse.Namespace) -> None:
    """Train a recipe or resume its run; then print the next commands."""
    if not args.config and not args.budget:
        args.parser.error("give --config RECIPE, or --budget AMOUNT, such as --budget 30m")

    from bert_jax.config import PretrainConfig
    from bert_jax.pretraining.budget.plan import DEFAULT_RECIPE, config_for_budget
    from bert_jax.pretraining.pretrain import pretrain_in_directory
    from bert_jax.pretraining.text import text_as_corpus

    args.config = args.config or DEFAULT_RECIPE
    given = [override.removeprefix("--config.").partition("=")[0] for override in args.overrides]

    def run(config: Any, workdir: pathlib.Path, session: Any) -> bool:
        with text_as_corpus(config.data, config.model.vocab_size, session.console) as (data, preparation):
            config = dataclasses.replace(config, data=data)
            if args.budget:
                config = config_for_budget(config, args.budget, workdir, session.console, given)
            return pretrain_in_directory(config, workdir, session, preparation)

    finished, first = _run_in_processes(args, PretrainConfig, run)
    if finished and first:
        from bert_jax.cli.results_text import pretrained_model_text
        from bert_jax.objectives import OBJECTIVES
        from bert_jax.tokenizer import load_tokenizer
        from bert_jax.training.remote_workdir import local_copy
        from bert_jax.training.workdir import read_run

        workdir = local_copy(args.workdir)
        config, tokenizer = read_run(workdir)[0], load_tokenizer(workdir / "tokenizer")
        assert isinstance(config, PretrainConfig)
        heads = OBJECTIVES[config.objective].heads(config.data.sentence_pairs)
        print(pretrained_model_text(args.workdir, heads, tokenizer.tokens[tokenizer.mask_id]))


PRETRAIN = Verb(
    summary="train a recipe, or resume its run",
    description=(
        "Trains in a work directory. Ctrl-C or SIGTERM saves and stops; the same command resumes from the newest "
        "intact checkpoint. Every field of the recipe can be overridden, as in "
        "--config.optimizer.peak_learning_rate=2e-4; `bert-jax config RECIPE` lists all fields."
    ),
    example="--config=bert_base --workdir runs/base --config.data.corpus=corpus/",
    add_options=_pretrain_options,
    run=run_pretrain,
    config_kinds=("pretrain",),
    positional_hint="; give a corpus as --config.data.corpus={0}",
    memory_advice=MEMORY_ADVICE,
)


def _finetune_options(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser, "glue")
    add_workdir(
        parser, "work directory for the model, its scores and its predictions: a path, gs:// or s3://BUCKET/NAME"
    )
    add_flag(parser, "--json", "print results.json on one line instead of a table")
    add_platform(parser)
    add_processes(parser)


def run_finetune(args: argparse.Namespace) -> None:
    """Train a task on a pretrained model, or resume its run, and print the scores."""
    from bert_jax.config import FinetuneConfig
    from bert_jax.finetuning.finetune import finetune_in_directory

    results, first = _run_in_processes(args, FinetuneConfig, finetune_in_directory)
    if results and first:
        from bert_jax.cli.results_text import finetuning_table

        print(json.dumps(results) if args.json else finetuning_table(results, args.workdir))


FINETUNE = Verb(
    summary="train a task on a pretrained model, or resume its run",
    description=(
        "Trains config.task from the weights in config.init_from with each learning rate and seed, keeps the best "
        "model, and predicts the dev and test sets. bert_jax/tasks/table.py lists the tasks; 'custom' reads your own "
        "JSON lines, TSV or CSV. `bert-jax config glue` lists all fields."
    ),
    example=(
        "--config=glue --workdir runs/qnli --config.init_from=my-bert/ --config.task.name=qnli --config.task.data=QNLI/"
    ),
    add_options=_finetune_options,
    run=run_finetune,
    config_kinds=("finetune",),
    positional_hint="; give weights as --config.init_from={0}, data as --config.task.data={0}",
    memory_advice=MEMORY_ADVICE,
)
