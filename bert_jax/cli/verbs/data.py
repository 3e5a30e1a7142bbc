"""tokenizer, clean, prepare, inspect."""

import argparse
import json
import shlex
import sys
from typing import Any

from bert_jax.cli.verbs.outputs import open_console
from bert_jax.errors import UserError


def tokenizer(args: argparse.Namespace) -> None:
    """Train a vocabulary and save it."""
    from bert_jax.data.tokenizer.training.train import train_tokenizer

    with open_console() as console:
        report = train_tokenizer(
            args.input,
            args.vocab_size,
            args.output,
            kind=args.kind,
            lowercase=not args.cased,
            normalization=args.normalization,
            read_options=_read_options(args),
            sample_characters=args.sample_characters,
            smoothing=args.smoothing,
            weights=args.weights,
            progress=console.preparation,
            say=console.say,
        )
    print(report)


def clean(args: argparse.Namespace) -> None:
    """Write the documents that a recipe keeps."""
    from bert_jax.data.preparation.cleaning.write import clean_texts, format_account

    with open_console() as console:
        account = clean_texts(
            [item for group in args.input for item in group],
            args.recipe,
            args.output,
            _read_options(args),
            args.workers,
            console.preparation,
            console.say,
            args.keep_removed,
            args.max_rejected_fraction,
        )
    print(json.dumps(account, ensure_ascii=False) if args.json else format_account(account, args.output))


def prepare(args: argparse.Namespace) -> None:
    """Turn documents into a corpus."""
    from bert_jax.data.preparation.prepare import format_summary
    from bert_jax.data.preparation.prepare import prepare as run

    inputs = [item for group in args.input for item in group]
    read_options = _read_options(args)
    if args.runner == "local" and "://" in args.output:  # of which a directory such as `gs:` would be made
        raise UserError(f"--output {args.output}: a URL, which --runner beam alone writes to; give a directory")
    if args.runner == "beam":
        if args.append:
            raise UserError("--append: only with --runner local")
        if args.tokenizer is None:
            raise UserError("no tokenizer: give --tokenizer DIR, made by `bert-jax tokenizer`")
        from bert_jax.data.preparation.beam.prepare import prepare_with_beam

        options = shlex.split(args.beam_options)
        manifest = prepare_with_beam(
            inputs,
            args.tokenizer,
            args.output,
            read_options,
            *(0.02 if args.heldout_fraction is None else args.heldout_fraction, args.language or "en"),
            options,
            args.max_rejected_fraction,
            args.deduplicate or "none",
            args.clean,
            args.segmenter or "none",
            args.keep_removed,
        )
    else:
        if args.beam_options:
            raise UserError("--beam_options: only with --runner beam")
        with open_console() as console:
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
                args.clean,
                args.append,
                args.segmenter,
            )
    for warning in manifest["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(format_summary(manifest, args.output))


def _read_options(args: argparse.Namespace) -> Any:
    """The `ReadOptions` of a verb that reads texts."""
    from bert_jax.data.sources import ReadOptions

    return ReadOptions(**{name: getattr(args, name) for name in ReadOptions._fields if hasattr(args, name)})


def inspect(args: argparse.Namespace) -> None:
    """Print a corpus and sequences of it, or write them as a page, or compare it with another corpus."""
    if args.against is not None:
        if args.config or args.overrides or args.sequence is not None:
            raise UserError("--against compares documents: leave out --config, --sequence and the fields of a config")
        from bert_jax.data.preparation.growing.comparison import compare_corpora, format_comparison

        print(format_comparison(compare_corpora(args.corpus, args.against), args.corpus, args.against))
        return
    from bert_jax.reports.inspect import inspect_corpus as run

    with open_console() as console:
        run(args.corpus, args.config, args.overrides, args.sequence, args.json, console, args.html)
