"""Verbs that make training data of sentence vectors: pairs, mine."""

import argparse
import pathlib

from bert_jax.cli.command import Verb, add_number, add_output, open_console, print_text


def _add_pairs_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", required=True, metavar="DIR", help="corpus: a directory made by `prepare`")
    add_output(parser, "DIR", "directory to create, with train.jsonl and dev.jsonl")
    parser.add_argument(
        "--rule",
        choices=["adjacent", "crop", "inverse_cloze", "dropout"],
        default="adjacent",
        help="texts of a pair: adjacent, the sentences before and after a random border; crop, two random crops of one "
        "window (Contriever); inverse_cloze, a sentence and the sentences around it; dropout, one text twice (SimCSE) "
        "(default: adjacent)",
    )
    add_number(
        parser, "--number", "number of training pairs (default: a pair of each part of a document of 1,024 tokens)"
    )
    add_number(parser, "--dev_number", "number of right pairs in dev.jsonl (default: 1000)", default=1_000)
    add_number(parser, "--query_tokens", "maximum tokens of the first text (default: 32)", default=32)
    add_number(parser, "--document_tokens", "maximum tokens of the second text (default: 64)", default=64)
    add_number(parser, "--seed", "seed of the order and of the texts (default: 0)", default=0)


def run_pairs(args: argparse.Namespace) -> None:
    """Write pairs of texts from a corpus."""
    from bert_jax.batches.text_pairs import TextLimits
    from bert_jax.finetuning.unlabeled import write_unlabeled_pairs

    with open_console() as console:
        counts = write_unlabeled_pairs(
            args.corpus,
            pathlib.Path(args.output),
            args.rule,
            args.number,
            args.dev_number,
            TextLimits(args.query_tokens, args.document_tokens),
            args.seed,
            lambda num_done, total: console.progress("writing", num_done, total, "pairs"),
        )
    omitted = f"; {counts.num_without:,} records have too few sentences" if counts.num_without else ""
    dev = f", and {counts.dev:,} right and wrong pairs each for dev.jsonl" if counts.dev else "; no held-out document"
    print_text(f"{counts.train:,} training pairs{dev}{omitted} -> {args.output}")


PAIRS = Verb(
    summary="make pairs of texts from a corpus, to train sentence vectors without labels",
    description=(
        "Writes pairs of texts that belong together, as JSON lines with text and text_pair, which `finetune "
        "--config=vectors_cpu` reads. A pair depends only on the corpus, the options and its number. The pairs of "
        "dev.jsonl are from held-out documents; half of them do not belong together. docs/vectors.md is the guide."
    ),
    example="--corpus corpus/ --output pairs/",
    add_options=_add_pairs_options,
    run=run_pairs,
)
