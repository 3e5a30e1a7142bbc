"""The verbs of the command line, and the status with which it ends."""

import os
import sys
from collections.abc import Sequence

from bert_jax.cli import conversion, data, models, runs, scores, training
from bert_jax.cli.command import Verb
from bert_jax.cli.parser import parse_arguments
from bert_jax.errors import UserError, resource_error_message

VERBS: dict[str, Verb] = {
    "tokenizer": data.TOKENIZER,
    "clean": data.CLEAN,
    "prepare": data.PREPARE,
    "inspect": data.INSPECT,
    "config": training.CONFIG,
    "compile": training.COMPILE,
    "pretrain": training.PRETRAIN,
    "evaluate": runs.EVALUATE,
    "plot": runs.PLOT,
    "report": runs.REPORT,
    "export": conversion.EXPORT,
    "compress": conversion.COMPRESS,
    "verify": runs.VERIFY,
    "vocabulary": conversion.VOCABULARY,
    "fill-mask": models.FILL_MASK,
    "attention": models.ATTENTION,
    "finetune": training.FINETUNE,
    "predict": models.PREDICT,
    "embed": models.EMBED,
    "score": scores.SCORE,
    "bias": scores.BIAS,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit status.

    0: success, also if `pretrain` or `finetune` saves and stops after Ctrl-C or SIGTERM. 1: a recipe does not fit in
    memory, `verify` finds damage, or object storage fails. 2: a mistake that the user can fix. 124: another process of
    the run is lost or hangs. 130: Ctrl-C, or a second Ctrl-C in `pretrain` and `finetune`. 141: the reader of the
    output is gone, as in `predict | head`, like SIGPIPE in a shell.
    """
    args = parse_arguments(VERBS, sys.argv[1:] if argv is None else argv)
    try:
        if getattr(args, "own_recipe", None):
            from bert_jax.config.load import run_recipe

            run_recipe(args.own_recipe)
        return VERBS[args.verb].run(args) or 0
    except UserError as error:
        if args.debug:
            raise
        print(f"bert-jax {args.verb}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print(f"bert-jax {args.verb}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes the rest there at the exit
        return 141
    except Exception as error:  # a lack of memory or of devices has no exception class; other errors are raised again
        message = resource_error_message(error, VERBS[args.verb].memory_advice)
        if args.debug or not message:
            raise
        print(f"bert-jax {args.verb}: {message}", file=sys.stderr)
        return 2
