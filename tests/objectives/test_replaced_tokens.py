"""ELECTRA's objective beside torch: the same weights, batches and sampled tokens give the same losses and weights."""

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
from bert_jax.config import PretrainConfig, presets, with_vocab_size
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import Head, make_model, model_flops
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.objectives.base import training_rngs
from bert_jax.objectives.replaced_tokens import (
    EMBEDDING_SHARINGS,
    generator_config,
    replace_tokens,
    sample_tokens,
)
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step
from tests.helpers import torch_training
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.run_data import batches_of
from tests.helpers.slow_cases import quick
from tests.helpers.synthetic import packed_batch, random_batch

STEPS, WARMUP, WEIGHT = 30, 5, 20.0
GENERATOR_HEAD = (Head("masked_token"),)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("replaced"))


def electra_config(corpus: pathlib.Path | None = None, sharing: str = "tied", **model: object) -> PretrainConfig:
    """A generator of half the width; tables narrower than the discriminator, so that both project them."""
    made = c.pretrain_config()
    made.objective = "replaced_tokens"
    made.replaced_tokens.update(generator_size=0.5, weight=WEIGHT, embedding_sharing=sharing)
    made.model.update(family="electra", hidden_size=32, num_layers=2, num_heads=4, mlp_size=64, max_positions=32)
    made.model.update(
        vocab_size=None if corpus else 100, embedding_size=24, dropout=0.0, attention_dropout=0.0, initializer_range=0.1
    )
    made.model.update(masked_activation="gelu", pooler_activation="gelu", pooler_dropout=True, **model)
    made.data.update(corpus=str(corpus) if corpus else None, num_threads=1, prefetch=1)
    made.data.update(sentence_pairs="full_sentences", mask_token_fraction=0.85, random_token_fraction=0.0)
    made.train.update(steps=STEPS, batch_size=8, phases=c.phases({"seq_len": 32}))
    made.optimizer.update(peak_learning_rate=3e-3, warmup_fraction=WARMUP / STEPS, schedule="linear", weight_decay=0.1)
    return c.resolve(c.PretrainConfig, made)


class Electra(torch.nn.Module):
    """Generator and discriminator of `transformers`, with embeddings as in ELECTRA's or in DeBERTa's code."""

    def __init__(self, generator: pathlib.Path, discriminator: pathlib.Path, sharing: str) -> None:
        super().__init__()
        self.generator = transformers.ElectraForMaskedLM.from_pretrained(generator)
        self.discriminator = transformers.ElectraForPreTraining.from_pretrained(discriminator)
        embeddings = self.discriminator.electra.embeddings
        self.tables: list[tuple[torch.nn.Module, torch.nn.Module]] = []  # of the discriminator and of the generator
        if sharing == "tied":
            self.generator.electra.embeddings = embeddings
        self.generator.generator_lm_head.weight = self.generator.electra.embeddings.word_embeddings.weight
        for model in (self.generator, self.discriminator):  # as in Google's code: a sample may be [PAD]
            model.electra.embeddings.word_embeddings.padding_idx = None
        if sharing == "disentangled":
            for name in ("word_embeddings", "position_embeddings"):
                ours, theirs = getattr(embeddings, name), getattr(self.generator.electra.embeddings, name)
                torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=0)
                del ours.weight
                ours.difference = torch.nn.Parameter(torch.zeros_like(theirs.weight))
                self.tables.append((ours, theirs))

    def forward(self, batch: dict[str, np.ndarray], read: tuple[np.ndarray, np.ndarray]) -> list[torch.Tensor]:
        """The losses of generator and discriminator; `read` is what the discriminator reads, and its labels."""
        for ours, theirs in self.tables:
            ours.weight = theirs.weight.detach() + ours.difference
        tensors = {name: torch.tensor(x) for name, x in batch.items()}
        mask, types = tensors["attention_mask"].long(), tensors["token_type_ids"].long()
        labels = torch.full(mask.shape, -100)
        row, number = torch.nonzero(tensors["masked_weights"], as_tuple=True)
        labels[row, tensors["masked_positions"][row, number].long()] = tensors["masked_labels"][row, number].long()
        ids = tensors["input_ids"].long()
        generated = self.generator(input_ids=ids, attention_mask=mask, token_type_ids=types, labels=labels)
        input_ids, replaced = (torch.tensor(np.asarray(x)) for x in read)
        found = self.discriminator(
            input_ids=input_ids.long(), attention_mask=mask, token_type_ids=types, labels=replaced
        )
        return [generated.loss, found.loss]


def generator_of(config: PretrainConfig) -> c.EncoderConfig:
    return generator_config(config.model, config.replaced_tokens)


def both(config: PretrainConfig, params: typing.Any) -> typing.Any:
    """The parameters of the discriminator and of the generator."""
    discriminator, generator = EMBEDDING_SHARINGS[config.replaced_tokens.embedding_sharing].split(params)
    return without_generator(discriminator), generator


def reads(config: PretrainConfig) -> typing.Callable[..., typing.Any]:
    """The function (parameters, batch, key of the step) -> what the discriminator reads, and its labels."""
    generator = make_model(generator_of(config), config.compute, GENERATOR_HEAD)

    @jax.jit
    def read(params: typing.Any, batch: typing.Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        guesses = generator.apply(both(config, params)[1], batch, None)["mlm_logits"]
        return replace_tokens(batch, guesses, training_rngs(key).sampling)

    return read


def written(config: PretrainConfig, params: typing.Any, tokenizer: pathlib.Path, place: pathlib.Path) -> Electra:
    """The parameters as `transformers` reads them back from exported directories."""
    discriminator, generator = both(config, params)
    models = {
        "generator": (generator, generator_of(config), GENERATOR_HEAD),
        "discriminator": (
            discriminator,
            config.model,
            OBJECTIVES[config.objective].heads(config.data.sentence_pairs),
        ),
    }
    for name, (tree, model, heads) in models.items():
        huggingface.export_model(tree, model, heads, tokenizer, place / name)
    return Electra(place / "generator", place / "discriminator", config.replaced_tokens.embedding_sharing)


def without_generator(params: typing.Any) -> typing.Any:
    return {name: x for name, x in params.items() if name != "generator"}


@pytest.mark.parametrize("sharing", quick(EMBEDDING_SHARINGS, "disentangled"))
def test_losses_and_weights_follow_torch(corpus: pathlib.Path, tmp_path: pathlib.Path, sharing: str) -> None:
    """The loss of the first step and its gradients to 1e-5, thirty steps to 1e-4."""
    store = open_mixture(str(corpus))
    tokenizer = load_tokenizer(store.tokenizer_directory)
    config = with_vocab_size(electra_config(corpus, sharing), tokenizer.vocab_size)
    phase = plan_phases(config.train)[0]
    batches = list(itertools.islice(batches_of(config, store)(phase, 0), STEPS))

    objective = make_objective(config)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    state = jax.jit(functools.partial(init_state, config.seed, objective, optimizer))()
    first, read = state, reads(config)
    step = jax.jit(
        functools.partial(
            train_step,
            objective,
            optimizer,
            functools.partial(learning_rate, config.optimizer, plan_phases(config.train)),
            phase.grad_accum_steps,
        )
    )
    ours, seen = [], []
    for batch in batches:
        seen.append(read(state.params, batch, jax.random.fold_in(state.rng, state.step)))
        state, metrics = step(state, batch)
        ours.append([metrics["means"][name].value() for name in ("mlm_loss", "replaced_loss")])

    reference = written(config, first.params, store.tokenizer_directory, tmp_path)
    order = iter(seen)
    parts: list[list[float]] = []

    def loss_of(model: Electra, batch: dict[str, np.ndarray]) -> torch.Tensor:
        masked, replaced = model(batch, next(order))
        parts.append([masked.item(), WEIGHT * replaced.item()])
        return masked + WEIGHT * replaced

    masked, replaced = reference(batches[0], seen[0])
    (masked + WEIGHT * replaced).backward()
    rngs = training_rngs(jax.random.fold_in(first.rng, first.step))
    gradients = jax.jit(
        lambda params, batch: jax.grad(objective.loss, has_aux=True)(
            params, (), batch, rngs, objective.normalizers(batch)
        )[0]
    )(first.params, batches[0])
    compare(config, gradients, {name: x.grad for name, x in reference.named_parameters(remove_duplicate=False)}, 1e-5)
    reference.zero_grad()

    theirs, norms = torch_training.trajectory(reference, loss_of, batches, config.optimizer, WARMUP)
    assert np.mean(theirs[:5]) - np.mean(theirs[-5:]) > 0.5, "the loss hardly moves: the comparison shows nothing"
    assert max(norms) > 1.0, "clipping is never at work"
    np.testing.assert_allclose(ours[0], parts[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.sum(ours, axis=1), theirs, rtol=0, atol=1e-4)
    compare(config, state.params, dict(reference.named_parameters(remove_duplicate=False)), 1e-5)


def compare(config: PretrainConfig, tree: typing.Any, theirs: dict[str, torch.Tensor], tolerance: float) -> None:
    """Both models' trained tensors, but for key biases, whose gradients are rounding error alone."""
    heads = OBJECTIVES[config.objective].heads(config.data.sentence_pairs)
    is_tied = config.replaced_tokens.embedding_sharing == "tied"
    ours = {f"discriminator.{k}": x for k, x in to_tensors(without_generator(tree), config.model, heads).items()}
    stored = both(config, tree)[1] if is_tied else tree["generator"]
    generator = to_tensors(stored, generator_of(config), GENERATOR_HEAD)
    ours |= {f"generator.{k}": x for k, x in generator.items() if "embeddings." not in k or not is_tied}
    theirs = {name.replace(".difference", ".weight"): x for name, x in theirs.items()}
    compared = 0
    for name, x in theirs.items():
        if name in ours and not name.endswith("key.bias"):
            np.testing.assert_allclose(ours[name], x.detach().numpy(), rtol=0, atol=tolerance, err_msg=name)
            compared += 1
    assert compared == len([name for name in ours if not name.endswith("key.bias")])


def test_samples_have_the_probabilities_of_the_softmax() -> None:
    logits = jnp.array([0.0, 1.0, -2.0, 3.0, -1e9])
    many = np.asarray(sample_tokens(jnp.broadcast_to(logits, (100, 4000, 5)), jax.random.PRNGKey(1)))
    found = np.bincount(many.ravel(), minlength=5) / many.size
    expected = np.asarray(jax.nn.softmax(logits))
    deviation = np.sqrt(expected * (1 - expected) / many.size)
    assert np.all(np.abs(found - expected) <= 4 * deviation), (found, expected)
    other = np.asarray(sample_tokens(jnp.broadcast_to(logits, (100, 4000, 5)), jax.random.PRNGKey(2)))
    agree = np.sum(expected**2)
    assert abs((many == other).mean() - agree) < 4 * np.sqrt(agree * (1 - agree) / many.size)


@pytest.mark.parametrize("packing", [1, 4])
def test_replaced_are_the_masks_whose_sample_differs(packing: int) -> None:
    """Against a loop; filler predictions, which may lie on a real token, change nothing."""
    batch = packed_batch(0, 8, 24, 4) if packing > 1 else random_batch(0, 8, 24)
    logits = np.random.default_rng(0).normal(size=(*batch["masked_labels"].shape, 100)).astype(np.float32)
    logits[..., 7] += 4.0  # so that some samples are the original
    batch["masked_labels"][:, ::2] = 7
    key = jax.random.PRNGKey(3)
    sampled = np.asarray(sample_tokens(jnp.asarray(logits), key))
    input_ids, labels = batch["input_ids"].copy(), np.zeros(batch["input_ids"].shape)
    for row, number in np.argwhere(batch["masked_weights"]):
        position = batch["masked_positions"][row, number]
        input_ids[row, position] = sampled[row, number]
        labels[row, position] = sampled[row, number] != batch["masked_labels"][row, number]
    found = replace_tokens(batch, jnp.asarray(logits), key)
    np.testing.assert_array_equal(found[0], input_ids)
    np.testing.assert_array_equal(found[1], labels)
    assert 0 < labels.sum() < batch["masked_weights"].sum()


@pytest.mark.slow
def test_the_discriminator_is_scored_on_every_token_of_real_sequences() -> None:
    """Padding and filler sequences count nothing: the loss of a batch is that of its real rows."""
    config = electra_config()
    objective = make_objective(config)
    params = jax.jit(objective.init)(jax.random.key(0))
    evaluation = training_rngs(jax.random.PRNGKey(0))._replace(dropout=None)

    def measured(batch: dict[str, np.ndarray]) -> typing.Any:
        loss, metrics = objective.loss(params, (), batch, evaluation, objective.normalizers(batch))
        return float(loss), {name: mean.value() for name, mean in metrics.items()}

    whole_batch = random_batch(0, 8, 24)
    filler = {name: x.copy() for name, x in whole_batch.items()}
    for name in ("example_weights", "masked_weights"):
        filler[name][5:] = 0
    real = {name: x[:5] for name, x in whole_batch.items()}
    loss, metrics = measured(filler)
    expected, means = measured(real)
    assert loss == pytest.approx(expected, rel=1e-6)
    assert metrics == pytest.approx(means, rel=1e-6)
    assert loss == pytest.approx(metrics["mlm_loss"] + metrics["replaced_loss"], rel=1e-6)
    assert 0 < metrics["replaced_fraction"] < 0.5


def test_the_generator_has_google_s_sizes() -> None:
    """Published generators of ELECTRA: as deep, a quarter or a third as wide, heads of 64 features, shared tables."""
    for name, size in (("small", 0.25), ("base", 1 / 3), ("large", 0.25)):
        made = c.pretrain_config()
        made.model.update(presets.architecture(f"electra_{name}"))
        made.objective = "replaced_tokens"
        made.replaced_tokens.generator_size = size
        found = generator_of(c.resolve(c.PretrainConfig, made))
        published = presets.PRESETS[f"electra_{name}_generator"]
        assert (found.hidden_size, found.num_heads, found.mlp_size, found.num_layers) == (
            published.hidden_size,
            published.num_heads,
            published.mlp_size,
            published.num_layers,
        )
        assert found.embedding_size == published.embedding_size
    deberta = c.ReplacedTokensConfig(generator_size=1.0, generator_layers=6)  # as wide, half as deep
    assert generator_config(presets.PRESETS["deberta_v3_base"], deberta) == presets.PRESETS["deberta_v3_small"]


def test_flops_add_up_both_models_and_the_head() -> None:
    config = electra_config()
    length, predictions = 32, round(0.15 * 32)
    both = model_flops(config.model, length, 0) + model_flops(generator_of(config), length, predictions)
    assert make_objective(config).flops(length, 0) == both + 6 * length * 32 * 32


@pytest.mark.parametrize("sharing", EMBEDDING_SHARINGS)
def test_both_models_begin_with_the_same_embeddings_and_joining_is_the_inverse_of_splitting(sharing: str) -> None:
    """Two models that share no tables begin with two draws."""
    config = electra_config(sharing=sharing)
    objective, row = make_objective(config), EMBEDDING_SHARINGS[sharing]
    params = jax.jit(objective.init)(jax.random.key(0))
    assert jax.tree.map(lambda x: x.shape, params) == jax.tree.map(lambda x: x.shape, objective.shapes)
    discriminator, generator = both(config, params)
    assert ("embeddings" in params["generator"]["encoder"]) == (sharing != "tied")
    tables = (model["encoder"]["embeddings"]["token"] for model in (discriminator, generator))
    assert np.array_equal(*tables)
    jax.tree.map(np.testing.assert_array_equal, row.join(discriminator, generator), params)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data.sentence_pairs": "next_sentence"}, "no head for config.data.sentence_pairs=next_sentence"),
        ({"replaced_tokens.generator_size": 0.4}, "a generator of 13 features"),
        (
            {"model.initialization": "neighbors", "model.embedding_size": None},
            "the generator of config.objective=replaced_tokens: model.initialization=neighbors needs rotary positions",
        ),
    ],
)
def test_refused_before_anything_is_allocated(values: dict[str, object], words: str) -> None:
    made = c.to_json(electra_config())
    for key, value in values.items():
        *path, last = key.split(".")
        functools.reduce(dict.__getitem__, path, made)[last] = value
    with pytest.raises(UserError, match=words):
        make_objective(c.from_json(made))
