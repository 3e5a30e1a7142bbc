"""All that the record reads of the package's inside: when modules move, this one file changes.

Everything else here is said through the command line and the names in `bert_jax.__all__`.
"""

import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

import bert_jax
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.cli.main import VERBS
from bert_jax.cli.main import main as bert_jax_main
from bert_jax.console import Console
from bert_jax.corpus.mixture import open_mixture
from bert_jax.finetuning import training_sets
from bert_jax.finetuning.inputs import plan_training, read_task_inputs
from bert_jax.interop.huggingface.model import load_model
from bert_jax.objectives import OBJECTIVES
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.pretraining.data import heldout_batches, sequence_rules, training_batches
from bert_jax.training.schedules import plan_phases

Batch = dict[str, np.ndarray]


def run(*words: object) -> None:
    """A command that must succeed, in this process."""
    assert bert_jax_main([str(word) for word in words]) == 0, " ".join(map(str, words))


def verbs() -> list[str]:
    """The verbs of the command line."""
    return list(VERBS)


def pretraining_batches(
    recipe: str, overrides: Sequence[str], vocab_size: int
) -> list[tuple[Iterator[Batch], Iterator[Batch]]]:
    """For each phase of a recipe its training batches, from the phase's first step on, and its held-out ones."""
    words = [*overrides, f"model.vocab_size={vocab_size}", "evaluate.batch_size=4"]
    config = bert_jax.read_config(bert_jax.PretrainConfig, recipe, [f"--config.{word}" for word in words])
    corpus, phases, blocks = open_mixture(config.data.corpus), plan_phases(config.train), BatchBlocks((0,), 1)
    rules = sequence_rules(config, corpus.tokenizer())
    heldout = heldout_batches(
        corpus.split("heldout", SENTENCE_PAIRS[config.data.sentence_pairs].min_documents),
        rules,
        blocks,
        num_sequences=config.evaluate.num_sequences,
        batch_size=config.evaluate.batch_size,
        eval_uses_training_masks=OBJECTIVES[config.objective].eval_uses_training_masks,
    )
    batches = training_batches(corpus, rules, phases, blocks)
    return [(batches(phase, phase.begin), heldout.batches(phase)) for phase in phases]


def finetuning_batches(recipe: str, overrides: Sequence[str]) -> Iterator[Batch]:
    """The training batches of a task, from the first step on."""
    config = bert_jax.read_config(bert_jax.FinetuneConfig, recipe, [f"--config.{word}" for word in overrides])
    settings, train, freeze_encoder = config.task, config.train, config.optimizer.freeze_encoder
    console = Console(silent=True)
    inputs = read_task_inputs(config.init_from, settings, train, freeze_encoder, config.seed, console)
    feed, _, _ = plan_training(inputs, settings, train)
    sets = (training_sets.TrainingSet(inputs.train[0].features, feed),)
    return training_sets.task_training_batches(sets, None, config.seed, BatchBlocks((0,), 1), 0)


def exported_again(directory: pathlib.Path, output: pathlib.Path) -> None:
    """Load a model directory as the class that it names, and export what was loaded."""
    read = load_model(directory)
    assert not read.new
    bert_jax.export_model(read.params, read.config, read.heads, directory, output, read.labels)
