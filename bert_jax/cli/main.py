"""The command line: what each verb does; arguments.py has what it takes."""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from bert_jax.cli.arguments import parse
from bert_jax.errors import UserError

# Heavy imports stand inside the verbs: `--help` and the data verbs need no JAX.


def tokenizer(args: argparse.Namespace) -> None:
    """Train a vocabulary and save it."""
    from bert_jax.console import Console
    from bert_jax.data.sources import ReadOptions
    from bert_jax.data.tokenizer.training.train import train_tokenizer

    with contextlib.closing(Console()) as console:
        lines = train_tokenizer(
            args.input,
            args.vocab_size,
            args.output,
            kind=args.kind,
            lowercase=not args.cased,
            read_options=ReadOptions(format=args.format, field=args.field, encoding_errors=args.encoding_errors),
            sample_characters=args.sample_characters or None,
            smoothing=args.smoothing,
            weights=args.weights or None,
            progress=console.preparation,
            say=console.say,
        )
    print(lines)


def prepare(args: argparse.Namespace) -> None:
    """Documents -> corpus, with a progress line and the account of every document."""
    from bert_jax.console import Console
    from bert_jax.data.preparation.prepare import format_summary
    from bert_jax.data.preparation.prepare import prepare as run
    from bert_jax.data.sources import ReadOptions

    inputs = [item for group in args.input for item in group]
    read_options = ReadOptions(args.documents, args.format, args.field, args.encoding_errors)
    if args.runner == "beam":
        from bert_jax.data.preparation.beam import prepare_with_beam

        options = shlex.split(args.beam_options)
        manifest = prepare_with_beam(
            inputs, args.tokenizer, args.output, read_options, args.heldout_fraction, args.language, options
        )
    else:
        if args.beam_options:
            raise UserError("--beam_options: only with --runner beam")
        with contextlib.closing(Console()) as console:
            manifest = run(
                inputs,
                args.tokenizer,
                args.output,
                read_options,
                args.workers,
                args.heldout_fraction,
                args.language,
                console.preparation,
                console.say,
            )
    for warning in manifest["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(format_summary(manifest, args.output))


def inspect(args: argparse.Namespace) -> None:
    """Show figures of a corpus and sequences as text."""
    from bert_jax.reports.inspect import inspect_corpus as run

    run(args.corpus, args.config, args.overrides, args.sequence, args.json)


def pretrain(args: argparse.Namespace) -> None:
    """Train or resume."""
    from bert_jax.config import PretrainConfig
    from bert_jax.runs.pretrain import pretrain as run

    _in_processes(args, run, PretrainConfig)


def finetune(args: argparse.Namespace) -> None:
    """Train a task, or resume."""
    from bert_jax.config import FinetuneConfig
    from bert_jax.runs.finetune import finetune as run

    results = _in_processes(args, run, FinetuneConfig)
    if results:
        print(json.dumps(results))


def _in_processes(args: argparse.Namespace, run: Any, kind: Any) -> Any:
    """`run(config, workdir, console, interrupt, watchdog)` as one process of however many there are."""
    from bert_jax.config import read_config
    from bert_jax.console import Console
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.parallel.preemption import Interrupt
    from bert_jax.parallel.processes.joining import find_peers, joined

    peers = find_peers(args.coordinator, args.num_processes, args.process_id)
    try:
        config, refused = read_config(kind, args.config, args.overrides), None
    except UserError as error:
        if peers is None:
            raise
        config, refused = kind(), error  # the others wait for this process, and shall hear why it does not come
    use_compilation_cache()
    silent = peers is not None and peers.process_id > 0
    with (
        Interrupt() as interrupt,
        contextlib.closing(Console(silent=silent)) as console,
        joined(peers, config.watchdog, interrupt, args.verb) as watchdog,
    ):
        if refused:
            raise refused
        return run(config, pathlib.Path(args.workdir), console, interrupt, watchdog)


def predict(args: argparse.Namespace) -> None:
    """JSON lines -> JSON lines."""
    from bert_jax.inference.predict import predict_file as run
    from bert_jax.parallel.compilation import use_compilation_cache

    use_compilation_cache()
    counts = run(pathlib.Path(args.model), args.input, args.output, args.batch_size)
    print(", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items() if count), file=sys.stderr)


def embed(args: argparse.Namespace) -> None:
    """Texts -> vectors."""
    from bert_jax.inference.embed import embed as run
    from bert_jax.parallel.compilation import use_compilation_cache

    use_compilation_cache()
    made = run(
        pathlib.Path(args.model),
        pathlib.Path(args.input),
        pathlib.Path(args.output),
        args.pooling,
        args.layers,
        args.batch_size,
        args.max_seq_len,
        args.truncate,
    )
    cut = f", {made.truncated:,} of them cut" if made.truncated else ""
    empty = f", {made.empty:,} of them empty" if made.empty else ""
    print(f"{made.texts:,} texts{cut}{empty}, {made.tokens:,} tokens, {made.width} features -> {args.output}")


def compile_(args: argparse.Namespace) -> int:
    """The dry run; 1 where a phase does not fit."""
    from bert_jax.config import PretrainConfig, read_config
    from bert_jax.dryrun.topology import topology_devices

    config = read_config(PretrainConfig, args.config, args.overrides)
    slice_ = topology_devices(args.topology) if args.topology else None

    from bert_jax.console import Console
    from bert_jax.dryrun.dry_run import dry_run, recipe_total
    from bert_jax.dryrun.report import report_json, report_text

    report = dry_run(config, slice_, Console().say)
    whole = recipe_total(report, args.price_per_chip_hour, args.watts_per_chip)
    print(json.dumps(report_json(report, whole)) if args.json else report_text(report, whole))
    return 0 if all(phase.fits for phase in report.phases) else 1


def evaluate(args: argparse.Namespace) -> None:
    """Held-out metrics of a run."""
    from bert_jax.console import Console
    from bert_jax.runs.evaluate import evaluate as evaluate_run

    print(json.dumps(evaluate_run(pathlib.Path(args.workdir), args.step, Console())))


def plot(args: argparse.Namespace) -> None:
    """Learning curves."""
    from bert_jax.reports.plots import plot_run as draw

    draw(pathlib.Path(args.workdir), pathlib.Path(args.output))
    print(args.output)


def export(args: argparse.Namespace) -> None:
    """A model for others to use."""
    from bert_jax.console import Console
    from bert_jax.runs.export import export as run

    run(pathlib.Path(args.workdir), args.step, pathlib.Path(args.output), args.format, Console())


def fill_mask(args: argparse.Namespace) -> None:
    """The likeliest tokens at each [MASK]."""
    from bert_jax.inference.fill_mask import fill_mask as fill

    guesses = fill(pathlib.Path(args.model), args.text, args.top_k)
    if args.json:
        print(json.dumps(guesses, ensure_ascii=False))
        return
    for guess in guesses:
        print(f"{guess['probability']:7.2%}  {guess['token']:<16}  {guess['text']}")


VERBS = {
    "tokenizer": tokenizer,
    "prepare": prepare,
    "inspect": inspect,
    "pretrain": pretrain,
    "finetune": finetune,
    "predict": predict,
    "embed": embed,
    "compile": compile_,
    "evaluate": evaluate,
    "plot": plot,
    "export": export,
    "fill-mask": fill_mask,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; 0 done, 1 for a recipe that does not fit, 2 for what the user can mend, 130 for Ctrl-C.

    The first Ctrl-C, or SIGTERM, of `pretrain` and `finetune` saves and ends with 0; a second Ctrl-C gives 130. 124
    where another process of a run is lost or hangs. 141 where nobody reads what it prints any more, as of
    `predict | head`: what a shell says of SIGPIPE.
    """
    args = parse(VERBS, argv)
    try:
        return args.function(args) or 0
    except UserError as error:
        if args.debug:
            raise
        print(f"bert-jax {args.verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"bert-jax {args.verb}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the exit
        return 141
