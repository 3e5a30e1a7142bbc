"""Verbs about a run: evaluate, plot, report, verify."""

import argparse
import json
import pathlib
import time

from bert_jax.cli.command import (
    FOLLOW_PORT,
    STEP_HELP,
    Verb,
    add_flag,
    add_number,
    add_output,
    add_workdir,
    local_path,
    path_or_url,
)
from bert_jax.cli.outputs import open_console
from bert_jax.errors import UserError, shown


def _evaluate_options(parser: argparse.ArgumentParser) -> None:
    add_workdir(parser)
    add_number(parser, "--step", STEP_HELP)
    parser.add_argument(
        "--corpus",
        metavar="DIR",
        help="another corpus of `prepare` with the same tokenizer, on which nothing was tuned: its held-out documents, "
        "or all of them where it holds none out (default: the run's)",
    )
    add_flag(parser, "--json", "print one JSON object instead of a table")


def evaluate(args: argparse.Namespace) -> None:
    """Print the held-out metrics of a run."""
    from bert_jax.cli.results_text import evaluation_table
    from bert_jax.pretraining.evaluate import evaluate_checkpoint as run
    from bert_jax.training.remote_workdir import local_copy

    with open_console() as console:
        other = pathlib.Path(args.corpus) if args.corpus else None
        metrics = run(local_copy(args.workdir), args.step, console, other)
    print(json.dumps(metrics) if args.json else evaluation_table(metrics, args.corpus))


EVALUATE = Verb(
    summary="measure a run on its held-out documents",
    description=(
        "Prints losses in nats, accuracies, and the unigram entropy: the loss of a model that knows how often each "
        "token occurs and nothing else."
    ),
    example="--workdir runs/base",
    add_options=_evaluate_options,
    run=evaluate,
)


def _plot_options(parser: argparse.ArgumentParser) -> None:
    add_workdir(parser)
    add_output(parser, "FILE", "picture to create: .png, .pdf or .svg")


def plot(args: argparse.Namespace) -> None:
    """Draw learning curves."""
    from bert_jax.reports.run.plot import plot_run as draw
    from bert_jax.training.remote_workdir import local_copy

    with open_console() as console:
        draw(local_copy(args.workdir), pathlib.Path(args.output), console.say)
    print(args.output)


PLOT = Verb(
    summary="draw the learning curves of a run",
    description="Reads metrics.jsonl in the work directory.",
    example="--workdir runs/base --output curves.png",
    add_options=_plot_options,
    run=plot,
)


def _report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workdir", nargs="+", type=path_or_url, metavar="WORKDIR", help="work directories of `pretrain` or `finetune`"
    )
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--output", type=local_path, metavar="FILE", help=".html file to create")
    add_flag(
        form, "--follow", "serve the page to this machine alone while the run trains, without sequences; Ctrl-C ends it"
    )
    add_number(parser, "--port", f"port of --follow; 0 is any (default: {FOLLOW_PORT})")
    parser.add_argument(
        "--watts",
        type=float,
        metavar="W",
        help="power of all devices of a run, for energy that was not measured (default: published figures of "
        "accelerators; 12 W per core of a CPU)",
    )
    parser.add_argument(
        "--grams_per_kwh", type=float, metavar="G", help="CO2 of the electricity, to show that of a run"
    )


def report(args: argparse.Namespace) -> None:
    """Write a run, or several, as a page, or serve it."""
    from bert_jax.reports.run.write import serve_report, write_report

    if args.follow:
        serve_report(args.workdir, FOLLOW_PORT if args.port is None else args.port, args.watts, args.grams_per_kwh)
        return
    if args.port is not None:
        raise UserError("--port: only with --follow")
    print(write_report(args.workdir, args.output, args.watts, args.grams_per_kwh))


REPORT = Verb(
    summary="write a run, or several, as one HTML page",
    description=(
        "What was trained and whether it looks healthy, curves, corpus, held-out sequences with the model's guesses, "
        "settings, cost, and how to train it again. The page loads nothing and runs nothing. With --follow, a server "
        "on the loopback address shows it while the run trains."
    ),
    example="runs/base --output report.html",
    add_options=_report_options,
    run=report,
)


def _verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="DIR",
        help="directory made by `tokenizer`, `prepare` or `export`, or a work directory of `pretrain` or `finetune`",
    )


def verify(args: argparse.Namespace) -> int:
    """Print what is damaged; return 1 where anything is."""
    from bert_jax.checkpoints.verify import verify_directory as run
    from bert_jax.training.remote_workdir import local_copy

    began = time.monotonic()
    with open_console() as console:
        found = run(local_copy(args.path), console.progress)
    for line in map(shown, found.damage):
        print(line)
    read = f"{found.checked}; {found.bytes / 1e6:,.1f} MB read in {time.monotonic() - began:.1f} s"
    print(f"{args.path}: {f'{len(found.damage)} damaged' if found.damage else 'intact'} ({read})")
    return 1 if found.damage else 0


VERIFY = Verb(
    summary="compare every byte of a directory with its digests",
    description=(
        "The digests were written with the directory: SHA256SUMS of tokenizers and exports, the manifest of a corpus, "
        "the records of checkpoints, with which run.json and tokenizer/ are compared as well. Exits with 0 if all is "
        "intact, with 1 after a line for each damaged part, and with 2 if there are no digests."
    ),
    example="runs/base",
    add_options=_verify_options,
    run=verify,
)
