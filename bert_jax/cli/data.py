"""Verbs that make and show corpora: tokenizer, clean, prepare, inspect."""

import argparse
import json
import os
import shlex
import sys
from typing import Any

from bert_jax.cli.command import Command, local_path
from bert_jax.cli.outputs import open_console
from bert_jax.errors import UserError

INPUT_HELP = (
    "files, directories with all files of known formats below them, or quoted glob patterns, also of gs:// and s3://; "
    "plain, .gz, .xz, .bz2, .zst, or tar and zip archives; tfds:NAME, a data set of TFDS; or the word python-docs: the "
    "documentation strings of this Python installation"
)


FORMATS = (
    "auto", "text", "markdown", "rst", "html", "epub", "pdf", "jsonl", "csv", "tsv", "parquet", "arrow", "tfrecord",
    "wikiextractor", "mediawiki",
)  # fmt: skip


MARKUPS = ("none", "html", "markdown", "rst")


def _add_documents(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documents",
        choices=["auto", "file", "blank-line", "line"],
        default="auto",
        help="unit that becomes one document of text or Markdown: a file, a paragraph between blank lines, or a line "
        "(default: auto, a file; in other formats a record is always a document)",
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), metavar="N", help="number of processes (default: all cores)"
    )
    parser.add_argument(
        "--max_rejected_fraction",
        type=float,
        default=0.1,
        metavar="FRACTION",
        help="fraction of the documents that may be rejected as broken or unreadable; more are an error (default: 0.1)",
    )


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=FORMATS, default="auto", help="format of the files (default: auto, by their suffix)"
    )
    parser.add_argument(
        "--field",
        default="text",
        metavar="NAME",
        help="field with the text in JSON, CSV, Parquet, Arrow and TFDS, or the number of a column; in JSON also a "
        "path, data[].paragraphs[].context; or a template, '{title}\\n\\n{text}' (default: text)",
    )
    parser.add_argument(
        "--markup",
        choices=MARKUPS,
        default="none",
        help="markup of the text of a field, converted to plain text (default: none)",
    )
    parser.add_argument(
        "--members",
        default="*",
        metavar="PATTERN",
        help="which members of archives are read, such as '*.txt' of a WebDataset (default: all)",
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
    parser.add_argument(
        "--max_unpacked_bytes",
        type=int,
        default=1 << 30,
        metavar="N",
        help="largest unpacked size of a compressed input; one that unpacks to more, and to more than 100 times "
        "its size, ends the work (default: 1 GiB)",
    )


def _read_options(args: argparse.Namespace) -> Any:
    """The `ReadOptions` of a verb that reads texts."""
    from bert_jax.readers import ReadOptions

    return ReadOptions(**{name: getattr(args, name) for name in ReadOptions._fields if hasattr(args, name)})


def _tokenizer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        nargs="+",
        action="append",
        required=True,
        metavar="GLOB",
        help=f"{INPUT_HELP}; repeat the option for each language",
    )
    _add_reading(parser)
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
        help="number of tokens, special tokens included; BERT has 30522",
    )
    parser.add_argument("--output", required=True, type=local_path, metavar="DIR", help="directory to create")
    parser.add_argument(
        "--cased",
        action="store_true",
        help="keep capitals and accents (default: lowercase the text; wordpiece and bpe also strip accents)",
    )
    parser.add_argument(
        "--normalization",
        choices=["bert", "identity", "nfc", "nfkc", "nmt_nfkc"],
        help="change of the text beside --cased: bert, BERT's cleaning, for wordpiece and bpe alone; identity, none; "
        "nfc or nfkc, a Unicode form; nmt_nfkc, SentencePiece's NFKC with clean-up (default: bert for wordpiece and "
        "bpe, identity for byte_level, nmt_nfkc for the others, which have no nfc)",
    )
    parser.add_argument(
        "--sample_characters",
        type=int,
        metavar="N",
        help="approximate number of characters to train on, drawn by a hash of the text (default: all)",
    )
    parser.add_argument(
        "--smoothing",
        type=float,
        default=1.0,
        metavar="S",
        help="exponent of the number of characters of each --input: 1 as they are, 0.7 as multilingual BERT, 0 all "
        "equal (default: 1)",
    )
    parser.add_argument(
        "--weights",
        nargs="+",
        type=float,
        metavar="W",
        help="sampling weight of each --input, instead of --smoothing",
    )


TOKENIZER = Command(
    "train a vocabulary on text",
    "The vocabulary lists the tokens that a model reads instead of letters. To use a published tokenizer, skip this "
    "verb: `prepare` takes a directory with tokenizer.json, vocab.txt, vocab.json and merges.txt, spiece.model or "
    "spm.model.",
    "--input 'books/*.txt' --kind wordpiece --vocab_size 30522 --output tok/",
    _tokenizer,
)


def tokenizer(args: argparse.Namespace) -> None:
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
            read_options=_read_options(args),
            sample_characters=args.sample_characters,
            smoothing=args.smoothing,
            weights=args.weights,
            progress=console.preparation,
            say=console.say,
        )
    print(report)


def _clean(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs="+", action="append", required=True, metavar="GLOB", help=INPUT_HELP)
    _add_reading(parser)
    parser.add_argument(
        "--output",
        required=True,
        type=local_path,
        metavar="PLACE",
        help="file to create, with the suffix .jsonl, or directory of such",
    )
    parser.add_argument(
        "--recipe",
        default="web",
        metavar="RECIPE",
        help="TOML file of rules, or web, which comes with bert-jax (default: web)",
    )
    _add_documents(parser)
    parser.add_argument(
        "--keep_removed", type=local_path, metavar="FILE", help="JSON lines file for the documents that are removed"
    )
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")


CLEAN = Command(
    "remove bad documents from text and repair others",
    "The rules of a recipe, such as those of Gopher, C4 and FineWeb, change documents or remove them. What is left is "
    "written as JSON lines, and every removal and change is counted by rule. `prepare --clean RECIPE` does the same "
    "before it encodes. docs/cleaning.md has the rules.",
    "--input 'pages/*.jsonl.gz' --recipe web --output cleaned.jsonl --keep_removed removed.jsonl",
    _clean,
)


def clean(args: argparse.Namespace) -> None:
    """Write the documents that a recipe keeps."""
    from bert_jax.corpus.build.clean import clean_texts, format_account

    with open_console() as console:
        account = clean_texts(
            [item for group in args.input for item in group],
            args.recipe,
            args.output,
            _read_options(args),
            args.workers,
            console.preparation,
            console.say,
            args.keep_removed,
            args.max_rejected_fraction,
        )
    print(json.dumps(account, ensure_ascii=False) if args.json else format_account(account, args.output))


def _prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", nargs="+", action="append", required=True, metavar="GLOB", help=INPUT_HELP)
    _add_reading(parser)
    parser.add_argument(
        "--tokenizer",
        metavar="DIR",
        help="directory made by `tokenizer`, or of a published tokenizer; needed without --append",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="directory to create; with --runner beam also a URL; with --append the corpus that grows",
    )
    parser.add_argument(
        "--append",
        action="store_true",
        help="add the documents to the corpus --output, with its tokenizer, --language, --segmenter, "
        "--heldout_fraction, --deduplicate and --clean; duplicates of its documents are left out, its files stay as "
        "they are",
    )
    _add_documents(parser)
    parser.add_argument(
        "--heldout_fraction",
        type=float,
        metavar="FRACTION",
        help="fraction of the documents kept for evaluation and never trained on, from 0 to below 1 (default: 0.02)",
    )
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="language, such as en or de (two letters where there are two), whose rules split sentences; none: every "
        "line is one sentence, kept as it is, as in code (default: en)",
    )
    parser.add_argument(
        "--segmenter",
        metavar="NAME",
        help="package that finds the words of a script without spaces, for whole-word masking: jieba (zh), "
        "fugashi (ja), pythainlp (th, also sentences), khmercut (km), laonlp (lo) or icu (my); pip install '.[words]' "
        "(default: none, words begin as the vocabulary marks them)",
    )
    parser.add_argument(
        "--deduplicate",
        choices=["none", "exact", "near"],
        help="documents to remove: exact, those that differ from an earlier one in white space, case, width and "
        "punctuation alone; near, also those whose sets of five consecutive words have a Jaccard similarity of 0.8 or "
        "more with an earlier document (default: none)",
    )
    parser.add_argument(
        "--clean",
        metavar="RECIPE",
        help="TOML file of rules that change or remove documents first, or web, which comes with bert-jax (default: "
        "none)",
    )
    parser.add_argument(
        "--keep_removed",
        type=local_path,
        metavar="FILE",
        help="JSON lines file for the documents that --clean and --deduplicate remove",
    )
    parser.add_argument(
        "--runner",
        choices=["local", "beam"],
        default="local",
        help="where the work runs: on this machine, or on Apache Beam with --beam_options (default: local)",
    )
    parser.add_argument(
        "--beam_options",
        default="",
        metavar="OPTIONS",
        help="options of Beam in quotes, after an equals sign: --beam_options='--runner=DataflowRunner --region=...'",
    )


PREPARE = Command(
    "turn text into a corpus that training reads",
    "The text is split into documents and sentences and encoded with the tokenizer. A fraction of the documents is "
    "held out for evaluation. Every document is either stored, or counted with the reason for its rejection. Prepare "
    "each language or source on its own: `pretrain` mixes several corpora. docs/data.md is the guide.",
    "--input 'books/*.txt' --tokenizer tok/ --output corpus/",
    _prepare,
)


def prepare(args: argparse.Namespace) -> None:
    """Turn documents into a corpus."""
    from bert_jax.corpus.build.prepare import format_summary
    from bert_jax.corpus.build.prepare import prepare as run

    inputs = [item for group in args.input for item in group]
    read_options = _read_options(args)
    if args.runner == "local" and "://" in args.output:  # of which a directory such as `gs:` would be made
        raise UserError(f"--output {args.output}: a URL, which --runner beam alone writes to; give a directory")
    if args.runner == "beam":
        if args.append:
            raise UserError("--append: only with --runner local")
        if args.tokenizer is None:
            raise UserError("no tokenizer: give --tokenizer DIR, made by `bert-jax tokenizer`")
        from bert_jax.corpus.beam.prepare import prepare_with_beam

        options = shlex.split(args.beam_options)
        manifest = prepare_with_beam(
            inputs,
            args.tokenizer,
            args.output,
            read_options,
            *(0.02 if args.heldout_fraction is None else args.heldout_fraction, args.language or "en"),
            options,
            args.max_rejected_fraction,
            args.deduplicate or "none",
            args.clean,
            args.segmenter or "none",
            args.keep_removed,
        )
    else:
        if args.beam_options:
            raise UserError("--beam_options: only with --runner beam")
        with open_console() as console:
            manifest = run(
                inputs,
                args.tokenizer,
                args.output,
                read_options,
                args.workers,
                args.heldout_fraction,
                args.language,
                console.preparation,
                console.say,
                args.deduplicate,
                args.keep_removed,
                args.max_rejected_fraction,
                args.clean,
                args.append,
                args.segmenter,
            )
    for warning in manifest["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(format_summary(manifest, args.output))


def _inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "corpus",
        metavar="CORPUS",
        help="directory made by `prepare`; several, separated by commas, or a quoted pattern, are mixed",
    )
    parser.add_argument(
        "--sequence",
        type=int,
        metavar="N",
        help="number of the sequence to show; with --html, of the first one (default: the statistics and the first "
        "sequences)",
    )
    parser.add_argument(
        "--config", metavar="RECIPE", help="recipe whose sequences are shown (default: 128 tokens, as in BERT)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the statistics as one JSON object")
    form.add_argument(
        "--html",
        type=local_path,
        metavar="FILE",
        help=".html file to create instead: statistics, and 100 sequences token by token, filtered by source, language "
        "and warning",
    )
    form.add_argument(
        "--against",
        metavar="CORPUS",
        help="another corpus: print how many documents of CORPUS are exact or near duplicates of its documents",
    )


INSPECT = Command(
    "show a corpus and the sequences that are made of it",
    "Prints statistics, warns of likely problems, and shows sequences as text. Masks, pairs, and examples that share a "
    "sequence have colors on a terminal and marks elsewhere. Every field of config.data can be overridden, as in "
    "--config.data.masking=span.",
    "corpus/",
    _inspect,
    kinds=("pretrain",),
    stray="; give several corpora as one word: a pattern in quotes, or names separated by commas",
)


def inspect(args: argparse.Namespace) -> None:
    """Print a corpus and sequences of it, or write them as a page, or compare it with another corpus."""
    if args.against is not None:
        if args.config or args.overrides or args.sequence is not None:
            raise UserError("--against compares documents: leave out --config, --sequence and the fields of a config")
        from bert_jax.corpus.build.append import compare_corpora, format_comparison

        print(format_comparison(compare_corpora(args.corpus, args.against), args.corpus, args.against))
        return
    from bert_jax.reports.corpus.inspect import inspect_corpus as run

    with open_console() as console:
        run(args.corpus, args.config, args.overrides, args.sequence, args.json, console, args.html)
