"""Help and options of the verbs that use a trained model: evaluate, plot, export, fill-mask, predict, embed."""

import argparse

from bert_jax.cli.command import INPUT_FILE_HELP, MODEL_HELP, RUN_HELP, STEP_HELP, Command, add_model


def _evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, metavar="DIR", help=RUN_HELP)
    parser.add_argument("--step", type=int, metavar="N", help=STEP_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def _plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, metavar="DIR", help=RUN_HELP)
    parser.add_argument("--output", required=True, metavar="FILE", help="picture to create: .png, .pdf or .svg")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir",
        "--model",
        required=True,
        metavar="DIR",
        help=f"{MODEL_HELP}; or Google's TensorFlow checkpoint of a BERT",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="directory to create")
    parser.add_argument(
        "--format",
        choices=["huggingface", "stablehlo", "onnx"],
        default="huggingface",
        help="target format (default: huggingface)",
    )
    parser.add_argument("--step", type=int, metavar="N", help=STEP_HELP)


def _fill_mask(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--top_k", type=int, default=5, metavar="K", help="guesses for each [MASK] (default: 5)")
    parser.add_argument("--json", action="store_true", help="print a list of {token, id, probability, text} per text")
    parser.add_argument("--input", metavar="FILE", help=f"{INPUT_FILE_HELP}, instead of TEXT")
    parser.add_argument(
        "text", nargs="?", metavar="TEXT", help="text with [MASK] in it, in quotes; RoBERTa spells it <mask>"
    )


def _predict(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--input", default="-", metavar="FILE", help=f"{INPUT_FILE_HELP} (default: -)")
    parser.add_argument(
        "--output", default="-", metavar="FILE", help="JSON lines to create; - prints them (default: -)"
    )
    parser.add_argument("--batch_size", type=int, default=32, metavar="N", help="sequences per step (default: 32)")


def _embed(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--input", default="-", metavar="FILE", help=f"{INPUT_FILE_HELP} (default: -)")
    parser.add_argument(
        "--output", required=True, metavar="FILE", help="file to create: .npy, or .safetensors with --pooling tokens"
    )
    parser.add_argument(
        "--pooling",
        choices=["mean", "cls", "tokens"],
        default="mean",
        help="vector of a text: the mean over its tokens, its first token, or one vector per token (default: mean)",
    )
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


EVALUATE = Command(
    "measure a run on its held-out documents",
    "Prints losses in nats, accuracies, and the unigram entropy: the loss of a model that knows how often each token "
    "occurs and nothing else.",
    "--workdir runs/base",
    _evaluate,
)
PLOT = Command(
    "draw the learning curves of a run",
    "Reads metrics.jsonl in the work directory.",
    "--workdir runs/base --output curves.png",
    _plot,
)
EXPORT = Command(
    "write a model for other programs",
    "huggingface: a directory that AutoModelFor... and AutoTokenizer of transformers open as it is. stablehlo: a "
    "program that jax runs without bert_jax. onnx: an ONNX graph; needs pip install onnxscript torch transformers.",
    "--workdir runs/base --output my-bert/",
    _export,
)
FILL_MASK = Command(
    "guess the [MASK] tokens of a text",
    "Prints probability, token, and the text with the token filled in, most probable first.",
    "--model my-bert/ 'The capital of France is [MASK].'",
    _fill_mask,
    stray="; put the whole text in quotes",
)
PREDICT = Command(
    "answer a task with a fine-tuned model",
    "Writes one JSON object per text, in order. A line of plain text is classified; JSON objects have text and "
    "text_pair to classify, tokens to tag, question and context, or text and choices. An `id` is copied to the answer.",
    "--model runs/qnli --input questions.jsonl --output answers.jsonl",
    _predict,
    stray="; give a file as --input {0} or --output {0}",
)
EMBED = Command(
    "turn texts into vectors",
    "Writes one vector per text as .npy, or one vector per token as .safetensors: features for a model that is trained "
    "elsewhere. JSON objects have `text`, and optionally `text_pair`.",
    "--model my-bert/ --input texts.txt --output vectors.npy",
    _embed,
    stray="; give a file as --input {0} or --output {0}",
)
