"""Verbs that make training data of sentence vectors: pairs, mine."""

import argparse
import pathlib
import re

from bert_jax.cli.command import (
    MODEL_HELP,
    Verb,
    add_flag,
    add_number,
    add_output,
    add_recipe_option,
    open_console,
    parse_path_or_url,
    print_text,
)


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
    add_number(parser, "--dev_number", "number of matching pairs in dev.jsonl (default: 1000)", default=1_000)
    add_number(parser, "--query_tokens", "maximum tokens of the first text (default: 32)", default=32)
    add_number(parser, "--document_tokens", "maximum tokens of the second text (default: 64)", default=64)
    add_number(parser, "--seed", "seed of the order and of the texts (default: 0)", default=0)


def run_pairs(args: argparse.Namespace) -> None:
    """Write pairs of texts from a corpus."""
    from bert_jax.batches.text_pairs import PAIR_RULES, TextLimits
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
    dev_rule = PAIR_RULES[args.rule].dev_rule
    by_rule = f" by the rule {dev_rule}, since equal texts compare no models" if dev_rule else ""
    dev = f", and {counts.dev:,} right and wrong pairs each for dev.jsonl{by_rule}"
    if not counts.dev:
        dev = "; no dev.jsonl, which needs two held-out documents" if args.dev_number else ""
    print_text(f"{counts.train:,} training pairs{dev}{omitted} -> {args.output}")


PAIRS = Verb(
    summary="make pairs of texts from a corpus, to train sentence vectors without labels",
    description=(
        "Writes pairs of texts that belong together, as JSON lines with text and text_pair, which `finetune "
        "--config=vectors_cpu` reads. A pair depends only on the corpus, the options and the number of the pair. The "
        "pairs of dev.jsonl are from held-out documents; half of these pairs do not belong together. "
        "docs/vectors.md is the guide."
    ),
    example="--corpus corpus/ --output pairs/",
    add_options=_add_pairs_options,
    run=run_pairs,
    bare_words=("corpus", "output"),
)


def _parse_rank_range(text: str) -> tuple[int, int]:
    """Return the two numbers of a range such as 10:50."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text}: give a range of ranks such as 10:50")
    return int(match[1]), int(match[2])


def _add_mine_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", type=parse_path_or_url, metavar="DIR", help=MODEL_HELP)
    add_flag(source, "--bm25", "rank the documents by shared words, without a model")
    parser.add_argument(
        "--pairs", required=True, metavar="FILE", help="JSON lines with a query in text, and its answer in text_pair"
    )
    parser.add_argument(
        "--corpus",
        required=True,
        metavar="PATH",
        help="documents: JSON lines with text and perhaps title, or a directory with corpus.jsonl",
    )
    add_output(
        parser, "FILE.jsonl", "file to create: JSON lines with text, text_pair and negative, which `finetune` reads"
    )
    parser.add_argument(
        "--ranks",
        type=_parse_rank_range,
        default=(10, 50),
        metavar="FIRST:END",
        help="ranks of negatives, from FIRST to END - 1, counted from 0 without the right documents (default: 10:50)",
    )
    parser.add_argument(
        "--margin",
        type=float,
        metavar="M",
        help="skip documents whose score exceeds the score of text_pair minus M; a negative M allows higher scores "
        "(default: no limit)",
    )
    add_number(parser, "--number", "number of negatives for each pair (default: 1)", default=1)
    parser.add_argument(
        "--cross_encoder",
        type=parse_path_or_url,
        metavar="DIR",
        help="model with one score or two labels for a pair of texts; --margin compares its scores, and the output "
        "has them in the field scores",
    )
    add_recipe_option(parser)
    add_number(parser, "--seed", "seed of the random choice of negatives (default: 0)", default=0)


def run_mine(args: argparse.Namespace) -> None:
    """Write pairs of texts with hard negatives."""
    from bert_jax.finetuning.mine import mine_negatives
    from bert_jax.parallel.platform import use_compilation_cache

    use_compilation_cache()
    with open_console() as console:
        counts = mine_negatives(
            args.pairs,
            args.corpus,
            args.output,
            model=args.model,
            ranks=args.ranks,
            margin=args.margin,
            num_negatives=args.number,
            cross_encoder=args.cross_encoder,
            seed=args.seed,
            say=console.say,
            progress=console.progress,
        )
    remarks = (
        (counts.without_enough, "pairs without enough negatives left out"),
        (counts.repeated, "documents repeat an earlier text"),
        (counts.empty, "empty documents left out"),
    )
    omitted = "".join(f"; {count:,} {remark}" for count, remark in remarks if count)
    print_text(
        f"{counts.written:,} pairs with {args.number} negative{'s' * (args.number > 1)} each{omitted} -> {args.output}"
    )


MINE = Verb(
    summary="find hard negatives for pairs of texts, to train sentence vectors",
    description=(
        "Searches the documents for each query, by the vectors of a model or by BM25, and draws negatives from a range "
        "of ranks. The right documents of a query are never negatives. The search is exact. A killed command continues "
        "from its finished blocks. docs/vectors.md is the guide."
    ),
    example="--model runs/vectors --pairs pairs.jsonl --corpus corpus.jsonl --output mined.jsonl",
    add_options=_add_mine_options,
    run=run_mine,
)
