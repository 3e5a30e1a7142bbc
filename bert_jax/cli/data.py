"""Verbs that make and show corpora: tokenizer, clean, prepare, inspect."""

import argparse
import os
import re
import shlex
import sys
from typing import Any

from bert_jax.cli.command import (
    Verb,
    add_flag,
    add_number,
    add_output,
    open_console,
    parse_local_path,
    print_json,
    print_text,
)
from bert_jax.errors import UserError, escaped

INPUT_HELP = (
    "inputs: files, directories (for all files of known formats), or quoted glob patterns, also at gs:// "
    "and s3://; files may be plain, compressed (.gz, .xz, .bz2, .zst) or in tar and zip archives; tfds:NAME "
    "is a data set of TFDS; python-docs stands for the documentation strings of Python's standard library"
)


FORMATS = (
    "auto", "text", "markdown", "rst", "html", "epub", "pdf", "jsonl", "csv", "tsv", "parquet", "arrow", "tfrecord",
    "wikiextractor", "mediawiki",
)  # fmt: skip


MARKUPS = ("none", "html", "markdown", "rst")


def _add_document_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documents",
        choices=["auto", "file", "blank-line", "line"],
        default="auto",
        help="unit of text or Markdown that becomes a document: a file, a paragraph between blank lines, or a line "
        "(default: auto, which is a file; in other formats, a record is always a document)",
    )
    add_number(parser, "--workers", "number of processes (default: all cores)")
    parser.add_argument(
        "--max_rejected_fraction",
        type=float,
        default=0.1,
        metavar="FRACTION",
        help="largest fraction of the documents that may be rejected as broken or unreadable; a larger fraction is "
        "an error (default: 0.1)",
    )


def _add_reading_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="auto",
        help="format of the files (default: auto, which follows the suffix of each file)",
    )
    parser.add_argument(
        "--field",
        default="text",
        metavar="NAME",
        help="name of the field that holds the text in JSON, CSV, Parquet, Arrow and TFDS, or the number of a "
        "column; in JSON also a path such as data[].paragraphs[].context; or a template of several fields such as "
        "'{title}\\n\\n{text}' (default: text)",
    )
    parser.add_argument(
        "--markup",
        choices=MARKUPS,
        default="none",
        help="markup of the text, which is converted to plain text (default: none)",
    )
    parser.add_argument(
        "--members",
        default="*",
        metavar="PATTERN",
        help="pattern of the archive members to read, such as '*.txt' for a WebDataset (default: all members)",
    )
    parser.add_argument(
        "--encoding",
        default="utf-8",
        metavar="NAME",
        help="encoding of the text, such as shift_jis, euc_kr or latin-1; UTF-16 with a byte order mark is recognized "
        "(default: utf-8)",
    )
    parser.add_argument(
        "--encoding_errors",
        choices=["reject", "replace"],
        default="reject",
        help="treatment of documents that cannot be decoded: reject and count them, or replace the invalid bytes "
        "(default: reject)",
    )
    add_number(
        parser,
        "--max_unpacked_bytes",
        "limit on the unpacked size of a compressed input; an input above this limit and above 100 times its "
        "packed size is an error (default: 1 GiB)",
        default=1 << 30,
    )


def _make_read_options(args: argparse.Namespace) -> Any:
    """Return the `ReadOptions` of a verb that reads texts."""
    from bert_jax.readers import ReadOptions

    return ReadOptions(
        **{name: getattr(args, name) for name in ReadOptions.__dataclass_fields__ if hasattr(args, name)}
    )


def _add_tokenizer_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        nargs="+",
        action="append",
        required=True,
        metavar="GLOB",
        help=f"{INPUT_HELP}; repeat the option for each language",
    )
    _add_reading_options(parser)
    parser.add_argument(
        "--kind",
        choices=["wordpiece", "bpe", "byte_level", "unigram", "sentencepiece_bpe"],
        default="wordpiece",
        help="kind of vocabulary: wordpiece as in BERT, bpe over characters, byte_level BPE as in RoBERTa, "
        "SentencePiece's unigram as in ALBERT, or SentencePiece's BPE (default: wordpiece)",
    )
    parser.add_argument(
        "--vocab_size",
        type=int,
        required=True,
        metavar="N",
        help="number of tokens, including special tokens; BERT has 30522",
    )
    add_output(parser, "DIR", "directory to create")
    add_flag(
        parser,
        "--cased",
        "keep capitals and accents (default: lowercase the text; wordpiece and bpe also strip accents)",
    )
    parser.add_argument(
        "--normalization",
        choices=["bert", "identity", "nfc", "nfkc", "nmt_nfkc"],
        help="normalization of the text in addition to --cased: bert is BERT's cleaning (only for wordpiece and bpe); "
        "identity changes nothing; nfc and nfkc are Unicode forms; nmt_nfkc is SentencePiece's NFKC with "
        "removal of control characters (default: bert for wordpiece and bpe, identity for byte_level, nmt_nfkc "
        "for the kinds of SentencePiece, which have no nfc)",
    )
    add_number(
        parser,
        "--sample_characters",
        "approximate number of characters to train on; a hash of each text determines the sample (default: all)",
    )
    parser.add_argument(
        "--smoothing",
        type=float,
        default=1.0,
        metavar="S",
        help="exponent on the number of characters of each --input: 1 keeps the proportions, 0.7 is multilingual "
        "BERT's value, 0 gives all inputs equal weights (default: 1)",
    )
    parser.add_argument(
        "--weights",
        nargs="+",
        type=float,
        metavar="W",
        help="sampling weight of each --input, instead of --smoothing",
    )


def run_tokenizer(args: argparse.Namespace) -> None:
    """Train a vocabulary and save it."""
    from bert_jax.tokenizer.train import train_tokenizer

    with open_console() as console:
        report = train_tokenizer(
            args.input,
            args.vocab_size,
            args.output,
            kind=args.kind,
            lowercase=not args.cased,
            normalization=args.normalization,
            read_options=_make_read_options(args),
            sample_characters=args.sample_characters,
            smoothing=args.smoothing,
            weights=args.weights,
            progress=console.print_preparation_progress,
            say=console.say,
        )
    print_text(report)


TOKENIZER = Verb(
    summary="train a vocabulary on text",
    description=(
        "The vocabulary lists the pieces of text (tokens) that a model reads. A published tokenizer needs no "
        "training: `prepare --tokenizer` takes a directory with tokenizer.json, vocab.txt, vocab.json and "
        "merges.txt, spiece.model or spm.model."
    ),
    example="--input 'books/*.txt' --kind wordpiece --vocab_size 30522 --output tok/",
    add_options=_add_tokenizer_options,
    run=run_tokenizer,
    bare_words=("input",),
    other_options=dict.fromkeys(
        ("--lowercase", "--lower", "--uncased", "--do_lower_case"), "text is lowercased unless --cased is given"
    ),
    memory_advice="lower --sample_characters",
)


def _add_evaluation_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--evaluation_files",
        nargs="+",
        metavar="GLOB",
        help="evaluation files for the rule `contamination`, which removes documents that contain their texts; "
        "replaces the evaluation files that the recipe names",
    )


def _add_clean_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs="+", action="append", required=True, metavar="GLOB", help=INPUT_HELP)
    _add_reading_options(parser)
    add_output(parser, "PLACE", ".jsonl file to create, or directory of .jsonl files to create")
    parser.add_argument(
        "--recipe",
        default="web",
        metavar="RECIPE",
        help="TOML file of rules, or the word web: the recipe that comes with bert-jax (default: web)",
    )
    _add_evaluation_files(parser)
    _add_document_options(parser)
    parser.add_argument(
        "--keep_removed",
        type=parse_local_path,
        metavar="FILE",
        help="JSON lines file for the documents that are removed",
    )
    add_flag(parser, "--json", "print the counts as one JSON object")


def run_clean(args: argparse.Namespace) -> None:
    """Write the documents that a recipe keeps."""
    from bert_jax.corpus.build.clean import clean_texts, format_cleaning_result

    with open_console() as console:
        account = clean_texts(
            [item for group in args.input for item in group],
            args.recipe,
            args.output,
            _make_read_options(args),
            evaluation_files=args.evaluation_files,
            keep_removed=args.keep_removed,
            max_rejected_fraction=args.max_rejected_fraction,
            workers=args.workers,
            progress=console.print_preparation_progress,
            say=console.say,
        )
    print_json(account) if args.json else print_text(format_cleaning_result(account, args.output))


CLEAN = Verb(
    summary="remove bad documents from text and repair others",
    description=(
        "The rules of a recipe, such as the rules of Gopher, C4 and FineWeb, change documents or remove them. "
        "The result is written as JSON lines. Every removal and change is counted by rule. `prepare --clean "
        "RECIPE` cleans documents before it encodes them. docs/cleaning.md describes the rules."
    ),
    example="--input 'pages/*.jsonl.gz' --recipe web --output cleaned.jsonl --keep_removed removed.jsonl",
    add_options=_add_clean_options,
    run=run_clean,
    bare_words=("input",),
    memory_advice="lower --workers",
)


def _add_prepare_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs="+", action="append", required=True, metavar="GLOB", help=INPUT_HELP)
    _add_reading_options(parser)
    parser.add_argument(
        "--tokenizer",
        metavar="DIR",
        help="directory of a tokenizer, made by `tokenizer` or published, or OWNER/NAME of the Hugging Face Hub; "
        "required without --append",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="directory to create (with --runner beam also a URL); with --append, the corpus to extend",
    )
    add_flag(
        parser,
        "--append",
        "add the documents to the corpus --output, with the tokenizer, --language, --segmenter, --heldout_fraction, "
        "--deduplicate and --clean of this corpus; duplicates of documents in the corpus are left out; existing files "
        "of the corpus do not change",
    )
    _add_document_options(parser)
    parser.add_argument(
        "--heldout_fraction",
        type=float,
        metavar="FRACTION",
        help="fraction of the documents that are kept for evaluation and never trained on, from 0 to below 1 "
        "(default: 0.02)",
    )
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="language whose rules split sentences, such as en or de (prefer the two-letter code); none: every line "
        "is a sentence and stays unchanged, for example in code (default: en)",
    )
    parser.add_argument(
        "--segmenter",
        metavar="NAME",
        help="package that finds the words of a script without spaces, for whole-word masking: jieba (zh), fugashi "
        "(ja), pythainlp (th, also sentences), khmercut (km), laonlp (lo) or icu (my); pip install '.[words]' "
        "(default: none, so that the vocabulary determines where words begin)",
    )
    parser.add_argument(
        "--deduplicate",
        choices=["none", "split", "exact", "near"],
        help="treatment of copies: split removes no document, and puts similar documents into one split; "
        "exact removes documents that differ from an earlier document only in white space, case, width and "
        "punctuation; near also removes documents whose set of five-word sequences has a Jaccard similarity of "
        "0.8 or more with an earlier document, and puts similar documents into one split; none compares no documents, "
        "which is faster (default: split)",
    )
    parser.add_argument(
        "--clean",
        metavar="RECIPE",
        help="TOML file of rules that change or remove documents before they are encoded, or the word web: the "
        "recipe that comes with bert-jax (default: none)",
    )
    _add_evaluation_files(parser)
    parser.add_argument(
        "--keep_removed",
        type=parse_local_path,
        metavar="FILE",
        help="JSON lines file for the documents that --clean and --deduplicate remove",
    )
    parser.add_argument(
        "--runner",
        choices=["local", "beam"],
        default="local",
        help="program that does the work: local on this machine, or an Apache Beam pipeline with --beam_options "
        "(default: local)",
    )
    parser.add_argument(
        "--beam_options",
        default="",
        metavar="OPTIONS",
        help="options of Beam, in quotes after an equals sign: --beam_options='--runner=DataflowRunner --region=...'",
    )


def run_prepare(args: argparse.Namespace) -> None:
    """Turn documents into a corpus."""
    from bert_jax.corpus.build.plan import PrepareOptions
    from bert_jax.corpus.build.prepare import format_summary, prepare

    options: PrepareOptions = {
        "heldout_fraction": args.heldout_fraction,
        "language": args.language,
        "segmenter": args.segmenter,
        "deduplicate": args.deduplicate,
        "max_rejected_fraction": args.max_rejected_fraction,
    }
    if args.runner == "beam":
        manifest = _prepare_with_beam(args, options)
    else:
        if "://" in args.output:  # it would become a directory such as `gs:`
            raise UserError(f"--output {args.output}: only --runner beam writes to a URL; give a directory")
        if args.beam_options:
            raise UserError("--beam_options: only with --runner beam")
        with open_console() as console:
            manifest = prepare(
                [item for group in args.input for item in group],
                args.tokenizer,
                args.output,
                _make_read_options(args),
                clean=args.clean,
                evaluation_files=args.evaluation_files,
                append=args.append,
                keep_removed=args.keep_removed,
                workers=args.workers,
                progress=console.print_preparation_progress,
                say=console.say,
                **options,
            )
    for warning in manifest["warnings"]:
        print(escaped(f"warning: {warning}"), file=sys.stderr)
    print_text(format_summary(manifest, args.output))


def _prepare_with_beam(args: argparse.Namespace, options: Any) -> dict[str, Any]:
    """Return the manifest of the corpus that a Beam pipeline makes."""
    if args.append:
        raise UserError("--append: only with --runner local")
    if args.workers is not None:
        raise UserError("--workers: only with --runner local; options of Beam set its workers (--beam_options)")
    if args.tokenizer is None:
        raise UserError("no tokenizer: give --tokenizer DIR, made by `bert-jax tokenizer`")
    from bert_jax.corpus.beam.prepare import prepare_with_beam

    return prepare_with_beam(
        [item for group in args.input for item in group],
        args.tokenizer,
        args.output,
        _make_read_options(args),
        clean=args.clean,
        evaluation_files=args.evaluation_files,
        keep_removed=args.keep_removed,
        beam_options=shlex.split(args.beam_options),
        **options,
    )


PREPARE = Verb(
    summary="turn text into a corpus that training reads",
    description=(
        "The text is split into documents and sentences and encoded with the tokenizer. A fraction of the "
        "documents is held out for evaluation. Every document is either stored, or counted with the reason for "
        "its rejection. Prepare each language or source separately, since `pretrain` can mix several corpora. "
        "docs/data.md is the guide."
    ),
    example="--input 'books/*.txt' --tokenizer tok/ --output corpus/",
    add_options=_add_prepare_options,
    run=run_prepare,
    bare_words=("input",),
    memory_advice="lower --workers, or give fewer files at a time",
)


def _add_inspect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "corpus",
        metavar="CORPUS",
        help="directory made by `prepare`; several directories, separated by commas, or a quoted pattern are mixed",
    )
    add_number(
        parser,
        "--sequence",
        "number of the sequence to show; with --html, number of the first sequence (default: the statistics and "
        "the first sequences)",
    )
    parser.add_argument(
        "--config", metavar="RECIPE", help="recipe of the sequences to show (default: BERT's sequences of 128 tokens)"
    )
    form = parser.add_mutually_exclusive_group()
    add_flag(form, "--json", "print the statistics as one JSON object")
    form.add_argument(
        "--html",
        type=parse_local_path,
        metavar="FILE",
        help=".html file to create instead of printing: statistics, and 100 sequences token by token, with filters "
        "by source, language and warning",
    )
    form.add_argument(
        "--against",
        metavar="CORPUS",
        help="another corpus to compare with: print the number of documents of CORPUS that are exact or near "
        "duplicates of documents of the other corpus",
    )


def run_inspect(args: argparse.Namespace) -> None:
    """Print figures and sequences of a corpus, write a page with them, or compare the corpus with another corpus."""
    if args.against is not None:
        if args.config or args.overrides or args.sequence is not None:
            raise UserError("--against compares documents: leave out --config, --sequence and the fields of a config")
        if re.search(r"[,*?\[]", args.corpus) and not os.path.exists(args.corpus):
            raise UserError(f"{args.corpus}: --against compares two corpora; give a single directory")
        from bert_jax.corpus.build.append import compare_corpora, format_comparison

        print_text(format_comparison(compare_corpora(args.corpus, args.against), args.corpus, args.against))
        return
    from bert_jax.reports.corpus.inspect import inspect_corpus, open_inspection

    with open_console() as console:
        inspection = open_inspection(args.corpus, args.config, args.overrides, args.sequence, console)
        inspect_corpus(inspection, args.json, args.html)


INSPECT = Verb(
    summary="show a corpus and training sequences made from it",
    description=(
        "Prints statistics, warns of likely problems, and shows sequences as text. Masks, pairs and packed "
        "examples have colors on a terminal, and marks in other outputs. Every field that shapes sequences can be "
        "overridden, as in --config.data.masking=span."
    ),
    example="corpus/",
    add_options=_add_inspect_options,
    run=run_inspect,
    config_kinds=("pretrain",),
    positional_hint="; give several corpora as one word: a pattern in quotes, or names separated by commas",
)
