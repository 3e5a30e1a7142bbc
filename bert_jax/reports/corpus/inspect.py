"""`bert-jax inspect`: a corpus before training, as text, JSON or a page."""

import json
import os
import shutil
import sys
from collections.abc import Sequence

import numpy as np

from bert_jax.batches.masking import changing_mask_rate, data_config_of_phase
from bert_jax.batches.pipeline import Sequences, make_sequences, symbols_of
from bert_jax.config import PretrainConfig, check_choices, read_config, refuse_fields_without_effect
from bert_jax.console import Console
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.reports.corpus.checks import corpus_warnings
from bert_jax.reports.corpus.examples import sequence_examples
from bert_jax.reports.corpus.figures import CorpusFigures, corpus_figures, figures_json
from bert_jax.reports.corpus.inspect_text import figures_lines, sequences_lines, warning_lines
from bert_jax.reports.corpus.page import inspect_page
from bert_jax.reports.html.markup import write_page

NUM_SHOWN = 3
MAX_NUMBER = (1 << 62) - 1
MIN_WIDTH, MAX_WIDTH = 40, 120  # columns: longer lines are hard to read


def inspect_corpus(
    corpus: str,
    recipe: str | None,
    overrides: Sequence[str],
    sequence_number: int | None,
    as_json: bool,
    console: Console,
    html: str | None = None,
) -> None:
    """Print figures, warnings and the first sequences of a corpus or mixture, or a single sequence.

    With `html`, write a page to that .html file instead, and print the name of the file.

    Args:
        corpus: directories of corpora; they replace `config.data.corpus`.
        recipe: name or file of a recipe, whose first phase determines the sequences; None: the defaults.
        overrides: overrides of the recipe's fields.
        sequence_number: number of the only sequence to print, from 0; numbering continues over epochs.
        as_json: print one JSON object with all figures and the chosen sequence or the first sequences.
        console: console that prints progress for a large corpus.
        html: .html file for a page with all figures and the sequences that begin at `sequence_number`.

    Raises:
        UserError: `sequence_number` is out of range, or an error of the functions that are called.
    """
    config = read_config(PretrainConfig, recipe, overrides)
    data, phase, train = config.data, config.train.phases[0], config.train
    check_choices(data, "config.data")
    refuse_fields_without_effect(data, "config.data")
    if any(override.startswith("--config.data.corpus") for override in overrides):
        raise UserError(f"--config.data.corpus and {corpus} both name a corpus; leave out the option")
    if sequence_number is not None and not 0 <= sequence_number <= MAX_NUMBER:
        raise UserError(f"--sequence {sequence_number}: give a number from 0 to {MAX_NUMBER}")
    mixture = open_mixture(corpus)
    tokenizer, split = mixture.tokenizer(), mixture.split("train")
    # As `plan_phases`, whose module imports JAX.
    steps = train.steps if len(train.phases) == 1 else round(phase.fraction * train.steps)
    rate = changing_mask_rate(data, phase, 0, steps * (phase.batch_size or train.batch_size))
    sequences: Sequences | None = None
    no_sequences = ""
    try:
        # With two token types even for a model with one type: they mark the second text of a pair.
        masked = data_config_of_phase(data, phase)
        sequences = make_sequences(split, symbols_of(tokenizer), phase.seq_len, config.seed, masked, 2, rate)
    except UserError as error:
        if sequence_number is not None or np.diff(split.source_documents).min() > 1:
            raise
        no_sequences = str(error)  # a corpus of too few documents still has figures

    def count_figures() -> CorpusFigures:
        with console.working("counting"):
            return corpus_figures(mixture, tokenizer, sequences, no_sequences, phase.seq_len, data)

    if html is not None:
        print(write_page(html, lambda: inspect_page(count_figures(), tokenizer, sequences, sequence_number or 0)))
        return
    numbers = range(NUM_SHOWN) if sequence_number is None else [sequence_number]
    examples = {}
    if sequences:
        examples = {each: sequence_examples(sequences.batch(np.array([each])), 0, tokenizer) for each in numbers}
    if as_json:
        figures = count_figures()
        print(json.dumps(figures_json(figures, corpus_warnings(figures), examples)))
        return
    width = min(max(MIN_WIDTH, shutil.get_terminal_size().columns), MAX_WIDTH)
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines: list[str] = []
    if sequence_number is None:
        figures = count_figures()
        lines += figures_lines(figures, tokenizer, width, color)
        lines += warning_lines(corpus_warnings(figures), width, color)
    if sequences:
        lines += sequences_lines(examples, sequences.num_per_epoch, phase.seq_len, data.sentence_pairs, width, color)
    encoding = sys.stdout.encoding or "utf-8"
    print("\n".join(lines).encode(encoding, "replace").decode(encoding))  # a terminal may lack some scripts
