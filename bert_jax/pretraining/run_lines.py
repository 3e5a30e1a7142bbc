"""Lines on what a pretraining run is about to do, for its console."""

import os
from collections.abc import Iterator

import jax
import numpy as np

from bert_jax.batches.masking import phase_masking
from bert_jax.batches.pipeline import make_sequences, symbols_of
from bert_jax.batches.statistics import sequence_figures
from bert_jax.config import PretrainConfig
from bert_jax.corpus.build.prepare_parts import prepared_fraction, text_tokens
from bert_jax.corpus.mixture import Mixture
from bert_jax.models import kernel_used
from bert_jax.reports.corpus.checks import sequence_warnings
from bert_jax.training.schedules import Phase

CHECKED_SEQUENCES = 512  # of a phase, for likely problems, before it begins


def run_lines(config: PretrainConfig, corpus: Mixture, phases: tuple[Phase, ...]) -> Iterator[str]:
    """Yield lines on what is about to run: the corpus, its sources, the model, each phase, likely problems."""
    split, symbols = corpus.split("train"), symbols_of(corpus.tokenizer())
    devices = jax.devices()
    yield (
        f"corpus {config.data.corpus}: {split.num_documents:,} documents, {split.num_tokens:,} tokens, "
        f"vocabulary {corpus.vocab_size:,}"
    )
    whole, count = text_tokens(split.num_tokens, config.data.snapshots), config.data.snapshots or 1
    if count > 1:
        yield (
            f"  it is the first of {count} snapshots, {prepared_fraction(0, count):.1%} of the text; the next follows "
            "when as many tokens were read as a snapshot has, and evaluation stays with the first"
        )
    if len(corpus.corpora) > 1:
        parts, epochs = _sources(config, corpus, phases)
        for (name, source), part, times in zip(corpus.sources(), parts.tolist(), epochs.tolist(), strict=True):
            yield (
                f"  {os.path.basename(name)}: {source.num_tokens / split.num_tokens:.2%} of the tokens, "
                f"{part:.2%} of the sequences, {times:,.2f} epochs"
            )
    yield (
        f"model {config.model.num_layers} layers x {config.model.hidden_size}, {config.compute.dtype}, "
        f"on {len(devices)} x {devices[0].device_kind}, "
        f"attention by {kernel_used(config.model, config.compute, devices[0].platform)}"
    )
    for number, phase in enumerate(phases, 1):
        tokens = (phase.end - phase.begin) * phase.batch_size * phase.seq_len
        times = np.format_float_positional(tokens / whole, precision=3, fractional=False, trim="-")
        if not tokens:
            continue
        yield (
            f"phase {number}: steps {phase.begin:,} to {phase.end:,} of {phase.batch_size} sequences x "
            f"{phase.seq_len} tokens, {times} times the {'corpus' if count == 1 else 'text, about'}"
        )
        data = phase_masking(config.data, config.train.phases[phase.number])
        sequences = make_sequences(split, symbols, phase.seq_len, config.seed, data)
        figures = sequence_figures(sequences, symbols.vocabulary.mask, CHECKED_SEQUENCES)
        for line in sequence_warnings(figures, data).values():
            yield f"warning: {line}"


def _sources(config: PretrainConfig, corpus: Mixture, phases: tuple[Phase, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the fraction of the first phase and the epochs in the run of each source; float64 [sources]."""
    split, symbols = corpus.split("train"), symbols_of(corpus.tokenizer())
    fractions, epochs = [], np.zeros(len(corpus.corpora))
    for phase in phases:
        found = make_sequences(split, symbols, phase.seq_len, config.seed, config.data)
        fractions.append(found.num_per_source / found.num_per_epoch)
        num_sequences = (phase.end - phase.begin) * phase.batch_size
        epochs += num_sequences * fractions[-1] / np.maximum(1, found.num_items)
    return fractions[0], epochs
