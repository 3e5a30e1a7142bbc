"""Training of sparse vectors and late interaction, beside sentence-transformers; cached gradients."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from sentence_transformers.multi_vector_encoder.scoring import colbert_scores
from sentence_transformers.sparse_encoder import callbacks
from sentence_transformers.sparse_encoder import losses as published

from bert_jax.config import ComputeConfig, EncoderConfig, OptimizerConfig, TaskConfig
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import Head, make_model
from bert_jax.models.heads import _largest_vocabulary_scores
from bert_jax.objectives.base import training_rngs
from bert_jax.objectives.cached_vectors import cached_loss_and_gradients
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.objectives.vector_scores import max_sim, quadratic_warmup_factor
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate
from bert_jax.training.step import init_state, train_step
from tests.helpers import torch_training
from tests.helpers.synthetic import NO_DROPOUT
from tests.helpers.tiny_models import save
from tests.objectives.test_cached_vectors import SIZES, batch_of
from tests.objectives.test_vector_losses import EXAMPLES, encoder_batch


@pytest.fixture(scope="module")
def masked_model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("masked")
    save(directory, "bert", "ForMaskedLM", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return directory


@pytest.fixture
def vectors_for_texts(monkeypatch):
    """The published loss reads vectors in place of texts."""
    monkeypatch.setattr("sentence_transformers.sparse_encoder.losses.splade.embed_columns", lambda m, x, **_: x)


def splade_loss(query_weight, document_weight):
    """The published loss, for vectors in place of texts."""
    loss = published.SpladeLoss(
        torch.nn.Identity(),
        loss=published.SparseMultipleNegativesRankingLoss(None),
        query_regularizer_weight=query_weight,
        document_regularizer_weight=document_weight,
    )
    return lambda vectors: sum(loss(vectors).values())


def torch_texts(batch, *keys):
    """The arrays of each text of the examples."""
    for text in range(batch["input_ids"].shape[1]):
        yield [torch.tensor(batch[key][:, text]).long() for key in ("input_ids", "attention_mask", *keys)]


def sparse_vectors(theirs, batch):
    """The vectors of each text, `[examples, vocab]`."""
    return [
        (torch.log1p(torch.relu(theirs(ids, mask).logits)) * mask[..., None]).max(1).values
        for ids, mask in torch_texts(batch)
    ]


def late_interaction_loss(theirs, kernel, batch):
    """The cross entropy of the published scores."""
    vectors, masks = [], []
    for ids, mask, scored, unread in torch_texts(batch, "scored_tokens", "unread_tokens"):
        hidden = theirs(ids, mask * (1 - unread)).last_hidden_state
        vectors.append(torch.nn.functional.normalize(hidden @ kernel, dim=-1))
        masks.append(scored.bool())
    scores = colbert_scores(
        vectors[0], torch.stack(vectors[1:], 1), queries_mask=masks[0], documents_mask=torch.stack(masks[1:], 1)
    )
    return torch.nn.functional.cross_entropy(scores, (len(vectors) - 1) * torch.arange(EXAMPLES))


@pytest.mark.parametrize("step", [2, pytest.param(9, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("vectors_for_texts")
def test_sparse_loss_and_gradients_of_an_encoder_equal_torch(masked_model, step):
    """At step 2 of a warmup of 6 steps, and after the warmup; an example has two documents."""
    loaded = load_model(masked_model, (Head("sparse_embedding"),))
    settings = TaskConfig(vector_head="sparse", query_flops_weight=0.3, document_flops_weight=0.2)
    model, batch = make_model(loaded.config, ComputeConfig(), loaded.heads), encoder_batch(3)
    objective = make_task_objective(model, "similarity", False, settings, num_steps=18)
    normalizers = objective.normalizers(batch) | objective.loss_weights(jnp.array(step))
    (loss, metrics), gradients = jax.jit(jax.value_and_grad(objective.loss, has_aux=True))(
        jax.tree.map(jnp.asarray, loaded.params), (), batch, NO_DROPOUT, normalizers
    )
    theirs = transformers.BertForMaskedLM.from_pretrained(masked_model).eval()
    theirs.get_input_embeddings().padding_idx = None
    vectors = sparse_vectors(theirs, batch)
    factor = min(step / 6, 1) ** 2
    expected = splade_loss(0.3 * factor, 0.2 * factor)(vectors)
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), abs=1e-5)
    assert metrics["query_terms"].value() == pytest.approx((vectors[0] > 0).sum(1).float().mean().item())
    wanted = dict(theirs.named_parameters())
    for key, x in to_tensors(gradients, loaded.config, loaded.heads).items():
        np.testing.assert_allclose(x, wanted[key].grad.numpy(), rtol=0, atol=1e-5, err_msg=key)


def test_the_warmup_is_the_warmup_of_sentence_transformers():
    ranking = published.SparseMultipleNegativesRankingLoss(None)
    loss = published.SpladeLoss(None, ranking, document_regularizer_weight=1.0, query_regularizer_weight=1.0)
    callback = callbacks.SpladeRegularizerWeightSchedulerCallback(loss)
    state = transformers.TrainerState(max_steps=100)
    callback.on_train_begin(None, state, None)
    for state.global_step in range(100):
        callback.on_step_begin(None, state, None)
        ours = quadratic_warmup_factor(jnp.array(state.global_step), 33)
        assert float(ours) == pytest.approx(loss.query_regularizer_weight, abs=1e-6)


@pytest.mark.parametrize("length", [5, 16, 50])
def test_the_largest_scores_are_the_largest_of_all_scores(length):
    rng = np.random.default_rng(length)
    x, table = rng.normal(size=(3, length, 4)).astype(np.float32), rng.normal(size=(9, 4)).astype(np.float32)
    mask = (np.arange(length) < np.array([[1], [length // 2], [length]])).astype(np.int32)
    found = _largest_vocabulary_scores(*(jnp.asarray(array) for array in (x, mask, table)), jnp.dtype("float32"))
    expected = np.where(mask[..., None] > 0, x @ table.T, -np.inf).max(1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def marked(batch, query_length=12):
    """Queries of 12 tokens, of which the last are unread mask tokens (id 4); token 5 of a document has no vector."""
    ids, mask = batch["input_ids"].copy(), batch["attention_mask"].copy()
    scored, unread = mask * (ids != 5), np.zeros_like(mask)
    unread[:, 0, :query_length] = 1 - mask[:, 0, :query_length]
    ids[:, 0] = np.where(unread[:, 0] > 0, 4, ids[:, 0])
    mask[:, 0, query_length:] = 0
    mask = mask | unread
    scored[:, 0] = mask[:, 0]
    return batch | {"input_ids": ids, "attention_mask": mask, "scored_tokens": scored, "unread_tokens": unread}


def test_late_interaction_and_its_gradients_equal_torch(masked_model):
    settings = TaskConfig(vector_head="late_interaction", vector_width=6)
    loaded = load_model(masked_model, (task_head("similarity", 0, settings),), jax.random.key(0))
    model, batch = make_model(loaded.config, ComputeConfig(), loaded.heads), marked(encoder_batch(3))
    objective = make_task_objective(model, "similarity", False, settings)
    (loss, _), gradients = jax.jit(jax.value_and_grad(objective.loss, has_aux=True))(
        jax.tree.map(jnp.asarray, loaded.params), (), batch, NO_DROPOUT, objective.normalizers(batch)
    )
    theirs = transformers.BertModel.from_pretrained(masked_model).eval()
    theirs.get_input_embeddings().padding_idx = None
    kernel = torch.tensor(loaded.params["token_embedding"]["kernel"], requires_grad=True)
    expected = late_interaction_loss(theirs, kernel, batch)
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), abs=1e-5)
    np.testing.assert_allclose(gradients["token_embedding"]["kernel"], kernel.grad, rtol=0, atol=1e-5)
    wanted = dict(theirs.named_parameters())
    for key, x in to_tensors({"encoder": gradients["encoder"]}, loaded.config, ()).items():
        np.testing.assert_allclose(x, wanted[key].grad.numpy(), rtol=0, atol=1e-5, err_msg=key)


STEPS = 30


@pytest.mark.parametrize("vector_head", ["sparse", "late_interaction"])
@pytest.mark.usefixtures("vectors_for_texts")
def test_thirty_steps_equal_torch(masked_model, vector_head):
    """Losses and weights, with AdamW, clipping, and the warmup of the regularization."""
    more = {
        "sparse": {"query_flops_weight": 0.3, "document_flops_weight": 0.2},
        "late_interaction": {"vector_width": 6},
    }
    settings = TaskConfig(vector_head=vector_head, **more[vector_head])
    loaded = load_model(masked_model, (task_head("similarity", 0, settings),), jax.random.key(0))
    model = make_model(loaded.config, ComputeConfig(), loaded.heads)
    objective = make_task_objective(model, "similarity", False, settings, num_steps=STEPS)
    rate = OptimizerConfig(peak_learning_rate=2e-3, warmup_fraction=0.1, schedule="linear", weight_decay=0.1)
    optimizer = make_optimizer(rate, objective.logical_axes, objective.sections)
    schedule = functools.partial(learning_rate, rate, (Phase(end=STEPS, seq_len=16, batch_size=EXAMPLES),))
    step = jax.jit(functools.partial(train_step, objective, optimizer, schedule, 1))
    state = init_state(0, objective, optimizer, jax.tree.map(jnp.asarray, loaded.params))
    pool = [encoder_batch(3, first_row=100 * n) for n in range(5)]
    pool = [marked(batch) if vector_head == "late_interaction" else batch for batch in pool]
    batches = list(itertools.islice(itertools.cycle(pool), STEPS))
    losses, norms = [], []
    for batch in batches:
        state, metrics = step(state, batch)
        losses.append(metrics["means"]["task_loss"].value())
        norms.append(metrics["report"]["grad_norm"].item())

    if vector_head == "sparse":
        theirs, steps, penalties = transformers.BertForMaskedLM.from_pretrained(masked_model), itertools.count(), []

        def loss_of(theirs, batch):
            factor, vectors = min(next(steps) / (STEPS // 3), 1) ** 2, sparse_vectors(theirs, batch)
            loss = splade_loss(0.3 * factor, 0.2 * factor)(vectors)
            penalties.append((loss - splade_loss(0, 0)(vectors)).item())
            return loss

    else:
        theirs, penalties = transformers.BertModel.from_pretrained(masked_model), [0.0] * STEPS
        theirs.projection = torch.nn.Parameter(torch.tensor(loaded.params["token_embedding"]["kernel"]))

        def loss_of(theirs, batch):
            return late_interaction_loss(theirs, theirs.projection, batch)

    theirs.get_input_embeddings().padding_idx = None
    expected, expected_norms = torch_training.trajectory(theirs, loss_of, batches, rate, warmup=STEPS // 10)
    assert max(expected) - min(expected) > 0.3
    np.testing.assert_allclose(losses, np.subtract(expected, penalties), rtol=0, atol=1e-4)
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-3)
    params, wanted = jax.device_get(state.params), dict(theirs.named_parameters())
    if vector_head == "late_interaction":
        kernel = params.pop("token_embedding")["kernel"]
        np.testing.assert_allclose(kernel, theirs.projection.detach(), rtol=0, atol=1e-4)
    for key, x in to_tensors(params, loaded.config, loaded.heads if vector_head == "sparse" else ()).items():
        if not key.endswith("key.bias"):  # no loss depends on it
            np.testing.assert_allclose(x, wanted[key].detach(), rtol=0, atol=1e-4, err_msg=key)


def test_a_text_without_tokens_has_the_score_0():
    vectors = jnp.eye(3)[None] * jnp.array([1.0, 0.0, 1.0])[:, None]
    scores = max_sim(jnp.concatenate([vectors, 0 * vectors]), jnp.concatenate([-vectors, 0 * vectors]))
    np.testing.assert_array_equal(scores, [[0.0, 0.0], [0.0, 0.0]])
    gradient = jax.grad(lambda x: max_sim(x, 0 * x).sum())(vectors)
    np.testing.assert_array_equal(gradient, 0 * vectors)


HEADS = {"late_interaction": {"vector_width": 6}, "sparse": {"query_flops_weight": 0.1, "flops_warmup_fraction": 0.0}}


@pytest.mark.slow
@pytest.mark.parametrize("vector_head", HEADS)
def test_cached_gradients_equal_uncached_gradients(vector_head):
    """With dropout, and with absent examples."""
    encoder = EncoderConfig(**SIZES, hidden_size=16, mlp_size=32)
    settings = TaskConfig(vector_head=vector_head, **HEADS[vector_head])
    model = make_model(encoder, ComputeConfig(), (task_head("similarity", 0, settings),))
    objective = make_task_objective(model, "similarity", False, settings)
    params, batch, rng, steps = (
        jax.jit(objective.init)(jax.random.key(0)),
        batch_of(EXAMPLES, 2),
        jax.random.PRNGKey(3),
        3,
    )
    batch = marked(batch, query_length=8) if vector_head == "late_interaction" else batch
    normalizers = objective.normalizers(batch) | objective.loss_weights(jnp.array(1))
    batch = {key: jnp.asarray(x) for key, x in batch.items()}
    whole = objective.whole_batch_loss

    def rngs(index):
        return training_rngs(jax.random.fold_in(rng, index))

    def together(params):
        micros = [{key: x[n::steps] for key, x in batch.items()} for n in range(steps)]
        vectors = [whole.represent(params, (), micro, rngs(n)) for n, micro in enumerate(micros)]
        ordered = jnp.stack(vectors, axis=1).reshape(-1, *vectors[0].shape[1:])
        return whole.loss(params, ordered, batch, normalizers)[0]

    expected, expected_gradients = jax.jit(jax.value_and_grad(together))(params)
    cached = functools.partial(cached_loss_and_gradients, whole, steps, rngs=rngs)
    loss, gradients, _ = jax.jit(cached)(params, (), batch, normalizers)
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    largest = max(float(np.abs(x).max()) for x in jax.tree.leaves(expected_gradients))
    assert largest > 0.01
    for ours, theirs in zip(*map(jax.tree.leaves, (gradients, expected_gradients)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * largest)
