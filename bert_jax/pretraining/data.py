"""Training batches and held-out batches of a corpus, which depend only on the step, the phase and the run's config."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np

from bert_jax.batches.iteration import batches as read_batches
from bert_jax.batches.masking import changing_mask_rate, data_config_for_evaluation, data_config_of_phase
from bert_jax.batches.order import Order
from bert_jax.batches.pipeline import Sequences, Symbols, make_sequences, special_ids_and_vocabulary
from bert_jax.config import DataConfig, PhaseConfig, PretrainConfig
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.store import Split
from bert_jax.objectives import Batch
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.pretraining.snapshots import ALL_PREPARED, BackgroundPreparation, batches_by_snapshot
from bert_jax.tokenizer import Tokenizer
from bert_jax.training.plan import Heldout
from bert_jax.training.schedules import Phase, sequences_of_phase

Batches = Generator[Batch, None, None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceRules:
    """The settings that determine how the documents of a corpus become sequences in a run."""

    symbols: Symbols
    data: DataConfig
    phases: tuple[PhaseConfig, ...]  # indexed by `Phase.index`; the phases may have different masks
    seed: int
    num_token_types: int


def sequence_rules(config: PretrainConfig, tokenizer: Tokenizer) -> SequenceRules:
    """Return the settings for the sequences of a run, from its complete config and its tokenizer."""
    return SequenceRules(
        symbols=special_ids_and_vocabulary(tokenizer),
        data=config.data,
        phases=config.train.phases,
        seed=config.seed,
        # As in fine-tuning: with many tokenizers, such as byte-level tokenizers, the second text also has type 0.
        num_token_types=config.model.num_token_types if tokenizer.second_type else 0,
    )


def training_batches(
    corpus: Mixture,
    rules: SequenceRules,
    phases: tuple[Phase, ...],
    blocks: BatchBlocks,
    preparation: BackgroundPreparation = ALL_PREPARED,
) -> Callable[[Phase, int], Batches]:
    """Return a function (phase, step) -> an endless iterator over the batches from this step on.

    The batches contain only the blocks of this process. Sequence numbers continue over phases and epochs. A phase with
    a separate mixture of sources begins new epochs of all sources. Raise UserError if the sequences of a phase cannot
    be made.
    """

    def phase_sequences(split: Split, phase: Phase) -> Sequences:
        settings, numbers = rules.phases[phase.index], sequences_of_phase(phases, phase.index)
        rate = changing_mask_rate(rules.data, settings, numbers.start, len(numbers))
        data, num_types = data_config_of_phase(rules.data, settings), rules.num_token_types
        first = numbers.start if settings.has_mixture else 0
        return make_sequences(split, rules.symbols, phase.seq_len, rules.seed, data, num_types, rate, first)

    def split_batches(split: Split, phase: Phase, step: int) -> Batches:
        sequences = phase_sequences(split, phase)
        return _batches_of_process(sequences, rules.data, phase.first_sequence(step), phase.batch_size, None, blocks)

    split, num_snapshots = corpus.split("train"), rules.data.snapshots or 1
    for phase in phases:
        phase_sequences(split, phase)
    if num_snapshots == 1:
        return functools.partial(split_batches, split)
    return functools.partial(batches_by_snapshot, corpus, num_snapshots, phases, preparation, split_batches)


class MixtureOfPhase(NamedTuple):
    """The mixture of sources that a phase reads.

    `shares` has the fractions of the phase's sequences, and `passes` the number of passes over each source in an epoch
    of the mixture, both float64 `[sources]`. `num_epochs` is the number of these epochs in the phase.
    """

    shares: np.ndarray
    passes: np.ndarray
    num_epochs: float


def mixtures_of_phases(split: Split, rules: SequenceRules, phases: tuple[Phase, ...]) -> list[MixtureOfPhase]:
    """Return the mixture of each phase of a run; the stages of a phase have one mixture."""
    mixtures = []
    for index in sorted({phase.index for phase in phases}):
        settings = rules.phases[index]
        data = data_config_of_phase(rules.data, settings)
        sequences = make_sequences(split, rules.symbols, settings.seq_len, rules.seed, data, rules.num_token_types)
        shares = sequences.num_per_source / sequences.num_per_epoch
        passes = Order(sequences.num_items, sequences.num_per_source).passes_per_source
        num_epochs = len(sequences_of_phase(phases, index)) / sequences.num_per_epoch
        mixtures.append(MixtureOfPhase(shares, passes, num_epochs))
    return mixtures


def passes_per_source(split: Split, rules: SequenceRules, phases: tuple[Phase, ...]) -> np.ndarray:
    """Return how often an epoch of training reads the text of each source, as a mean over the run.

    The result is float64 `[sources]`.
    """
    if len(split.source_documents) == 2:  # a single source needs no plan of sequences, which may take seconds
        return np.ones(1)
    mixtures = mixtures_of_phases(split, rules, phases)
    passes, num_epochs = [mixture.passes for mixture in mixtures], [mixture.num_epochs for mixture in mixtures]
    averaged: np.ndarray = np.average(passes, axis=0, weights=num_epochs)
    return averaged


class _SequencesAndEnd(NamedTuple):
    """The sequences of an evaluation, and the number of the first sequence that the evaluation leaves out."""

    sequences: Sequences
    end: int


def heldout_batches(
    split: Split,
    rules: SequenceRules,
    blocks: BatchBlocks,
    *,
    num_sequences: int,
    batch_size: int,
    eval_uses_training_masks: bool,
) -> Heldout:
    """Return the batches of this process for a pass over at most `num_sequences` sequences of a split."""

    @functools.cache
    def sequences_and_end(phase: Phase) -> _SequencesAndEnd:
        data = data_config_for_evaluation(
            data_config_of_phase(rules.data, rules.phases[phase.index]), eval_uses_training_masks
        )
        sequences = make_sequences(split, rules.symbols, phase.seq_len, rules.seed, data, rules.num_token_types)
        return _SequencesAndEnd(sequences, min(num_sequences, sequences.num_per_epoch))

    def batches(phase: Phase) -> Batches:
        sequences, end = sequences_and_end(phase)
        return _batches_of_process(sequences, rules.data, 0, batch_size, end, blocks)

    return Heldout(batches, lambda phase: -(-sequences_and_end(phase)[1] // batch_size))


def _batches_of_process(
    sequences: Sequences, data: DataConfig, first: int, batch_size: int, end: int | None, blocks: BatchBlocks
) -> Batches:
    """Yield this process's blocks of each batch, concatenated, from sequence `first` to `end` (None: endless)."""
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(
                contextlib.closing(
                    read_batches(
                        sequences,
                        first,
                        batch_size,
                        host=block,
                        num_hosts=blocks.num_blocks,
                        stop=end,
                        num_threads=data.num_threads,
                        prefetch=data.prefetch,
                    )
                )
            )
            for block in blocks.blocks
        ]
        for parts in zip(*readers, strict=True):
            yield {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
