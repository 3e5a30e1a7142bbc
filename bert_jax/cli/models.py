"""Verbs that use a model: fill-mask, attention, predict, embed."""

import argparse
import functools
import pathlib
import sys

from bert_jax.cli.command import (
    INPUT_FILE_HELP,
    Verb,
    add_flag,
    add_model,
    add_number,
    add_output,
    add_text,
    open_console,
    parse_local_path,
    print_json,
    print_text,
)
from bert_jax.errors import UserError, escaped

UNKNOWN_WARNING = "warning: {} mostly unknown tokens; the vocabulary does not fit the text, so choose another model"
TEXT_ADVICE = "write the texts into a file, one per line, and give it as --input FILE.txt"
PROBABILITY_ADVICE = dict.fromkeys(
    ("--probabilities", "--probs", "--proba", "--scores", "--return_all_scores", "--top_k"),
    "each answer already has its probabilities",
)
OTHER_SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx")  # suffixes of files that hold no JSON lines


def _add_fill_mask_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--top_k", type=int, default=5, metavar="K", help="number of predictions for each [MASK] (default: 5)"
    )
    add_flag(parser, "--json", "print a list of {token, id, probability, text} per text")
    parser.add_argument("--input", metavar="FILE", help=f"{INPUT_FILE_HELP}, instead of --text")
    add_text(parser, "text", "text with [MASK] in it, in quotes; for RoBERTa, write <mask>")


def run_fill_mask(args: argparse.Namespace) -> None:
    """Print the most probable tokens at each [MASK]."""
    if (args.text is None) == (args.input is None):
        raise UserError("give either a text with [MASK], in quotes, or --input FILE")

    from bert_jax.checkpoints.load_model import open_model
    from bert_jax.inference.fill_mask import HEADS, fill_masks
    from bert_jax.inference.inputs import Input, num_inputs, read_inputs, source_name, texts_by_key

    inputs = [Input("the text", 1, {"text": args.text})] if args.input is None else read_inputs(args.input)
    total = None if args.input is None else num_inputs(args.input)
    model = open_model(args.model, HEADS)
    with open_console(silent=sys.stdout.isatty()) as console:
        num_texts, fits = 0, True
        for num_texts, text in enumerate(inputs, 1):
            words = texts_by_key(text)["text"]
            predictions = fill_masks(model, words, args.top_k, text.where)
            if fits and model.tokenizer.is_mostly_unknown(model.tokenizer.encode(words)):
                fits = False
                print(escaped(UNKNOWN_WARNING.format(f"{text.where} has")), file=sys.stderr)
            if num_texts > 1:
                console.progress("filling", num_texts - 1, total, "texts")
            if args.json:
                print_json(predictions)
                continue
            if num_texts > 1:
                print()
            for prediction in predictions:
                print_text(f"{prediction['probability']:7.2%}  {prediction['token']:<16}  {prediction['text']}")
        if not num_texts:
            raise UserError(f"{source_name(args.input)}: no text in it; write one per line")


FILL_MASK = Verb(
    summary="predict the [MASK] tokens of a text",
    description="Prints the most probable tokens, each with its probability and the filled text.",
    example="--model my-bert/ 'The capital of France is [MASK].'",
    add_options=_add_fill_mask_options,
    run=run_fill_mask,
    bare_words=("model", "text"),
    positional_hint="; put the whole text in quotes",
)


def _add_attention_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_output(
        parser,
        "FILE.html",
        "file to create: an .html page, or a .png, .svg or .pdf picture, which needs pip install matplotlib",
    )
    add_flag(parser, "--words", "show attention between words (default: between tokens)")
    add_number(parser, "--layer", "layer to draw in a picture, from 0 (default: all)")
    add_number(
        parser,
        "--head",
        "head of the layer --layer, from 0; a page also shows details of this head; a picture shows only this head",
    )
    add_number(parser, "--first_token", "index of the first of the 512 tokens that are shown (default: 0)", default=0)
    meaning = "text in quotes; if it contains [MASK], the page also shows the relevance of each token"
    add_text(parser, "text", meaning, required=True)
    add_text(parser, "pair", "second text, in quotes")


def run_attention(args: argparse.Namespace) -> None:
    """Write the attention of each head to a text as a page or as a picture."""
    from bert_jax.reports.attention.write import write_attention_file

    with open_console() as console, console.working("reading and drawing"):
        written = write_attention_file(
            args.model, args.text, args.pair, args.output, args.words, args.layer, args.head, args.first_token
        )
    print_text(written)


ATTENTION = Verb(
    summary="draw the attention of each head of a model",
    description=(
        "Writes a self-contained HTML page, or a picture. The page shows a heat map of each head of each layer, "
        "the fraction of attention that follows a pattern of Clark et al. 2019 (next or previous token, [SEP], "
        "broad), attention rollout, and the relevance of tokens for the answer at a [MASK] or of a classifier. "
        "With --layer and --head, the page also shows each weight of that head. The text may have as many tokens as "
        "the model reads; 512 of them are shown."
    ),
    example="--model my-bert/ --output attention.html 'The cat sat.' 'It slept.'",
    add_options=_add_attention_options,
    run=run_attention,
    bare_words=("model", "text", "pair"),
    positional_hint="; put each text in quotes",
)


def _add_predict_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--input",
        default="-",
        metavar="FILE",
        help=f"{INPUT_FILE_HELP}; or a file in a format of training files, such as CSV, TSV or Parquet (default: -)",
    )
    parser.add_argument(
        "--output",
        default="-",
        type=parse_local_path,
        metavar="FILE",
        help="JSON lines file to create; - prints the lines (default: -)",
    )
    add_flag(parser, "--copy_input", "copy the fields of each input into its line of the output, as `input`")
    add_number(parser, "--batch_size", "sequences of maximum length per step (default: 32)", default=32)


def run_predict(args: argparse.Namespace) -> None:
    """Write the predictions of a fine-tuned model as JSON lines."""
    if pathlib.Path(args.output).suffix.lower() in OTHER_SUFFIXES:
        raise UserError(f"{args.output}: predictions are JSON lines; give a name that ends with .jsonl")

    from bert_jax.inference.predict import predict_file
    from bert_jax.parallel.platform import use_compilation_cache

    use_compilation_cache()
    with open_console(silent=args.output == "-") as console:
        counts = predict_file(
            args.model,
            args.input,
            args.output,
            args.batch_size,
            lambda done, total: console.progress("predicting", done, total, "examples"),
            args.copy_input,
        )
    print(", ".join(f"{count:,} {unit.replace('_', ' ')}" for unit, count in counts.items() if count), file=sys.stderr)


PREDICT = Verb(
    summary="answer a task with a fine-tuned model",
    description=(
        "Reads one text per line, or one JSON object per line with the fields of the task: text and text_pair; "
        "tokens; question and context; or text and choices. A model for labels of words splits a text into words and "
        "punctuation marks. Writes one JSON object per input, in order. An `id` "
        "is copied to the answer."
    ),
    example="--model runs/topics --input new.csv --output answers.jsonl",
    add_options=_add_predict_options,
    run=run_predict,
    bare_words=("model", "input", "output"),
    positional_hint="; give a file as --input {0} or --output {0}",
    other_options={"--text": TEXT_ADVICE, **PROBABILITY_ADVICE},
    memory_advice="lower --batch_size",
)


def _add_embed_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--input",
        default="-",
        metavar="FILE",
        help=f"{INPUT_FILE_HELP}; or a table: CSV, TSV, Parquet or a JSON list (default: -)",
    )
    add_output(
        parser,
        "FILE.npy",
        "file to create: .npy; .safetensors for a vector per token; .jsonl or .npz for sparse vectors",
    )
    parser.add_argument(
        "--pooling",
        choices=["mean", "cls", "max", "tokens"],
        help="vector of a text: the mean or the maximum over its tokens, or its first token (cls); tokens gives one "
        "vector per token (default: the setting in modules.json of sentence-transformers, else mean)",
    )
    parser.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="scale the vectors to length 1 (default: the setting in modules.json, else no)",
    )
    parser.add_argument(
        "--field",
        default="text",
        metavar="NAME",
        help="field of the text in JSON lines, or column of the text in CSV, TSV and Parquet (default: text)",
    )
    prompt = "prompt before each text, such as query (default: the prompt of config_sentence_transformers.json, if any)"
    parser.add_argument("--prompt_name", metavar="NAME", help=prompt)
    parser.add_argument(
        "--layers",
        default="last",
        metavar="WHICH",
        help="layers that give the vectors: last; sum4 or concat4, the sum or the concatenation of the last four; or "
        "the number of a layer, where 0 is the input of the first layer (default: last)",
    )
    add_number(parser, "--batch_size", "texts of maximum length per step (default: 32)", default=32)
    add_number(parser, "--max_seq_len", "maximum number of tokens of a text (default: the model's maximum)")
    add_flag(parser, "--truncate", "shorten and count texts that are too long (default: refuse these texts)")
    parser.add_argument(
        "--vectors",
        metavar="FORM",
        help="form of the vectors in the file: int8, binary, a size such as 64, or 64-int8 (default: float)",
    )
    parser.add_argument(
        "--projector",
        type=parse_local_path,
        metavar="DIR",
        help="directory to create with the vectors and their texts for TensorBoard's embedding projector",
    )


def run_embed(args: argparse.Namespace) -> None:
    """Write the vectors of texts."""
    from bert_jax.inference.embed import EmbedOptions, embed_file
    from bert_jax.inference.feature_files import check_projector_arguments, write_projector_files
    from bert_jax.parallel.platform import use_compilation_cache
    from bert_jax.search.smaller_vectors import check_embed_form, float_vectors_file_to_convert, parse_vector_forms

    if args.vectors:
        check_embed_form(args.vectors, args.output, args.projector)
    if args.projector:
        check_projector_arguments(pathlib.Path(args.projector), args.input, pathlib.Path(args.output))
    use_compilation_cache()
    output = pathlib.Path(args.output)
    with open_console() as console, float_vectors_file_to_convert(output, args.vectors) as path:
        made = embed_file(
            args.model,
            args.input,
            path,
            EmbedOptions(
                pooling=args.pooling,
                layers=args.layers,
                batch_size=args.batch_size,
                max_seq_len=args.max_seq_len,
                truncate=args.truncate,
                normalize=args.normalize,
                prompt_name=args.prompt_name,
            ),
            progress=functools.partial(console.progress, unit="texts"),
            field=args.field,
        )
    if args.projector:
        write_projector_files(pathlib.Path(args.output), args.input, pathlib.Path(args.projector), args.field)
    cut = f", {made.truncated:,} of them cut" if made.truncated else ""
    spelled = f", {made.spelled:,} of them with a spelled special token" if made.spelled else ""
    empty = f", {made.empty:,} of them empty" if made.empty else ""
    size = parse_vector_forms(args.vectors, made.width)[0].size if args.vectors else None
    print_text(
        f"{made.texts:,} texts{cut}{spelled}{empty}, {made.tokens:,} tokens, {size or made.width} features -> "
        f"{args.output}"
    )
    if made.titles:
        print(
            f"warning: the field 'title' of {made.titles:,} texts is not read; `score` and `mine` put the title of a "
            "document before its text",
            file=sys.stderr,
        )
    if made.unused_prompts:
        names = " and ".join(made.unused_prompts)
        print(
            escaped(f"no prompt before the texts; this model has prompts for {names} (--prompt_name)"), file=sys.stderr
        )
    if made.unknown:
        print(escaped(UNKNOWN_WARNING.format(f"{made.unknown:,} of {made.texts:,} texts have")), file=sys.stderr)


EMBED = Verb(
    summary="turn texts into vectors",
    description=(
        "Writes one vector per text as .npy, one vector per token as .safetensors, or sparse vectors as .jsonl "
        "or .npz. Input objects in JSON lines have `text`, and optionally `text_pair`."
    ),
    example="--model my-bert/ --input texts.txt --output vectors.npy",
    add_options=_add_embed_options,
    run=run_embed,
    bare_words=("model", "input", "output"),
    positional_hint="; give a file as --input {0} or --output {0}",
    other_options={"--text": TEXT_ADVICE},
    memory_advice="lower --batch_size",
)
