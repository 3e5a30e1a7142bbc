"""Help and options of the verbs that use a run or a model: evaluate, plot, report, export, fill-mask, predict, ...

And of verify, for all that is on disk.
"""

import argparse

from bert_jax.cli.options.command import (
    FOLLOW_PORT,
    INPUT_FILE_HELP,
    MODEL_HELP,
    RUN_HELP,
    STEP_HELP,
    Command,
    add_model,
    add_text,
    local_path,
    run_place,
)


def _evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, type=run_place, metavar="DIR", help=RUN_HELP)
    parser.add_argument("--step", type=int, metavar="N", help=STEP_HELP)
    parser.add_argument(
        "--corpus",
        metavar="DIR",
        help="another corpus of `prepare` with the same tokenizer, on which nothing was tuned: its held-out documents, "
        "or all of them where it holds none out (default: the run's)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def _plot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workdir", required=True, type=run_place, metavar="DIR", help=RUN_HELP)
    parser.add_argument(
        "--output", required=True, type=local_path, metavar="FILE", help="picture to create: .png, .pdf or .svg"
    )


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workdir", nargs="+", type=run_place, metavar="WORKDIR", help="work directories of `pretrain` or `finetune`"
    )
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--output", type=local_path, metavar="FILE", help=".html file to create")
    form.add_argument(
        "--follow",
        action="store_true",
        help="serve the page to this machine alone while the run trains, without sequences; Ctrl-C ends it",
    )
    parser.add_argument("--port", type=int, metavar="N", help=f"port of --follow; 0 is any (default: {FOLLOW_PORT})")
    parser.add_argument(
        "--watts",
        type=float,
        metavar="W",
        help="power of all devices of a run, for energy that was not measured (default: published figures of "
        "accelerators; 12 W per core of a CPU)",
    )
    parser.add_argument(
        "--grams_per_kwh", type=float, metavar="G", help="CO2 of the electricity, to show that of a run"
    )


def _export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir",
        "--model",
        required=True,
        type=run_place,
        metavar="DIR",
        help=f"{MODEL_HELP}; or Google's TensorFlow checkpoint of a BERT",
    )
    parser.add_argument("--output", required=True, type=run_place, metavar="DIR", help="directory or URL to create")
    parser.add_argument(
        "--format",
        choices=["huggingface", "stablehlo", "stablehlo_int8", "onnx", "onnx_int8"],
        default="huggingface",
        help="target format (default: huggingface)",
    )
    parser.add_argument("--head", metavar="NAME", help="head to write (default: all that the format can express)")
    parser.add_argument(
        "--part", metavar="NAME", help="another model that a run trains: generator (default: the run's config.model)"
    )
    parser.add_argument("--step", type=int, metavar="N", help=STEP_HELP)
    parser.add_argument("--license", metavar="ID", help="license of the model, for its card: an id such as apache-2.0")
    parser.add_argument(
        "--base_model", metavar="ID", help="for the card: id on the Hugging Face Hub of the model it was trained from"
    )
    parser.add_argument(
        "--bias", metavar="FILE", help="for the limits in the card: output of `bert-jax bias --json` for this model"
    )


def _compress(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--method",
        required=True,
        choices=["heads", "mlp", "layers", "onnx_int8", "stablehlo_int8"],
        help="what to remove by importance: attention heads (they write zeros, at no gain in size or time), features "
        "of the MLPs, whole layers; or weights as int8, in an ONNX file or a StableHLO program",
    )
    parser.add_argument(
        "--amount", type=float, metavar="FRACTION", help="fraction of heads, MLP features or layers to remove"
    )
    parser.add_argument(
        "--data",
        type=local_path,
        metavar="DIR",
        help="for a pretrained model a corpus of `prepare`, whose held-out documents are scored; for a fine-tuned one "
        "the files of its task (default: those that `finetune` read)",
    )
    parser.add_argument(
        "--examples",
        type=int,
        default=256,
        metavar="N",
        help="training examples that importance is measured on (default: 256)",
    )
    parser.add_argument("--output", required=True, type=local_path, metavar="DIR", help="directory to create")


def _verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="DIR",
        help="directory made by `tokenizer`, `prepare` or `export`, or a work directory of `pretrain` or `finetune`",
    )


def _vocabulary(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="DIR",
        help="directory with the new vocabulary: made by `tokenizer`, or of a published tokenizer",
    )
    parser.add_argument("--output", required=True, type=local_path, metavar="DIR", help="model directory to create")


def _fill_mask(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--top_k", type=int, default=5, metavar="K", help="guesses for each [MASK] (default: 5)")
    parser.add_argument("--json", action="store_true", help="print a list of {token, id, probability, text} per text")
    parser.add_argument("--input", metavar="FILE", help=f"{INPUT_FILE_HELP}, instead of TEXT")
    add_text(parser, "text", "text with [MASK] in it, in quotes; RoBERTa spells it <mask>", nargs="?")


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


# Data of bias -> what is read; `score` and `bias` take them.
BIAS_DATA = (
    ("crows_pairs", "FILE", "crows_pairs_anonymized.csv"),
    ("stereoset", "PATH", "dev.json of StereoSet, or a directory of files cut from it; intrasentence"),
    ("intersentence", "PATH", "the same file: next sentences, for a model with a next-sentence head"),
    ("winobias", "DIR", "directory with pro_stereotyped_* and anti_stereotyped_* files"),
    ("winogender", "PATH", "all_sentences.tsv of Winogender, or its directory, with occupations-stats.tsv"),
    (
        "templates",
        "FILE",
        "JSON lines with template, fillers and groups of words; or the word occupations: 40 English occupations and "
        "the pronouns beside them, which come with bert-jax",
    ),
)


def _score(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    for name, metavar, what in (
        (
            "pairs",
            "PATH",
            "minimal pairs: a .jsonl file with sentence_good, sentence_bad and perhaps UID, as in BLiMP; a "
            ".txt file with the unacceptable sentence on odd and the acceptable one on even lines, as in Zorro; or a "
            "directory of such files; or the word zorro_small: 460 English pairs that come with bert-jax",
        ),
        ("text", "FILE", "running text, one text per line, or JSON lines: pseudo-perplexity"),
        *BIAS_DATA,
    ):
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar=metavar, help=what)
    parser.add_argument(
        "--masking",
        choices=["within_word_l2r", "original"],
        default="within_word_l2r",
        help="tokens that are masked to predict a token: itself and the later tokens of its word, or itself alone "
        "(default: within_word_l2r)",
    )
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="divisor of the logits (default: 1)"
    )
    _add_fraction(parser)
    parser.add_argument(
        "--output", type=local_path, metavar="FILE", help="JSON file to create, with the scores of all sentences"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def _bias(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    for name, metavar, what in BIAS_DATA:
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar=metavar, help=what)
    _add_fraction(parser)
    parser.add_argument("--output", type=local_path, metavar="FILE", help=".html file to create")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of tables; `export --bias` reads it"
    )


def _add_fraction(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fraction",
        type=float,
        default=1.0,
        metavar="FRACTION",
        help="fraction of the items of each paradigm or group, always the same ones (default: 1, all)",
    )


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
REPORT = Command(
    "write a run, or several, as one HTML page",
    "What was trained and whether it looks healthy, curves, corpus, held-out sequences with the model's guesses, "
    "settings, cost, and how to train it again. The page loads nothing and runs nothing. With --follow, a server on "
    "the loopback address shows it while the run trains.",
    "runs/base --output report.html",
    _report,
)
EXPORT = Command(
    "write a model for other programs",
    "huggingface: a directory that AutoModelFor... and AutoTokenizer of transformers open as it is. stablehlo: a "
    "program that jax runs without bert_jax. onnx: an ONNX graph; needs pip install onnxscript torch transformers. "
    "..._int8: with int8 weights, a quarter of the bytes; `bert-jax compress` also measures what they cost.",
    "--workdir runs/base --output my-bert/",
    _export,
)
COMPRESS = Command(
    "write a smaller model, and measure what it costs",
    "heads, mlp, layers: the parts that matter least for the loss (Michel et al. 2019), in a directory that "
    "transformers opens and `finetune` trains again. onnx_int8, stablehlo_int8: weights as int8. Prints size, time and "
    "score before and after, with the confidence interval of what is lost, and writes them into the model card.",
    "--model runs/qnli --method layers --amount 0.25 --output smaller/",
    _compress,
)
VERIFY = Command(
    "compare every byte of a directory with its digests",
    "The digests were written with the directory: SHA256SUMS of tokenizers and exports, the manifest of a corpus, the "
    "records of checkpoints, with which run.json and tokenizer/ are compared as well. Exits with 0 if all is "
    "intact, with 1 after a line for each damaged part, and with 2 if there are no digests.",
    "runs/base",
    _verify,
)
VOCABULARY = Command(
    "give a model another vocabulary",
    "For text that the old vocabulary splits into many pieces: another language or domain. Tokens that both have keep "
    "their embeddings; a new one takes the mean of its old pieces. Train the result further on a corpus prepared with "
    "the new tokenizer: pretrain --config.init_from=DIR.",
    "--model my-bert/ --tokenizer german-tok/ --output german-bert/",
    _vocabulary,
)
FILL_MASK = Command(
    "guess the [MASK] tokens of a text",
    "Prints probability, token, and the text with the token filled in, most probable first.",
    "--model my-bert/ 'The capital of France is [MASK].'",
    _fill_mask,
    stray="; put the whole text in quotes",
)
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
SCORE = Command(
    "measure what a model has learned",
    "Scores a sentence by the log-probability of each of its tokens where it is masked. Minimal pairs: how often the "
    "acceptable sentence scores higher. Text: pseudo-perplexity. Bias: the published metrics of CrowS-Pairs and "
    "StereoSet, and how often the stereotype of WinoBias scores higher. docs/score.md explains the figures.",
    "--model my-bert/ --pairs blimp/ --fraction 0.05",
    _score,
    stray="; give a file as --pairs {0} or --text {0}",
)
BIAS = Command(
    "show what a model associates with gender, race, religion, occupations",
    "Figures of CrowS-Pairs, StereoSet, WinoBias and Winogender by their published rules, and what the model expects "
    "beside each filler of templates. Each comes with what it says and what it does not say. Without data: templates "
    "of 40 English occupations. docs/score.md explains the figures.",
    "--model my-bert/ --output bias.html",
    _bias,
    stray="; give a file as --templates {0}",
)
