"""The verbs of the command line, and the status with which it ends."""

import errno
import os
import re
import sys
from collections.abc import Sequence

from bert_jax.cli import conversion, data, models, runs, scores, training, vectors
from bert_jax.cli.command import Verb
from bert_jax.cli.completion import make_completion_verb
from bert_jax.cli.parser import parse_arguments
from bert_jax.console import STANDARD_OUTPUT, write_or_discard
from bert_jax.errors import (
    CONTROL_CHARACTER,
    FULL,
    UserError,
    escaped,
    file_error,
    interrupt_status_and_message,
    resource_error_message,
    shown,
)

BROKEN_PIPE = 141
NOT_UTF8 = re.compile("[\ud800-\udfff]")  # a byte of a command-line word that is not UTF-8, as Python stores it
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
    "pairs": vectors.PAIRS,
    "mine": vectors.MINE,
    "finetune": training.FINETUNE,
    "predict": models.PREDICT,
    "embed": models.EMBED,
    "score": scores.SCORE,
    "bias": scores.BIAS,
}
VERBS["completion"] = make_completion_verb(VERBS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit status.

    Status 0 means success, also if `pretrain` or `finetune` saves and stops after Ctrl-C, SIGTERM or SIGHUP. Status 1
    means that a recipe does not fit in memory, that `verify` finds damage, or that storage fails (a full disk, an I/O
    error, too many open files, standard output that cannot be written). Status 2 means a mistake that the user can fix.
    Status 124 means that another process of the run is lost or hangs. Status 129, 130 or 143 means that SIGHUP, Ctrl-C
    or SIGTERM stopped another verb, or that a second Ctrl-C stopped `pretrain` or `finetune`. Status 141, like SIGPIPE
    in a shell, means that the reader of the output is gone, as in `predict | head`.
    """
    args = parse_arguments(VERBS, sys.argv[1:] if argv is None else argv)
    try:
        if getattr(args, "own_recipe", None):
            from bert_jax.config.load import run_recipe

            run_recipe(args.own_recipe)
        status = VERBS[args.verb].run(args) or 0
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except KeyboardInterrupt as interrupt:
        status, message = interrupt_status_and_message(interrupt)
    except Exception as error:  # the only place that catches all errors; an error without a message is raised again
        output = getattr(args, "output", None) or getattr(args, "workdir", None)
        words = sys.argv[1:] if argv is None else argv
        status, message = _status_and_message(error, output, VERBS[args.verb].memory_advice, words)
        if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest again at the exit
        elif not message or args.debug:
            raise
    if message and sys.stderr is not None:
        write_or_discard(sys.stderr, f"bert-jax {args.verb}: {message}\n")
    return status


def _status_and_message(error: Exception, output: object, memory_advice: str, words: Sequence[str]) -> tuple[int, str]:
    """Return the exit status and the line for an error of a verb; no line for a bug, whose traceback is printed.

    If no other function turned an error of the operating system into a message, this function makes the message. An
    error of writing names no path, so the line names the output of the verb and the directory for temporary files.
    """
    if isinstance(error, UserError):
        return error.status, str(error)
    if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
        if error.errno == errno.EPIPE:
            return BROKEN_PIPE, ""
        return 1, str(file_error(error, deed="cannot be written", fix="send it to a file on a disk with room"))
    if isinstance(error, OSError) and error.errno:
        places = [str(output)] * isinstance(output, str) + [f"TMPDIR ({os.environ.get('TMPDIR', '/tmp')})"]
        unnamed = error.errno in FULL and error.filename is None
        worded = file_error(error, " or ".join(places) if unnamed else None)
        return worded.status, str(worded)
    if isinstance(error, UnicodeEncodeError) and CONTROL_CHARACTER.search(error.object):
        return 2, f"{escaped(error.object):.200}: this name is not UTF-8; rename the file or directory (mv)"
    if isinstance(error, TypeError | RuntimeError | ValueError):  # libraries in C++ raise errors of these classes
        for word in (word for word in words if NOT_UTF8.search(word)):
            return 2, f"{escaped(word):.200}: this name is not UTF-8, and a library cannot open it; rename it (mv)"
    message = resource_error_message(error, memory_advice)  # a lack of memory or of devices has no exception class
    return (2, shown(message)) if message else (1, "")
