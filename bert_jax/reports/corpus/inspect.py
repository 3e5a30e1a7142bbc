"""A corpus before training: figures, warnings, and sequences as text."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.batches.masking import MAX_WORD_TOKENS, changing_rate, phase_masking
from bert_jax.batches.pipeline import Sequences, make_sequences, symbols_of
from bert_jax.batches.statistics import coverage, sequence_figures
from bert_jax.config import DataConfig, PretrainConfig, check_choices, read_config
from bert_jax.console import Console
from bert_jax.corpus.copies import find_duplicates, find_leaks
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.corpus.statistics import distribution, document_sizes, token_figures
from bert_jax.corpus.store import Corpus
from bert_jax.errors import UserError
from bert_jax.reports.corpus import inspect_text
from bert_jax.reports.corpus.checks import Report, Source, warnings
from bert_jax.reports.corpus.page import inspect_page
from bert_jax.reports.corpus.sequences_text import Example, examples_of
from bert_jax.reports.html.markup import write_page

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

NUM_SHOWN = 3
MAX_NUMBER = (1 << 62) - 1
CHARACTERS = ("unknown_character_fraction", "changed_character_fractions", "counts")  # the first manifests lack some
WIDTHS = 40, 120  # minimum and maximum columns: longer lines are hard to read


def inspect_corpus(
    corpus: str,
    recipe: str | None,
    overrides: Sequence[str],
    number: int | None,
    as_json: bool,
    console: Console,
    html: str | None = None,
) -> None:
    """Print figures, warnings and the first sequences of a corpus or mixture; with `number`, that sequence alone.

    With `html`, write them to that .html file instead, and print its name.

    Args:
        corpus: as `config.data.corpus`, which it replaces.
        recipe: name or file of a recipe; the sequences are those of its first phase. None: the defaults.
        overrides: of the recipe.
        number: of a sequence, from 0; the numbers continue from one epoch to the next.
        as_json: print one JSON object with all figures, and with that sequence or the first ones.
        console: for the time that the figures of a large corpus take.
        html: .html file for a page with all figures, and sequences from that number on.

    Raises:
        UserError: as `read_config`, `open_mixture`, `make_sequences` and `write_page`; `number` is out of range.
    """
    config = read_config(PretrainConfig, recipe, overrides)
    check_choices(config.data, "config.data")
    if any(override.startswith("--config.data.corpus") for override in overrides):
        raise UserError(f"--config.data.corpus and {corpus} both name a corpus; leave out the option")
    if number is not None and not 0 <= number <= MAX_NUMBER:
        raise UserError(f"--sequence {number}: give a number from 0 to {MAX_NUMBER}")
    mixture = open_mixture(corpus)
    tokenizer = mixture.tokenizer()
    seq_len = config.train.phases[0].seq_len
    sequences, no_sequences = _make_sequences(mixture, tokenizer, seq_len, config, number is not None)

    def figures() -> Report:
        with console.working("counting"):
            return make_report(mixture, tokenizer, sequences, no_sequences, seq_len, config.data)

    if html is not None:
        print(write_page(html, lambda: inspect_page(figures(), tokenizer, sequences, number or 0)))
        return
    report = figures() if number is None or as_json else None
    numbers = range(NUM_SHOWN) if number is None else [number]
    shown = {each: _examples(sequences, each, tokenizer) for each in numbers} if sequences else {}
    if as_json:
        assert report
        print(json.dumps(inspect_text.as_json(report, tokenizer, warnings(report), shown)))
        return
    width = min(max(WIDTHS[0], shutil.get_terminal_size().columns), WIDTHS[1])
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines: list[str] = []
    if report:
        lines += inspect_text.report_lines(report, tokenizer, width, color)
        lines += inspect_text.warning_lines(warnings(report), width, color)
    if sequences:
        epoch, pairs = sequences.num_per_epoch, config.data.sentence_pairs
        lines += inspect_text.sequences_lines(shown, epoch, seq_len, pairs, width, color)
    encoding = sys.stdout.encoding or "utf-8"
    print("\n".join(lines).encode(encoding, "replace").decode(encoding))  # a terminal may lack some scripts


def make_report(
    mixture: Mixture,
    tokenizer: "Tokenizer",
    sequences: Sequences | None,
    no_sequences: str,
    seq_len: int,
    data: DataConfig,
) -> Report:
    """Return all figures of a mixture, and of its sequences where there are any."""
    train, heldout = mixture.split("train"), mixture.split("heldout")
    tokens, sentences = document_sizes(train)
    figures = token_figures(train, tokenizer, MAX_WORD_TOKENS)
    special = {getattr(tokenizer, f"{role}_id") for role in tokenizer.special._fields}
    ordinary = np.delete(figures.counts, sorted(special))
    return Report(
        sources=tuple(_sources(mixture, sequences, tokenizer)),
        tokenizer=dict(mixture.corpora[0].manifest["tokenizer"]),
        documents=distribution(tokens),
        sentences_per_document=distribution(sentences),
        one_sentence=float((sentences == 1).mean()),
        tokens=figures,
        unused=int((ordinary == 0).sum()),
        duplicates=find_duplicates(train, heldout),
        leaks=find_leaks(train, heldout),
        sequences=sequence_figures(sequences, tokenizer.mask_id) if sequences else None,
        no_sequences=no_sequences,
        coverage=coverage(train, tokenizer.separators, seq_len, data) if sequences else None,
        data=data,
    )


def _sources(mixture: Mixture, sequences: Sequences | None, tokenizer: "Tokenizer") -> list[Source]:
    from bert_jax.tokenizer.changes import changes_warning, unexpected_changes

    tokens = np.array([corpus.split("train").num_tokens for corpus in mixture.corpora])
    changes = [corpus.manifest.get("changed_character_fractions", {}) for corpus in mixture.corpora]
    fractions = sequences.num_per_source / sequences.num_per_source.sum() if sequences else None
    epochs = sequences.num_per_source / np.maximum(1, sequences.num_items) if sequences else None
    names = [str(corpus.directory) for corpus in mixture.corpora]
    parent = os.path.commonpath([os.path.dirname(name) for name in names])
    return [
        Source(
            name=os.path.relpath(name, parent),
            train=_sizes(corpus, "train"),
            heldout=_sizes(corpus, "heldout"),
            prepared={key: corpus.manifest["documents"][key] for key in ("in", "stored")}
            | {"sentences_split": corpus.manifest["sentences_split"]}
            | {"language": corpus.manifest["settings"]["language"]}
            | {key: corpus.manifest[key] for key in CHARACTERS if key in corpus.manifest}
            | {"segmenter": corpus.manifest["settings"].get("segmenter", "none")},
            rejected=corpus.manifest["documents"]["rejected"],
            tokens_fraction=float(own / tokens.sum()),
            sequences_fraction=None if fractions is None else float(fractions[number]),
            epochs=None if epochs is None else float(epochs[number]),
            changes=changes_warning(unexpected_changes(tokenizer, changes[number])),
        )
        for number, (name, corpus, own) in enumerate(zip(names, mixture.corpora, tokens, strict=True))
    ]


def _sizes(corpus: Corpus, name: str) -> dict[str, int]:
    split = corpus.split(name)
    return {"documents": split.num_documents, "sentences": split.num_sentences, "tokens": split.num_tokens}


def _make_sequences(
    mixture: Mixture, tokenizer: "Tokenizer", seq_len: int, config: PretrainConfig, required: bool
) -> tuple[Sequences | None, str]:
    """The sequences of the first phase, or why there are none: a corpus of too few documents still has figures."""
    split, train, phase = mixture.split("train"), config.train, config.train.phases[0]
    # As `plan_phases`, which is in a room that imports JAX.
    steps = train.steps if len(train.phases) == 1 else round(phase.fraction * train.steps)
    rate = changing_rate(config.data, phase, 0, steps * (phase.batch_size or train.batch_size))
    data = phase_masking(config.data, phase)
    try:
        # With two token types even for a model that has one: they show where the second text of a pair begins.
        return make_sequences(split, symbols_of(tokenizer), seq_len, config.seed, data, 2, rate), ""
    except UserError as error:
        if required or np.diff(split.source_documents).min() > 1:
            raise
        return None, str(error)


def _examples(sequences: Sequences, number: int, tokenizer: "Tokenizer") -> tuple[Example, ...]:
    return examples_of(sequences.batch(np.array([number])), 0, tokenizer)
