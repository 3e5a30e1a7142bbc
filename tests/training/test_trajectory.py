"""Fifty steps beside torch: the same weights and batches give the same loss at every step, and the same weights after.

The other side is `transformers.BertForPreTraining` or, for the order of sentences, `AlbertForPreTraining`, under
`torch.optim.AdamW`, with the schedule of `transformers` and the clipping of torch; nothing of it is ours but the
initial weights, which pass through an exported directory.
"""

import functools
import itertools
import pathlib
import typing
from collections.abc import Callable

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax import config as c
from bert_jax.config import PretrainConfig, with_vocab_size
from bert_jax.corpus.mixture import open_mixture
from bert_jax.interop import huggingface
from bert_jax.interop.tensors import to_tensors
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step
from tests.helpers import torch_training
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.reference import reference_loss
from tests.helpers.run_data import batches_of

STEPS, WARMUP = 50, 5


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("trajectory"))


def trajectory_config(corpus: pathlib.Path, sentence_pairs: str, **model: object) -> PretrainConfig:
    made = c.pretrain_config()
    made.model.update(hidden_size=32, num_layers=2, num_heads=4, mlp_size=64, max_positions=32)
    made.model.update(model, dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0)
    made.data.update(corpus=str(corpus), num_threads=1, prefetch=1, sentence_pairs=sentence_pairs)
    made.train.update(steps=STEPS, batch_size=8, phases=c.phases({"seq_len": 32}))
    made.optimizer.update(peak_learning_rate=3e-3, warmup_fraction=WARMUP / STEPS, schedule="linear", weight_decay=0.1)
    return c.resolve(c.PretrainConfig, made)


def albert_loss(model: transformers.AlbertForPreTraining, batch: dict[str, np.ndarray]) -> torch.Tensor:
    """The model's own loss of masked tokens, whose labels stand where the masks are, and of the order of sentences."""
    inputs = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "token_type_ids", "attention_mask")}
    labels = np.full_like(batch["input_ids"], -100)
    sequence, number = np.nonzero(batch["masked_weights"])
    labels[sequence, batch["masked_positions"][sequence, number]] = batch["masked_labels"][sequence, number]
    order = torch.tensor(batch["next_sentence_labels"]).long()
    return model(**inputs, labels=torch.tensor(labels).long(), sentence_order_label=order).loss


ALBERT = {"family": "albert", "share_layers": True, "embedding_size": 16}
NEXT_SENTENCE = ("next_sentence", transformers.BertForPreTraining, reference_loss)


@pytest.mark.parametrize(
    ("sentence_pairs", "kind", "loss_of", "model"),
    [
        pytest.param(*NEXT_SENTENCE, {"activation": "gelu"}, id="gelu"),
        pytest.param(*NEXT_SENTENCE, {"activation": "gelu_tanh"}, id="gelu_tanh", marks=pytest.mark.slow),
        pytest.param(
            "sentence_order", transformers.AlbertForPreTraining, albert_loss, ALBERT, id="sentence_order of albert"
        ),
    ],
)
def test_losses_and_weights_follow_torch(
    corpus: pathlib.Path,
    tmp_path: pathlib.Path,
    sentence_pairs: str,
    kind: type,
    loss_of: Callable[[typing.Any, dict[str, np.ndarray]], torch.Tensor],
    model: dict[str, object],
) -> None:
    store = open_mixture(str(corpus))
    tokenizer = load_tokenizer(store.tokenizer_directory)
    config = with_vocab_size(trajectory_config(corpus, sentence_pairs, **model), tokenizer.vocab_size)
    phase = plan_phases(config.train)[0]
    batches = list(itertools.islice(batches_of(config, store)(phase, 0), STEPS))
    assert len({batch["input_ids"].tobytes() for batch in batches}) == STEPS

    objective = make_objective(config)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    state = jax.jit(functools.partial(init_state, config.seed, objective, optimizer))()
    heads = OBJECTIVES[config.objective].heads(config.data.sentence_pairs)
    huggingface.export_model(state.params, config.model, heads, store.tokenizer_directory, tmp_path / "initial")
    reference = kind.from_pretrained(tmp_path / "initial")
    theirs, norms = torch_training.trajectory(reference, loss_of, batches, config.optimizer, WARMUP)
    final = {name: x.detach().numpy() for name, x in reference.state_dict().items()}

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
        means = metrics["means"]
        ours.append(sum(x.value() for name, x in means.items() if name.endswith("_loss")))

    assert np.mean(theirs[:5]) - np.mean(theirs[-5:]) > 0.5, "the loss hardly moves: the comparison shows nothing"
    assert min(norms) < 1.0 < max(norms), "clipping is never or always at work"
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    # The padding's embedding gets a gradient that is little more than rounding, of which Adam makes a full step.
    weights = to_tensors(state.params, config.model)
    for name, tensor in weights.items():
        rows = slice(tokenizer.pad_id + 1, None) if name.endswith("word_embeddings.weight") else ...
        np.testing.assert_allclose(tensor[rows], final[name][rows], rtol=0, atol=5e-6, err_msg=name)
