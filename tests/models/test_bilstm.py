"""The BiLSTM below the heads of tasks, compared with PyTorch's."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models import Head, make_model
from bert_jax.models.heads import DIRECTIONS, LSTM_LAYERS, BiLstm

CONFIG = EncoderConfig(family="research", vocab_size=50, hidden_size=12, num_layers=1, num_heads=2, mlp_size=16)
LENGTHS = (7, 3)


@pytest.fixture(scope="module")
def ours():
    x = np.random.default_rng(0).normal(size=(2, 7, 12)).astype(np.float32)
    mask = (np.arange(7) < np.array(LENGTHS)[:, None]).astype(np.int32)
    module = BiLstm(CONFIG, jnp.dtype("float32"))
    # Biases start at 0, which would hide where they are added.
    params = jax.tree.map(lambda p: p + 0.1, nn.unbox(module.init(jax.random.key(0), x, mask)["params"]))
    return module, params, x, mask


def pytorch(params):
    """`torch.nn.LSTM` with the same parameters; its second bias is 0."""
    lstm = torch.nn.LSTM(12, 6, num_layers=LSTM_LAYERS, bidirectional=True, batch_first=True)
    for layer in range(LSTM_LAYERS):
        for direction, suffix in zip(DIRECTIONS, ("", "_reverse"), strict=True):
            one = jax.tree.map(np.asarray, params[f"{direction}_{layer}"])
            values = (one["input"]["kernel"].T, one["recurrent"].T, one["input"]["bias"], np.zeros(24, np.float32))
            for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), values, strict=True):
                getattr(lstm, f"{name}_l{layer}{suffix}").data = torch.tensor(value)
    return lstm


def test_outputs_and_gradients_equal_pytorchs(ours):
    module, params, x, mask = ours
    read = mask[:, :, None]

    def loss(x):
        return jnp.sum(jnp.sin(module.apply({"params": params}, x, mask)) * read)

    theirs = torch.tensor(x, requires_grad=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(theirs, LENGTHS, batch_first=True)
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(pytorch(params)(packed)[0], batch_first=True)
    torch.sum(torch.sin(expected)).backward()
    found = module.apply({"params": params}, x, mask)
    np.testing.assert_allclose(found * read, expected.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(jax.grad(loss)(x), theirs.grad.numpy(), atol=1e-6)


def test_packed_texts_do_not_see_each_other(ours):
    module, params, x, _ = ours
    segments = np.array([[1, 1, 1, 2, 2, 2, 0]], np.int32)
    found = module.apply({"params": params}, x[:1], segments)
    for start in (0, 3):
        alone = pytorch(params)(torch.tensor(x[:1, start : start + 3]))[0]
        np.testing.assert_allclose(found[:, start : start + 3], alone.detach().numpy(), atol=1e-6)


def test_heads_of_tasks_read_it_and_others_do_not():
    ids = jnp.ones((1, 4), jnp.int32)
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": ids, "masked_positions": ids[:, :1]}
    heads = (Head("masked_token"), Head("token_classification", 3))
    with_lstm, without = (
        make_model(dataclasses.replace(CONFIG, bilstm=bilstm), ComputeConfig(), heads) for bilstm in (True, False)
    )
    params = jax.jit(with_lstm.init)(jax.random.key(0))
    found, plain = with_lstm.apply(params, batch, None), without.apply(params, batch, None)
    np.testing.assert_array_equal(found["mlm_logits"], plain["mlm_logits"])
    assert np.abs(found["token_logits"] - plain["token_logits"]).max() > 1e-4
    assert set(params) - set(without.shapes) == {"bilstm"}
