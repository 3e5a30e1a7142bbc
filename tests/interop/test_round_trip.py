"""Every family and head there and back: bit for bit, and whole in the eyes of `transformers`."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.models import PRESETS, Head, make_model
from tests.helpers import tokenizer_directories
from tests.helpers.family_cases import CASES, PREFIXES, UNREAD, answers, batch_of, classes_of, model_of, whole_batch

EACH = [(family, one) for family in PREFIXES for one in classes_of(family)]


def random_params(config: EncoderConfig, heads: tuple[Head, ...]):
    """A random tree; what the model does not use is as in what is read."""
    model, rng = make_model(config, ComputeConfig(), heads), np.random.default_rng(0)
    params = jax.tree.map(lambda x: 0.1 * rng.standard_normal(x.shape).astype(np.float32), model.shapes)
    params["encoder"]["embeddings"]["token"][config.vocab_size :] = 0
    if not config.first_attention_norm:
        params["encoder"]["layers"]["attention_norm"]["scale"][0] = 1
    if "masked_token" in params:
        params["masked_token"]["bias"][config.vocab_size :] = 0
    return params


@pytest.fixture(scope="module")
def tokenizer_of(tmp_path_factory):
    return functools.cache(
        lambda family: tokenizer_directories.of_family(family, tmp_path_factory.mktemp(f"{family}-tokenizer"))
    )


@pytest.fixture(scope="module")
def passed_through(tmp_path_factory, tokenizer_of):
    """The reference's model, what we read of it, the labels, and the directory that we wrote."""

    @functools.cache
    def found(family, one):
        place = tmp_path_factory.mktemp(one)
        original = model_of(CASES[family], one)
        original.save_pretrained(place / "theirs")
        loaded = load_model(place / "theirs")
        labels = tuple("abcde"[: next((head.classes for head in loaded.heads), 0)])
        tree = (loaded.params, loaded.config, loaded.heads)
        export_model(*tree, tokenizer_of(family), place / "ours", labels, {"README.md": "a model\n"})
        return original, loaded, labels, place / "ours"

    return found


@pytest.mark.parametrize(("family", "one"), EACH)
def test_there_and_back_is_bit_identical(family, one, passed_through):
    _, first, labels, directory = passed_through(family, one)
    second = load_model(directory)
    assert not {*first.unused} - UNREAD
    assert dataclasses.replace(second, params={}) == dataclasses.replace(first, params={}, labels=labels, unused=())
    jax.tree.map(np.testing.assert_array_equal, second.params, first.params)
    assert (directory / "README.md").read_text() == "a model\n"


@pytest.mark.parametrize(("family", "one"), EACH)
def test_transformers_opens_the_export_whole(family, one, passed_through):
    original, first, labels, directory = passed_through(family, one)
    auto = getattr(transformers, "AutoModel" + one[one.index("For") :] if "For" in one else "AutoModel")
    theirs, report = auto.from_pretrained(directory, output_loading_info=True)
    assert type(theirs).__name__ == one
    missing = {*first.unused}
    assert {*report.pop("missing_keys")} == missing
    assert not any(report.values()), report
    for name, x in original.state_dict().items():
        assert name in missing or torch.equal(theirs.state_dict()[name], x), name
    batch = batch_of(CASES[family])
    for name, expected in answers(original, batch, whole_batch).items():
        np.testing.assert_array_equal(answers(theirs.eval(), batch, whole_batch)[name], expected)
    assert transformers.AutoTokenizer.from_pretrained(directory).pad_token_id == theirs.config.pad_token_id
    if labels:
        assert theirs.config.id2label == dict(enumerate(labels))
        assert theirs.config.label2id == {label: i for i, label in enumerate(labels)}


def test_the_fields_of_an_export_equal_the_fields_of_transformers(passed_through):
    """Every field of ours is one that `transformers` writes itself, with the value that it has there."""
    for family, one in EACH:
        original, *_, directory = passed_through(family, one)
        ours, theirs = json.loads((directory / "config.json").read_text()), json.loads(original.config.to_json_string())
        silent = ["id2label", "label2id", "architectures", "problem_type", "dtype", "classifier_dropout"]
        silent += ["global_attn_every_n_layers", "global_rope_theta", "local_rope_theta"]  # of transformers 4
        silent += ["num_labels"]  # for Text Embeddings Inference; transformers writes id2label alone
        silent += ["cls_dropout"]  # of a DeBERTa, as classifier_dropout
        theirs["classifier_dropout"] = None
        theirs["tie_word_embeddings"] = original.config.tie_word_embeddings  # NomicBERT's config does not write it
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)  # of another vocabulary than the defaults
        theirs |= dict.fromkeys(theirs.keys() & {"bos_token_id", "cls_token_id"}, tokenizer.cls_token_id)
        theirs |= dict.fromkeys(theirs.keys() & {"eos_token_id", "sep_token_id"}, tokenizer.sep_token_id)
        for name in ours.keys() - {*silent}:
            assert ours[name] == theirs[name], (one, name)
        assert not ours.keys() - theirs.keys() - {*silent}, one


@pytest.mark.parametrize(
    "name", ["distilbert", "albert_base", "roberta_base", "electra_small_generator", "tiny", "modern_base"]
)
def test_config_json_expresses_every_preset(name, tmp_path, tokenizer_of):
    config = dataclasses.replace(
        PRESETS[name], vocab_size=120, hidden_size=12, num_heads=2, mlp_size=9, num_layers=2, max_positions=16
    )
    heads = (Head("masked_token"),)
    params = random_params(config, heads)
    export_model(params, config, heads, tokenizer_of(config.family), tmp_path / "model")
    found = load_model(tmp_path / "model")
    assert (found.config, found.heads) == (config, heads)
    jax.tree.map(np.testing.assert_array_equal, found.params, params)


def test_a_bare_encoder_without_its_pooler(tmp_path, tokenizer_of):
    case = CASES["bert"]
    params = random_params(case.ours, ())
    export_model(params, case.ours, (Head("hidden_states"),), tokenizer_of("bert"), tmp_path / "model")
    theirs, report = transformers.BertModel.from_pretrained(
        tmp_path / "model", add_pooling_layer=False, output_loading_info=True
    )
    assert not any(report.values())
    found = load_model(tmp_path / "model")
    assert found.heads == ()
    batch = batch_of(case)
    model = make_model(case.ours, ComputeConfig(scan_layers=False), (Head("hidden_states"),))
    ours = np.asarray(jax.jit(model.apply)(found.params, batch, None)["hidden_states"])
    real = batch["attention_mask"].reshape(-1, case.length) > 0
    expected = answers(theirs.eval(), batch)["hidden_states"]
    np.testing.assert_allclose(ours[:, real], expected[:, real], rtol=0, atol=2e-5)


def test_a_regression_is_written_as_one(tmp_path, tokenizer_of):
    config, heads = CASES["bert"].ours, (Head("sequence_classification", 1),)
    export_model(random_params(config, heads), config, heads, tokenizer_of("bert"), tmp_path / "model")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert (theirs.config.num_labels, theirs.config.problem_type) == (1, "regression")
    found = load_model(tmp_path / "model")
    assert (found.heads, found.labels) == (heads, ())


def test_a_model_of_one_token_type_is_given_none(tmp_path):
    """WordPiece numbers the two texts of a pair 0 and 1; a RoBERTa has one row for both."""
    (tmp_path / "wordpiece").mkdir()
    words = ["w", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    tokenizer = tokenizer_directories.wordpiece(tmp_path / "wordpiece", words)
    config, heads = CASES["xlm-roberta"].ours, (Head("sequence_classification", 2),)
    export_model(random_params(config, heads), config, heads, tokenizer, tmp_path / "model")
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")("a b", "b", return_tensors="pt")
    assert "token_type_ids" not in inputs
    assert (
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")(**inputs)
        .logits.isfinite()
        .all()
    )


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("bert", {"share_layers": True}, "no bert of transformers has model.share_layers=True"),
        ("bert", {"embedding_size": 10}, "model.embedding_size=10"),
        (
            "bert",
            {"norm_position": "pre", "final_norm": True, "head_bias": False, "mlp_bias": False},
            r"model.norm_position='pre' \(it has 'post'\), .* and 2 further values; choose another",
        ),
        ("bert", {"position_offset": 2, "max_positions": 17}, r"no bert .* model.position_offset=2 \(it has 0\)"),
        ("bert", {"pooler_activation": "relu"}, "model.pooler_activation='relu'"),
        ("electra", {"embedding_size": 24}, r"model.embedding_size=24 \(it has None\)"),
        ("albert", {"embedding_size": None}, r"model.embedding_size=None \(it has 24\)"),
        ("roberta", {"masked_activation": "gelu_tanh"}, "model.masked_activation='gelu_tanh'"),
        ("roberta", {"position_offset": 3}, "padding has the id 1, .* in this model they start at 3"),
        ("distilbert", {"layer_norm_epsilon": 1e-5}, "model.layer_norm_epsilon=1e-05"),
    ],
    ids=str,
)
def test_a_config_that_its_family_cannot_express_is_refused(family, change, words, tmp_path, tokenizer_of):
    config, heads = dataclasses.replace(CASES[family].ours, **change), (Head("question_answering"),)
    params = random_params(config, heads)
    with pytest.raises(UserError, match=words):
        export_model(params, config, heads, tokenizer_of(family), tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("family", "heads", "labels", "words"),
    [
        ("distilbert", (Head("pooled"),), (), "no distilbert with the heads pooled, but DistilBertForMaskedLM"),
        ("roberta", (Head("masked_token"), Head("next_sentence")), (), "no roberta with the heads masked_token \\+"),
        ("bert", (Head("token_classification", 3),), ("a", "b"), "2 labels .* but the model has 3 classes"),
        ("bert", (Head("question_answering"),), ("a", "b"), "the model has 0 classes"),
        ("bert", (Head("token_classification", 2),), ("a", "a"), "two labels have the same name"),
    ],
    ids=str,
)
def test_heads_and_labels_that_do_not_fit_are_refused(family, heads, labels, words, tmp_path, tokenizer_of):
    config = CASES[family].ours
    params = random_params(config, heads)
    with pytest.raises(UserError, match=words):
        export_model(params, config, heads, tokenizer_of(family), tmp_path / "model", labels)
    assert not list(tmp_path.iterdir())


def test_weights_that_are_not_finite_are_refused(tmp_path, tokenizer_of):
    config, heads = CASES["bert"].ours, (Head("question_answering"),)
    params = random_params(config, heads)
    params["question_answering"]["bias"][1] = np.nan
    with pytest.raises(UserError, match=r"'qa_outputs\.bias' has numbers that are not finite"):
        export_model(params, config, heads, tokenizer_of("bert"), tmp_path / "model")
