"""Directories of architectures that transformers does not have: every parameter and field, out and in again."""

import dataclasses

import jax
import numpy as np
import pytest
import safetensors.numpy

from bert_jax.config import ComputeConfig
from bert_jax.config.presets import PRESETS
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.models import Head, make_model
from tests.helpers import tokenizer_directories
from tests.helpers.slow_cases import quick

TINY = dataclasses.replace(PRESETS["tiny"], family="research", vocab_size=101, max_positions=32, num_heads=4)
MODERN = dataclasses.replace(PRESETS["modern_tiny"], family="research", vocab_size=101)
CONFIGS = {
    "BERT's block": TINY,
    "ModernBERT's block": MODERN,
    "relative positions": dataclasses.replace(TINY, positions="relative", norm_position="pre", final_norm=True),
    "shared layers, narrow tables": dataclasses.replace(TINY, embedding_size=48, share_layers=True),
    "query-key norm": dataclasses.replace(MODERN, query_key_norm=True, norm="rms_norm", masked_activation="relu"),
    "causal": dataclasses.replace(MODERN, causal=True, pooling="mean", num_token_types=3),
    "global tokens": dataclasses.replace(
        TINY, query_key_norm=True, separator_id=3, local_window=8, local_windows=(4, 8), global_every=0
    ),
    "blocks": dataclasses.replace(
        TINY, block_size=4, random_blocks=1, sequence_activation="relu", question_separator_id=3
    ),
    "with a BiLSTM": dataclasses.replace(MODERN, causal=True, bilstm=True),
    "as RoBERTa's": dataclasses.replace(TINY, position_offset=2, num_token_types=1, local_window=8, global_every=2),
}
PAIRS = ("masked_token", "next_sentence")
HEADS = (("next_token",), ("replaced_token",), ("sequence_classification",), ("question_answering",), ("pooled",))


CASES = [
    *((what, PAIRS) for what in CONFIGS if not CONFIGS[what].bilstm),
    *(("query-key norm", names) for names in HEADS),
    *(("with a BiLSTM", names) for names in HEADS[2:4]),
    ("blocks", ("question_answering",)),
]


EVERY_THIRD = CASES[::3]


@pytest.mark.parametrize(("what", "names"), quick(CASES, *EVERY_THIRD))
def test_every_parameter_returns(what, names, tmp_path) -> None:
    config = CONFIGS[what]
    heads = tuple(Head(name, 3 if name.endswith("_classification") else 0) for name in names)
    drawn = jax.device_get(jax.jit(make_model(config, ComputeConfig(), heads).init)(jax.random.key(0)))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + rng.normal(size=x.shape).astype(np.float32), drawn)
    table = params["encoder"]["embeddings"]["token"]
    table[config.vocab_size :] = 0.0  # what fills the table up is not stored
    for head in ("masked_token", "next_token"):
        if head in params:
            params[head]["bias"][config.vocab_size :] = 0.0
    labels = ("a", "b", "c") if heads[0].classes else ()
    export_model(params, config, heads, tokenizer_directories.bert(tmp_path, config.vocab_size), tmp_path / "x", labels)
    found = load_model(tmp_path / "x")
    assert dataclasses.replace(found.config, initialization=config.initialization) == config
    assert (found.heads, found.labels, found.new, found.unused) == (heads, labels, (), ())
    assert jax.tree.structure(found.params) == jax.tree.structure(params)
    jax.tree.map(np.testing.assert_array_equal, found.params, params)
    stored = sum(x.size for x in safetensors.numpy.load_file(tmp_path / "x" / "model.safetensors").values())
    padding = len(table) - config.vocab_size
    width = table.shape[1] + ("masked_token" in params or "next_token" in params)
    assert stored == sum(x.size for x in jax.tree.leaves(params)) - padding * width


def test_a_damaged_directory_is_refused(tmp_path) -> None:
    heads = (Head("masked_token"),)
    params = jax.device_get(jax.jit(make_model(TINY, ComputeConfig(), heads).init)(jax.random.key(0)))
    export_model(params, TINY, heads, tokenizer_directories.bert(tmp_path, TINY.vocab_size), tmp_path / "x")
    file, text = tmp_path / "x" / "config.json", (tmp_path / "x" / "config.json").read_text()
    for old, new, says in (
        ('"positions": "learned"', '"positions": "absolute"', "positions is 'absolute', none of learned"),
        ('"hidden_size": 128', '"hidden_size": 64', "tensor 'encoder.projection.weight' is missing"),
        ('"num_layers": 2', '"num_layers": 2, "depth": 2', "unknown field 'depth'"),
    ):
        assert old in text
        file.write_text(text.replace(old, new))
        with pytest.raises(UserError, match=says):
            load_model(tmp_path / "x")
