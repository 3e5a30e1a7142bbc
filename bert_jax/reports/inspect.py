"""A corpus looked at before it is trained on: figures, warnings, and rows as text."""

import json
import os
import shutil
import sys
from collections.abc import Sequence

import numpy as np

from bert_jax.config import DataConfig, PretrainConfig, check_choices, read_config
from bert_jax.data.corpus import Corpus
from bert_jax.data.mixture import Mixture, open_mixture
from bert_jax.data.sequences.pipeline import Rows, make_rows, symbols_of
from bert_jax.data.statistics import distribution, document_sizes, duplicates, row_figures, token_figures
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import UserError
from bert_jax.reports import inspect_text
from bert_jax.reports.corpus_checks import Report, Source, warnings
from bert_jax.reports.sequences_text import Example, examples_of_row

FIRST_ROWS = 3
LAST_ROW = 1 << 62
WIDTHS = 40, 120  # columns, at least and at most: longer lines are hard to read


def inspect(corpus: str, config_file: str | None, overrides: Sequence[str], row: int | None, as_json: bool) -> None:
    """Prints figures, warnings and the first rows of a corpus or a mixture; with `row`, that row alone.

    Args:
        corpus: as `config.data.corpus`, which it takes the place of.
        config_file: a recipe, whose rows of its first phase are shown; None: of the defaults.
        overrides: of it.
        row: number of a row, from 0; after the last of an epoch follow those of the next.
        as_json: print all of it, with this row or the first ones, as one object.

    Raises:
        UserError: as `read_config`, `open_mixture` and `make_rows`; a row below 0 or beyond any run.
    """
    config = read_config(PretrainConfig, config_file, overrides)
    check_choices(config.data, "config.data")
    if any(override.startswith("--config.data.corpus") for override in overrides):
        raise UserError(f"--config.data.corpus: which corpus is meant, that or {corpus}? Leave the option out")
    if row is not None and not 0 <= row < LAST_ROW:
        raise UserError(f"--row {row}: rows are numbered from 0 to {LAST_ROW - 1}; they go on over all epochs")
    mixture = open_mixture(corpus)
    tokenizer = mixture.tokenizer()
    length = config.train.phases[0].seq_len
    rows, no_rows = _rows(mixture, tokenizer, length, config.seed, config.data, row is not None)
    report = None
    if row is None or as_json:
        report = examine(mixture, tokenizer, rows, no_rows, config.data)
    numbers = range(FIRST_ROWS) if row is None else [row]
    shown = {number: _examples(rows, number, tokenizer) for number in numbers} if rows else {}
    if as_json:
        assert report
        values = inspect_text.as_json(report, tokenizer, warnings(report), shown)
        print(json.dumps(values))
        return
    width = min(max(WIDTHS[0], shutil.get_terminal_size().columns), WIDTHS[1])
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines: list[str] = []
    if report:
        lines += inspect_text.report_lines(report, tokenizer, width, colour)
        lines += inspect_text.warning_lines(warnings(report), width, colour)
    if rows:
        lines += inspect_text.rows_lines(shown, rows.per_epoch, length, config.data.sentence_pairs, width, colour)
    encoding = sys.stdout.encoding or "utf-8"
    print("\n".join(lines).encode(encoding, "replace").decode(encoding))  # not every terminal knows every script


def examine(mixture: Mixture, tokenizer: Tokenizer, rows: Rows | None, no_rows: str, data: DataConfig) -> Report:
    """All figures of a mixture, and of its rows where there are any."""
    train, heldout = mixture.split("train"), mixture.split("heldout")
    tokens, sentences = document_sizes(train)
    counts = token_figures(train, tokenizer)
    special = {getattr(tokenizer, f"{role}_id") for role in tokenizer.special._fields}
    ordinary = np.delete(counts.counts, sorted(special))
    return Report(
        sources=tuple(_sources(mixture, rows)),
        tokenizer=dict(mixture.corpora[0].manifest["tokenizer"]),
        documents=distribution(tokens),
        sentences_a_document=distribution(sentences),
        one_sentence=float((sentences == 1).mean()),
        tokens=counts,
        unused=int((ordinary == 0).sum()),
        duplicates=duplicates(train, heldout),
        rows=rows and row_figures(rows, tokenizer.mask_id),
        no_rows=no_rows,
        data=data,
    )


def _sources(mixture: Mixture, rows: Rows | None) -> list[Source]:
    tokens = np.array([corpus.split("train").num_tokens for corpus in mixture.corpora])
    shares = rows.per_source / rows.per_source.sum() if rows else None
    names = [str(corpus.directory) for corpus in mixture.corpora]
    above = os.path.commonpath([os.path.dirname(name) for name in names])
    return [
        Source(
            name=os.path.relpath(name, above),
            train=_sizes(corpus, "train"),
            heldout=_sizes(corpus, "heldout"),
            prepared={key: corpus.manifest["documents"][key] for key in ("in", "stored")}
            | {"sentences_split": corpus.manifest["sentences_split"]}
            | {"language": corpus.manifest["settings"]["language"]},
            rejected=corpus.manifest["documents"]["rejected"],
            tokens_share=float(own / tokens.sum()),
            rows_share=None if shares is None else float(shares[number]),
        )
        for number, (name, corpus, own) in enumerate(zip(names, mixture.corpora, tokens, strict=True))
    ]


def _sizes(corpus: Corpus, name: str) -> dict[str, int]:
    split = corpus.split(name)
    return {"documents": split.num_documents, "sentences": split.num_sentences, "tokens": split.num_tokens}


def _rows(
    mixture: Mixture, tokenizer: Tokenizer, length: int, seed: int, data: DataConfig, needed: bool
) -> tuple[Rows | None, str]:
    """The rows, or why there are none: the figures of a corpus of too few documents are worth a look all the same."""
    split = mixture.split("train")
    try:
        # Two token types even for a model that has one: the second texts of pairs are told by them.
        return make_rows(split, symbols_of(tokenizer), length, seed, data, num_token_types=2), ""
    except UserError as error:
        if needed or np.diff(split.source_documents).min() > 1:
            raise
        return None, str(error)


def _examples(rows: Rows, number: int, tokenizer: Tokenizer) -> tuple[Example, ...]:
    return examples_of_row(rows.batch(np.array([number])), 0, tokenizer)
