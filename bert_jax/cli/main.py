"""What each verb does: read its options, call the function that does the work, print the result."""

import argparse
import contextlib
import errno
import functools
import json
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

from bert_jax.cli import data_options, model_options, training_options
from bert_jax.cli.parser import Verb, parse
from bert_jax.errors import UserError, writing
from bert_jax.files import new_file

# Heavy imports stand inside the verbs: `--help` and the data verbs need no JAX.


def tokenizer(args: argparse.Namespace) -> None:
    """Train a vocabulary and save it."""
    from bert_jax.data.tokenizer.training.train import train_tokenizer

    with _console() as console:
        report = train_tokenizer(
            args.input,
            args.vocab_size,
            args.output,
            kind=args.kind,
            lowercase=not args.cased,
            read_options=_read_options(args),
            sample_characters=args.sample_characters,
            smoothing=args.smoothing,
            weights=args.weights,
            progress=console.preparation,
            say=console.say,
        )
    print(report)


def prepare(args: argparse.Namespace) -> None:
    """Turn documents into a corpus."""
    from bert_jax.data.preparation.prepare import format_summary
    from bert_jax.data.preparation.prepare import prepare as run

    inputs = [item for group in args.input for item in group]
    read_options = _read_options(args)
    if args.runner == "beam":
        if args.deduplicate != "none":
            raise UserError("--deduplicate: only with --runner local; remove copies before the job")
        from bert_jax.data.preparation.beam import prepare_with_beam

        options = shlex.split(args.beam_options)
        manifest = prepare_with_beam(
            inputs,
            args.tokenizer,
            args.output,
            read_options,
            args.heldout_fraction,
            args.language,
            options,
            args.max_rejected_fraction,
        )
    else:
        if args.beam_options:
            raise UserError("--beam_options: only with --runner beam")
        with _console() as console:
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
                args.deduplicate,
                args.keep_removed,
                args.max_rejected_fraction,
            )
    for warning in manifest["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(format_summary(manifest, args.output))


def _read_options(args: argparse.Namespace) -> Any:
    """The `ReadOptions` of a verb that reads texts."""
    from bert_jax.data.sources import ReadOptions

    return ReadOptions(**{name: getattr(args, name) for name in ReadOptions._fields if hasattr(args, name)})


def inspect(args: argparse.Namespace) -> None:
    """Print a corpus and sequences of it."""
    from bert_jax.reports.inspect import inspect_corpus as run

    run(args.corpus, args.config, args.overrides, args.sequence, args.json)


def config(args: argparse.Namespace) -> None:
    """Print the fields of a recipe, or the recipes."""
    from bert_jax.cli.config_text import config_json, config_text

    if args.json:
        print(json.dumps(config_json(args.recipe, args.overrides)))
    else:
        print(config_text(args.recipe, args.overrides))


def compile_(args: argparse.Namespace) -> int:
    """Print what a recipe needs; return 1 where a phase does not fit."""
    from bert_jax.config import PretrainConfig, read_config
    from bert_jax.dryrun.topology import topology_devices

    config = read_config(PretrainConfig, args.config, args.overrides)
    slice_ = topology_devices(args.topology) if args.topology else None

    from bert_jax.dryrun.dry_run import dry_run, recipe_total
    from bert_jax.dryrun.report import report_json, report_text

    with _console() as console:
        report = dry_run(config, slice_, console.say)
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

    args.config = args.config or DEFAULT_RECIPE
    given = [one.removeprefix("--config.").partition("=")[0] for one in args.overrides]

    def run(config: Any, workdir: pathlib.Path, console: Any, interrupt: Any, watchdog: Any) -> bool:
        if args.budget:
            config = plan(config, args.budget, workdir, console, given)
        return run_config(config, workdir, console, interrupt, watchdog)

    finished, first = _in_processes(args, PretrainConfig, run)
    if finished and first:
        from bert_jax.cli.results_text import after_pretraining
        from bert_jax.data.tokenizer import load_tokenizer

        found = load_tokenizer(pathlib.Path(args.workdir, "tokenizer"))
        print(after_pretraining(args.workdir, found.tokens[found.mask_id]))


def finetune(args: argparse.Namespace) -> None:
    """Train a task or resume, and print the scores."""
    from bert_jax.config import FinetuneConfig
    from bert_jax.runs.finetune import finetune as run

    results, first = _in_processes(args, FinetuneConfig, run)
    if results and first:
        from bert_jax.cli.results_text import finetuning_table

        print(json.dumps(results) if args.json else finetuning_table(results, args.workdir))


def evaluate(args: argparse.Namespace) -> None:
    """Print the held-out metrics of a run."""
    from bert_jax.cli.results_text import evaluation_table
    from bert_jax.runs.evaluate import evaluate as run

    with _console() as console:
        other = pathlib.Path(args.corpus) if args.corpus else None
        metrics = run(pathlib.Path(args.workdir), args.step, console, other)
    print(json.dumps(metrics) if args.json else evaluation_table(metrics, args.corpus))


def plot(args: argparse.Namespace) -> None:
    """Draw learning curves."""
    from bert_jax.reports.plots import plot_run as draw

    with _console() as console:
        draw(pathlib.Path(args.workdir), pathlib.Path(args.output), console.say)
    print(args.output)


def report(args: argparse.Namespace) -> None:
    """Write a run, or several, as a page."""
    from bert_jax.reports.run_page.write import write_report

    print(write_report(args.workdir, args.output, args.watts))


def verify(args: argparse.Namespace) -> int:
    """Print what is damaged; return 1 where anything is."""
    from bert_jax.reports.verify import verify as run

    began = time.monotonic()
    found = run(pathlib.Path(args.path))
    for line in found.damage:
        print(line)
    read = f"{found.checked}; {found.bytes / 1e6:,.1f} MB read in {time.monotonic() - began:.1f} s"
    print(f"{args.path}: {f'{len(found.damage)} damaged' if found.damage else 'intact'} ({read})")
    return 1 if found.damage else 0


def export(args: argparse.Namespace) -> None:
    """Write a model for other programs."""
    from bert_jax.runs.export import export as run

    place, output = pathlib.Path(args.workdir), pathlib.Path(args.output)
    with _console() as console:
        run(place, args.step, output, args.format, console, args.head, args.part, args.license, args.base_model)


def fill_mask(args: argparse.Namespace) -> None:
    """Print the most probable tokens at each [MASK]."""
    if (args.text is None) == (args.input is None):
        raise UserError("give a TEXT in quotes or --input FILE, and not both")

    from bert_jax.inference import fill_mask as module
    from bert_jax.inference.inputs import read_inputs, texts_of
    from bert_jax.inference.load import open_model

    texts = [args.text] if args.input is None else (texts_of(one)["text"] for one in read_inputs(args.input))
    model = open_model(args.model, module.HEADS)
    for number, text in enumerate(texts):
        guesses = module.fill_mask(model, text, args.top_k)
        if args.json:
            print(json.dumps(guesses, ensure_ascii=False))
            continue
        if number:
            print()
        for guess in guesses:
            print(f"{guess['probability']:7.2%}  {guess['token']:<16}  {guess['text']}")


def attention(args: argparse.Namespace) -> None:
    """Write what each head reads as a page."""
    from bert_jax.reports.attention_page.page import write_attention

    print(write_attention(args.model, args.text, args.pair, args.output))


def predict(args: argparse.Namespace) -> None:
    """Write the predictions of a fine-tuned model as JSON lines."""
    from bert_jax.inference.predict import predict_file as run
    from bert_jax.parallel.compilation import use_compilation_cache

    use_compilation_cache()
    counts = run(args.model, args.input, args.output, args.batch_size)
    print(", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items() if count), file=sys.stderr)


def embed(args: argparse.Namespace) -> None:
    """Write the vectors of texts."""
    from bert_jax.inference.embed import embed as run
    from bert_jax.parallel.compilation import use_compilation_cache

    use_compilation_cache()
    with _console() as console:
        made = run(
            args.model,
            args.input,
            pathlib.Path(args.output),
            args.pooling,
            args.layers,
            args.batch_size,
            args.max_seq_len,
            args.truncate,
            normalize=args.normalize,
            progress=lambda done, total: console.progress("embedding", done, total, "texts"),
        )
    cut = f", {made.truncated:,} of them cut" if made.truncated else ""
    empty = f", {made.empty:,} of them empty" if made.empty else ""
    print(f"{made.texts:,} texts{cut}{empty}, {made.tokens:,} tokens, {made.width} features -> {args.output}")


def score(args: argparse.Namespace) -> None:
    """Print what a model scores on minimal pairs, text and bias pairs."""
    from bert_jax.cli.results_text import score_table
    from bert_jax.inference.load import open_model
    from bert_jax.inference.scoring.log_probabilities import HEADS
    from bert_jax.inference.scoring.score import BENCHMARKS, results_json, run_benchmark, scoring_model
    from bert_jax.parallel.compilation import use_compilation_cache

    wanted = [(name, source) for name in BENCHMARKS for source in getattr(args, name)]
    if not wanted:
        raise UserError(f"nothing to score; give {' or '.join(f'--{name}' for name in BENCHMARKS)}")
    use_compilation_cache()
    results = []
    with _console() as console, _new_file(args.output) as file:
        model = scoring_model(open_model(args.model, HEADS), args.masking, args.temperature)
        for name, source in wanted:
            progress = functools.partial(console.progress, f"scoring {source}", unit="tokens")
            results.append(run_benchmark(model, name, source, args.fraction, progress))
        if file:
            json.dump(results_json(args.model, results, sentences=True), file, ensure_ascii=False)
    if args.json:
        print(json.dumps(results_json(args.model, results), ensure_ascii=False))
    else:
        print("\n\n".join(score_table(report) for report, _ in results))


@contextlib.contextmanager
def _new_file(path: str | None) -> Iterator[IO[str] | None]:
    """A text file that appears whole or not at all, opened before the work begins; None without a path."""
    if path is None:
        yield None
        return
    with writing(path, "choose another --output"):
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with new_file(path) as file:
            yield file


@contextlib.contextmanager
def _console(silent: bool = False) -> Iterator[Any]:
    from bert_jax.console import Console

    with contextlib.closing(Console(silent=silent)) as console:
        yield console


def _in_processes(args: argparse.Namespace, kind: Any, run: Any) -> tuple[Any, bool]:
    """Call `run(config, workdir, console, interrupt, watchdog)` in this process of one or several.

    Returns its result, and whether this is the first process.
    """
    from bert_jax.config import read_config
    from bert_jax.parallel.compilation import use_compilation_cache
    from bert_jax.parallel.preemption import Interrupt
    from bert_jax.parallel.processes.joining import find_peers, joined

    peers = find_peers(args.coordinator, args.num_processes, args.process_id)
    first = peers is None or peers.process_id == 0
    try:
        config, refused = read_config(kind, args.config, args.overrides), None
    except UserError as error:
        if peers is None:
            raise
        config, refused = kind(), error  # the other processes wait for this one, and must learn why it does not come
    use_compilation_cache()
    with (
        Interrupt() as interrupt,
        _console(silent=not first) as console,
        joined(peers, config.watchdog, interrupt, args.verb) as watchdog,
    ):
        if refused:
            raise refused
        return run(config, pathlib.Path(args.workdir), console, interrupt, watchdog), first


VERBS = {
    "tokenizer": Verb(data_options.TOKENIZER, tokenizer),
    "prepare": Verb(data_options.PREPARE, prepare),
    "inspect": Verb(data_options.INSPECT, inspect),
    "config": Verb(training_options.CONFIG, config),
    "compile": Verb(training_options.COMPILE, compile_),
    "pretrain": Verb(training_options.PRETRAIN, pretrain),
    "evaluate": Verb(model_options.EVALUATE, evaluate),
    "plot": Verb(model_options.PLOT, plot),
    "report": Verb(model_options.REPORT, report),
    "export": Verb(model_options.EXPORT, export),
    "verify": Verb(model_options.VERIFY, verify),
    "fill-mask": Verb(model_options.FILL_MASK, fill_mask),
    "attention": Verb(model_options.ATTENTION, attention),
    "finetune": Verb(training_options.FINETUNE, finetune),
    "predict": Verb(model_options.PREDICT, predict),
    "embed": Verb(model_options.EMBED, embed),
    "score": Verb(model_options.SCORE, score),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit status.

    0: done; also after the first Ctrl-C or SIGTERM of `pretrain` and `finetune`, which save. 1: a recipe does not fit,
    or `verify` finds damage. 2: a mistake that the user can fix. 124: another process of a run is lost or hangs. 130:
    Ctrl-C, in `pretrain` and `finetune` the second. 141: the reader of the output is gone, as in `predict | head`, like
    SIGPIPE in a shell.
    """
    args = parse(VERBS, sys.argv[1:] if argv is None else argv)
    try:
        return VERBS[args.verb].run(args) or 0
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
