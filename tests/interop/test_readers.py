"""Exported directories have the fields that servers read.

The servers do not run here. The fields below are from their sources, read on 2026-11-26: Text Embeddings Inference at
0d124dc, with backends/candle/src/models at 04f5d63 (modernbert.rs), 006bfce (bert.rs), 22d0e5f (distilbert.rs) and
3174fe9 (mpnet.rs), and router/src/lib.rs at 009f067; vLLM at 0036026 (transformers_utils/config.py) and 1c71367
(layers/pooler/activations.py). sentence-transformers and transformers open the directories.
"""

import json

import numpy as np
import pytest
import safetensors.numpy
import sentence_transformers
import tokenizers
import torch
import transformers

from bert_jax.cli.main import main
from tests.helpers import tiny_models
from tests.helpers.family_cases import CASES, model_of
from tests.helpers.tokenizer_directories import of_family
from tests.interop.test_sentence_modules import TEXTS, save_theirs

FLOAT = (int, float)  # serde reads an integer as a float, too
SIZES = dict.fromkeys(
    ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), int
)
BERT = SIZES | {
    **dict.fromkeys(("hidden_dropout_prob", "initializer_range", "layer_norm_eps"), FLOAT),
    **dict.fromkeys(("max_position_embeddings", "type_vocab_size", "pad_token_id"), int),
    "hidden_act": str,
}
DISENTANGLED = {"attention_probs_dropout_prob": FLOAT, "relative_attention": bool, "pos_att_type": list}
# Fields without a default in the structs of Text Embeddings Inference -> type, by model_type.
FIELDS = {
    "bert": BERT,
    "roberta": BERT,
    "distilbert": {
        **dict.fromkeys(("vocab_size", "dim", "n_layers", "n_heads", "hidden_dim", "pad_token_id"), int),
        "max_position_embeddings": int,
        "activation": str,
    },
    "mpnet": SIZES
    | {
        "hidden_act": str,
        **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range"), FLOAT),
        "layer_norm_eps": FLOAT,
        **dict.fromkeys(("max_position_embeddings", "relative_attention_num_buckets"), int),
    },
    "deberta-v2": BERT | DISENTANGLED,
    "modernbert": SIZES
    | {
        **dict.fromkeys(("hidden_activation", "classifier_activation"), str),
        **dict.fromkeys(("initializer_range", "initializer_cutoff_factor", "norm_eps", "attention_dropout"), FLOAT),
        **dict.fromkeys(("global_rope_theta", "local_rope_theta"), FLOAT),
        **dict.fromkeys(("norm_bias", "attention_bias"), bool),
        **dict.fromkeys(("max_position_embeddings", "global_attn_every_n_layers", "local_attention"), int),
        **dict.fromkeys(("pad_token_id", "eos_token_id", "bos_token_id", "cls_token_id", "sep_token_id"), int),
    },
}
# Prefixes that Text Embeddings Inference tries, and a tensor of the embeddings.
TENSORS = {
    "bert": (("", "bert."), "embeddings.word_embeddings.weight"),
    "roberta": (("", "roberta."), "embeddings.word_embeddings.weight"),
    "distilbert": (("", "distilbert."), "embeddings.word_embeddings.weight"),
    "mpnet": (("", "mpnet."), "embeddings.word_embeddings.weight"),
    "deberta-v2": (("deberta.",), "embeddings.word_embeddings.weight"),
    "modernbert": (("", "model."), "embeddings.tok_embeddings.weight"),
}
POOLING_FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")


def read(path):
    return json.loads(path.read_text())


def save_classifier(directory, family):
    if family in tiny_models.CLASSES:
        tiny_models.save(directory, family, "ForSequenceClassification", num_labels=3)
    else:
        model_of(
            CASES[family], {"mpnet": "MPNet", "deberta-v2": "DebertaV2"}[family] + "ForSequenceClassification"
        ).save_pretrained(directory)
        of_family(family, directory)
        if family == "mpnet":  # byte-level, because its padding has the id 1
            (directory / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))


@pytest.mark.parametrize("family", FIELDS)
def test_text_embeddings_inference_finds_its_fields(tmp_path, family):
    save_classifier(tmp_path / "model", family)
    assert main(["export", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "out")]) == 0
    config = read(tmp_path / "out" / "config.json")
    assert config["model_type"] == family
    for name, kind in FIELDS[family].items():
        assert isinstance(config[name], kind), name
        assert kind is bool or not isinstance(config[name], bool), name
    assert config["architectures"][0].endswith("Classification")
    assert len(config["id2label"]) == len(config["label2id"]) == config["num_labels"] == 3
    assert {type(label) for label in config["label2id"].values()} == {int}
    tensors = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    prefixes, embeddings = TENSORS[family]
    assert any(prefix + embeddings in tensors for prefix in prefixes)
    if family == "modernbert":
        assert {"head.dense.weight", "head.norm.weight"} <= tensors.keys()
        assert tensors["classifier.weight"].shape[0] == tensors["classifier.bias"].shape[0] == config["num_labels"]


def test_the_count_of_labels_suits_transformers(tmp_path):
    """A warning of transformers would be an error here."""
    tiny_models.save(tmp_path / "model", "modernbert", "ForSequenceClassification", num_labels=3)
    assert main(["export", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "out")]) == 0
    opened, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert opened.config.num_labels == 3
    assert not any(info.values())


@pytest.mark.parametrize("length", [12, None])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_all_readers_find_the_fields_of_sentence_vectors(tmp_path, pooling, length):
    tiny_models.save(tmp_path / "encoder", "bert", "Model")
    expected = save_theirs(tmp_path / "encoder", tmp_path / "theirs", pooling, True, length or 32).encode(TEXTS)
    if length is None:  # the maximum of the model then counts
        path = tmp_path / "theirs" / "tokenizer_config.json"
        path.write_text(json.dumps({k: v for k, v in read(path).items() if k != "model_max_length"}))
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "out")]) == 0
    out = tmp_path / "out"

    flags = read(out / "1_Pooling" / "config.json")  # Text Embeddings Inference reads no `pooling_mode`
    assert {name: flags[f"pooling_mode_{name}"] for name in POOLING_FLAGS} == {
        name: name.startswith(pooling) and "sqrt" not in name for name in POOLING_FLAGS
    }
    transformer = read(out / "sentence_bert_config.json")  # vLLM needs both fields
    assert (transformer["max_seq_length"], transformer["do_lower_case"]) == (length or 32, False)
    modules = read(out / "modules.json")
    assert [module["type"] for module in modules] == [
        f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")
    ]
    assert modules[1]["path"] == "1_Pooling"
    assert {"prompts", "default_prompt_name"} <= read(out / "config_sentence_transformers.json").keys()

    again = sentence_transformers.SentenceTransformer(str(out), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity"])
def test_readers_find_the_activation_of_a_cross_encoder(tmp_path, activation):
    tiny_models.save(tmp_path / "model", "bert", "ForSequenceClassification", num_labels=1)
    theirs = sentence_transformers.CrossEncoder(
        str(tmp_path / "model"), device="cpu", activation_fn=getattr(torch.nn, activation)()
    )
    theirs.save(str(tmp_path / "theirs"))
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "out")]) == 0
    named = read(tmp_path / "out" / "config.json")["sentence_transformers"]["activation_fn"]
    assert named.startswith("torch.nn.modules.")  # vLLM ignores other names
    assert named == type(theirs.activation_fn).__module__ + "." + activation
    again = sentence_transformers.CrossEncoder(str(tmp_path / "out"), device="cpu")
    pairs = [("abc", "a b"), ("jib", "hij")]
    np.testing.assert_allclose(again.predict(pairs), theirs.predict(pairs), rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", tiny_models.SPECIAL)
def test_servers_in_rust_read_the_tokenizer(tmp_path, family):
    """They have the library `tokenizers`, which reads `tokenizer.json` alone, with its special tokens."""
    _, theirs = tiny_models.save(tmp_path / "model", family)
    assert main(["export", "--model", str(tmp_path / "model"), "--output", str(tmp_path / "out")]) == 0
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    for texts in [("abc a b",), ("abc", "hij j")]:
        assert tokenizer.encode(*texts).ids == theirs(*texts)["input_ids"]
