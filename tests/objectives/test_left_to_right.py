"""Left to right beside torch: `BertLMHeadModel` with a causal mask gives the same losses, gradients and weights."""

import dataclasses
import functools
import itertools
import pathlib
import typing

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax import config as c
from bert_jax.config import PretrainConfig, with_vocab_size
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import Head, make_model
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.objectives.base import training_rngs
from bert_jax.objectives.losses import original_tokens
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step
from tests.helpers import torch_training
from tests.helpers.family_cases import CASES, Case
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.run_data import batches_of
from tests.helpers.synthetic import NO_DROPOUT, packed_batch, random_batch, unpacked

STEPS, WARMUP = 30, 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("causal"))


def causal_config(corpus: pathlib.Path | None = None, **model: object) -> PretrainConfig:
    made = c.pretrain_config()
    made.objective = "left_to_right"
    made.model.update(hidden_size=32, num_layers=2, num_heads=4, mlp_size=64, max_positions=32, causal=True)
    made.model.update(vocab_size=None if corpus else 100, dropout=0.0, attention_dropout=0.0, initializer_range=0.1)
    made.model.update(model)
    made.data.update(corpus=str(corpus) if corpus else None, sentence_pairs="full_sentences")
    made.train.update(steps=STEPS, batch_size=8, phases=c.phases({"seq_len": 32}))
    made.optimizer.update(peak_learning_rate=3e-3, warmup_fraction=WARMUP / STEPS, schedule="linear", weight_decay=0.1)
    return c.resolve(c.PretrainConfig, made)


def read_text(model: transformers.BertLMHeadModel, batch: dict[str, np.ndarray]) -> torch.Tensor:
    """The model's own loss of the text without masks; it shifts the labels itself."""
    ids, mask = (torch.tensor(np.asarray(x)).long() for x in (original_tokens(batch), batch["attention_mask"]))
    types = torch.tensor(batch["token_type_ids"]).long()
    labels = ids.masked_fill(mask == 0, -100)
    return model(input_ids=ids, attention_mask=mask, token_type_ids=types, labels=labels).loss


def test_losses_and_weights_follow_torch(corpus: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The loss of the first step and its gradients to 1e-5, thirty steps to 1e-4."""
    store = open_mixture(str(corpus))
    config = with_vocab_size(causal_config(corpus), load_tokenizer(store.tokenizer_directory).vocab_size)
    heads = OBJECTIVES[config.objective].heads(config.data.sentence_pairs)
    phase = plan_phases(config.train)[0]
    batches = list(itertools.islice(batches_of(config, store)(phase, 0), STEPS))
    objective = make_objective(config)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    state = jax.jit(functools.partial(init_state, config.seed, objective, optimizer))()
    huggingface.export_model(state.params, config.model, heads, store.tokenizer_directory, tmp_path / "model")
    reference = transformers.BertLMHeadModel.from_pretrained(tmp_path / "model")
    assert reference.config.is_decoder
    reference.get_input_embeddings().padding_idx = None

    read_text(reference, batches[0]).backward()
    gradients = jax.jit(
        lambda params, batch: jax.grad(objective.loss, has_aux=True)(
            params, (), batch, training_rngs(state.rng), objective.normalizers(batch)
        )[0]
    )(state.params, batches[0])
    compare(config, gradients, {name: x.grad for name, x in reference.named_parameters()}, 1e-5)
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
        ours.append(metrics["means"]["next_token_loss"].value())
    theirs, norms = torch_training.trajectory(reference, read_text, batches, config.optimizer, WARMUP)
    assert np.mean(theirs[:5]) - np.mean(theirs[-5:]) > 0.5, "the loss hardly moves: the comparison shows nothing"
    assert max(norms) > 1.0, "clipping is never at work"
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    compare(config, state.params, dict(reference.named_parameters()), 1e-5)


def compare(config: PretrainConfig, tree: typing.Any, theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    """The tensors, but for key biases, whose gradients are rounding error alone."""
    tensors = to_tensors(tree, config.model, OBJECTIVES[config.objective].heads(config.data.sentence_pairs))
    for name, x in tensors.items():
        if not name.endswith("key.bias"):
            np.testing.assert_allclose(x, theirs[name].detach().numpy(), rtol=0, atol=tolerance, err_msg=name)


def measured(config: PretrainConfig, batch: dict[str, np.ndarray]) -> tuple[float, typing.Any]:
    objective = make_objective(config)
    params = jax.jit(objective.init)(jax.random.key(0))
    loss, metrics = jax.jit(lambda b: objective.loss(params, (), b, NO_DROPOUT, objective.normalizers(b)))(batch)
    return float(loss), metrics


@pytest.mark.slow
def test_packed_sequences_train_like_their_examples_alone() -> None:
    packed = packed_batch(0, 8, 24, 4)
    loss, metrics = measured(causal_config(), packed)
    alone, expected = measured(causal_config(), unpacked(packed))
    assert loss == pytest.approx(alone, rel=1e-6)
    assert metrics["next_token_loss"].weight == expected["next_token_loss"].weight
    # Every token but the first of each example.
    assert metrics["next_token_loss"].weight == packed["attention_mask"].sum() - packed["example_weights"].sum()


@pytest.mark.parametrize("positions", ["learned", "rotary", "relative"])
@pytest.mark.parametrize("scan_layers", [True, False])
def test_no_token_reads_a_later_token(positions: str, scan_layers: bool) -> None:
    config = causal_config(positions=positions, family="research")
    compute = c.ComputeConfig(scan_layers=scan_layers)
    model = make_model(config.model, compute, OBJECTIVES[config.objective].heads(config.data.sentence_pairs))
    params, batch = jax.jit(model.init)(jax.random.key(0)), random_batch(0, 4, 24)
    batch["attention_mask"][:] = 1
    other = {name: x.copy() for name, x in batch.items()}
    other["input_ids"][:, 12:] = (other["input_ids"][:, 12:] + 1) % 100
    found, changed = (np.asarray(jax.jit(model.apply)(params, b, None)["next_logits"]) for b in (batch, other))
    np.testing.assert_array_equal(found[:, :12], changed[:, :12])
    assert np.abs(found[:, 12:] - changed[:, 12:]).max(axis=-1).min() > 0


@pytest.mark.parametrize(
    "case", {case.ours.family: case for case in CASES.values()}.values(), ids=lambda x: x.ours.family
)
def test_no_token_of_a_causal_family_reads_a_later_token(case: Case) -> None:
    """A family whose embeddings contain the next token is refused."""
    config = dataclasses.replace(case.ours, causal=True)
    if config.trigram_embeddings:
        with pytest.raises(UserError, match=r"model\.trigram_embeddings=True shows a causal model the next token"):
            make_model(config, c.ComputeConfig(), (Head("next_token"),))
        return
    model, random, half = make_model(config, c.ComputeConfig(), (Head("next_token"),)), np.random.default_rng(0), 4
    params = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32) / 5, model.shapes)
    ids = np.tile(random.integers(5, 100, case.length, dtype=np.int32), (2, 1))
    ids[1, half:] += 1
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": 0 * ids + 1}
    found, changed = np.asarray(jax.jit(model.apply)(params, batch, None)["next_logits"])
    np.testing.assert_array_equal(found[:half], changed[:half])
    assert np.abs(found[half:] - changed[half:]).max(axis=-1).min() > 0


def test_flops_count_the_pairs_that_are_read() -> None:
    """Weights of the blocks and of the head at each position; 12 per feature and pair of a query and an earlier key."""
    width, layers, length, vocabulary = 32, 2, 20, 100
    block = 4 * width * width + 2 * width * 64
    pairs = sum(range(1, length + 1))
    head = 6 * (width * vocabulary + width * width)
    expected = length * layers * 6 * block + layers * 12 * width * pairs + (length - 1) * head
    assert make_objective(causal_config()).flops(length, 0) == expected


def test_filler_sequences_count_nothing() -> None:
    batch = random_batch(0, 8, 24)
    batch["example_weights"][5:] = 0
    loss, _ = measured(causal_config(), batch)
    expected, _ = measured(causal_config(), {name: x[:5] for name, x in batch.items()})
    assert loss == pytest.approx(expected, rel=1e-6)


def test_refused_before_anything_is_allocated() -> None:
    with pytest.raises(UserError, match=r"needs config\.model\.causal=True"):
        make_objective(causal_config(causal=False))
    values = c.to_json(causal_config())
    values["data"]["sentence_pairs"] = "sentence_order"
    with pytest.raises(UserError, match=r"no head for config\.data\.sentence_pairs=sentence_order"):
        make_objective(c.from_json(values))
    values = c.to_json(causal_config())
    values["compute"]["attention"] = "cudnn"
    values["compute"]["dtype"] = "bfloat16"
    with pytest.raises(UserError, match=r"needs config\.model\.causal=False"):
        make_objective(c.from_json(values))


@pytest.mark.parametrize(("objective", "causal"), [("left_to_right", False), ("masked_tokens", True)])
def test_an_objective_refuses_the_wrong_attention_mask(corpus: pathlib.Path, objective: str, causal: bool) -> None:
    config = dataclasses.replace(causal_config(corpus, causal=causal), objective=objective)
    with pytest.raises(UserError, match=f"objective={objective} needs config.model.causal={not causal}"):
        make_objective(config)
