"""The parts that verbs share: their description and options, the console, and the output file."""

import argparse
import contextlib
import dataclasses
import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from bert_jax.errors import escaped, writing
from bert_jax.files import new_file, reason_not_a_local_path
from bert_jax.strict_json import json_line

MODEL_HELP = (
    "model: a work directory of `pretrain` or `finetune`, a directory made by `export`, or a Hugging Face "
    "directory; a path, gs:// or s3://BUCKET/NAME, or OWNER/NAME of the Hugging Face Hub"
)
RUN_HELP = "work directory of `pretrain`: a path, gs:// or s3://BUCKET/NAME"
STEP_HELP = "step of the checkpoint (default: the newest intact checkpoint)"
FOLLOW_PORT = 6007  # the port after TensorBoard's 6006
INPUT_FILE_HELP = (
    "text file with one text per line, or JSON lines (.jsonl, or any input whose first character is {); - is standard "
    "input"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb of the command line: its help, its options, and the function that runs it."""

    summary: str  # one imperative clause
    description: str
    example: str  # the words after `bert-jax VERB`
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int | None]  # returns the exit status; None: 0
    config_kinds: tuple[str, ...] = ()  # configs whose keys can be overridden: "pretrain", "finetune"
    bare_words: tuple[str, ...] = ()  # options whose names may be left out; bare words fill them in this order
    positional_hint: str = ""  # advice for a word that belongs to no option; {0} is the word
    # Options of other tools that no single option or key replaces -> advice; {0} is the value.
    other_options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory_advice: str = "use a machine with more"  # printed if memory runs out


def parse_local_path(text: str) -> str:
    """Return a path; refuse a URL, since it would become a local directory such as `gs:`.

    The parser itself refuses an empty text.
    """
    if text and (refusal := reason_not_a_local_path(text)):
        raise argparse.ArgumentTypeError(refusal)
    return text


def parse_path_or_url(text: str) -> str:
    """Return the path or the URL of a run or a model; refuse other URLs. The parser itself refuses an empty text."""
    if text and (refusal := reason_not_a_local_path(text, run=True)):
        raise argparse.ArgumentTypeError(refusal)
    return text


def parse_utf8_text(text: str) -> str:
    """Return a text; refuse bytes that are not UTF-8, which Python stores as halves of surrogate pairs."""
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise argparse.ArgumentTypeError("the text is not UTF-8; set the terminal to it, or use a file")
    return text


Options = argparse.ArgumentParser | argparse._ArgumentGroup


def add_flag(options: Options, name: str, meaning: str) -> None:
    """Add an option without a value."""
    options.add_argument(name, action="store_true", help=meaning)


def add_number(options: Options, name: str, meaning: str, default: int | None = None) -> None:
    """Add an option with a whole number."""
    options.add_argument(name, type=int, default=default, metavar="N", help=meaning)


def add_output(options: Options, metavar: str, meaning: str) -> None:
    """Add the required `--output`, a path."""
    options.add_argument("--output", required=True, type=parse_local_path, metavar=metavar, help=meaning)


def add_workdir(options: Options, meaning: str = RUN_HELP) -> None:
    """Add the required `--workdir`, a path or a URL."""
    options.add_argument("--workdir", required=True, type=parse_path_or_url, metavar="DIR", help=meaning)


def add_text(parser: argparse.ArgumentParser, name: str, meaning: str, required: bool = False) -> None:
    """Add an option with a text."""
    parser.add_argument(f"--{name}", required=required, type=parse_utf8_text, metavar="TEXT", help=meaning)


def add_config_option(parser: argparse.ArgumentParser, example: str, without_recipe: str | None = None) -> None:
    """Add `--config`, which is required unless `without_recipe` describes a run without a recipe."""
    parser.add_argument(
        "--config",
        required=without_recipe is None,
        metavar="RECIPE",
        help=f"recipe: a file, or the name of a recipe that comes with bert-jax, such as {example}; `bert-jax config` "
        f"lists them{f' ({without_recipe})' if without_recipe else ''}",
    )


def add_recipe_option(parser: argparse.ArgumentParser) -> None:
    """Add `--recipe`."""
    parser.add_argument(
        "--recipe",
        dest="own_recipe",
        type=parse_local_path,
        metavar="FILE",
        help="recipe of the run, if it adds rows to tables, such as a masking rule or an optimizer; the file is run",
    )


def add_platform(parser: argparse.ArgumentParser) -> None:
    """Add `--platform`."""
    parser.add_argument(
        "--platform",
        choices=("cpu", "cuda", "tpu"),
        help="devices to train on (default: GPUs or TPUs if JAX finds any; the CPU only if no GPU or TPU plugin is "
        "installed)",
    )


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that connect several processes."""
    group = parser.add_argument_group(
        "several processes",
        "TPU pods, GKE and Slurm need none of these options. Elsewhere every process needs\nall three options. "
        "`--num_processes 1` alone makes each process a run of its own.",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0, with any free port")
    group.add_argument("--num_processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process_id", type=int, metavar="I", help="number of this process, from 0")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add `--model` and `--recipe`."""
    parser.add_argument("--model", required=True, type=parse_path_or_url, metavar="DIR", help=MODEL_HELP)
    add_recipe_option(parser)


@contextlib.contextmanager
def open_console(silent: bool = False) -> Iterator[Any]:
    """Yield the console of a verb; `silent` is True in all processes of a run except process 0."""
    from bert_jax.console import Console

    with contextlib.closing(Console(silent=silent)) as console:
        yield console


def print_text(text: str) -> None:
    """Print lines to standard output, with control characters escaped, since files of strangers may contain them."""
    print(escaped(text))


def print_json(value: Any) -> None:
    """Print a value as a line of JSON to standard output."""
    print(json_line(value))


@contextlib.contextmanager
def open_output_file(path: str | None) -> Iterator[IO[str] | None]:
    """Open an atomically written text file before the work begins; yield None if `path` is None."""
    if path is None:
        yield None
        return
    with writing(path, "choose another --output"):
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with new_file(path) as file:
            yield file
