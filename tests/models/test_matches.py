"""A head that matches words of two texts at the start, as transformers computes the attention of an exported model."""

import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.config import ComputeConfig
from bert_jax.config.presets import PRESETS
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import export_model
from bert_jax.models import Head, make_model
from bert_jax.models.init import OFFSETS
from tests.helpers import tokenizer_directories

CONFIG = dataclasses.replace(
    PRESETS["nomic_bert_mini"], vocab_size=300, initializer_range=0.07, rotary_base=10_000.0, num_layers=1
)
HALF = 60  # tokens of a text


def test_the_last_head_of_the_first_block_reads_its_token_in_the_other_text(tmp_path) -> None:
    config, heads = dataclasses.replace(CONFIG, initialization="matches"), (Head("masked_token"),)
    params = jax.device_get(jax.jit(make_model(config, ComputeConfig(), heads).init)(jax.random.key(0)))
    tokenizer = tokenizer_directories.bert(tmp_path, config.vocab_size)
    export_model(params, config, heads, tokenizer, tmp_path / "model")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    rng = np.random.default_rng(0)
    first = np.stack([rng.permutation(np.arange(5, 300))[: 2 * HALF] for _ in range(8)])  # no token twice
    copied = rng.permutation(HALF)[: HALF // 2]  # positions of the first text whose tokens the second has too
    first[:, HALF + copied] = first[:, rng.permutation(copied)]
    text, types = torch.tensor(first), torch.tensor(np.repeat([[0, 1]], HALF, axis=1)).expand(8, -1)
    with torch.no_grad():
        block = theirs(input_ids=text, token_type_ids=types, output_attentions=True).attentions[0].numpy()
    same = first[:, :, None] == first[:, None]
    same[:, np.arange(2 * HALF), np.arange(2 * HALF)] = False  # the tokens themselves
    found = same.any(-1)
    read = (block * same[:, None]).sum(-1)  # of each head, how much goes to the copy
    assert read[:, -1][found].mean() > 0.7
    assert (block[:, -1].argmax(-1) == same.argmax(-1))[found].mean() > 0.8
    assert read[:, 0][found].mean() < 0.05, "the other heads read neighbors"
    positions = np.arange(2, 2 * HALF - 2)
    assert block[:, 0, positions, positions + OFFSETS[0]].mean() > 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"num_token_types": 1},
        {"num_token_types": 0, "family": "research"},
        {"num_heads": 12},
        {"embedding_size": 96, "family": "research"},
        {"positions": "learned", "family": "research"},
    ],
)
def test_where_no_head_can_match_the_start_is_refused(change: dict) -> None:
    config = dataclasses.replace(CONFIG, initialization="matches", **change)
    with pytest.raises(UserError, match=r"set model\.initialization=neighbors"):
        make_model(config, ComputeConfig(), ())
