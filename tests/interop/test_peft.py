"""Adapters in and out: the directories of `peft`, and the models that `peft` makes of the directories of bert_jax."""

import json
import re
import shutil

import jax
import numpy as np
import peft
import pytest
import safetensors.numpy
import torch
import transformers

from bert_jax.checkpoints.load_model import open_model, read_weights
from bert_jax.config import ComputeConfig
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.huggingface.peft import find_adapter_targets, peft_files
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import Adapter, Head, make_model
from bert_jax.models.adapters import merge_adapter_into_weights, with_adapter
from tests.helpers.family_cases import CASES, PREFIXES, model_of
from tests.helpers.tiny_models import CLASSES, save

# `peft` reads an old name of transformers.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

LABELS = 3
HEAD = (Head("sequence_classification", LABELS),)
TARGETS = {
    "bert": ["query", "value"],
    "roberta": ["query", "attention.output.dense"],
    "albert": ["query", "ffn"],
    "distilbert": ["q_lin", "lin1"],
    "electra": "all-linear",
    "modernbert": ["Wqkv", "mlp.Wo"],
}


def batch(vocab_size, seed=0):
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, vocab_size, (4, 12)).astype(np.int32)
    mask = (np.arange(12) < rng.integers(4, 13, (4, 1))).astype(np.int32)
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}


def torch_logits(model, inputs):
    with torch.no_grad():
        ids, mask = (torch.tensor(inputs[name]).long() for name in ("input_ids", "attention_mask"))
        return model.eval()(input_ids=ids, attention_mask=mask).logits.numpy()


def randomize(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn_like(parameter)


def save_base(directory, family):
    """A base model of random weights; the vocabulary of the families without a tiny tokenizer is a number alone."""
    if family in CLASSES:
        save(directory, family)
    else:
        model_of(CASES[family], f"{PREFIXES[family]}ForSequenceClassification").save_pretrained(directory)


def save_peft(directory, family, **settings):
    """The base model in `directory`/base, and an adapter with random matrices and a random head beside it."""
    save_base(directory / "base", family)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(directory / "base", num_labels=LABELS)
    targets = TARGETS.get(family, "all-linear")
    settings = {"task_type": "SEQ_CLS", "r": 4, "lora_alpha": 6, "target_modules": targets} | settings
    model = peft.get_peft_model(base, peft.LoraConfig(**settings))
    randomize(model)
    model.save_pretrained(directory / "adapter")
    return model


def compare_merged(model, directory):
    """Our model of the directory has the logits of `model`, and the tensors of `merge_and_unload`."""
    loaded = load_model(directory)
    inputs = batch(loaded.config.vocab_size)
    ours = make_model(loaded.config, ComputeConfig(), loaded.heads).apply(loaded.params, inputs, None)
    np.testing.assert_allclose(ours["sequence_logits"], torch_logits(model, inputs), rtol=0, atol=2e-5)
    compare_tensors(loaded.params, loaded.config, loaded.heads, merged_file(model, directory.parent / "merged"))


def merged_file(model, directory):
    """The tensors of the merged model under their names in a file, which may differ from the names of modules."""
    model.merge_and_unload().save_pretrained(directory)
    return safetensors.numpy.load_file(directory / "model.safetensors")


def compare_tensors(params, config, heads, expected):
    for name, tensor in to_tensors(params, config, heads).items():
        np.testing.assert_allclose(tensor, expected[name], rtol=0, atol=1e-6, err_msg=name)


# The last layer of a head that a base model of masked tokens lacks has to be saved with the adapter.
SAVED = {"bert": ["pooler"], "albert": ["pooler"], "electra": None, "roberta": None}


OTHERS = ("mpnet", "deberta-v2", "longformer", "big_bird", "mobilebert", "nomic_bert")


@pytest.mark.parametrize("family", [*CLASSES, *OTHERS])
def test_an_adapter_of_peft_is_read_as_peft_merges_it(tmp_path, family):
    compare_merged(save_peft(tmp_path, family, modules_to_save=SAVED.get(family)), tmp_path / "adapter")


@pytest.mark.parametrize(
    "settings",
    [
        {"use_rslora": True},
        {"rank_pattern": {"query": 2}, "alpha_pattern": {"layer.1.attention.self.query": 5, "query": 3}},
        {"lora_dropout": 0.5, "layers_to_transform": [0, 2]},
        {"target_modules": r".*\.attention\.self\.(query|key)"},
        {"modules_to_save": ["pooler", "LayerNorm", "intermediate"]},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_peft(tmp_path, settings):
    model = save_peft(tmp_path, "bert", **{"modules_to_save": ["pooler"]} | settings)
    compare_merged(model, tmp_path / "adapter")


def test_an_adapter_keeps_the_problem_and_the_activation_of_its_base(tmp_path):
    save_peft(tmp_path, "bert", modules_to_save=["pooler"])
    config = tmp_path / "base" / "config.json"
    identity = {"activation_fn": "torch.nn.modules.linear.Identity"}
    more = {"problem_type": "multi_label_classification", "sentence_transformers": identity}
    config.write_text(json.dumps(json.loads(config.read_text()) | more))
    weights = read_weights(tmp_path / "adapter")
    assert (weights.problem, weights.activation) == ("multi_label_classification", "identity")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("multilabel_classification", ("multi_label_classification", "")), ("regression", ("", "identity"))],
)
def test_an_adapter_has_the_problem_and_the_activation_of_its_task(tmp_path, kind, fields):
    save_peft(tmp_path, "bert", modules_to_save=["pooler"])
    (tmp_path / "adapter" / "task.json").write_text(json.dumps({"kind": kind}))
    weights = read_weights(tmp_path / "adapter")
    assert (weights.problem, weights.activation) == fields


@pytest.mark.filterwarnings("ignore:Setting `save_embedding_layers` to `True`:UserWarning")
@pytest.mark.parametrize("saved", [["pooler"], ["word_embeddings", "pooler"]], ids=len)
def test_tokens_that_the_training_added(tmp_path, saved):
    save_base(tmp_path / "base", "bert")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=LABELS)
    added = base.config.vocab_size + 3
    base.resize_token_embeddings(added)
    lora = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], modules_to_save=saved)
    model = peft.get_peft_model(base, lora)
    randomize(model)
    model.save_pretrained(tmp_path / "adapter")
    assert load_model(tmp_path / "adapter").config.vocab_size == added
    compare_merged(model, tmp_path / "adapter")


def test_the_base_of_an_adapter_is_its_tokenizer(tmp_path):
    save_peft(tmp_path, "bert", modules_to_save=["pooler"])
    weights = read_weights(tmp_path / "adapter")
    assert weights.directory == tmp_path / "base"
    assert [head.classes for head in weights.heads] == [LABELS]
    assert open_model(tmp_path / "adapter").tokenizer.vocab_size == weights.config.vocab_size


def written(directory, family, names, head=HEAD):
    """A model, an adapter with random matrices, and the directory of `peft` in `directory`/adapter."""
    save_base(directory / "base", family)
    loaded = load_model(directory / "base", head, jax.random.key(0))
    adapter = Adapter(find_adapter_targets(loaded.config, names), rank=2, alpha=5.0, dropout=0.0)
    model = with_adapter(make_model(loaded.config, ComputeConfig(), head), adapter)
    rng = np.random.default_rng(0)
    matrices = jax.tree.map(
        lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), {"adapter": model.shapes["adapter"]}
    )
    params = loaded.params | matrices
    (directory / "adapter").mkdir()
    files = peft_files(adapter, params, loaded.config, head, directory / "base")
    for name, content in files.items():
        (directory / "adapter" / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return model, adapter, params


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("bert", None),
        ("roberta", ("attention.output.dense", "key")),
        ("albert", None),
        ("distilbert", ("ffn.lin2", "q_lin")),
        ("electra", ("all-linear",)),
        ("modernbert", ("Wqkv", "Wi")),
        ("nomic_bert", ("Wqkv", "fc12", "out_proj")),
        *((family, None) for family in OTHERS),
    ],
)
def test_peft_opens_the_adapters_of_bert_jax(tmp_path, family, names):
    model, adapter, params = written(tmp_path, family, names)
    theirs = peft.AutoPeftModelForSequenceClassification.from_pretrained(tmp_path / "adapter", num_labels=LABELS)
    inputs, merged = batch(model.config.vocab_size), merge_adapter_into_weights(adapter, params)
    expected = torch_logits(theirs, inputs)
    plain = make_model(model.config, ComputeConfig(), HEAD)
    for ours in (model.apply(params, inputs, None), plain.apply(merged, inputs, None)):
        np.testing.assert_allclose(ours["sequence_logits"], expected, rtol=0, atol=2e-5)
    tensors = merged_file(theirs, tmp_path / "merged")
    for params in (merged, load_model(tmp_path / "adapter").params):
        compare_tensors(params, model.config, HEAD, tensors)


@pytest.mark.parametrize(
    "head", ["token_classification", "question_answering", "multiple_choice", "sentence_embedding"]
)
def test_every_head_returns(tmp_path, head):
    heads = (Head(head, LABELS if head == "token_classification" else 0),)
    _, adapter, params = written(tmp_path, "bert", None, heads)
    loaded, merged = load_model(tmp_path / "adapter"), merge_adapter_into_weights(adapter, params)
    merged |= {} if head != "sentence_embedding" else {"pooler": loaded.params.get("pooler")}
    jax.tree.map(np.testing.assert_array_equal, loaded.params, {name: merged[name] for name in loaded.params})
    classes = {"multiple_choice": "MultipleChoice", "sentence_embedding": "FeatureExtraction"}
    fields = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert fields["task_type"] or fields["auto_mapping"]["base_model_class"] == f"BertFor{classes[head]}"


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    directory = tmp_path_factory.mktemp("one")
    written(directory, "bert", None)
    return directory


@pytest.fixture
def copy(one, tmp_path):
    """An adapter that a test may change; its base model is in `one`."""
    shutil.copytree(one / "adapter", tmp_path / "adapter")
    return tmp_path


def change(directory, **fields):
    path = directory / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def change_tensors(directory, make):
    path = directory / "adapter" / "adapter_model.safetensors"
    safetensors.numpy.save_file(make(safetensors.numpy.load_file(path)), path)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; 'LORA' can be read"),
        ({"use_dora": True}, "use_dora is True; only LoRA without this field can be read"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"lora_alpha": "8"}, "lora_alpha is '8', not a number"),
        ({"alpha_pattern": {"(a+)+": 2}}, "a regular expression; only plain names"),
        ({"alpha_pattern": ["query"]}, "alpha_pattern is ['query'], not an object"),
        ({"use_rslora": "false"}, "use_rslora is 'false'; True or False or None can be read"),
        ({"base_model_name_or_path": None}, "names no base model"),
        ({"base_model_name_or_path": "/nowhere"}, "its base model /nowhere has no config.json here"),
        ({"task_type": "CAUSAL_LM", "auto_mapping": {"base_model_class": "Gpt"}}, "reads no CAUSAL_LM of a bert"),
        ({"task_type": "QUESTION_ANS"}, "reads no QUESTION_ANS of a bert with the saved tensors"),
    ],
)
def test_adapters_that_are_refused(copy, fields, says):
    change(copy, **fields)
    with pytest.raises(UserError, match=re.escape(says)):
        load_model(copy / "adapter")


def test_an_adapter_of_another_architecture(copy):
    save(copy / "other", "distilbert")
    change(copy, base_model_name_or_path=str(copy / "other"))
    with pytest.raises(UserError, match=r"belongs to another architecture .* correct base_model_name_or_path"):
        load_model(copy / "adapter")


def test_a_head_that_was_not_saved(tmp_path):
    save_peft(tmp_path, "bert")
    with pytest.raises(UserError, match=r"the trained bert.pooler.dense was not saved, .* modules_to_save=\['pooler'"):
        load_model(tmp_path / "adapter")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda x: {name: y for name, y in x.items() if "lora" not in name}, "has no matrices of LoRA"),
        (lambda x: {name: y for name, y in x.items() if "0.attention.self.query.lora_A" not in name}, "one of its two"),
        (lambda x: {name.removeprefix("base_model."): y for name, y in x.items()}, "does not begin with"),
        (lambda x: x | {"base_model.model.bert.lora_embedding_A": np.ones((2, 2), np.float32)}, "not beside a linear"),
        (lambda x: {name: y * np.float32(np.nan) for name, y in x.items()}, "not finite"),
        (lambda x: x | {"base_model.model.other.weight": np.ones(2, np.float32)}, "reads no SEQ_CLS"),
    ],
)
def test_damaged_adapters(copy, make, says):
    change_tensors(copy, make)
    with pytest.raises(UserError, match=says):
        load_model(copy / "adapter")


def test_targets_that_match_nothing(one):
    config = load_model(one / "base").config
    with pytest.raises(UserError, match=r"is called 'qury'; did you mean 'query'\?; it has attention.output.dense, "):
        find_adapter_targets(config, ("qury",))
    assert [target.name.rpartition(".")[2] for target in find_adapter_targets(config, None)] == ["query", "value"]
