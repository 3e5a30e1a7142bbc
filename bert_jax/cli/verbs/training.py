"""config, compile, pretrain, finetune."""

import argparse
import json
import pathlib
from typing import Any

from bert_jax.cli.verbs.outputs import open_console
from bert_jax.errors import UserError

LESS = "lower config.train.batch_size, or raise config.train.grad_accum_steps, or those of the phase"


def config(args: argparse.Namespace) -> None:
    """Print the fields of a recipe, or the recipes."""
    from bert_jax.cli.config_text import config_json, config_text

    if args.json:
        print(json.dumps(config_json(args.recipe, args.overrides)))
    else:
        print(config_text(args.recipe, args.overrides))


def compile_(args: argparse.Namespace) -> int:
    """Print what a recipe needs; return 1 where a phase does not fit."""
    from bert_jax.config import FinetuneConfig, read_config
    from bert_jax.config.load import recipe_kind
    from bert_jax.dryrun.topology import topology_devices

    config = read_config(recipe_kind(args.config), args.config, args.overrides)
    slice_ = topology_devices(args.topology) if args.topology else None

    from bert_jax.dryrun.dry_run import dry_run, finetuning, pretraining, recipe_total
    from bert_jax.dryrun.report import report_json, report_text

    with open_console() as console, console.working("compiling"):
        work = finetuning(config, console) if isinstance(config, FinetuneConfig) else pretraining(config)
        report = dry_run(work, slice_, console.say)
    whole = recipe_total(report, args.price_per_chip_hour, args.watts_per_chip)
    print(json.dumps(report_json(report, whole)) if args.json else report_text(report, whole))
    return 0 if all(phase.fits for phase in report.phases) else 1


def pretrain(args: argparse.Namespace) -> None:
    """Train or resume, and print what comes next."""
    if not args.config and not args.budget:
        args.parser.error("give --config RECIPE, or --budget AMOUNT, such as --budget 30m")

    from bert_jax.config import PretrainConfig
    from bert_jax.runs.budget.plan import DEFAULT_RECIPE, plan
    from bert_jax.runs.pretrain import pretrain as run_config
    from bert_jax.runs.start.text import text_as_corpus

    args.config = args.config or DEFAULT_RECIPE
    given = [one.removeprefix("--config.").partition("=")[0] for one in args.overrides]

    def run(config: Any, workdir: pathlib.Path, console: Any, interrupt: Any, watchdog: Any) -> bool:
        with text_as_corpus(config, console) as (config, rest):
            if args.budget:
                config = plan(config, args.budget, workdir, console, given)
            return run_config(config, workdir, console, interrupt, watchdog, rest)

    finished, first = _in_processes(args, PretrainConfig, run)
    if finished and first:
        from bert_jax.cli.results_text import after_pretraining
        from bert_jax.data.tokenizer import load_tokenizer
        from bert_jax.training.saving.mirror import fetched
        from bert_jax.training.workdir import read_run

        place = fetched(args.workdir)
        config, tokenizer = read_run(place)[0], load_tokenizer(place / "tokenizer")
        assert isinstance(config, PretrainConfig)
        print(after_pretraining(args.workdir, config, tokenizer.tokens[tokenizer.mask_id]))


def finetune(args: argparse.Namespace) -> None:
    """Train a task or resume, and print the scores."""
    from bert_jax.config import FinetuneConfig
    from bert_jax.runs.finetune import finetune as run

    results, first = _in_processes(args, FinetuneConfig, run)
    if results and first:
        from bert_jax.cli.results_text import finetuning_table

        print(json.dumps(results) if args.json else finetuning_table(results, args.workdir))


def _in_processes(args: argparse.Namespace, kind: Any, run: Any) -> tuple[Any, bool]:
    """Call `run(config, workdir, console, interrupt, watchdog)` in this process of one or several.

    Returns its result, and whether this is the first process.
    """
    from bert_jax.config import read_config
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.parallel.platform import use_platform
    from bert_jax.parallel.preemption import Interrupt
    from bert_jax.parallel.processes.joining import find_peers, joined
    from bert_jax.training.saving.mirror import fetched

    peers = find_peers(args.coordinator, args.num_processes, args.process_id)
    first = peers is None or peers.process_id == 0
    try:
        config, refused = read_config(kind, args.config, args.overrides), None
    except UserError as error:
        if peers is None:
            raise
        config, refused = kind(), error  # the other processes wait for this one, and must learn why it does not come
    use_compilation_cache()
    use_platform(args.platform)
    with (
        Interrupt() as interrupt,
        open_console(silent=not first) as console,
        joined(peers, config.watchdog, interrupt, args.verb, LESS) as watchdog,
    ):
        if refused:
            raise refused
        console.beat = watchdog.alive
        return run(config, fetched(args.workdir), console, interrupt, watchdog), first
