"""Directories of common origin are read as transformers and sentence-transformers read them."""

import json

import jax.export
import numpy as np
import pytest
import safetensors.torch
import sentence_transformers
import torch
import transformers

import bert_jax
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.console import Console
from bert_jax.convert.export import export_directory
from bert_jax.errors import UserError
from bert_jax.inference.cross_encoder import make_cross_encoder_scorer
from bert_jax.inference.predict import load_predictor
from tests.helpers import tiny_models

TEXTS = ["abc. a b", "jib", "hide a bad cab"]


def change_json(path, **changes):
    """Change fields of a JSON file; None removes a field."""
    fields = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))


def change_tensors(directory, change):
    path = directory / "model.safetensors"
    safetensors.torch.save_file(change(safetensors.torch.load_file(path)), path, metadata={"format": "pt"})


def expected_logits(model, tokenizer, texts=TEXTS):
    with torch.no_grad():
        return np.stack([model(**tokenizer(text, return_tensors="pt")).logits[0].numpy() for text in texts])


def expected_means(encoder, tokenizer, texts=TEXTS):
    with torch.no_grad():
        states = [encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in texts]
    return np.stack([x.mean(0).numpy() for x in states])


def check_classes(directory, model, tokenizer, names):
    """Assert that `predict` gives the probabilities and labels of transformers."""
    probabilities = torch.tensor(expected_logits(model, tokenizer)).softmax(-1).numpy()
    answers = bert_jax.load(directory).predict(TEXTS)
    assert [answer["label"] for answer in answers] == [names[i] for i in probabilities.argmax(-1)]
    np.testing.assert_allclose([[*answer["probabilities"].values()] for answer in answers], probabilities, atol=2e-5)


@pytest.mark.parametrize("prefix", ["", "roberta."])
def test_an_encoder_below_a_config_that_names_a_head_is_read_and_exported(tmp_path, capsys, prefix):
    """As all-mpnet-base-v2, whose config.json names MPNetForMaskedLM."""
    model, tokenizer = tiny_models.save(tmp_path / "model", "roberta")
    encoder = {prefix + name: x.clone() for name, x in model.roberta.state_dict().items()}
    change_tensors(tmp_path / "model", lambda tensors: encoder)
    loaded = bert_jax.load(tmp_path / "model")
    assert "has no masked_token, which the RobertaForMaskedLM of config.json needs" in capsys.readouterr().err
    np.testing.assert_allclose(loaded.encode(TEXTS), expected_means(model.roberta, tokenizer), atol=2e-5)
    with pytest.raises(UserError, match="cannot fill masks"):
        loaded.fill_mask("a <mask>")
    export_directory(tmp_path / "model", tmp_path / "out", "huggingface", Console(silent=True))
    exported = transformers.AutoModel.from_pretrained(tmp_path / "out")
    np.testing.assert_allclose(expected_means(exported, tokenizer), expected_means(model.roberta, tokenizer), atol=1e-6)


def test_of_two_heads_the_head_in_the_file_is_read(tmp_path):
    tiny_models.save(tmp_path, "bert", "ForPreTraining")
    change_tensors(
        tmp_path, lambda tensors: {name: x for name, x in tensors.items() if "pooler" not in name and "seq" not in name}
    )
    weights = read_weights(tmp_path)
    assert [head.name for head in weights.heads] == ["masked_token"]
    assert "has no next_sentence" in weights.notes[0]


def test_a_tokenizer_of_another_padding_is_refused_where_positions_follow_the_padding(tmp_path):
    """transformers gives <unk>, whose id here is the padding id of config.json, the position of the padding."""
    model, tokenizer = tiny_models.save(tmp_path, "roberta")
    unknown, state = tokenizer.unk_token_id, []
    for padding in (tokenizer.pad_token_id, unknown):
        model.roberta.embeddings.padding_idx = padding
        state.append(expected_means(model.roberta, tokenizer, ["a<unk>b"]))
    assert np.abs(state[0] - state[1]).max() > 0.01
    change_json(tmp_path / "config.json", pad_token_id=unknown)
    with pytest.raises(UserError, match=r"padding has the id 1, .* start at 2; in this model they start at 4"):
        bert_jax.load(tmp_path).encode(["a b"])


@pytest.mark.parametrize("prefix", ["module.", "0.auto_model."])
def test_names_of_a_wrapped_model(tmp_path, prefix):
    """transformers draws the weights of such a file at random; the model that was saved is right."""
    model, tokenizer = tiny_models.save(tmp_path, "distilbert", "Model")
    change_tensors(tmp_path, lambda tensors: {prefix + name: x for name, x in tensors.items()})
    np.testing.assert_allclose(bert_jax.load(tmp_path).encode(TEXTS), expected_means(model, tokenizer), atol=2e-5)


def test_float64_is_rounded_as_transformers_rounds_it(tmp_path):
    _, tokenizer = tiny_models.save(tmp_path, "bert", "ForSequenceClassification")
    change_tensors(tmp_path, lambda tensors: {name: x.double() * (1 + 1e-9) for name, x in tensors.items()})
    read = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.float32).eval()
    check_classes(tmp_path, read, tokenizer, ["LABEL_0", "LABEL_1"])
    change_tensors(tmp_path, lambda tensors: tensors | {"classifier.bias": torch.tensor([1e39, 0], dtype=torch.double)})
    with pytest.raises(UserError, match=r"'classifier\.bias' has numbers that are not finite"):
        bert_jax.load(tmp_path)


@pytest.mark.parametrize("activation", ["relu", "gelu_fast", "tanh"])
def test_activations_of_other_families(tmp_path, activation):
    model, tokenizer = tiny_models.save(tmp_path, "bert", "ForSequenceClassification", hidden_act=activation)
    check_classes(tmp_path, model, tokenizer, ["LABEL_0", "LABEL_1"])


def test_untied_embeddings_and_unknown_fields_and_tensors_of_a_classifier(tmp_path, capsys):
    model, tokenizer = tiny_models.save(
        tmp_path, "bert", "ForSequenceClassification", tie_word_embeddings=False, chunk_size_feed_forward=1
    )
    change_json(tmp_path / "config.json", max_seq_length=128, hidden_sizes=3)
    change_tensors(tmp_path, lambda tensors: tensors | {"loss.weight": torch.ones(3)})
    check_classes(tmp_path, model, tokenizer, ["LABEL_0", "LABEL_1"])
    lines = capsys.readouterr().err
    assert "config.json: not read: 'max_seq_length', 'hidden_sizes' (did you mean 'hidden_size'?)" in lines
    assert "model.safetensors: not read, of no known head: 'loss.weight'" in lines


def test_an_untied_head_is_refused_and_the_encoder_is_read(tmp_path):
    model, tokenizer = tiny_models.save(tmp_path, "bert", "ForMaskedLM", tie_word_embeddings=False)
    loaded = bert_jax.load(tmp_path)
    np.testing.assert_allclose(loaded.encode(TEXTS), expected_means(model.bert, tokenizer), atol=2e-5)
    with pytest.raises(UserError, match=r"'cls\.predictions\.decoder\.weight' differs from"):
        loaded.fill_mask("a [MASK]")


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"id2label": {"0": 0, "1": 1, "2": 2}, "label2id": {"0": 0, "1": 1, "2": 2}}, ["0", "1", "2"]),
        ({"id2label": {"0": "other", "1": "pos", "2": "other"}, "label2id": {"pos": 1}}, ["other", "pos", "other"]),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"c": 0, "b": 1, "a": 2}}, ["a", "b", "c"]),
    ],
    ids=["numbers", "equal", "other label2id"],
)
def test_labels_as_in_transformers(tmp_path, fields, names):
    _, tokenizer = tiny_models.save(tmp_path, "bert", "ForSequenceClassification", num_labels=3)
    change_json(tmp_path / "config.json", **fields)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    check_classes(tmp_path, model, tokenizer, names)
    assert [str(model.config.id2label[i]) for i in range(3)] == names


def test_labels_that_disagree_stop_the_classifier_and_not_the_encoder(tmp_path):
    model, tokenizer = tiny_models.save(tmp_path, "bert", "ForSequenceClassification")
    change_json(tmp_path / "config.json", id2label={"0": "a", "2": "b"}, label2id=None)
    loaded = bert_jax.load(tmp_path)
    np.testing.assert_allclose(loaded.encode(TEXTS), expected_means(model.bert, tokenizer), atol=2e-5)
    with pytest.raises(UserError, match="the numbers in id2label are not 0 to 1"):
        loaded.predict(TEXTS)


def cross_encoder(directory, layout, activation):
    """A CrossEncoder as sentence-transformers 2, 4 and 6 write it."""
    tiny_models.save(directory, "bert", "ForSequenceClassification", num_labels=1)
    if layout == 2:
        change_json(directory / "config.json", sbert_ce_default_activation_function=activation)
    elif layout == 4:
        change_json(directory / "config.json", sentence_transformers={"activation_fn": activation, "version": "4.1.0"})
    else:
        library = sentence_transformers.CrossEncoder(str(directory), device="cpu")
        library.activation_fn = getattr(torch.nn, activation.rpartition(".")[2])()
        library.save_pretrained(str(directory))


@pytest.mark.parametrize("layout", [2, 4, 6])
@pytest.mark.parametrize("activation", ["torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"])
def test_cross_encoders(tmp_path, layout, activation):
    cross_encoder(tmp_path, layout, activation)
    pairs = [("abc. a b", "jib"), ("hide", "a bad cab")]
    expected = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu").predict(pairs)
    loaded = bert_jax.load(tmp_path)
    answers = loaded.predict([{"text": text, "text_pair": other} for text, other in pairs])
    np.testing.assert_allclose([answer["label"] for answer in answers], expected, atol=2e-5)
    assert loaded.encode(TEXTS).shape == (3, 16)


@pytest.mark.parametrize("max_length", [None, 8])
@pytest.mark.parametrize("prompts", [{}, {"prompts": {"q": "j i ", "other": "a"}, "default_prompt_name": "q"}])
def test_the_length_and_the_prompt_of_a_cross_encoder(tmp_path, max_length, prompts):
    tiny_models.save(tmp_path / "base", "bert", "ForSequenceClassification", num_labels=1)
    library = sentence_transformers.CrossEncoder(str(tmp_path / "base"), device="cpu", max_length=max_length, **prompts)
    library.save_pretrained(str(tmp_path / "model"))
    pairs = [("abc. a b", "jib"), ("hide a bad cab", "abcdefghij")]
    expected = sentence_transformers.CrossEncoder(str(tmp_path / "model"), device="cpu").predict(pairs)
    answers = bert_jax.load(tmp_path / "model").predict(pairs)
    np.testing.assert_allclose([answer["label"] for answer in answers], expected, atol=2e-5)
    scores = make_cross_encoder_scorer(load_predictor(tmp_path / "model"))(pairs)
    np.testing.assert_allclose(scores, expected, atol=2e-5)
    bert_jax.export(str(tmp_path / "model"), tmp_path / "out")
    answers = bert_jax.load(tmp_path / "out").predict(pairs)
    np.testing.assert_allclose([answer["label"] for answer in answers], expected, atol=2e-5)
    again = sentence_transformers.CrossEncoder(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(again.predict(pairs), expected, atol=2e-5)


def test_a_cross_encoder_that_lowercases_texts_has_a_tokenizer_that_does(tmp_path):
    cross_encoder(tmp_path, 6, "torch.nn.modules.activation.Sigmoid")
    change_json(tmp_path / "sentence_bert_config.json", do_lower_case=True)
    assert len(bert_jax.load(tmp_path).predict([("Abc", "a")])) == 1
    normalizer = json.loads((tmp_path / "tokenizer.json").read_text())["normalizer"]
    change_json(tmp_path / "tokenizer.json", normalizer=normalizer | {"lowercase": False})
    change_json(tmp_path / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(UserError, match="do_lower_case of a CrossEncoder is true"):
        bert_jax.load(tmp_path).predict([("Abc", "a")])


@pytest.mark.parametrize("layout", [2, 6])
def test_an_exported_cross_encoder_keeps_its_activation(tmp_path, layout):
    cross_encoder(tmp_path / "model", layout, "torch.nn.modules.activation.Sigmoid")
    export_directory(tmp_path / "model", tmp_path / "out", "huggingface", Console(silent=True))
    first, second = (
        sentence_transformers.CrossEncoder(str(tmp_path / name), device="cpu").predict([("abc", "jib")])
        for name in ("model", "out")
    )
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_a_cross_encoder_of_another_activation_is_refused_and_embedded(tmp_path):
    cross_encoder(tmp_path, 2, "torch.nn.modules.activation.Tanh")
    loaded = bert_jax.load(tmp_path)
    with pytest.raises(UserError, match="Sigmoid and Identity can be read"):
        loaded.predict(TEXTS)
    assert loaded.encode(TEXTS).shape == (3, 16)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_a_program_of_a_bare_encoder_gives_the_last_states(tmp_path, family):
    model, tokenizer = tiny_models.save(tmp_path / "model", family, "Model")
    export_directory(tmp_path / "model", tmp_path / "out", "stablehlo", Console(silent=True))
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    with np.load(tmp_path / "out/weights.npz") as archive:
        weights = [archive[name] for name in manifest["weights"]]
    program = jax.export.deserialize(bytearray((tmp_path / "out/model.stablehlo").read_bytes()))
    inputs = tokenizer("a bad cab", return_tensors="np", return_token_type_ids=True)
    outputs = program.call(
        weights,
        *(inputs[entry["name"]].astype(np.int32) for entry in manifest["inputs"]),
    )
    assert {entry["name"] for entry in manifest["outputs"]} == {*outputs} >= {"last_hidden_state"}
    with torch.no_grad():
        expected = model(**tokenizer("a bad cab", return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(outputs["last_hidden_state"], expected, atol=2e-5)
