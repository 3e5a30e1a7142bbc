"""What the command line takes: one verb a subcommand, `bert-jax VERB --help` says it."""

import argparse
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from bert_jax import __version__
from bert_jax.errors import did_you_mean, nearest

EPILOG = """from text to a model:
  bert-jax tokenizer --input 'books/*.txt' --kind wordpiece --vocab_size 30522 --output tok/
  bert-jax prepare   --input 'books/*.txt' --tokenizer tok/ --output corpus/
  bert-jax inspect   corpus/
  bert-jax compile   --config configs/bert_base.py --topology v5e:4x4
  bert-jax pretrain  --config configs/bert_base.py --workdir runs/base --config.data.corpus=corpus/
  bert-jax evaluate  --workdir runs/base
  bert-jax plot      --workdir runs/base --output curves.png
  bert-jax export    --workdir runs/base --output my-bert/
  bert-jax fill-mask --model my-bert/ 'The capital of France is [MASK].'
  bert-jax finetune  --config configs/finetune/glue.py --workdir qnli --config.init_from=my-bert --config.task.name=qnli
  bert-jax predict   --model qnli --input questions.jsonl --output answers.jsonl
  bert-jax embed     --model my-bert/ --input texts.txt --output vectors.npy
"""

INPUT_HELP = (
    "files, directories (all files below) or quoted glob patterns, also of gs:// and s3://; plain, .gz, .xz, .bz2, "
    ".zst, or tar and zip archives of them; tfds:NAME, a data set of TFDS; or the word python-docs: the documentation "
    "strings of this Python installation"
)
FORMATS = ("auto", "text", "markdown", "jsonl", "csv", "tsv", "parquet", "wikiextractor", "mediawiki")
WORKDIR_HELP = "the work directory of `pretrain`"
STEP_HELP = "step of the checkpoint to take (default: the newest undamaged one)"


class Once(argparse.Action):
    """Stores a value, as argparse does, which would let the last of several win without a word."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Refuses a second value."""
        given: set[str] = vars(namespace).setdefault("given", set())
        if self.dest in given:
            parser.error(f"{' or '.join(self.option_strings)} is given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def whole_number(text: str) -> int:
    """`int`, which says of other texts what it wants."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number") from None


def number(text: str) -> float:
    """`float`, likewise."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number") from None


class Parser(argparse.ArgumentParser):
    """Says in two lines what is wrong; argparse alone would print the whole usage before."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.register("action", None, Once)
        self.register("type", int, whole_number)
        self.register("type", float, number)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` says what it takes\n")

    def options(self) -> list[str]:
        """What it takes, by name."""
        return [name for action in self._actions for name in action.option_strings]


def parse(functions: Mapping[str, Callable[..., int | None]], argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of a verb; `overrides` has those of its config, which `read_config` checks.

    Ends with status 2 for a word that is no option, and for an option or an override that is given twice.
    """
    args, words = parser(functions).parse_known_args(argv)
    args.overrides, overridden = words, set()
    for word in words:
        name, equals, _ = word.partition("=")
        if not word.startswith("-") and not equals:
            args.parser.error(f"'{word}' belongs to no option{args.stray.format(word)}")
        if not args.takes_overrides or (name.startswith("-") and "." not in name):
            args.parser.error(f"'{word}' is no option{_meant(word, args)}")
        if name in overridden:
            args.parser.error(f"{name} is given twice")
        if not equals:
            break  # --config.KEY VALUE: read_config says how it is written
        overridden.add(name)
    return args


def _meant(word: str, args: argparse.Namespace) -> str:
    """`; did you mean ...?`: an option, or a key of the config that ends so."""
    name, equals, value = word.partition("=")
    if not args.takes_overrides:
        return did_you_mean(name, args.parser.options())
    from bert_jax.config import FinetuneConfig, PretrainConfig, flatten, index_form, to_json

    ends: dict[str, list[str]] = {}
    for key in map(index_form, flatten(to_json(PretrainConfig())) | flatten(to_json(FinetuneConfig()))):
        ends.setdefault(f"--{key.rpartition('.')[2]}", []).append(f"'--config.{key}={value if equals else 'VALUE'}'")
    ends |= {option: [f"'{option}'"] for option in args.parser.options()}
    near = nearest(name, ends)
    return f"; did you mean {' or '.join(ends[near])}?" if near else ""


def parser(functions: Mapping[str, Callable[[argparse.Namespace], int | None]]) -> Parser:
    """The whole command line; `functions` has what each verb calls."""
    top = Parser(
        prog="bert-jax",
        description="Pretrain, fine-tune, evaluate and export BERT-family encoders in JAX.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"bert-jax {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, summary: str, more: str, stray: str = "") -> argparse.ArgumentParser:
        """`stray` says where a word belongs, {}, that stands alone."""
        example = next(line for line in EPILOG.splitlines() if f"bert-jax {name} " in line)
        one = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.\n\n{textwrap.fill(more, 80)}",
            epilog=f"example:\n{example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        one.add_argument("--debug", action="store_true", help="show the traceback of an error")
        one.set_defaults(function=functions[name], parser=one, takes_overrides=False, stray=stray)
        return one

    def several_processes(one: argparse.ArgumentParser) -> None:
        peers = one.add_argument_group(
            "several processes",
            "found by themselves on TPU pods, GKE and Slurm; elsewhere give all three to each of them",
        )
        peers.add_argument("--coordinator", metavar="HOST:PORT", help="where the others reach process 0; any free port")
        peers.add_argument("--num_processes", type=int, metavar="N", help="how many there are")
        peers.add_argument("--process_id", type=int, metavar="I", help="number of this one, from 0")

    def reading(one: argparse.ArgumentParser) -> None:
        one.add_argument(
            "--format", choices=FORMATS, default="auto", help="of the files (default: auto, by the end of their names)"
        )
        one.add_argument(
            "--field",
            default="text",
            metavar="NAME",
            help="of JSON lines, CSV, Parquet and TFDS, or a column's number (default: text)",
        )
        one.add_argument(
            "--encoding_errors",
            choices=["reject", "replace"],
            default="reject",
            help="documents that are not UTF-8: count and leave out, or replace the broken bytes (default: reject)",
        )

    one = verb(
        "tokenizer",
        "train a vocabulary on text",
        "The vocabulary is what a model reads instead of letters. Skip this verb to use a published one: `prepare` "
        "takes a directory with tokenizer.json, vocab.txt, vocab.json and merges.txt, or spiece.model.",
    )
    one.add_argument(
        "--input", nargs="+", action="append", required=True, metavar="GLOB", help=f"{INPUT_HELP}; once a language"
    )
    reading(one)
    one.add_argument(
        "--kind",
        choices=["wordpiece", "bpe", "byte_level", "unigram", "sentencepiece_bpe"],
        default="wordpiece",
        help="as in BERT; BPE of characters; of bytes as in RoBERTa; SentencePiece's unigram as in ALBERT, or its BPE "
        "(default: wordpiece)",
    )
    one.add_argument(
        "--vocab_size", type=int, required=True, metavar="N", help="tokens, special ones included; BERT has 30522"
    )
    one.add_argument("--output", required=True, metavar="DIR", help="directory to make")
    one.add_argument("--cased", action="store_true", help="keep capitals and accents (default: lower-case, strip them)")
    one.add_argument(
        "--sample_characters",
        type=int,
        default=0,
        metavar="N",
        help="train on about so many, drawn by a hash of the text; 0: on all (default: 0)",
    )
    one.add_argument(
        "--smoothing",
        type=float,
        default=1.0,
        metavar="S",
        help="exponent of the characters of each --input: 1 as they are, 0.7 as multilingual BERT, 0 all alike "
        "(default: 1)",
    )
    one.add_argument("--weights", nargs="+", type=float, default=[], metavar="W", help="of each --input, instead")

    one = verb(
        "prepare",
        "turn text into a corpus that training reads",
        "Parts the text into documents and sentences, encodes them with the tokenizer, and keeps a share of the "
        "documents for evaluation. Every document is either stored or counted with the reason why not. Prepare each "
        "language or source on its own: `pretrain` mixes several corpora. docs/data.md leads through it.",
    )
    one.add_argument("--input", nargs="+", action="append", required=True, metavar="GLOB", help=INPUT_HELP)
    reading(one)
    one.add_argument(
        "--tokenizer", required=True, metavar="DIR", help="made by `tokenizer`, or a directory of a published one"
    )
    one.add_argument("--output", required=True, metavar="DIR", help="directory to make")
    one.add_argument(
        "--documents",
        choices=["auto", "file", "blank-line", "line"],
        default="auto",
        help="what one document of text or markdown is: a file, a stretch between blank lines, or a line (default: "
        "auto, a file; of other formats it is a record in any case)",
    )
    one.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="processes (default: all cores)")
    one.add_argument(
        "--heldout_fraction",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="of the documents, to evaluate on and never to train on; from 0 to below 1 (default: 0.02)",
    )
    one.add_argument(
        "--language",
        default="en",
        metavar="CODE",
        help="such as en or de (two letters where there are two): whose rules part the sentences; none: a line is a "
        "sentence, kept as it is, as in code (default: en)",
    )
    one.add_argument(
        "--runner",
        choices=["local", "beam"],
        default="local",
        help="this machine, or Apache Beam with what stands in --beam_options (default: local)",
    )
    one.add_argument(
        "--beam_options",
        default="",
        metavar="OPTIONS",
        help="in quotes, such as '--runner=DataflowRunner --region=...'",
    )

    one = verb(
        "inspect",
        "look at a corpus and at the rows that are made of it",
        "Prints what is in it, warns of what will hurt, and shows rows as text: masks, pairs and examples that share a "
        "row in colour, or marked where there is no terminal. Any knob of the rows can be overridden, as in "
        "--config.data.masking=span.",
        stray="; several corpora are one word: a pattern in quotes, or names parted by commas",
    )
    one.add_argument(
        "corpus", metavar="CORPUS", help="made by `prepare`; several, parted by commas, or a quoted pattern, are mixed"
    )
    one.add_argument(
        "--sequence", type=int, metavar="N", help="number of a sequence to show (default: statistics, first sequences)"
    )
    one.add_argument("--config", metavar="FILE", help="a recipe, whose rows are shown (default: length 128, as BERT)")
    one.add_argument("--json", action="store_true", help="print the statistics as one object")
    one.set_defaults(takes_overrides=True)

    one = verb(
        "pretrain",
        "train a recipe, or go on where it stopped",
        "Train a recipe in a work directory. Ctrl-C or SIGTERM saves and stops; the same command goes on from the "
        "newest undamaged checkpoint. Any knob of the recipe can be overridden, as in "
        "--config.optimizer.peak_learning_rate=2e-4; bert_jax/config.py says what each knob means.",
        stray="; a corpus is given as --config.data.corpus={}",
    )
    one.add_argument("--config", required=True, metavar="FILE", help="a recipe, such as configs/bert_base.py")
    one.add_argument(
        "--workdir", required=True, metavar="DIR", help="for checkpoints, metrics.jsonl and TensorBoard events"
    )
    one.set_defaults(takes_overrides=True)
    several_processes(one)

    one = verb(
        "finetune",
        "train a task on a pretrained model, or go on where it stopped",
        "Trains --config.task from the weights in --config.init_from (of `pretrain`, `export` or transformers) with "
        "each learning rate and seed, keeps the best, and predicts the dev and test sets. bert_jax/tasks/table.py "
        "lists the tasks; 'custom' is your own JSON lines, TSV or CSV. The last line printed is results.json.",
        stray="; weights are given as --config.init_from={0}, data as --config.task.data={0}",
    )
    one.add_argument("--config", required=True, metavar="FILE", help="a recipe, such as configs/finetune/glue.py")
    one.add_argument("--workdir", required=True, metavar="DIR", help="for the model, its scores and its predictions")
    one.set_defaults(takes_overrides=True)
    several_processes(one)

    one = verb(
        "predict",
        "answer a task with a fine-tuned model",
        "JSON lines in, JSON lines out, in order: text and text_pair to classify, tokens to tag, question and context, "
        "or text and choices; an id comes back.",
        stray="; a file is given as --input {0} or --output {0}",
    )
    one.add_argument(
        "--model", required=True, metavar="DIR", help="work directory of `finetune`, or a fine-tuned model"
    )
    one.add_argument("--input", default="-", metavar="FILE", help="JSON lines (default: standard input)")
    one.add_argument("--output", default="-", metavar="FILE", help="JSON lines (default: standard output)")
    one.add_argument("--batch_size", type=int, default=32, metavar="N", help="rows at a time (default: 32)")

    one = verb(
        "embed",
        "turn texts into vectors",
        "One vector a text, as .npy, or with --pooling tokens one a token, as .safetensors: the features that a model "
        "trained elsewhere reads. Texts are the lines of a file, or `text` and `text_pair` of JSON lines (.jsonl).",
        stray="; a file is given as --input {0} or --output {0}",
    )
    one.add_argument("--model", required=True, metavar="DIR", help="made by `export` or `finetune`, or of transformers")
    one.add_argument("--input", required=True, metavar="FILE", help="one text a line; .jsonl: objects with `text`")
    one.add_argument("--output", required=True, metavar="FILE", help="to make: .npy, for tokens .safetensors")
    one.add_argument(
        "--pooling",
        choices=["mean", "cls", "tokens"],
        default="mean",
        help="over all tokens of a text, its first token, or none (default: mean)",
    )
    one.add_argument(
        "--layers",
        default="last",
        metavar="WHICH",
        help="last, sum4 or concat4 of the last four, or a number, 0 being what enters the first (default: last)",
    )
    one.add_argument("--batch_size", type=int, default=32, metavar="N", help="texts at a time (default: 32)")
    one.add_argument("--max_seq_len", type=int, default=0, metavar="N", help="tokens of a text (default: the model's)")
    one.add_argument("--truncate", action="store_true", help="cut and count longer texts (default: refuse them)")

    one = verb(
        "compile",
        "show what a recipe needs before it is run: memory, time, cost",
        "A dry run: compiles each phase for a TPU slice that need not be there, or for the devices present, and "
        "reads off memory, FLOPs, bytes and collectives, and from them times. Exit status 1 where a phase does not "
        "fit. Any knob of the recipe can be overridden, as in --config.compute.remat=True.",
    )
    one.add_argument("--config", required=True, metavar="FILE", help="a recipe, such as configs/bert_base.py")
    one.add_argument(
        "--topology",
        metavar="CHIP:SIZES",
        help="a TPU slice, such as v5e:16x16 or v4:2x2x2; needs pip install 'bert-jax[tpu]' (default: devices present)",
    )
    one.add_argument("--price_per_chip_hour", type=float, metavar="PRICE", help="to work out what the run costs")
    one.add_argument(
        "--watts_per_chip", type=float, metavar="W", help="to work out its energy (default: typical, where published)"
    )
    one.add_argument("--json", action="store_true", help="print one object with a list `phases`")
    one.set_defaults(takes_overrides=True)

    one = verb(
        "evaluate",
        "measure a run on its held-out documents",
        "The last line printed is one JSON object: losses in nats, accuracies from 0 to 1, and as unigram_entropy "
        "the loss of a model that knows how often each token occurs and nothing else.",
    )
    one.add_argument("--workdir", required=True, metavar="DIR", help=WORKDIR_HELP)
    one.add_argument("--step", type=int, metavar="N", help=STEP_HELP)

    one = verb("plot", "draw the learning curves of a run", "Reads WORKDIR/metrics.jsonl.")
    one.add_argument("--workdir", required=True, metavar="DIR", help=WORKDIR_HELP)
    one.add_argument("--output", required=True, metavar="FILE", help="picture to make: .png, .pdf or .svg")

    one = verb(
        "export",
        "write a model for others to use",
        "For Hugging Face transformers: AutoModelFor... and AutoTokenizer open the directory as it is. As StableHLO: a "
        "program that jax runs without bert_jax. As ONNX: needs pip install 'bert-jax[onnx]'.",
    )
    one.add_argument(
        "--workdir",
        "--model",
        required=True,
        metavar="DIR",
        help="of `pretrain` or `finetune`, a model directory, or Google's TensorFlow checkpoint of a BERT",
    )
    one.add_argument("--output", required=True, metavar="DIR", help="directory to make")
    one.add_argument(
        "--format",
        choices=["huggingface", "stablehlo", "onnx"],
        default="huggingface",
        help="for whom (default: huggingface)",
    )
    one.add_argument("--step", type=int, metavar="N", help=STEP_HELP)

    one = verb(
        "fill-mask",
        "guess the [MASK] tokens of a text",
        "Prints probability, token and the text with it, likeliest first.",
        stray="; put the whole text in quotes",
    )
    one.add_argument(
        "--model", required=True, metavar="DIR", help="made by `export`, or one of transformers; RoBERTa spells <mask>"
    )
    one.add_argument("--top_k", type=int, default=5, metavar="K", help="guesses for each [MASK] (default: 5)")
    one.add_argument(
        "--json", action="store_true", help="print a list of {token, id, probability, text}, likeliest first"
    )
    one.add_argument("text", metavar="TEXT", help="one text with [MASK] in it, in quotes")
    return top
