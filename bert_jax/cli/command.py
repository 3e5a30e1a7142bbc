"""Help and options of one verb, and the options that several verbs share."""

import argparse
import re
from collections.abc import Callable
from typing import NamedTuple

from bert_jax.files import url_refusal

MODEL_HELP = (
    "model: a work directory of `pretrain` or `finetune`, a directory made by `export`, or a Hugging Face directory; "
    "here, or gs:// or s3://BUCKET/NAME"
)
RUN_HELP = "work directory of `pretrain`, a path, gs:// or s3://BUCKET/NAME"
STEP_HELP = "step of the checkpoint (default: the newest intact one)"
FOLLOW_PORT = 6007  # beside TensorBoard's 6006
INPUT_FILE_HELP = (
    "text file with one text per line, or JSON lines (.jsonl, or any input whose first character is {); - is standard "
    "input"
)


class Command(NamedTuple):
    """What `bert-jax VERB --help` prints, and what the verb takes."""

    summary: str  # one imperative clause
    description: str
    example: str  # what follows `bert-jax VERB`
    add_options: Callable[[argparse.ArgumentParser], None]
    kinds: tuple[str, ...] = ()  # configs whose keys can be overridden: "pretrain", "finetune"
    stray: str = ""  # advice for a word that belongs to no option; {0} is the word


def local_path(text: str) -> str:
    """Return a path; the parser refuses a URL, of which a directory such as `gs:` would be made."""
    if refusal := url_refusal(text):
        raise argparse.ArgumentTypeError(refusal)
    return text


def run_place(text: str) -> str:
    """Return the path or the URL of a run or a model; the parser refuses other URLs."""
    if refusal := url_refusal(text, run=True):
        raise argparse.ArgumentTypeError(refusal)
    return text


def readable_text(text: str) -> str:
    """Return a text; the parser refuses bytes that are not UTF-8, which Python keeps as halves of surrogate pairs."""
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise argparse.ArgumentTypeError("the text is not UTF-8; set the terminal to it, or use a file")
    return text


def add_text(parser: argparse.ArgumentParser, name: str, what: str, nargs: str | None = None) -> None:
    """Add a text that is given on the command line."""
    parser.add_argument(name, nargs=nargs, type=readable_text, metavar=name.upper(), help=what)


def add_recipe(parser: argparse.ArgumentParser, example: str, otherwise: str | None = None) -> None:
    """Add `--config`; `otherwise` says what happens without it, where that is allowed."""
    parser.add_argument(
        "--config",
        required=otherwise is None,
        metavar="RECIPE",
        help=f"recipe: a file, or the name of one that comes with bert-jax, such as {example}; `bert-jax config` lists "
        f"them{f' ({otherwise})' if otherwise else ''}",
    )


def add_platform(parser: argparse.ArgumentParser) -> None:
    """Add `--platform`."""
    parser.add_argument(
        "--platform",
        choices=("cpu", "cuda", "tpu"),
        help="devices to train on (default: GPUs or TPUs if JAX finds them; a CPU only if no plugin for them is "
        "installed)",
    )


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add the options that connect several processes."""
    group = parser.add_argument_group(
        "several processes",
        "TPU pods, GKE and Slurm need none of these options. Elsewhere every process needs\nall three.",
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0, with any free port")
    group.add_argument("--num_processes", type=int, metavar="N", help="number of processes")
    group.add_argument("--process_id", type=int, metavar="I", help="number of this process, from 0")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add `--model`."""
    parser.add_argument("--model", required=True, type=run_place, metavar="DIR", help=MODEL_HELP)
