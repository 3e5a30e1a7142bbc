"""ModernBERT beyond the other families: its two spellings, fused tensors, shared head, pairs, packed sequences."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from bert_jax.checkpoints.load_model import read_weights
from bert_jax.config import ComputeConfig
from bert_jax.console import Console
from bert_jax.convert import export as exports
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.interop.huggingface.model_config import model_config_fields, parse_model_config
from bert_jax.models import PRETRAINING_HEADS, Head, make_model
from bert_jax.tokenizer import load_tokenizer
from tests.helpers import tokenizer_directories
from tests.helpers.family_cases import CASES, MODERN, MODERNBERT, batch_of, model_of

NAME = "modernbert"
FULL, LOCAL = "full_attention", "sliding_attention"


def fields_of(**more):
    """Fields that transformers 5 writes, as it writes them."""
    return json.loads(transformers.ModernBertConfig(**MODERN | more).to_json_string(use_diff=False))


@pytest.mark.parametrize(
    ("types", "every", "window"),
    [
        ([FULL, LOCAL, LOCAL, FULL], 3, 6),
        ([FULL, LOCAL, FULL, LOCAL], 2, 6),
        ([FULL, FULL, FULL, FULL], 1, None),
        ([FULL, LOCAL, LOCAL, LOCAL], 4, 6),
    ],
)
def test_the_layers_of_a_file(types, every, window):
    found = parse_model_config(fields_of(layer_types=types), "").encoder
    assert (found.global_every, found.local_window) == (every, window)


@pytest.mark.parametrize("change", [{"global_every": 7}, {"global_every": 1}, {"local_rotary_base": None}, {}], ids=str)
def test_both_spellings_are_written_and_agree(change):
    """transformers 4 reads the one, transformers 5 the other."""
    config = dataclasses.replace(MODERNBERT, **change)
    fields = model_config_fields(config, 0, "")
    assert parse_model_config(fields, "").encoder.rotary_base == config.rotary_base
    old = {name: x for name, x in fields.items() if name not in ("layer_types", "rope_parameters")}
    assert parse_model_config(old, "") == parse_model_config(fields, "")
    theirs = transformers.ModernBertConfig(**{**old, "dtype": "float32"})
    assert theirs.layer_types == fields["layer_types"]
    assert theirs.rope_parameters == fields["rope_parameters"]


def test_the_base_of_local_layers_may_be_null_in_files_of_transformers_4():
    found = parse_model_config({"model_type": NAME, "vocab_size": 9, "local_rope_theta": None}, "").encoder
    assert (found.rotary_base, found.local_rotary_base) == (160_000.0, None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query_key_norm": True}, r"model\.query_key_norm=True"),
        ({"positions": "learned"}, r"model\.positions='learned'"),
        ({"norm_position": "post"}, r"model\.norm_position='post'"),
        ({"norm": "rms_norm"}, r"model\.norm='rms_norm'"),
        ({"first_attention_norm": True}, r"model\.first_attention_norm=True"),
        ({"pooler_activation": "tanh"}, r"model\.pooler_activation='tanh'"),
        ({"mlp": "plain"}, r"model\.mlp='plain'"),
    ],
    ids=str,
)
def test_fields_that_modernbert_lacks_are_refused_by_name(change, words):
    with pytest.raises(UserError, match=words):
        model_config_fields(dataclasses.replace(MODERNBERT, **change), 0, "config.model")


def test_the_initialization_is_of_no_meaning_to_an_export():
    model_config_fields(dataclasses.replace(MODERNBERT, initialization="normal"), 0, "config.model")


def test_fused_tensors_are_ours_side_by_side(tmp_path):
    theirs = model_of(CASES[NAME], "ModernBertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    layers, width = load_model(tmp_path).params["encoder"]["layers"], MODERNBERT.hidden_size
    attention = theirs.model.layers[2].attn.Wqkv.weight.detach().numpy()
    for i, name in enumerate(("query", "key", "value")):
        np.testing.assert_array_equal(layers["attention"][name]["kernel"][2], attention[i * width : (i + 1) * width].T)
    wide = theirs.model.layers[1].mlp.Wi.weight.detach().numpy()
    for half, name in zip(np.split(wide, 2), ("mlp_gate", "mlp_up"), strict=True):
        np.testing.assert_array_equal(layers[name]["kernel"][1], half.T)
    np.testing.assert_array_equal(layers["attention_norm"]["scale"][0], np.ones(width))
    assert "model.layers.0.attn_norm.weight" not in theirs.state_dict()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda t: t.pop("model.layers.1.attn.Wqkv.weight"),
            r"tensor 'model\.layers\.1\.attn\.Wqkv\.weight' is missing",
        ),
        (
            lambda t: t.update({"model.layers.1.mlp.Wi.weight": np.ones((40, 24), np.float32)}),
            r"'model\.layers\.1\.mlp\.Wi\.weight' is \[40, 24\], not \[80, 24\]",
        ),
        (
            lambda t: t.update({"model.layers.0.attn_norm.weight": np.ones(24, np.float32)}),
            r"tensor 'model\.layers\.0\.attn_norm\.weight' is not of a ModernBertForMaskedLM",
        ),
        (
            lambda t: t.update({"head.dense.bias": np.ones(24, np.float32)}),
            r"tensor 'head\.dense\.bias' contradicts config\.json",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, words, tmp_path):
    model_of(CASES[NAME], "ModernBertForMaskedLM").save_pretrained(tmp_path)
    tensors = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    change(tensors)
    safetensors.numpy.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=words):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("end", "head"),
    [
        ("SequenceClassification", Head("sequence_classification", 3)),
        ("TokenClassification", Head("token_classification", 5)),
        ("QuestionAnswering", Head("question_answering")),
        ("MultipleChoice", Head("multiple_choice")),
    ],
)
def test_the_head_of_a_task_starts_from_the_head_of_masked_tokens(end, head, tmp_path):
    """As transformers does, where the modules have the same names."""
    theirs = model_of(CASES[NAME], "ModernBertForMaskedLM")
    theirs.save_pretrained(tmp_path)
    found = load_model(tmp_path, (head,), jax.random.key(0))
    assert (found.new, found.unused) == ((f"{head.name}/bias", f"{head.name}/kernel"), ("decoder.bias",))
    kind = getattr(transformers, f"ModernBertFor{end}")
    again, report = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == {"classifier.weight", "classifier.bias"}
    np.testing.assert_array_equal(found.params["pooler"]["kernel"], again.head.dense.weight.detach().T)
    np.testing.assert_array_equal(found.params["pooler"]["norm"]["scale"], again.head.norm.weight.detach())


def test_masked_tokens_are_not_read_from_the_head_of_a_task(tmp_path):
    """A part of the head, without the bias of its vocabulary, is none."""
    model_of(CASES[NAME], "ModernBertForSequenceClassification").save_pretrained(tmp_path)
    with pytest.raises(UserError, match="holds a ModernBertForSequenceClassification without masked_token"):
        load_model(tmp_path, (Head("masked_token"),))


@pytest.mark.parametrize("name", ["modernbert", "modernbert with biases, of mean, every second"])
def test_packed_sequences_equal_their_examples(name, tmp_path):
    """Three texts in one row, the last place for a text empty, against the reference on each by itself."""
    config, lengths, width = CASES[name].ours, (7, 4, 5), 19
    masked, whole = (
        model_of(CASES[name], "ModernBertForMaskedLM"),
        model_of(CASES[name], "ModernBertForSequenceClassification"),
    )
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, config.vocab_size, n) for n in lengths]
    filler = np.zeros(width - sum(lengths), int)
    first = np.cumsum([0, *lengths[:-1]])
    batch = {
        "input_ids": np.concatenate([*texts, filler])[None],
        "token_type_ids": np.zeros((1, width), int),
        "attention_mask": (np.arange(width) < sum(lengths)).astype(int)[None],
        "segment_ids": np.concatenate([*(np.full(n, i + 1) for i, n in enumerate(lengths)), filler])[None],
        "cls_positions": np.array([[*first, 0]]),
        "masked_positions": np.arange(width)[None],
    }
    batch = {key: x.astype(np.int32) for key, x in batch.items()}
    for model, output in ((masked, "mlm_logits"), (whole, "sequence_logits")):
        place = tmp_path / output
        model.save_pretrained(place)
        found = load_model(place)
        ours = jax.jit(make_model(config, ComputeConfig(), found.heads).apply)(found.params, batch, None)[output]
        for number, (begin, text) in enumerate(zip(first, texts, strict=True)):
            with torch.no_grad():
                expected = model(input_ids=torch.tensor(text)[None]).logits[0].numpy()
            own = ours[number] if expected.ndim == 1 else ours[0, begin : begin + len(text), : config.vocab_size]
            np.testing.assert_allclose(own, expected, rtol=0, atol=2e-5)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """Parameters of masked tokens and pairs, moved at random, and a tokenizer."""
    tokenizer = tokenizer_directories.bert(tmp_path_factory.mktemp("tokenizer"), MODERNBERT.vocab_size)
    model, rng = make_model(MODERNBERT, ComputeConfig(), PRETRAINING_HEADS), np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: np.asarray(x) + 0.2 * rng.standard_normal(x.shape).astype(np.float32),
        jax.jit(model.init)(jax.random.key(0)),
    )
    params["encoder"]["embeddings"]["token"][MODERNBERT.vocab_size :] = 0
    params["masked_token"]["bias"][MODERNBERT.vocab_size :] = 0
    return model, params, tokenizer


def test_auto_classes_open_an_export_and_give_our_logits(pretrained, tmp_path):
    model, params, tokenizer = pretrained
    of_masked = {name: params[name] for name in ("encoder", "masked_token")}
    export_model(of_masked, MODERNBERT, (Head("masked_token"),), tokenizer, tmp_path / "model")
    theirs, report = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(report.values()), report
    assert type(theirs).__name__ == "ModernBertForMaskedLM"
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert read.model_max_length == MODERNBERT.max_positions
    inputs = read(["w1 w2 [MASK] w4 w5 w6 w7 w8 w9", "w3 [MASK]"], padding=True, return_tensors="pt")
    assert inputs["input_ids"][1].tolist()[:4] == [2, load_tokenizer(tokenizer).tokens.index("w3"), 4, 3]
    with torch.no_grad():
        expected = theirs.eval()(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
    batch = {name: np.asarray(x, np.int32) for name, x in inputs.items()}
    batch.setdefault("token_type_ids", np.zeros_like(batch["input_ids"]))
    length = batch["input_ids"].shape[1]
    batch["masked_positions"] = np.tile(np.arange(length, dtype=np.int32), (2, 1))
    ours = jax.jit(model.apply)(params, batch, None)["mlm_logits"][..., : MODERNBERT.vocab_size]
    real = batch["attention_mask"] > 0
    np.testing.assert_allclose(np.asarray(ours)[real], expected.numpy()[real], rtol=0, atol=2e-5)


class Lines(Console):
    """What is said."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, text):
        self.lines.append(text)


def test_the_classifier_of_pairs_is_exported_by_itself(pretrained, tmp_path, monkeypatch):
    """transformers has no class with both heads: one is left out, with a line, and can be had."""
    model, params, tokenizer = pretrained
    console = Lines()

    def read(path, wanted=None, rng=None, console=None, step=None, part=None):
        return exports.Weights(config=MODERNBERT, heads=PRETRAINING_HEADS, params=params, directory=tokenizer)

    monkeypatch.setattr(exports, "read_weights", read)
    exports.export_directory(tmp_path, tmp_path / "masked", "huggingface", console)
    assert console.lines[0] == "left out: the head next_sentence; export it by itself with --head next_sentence"
    assert load_model(tmp_path / "masked").heads == (Head("masked_token"),)
    console.lines.clear()
    exports.export_directory(tmp_path, tmp_path / "pairs", "huggingface", console, head="next_sentence")
    assert console.lines[0] == "left out: the head masked_token"
    theirs, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "pairs", output_loading_info=True
    )
    assert not any(report.values()), report
    batch = batch_of(CASES[NAME])
    rows = {name: torch.tensor(batch[name]).long().flatten(0, 1) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = theirs.eval()(**rows).logits
    ours = jax.jit(model.apply)(params, batch, None)["nsp_logits"]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-5)
    assert load_model(tmp_path / "pairs").heads == (Head("sequence_classification", 2),)
    with pytest.raises(UserError, match="--head pooled: this model has no such head; it has masked_token, next_sent"):
        exports.export_directory(tmp_path, tmp_path / "other", "huggingface", console, head="pooled")


def test_a_work_directory_starts_a_task_like_its_export(pretrained, tmp_path, monkeypatch):
    from bert_jax.checkpoints import load_model as load

    _, params, tokenizer = pretrained
    masked = {name: params[name] for name in ("encoder", "masked_token")}
    of_run = load.Weights(config=MODERNBERT, heads=(Head("masked_token"),), params=masked, directory=tokenizer)
    head = (Head("sequence_classification", 3),)
    found = load._select_and_initialize_heads(of_run, head, jax.random.key(7), tmp_path)
    export_model(masked, MODERNBERT, (Head("masked_token"),), tokenizer, tmp_path / "model")
    exported = read_weights(tmp_path / "model", head, jax.random.key(7))
    jax.tree.map(np.testing.assert_array_equal, found.params["pooler"], exported.params["pooler"])
    assert found.new == ("sequence_classification",)
