"""Distillation beside torch: the same weights and batches give the same losses, gradients and weights."""

import copy
import functools
import itertools
import pathlib
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from bert_jax import config as c
from bert_jax.config import EncoderConfig, PretrainConfig
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import Head, make_model, model_flops
from bert_jax.objectives import make_objective
from bert_jax.objectives.base import training_rngs
from bert_jax.objectives.distillation import (
    PROJECTION,
    compared_teacher_depths,
    copied_teacher_layers,
    student_params_from_teacher,
)
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step
from tests.helpers import torch_training
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.run_data import batches_of
from tests.helpers.synthetic import NO_DROPOUT, random_batch

STEPS, WARMUP = 30, 5
HEADS = (Head("masked_token"),)
SIZES = {"hidden_size": 32, "num_heads": 4, "mlp_size": 64, "max_positions": 32, "initializer_range": 0.1}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("distillation"))


def teacher_config(vocab_size: int = 100, **values: object) -> EncoderConfig:
    """A BERT of four layers, with dropout, which a teacher does not use."""
    return EncoderConfig(**SIZES | {"vocab_size": vocab_size, "num_layers": 4} | values)


def student_config(corpus: pathlib.Path | None = None, vocab_size: int = 100, **values: object) -> PretrainConfig:
    """A DistilBERT of two layers, without dropout."""
    made = c.pretrain_config()
    made.objective = "distillation"
    made.distillation.update(teacher="the teacher", temperature=3.0, soft_weight=2.0, cosine_weight=0.7)
    made.model.update(SIZES, family="distilbert", vocab_size=vocab_size, num_layers=2, num_token_types=0)
    made.model.update(dropout=0.0, attention_dropout=0.0, pooler_activation="relu")
    made.data.update(corpus=str(corpus) if corpus else None, sentence_pairs="full_sentences")
    made.train.update(steps=STEPS, batch_size=8, phases=c.phases({"seq_len": 32}))
    made.optimizer.update(peak_learning_rate=3e-3, warmup_fraction=WARMUP / STEPS, schedule="linear", weight_decay=0.1)
    for key, value in values.items():
        section, _, name = key.rpartition("__")
        (made[section] if section else made)[name] = value
    return c.resolve(c.PretrainConfig, made)


def drawn(config: EncoderConfig, seed: int) -> typing.Any:
    return jax.jit(make_model(config, c.ComputeConfig(), HEADS).init)(jax.random.key(seed))


class Pair(torch.nn.Module):
    """Student and teacher of `transformers`; the loss of the authors' code, restricted to masked tokens.

    With a `projection` the cosine is replaced by TinyBERT's loss of hidden states and MobileBERT's of attention.
    """

    def __init__(self, student: pathlib.Path, teacher: pathlib.Path, projection: torch.Tensor | None = None) -> None:
        super().__init__()
        self.projection = None if projection is None else torch.nn.Parameter(projection)
        eager = {"attn_implementation": "eager"}  # which returns what the heads read
        self.student = transformers.DistilBertForMaskedLM.from_pretrained(student, **eager)
        teaching = transformers.BertForMaskedLM.from_pretrained(teacher, **eager)
        self.teacher = [teaching.eval()]  # in a list: no parameters of it
        self.student.distilbert.embeddings.word_embeddings.padding_idx = None

    def forward(self, batch: dict[str, np.ndarray]) -> torch.Tensor:
        ids, mask = (torch.tensor(batch[name]).long() for name in ("input_ids", "attention_mask"))
        row, number = np.nonzero(batch["masked_weights"])
        place = row, batch["masked_positions"][row, number]
        labels = torch.tensor(batch["masked_labels"][row, number]).long()
        student = self.student(ids, mask, output_hidden_states=True, output_attentions=True)
        with torch.no_grad():
            teacher = self.teacher[0](ids, mask, output_hidden_states=True, output_attentions=True)
        ours, theirs = student.logits[place], teacher.logits[place]
        masked = torch.nn.functional.cross_entropy(ours, labels)
        soft = torch.nn.KLDivLoss(reduction="batchmean")(
            torch.log_softmax(ours / 3.0, -1), torch.softmax(theirs / 3.0, -1)
        )
        if self.projection is not None:
            apart = [
                torch.nn.functional.mse_loss(ours[mask > 0] @ self.projection, theirs[mask > 0])
                for ours, theirs in zip(student.hidden_states, teacher.hidden_states[::2], strict=True)
            ]
            heads = [
                (torch.xlogy(theirs, theirs) - theirs * torch.log(ours + 1e-30)).sum(-1).mean(1)[mask > 0].mean()
                for ours, theirs in zip(student.attentions, teacher.attentions[1::2], strict=True)
            ]
            return masked + 2.0 * 3.0**2 * soft + 0.5 * sum(apart) / len(apart) + 4.0 * sum(heads) / len(heads)
        ours, theirs = (one.hidden_states[-1][mask > 0] for one in (student, teacher))
        cosine = torch.nn.CosineEmbeddingLoss()(ours, theirs, torch.ones(len(ours)))
        return masked + 2.0 * 3.0**2 * soft + 0.7 * cosine


@pytest.mark.parametrize("width", [pytest.param(None, marks=pytest.mark.slow), 48])
def test_losses_and_weights_follow_torch(corpus: pathlib.Path, tmp_path: pathlib.Path, width: int | None) -> None:
    """The loss of the first step and its gradients to 1e-5, thirty steps to 1e-4."""
    store = open_mixture(str(corpus))
    vocab_size = load_tokenizer(store.tokenizer_directory).vocab_size
    config, teacher = student_config(corpus, vocab_size), teacher_config(vocab_size)
    if width:
        weights = {"cosine_weight": 0.0, "hidden_weight": 0.5, "attention_weight": 4.0}
        layers = {f"distillation__{name}": value for name, value in weights.items()}
        config, teacher = student_config(corpus, vocab_size, **layers), teacher_config(vocab_size, hidden_size=width)
    phase = plan_phases(config.train)[0]
    batches = list(itertools.islice(batches_of(config, store)(phase, 0), STEPS))

    objective = make_objective(config, teacher)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    known = drawn(teacher, 1)
    state = jax.jit(functools.partial(init_state, config.seed, objective, optimizer))()._replace(frozen=known)
    own = {name: x for name, x in state.params.items() if name != PROJECTION}
    huggingface.export_model(own, config.model, HEADS, store.tokenizer_directory, tmp_path / "student")
    huggingface.export_model(known, teacher, HEADS, store.tokenizer_directory, tmp_path / "teacher")
    projection = torch.tensor(np.array(state.params[PROJECTION]["kernel"])) if width else None
    reference = Pair(tmp_path / "student", tmp_path / "teacher", projection)

    reference(batches[0]).backward()
    rngs = training_rngs(state.rng)
    gradients = jax.jit(
        lambda params, batch: jax.grad(objective.loss, has_aux=True)(
            params, known, batch, rngs, objective.normalizers(batch)
        )[0]
    )(state.params, batches[0])
    compare(config, gradients, {name: x.grad for name, x in reference.student.named_parameters()}, 1e-5)
    if reference.projection is not None:
        theirs = reference.projection.grad.numpy()
        np.testing.assert_allclose(gradients[PROJECTION]["kernel"], theirs, rtol=0, atol=1e-5)
    reference.zero_grad()

    step = jax.jit(
        functools.partial(
            train_step,
            objective,
            optimizer,
            functools.partial(learning_rate, config.optimizer, plan_phases(config.train)),
            phase.grad_accum_steps,
        )
    )
    ours = []
    for batch in batches:
        state, metrics = step(state, batch)
        ours.append(sum(x.value() for name, x in metrics["means"].items() if name.endswith("_loss")))
    theirs, norms = torch_training.trajectory(reference, Pair.__call__, batches, config.optimizer, WARMUP)
    assert np.mean(theirs[:5]) - np.mean(theirs[-5:]) > 0.5, "the loss hardly moves: the comparison shows nothing"
    assert max(norms) > 1.0, "clipping is never at work"
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    compare(config, state.params, dict(reference.student.named_parameters()), 1e-5)
    jax.tree.map(np.testing.assert_array_equal, state.frozen, known)


def compare(config: PretrainConfig, tree: typing.Any, theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    """The student's tensors, but for key biases, whose gradients are rounding error alone."""
    tree = {name: x for name, x in tree.items() if name != PROJECTION}
    ours = {name: x for name, x in to_tensors(tree, config.model, HEADS).items() if not name.endswith("k_lin.bias")}
    assert ours.keys() <= theirs.keys()
    for name, x in ours.items():
        np.testing.assert_allclose(x, theirs[name].detach().numpy(), rtol=0, atol=tolerance, err_msg=name)


def test_a_student_equal_to_its_teacher_learns_masked_tokens_alone() -> None:
    """Its probabilities and hidden states do not differ from the teacher's, so neither comparison adds to the loss."""
    config = student_config()
    model = config.model
    objective = make_objective(config, model)
    params, batch = drawn(model, 0), random_batch(0, 8, 24)
    loss, metrics = objective.loss(params, params, batch, NO_DROPOUT, objective.normalizers(batch))
    assert metrics["soft_loss"].value() == pytest.approx(0, abs=1e-5)
    assert metrics["cosine_loss"].value() == pytest.approx(0, abs=1e-6)
    assert float(loss) == pytest.approx(metrics["mlm_loss"].value(), abs=1e-5)
    assert metrics["teacher_accuracy"] == metrics["mlm_accuracy"]


@pytest.mark.slow
def test_a_narrower_student_learns_without_hidden_states() -> None:
    config = student_config(model__hidden_size=16, distillation__cosine_weight=0.0)
    objective = make_objective(config, teacher_config())
    params, batch = jax.jit(objective.init)(jax.random.key(0)), random_batch(0, 8, 24)
    _, metrics = objective.loss(params, drawn(teacher_config(), 1), batch, NO_DROPOUT, objective.normalizers(batch))
    assert metrics.keys() == {"mlm_loss", "mlm_accuracy", "soft_loss", "teacher_accuracy"}


def test_each_layer_is_compared_with_one_of_the_teacher() -> None:
    """TinyBERT: the m-th of 4 with the 3 m-th of 12; the embeddings with the embeddings, the last with the last."""
    assert compared_teacher_depths(4, 12) == [0, 3, 6, 9, 12]
    assert compared_teacher_depths(3, 7) == [0, 2, 5, 7]


def test_a_student_starts_from_the_published_layers() -> None:
    """Of twelve layers 0, 2, 4, 7, 9, 11, as in the authors' code; its first token type is part of its tokens."""
    twelve, config = teacher_config(num_layers=12), student_config(model__num_layers=6)
    assert copied_teacher_layers(config.model.num_layers, 12) == [0, 2, 4, 7, 9, 11]
    assert copied_teacher_layers(1, 12) == [0]
    params = drawn(twelve, 0)
    before = copy.deepcopy(jax.device_get(params))
    student = student_params_from_teacher(params, twelve, config.model)
    jax.tree.map(np.testing.assert_array_equal, params, before)
    jax.tree.map(
        lambda x, y: np.testing.assert_array_equal(x, np.asarray(y)[[0, 2, 4, 7, 9, 11]]),
        student["encoder"]["layers"],
        params["encoder"]["layers"],
    )
    # A teacher of these layers and a student of them see one text alike.
    shallow = {**params, "encoder": {**params["encoder"], "layers": student["encoder"]["layers"]}}
    batch = random_batch(0, 4, 24)
    batch["token_type_ids"][:] = 0
    found, expected = (
        jax.nn.softmax(make_model(one, c.ComputeConfig(), HEADS).apply(tree, batch, None)["mlm_logits"])
        for one, tree in ((config.model, student), (teacher_config(num_layers=6), shallow))
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_flops_are_training_the_student_and_reading_with_the_teacher() -> None:
    config, length = student_config(), 32
    predictions = round(0.15 * length)
    expected = model_flops(config.model, length, predictions) + model_flops(teacher_config(), length, predictions) / 3
    assert make_objective(config, teacher_config()).flops(length, 0) == expected


@pytest.mark.parametrize(
    ("values", "teacher", "words"),
    [
        ({}, None, "needs config.distillation.teacher"),
        ({"data__sentence_pairs": "next_sentence"}, teacher_config(), "no head for config.data.sentence_pairs"),
        ({}, teacher_config(vocab_size=101), "config.model.vocab_size=100 differs from the teacher's 101"),
        (
            {"distillation__hidden_weight": 1.0, "distillation__cosine_weight": 0.0, "init_from": "here"},
            teacher_config(hidden_size=64),
            "learns a projection from 32 to 64 features, which config.init_from does not hold",
        ),
        (
            {"distillation__attention_weight": 1.0},
            teacher_config(num_heads=8),
            r"attention_weight needs as many heads as the teacher's 8 \(here 4\)",
        ),
        (
            {},
            teacher_config(hidden_size=64),
            "hidden_size=32 differs from the teacher's 64; .*cosine_weight=0 and copy_layers=False",
        ),
    ],
)
def test_refused_before_anything_is_allocated(
    values: dict[str, object], teacher: EncoderConfig | None, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        make_objective(student_config(**values), teacher)


def test_layers_of_another_shape_are_not_copied() -> None:
    teacher = teacher_config(mlp_size=128)
    with pytest.raises(UserError, match=r"set config\.distillation\.copy_layers=False"):
        student_params_from_teacher(drawn(teacher, 0), teacher, student_config().model)


def test_a_student_is_not_deeper_than_the_teacher_whose_layers_it_starts_from() -> None:
    teacher = teacher_config(num_layers=1)
    with pytest.raises(UserError, match=r"num_layers=2, more than the teacher's 1, from which a student starts"):
        student_params_from_teacher(drawn(teacher, 0), teacher, student_config(model__num_layers=2).model)


def test_a_field_of_none_is_the_value_that_it_stands_for() -> None:
    teacher = teacher_config(masked_activation=teacher_config().activation)
    assert student_config().model.masked_activation is None
    student_params_from_teacher(drawn(teacher, 0), teacher, student_config().model)


def test_the_teacher_is_an_argument_of_the_step_and_no_constant() -> None:
    config = student_config()
    objective = make_objective(config, teacher_config())
    params, batch = jax.eval_shape(objective.init, jax.random.key(0)), random_batch(0, 8, 24)
    frozen = jax.eval_shape(objective.init_frozen, jax.random.key(0))
    traced = jax.make_jaxpr(lambda *args: objective.loss(*args, NO_DROPOUT, objective.normalizers(batch)))(
        params, frozen, jax.tree.map(jnp.asarray, batch)
    )
    assert max(map(np.size, traced.consts), default=0) <= batch["input_ids"].size
