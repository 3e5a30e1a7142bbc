"""Verbs about a run: evaluate, plot, report, verify."""

import argparse
import pathlib
import time

from bert_jax.cli.command import (
    FOLLOW_PORT,
    STEP_HELP,
    Verb,
    add_flag,
    add_number,
    add_output,
    add_recipe_option,
    add_workdir,
    open_console,
    parse_local_path,
    parse_path_or_url,
    print_json,
    print_text,
)
from bert_jax.errors import UserError, shown


def _add_evaluate_options(parser: argparse.ArgumentParser) -> None:
    add_workdir(parser)
    add_number(parser, "--step", STEP_HELP)
    add_recipe_option(parser)
    parser.add_argument(
        "--corpus",
        metavar="DIR",
        help="corpus to evaluate on, prepared with the run's tokenizer: its held-out documents, or all documents if "
        "none are held out (default: the run's corpus)",
    )
    add_flag(parser, "--json", "print one JSON object instead of a table")


def run_evaluate(args: argparse.Namespace) -> None:
    """Print the held-out metrics of a run."""
    from bert_jax.cli.results_text import evaluation_table
    from bert_jax.pretraining.evaluate import evaluate_checkpoint
    from bert_jax.training.remote_workdir import local_copy

    with open_console() as console:
        metrics = evaluate_checkpoint(local_copy(args.workdir), args.step, console, args.corpus)
    print_json(metrics) if args.json else print_text(evaluation_table(metrics, args.corpus))


EVALUATE = Verb(
    summary="measure a run on its held-out documents",
    description=(
        "Prints losses in nats, accuracies, and the unigram loss, which is the loss of a model that knows "
        "only how often each token occurs."
    ),
    example="--workdir runs/base",
    add_options=_add_evaluate_options,
    run=run_evaluate,
    bare_words=("workdir",),
)


def _add_plot_options(parser: argparse.ArgumentParser) -> None:
    add_workdir(parser)
    add_output(parser, "FILE.png", "picture to create: .png, .pdf or .svg")


def run_plot(args: argparse.Namespace) -> None:
    """Draw the learning curves of a run."""
    from bert_jax.reports.run.plot import plot_run
    from bert_jax.training.remote_workdir import local_copy

    with open_console() as console:
        plot_run(local_copy(args.workdir), pathlib.Path(args.output), console.say)
    print_text(args.output)


PLOT = Verb(
    summary="draw the learning curves of a run",
    description="The curves are drawn from metrics.jsonl in the work directory.",
    example="--workdir runs/base --output curves.png",
    add_options=_add_plot_options,
    run=run_plot,
    bare_words=("workdir", "output"),
)


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workdir",
        nargs="+",
        type=parse_path_or_url,
        metavar="WORKDIR",
        help="work directories of `pretrain` or `finetune`",
    )
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--output", type=parse_local_path, metavar="FILE.html", help=".html file to create")
    add_flag(
        form,
        "--follow",
        "serve the page (without held-out sequences) on this machine while the run trains; Ctrl-C ends the server",
    )
    add_recipe_option(parser)
    add_number(parser, "--port", f"port of --follow; 0 takes any free port (default: {FOLLOW_PORT})")
    parser.add_argument(
        "--watts",
        type=float,
        metavar="W",
        help="power of all devices of a run, to estimate energy that was not measured (default: published power of "
        "the accelerators; 12 W per core of a CPU)",
    )
    parser.add_argument(
        "--grams_per_kwh", type=float, metavar="G", help="CO2 per kWh of the electricity, to estimate the CO2 of a run"
    )


def run_report(args: argparse.Namespace) -> None:
    """Write the page of one run or several, or serve the page."""
    from bert_jax.reports.run.write import serve_report, write_report

    if args.follow:
        serve_report(args.workdir, FOLLOW_PORT if args.port is None else args.port, args.watts, args.grams_per_kwh)
        return
    if args.port is not None:
        raise UserError("--port: only with --follow")
    print_text(write_report(args.workdir, args.output, args.watts, args.grams_per_kwh))


REPORT = Verb(
    summary="write an HTML page about one or more runs",
    description=(
        "The page has a summary with warnings, curves, corpus, held-out sequences with the model's predictions, "
        "settings, cost, and the command that repeats the run. The page loads no other file and runs no script. "
        "With --follow, a server on the loopback address shows the page while the run trains."
    ),
    example="runs/base --output report.html",
    add_options=_add_report_options,
    run=run_report,
)


def _add_verify_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="DIR",
        help="directory made by `tokenizer`, `prepare` or `export`, or a work directory of `pretrain` or `finetune`",
    )
    add_flag(
        parser,
        "--run",
        "also run an export in every installed runtime (torch, sentence-transformers, onnxruntime, openvino, jax), and "
        "compare the outputs with the outputs of bert_jax",
    )
    parser.add_argument(
        "--original",
        metavar="DIR",
        help="with --run: the model that was exported; also prints the scores of the model and the export on the task",
    )
    parser.add_argument(
        "--data",
        metavar="PATH",
        help="with --original: the directory of the files of the task, or the file of `finetune --data`; or a corpus "
        "for a pretrained model (default: the files that `finetune` read)",
    )


def run_verify(args: argparse.Namespace) -> int:
    """Print a line for each damaged part, and for each runtime of an export; return 1 for damage or a difference."""
    from bert_jax.checkpoints.verify import verify_directory
    from bert_jax.files import SUMS
    from bert_jax.training.remote_workdir import local_copy

    if args.original and not args.run:
        raise UserError("--original: only with --run")
    if args.data and not args.original:
        raise UserError("--data: only with --original")
    began, path = time.monotonic(), local_copy(args.path)
    if args.run and (path / "config.json").is_file() and not (path / SUMS).is_file():
        return _check_export_runtimes(args)  # a directory of another program has no digests
    with open_console() as console:
        result = verify_directory(path, console.progress)
    for line in map(shown, result.damage):
        print_text(line)
    read = f"{result.checked}; {result.bytes / 1e6:,.1f} MB read in {time.monotonic() - began:.1f} s"
    print_text(f"{args.path}: {f'{len(result.damage)} damaged' if result.damage else 'intact'} ({read})")
    return 1 if result.damage else _check_export_runtimes(args) if args.run else 0


def _check_export_runtimes(args: argparse.Namespace) -> int:
    """Print a line for each runtime of an export; return 1 if outputs differ."""
    from bert_jax.convert.verify_run import check_runtimes
    from bert_jax.training.remote_workdir import local_copy

    status = 0
    with open_console() as console:
        for check in check_runtimes(local_copy(args.path), args.original, args.data, console):
            print_text(shown(check.line))
            status |= not check.is_equal
    return status


VERIFY = Verb(
    summary="compare every byte of a directory with its digests",
    description=(
        "Tokenizers and exports have their digests in SHA256SUMS, a corpus in its manifest, and a work directory "
        "in the records of its checkpoints, which also cover run.json and tokenizer/. Prints a line for each "
        "damaged part. With --run, also runs an export in every installed runtime, and compares its outputs. Exits "
        "with 0 if everything is intact, with 1 if anything is damaged or different, and with 2 if there are no "
        "digests."
    ),
    example="runs/base",
    add_options=_add_verify_options,
    run=run_verify,
)
