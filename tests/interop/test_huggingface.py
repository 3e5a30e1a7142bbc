"""An export of a pretrained BERT: `transformers` opens it whole, and nothing is overwritten or left half-written."""

import shutil

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.models import PRETRAINING_HEADS, pretraining_model
from tests.helpers.tokenizer_directories import wordpiece

CONFIG = EncoderConfig(
    vocab_size=140, hidden_size=24, num_layers=2, num_heads=3, mlp_size=40, max_positions=20, activation="gelu_tanh"
)


@pytest.fixture(scope="module")
def model():
    return pretraining_model(CONFIG, ComputeConfig())


@pytest.fixture(scope="module")
def params(model):
    """Initial parameters moved at random, the padding of the vocabulary left at zero."""
    initial = jax.jit(model.init)(jax.random.key(0))
    rng = np.random.default_rng(0)
    moved = jax.tree.map(lambda x: np.asarray(x) + 0.1 * rng.standard_normal(x.shape).astype(np.float32), initial)
    moved["encoder"]["embeddings"]["token"][CONFIG.vocab_size :] = 0
    moved["masked_token"]["bias"][CONFIG.vocab_size :] = 0
    return moved


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(CONFIG.vocab_size - 5))]
    return wordpiece(tmp_path_factory.mktemp("tokenizer"), words)


@pytest.fixture
def exported(tmp_path, params, tokenizer):
    export(params, tokenizer, tmp_path / "model")
    return tmp_path / "model"


def export(params, tokenizer, output):
    export_model(params, CONFIG, PRETRAINING_HEADS, tokenizer, output)


def batch_of(tokens: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "input_ids": tokens.astype(np.int32),
        "token_type_ids": (np.arange(tokens.shape[1]) > 6).astype(np.int32) * np.ones_like(tokens, np.int32),
        "attention_mask": (tokens != 0).astype(np.int32),
        "masked_positions": np.tile(np.arange(tokens.shape[1], dtype=np.int32), (len(tokens), 1)),
    }


def test_transformers_opens_the_export_whole(exported, model, params):
    theirs, report = transformers.BertForPreTraining.from_pretrained(exported, output_loading_info=True)
    assert not any(report.values()), report
    assert theirs.dtype == torch.float32
    assert type(transformers.AutoModel.from_pretrained(exported)).__name__ == "BertModel"
    tokens = np.random.default_rng(1).integers(5, CONFIG.vocab_size, (3, 15))
    tokens[1, 9:] = 0
    batch = batch_of(tokens)
    inputs = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "token_type_ids", "attention_mask")}
    with torch.no_grad():
        out = theirs.eval()(**inputs)
    ours = jax.jit(model.apply)(params, batch, None)
    np.testing.assert_allclose(ours["mlm_logits"][..., : CONFIG.vocab_size], out.prediction_logits, rtol=0, atol=2e-5)
    np.testing.assert_allclose(ours["nsp_logits"], out.seq_relationship_logits, rtol=0, atol=2e-5)


def test_auto_tokenizer_and_config_open_the_export(exported):
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    assert tokenizer("w1 w3")["input_ids"] == [2, 6, 8, 3]
    config = transformers.AutoConfig.from_pretrained(exported)
    assert (config.hidden_act, config.pad_token_id, config.vocab_size) == ("gelu_new", 0, CONFIG.vocab_size)


def test_round_trip_is_bit_identical(exported, params, tokenizer, tmp_path):
    read = load_model(exported)
    assert (read.config, read.heads, read.labels, read.new, read.unused) == (CONFIG, PRETRAINING_HEADS, (), (), ())
    jax.tree.map(np.testing.assert_array_equal, read.params, params)
    export(read.params, tokenizer, tmp_path / "again")
    for path in exported.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_a_directory_saved_by_transformers_is_read(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=97, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    theirs = transformers.BertForPreTraining(config).eval()
    theirs.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    ours, params = loaded.config, loaded.params
    assert (ours.vocab_size, ours.activation, ours.layer_norm_epsilon) == (97, "gelu", 1e-12)
    batch = batch_of(np.random.default_rng(1).integers(1, 97, (2, 11)))
    out = jax.jit(pretraining_model(ours, ComputeConfig()).apply)(params, batch, None)
    inputs = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "token_type_ids", "attention_mask")}
    with torch.no_grad():
        expected = theirs(**inputs).prediction_logits
    np.testing.assert_allclose(out["mlm_logits"][..., :97], expected, rtol=0, atol=2e-5)


def test_a_directory_in_use_is_not_overwritten(tmp_path, params, tokenizer):
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(UserError, match="holds something else already"):
        export(params, tokenizer, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_an_empty_directory_is_used(tmp_path, params, tokenizer):
    (tmp_path / "empty").mkdir()
    export(params, tokenizer, tmp_path / "empty")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert load_model(tmp_path / "empty").config == CONFIG


def test_nothing_partial_is_left(tmp_path, params, tokenizer, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(UserError, match="No space left"):
        export(params, tokenizer, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_of_another_model_is_refused(tmp_path, params):
    with pytest.raises(UserError, match="no such vocabulary"):
        export(params, tmp_path, tmp_path / "model")
    wordpiece(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(CONFIG.vocab_size))])
    with pytest.raises(
        UserError, match="the tokenizer has 145 tokens, the model 140; the tokenizer belongs to another model"
    ):
        export(params, tmp_path, tmp_path / "model")


def test_parameters_of_another_architecture_are_refused(params, tokenizer, tmp_path):
    without = {name: x for name, x in params.items() if name != "pooler"}
    with pytest.raises(UserError, match="do not fit this model"):
        export(without, tokenizer, tmp_path / "model")
