"""The verbs of the command line, and the status with which it ends."""

import os
import sys
from collections.abc import Sequence

from bert_jax.cli import conversion, data, models, runs, scores, training
from bert_jax.cli.parser import Verb, parse
from bert_jax.errors import UserError, lack_of

VERBS = {
    "tokenizer": Verb(data.TOKENIZER, data.tokenizer, "lower --sample_characters"),
    "clean": Verb(data.CLEAN, data.clean, "lower --workers"),
    "prepare": Verb(data.PREPARE, data.prepare, "lower --workers, or give fewer files at a time"),
    "inspect": Verb(data.INSPECT, data.inspect),
    "config": Verb(training.CONFIG, training.config),
    "compile": Verb(training.COMPILE, training.compile_),
    "pretrain": Verb(training.PRETRAIN, training.pretrain, training.LESS),
    "evaluate": Verb(runs.EVALUATE, runs.evaluate),
    "plot": Verb(runs.PLOT, runs.plot),
    "report": Verb(runs.REPORT, runs.report),
    "export": Verb(conversion.EXPORT, conversion.export),
    "compress": Verb(conversion.COMPRESS, conversion.compress),
    "verify": Verb(runs.VERIFY, runs.verify),
    "vocabulary": Verb(conversion.VOCABULARY, conversion.vocabulary),
    "fill-mask": Verb(models.FILL_MASK, models.fill_mask),
    "attention": Verb(models.ATTENTION, models.attention),
    "finetune": Verb(training.FINETUNE, training.finetune, training.LESS),
    "predict": Verb(models.PREDICT, models.predict, "lower --batch_size"),
    "embed": Verb(models.EMBED, models.embed, "lower --batch_size"),
    "score": Verb(scores.SCORE, scores.score),
    "bias": Verb(scores.BIAS, scores.bias),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit status.

    0: done; also after the first Ctrl-C or SIGTERM of `pretrain` and `finetune`, which save. 1: a recipe does not fit,
    `verify` finds damage, or object storage fails. 2: a mistake that the user can fix. 124: another process of a run is
    lost or hangs. 130: Ctrl-C, in `pretrain` and `finetune` the second. 141: the reader of the output is gone, as in
    `predict | head`, like SIGPIPE in a shell.
    """
    args = parse(VERBS, sys.argv[1:] if argv is None else argv)
    try:
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the exit
        return 141
    except Exception as error:  # a lack of memory or of devices has no class of its own; all else is raised again
        lack = lack_of(error, VERBS[args.verb].less)
        if args.debug or not lack:
            raise
        print(f"bert-jax {args.verb}: {lack}", file=sys.stderr)
        return 2
