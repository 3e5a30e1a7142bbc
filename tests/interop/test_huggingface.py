"""Model directories against `transformers`: they open it whole, we read it back, and what is wrong is named."""

import json

import jax
import numpy as np
import pytest
import safetensors.numpy
import tokenizers
import torch
import transformers

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.models import pretraining_model

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
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"), words)


@pytest.fixture
def exported(tmp_path, params, tokenizer):
    huggingface.export(params, CONFIG, tokenizer, tmp_path / "model")
    return tmp_path / "model"


def save_tokenizer(directory, words):
    wordpiece = tokenizers.BertWordPieceTokenizer({word: i for i, word in enumerate(words)})
    wordpiece.save(str(directory / "tokenizer.json"))
    (directory / "vocab.txt").write_text("\n".join(words) + "\n")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 20}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


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
    config, read = huggingface.load(exported)
    assert config == CONFIG
    jax.tree.map(np.testing.assert_array_equal, read, params)
    huggingface.export(read, config, tokenizer, tmp_path / "again")
    for path in exported.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name


def test_it_reads_what_transformers_saves(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=97, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24
    )
    theirs = transformers.BertForPreTraining(config).eval()
    theirs.save_pretrained(tmp_path)
    ours, params = huggingface.load(tmp_path)
    assert (ours.vocab_size, ours.activation, ours.layer_norm_epsilon) == (97, "gelu", 1e-12)
    batch = batch_of(np.random.default_rng(1).integers(1, 97, (2, 11)))
    out = jax.jit(pretraining_model(ours, ComputeConfig()).apply)(params, batch, None)
    inputs = {name: torch.tensor(batch[name]).long() for name in ("input_ids", "token_type_ids", "attention_mask")}
    with torch.no_grad():
        expected = theirs(**inputs).prediction_logits
    np.testing.assert_allclose(out["mlm_logits"][..., :97], expected, rtol=0, atol=2e-5)


def test_checkpoints_of_2019_are_read(exported, params):
    def old(tensors):
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
            for name, x in tensors.items()
        }
        renamed["bert.embeddings.position_ids"] = np.arange(CONFIG.max_positions)[None]
        renamed["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].copy()
        return renamed

    change_tensors(exported, old)
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(exported)[1], params)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ({"model_type": "roberta"}, "model_type is 'roberta'"),
        ({"hidden_sizes": 3}, "unknown field 'hidden_sizes'; did you mean 'hidden_size'"),
        ({"hidden_size": "24"}, "hidden_size is '24', not an integer"),
        ({"num_hidden_layers": 0}, "below 1"),
        ({"num_attention_heads": 5}, "num_heads=5 does not divide"),
        ({"num_hidden_layers": 3}, "'bert.encoder.layer.2.attention.self.query.weight' is missing"),
        ({"num_hidden_layers": 1}, "'bert.encoder.layer.1.attention.output.LayerNorm.bias' is not of"),
        (
            {"intermediate_size": 41},
            r"'bert.encoder.layer.0.intermediate.dense.weight' is float32 \[40, 24\], not float32 \[41, 24\]",
        ),
    ],
    ids=lambda x: str(x)[:40],
)
def test_a_configuration_that_is_not_ours_is_refused_by_name(exported, change, words):
    path = exported / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=words):
        huggingface.load(exported)


def test_a_configuration_without_a_vocabulary_is_refused(exported):
    path = exported / "config.json"
    fields = json.loads(path.read_text())
    del fields["vocab_size"]
    path.write_text(json.dumps(fields))
    with pytest.raises(UserError, match="vocab_size"):
        huggingface.load(exported)
    path.write_text("{")
    with pytest.raises(UserError, match="JSON"):
        huggingface.load(exported)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: {n: x for n, x in t.items() if n != "bert.pooler.dense.bias"},
            "'bert.pooler.dense.bias' is missing",
        ),
        (lambda t: t | {"qa_outputs.weight": t["bert.pooler.dense.bias"].copy()}, "'qa_outputs.weight' is not of"),
        (
            lambda t: t | {"cls.predictions.bias": t["cls.predictions.bias"][:-1].copy()},
            r"'cls.predictions.bias' is float32 \[139\]",
        ),
        (
            lambda t: t | {"cls.predictions.bias": t["cls.predictions.bias"].astype(np.float16)},
            "'cls.predictions.bias' is float16",
        ),
        (lambda t: t | {"cls.predictions.decoder.bias": t["cls.predictions.bias"] + 1}, "decoder.bias' differs"),
    ],
    ids=["missing", "unexpected", "shape", "dtype", "untied"],
)
def test_tensors_that_do_not_fit_are_refused_by_name(exported, change, words):
    change_tensors(exported, change)
    with pytest.raises(UserError, match=words):
        huggingface.load(exported)


def change_tensors(directory, change):
    path = directory / "model.safetensors"
    tensors = change(safetensors.numpy.load_file(path))
    safetensors.numpy.save_file(tensors, path)


def test_a_truncated_or_absent_file_is_refused(exported):
    path = exported / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match="cannot be read"):
        huggingface.load(exported)
    path.unlink()
    with pytest.raises(UserError, match="does not exist"):
        huggingface.load(exported)


def test_a_directory_in_use_is_not_overwritten(tmp_path, params, tokenizer):
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(UserError, match="not an empty directory"):
        huggingface.export(params, CONFIG, tokenizer, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_an_empty_directory_is_taken(tmp_path, params, tokenizer):
    (tmp_path / "empty").mkdir()
    huggingface.export(params, CONFIG, tokenizer, tmp_path / "empty")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert huggingface.load(tmp_path / "empty")[0] == CONFIG


def test_nothing_half_written_is_left(tmp_path, params, tokenizer, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(huggingface.shutil, "copyfile", full)
    with pytest.raises(UserError, match="No space left"):
        huggingface.export(params, CONFIG, tokenizer, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_of_another_model_is_refused(tmp_path, params):
    with pytest.raises(UserError, match=r"tokenizer\.json cannot be read"):
        huggingface.export(params, CONFIG, tmp_path, tmp_path / "model")
    save_tokenizer(tmp_path, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(CONFIG.vocab_size))])
    with pytest.raises(UserError, match="another model's tokenizer"):
        huggingface.export(params, CONFIG, tmp_path, tmp_path / "model")


def test_parameters_of_another_architecture_are_refused(params, tokenizer, tmp_path):
    without = {name: x for name, x in params.items() if name != "pooler"}
    with pytest.raises(UserError, match="not those of this model"):
        huggingface.export(without, CONFIG, tokenizer, tmp_path / "model")
