"""Verbs that make one model directory out of another: export, compress, vocabulary."""

import argparse
import pathlib

from bert_jax.cli.command import (
    MODEL_HELP,
    STEP_HELP,
    Verb,
    add_flag,
    add_model,
    add_number,
    add_output,
    add_recipe_option,
    open_console,
    parse_local_path,
    parse_path_or_url,
    print_text,
)


def _add_export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workdir",
        "--model",
        required=True,
        type=parse_path_or_url,
        metavar="DIR",
        help=f"{MODEL_HELP}; or Google's TensorFlow checkpoint of a BERT",
    )
    parser.add_argument(
        "--output", required=True, type=parse_path_or_url, metavar="DIR", help="directory or URL to create"
    )
    parser.add_argument(
        "--push_to_hub", metavar="OWNER/NAME", help="upload the output to the Hugging Face Hub, with its card"
    )
    parser.add_argument(
        "--format",
        choices=["huggingface", "stablehlo", "onnx", "onnx_int8", "openvino", "peft"],
        default="huggingface",
        help="target format (default: huggingface)",
    )
    add_flag(
        parser,
        "--measure",
        "run the Python code of the output's README.md, measure the latency of each installed runtime and of torch on "
        "one core, and add the results to README.md (stablehlo, onnx, onnx_int8, openvino)",
    )
    parser.add_argument("--head", metavar="NAME", help="head to write (default: all heads that the format can express)")
    parser.add_argument("--part", metavar="NAME", help="model of the run to export: generator (default: config.model)")
    add_number(parser, "--step", STEP_HELP)
    add_recipe_option(parser)
    parser.add_argument(
        "--license", metavar="ID", help="license of the model for the model card: an id such as apache-2.0"
    )
    parser.add_argument(
        "--base_model",
        metavar="ID",
        help="base model for the model card: the id on the Hugging Face Hub of the model that this model was trained "
        "from",
    )
    parser.add_argument(
        "--bias",
        metavar="FILE",
        help="output of `bert-jax bias --json` for this model, to describe its bias in the model card",
    )
    parser.add_argument(
        "--retrieval",
        metavar="FILE",
        help="output of `bert-jax score --retrieval DIR --json` for this model, for the tables of the model card",
    )


def run_export(args: argparse.Namespace) -> None:
    """Write a model for other programs."""
    from bert_jax.convert.export import CardFacts, export_directory
    from bert_jax.readers.hub import push_to_hub
    from bert_jax.training.remote_workdir import directory_to_upload, local_copy

    with open_console() as console, console.working("exporting"):
        reports = (pathlib.Path(path) if path else None for path in (args.bias, args.retrieval))
        facts = CardFacts(args.license, args.base_model, *reports)
        with directory_to_upload(args.output) as output:
            export_directory(
                local_copy(args.workdir),
                output,
                args.format,
                console,
                step=args.step,
                head=args.head,
                part=args.part,
                card_facts=facts,
                measure=args.measure,
            )
            if args.push_to_hub:
                console.say(f"uploaded: {push_to_hub(output, args.push_to_hub)}")


EXPORT = Verb(
    summary="write a model for other programs",
    description=(
        "The format huggingface is a directory for AutoModelFor... and AutoTokenizer of transformers. stablehlo "
        "is a program that jax runs without bert_jax. onnx is an ONNX graph; it needs pip install onnxscript "
        "torch transformers. onnx_int8 is an ONNX graph with int8 weights, a quarter of the bytes; `bert-jax "
        "compress` also measures its loss of score. openvino is a model for OpenVINO; it also needs pip install "
        "openvino. These four formats have a README.md with Python code, and `verify --run` compares their outputs. "
        "The programs of sentence encoders return vectors of texts. peft is the adapter of a model that was fine-tuned "
        "with config.adapter.rank, for the library peft."
    ),
    example="--workdir runs/base --output my-bert/",
    add_options=_add_export_options,
    run=run_export,
    bare_words=("workdir", "output"),
)


def _add_compress_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--method",
        required=True,
        choices=["heads", "mlp", "layers", "onnx_int8"],
        help="parts to remove: attention heads, features of the MLPs, or whole layers; or onnx_int8, which removes "
        "nothing and stores the weights as int8 in an ONNX file",
    )
    parser.add_argument(
        "--amount", type=float, metavar="FRACTION", help="fraction of heads, MLP features or layers to remove"
    )
    parser.add_argument(
        "--data",
        type=parse_local_path,
        metavar="PATH",
        help="data to score on: for a pretrained model, a corpus of `prepare` with held-out documents; for a "
        "fine-tuned model, the directory of the files of its task, or the file of `finetune --data` (default: the "
        "files that `finetune` read)",
    )
    add_number(parser, "--examples", "number of training examples to measure importance on (default: 256)", default=256)
    add_output(parser, "DIR", "directory to create")


def run_compress(args: argparse.Namespace) -> None:
    """Write a smaller model; print its size, speed and score before and after."""
    from bert_jax.parallel.platform import use_compilation_cache
    from bert_jax.verbs import compress

    use_compilation_cache()
    with open_console() as console, console.working("compressing"):
        lines = compress(
            args.model,
            args.output,
            method=args.method,
            amount=args.amount,
            data=args.data,
            examples=args.examples,
            console=console,
        )
    print_text("\n".join([*lines, args.output]))


COMPRESS = Verb(
    summary="write a smaller model, and measure its loss of score",
    description=(
        "The methods heads, mlp and layers remove the parts that matter least for the loss (Michel et al. 2019). "
        "These methods write a directory that transformers opens and `finetune` trains further. After heads, "
        "transformers opens only a NomicBERT, because in other families the number of heads determines the size of a "
        "head; bert_jax opens every family. onnx_int8 stores the weights as int8. Prints size, time and score before "
        "and after, with the confidence interval of the lost score, and writes them to the model card."
    ),
    example="--model runs/topics --method layers --amount 0.25 --output smaller/",
    add_options=_add_compress_options,
    run=run_compress,
    other_options={"--layers": "give --method layers --amount FRACTION, the fraction of the layers to remove"},
    bare_words=("model", "output"),
)


def _add_vocabulary_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument(
        "--tokenizer",
        required=True,
        metavar="DIR",
        help="directory of the new tokenizer, made by `tokenizer` or published",
    )
    add_output(parser, "DIR", "model directory to create")


def run_vocabulary(args: argparse.Namespace) -> None:
    """Write a model with another vocabulary."""
    from bert_jax.convert.vocabulary import change_vocabulary
    from bert_jax.training.remote_workdir import local_copy

    with open_console() as console, console.working("changing the vocabulary"):
        change_vocabulary(local_copy(args.model), pathlib.Path(args.tokenizer), pathlib.Path(args.output), console)


VOCABULARY = Verb(
    summary="give a model another vocabulary",
    description=(
        "Use it for text of another language or domain, which the old vocabulary splits into many pieces. Tokens "
        "of both vocabularies keep their embeddings. The embedding of a new token is the mean of the embeddings "
        "of its old pieces. Train the result further on a corpus prepared with the new tokenizer: pretrain "
        "--config.init_from=DIR."
    ),
    example="--model my-bert/ --tokenizer german-tok/ --output german-bert/",
    add_options=_add_vocabulary_options,
    run=run_vocabulary,
    bare_words=("model", "output"),
)
