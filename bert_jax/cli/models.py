"""Verbs that use a model: fill-mask, attention, predict, embed."""

import argparse
import functools
import json
import pathlib
import sys

from bert_jax.cli.command import (
    INPUT_FILE_HELP,
    Command,
    add_model,
    add_text,
    local_path,
)
from bert_jax.cli.outputs import open_console
from bert_jax.errors import UserError


def _fill_mask(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--top_k", type=int, default=5, metavar="K", help="guesses for each [MASK] (default: 5)")
    parser.add_argument("--json", action="store_true", help="print a list of {token, id, probability, text} per text")
    parser.add_argument("--input", metavar="FILE", help=f"{INPUT_FILE_HELP}, instead of TEXT")
    add_text(parser, "text", "text with [MASK] in it, in quotes; RoBERTa spells it <mask>", nargs="?")


FILL_MASK = Command(
    "guess the [MASK] tokens of a text",
    "Prints probability, token, and the text with the token filled in, most probable first.",
    "--model my-bert/ 'The capital of France is [MASK].'",
    _fill_mask,
    stray="; put the whole text in quotes",
)


def fill_mask(args: argparse.Namespace) -> None:
    """Print the most probable tokens at each [MASK]."""
    if (args.text is None) == (args.input is None):
        raise UserError("give a TEXT in quotes or --input FILE, and not both")

    from bert_jax.checkpoints.load_model import open_model
    from bert_jax.inference import fill_mask as module
    from bert_jax.inference.inputs import Input, name_of, num_inputs, read_inputs, texts_of

    inputs = [Input("the text", 1, {"text": args.text})] if args.input is None else read_inputs(args.input)
    total = None if args.input is None else num_inputs(args.input)
    model = open_model(args.model, module.HEADS)
    with open_console(silent=sys.stdout.isatty()) as console:
        number = 0
        for number, one in enumerate(inputs, 1):
            guesses = module.fill_mask(model, texts_of(one)["text"], args.top_k, one.where)
            if number > 1:
                console.progress("filling", number - 1, total, "texts")
            if args.json:
                print(json.dumps(guesses, ensure_ascii=False))
                continue
            if number > 1:
                print()
            for guess in guesses:
                print(f"{guess['probability']:7.2%}  {guess['token']:<16}  {guess['text']}")
        if not number:
            raise UserError(f"{name_of(args.input)}: no text in it; write one per line")


def _attention(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--output",
        required=True,
        type=local_path,
        metavar="FILE",
        help="file to create: an .html page, or a picture, .png, .svg or .pdf, which needs pip install matplotlib",
    )
    parser.add_argument("--words", action="store_true", help="attention between words (default: between tokens)")
    parser.add_argument("--layer", type=int, metavar="N", help="layer to draw in a picture, from 0 (default: all)")
    parser.add_argument(
        "--head",
        type=int,
        metavar="N",
        help="head of that layer, from 0: a page shows it in detail as well, a picture shows it alone",
    )
    parser.add_argument("--first_token", type=int, default=0, metavar="N", help="first of 512 tokens (default: 0)")
    add_text(parser, "text", "text in quotes; with [MASK], also the relevance of each token")
    add_text(parser, "pair", "a second text, in quotes", nargs="?")


ATTENTION = Command(
    "draw the attention of each head of a model",
    "Writes a self-contained HTML page: a heat map for each head of each layer, and how much of its attention follows "
    "the patterns of Clark et al. 2019 (next or previous token, [SEP], broad); attention rollout; the relevance of "
    "tokens for the answer at a [MASK] or of a classifier; with --layer and --head each weight of one head. Or writes "
    "the maps as a picture. The text may be as long as the model reads; 512 of its tokens are shown.",
    "--model my-bert/ --output attention.html 'The cat sat.' 'It slept.'",
    _attention,
    stray="; put each text in quotes",
)


def attention(args: argparse.Namespace) -> None:
    """Write what each head reads as a page or as a picture."""
    from bert_jax.reports.attention.write import write_attention_file

    with open_console() as console, console.working("reading and drawing"):
        written = write_attention_file(
            args.model, args.text, args.pair, args.output, args.words, args.layer, args.head, args.first_token
        )
    print(written)


def _predict(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--input", default="-", metavar="FILE", help=f"{INPUT_FILE_HELP} (default: -)")
    parser.add_argument(
        "--output",
        default="-",
        type=local_path,
        metavar="FILE",
        help="JSON lines to create; - prints them (default: -)",
    )
    parser.add_argument("--batch_size", type=int, default=32, metavar="N", help="sequences per step (default: 32)")


PREDICT = Command(
    "answer a task with a fine-tuned model",
    "Writes one JSON object per text, in order. A line of plain text is classified; JSON objects have text and "
    "text_pair to classify, tokens to tag, question and context, or text and choices. An `id` is copied to the answer.",
    "--model runs/qnli --input questions.jsonl --output answers.jsonl",
    _predict,
    stray="; give a file as --input {0} or --output {0}",
)


def predict(args: argparse.Namespace) -> None:
    """Write the predictions of a fine-tuned model as JSON lines."""
    from bert_jax.inference.predict import predict_file as run
    from bert_jax.parallel.compilation import use_compilation_cache

    use_compilation_cache()
    with open_console(silent=args.output == "-") as console:
        counts = run(
            args.model,
            args.input,
            args.output,
            args.batch_size,
            lambda done, total: console.progress("predicting", done, total, "examples"),
        )
    print(", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items() if count), file=sys.stderr)


def _embed(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--input", default="-", metavar="FILE", help=f"{INPUT_FILE_HELP} (default: -)")
    parser.add_argument(
        "--output",
        required=True,
        type=local_path,
        metavar="FILE",
        help="file to create: .npy, or .safetensors with --pooling tokens",
    )
    parser.add_argument(
        "--pooling",
        choices=["mean", "cls", "max", "tokens"],
        help="vector of a text: the mean or the maximum over its tokens, its first token, or one vector per token "
        "(default: as modules.json of sentence-transformers says, else mean)",
    )
    parser.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="give the vectors the length 1 (default: as modules.json says, else no)",
    )
    prompt = "prompt before each text, such as query (default: that of config_sentence_transformers.json, if any)"
    parser.add_argument("--prompt_name", metavar="NAME", help=prompt)
    parser.add_argument(
        "--layers",
        default="last",
        metavar="WHICH",
        help="layers to read: last; sum4 or concat4 of the last four; or a number, where 0 is the input of the first "
        "layer (default: last)",
    )
    parser.add_argument("--batch_size", type=int, default=32, metavar="N", help="texts per step (default: 32)")
    parser.add_argument(
        "--max_seq_len", type=int, default=None, metavar="N", help="maximum tokens of a text (default: the model's)"
    )
    parser.add_argument("--truncate", action="store_true", help="cut and count longer texts (default: refuse them)")
    parser.add_argument(
        "--projector",
        type=local_path,
        metavar="DIR",
        help="directory to create with the vectors and their texts for TensorBoard's embedding projector",
    )


EMBED = Command(
    "turn texts into vectors",
    "Writes one vector per text as .npy, or one vector per token as .safetensors: features for a model that is trained "
    "elsewhere. JSON objects have `text`, and optionally `text_pair`.",
    "--model my-bert/ --input texts.txt --output vectors.npy",
    _embed,
    stray="; give a file as --input {0} or --output {0}",
)


def embed(args: argparse.Namespace) -> None:
    """Write the vectors of texts."""
    from bert_jax.inference.embed import embed as run
    from bert_jax.inference.feature_files import check_projector, write_projector
    from bert_jax.parallel.compilation import use_compilation_cache

    if args.projector:
        check_projector(pathlib.Path(args.projector), args.input, pathlib.Path(args.output))
    use_compilation_cache()
    with open_console() as console:
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
            prompt_name=args.prompt_name,
            progress=functools.partial(console.progress, unit="texts"),
        )
    if args.projector:
        write_projector(pathlib.Path(args.output), args.input, pathlib.Path(args.projector))
    cut = f", {made.truncated:,} of them cut" if made.truncated else ""
    empty = f", {made.empty:,} of them empty" if made.empty else ""
    print(f"{made.texts:,} texts{cut}{empty}, {made.tokens:,} tokens, {made.width} features -> {args.output}")
