"""Retrieval scores that each evaluation computes while sentence vectors are trained."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import jax

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.config import TaskConfig
from bert_jax.console import Console
from bert_jax.finetuning.inputs import TaskInputs
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.models import Params
from bert_jax.models.adapters import merge_adapter_into_weights
from bert_jax.objectives.base import Batch
from bert_jax.parallel import sharding
from bert_jax.scoring.retrieval import mean_retrieval_measures
from bert_jax.search.text_vectors import DOCUMENTS, PROMPTS, QUERIES
from bert_jax.tasks.late_interaction import TokenRules, token_rules
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.training.evaluation import Evaluate


def sentence_modules_of_task(inputs: TaskInputs, settings: TaskConfig) -> SentenceModules:
    """Return the steps by which the trained model turns a text into a vector.

    The prompts of queries and documents are the prompts of the training, under the names of the prompts in the initial
    model. All other prompts of the initial model stay. The similarity stays if the vector head is not changed. A
    cross-encoder becomes a model of vectors.
    """
    known, row = inputs.weights.sentences or SentenceModules(), VECTOR_HEADS[settings.vector_head]
    prompts = dict(known.prompts)
    for role, prompt in ((QUERIES, settings.query_prompt), (DOCUMENTS, settings.document_prompt)):
        # In late interaction, the name of the prompt distinguishes queries from documents.
        if prompt or known.prompts or row.has_token_vectors:
            names = [name for name in PROMPTS[role] if name in prompts] or PROMPTS[role][:1]
            prompts |= dict.fromkeys(names, prompt or "")
    keeps_similarity = known.vector_head == settings.vector_head and not known.activation
    return dataclasses.replace(
        known,
        vector_head=settings.vector_head,
        vector_width=inputs.weights.heads[0].classes,
        token_rules=token_rules(settings) if row.has_token_vectors else TokenRules(),
        folder="",
        normalize=row.has_pooling,
        similarity=known.similarity if keeps_similarity else row.similarity,
        activation="",
        max_seq_len=settings.max_seq_len,
        prompts=prompts,
    )


def make_retrieval_scorer(
    inputs: TaskInputs, settings: TaskConfig, console: Console
) -> Callable[[Params], dict[str, float]]:
    """Return a function from trained parameters to retrieval scores; without a collection, the scores are {}.

    The function prints its progress on `console`, which restarts the clock of the watchdog.
    """
    collection = inputs.collection
    if collection is None:
        return lambda params: {}

    def print_progress(task: str, num_done: int, total: int) -> None:
        console.progress(task, num_done, total, "texts")

    def scores_of(params: Params) -> dict[str, float]:
        all_params = sharding.copy_to_hosts(params)
        if inputs.adapter:
            all_params = merge_adapter_into_weights(inputs.adapter, all_params)
        model = OpenModel(
            config=inputs.weights.config,
            heads=inputs.weights.heads,
            params=jax.device_put(all_params, jax.local_devices()[0]),
            labels=(),
            tokenizer=inputs.tokenizer,
            directory=pathlib.Path(inputs.weights.directory),
            sentences=sentence_modules_of_task(inputs, settings),
        )
        # Each process searches on one of its devices, and not on the mesh of the training.
        with jax.set_mesh(sharding.single_device_mesh()):
            return mean_retrieval_measures(model, collection, print_progress)

    return scores_of


def with_retrieval_scores(evaluate: Evaluate, scores_of: Callable[[Params], dict[str, float]]) -> Evaluate:
    """Return a function that adds retrieval scores to the scores of `evaluate`; {} if a signal stopped `evaluate`."""

    def evaluate_with_retrieval(params: Params, frozen: Params, batches: Iterator[Batch]) -> dict[str, float]:
        scores = evaluate(params, frozen, batches)
        return scores and scores | scores_of(params)

    return evaluate_with_retrieval
