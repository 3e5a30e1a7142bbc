"""A corpus as the training loop wants it: batches that follow from the step, and held-out ones."""

import contextlib
import functools
from collections.abc import Generator

import numpy as np

from bert_jax.batches.iteration import batches
from bert_jax.batches.masking import LinearRate, changing_rate, evaluated_data, phase_masking
from bert_jax.batches.pipeline import Sequences, make_sequences, symbols_of
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import DataConfig, PretrainConfig
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.store import Split
from bert_jax.objectives import OBJECTIVES, Batch
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.pretraining.snapshots import ALL_PREPARED, Rest, read_in_turn
from bert_jax.training.loop import Data
from bert_jax.training.schedules import Phase, plan_phases


def corpus_data(
    config: PretrainConfig, corpus: Mixture, share: BatchBlocks, evaluated: str = "heldout", rest: Rest = ALL_PREPARED
) -> Data:
    """Return the batches of this process's part of the sequences; sequence numbers run on over phases and epochs.

    `evaluated` is the split that evaluation reads, "heldout" or "train", `rest` what is prepared meanwhile. Held-out
    batches need `config.evaluate.batch_size` (`training.evaluation.sized_evaluation` sets it).
    Raises UserError where sequences of some phase cannot be made.
    """
    needed = min_documents(config)
    train, held = corpus.split("train"), corpus.split(evaluated, needed)
    symbols, own_mix = symbols_of(corpus.tokenizer()), OBJECTIVES[config.objective].own_mix

    def sequences(split: Split, data: DataConfig, phase: Phase, rate: LinearRate | None = None) -> Sequences:
        return make_sequences(split, symbols, phase.seq_len, config.seed, data, config.model.num_token_types, rate)

    def trained(phase: Phase, split: Split) -> Sequences:
        settings, count = config.train.phases[phase.number], (phase.end - phase.begin) * phase.batch_size
        rate = changing_rate(config.data, settings, phase.begin_sequence, count)
        return sequences(split, phase_masking(config.data, settings), phase, rate)

    def shared(source: Sequences, first: int, batch_size: int, stop: int | None) -> Generator[Batch, None, None]:
        threads = {"num_threads": config.data.num_threads, "prefetch": config.data.prefetch}
        read = functools.partial(batches, source, first, batch_size, num_hosts=share.num_blocks, stop=stop, **threads)
        with contextlib.ExitStack() as stack:
            blocks = [stack.enter_context(contextlib.closing(read(host=block))) for block in share.blocks]
            for parts in zip(*blocks, strict=True):
                yield {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def snapshot(split: Split, phase: Phase, step: int) -> Generator[Batch, None, None]:
        return shared(trained(phase, split), phase.first_sequence(step), phase.batch_size, None)

    @functools.cache
    def evaluated_sequences(phase: Phase) -> tuple[Sequences, int]:
        data = phase_masking(config.data, config.train.phases[phase.number])
        source = sequences(held, evaluated_data(data, own_mix), phase)
        return source, min(config.evaluate.num_sequences, source.num_per_epoch)

    def heldout(phase: Phase) -> Generator[Batch, None, None]:
        source, stop = evaluated_sequences(phase)
        assert config.evaluate.batch_size
        return shared(source, 0, config.evaluate.batch_size, stop)

    def num_heldout(phase: Phase) -> int:
        assert config.evaluate.batch_size
        return -(-evaluated_sequences(phase)[1] // config.evaluate.batch_size)

    for phase in plan_phases(config.train):
        trained(phase, train)
    fingerprint = {"corpus": corpus.fingerprint, "tokenizer": corpus.tokenizer_sha256}
    training = functools.partial(read_in_turn, config, corpus, rest, snapshot)
    return Data(training, heldout if held.num_documents >= needed else None, fingerprint, num_heldout=num_heldout)


def min_documents(config: PretrainConfig) -> int:
    """Return the documents per source that sequences need: random second sentences come from another one."""
    return SENTENCE_PAIRS[config.data.sentence_pairs].min_documents
