"""Heads that read neighbors at the start, as transformers computes the attention of an exported model."""

import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.config.presets import PRESETS
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import export_model
from bert_jax.models import Head, make_model
from bert_jax.models.init import OFFSETS
from tests.helpers import tokenizer_directories

LENGTH = 24
CONFIG = dataclasses.replace(PRESETS["modern_tiny"], vocab_size=200, initializer_range=0.08, num_heads=4)


def attentions(config: EncoderConfig, directory) -> np.ndarray:
    """Probabilities of each block: `[layers, batch, heads, queries, keys]`, of random text."""
    heads = (Head("masked_token"),)
    params = jax.device_get(jax.jit(make_model(config, ComputeConfig(), heads).init)(jax.random.key(0)))
    tokenizer = tokenizer_directories.bert(directory, config.vocab_size)
    export_model(params, config, heads, tokenizer, directory / "model")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(directory / "model", attn_implementation="eager").eval()
    text = torch.tensor(np.random.default_rng(0).integers(5, config.vocab_size, (8, LENGTH)))
    with torch.no_grad():
        return np.stack([x.numpy() for x in theirs(input_ids=text, output_attentions=True).attentions])


BERT = dataclasses.replace(PRESETS["tiny"], vocab_size=200, initializer_range=0.08, num_heads=4, max_positions=64)
ROBERTA = dataclasses.replace(BERT, family="roberta", position_offset=1, num_token_types=1, pooler_dropout=True)


@pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, rotary_base=10_000.0), BERT, ROBERTA])
def test_heads_of_the_first_block_read_their_neighbor(config: EncoderConfig, tmp_path) -> None:
    found = attentions(dataclasses.replace(config, initialization="neighbors"), tmp_path)
    queries = np.arange(2, LENGTH - 2)  # every neighbor exists
    for head, offset in enumerate(OFFSETS):
        first, *others = (layer[:, head, queries, queries + offset] for layer in found)
        assert first.mean() > 0.5
        assert (found[0][:, head, queries].argmax(-1) == queries + offset).mean() > 0.8
        assert np.mean(others) < 0.2, "only the first block starts so"


def test_without_the_row_no_head_reads_a_neighbor(tmp_path) -> None:
    found = attentions(dataclasses.replace(CONFIG, initialization="identity_head"), tmp_path)
    queries = np.arange(2, LENGTH - 2)
    for head, offset in enumerate(OFFSETS):
        assert found[0][:, head, queries, queries + offset].mean() < 0.2


@pytest.mark.parametrize("embedding_size", [96, 192, 384])  # tables narrower than the blocks, and as a generator's
def test_neighbors_are_read_through_a_projection(embedding_size: int) -> None:
    config = dataclasses.replace(CONFIG, initialization="neighbors", embedding_size=embedding_size, num_layers=1)
    params = jax.jit(make_model(config, ComputeConfig(), ()).init)(jax.random.key(0))["encoder"]
    text = np.random.default_rng(0).integers(5, config.vocab_size, (8, LENGTH))
    x = np.asarray(params["embeddings"]["token"])[text]
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True) @ np.asarray(params["projection"]["kernel"])
    attention = {name: np.asarray(part["kernel"])[0] for name, part in params["layers"]["attention"].items()}
    half = config.hidden_size // config.num_heads // 2
    angles = np.arange(LENGTH)[:, None] * config.rotary_base ** (-np.arange(half) / half)
    turn = np.exp(1j * angles)[:, None]
    turned = []
    for name in ("query", "key"):
        heads = (x @ attention[name]).reshape(8, LENGTH, config.num_heads, 2, half)
        turned.append((heads[..., 0, :] + 1j * heads[..., 1, :]) * turn)
    scores = np.einsum("bqhd,bkhd->bhqk", turned[0], turned[1].conj()).real
    queries = np.arange(2, LENGTH - 2)
    for head, offset in enumerate(OFFSETS):
        assert (scores[:, head, queries].argmax(-1) == queries + offset).mean() > 0.8


@pytest.mark.parametrize(
    "change",
    [
        {"positions": "relative", "local_rotary_base": None},
        {"positions": "learned", "local_rotary_base": None, "embedding_size": 64},
        {"embedding_norm": False},
        {"embedding_norm": False, "norm_position": "post", "first_attention_norm": True},
        {"norm": "no_norm"},
        {"num_heads": CONFIG.hidden_size, "positions": "learned", "local_rotary_base": None},
    ],
    ids=str,
)
def test_an_architecture_whose_heads_would_not_read_neighbors_is_refused(change) -> None:
    config = dataclasses.replace(CONFIG, initialization="neighbors", **change)
    with pytest.raises(UserError, match=r"model.initialization=neighbors needs rotary positions, or learned positions"):
        make_model(config, ComputeConfig(), ())
