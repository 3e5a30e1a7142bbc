"""The command `bert-jax inspect`, which shows a corpus before training as text, JSON or an HTML page."""

import dataclasses
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.batches.masking import changing_mask_rate, data_config_of_phase
from bert_jax.batches.pipeline import Sequences, make_sequences, special_ids_and_vocabulary
from bert_jax.batches.ramp import ramp_stages
from bert_jax.config import (
    DataConfig,
    PhaseConfig,
    PretrainConfig,
    RecipeName,
    check_choices,
    read_config,
    refuse_fields_without_effect,
    section_of_phase,
)
from bert_jax.config.checks import table_of_field
from bert_jax.console import Console
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.corpus.statistics import EVALUATED_FRACTION
from bert_jax.errors import UserError, escaped
from bert_jax.reports.corpus.checks import corpus_warnings
from bert_jax.reports.corpus.examples import SequenceExample, sequence_examples
from bert_jax.reports.corpus.figures import CorpusFigures, corpus_figures, figures_json
from bert_jax.reports.corpus.inspect_text import figures_lines, sequences_lines, warning_lines
from bert_jax.reports.corpus.page import inspect_page
from bert_jax.reports.html.markup import write_page
from bert_jax.strict_json import json_line

if TYPE_CHECKING:
    from bert_jax.tokenizer import Tokenizer

NUM_SHOWN = 3
MAX_NUMBER = (1 << 62) - 1
MIN_WIDTH, MAX_WIDTH = 40, 120  # columns of a line; longer lines are hard to read


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspection:
    """A corpus or mixture with its tokenizer, and the sequences that a recipe makes from it."""

    mixture: Mixture
    tokenizer: "Tokenizer"
    data: DataConfig
    seq_len: int  # sequence length of the first phase
    sequences: Sequences | None
    no_sequences: str  # the reason if there are no sequences
    sequence_number: int | None  # number of the only sequence to show; None: the first sequences
    evaluated_fraction: float  # fraction of the held-out tokens that an evaluation predicts
    console: Console

    def figures(self) -> CorpusFigures:
        """Count all tokens of the corpus, and return its figures."""
        with self.console.working("counting"):
            return corpus_figures(
                self.mixture,
                self.tokenizer,
                self.sequences,
                self.no_sequences,
                self.seq_len,
                self.data,
                self.evaluated_fraction,
            )

    def examples(self) -> dict[int, tuple[SequenceExample, ...]]:
        """Return a dict from the number of each sequence to show to the examples of the sequence."""
        if not self.sequences:
            return {}
        numbers = range(NUM_SHOWN) if self.sequence_number is None else [self.sequence_number]
        return {each: sequence_examples(self.sequences.batch(np.array([each])), 0, self.tokenizer) for each in numbers}


def open_inspection(
    corpus: str,
    recipe: RecipeName | None,
    overrides: Sequence[str],
    sequence_number: int | None,
    console: Console,
) -> Inspection:
    """Open a corpus or mixture, and the sequences that the first phase of a recipe makes from it.

    Args:
        corpus: directories of corpora, which replace the directories in `config.data.corpus`.
        recipe: name or file of a recipe, whose first phase determines the sequences; None: the defaults.
        overrides: overrides of the recipe's fields.
        sequence_number: number of the only sequence to show, counted from 0 over all epochs.
        console: console that prints progress for a large corpus.

    Raises:
        UserError: `sequence_number` is out of range, `sequence_number` is given although the first phase masks
            nothing, or a called function raises UserError.
    """
    config = read_config(PretrainConfig, recipe, overrides)
    first_phase = min(config.train.used_phases)
    data, phase, train = config.data, config.train.phases[first_phase], config.train
    check_choices(data, "config.data")
    check_choices(phase, f"config.train.phases[{first_phase}]")
    refuse_fields_without_effect(data, "config.data")
    if any(override.startswith("--config.data.corpus") for override in overrides):
        raise UserError(f"--config.data.corpus and {corpus} both name a corpus; leave out the option")
    if sequence_number is not None and not 0 <= sequence_number <= MAX_NUMBER:
        raise UserError(f"--sequence {sequence_number}: give a number from 0 to {MAX_NUMBER}")
    mixture = open_mixture(corpus)
    tokenizer, split = mixture.tokenizer(), mixture.split("train")
    # The number of steps is the result of `plan_phases`, whose module would import JAX.
    steps = train.steps if len(train.phases) == 1 else round(phase.fraction * train.steps)
    stages = ramp_stages(section_of_phase(train, phase).batch_size, phase.batch_stages, steps)
    rate = changing_mask_rate(data, phase, 0, sum(stage.num_steps * stage.batch_size for stage in stages))
    sequences: Sequences | None = None
    no_sequences = ""
    masks_nothing = config.model.causal or not _has_masks(phase)
    try:
        if masks_nothing:
            raise UserError("the first phase masks no tokens, and inspect shows sequences with their masks")
        # Sequences have two token types for every model, because the types mark the second text of a pair.
        masked = data_config_of_phase(data, phase)
        sequences = make_sequences(
            split, special_ids_and_vocabulary(tokenizer), phase.seq_len, config.seed, masked, 2, rate
        )
    except UserError as error:
        has_documents = np.diff(split.source_documents).min() > 1
        if sequence_number is not None or (has_documents and not masks_nothing):
            raise
        no_sequences = str(error)  # a corpus of too few documents still has figures
    return Inspection(
        mixture=mixture,
        tokenizer=tokenizer,
        data=data,
        seq_len=phase.seq_len,
        sequences=sequences,
        no_sequences=no_sequences,
        sequence_number=sequence_number,
        evaluated_fraction=1.0 if config.model.causal else EVALUATED_FRACTION,
        console=console,
    )


def _has_masks(phase: PhaseConfig) -> bool:
    """Return whether the objective of a phase masks tokens; JAX is imported only if the phase names an objective."""
    field = next(field for field in dataclasses.fields(phase) if field.name == "objective")
    return phase.objective is None or table_of_field(field)[phase.objective].has_masks


def inspection_json(inspection: Inspection) -> dict[str, Any]:
    """Return all figures, the warnings, and the sequences to show, as JSON values."""
    figures = inspection.figures()
    return figures_json(figures, corpus_warnings(figures), inspection.examples())


def inspection_page(inspection: Inspection) -> str:
    """Return an HTML page with all figures and sequences; the chosen sequence is shown first."""
    first = inspection.sequence_number or 0
    return inspect_page(inspection.figures(), inspection.tokenizer, inspection.sequences, first)


def inspect_corpus(inspection: Inspection, as_json: bool, html: str | None = None) -> None:
    """Print figures, warnings and the first sequences of a corpus or mixture, or print only a chosen sequence.

    Args:
        inspection: corpus and sequences.
        as_json: print one JSON object with all figures and the chosen sequence or the first sequences.
        html: .html file in which `inspection_page` is saved; if given, the name of the file is printed instead of the
            figures.
    """
    if html is not None:
        print(escaped(write_page(html, lambda: inspection_page(inspection))))
        return
    if as_json:
        print(json_line(inspection_json(inspection)))
        return
    examples, sequences = inspection.examples(), inspection.sequences
    width = min(max(MIN_WIDTH, shutil.get_terminal_size().columns), MAX_WIDTH)
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines: list[str] = []
    if inspection.sequence_number is None:
        figures = inspection.figures()
        lines += figures_lines(figures, inspection.tokenizer, width, color)
        lines += warning_lines(corpus_warnings(figures), width, color)
    if sequences:
        pairs = inspection.data.sentence_pairs
        lines += sequences_lines(examples, sequences.num_per_epoch, inspection.seq_len, pairs, width, color)
    encoding = sys.stdout.encoding or "utf-8"
    print("\n".join(lines).encode(encoding, "replace").decode(encoding))  # a terminal may lack some scripts
