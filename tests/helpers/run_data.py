"""Batches of a corpus as a run of a config reads them."""

from collections.abc import Callable

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import PretrainConfig
from bert_jax.corpus.mixture import Mixture
from bert_jax.objectives import OBJECTIVES
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.pretraining.data import Batches, heldout_batches, sequence_rules, training_batches
from bert_jax.pretraining.snapshots import ALL_PREPARED, BackgroundPreparation
from bert_jax.training.plan import Heldout
from bert_jax.training.schedules import Phase, plan_phases

WHOLE = BatchBlocks((0,), 1)


def batches_of(
    config: PretrainConfig,
    corpus: Mixture,
    blocks: BatchBlocks = WHOLE,
    preparation: BackgroundPreparation = ALL_PREPARED,
) -> Callable[[Phase, int], Batches]:
    rules = sequence_rules(config, corpus.tokenizer())
    return training_batches(corpus, rules, plan_phases(config.train), blocks, preparation)


def heldout_of(config: PretrainConfig, corpus: Mixture, blocks: BatchBlocks = WHOLE) -> Heldout:
    split = corpus.split("heldout", SENTENCE_PAIRS[config.data.sentence_pairs].min_documents)
    return heldout_batches(
        split,
        sequence_rules(config, corpus.tokenizer()),
        blocks,
        num_sequences=config.evaluate.num_sequences,
        batch_size=config.evaluate.batch_size,
        eval_uses_training_masks=OBJECTIVES[config.objective].eval_uses_training_masks,
    )
