"""Verbs that train (`pretrain`, `finetune`), print a recipe (`config`), or estimate memory and time (`compile`)."""

import argparse
import contextlib
import dataclasses
import pathlib
import sys
from typing import Any, NamedTuple

from bert_jax.cli.command import (
    Verb,
    add_config_option,
    add_flag,
    add_platform,
    add_process_options,
    add_workdir,
    open_console,
    print_json,
    print_text,
)
from bert_jax.errors import UserError, check_positive, escaped

MEMORY_ADVICE = "lower config.train.batch_size, or raise config.train.grad_accum_steps, or the values of the phase"
# Options of other trainers -> advice.
RESUME_ADVICE = dict.fromkeys(
    ("--resume", "--resume_from_checkpoint", "--continue"), "to resume a run, repeat its command without this option"
)
MESH_ADVICE = "give the size of each axis, such as --config.mesh.data=4 --config.mesh.fsdp=2 --config.mesh.tensor=1"


class _ResultAndRank(NamedTuple):
    """The result of a run, and whether this is process 0."""

    result: Any
    is_process_0: bool


def _run_in_processes(args: argparse.Namespace, kind: Any, run: Any) -> _ResultAndRank:
    """Join the other processes of the run, if there are any, and call `run(config, workdir, session)`.

    Return the result of `run`, and whether this is process 0.
    """
    from bert_jax.checkpoints.architecture import read_run_config
    from bert_jax.parallel.joining import find_peers, joined_processes
    from bert_jax.parallel.platform import use_compilation_cache, use_platform
    from bert_jax.parallel.preemption import Interrupt
    from bert_jax.training.plan import Session
    from bert_jax.training.remote_workdir import local_copy

    peers = find_peers(args.coordinator, args.num_processes, args.process_id)
    first = peers is None or peers.process_id == 0
    try:
        config, refused = read_run_config(kind, args.config, args.overrides, args.workdir), None
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
        console.beat = watchdog.restart_clock
        session = Session(console=console, interrupt=interrupt, watchdog=watchdog)
        return _ResultAndRank(run(config, local_copy(args.workdir), session), first)


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="name or file of a recipe (default: list all recipes)"
    )
    add_flag(parser, "--json", "print one JSON object")


def run_config(args: argparse.Namespace) -> None:
    """Print the fields of a recipe, or the recipes."""
    from bert_jax.cli.config_text import config_json, config_text

    if args.json:
        print_json(config_json(args.recipe, args.overrides))
    else:
        print_text(config_text(args.recipe, args.overrides))


CONFIG = Verb(
    summary="print the fields of a recipe",
    description=(
        "Prints the key, the value, the meaning and the allowed values of every field. A star marks fields that "
        "differ from their default. Without a recipe, prints the defaults, and then the names of all recipes."
    ),
    example="bert_base --config.train.steps=500000",
    add_options=_add_config_options,
    run=run_config,
    config_kinds=("pretrain", "finetune"),
    positional_hint="; a field is overridden by --config.KEY=VALUE",
)


def _add_compile_options(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser, "bert_base")
    parser.add_argument(
        "--topology",
        metavar="CHIP:SIZES",
        help="TPU slice, such as v5e:16x16, v4:2x2x2 or tpu7x:2x2x1 (v5e:16x16:2 for two slices), or GPUs of one "
        "host, such as h100:8 (a100, h100, h200, b200, l40s); needs the TPU compiler (pip install 'jax[tpu]') "
        "or the CUDA compiler (pip install 'jax[cuda13-local]' nvidia-cudnn-cu13), each in a separate "
        "environment (default: the devices of this machine)",
    )
    parser.add_argument(
        "--price_per_chip_hour",
        type=float,
        metavar="PRICE",
        help="price of a chip per hour, to estimate the cost of the run",
    )
    parser.add_argument(
        "--watts_per_chip",
        type=float,
        metavar="W",
        help="power of a chip, to estimate the energy of the run (default: the published typical value, if it exists)",
    )
    add_flag(parser, "--json", "print one JSON object with a list `phases`")


def run_compile(args: argparse.Namespace) -> int:
    """Print the memory, time and cost of a recipe; return 1 if a phase does not fit in memory."""
    from bert_jax.checkpoints.architecture import read_run_config
    from bert_jax.config import FinetuneConfig
    from bert_jax.config.load import config_class_of_recipe
    from bert_jax.dryrun.topology import compile_only_devices

    check_positive({"price_per_chip_hour": args.price_per_chip_hour, "watts_per_chip": args.watts_per_chip})
    config = read_run_config(config_class_of_recipe(args.config), args.config, args.overrides)
    devices = compile_only_devices(args.topology) if args.topology else None

    from bert_jax.dryrun.dry_run import dry_run, finetuning_compile_inputs, pretraining_compile_inputs, recipe_total
    from bert_jax.dryrun.report import report_json, report_text

    with open_console() as console, console.working("compiling"):
        work = (
            finetuning_compile_inputs(config, console)
            if isinstance(config, FinetuneConfig)
            else pretraining_compile_inputs(config)
        )
        report = dry_run(work, devices, console.say)
    total = recipe_total(report, args.price_per_chip_hour, args.watts_per_chip)
    print_json(report_json(report, total)) if args.json else print_text(report_text(report, total))
    return 0 if all(phase.fits for phase in report.phases) else 1


COMPILE = Verb(
    summary="estimate memory, time and cost of a recipe before it runs",
    description=(
        "Compiles the training step of each phase without running it, for the devices of this machine, or for a "
        "TPU slice or GPUs that need not be present. Reads memory, FLOPs, bytes, kernels and collectives from "
        "the compiled programs, and estimates times from them. Exits with 1 if a phase does not fit in memory. A "
        "recipe for fine-tuning needs its weights and data. Every field of the recipe can be overridden, as in "
        "--config.compute.remat=True."
    ),
    example="--config=bert_base --topology v5e:4x4",
    add_options=_add_compile_options,
    run=run_compile,
    bare_words=("config", "topology"),
    config_kinds=("pretrain", "finetune"),
)


def _add_pretrain_options(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser, "bert_base", without_recipe="with --budget, the default is small_cpu")
    add_workdir(
        parser,
        "work directory for checkpoints, metrics.jsonl and TensorBoard events: a path, gs:// or s3://BUCKET/NAME",
    )
    parser.add_argument("--corpus", metavar="DIR", help="corpus made by `prepare`; short for --config.data.corpus")
    parser.add_argument("--init_from", metavar="DIR", help="weights to start from; short for --config.init_from")
    parser.add_argument(
        "--budget",
        metavar="AMOUNT",
        help="time, tokens or FLOPs to spend: 30m, 1h30m, '50M tokens', '1e16 flops'; chooses and prints the model "
        "size, the batch size and the numbers of tokens and steps; for a budget of time, first measures the speed of "
        "some steps",
    )
    add_platform(parser)
    add_process_options(parser)


def _add_override(args: argparse.Namespace, option: str, key: str) -> None:
    """Add an override of `key` with the value of an option that is given; refuse a second override of this key."""
    value = getattr(args, option)
    if value is None:
        return
    if any(override.partition("=")[0] == f"--config.{key}" for override in args.overrides):
        args.parser.error(f"--{option} is given twice, also as --config.{key}")
    args.overrides = [f"--config.{key}={value}", *args.overrides]


def run_pretrain(args: argparse.Namespace) -> None:
    """Train a recipe or resume its run; then print the next commands."""
    _add_override(args, "corpus", "data.corpus")
    _add_override(args, "init_from", "init_from")
    if not args.config and not args.budget:
        args.parser.error("give --config RECIPE, or --budget AMOUNT, such as --budget 30m")

    from bert_jax.config import PretrainConfig
    from bert_jax.config.checks import phase_warnings
    from bert_jax.pretraining.budget.plan import DEFAULT_RECIPE, config_for_budget
    from bert_jax.pretraining.pretrain import pretrain_in_directory
    from bert_jax.pretraining.snapshots import ALL_PREPARED

    args.config = args.config or DEFAULT_RECIPE
    given = [override.removeprefix("--config.").partition("=")[0] for override in args.overrides]

    def run(config: Any, workdir: pathlib.Path, session: Any) -> Any:
        made: Any = contextlib.nullcontext((config.data, ALL_PREPARED))
        if config.data.text is not None:
            from bert_jax.pretraining.text import text_as_corpus

            made = text_as_corpus(config.data, config.model.vocab_size, session.console)
        with contextlib.ExitStack() as stack:
            with session.interrupt.suspended():  # a signal ends the preparation at once; the same command resumes it
                data, preparation = stack.enter_context(made)
            config = dataclasses.replace(config, data=data)
            if args.budget:
                config = config_for_budget(config, args.budget, workdir, session.console, given)
            for line in phase_warnings(config, given):
                session.console.say(line)
            return pretrain_in_directory(config, workdir, session, preparation)

    finished, first = _run_in_processes(args, PretrainConfig, run)
    if finished and first:
        from bert_jax.cli.results_text import pretrained_model_text
        from bert_jax.reports.next_commands import masked_sentence

        try:
            text = masked_sentence(finished.corpus, finished.tokenizer)
        except UserError:  # the corpus was moved during the run
            text = masked_sentence(None, finished.tokenizer)
        print_text(pretrained_model_text(args.workdir, finished.heads, text, finished.has_heldout, finished.recipe))


PRETRAIN = Verb(
    summary="train a recipe, or resume its run",
    description=(
        "Writes checkpoints and metrics to a work directory. Ctrl-C, SIGTERM or a closed terminal "
        "saves a checkpoint and stops the run. To resume from the newest intact checkpoint, repeat the command. Every "
        "field of the recipe can be overridden, as in --config.optimizer.peak_learning_rate=2e-4; `bert-jax config "
        "RECIPE` lists all fields."
    ),
    example="--config=bert_base --workdir runs/base --config.data.corpus=corpus/",
    add_options=_add_pretrain_options,
    run=run_pretrain,
    config_kinds=("pretrain",),
    bare_words=("config", "workdir"),
    other_options={
        "--mesh": MESH_ADVICE,
        **RESUME_ADVICE,
        "--hours": "did you mean '--budget {0}h'?",
        "--minutes": "did you mean '--budget {0}m'?",
        "--time": "did you mean '--budget {0}'?",
    },
    positional_hint="; give a corpus as --corpus {0}",
    memory_advice=MEMORY_ADVICE,
)


def _add_finetune_options(parser: argparse.ArgumentParser) -> None:
    add_config_option(parser, "glue", without_recipe="default: with --data, the recipe of the kind of task")
    add_workdir(
        parser, "work directory for the model, its scores and its predictions: a path, gs:// or s3://BUCKET/NAME"
    )
    add_flag(parser, "--json", "print results.json on one line instead of a table")
    group = parser.add_argument_group(
        "your own labels",
        "Your own file has a row for each text. Options that you leave out are chosen from the file, and printed.",
    )
    group.add_argument(
        "--data", metavar="FILE", help="file with texts and labels: .csv, .tsv, .jsonl, .json or .parquet"
    )
    group.add_argument("--text", metavar="COLUMN[,COLUMN]", help="column of the text, or both columns of a text pair")
    group.add_argument(
        "--label",
        metavar="COLUMN[,COLUMN...]",
        help="column of the label, or several columns, each with 0 or 1 for a label",
    )
    group.add_argument("--init_from", metavar="DIR", help="weights to start from; short for --config.init_from")
    group.add_argument("--kind", metavar="KIND", help="kind of task (default: determined from the labels)")
    group.add_argument(
        "--label_separator", metavar="CHARACTER", help="character between the labels of a text that has several labels"
    )
    group.add_argument("--delimiter", metavar="CHARACTER", help="character between columns (default: by the header)")
    group.add_argument("--dev", metavar="FILE", help="file of the dev set (default: a part of --data)")
    group.add_argument(
        "--test",
        metavar="FILE",
        help="file of a test set, which the best model predicts; if the file has labels, the model is scored on it",
    )
    group.add_argument(
        "--dev_fraction",
        type=float,
        metavar="FRACTION",
        help="fraction of --data that is held out as the dev set, by label (default: 0.1; 0.2 below 1,000 rows)",
    )
    add_flag(group, "--skip_unlabeled", "leave out and count rows without a label (default: refuse and list them)")
    add_platform(parser)
    add_process_options(parser)


def _apply_data_options(args: argparse.Namespace) -> None:
    """Put the recipe and the overrides that describe `--data` into the arguments; print the choices."""
    _add_override(args, "init_from", "init_from")
    chosen = ("text", "label", "kind", "label_separator", "delimiter", "dev", "test", "dev_fraction")
    if not args.data:
        if given := [name for name in (*chosen, "skip_unlabeled") if getattr(args, name) not in (None, False)]:
            args.parser.error(f"--{given[0]} needs --data; without it, set config.task")
        if not args.config:
            args.parser.error("give --config RECIPE, or your own file: --data FILE --text COLUMN --label COLUMN")
        return
    from bert_jax.config import FinetuneConfig, read_config
    from bert_jax.finetuning.own_labels import OwnFile, choices_text, column_names_text, recipe_for_own_file

    if missing := [f"--{name} COLUMN" for name in ("text", "label") if not getattr(args, name)]:
        raise UserError(f"give {' and '.join(missing)}; {args.data} has {column_names_text(args.data, args.delimiter)}")

    file = OwnFile(
        path=args.data,
        text=tuple(name.strip() for name in args.text.split(",")),
        label=tuple(name.strip() for name in args.label.split(",")),
        skip_unlabeled=args.skip_unlabeled,
        **{name: getattr(args, name) for name in chosen if name not in ("text", "label")},
    )
    described = recipe_for_own_file(file, args.config, args.overrides)
    args.config, args.overrides = described.recipe, list(described.overrides)
    if not args.process_id:
        print(escaped(described.content), file=sys.stderr)
        with contextlib.suppress(UserError):  # `_run_in_processes` raises it where the other processes learn of it
            task = read_config(FinetuneConfig, args.config, args.overrides).task
            print(escaped(choices_text(task, args.config, described.default_metric)), file=sys.stderr)


def run_finetune(args: argparse.Namespace) -> None:
    """Train a task on a pretrained model, or resume its run, and print the scores."""
    _apply_data_options(args)

    from bert_jax.config import FinetuneConfig
    from bert_jax.finetuning.finetune import finetune_in_directory

    results, first = _run_in_processes(args, FinetuneConfig, finetune_in_directory)
    if results and first:
        from bert_jax.cli.results_text import finetuning_table
        from bert_jax.reports.next_commands import commands_for_finetuned_model, report_command
        from bert_jax.tasks.table import kind_of_task
        from bert_jax.training.remote_workdir import local_copy
        from bert_jax.training.workdir import read_run

        config = read_run(local_copy(args.workdir))[0]
        assert isinstance(config, FinetuneConfig)
        kind = kind_of_task(config.task.name, config.task.kind)
        commands = commands_for_finetuned_model(args.workdir, kind, config.task.vector_head)
        commands.append(report_command(args.workdir, config.recipe))
        print_json(results) if args.json else print_text(finetuning_table(results, args.workdir, commands))


FINETUNE = Verb(
    summary="train a task on a pretrained model, or resume its run",
    description=(
        "Trains config.task from the weights in config.init_from with each learning rate and seed, keeps the best "
        "model, and predicts the dev and test sets. bert_jax/tasks/table.py lists the tasks; --data reads your own "
        "file: --data tickets.csv --text subject,body --label topic. `bert-jax config glue` lists all fields."
    ),
    example="--data tickets.csv --text subject,body --label topic --init_from my-bert/ --workdir runs/topics",
    add_options=_add_finetune_options,
    run=run_finetune,
    config_kinds=("finetune",),
    positional_hint="; give two columns as --text COLUMN,COLUMN, weights as --init_from {0}, a file as --data {0}",
    other_options={
        "--mesh": MESH_ADVICE,
        "--task": "give your own file as --data FILE --kind KIND, such as token_classification, or a benchmark as "
        "--config.task.name=NAME, such as conll2003 or mrpc",
    },
    memory_advice=MEMORY_ADVICE,
)
