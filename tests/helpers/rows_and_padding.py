"""A task in rows and its padded reference. As a program: print the differences on meshes of eight CPU devices.

tests/finetuning/test_rows_equal_padding.py starts this program.
"""

import dataclasses
import functools
import json
import pathlib
import random
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import config as c
from bert_jax.interop.huggingface import load_model
from bert_jax.models import make_model
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.parallel import sharding
from bert_jax.tasks.batching import Feed, collate, collate_batches, plan_training_epoch
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tasks.rows import RowShape
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.step import TrainState, _loss_and_gradients
from tests.finetuning.test_finetune_trajectory import CLASS, DROPOUT, EXAMPLE, SETTINGS
from tests.helpers.tiny_models import MAX_POSITIONS, save

BATCH, EXAMPLES = 16, 27
ROWS = ("row_tokens", "token_places")


def make_task(directory, kind, family, rows):
    """A model, its objective and its batches in rows; the last batch is not full."""
    one_output = kind in ("regression", "reranking")
    labels = {"num_labels": 1, "problem_type": "regression"} if one_output else {"num_labels": 3}
    has_labels = one_output or ("classification" in kind and kind != "prompt_classification")
    more = dict.fromkeys(DROPOUT[family], 0.0) | (labels if has_labels else {})
    save(directory, family, CLASS[kind], **more)
    tokenizer = load_tokenizer(directory)
    made = c.finetune_config()
    made.task.update(kind=kind, max_seq_len=MAX_POSITIONS, max_query_length=8, doc_stride=6)
    made.task.update(SETTINGS.get(kind, {}))
    config = c.resolve(c.FinetuneConfig, made)
    config = dataclasses.replace(config, task=KINDS[kind].fill_settings(config.task, "abc", tokenizer))
    rng = random.Random(3)
    examples = [{"id": str(number)} | EXAMPLE[kind](rng) for number in range(EXAMPLES)]
    features = make_features(KINDS[kind], examples, tokenizer, config.task)[0]
    heads = (task_head(kind, 3),)
    loaded = load_model(directory, None if KINDS[kind].classes is None else heads)
    model = make_model(loaded.config, config.compute, heads)
    objective = make_task_objective(model, kind, freeze_encoder=False, settings=config.task)
    feed = Feed((MAX_POSITIONS,), BATCH, loaded.config.num_token_types, tokenizer.pad_id, rows)
    planned = plan_training_epoch(feed, features, 0, 0)
    batches = list(collate_batches(feed, features, planned, sharding.BatchBlocks((0,), 1)))
    params = jax.tree.map(jnp.asarray, loaded.params)
    return model, objective, params, feed, features, list(zip(planned, batches, strict=True))


def gradient_function(objective, micro_batches=1):
    """A function of parameters and a batch that returns the loss and the gradients; it is traced once for a shape."""
    compute = jax.jit(functools.partial(_loss_and_gradients, objective, micro_batches))

    def gradients_of(params, batch):
        state = TrainState(*[0] * 6)._replace(params=params, rng=jax.random.PRNGKey(0))
        return compute(state, batch, jax.random.PRNGKey(0))[:2]

    return gradients_of


def padded_reference(gradients_of, params, kind, feed, features, planned, batch):
    """The loss and the gradients of the batch without rows; of question answering, without any padding.

    Padding has a part in the published softmax of question answering, so that each example is computed alone there.
    """
    if kind != "question_answering":
        return gradients_of(params, {k: x for k, x in batch.items() if k not in ROWS})
    alone = [
        gradients_of(params, collate([features[n]], features[n].length, feed.num_token_types, feed.pad_id, 1))
        for n in planned.indices
    ]
    return jax.tree.map(lambda *x: sum(x) / len(x), *alone)


def difference_on_mesh(kind, micro_batches, data, fsdp):
    """The largest difference of the loss and the gradients from padding, absolute or relative, whichever is less."""
    shape = RowShape(MAX_POSITIONS, 1, data * fsdp, data if micro_batches > 1 else 1, micro_batches)
    mesh = sharding.make_mesh(c.MeshConfig(data=data, fsdp=fsdp), jax.devices()[: data * fsdp])
    worst = 0.0
    with tempfile.TemporaryDirectory() as directory:
        _, objective, params, feed, features, batches = make_task(pathlib.Path(directory), kind, "bert", shape)
    gradients_of, gradients_on_mesh = gradient_function(objective), gradient_function(objective, micro_batches)
    for planned, batch in batches:
        expected = padded_reference(gradients_of, params, kind, feed, features, planned, batch)
        with jax.set_mesh(mesh):
            placed = sharding.place_batch(batch, mesh)
            on_mesh = jax.device_put(params, sharding.named_shardings(objective.logical_axes, mesh))
            loss, gradients = gradients_on_mesh(on_mesh, placed)
        for ours, theirs in zip(jax.tree.leaves((loss, gradients)), jax.tree.leaves(expected), strict=True):
            ours, theirs = np.asarray(ours), np.asarray(theirs)
            worst = max(worst, float((np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))).max()))
    return worst


if __name__ == "__main__":
    for case in json.loads(sys.argv[1]):
        print(json.dumps(difference_on_mesh(*case)), flush=True)
