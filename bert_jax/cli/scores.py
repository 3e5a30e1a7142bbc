"""Verbs that measure a model: score and bias."""

import argparse

from bert_jax.cli.command import (
    Verb,
    add_flag,
    add_model,
    open_console,
    open_output_file,
    parse_local_path,
    print_json,
    print_text,
)
from bert_jax.errors import UserError
from bert_jax.strict_json import json_line


def _add_fraction(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fraction",
        type=float,
        default=1.0,
        metavar="FRACTION",
        help="fraction of the items of each paradigm or group to score; every model is scored on equal items "
        "(default: 1, all items)",
    )


# Name, metavar and help of the option for each data set of bias; `score` and `bias` have these options.
BIAS_DATA = (
    ("crows_pairs", "FILE", "file crows_pairs_anonymized.csv of CrowS-Pairs"),
    ("stereoset", "PATH", "dev.json of StereoSet, or a directory of files cut from it; intrasentence"),
    ("intersentence", "PATH", "dev.json of StereoSet for its next sentences; needs a model with a next-sentence head"),
    ("winobias", "DIR", "directory of WinoBias with pro_stereotyped_* and anti_stereotyped_* files"),
    ("winogender", "PATH", "all_sentences.tsv of Winogender, or its directory, with occupations-stats.tsv"),
    (
        "templates",
        "FILE",
        "JSON lines with template, fillers and groups of words; or the word occupations: 40 English occupations and "
        "the pronouns beside them, which come with bert-jax",
    ),
)


def _add_score_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    for name, metavar, meaning in (
        (
            "pairs",
            "PATH",
            "minimal pairs: a .jsonl file with sentence_good, sentence_bad and perhaps UID, as in BLiMP; a "
            ".txt file with unacceptable sentences on odd lines and acceptable sentences on even lines, as in Zorro; "
            "or a directory of such files; or the word zorro_small: 460 English pairs that come with bert-jax",
        ),
        ("text", "FILE", "text to measure the pseudo-perplexity on: one text per line, or JSON lines"),
        *BIAS_DATA,
    ):
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar=metavar, help=meaning)
    parser.add_argument(
        "--masking",
        choices=["within_word_l2r", "original"],
        default="within_word_l2r",
        help="tokens that are masked to predict a token: the token and the later tokens of its word, or only this "
        "token (default: within_word_l2r)",
    )
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="temperature: divisor of the logits (default: 1)"
    )
    _add_fraction(parser)
    parser.add_argument(
        "--output",
        type=parse_local_path,
        metavar="FILE.json",
        help="JSON file to create, with the scores of all sentences",
    )
    parser.add_argument(
        "--labeled",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="file with labels, in a format of the files that trained the fine-tuned model, such as a test set; prints "
        "the scores of the task and the scores of each label",
    )
    parser.add_argument(
        "--retrieval",
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        help="test collection in the layout of BEIR: corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; prints "
        "nDCG, recall, MRR and MAP of the model's vectors and of BM25",
    )
    parser.add_argument(
        "--split",
        default="test",
        metavar="SPLIT",
        help="split of --retrieval, whose relevance judgments are in qrels/SPLIT.tsv (default: test)",
    )
    parser.add_argument(
        "--vectors",
        default="",
        metavar="FORMS",
        help="forms of stored vectors that --retrieval also searches in: float, int8, binary, a size such as 64, or "
        "64-int8, separated by commas; prints the size, the search time and the loss of nDCG of each form",
    )
    parser.add_argument(
        "--rerank",
        metavar="DIR",
        help="cross-encoder that sorts the first documents of both rankings of --retrieval again; prints the measures "
        "of the sorted rankings",
    )
    parser.add_argument(
        "--rerank_depth", type=int, metavar="N", help="documents of each query that --rerank sorts (default: 100)"
    )
    add_flag(parser, "--json", "print one JSON object instead of tables")


def run_score(args: argparse.Namespace) -> None:
    """Print the scores of a model on minimal pairs, text, bias pairs, files with labels and test collections."""
    from bert_jax.cli.results_text import labeled_table, retrieval_table, score_table
    from bert_jax.parallel.platform import use_compilation_cache
    from bert_jax.scoring.score import BENCHMARKS
    from bert_jax.scoring.score_model import score_model, scores_json

    wanted = [(name, source) for name in BENCHMARKS for source in getattr(args, name)]
    if not wanted and not args.labeled and not args.retrieval:
        options = " or ".join(f"--{name}" for name in (*BENCHMARKS, "labeled", "retrieval"))
        raise UserError(f"nothing to score; give {options}")
    use_compilation_cache()
    choices = (args.masking, args.temperature, args.fraction, args.split, args.vectors, args.rerank, args.rerank_depth)
    with open_console() as console, open_output_file(args.output) as file:
        scores = score_model(args.model, wanted, args.labeled, args.retrieval, *choices, console)
        if file:
            file.write(json_line(scores_json(args.model, scores, details=True)))
    if args.json:
        print_json(scores_json(args.model, scores, details=False))
    else:
        tables = [score_table(report) for report, _ in scores.benchmarks]
        tables += [labeled_table(report) for report in scores.labeled]
        print_text("\n\n".join(tables + [retrieval_table(report) for report in scores.collections]))


SCORE = Verb(
    summary="score a model on minimal pairs, text, bias pairs, labels and retrieval",
    description=(
        "The score of a sentence is the sum of the log-probabilities of its tokens, each predicted while it is "
        "masked. For minimal pairs, prints how often the acceptable sentence scores higher. For text, prints the "
        "pseudo-perplexity. For bias, prints the published metrics of CrowS-Pairs and StereoSet, and how often "
        "the stereotype of WinoBias scores higher. For a file with labels, prints the scores of a fine-tuned model. "
        "For retrieval, prints how high the relevant documents of a query rank by the model's vectors. "
        "docs/score.md explains the figures."
    ),
    example="--model my-bert/ --pairs blimp/ --fraction 0.05",
    add_options=_add_score_options,
    run=run_score,
    bare_words=("model",),
    positional_hint="; give a file as --pairs {0} or --text {0}",
)


def _add_bias_options(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    for name, metavar, meaning in BIAS_DATA:
        parser.add_argument(f"--{name}", nargs="+", action="extend", default=[], metavar=metavar, help=meaning)
    _add_fraction(parser)
    parser.add_argument("--output", type=parse_local_path, metavar="FILE.html", help=".html file to create")
    add_flag(parser, "--json", "print one JSON object instead of tables; `export --bias` reads it")


def run_bias(args: argparse.Namespace) -> None:
    """Print the associations of a model; each figure has its meaning and limits."""
    from bert_jax.checkpoints.load_model import open_model, weights_digest
    from bert_jax.cli.results_text import metric_notes_text, score_table
    from bert_jax.parallel.platform import use_compilation_cache
    from bert_jax.reports.bias_metric_notes import MEANINGS, metric_notes
    from bert_jax.reports.bias_page import bias_json, bias_page
    from bert_jax.reports.html.markup import check_html_name
    from bert_jax.scoring.score import heads_of_benchmarks, make_scoring_model
    from bert_jax.scoring.score_model import run_bias_benchmarks
    from bert_jax.scoring.templates import PACKAGED

    wanted = [(name, source) for name in MEANINGS for source in getattr(args, name)]
    wanted = wanted or [("templates", source) for source in PACKAGED]
    check_html_name(args.output or ".html")
    use_compilation_cache()
    with open_console() as console, open_output_file(args.output) as file:
        model = open_model(args.model, heads_of_benchmarks(name for name, _ in wanted))
        reports = run_bias_benchmarks(make_scoring_model(model), wanted, args.fraction, console)
        if file:
            file.write(bias_page(args.model, reports))
    if args.json:
        print_json(bias_json(args.model, weights_digest(model.params), reports))
    else:
        print_text(
            "\n\n".join(f"{score_table(report)}\n\n{metric_notes_text(metric_notes(report))}" for report in reports)
        )


BIAS = Verb(
    summary="show a model's associations with gender, race, religion, occupations",
    description=(
        "Prints the published metrics of CrowS-Pairs, StereoSet, WinoBias and Winogender. For templates, prints "
        "the probabilities of words next to each filler, such as the pronouns next to an occupation. Without any "
        "data option, uses templates of 40 English occupations. Each figure is printed with its meaning and its "
        "limits. docs/score.md explains the figures."
    ),
    example="--model my-bert/ --output bias.html",
    add_options=_add_bias_options,
    run=run_bias,
    bare_words=("model", "output"),
    positional_hint="; give a file as --templates {0}",
)
