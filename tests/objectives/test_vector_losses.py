"""Losses of sentence vectors: values and gradients beside the classes of sentence-transformers, and as loops."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
import transformers
from sentence_transformers.sentence_transformer import losses as published

from bert_jax.config import ComputeConfig, TaskConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import Head, make_model
from bert_jax.models.heads import scale_to_unit_length
from bert_jax.objectives import vector_losses
from bert_jax.objectives.frozen_encoder import with_frozen_encoder
from bert_jax.objectives.tasks import make_task_objective
from bert_jax.objectives.vector_losses import (
    MIN_BLOCK_ROWS,
    VECTOR_LOSSES,
    VectorLabels,
    VectorLossOptions,
    info_nce,
    num_score_blocks,
)
from bert_jax.objectives.vectors import LOG_TEMPERATURE
from bert_jax.training.step import init_state, train_step
from tests.helpers.synthetic import NO_DROPOUT, random_batch
from tests.helpers.tiny_models import save

EXAMPLES, WIDTH, TEMPERATURE = 12, 8, 0.3


def margin_mse(texts, labels):
    scaled = [text / TEMPERATURE**0.5 for text in texts]
    return published.MarginMSELoss(None).compute_loss_from_embeddings(scaled, labels.scores)


def teacher_kl(texts, labels):
    loss = published.DistillKLDivLoss(None, student_temperature=TEMPERATURE, teacher_temperature=1.7)
    return loss.compute_loss_from_embeddings(texts, labels.scores)


def cosent(texts, labels):
    return published.CoSENTLoss(None, scale=1 / TEMPERATURE).compute_loss_from_embeddings(texts, labels.grades)


def triplet(texts, labels):
    """The class takes a single negative."""
    loss = published.TripletLoss(None, published.TripletDistanceMetric.COSINE, triplet_margin=0.4)
    return sum(loss.compute_loss_from_embeddings([*texts[:2], text], None) for text in texts[2:]) / len(texts[2:])


def ranking(texts, labels, **options):
    loss = published.MultipleNegativesRankingLoss(None, scale=1 / TEMPERATURE, **options)
    return loss.compute_loss_from_embeddings(texts, None)


def symmetric(texts, labels):
    return ranking(texts, labels, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction")


def self_guided_loss():
    """The loss of a model that guides itself; its margin has the other sign."""
    loss = object.__new__(published.GISTEmbedLoss)
    torch.nn.Module.__init__(loss)
    loss.model = loss.guide = torch.nn.Identity()
    loss.tokenizer, loss.must_retokenize, loss.gather_across_devices = None, False, False
    loss.temperature, loss.margin_strategy, loss.margin = TEMPERATURE, "absolute", -0.1
    loss.contrast_anchors = loss.contrast_positives = False
    loss.similarity_fct = torch.nn.CosineSimilarity(dim=-1)
    loss.cross_entropy_loss = torch.nn.CrossEntropyLoss()
    return loss


# Name -> (row, options, number of texts, loss of the published class).
CASES = {
    "info_nce": ("info_nce", {}, 2, ranking),
    "info_nce with negatives": ("info_nce", {}, 5, ranking),
    "symmetric": ("info_nce", {"symmetric": True}, 2, symmetric),
    "margin_mse": ("margin_mse", {}, 3, margin_mse),
    "margin_mse with negatives": ("margin_mse", {}, 5, margin_mse),
    "teacher_kl": ("teacher_kl", {"score_temperature": 1.7}, 4, teacher_kl),
    "cosent": ("cosent", {}, 2, cosent),
    "triplet": ("triplet", {"triplet_margin": 0.4}, 3, triplet),
    "triplet with negatives": ("triplet", {"triplet_margin": 0.4}, 5, triplet),
}


def random_labels(texts: int, seed: int = 0) -> VectorLabels:
    rng = np.random.default_rng(seed)
    return VectorLabels(
        weights=np.ones(EXAMPLES, np.float32),
        text_ids=np.arange(EXAMPLES * texts, dtype=np.int32).reshape(EXAMPLES, texts),
        grades=rng.integers(0, 5, EXAMPLES).astype(np.float32),  # some are equal
        scores=rng.normal(size=(EXAMPLES, texts - 1)).astype(np.float32),
    )


def random_vectors(texts: int, seed: int = 1) -> np.ndarray:
    """Texts of an example are alike, so that losses differ between examples."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(EXAMPLES, 1, WIDTH)) + rng.normal(size=(EXAMPLES, texts, WIDTH))).astype(np.float32)


def loss_and_gradient(name, raw, labels, options):
    labels = VectorLabels(*map(jnp.asarray, labels))

    def mean_loss(raw):
        losses, _ = vector_losses.vector_losses(
            name, scale_to_unit_length(raw), labels, TEMPERATURE, VectorLossOptions(**options)
        )
        return jnp.sum(losses * labels.weights) / labels.weights.sum()

    return jax.jit(jax.value_and_grad(mean_loss))(jnp.asarray(raw))


def torch_loss_and_gradient(raw, labels, loss_of):
    leaf = torch.tensor(raw, requires_grad=True)
    loss = loss_of(torch.nn.functional.normalize(leaf, dim=-1).unbind(1), labels)
    loss.backward()
    return loss.item(), leaf.grad.numpy()


def in_torch(labels):
    return VectorLabels(*(None if x is None else torch.tensor(x) for x in labels))


@pytest.mark.parametrize("blocks", ["one block", "blocks of two rows"])
@pytest.mark.parametrize("case", CASES)
def test_losses_and_gradients_equal_sentence_transformers(monkeypatch, case, blocks):
    name, options, texts, loss_of = CASES[case]
    if blocks != "one block":
        monkeypatch.setattr(vector_losses, "MIN_BLOCK_ROWS", 2)
        monkeypatch.setattr(vector_losses, "BLOCK_SCORES", 1)
    raw, labels = random_vectors(texts), random_labels(texts)
    loss, gradient = loss_and_gradient(name, raw, labels, options)
    expected, expected_gradient = torch_loss_and_gradient(raw, in_torch(labels), loss_of)
    assert expected > 0.01
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_matryoshka_is_the_mean_over_the_widths(case):
    name, options, texts, loss_of = CASES[case]
    raw, labels, sizes = random_vectors(texts), random_labels(texts), (2, 5)

    def at_all_widths(embeddings, labels):
        """`MatryoshkaLoss` decorates a model, so this calls its two functions at each width."""
        total = 0
        for size in (*sizes, WIDTH):
            total += loss_of([published.matryoshka.shrink(text, size) for text in embeddings], labels) / 3
        return total

    loss, gradient = loss_and_gradient(name, raw, labels, options | {"matryoshka_sizes": sizes})
    expected, expected_gradient = torch_loss_and_gradient(raw, in_torch(labels), at_all_widths)
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-5)


@pytest.mark.parametrize("texts", [2, 3])
def test_likely_false_negatives_are_left_out_as_a_guide_of_sentence_transformers_does(monkeypatch, texts):
    raw, labels = random_vectors(texts), random_labels(texts)
    loss = self_guided_loss()
    monkeypatch.setattr("sentence_transformers.sentence_transformer.losses.gist_embed.embed_columns", lambda m, x: x)

    # `forward` copies each column with `dict`; the columns here are vectors.
    monkeypatch.setattr("sentence_transformers.sentence_transformer.losses.gist_embed.dict", lambda x: x, raising=False)
    expected, expected_gradient = torch_loss_and_gradient(
        raw, in_torch(labels), lambda embeddings, labels: loss(list(embeddings), None)
    )
    unguided, _ = torch_loss_and_gradient(raw, in_torch(labels), ranking)
    found, gradient = loss_and_gradient("info_nce", raw, labels, {"false_negative_margin": 0.1})
    assert abs(expected - unguided) > 0.01, "nothing is left out: the comparison shows nothing"
    assert float(found) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_absent_examples_change_nothing(case):
    name, options, texts, loss_of = CASES[case]
    raw, labels = random_vectors(texts), random_labels(texts)
    weights = np.float32(np.arange(EXAMPLES) % 3 > 0)
    present = weights > 0
    loss, gradient = loss_and_gradient(name, raw, labels._replace(weights=weights), options)
    kept = VectorLabels(*(torch.tensor(x[present]) for x in labels))
    expected, expected_gradient = torch_loss_and_gradient(raw[present], kept, loss_of)
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(gradient[present], expected_gradient, rtol=0, atol=1e-5)
    assert not np.any(gradient[~present])


def test_cosent_is_the_sum_over_all_pairs_of_different_grades():
    raw, labels = random_vectors(2), random_labels(2)
    unit = np.asarray(scale_to_unit_length(jnp.asarray(raw)))
    scores = (unit[:, 0] * unit[:, 1]).sum(-1) / TEMPERATURE
    total = sum(
        np.exp(scores[i] - scores[j])
        for i in range(EXAMPLES)
        for j in range(EXAMPLES)
        if labels.grades[i] < labels.grades[j]
    )
    loss, _ = loss_and_gradient("cosent", raw, labels, {})
    assert float(loss) == pytest.approx(np.log(1 + total), abs=1e-5)


@pytest.mark.parametrize("blocks", ["one block", "blocks of one row"])
def test_right_answers_are_no_negatives(monkeypatch, blocks):
    """A text equal to one of the pair, and the second text of an equal first one."""
    if blocks != "one block":
        monkeypatch.setattr(vector_losses, "MIN_BLOCK_ROWS", 1)
        monkeypatch.setattr(vector_losses, "BLOCK_SCORES", 1)
    texts = [
        ("ab", "cd", "kl"),
        ("ab", "ef", "cd"),  # an equal first text; its negative is the first example's right answer
        ("gh", "cd", "yy"),  # an equal second text
        ("ij", "gh", "ij"),  # its second text is another example's first one; its negative is its own first text
        ("gh", "kl", "ab"),  # not a positive
    ]
    rng, positives = np.random.default_rng(0), np.array([1, 1, 1, 1, 0], np.float32)
    outputs = rng.normal(size=(5, 3, 8)).astype(np.float32)
    outputs /= np.linalg.norm(outputs, axis=-1, keepdims=True)
    names = sorted({text for row in texts for text in row})
    ids = np.array([[names.index(text) - 3 for text in row] for row in texts], np.int32)
    losses, _ = info_nce(
        jnp.asarray(outputs), VectorLabels(jnp.asarray(positives), jnp.asarray(ids)), 0.5, VectorLossOptions()
    )
    for i in np.flatnonzero(positives):
        right = {texts[i][1]} | {second for first, second, _ in np.array(texts)[positives > 0] if first == texts[i][0]}
        same = right | {texts[i][0]}
        rivals = [(j, t) for j in np.flatnonzero(positives) for t in (1, 2) if texts[j][t] not in same]
        scores = [outputs[i, 0] @ outputs[j, t] / 0.5 for j, t in [(i, 1), *rivals]]
        assert losses[i] == pytest.approx(np.log(np.sum(np.exp(scores))) - scores[0], rel=1e-5)
    assert len(rivals) == 6  # of the last positive, ij: nothing is left out but its second text and its negative


def test_the_nearest_of_orthogonal_vectors_is_right():
    vectors = np.eye(4, dtype=np.float32)
    labels = VectorLabels(jnp.ones(4), jnp.arange(8).reshape(4, 2))
    loss, correct = info_nce(jnp.stack([vectors, vectors], axis=1), labels, 0.05, VectorLossOptions())
    np.testing.assert_allclose(loss, np.log(1 + 3 * np.exp(-20)), atol=1e-6)
    assert correct.tolist() == [1, 1, 1, 1]
    swapped = jnp.stack([vectors, vectors[[1, 0, 3, 2]]], axis=1)
    loss, correct = info_nce(swapped, labels, 0.05, VectorLossOptions())
    np.testing.assert_allclose(loss, 20, atol=1e-5)
    assert correct.tolist() == [0, 0, 0, 0]


def test_blocks_divide_the_rows():
    assert num_score_blocks(64, 64) == 1
    assert num_score_blocks(4_096, 4_096) == 256
    assert num_score_blocks(1 << 16, 1 << 17) == (1 << 16) // MIN_BLOCK_ROWS
    assert num_score_blocks(97, 1 << 20) == 97  # a prime number


def encoder_batch(texts: int, first_row: int = 0) -> dict[str, np.ndarray]:
    labels = random_labels(texts)
    columns = [random_batch(first_row + EXAMPLES * n, EXAMPLES, 16) for n in range(texts)]
    inputs = ("input_ids", "token_type_ids", "attention_mask")
    batch = {name: np.stack([column[name] for column in columns], axis=1) for name in inputs}
    batch["input_ids"] %= 20
    batch["token_type_ids"] *= 0
    batch |= {"text_ids": labels.text_ids, "grades": labels.grades, "scores": labels.scores}
    return batch | dict.fromkeys(("positives", "example_weights"), labels.weights)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("encoder")
    save(directory, "bert", "Model", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    loaded = load_model(directory, (Head("sentence_embedding"),))
    return loaded, make_model(loaded.config, ComputeConfig(), loaded.heads), directory


@pytest.mark.parametrize("case", ["info_nce with negatives", "margin_mse", "teacher_kl", "cosent", "triplet"])
def test_gradients_of_an_encoder_equal_torch(encoder, case):
    name, options, texts, loss_of = CASES[case]
    loaded, model, directory = encoder
    settings, batch = TaskConfig(vector_loss=name, temperature=TEMPERATURE, **options), encoder_batch(texts)
    objective = make_task_objective(model, "similarity", False, settings)
    (loss, _), gradients = jax.jit(jax.value_and_grad(objective.loss, has_aux=True))(
        jax.tree.map(jnp.asarray, loaded.params), (), batch, NO_DROPOUT, objective.normalizers(batch)
    )
    theirs = transformers.BertModel.from_pretrained(directory).eval()
    theirs.get_input_embeddings().padding_idx = None
    vectors = []
    for text in range(texts):
        ids, mask = (torch.tensor(batch[key][:, text]).long() for key in ("input_ids", "attention_mask"))
        hidden = theirs(ids, mask).last_hidden_state
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        vectors.append(torch.nn.functional.normalize(mean))
    expected = loss_of(vectors, in_torch(random_labels(texts)))
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), abs=1e-5)
    wanted = dict(theirs.named_parameters())
    for key, x in to_tensors(gradients, loaded.config, loaded.heads).items():
        np.testing.assert_allclose(x, wanted[key].grad.numpy(), rtol=0, atol=1e-5, err_msg=key)


def test_the_gradient_of_a_learned_temperature_equals_torch(encoder):
    _, model, _ = encoder
    batch = encoder_batch(2)
    settings = TaskConfig(temperature=TEMPERATURE, learned_temperature=True)
    objective = make_task_objective(model, "similarity", False, settings)
    params = jax.jit(objective.init)(jax.random.key(0))
    assert np.exp(params[LOG_TEMPERATURE]) == pytest.approx([TEMPERATURE])
    (loss, metrics), gradients = jax.jit(jax.value_and_grad(objective.loss, has_aux=True))(
        params, (), batch, NO_DROPOUT, objective.normalizers(batch)
    )
    vectors = torch.tensor(np.asarray(jax.jit(model.apply)(params, batch, None)["sentence_vectors"]))
    log_temperature = torch.tensor(np.log(TEMPERATURE), requires_grad=True)
    cosines = vectors[:, 0] @ vectors[:, 1].T
    expected = torch.nn.functional.cross_entropy(cosines / log_temperature.exp(), torch.arange(EXAMPLES))
    expected.backward()
    assert float(loss) == pytest.approx(expected.item(), abs=1e-5)
    assert gradients[LOG_TEMPERATURE].item() == pytest.approx(log_temperature.grad.item(), abs=1e-5)
    assert metrics["temperature"].value() == pytest.approx(TEMPERATURE)


@pytest.mark.parametrize("is_adapter", [False, True])
def test_a_learned_temperature_stays_at_its_minimum_and_rises_at_once(encoder, is_adapter):
    """As in CLIP, the update is bounded, so the parameter holds no steps below the minimum that it must take back."""
    loaded, model, _ = encoder
    batch, minimum = encoder_batch(2), 0.01
    settings = TaskConfig(temperature=1.1 * minimum, learned_temperature=True)
    objective = make_task_objective(model, "similarity", False, settings)
    objective = with_frozen_encoder(objective, loaded.config.num_layers) if is_adapter else objective

    def temperature_after(gradients):
        """Return the temperature after steps of gradient descent, whose rate is 1, with these gradients of its log."""
        state = init_state(0, objective, optax.sgd)
        for gradient in gradients:
            step = dataclasses.replace(
                objective, loss=lambda params, *_, factor=gradient: (factor * params[LOG_TEMPERATURE][0], {})
            )
            state, _ = train_step(step, optax.sgd, lambda _: 1.0, 1, state, batch)
        return float(np.exp(state.params[LOG_TEMPERATURE][0]))

    assert temperature_after([0.05]) == pytest.approx(1.1 * minimum * np.exp(-0.05), rel=1e-5)
    assert temperature_after([0.5] * 3) == pytest.approx(minimum, rel=1e-5)
    assert temperature_after([0.5, 0.5, -0.2]) == pytest.approx(minimum * np.exp(0.2), rel=1e-5)


def test_a_learned_temperature_below_its_minimum_is_refused(encoder):
    with pytest.raises(UserError, match=r"task.temperature=0.005: a learned temperature is at least 0.01; raise"):
        make_task_objective(encoder[1], "similarity", False, TaskConfig(temperature=0.005, learned_temperature=True))


def test_every_row_has_a_published_reference():
    assert {row for row, _, _, _ in CASES.values()} == set(VECTOR_LOSSES)
