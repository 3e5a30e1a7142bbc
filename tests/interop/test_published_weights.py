"""Checkpoints as they lie about: old names, shards, torch's files, half precision; and heads that are not wanted."""

import dataclasses
import functools
import json

import jax
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from bert_jax.config import ComputeConfig
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface import load_model
from bert_jax.models import Head, make_model
from tests.helpers.family_cases import CASES, CLASSES, PREFIXES, UNREAD, model_of


def save(directory, family, one, change=lambda tensors: tensors, **fields):
    """A reference model with its tensors changed, all of them kept, tied ones too; and what it was before."""
    model = model_of(CASES[family], one)
    directory.mkdir(exist_ok=True)
    described = json.loads(model.config.to_json_string()) | {"architectures": [one]} | fields
    (directory / "config.json").write_text(json.dumps(described))
    tensors = change({name: x.clone() for name, x in model.state_dict().items()})
    safetensors.torch.save_file(tensors, directory / "model.safetensors")
    return model


def same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)
    assert dataclasses.replace(found, params={}) == dataclasses.replace(expected, params={})


@pytest.fixture
def plain(tmp_path):
    """What is read of the reference's model of a family when nothing is odd about it."""

    def read(family, one):
        save(tmp_path / f"plain-{one}", family, one)
        return load_model(tmp_path / f"plain-{one}")

    return read


# transformers changes the names of NomicBERT's tensors when it writes a file: test_families.py reads such files.
AS_IN_FILES = {family: prefix for family, prefix in PREFIXES.items() if family != "nomic_bert"}
MASKED = [(family, f"{prefix}ForMaskedLM") for family, prefix in AS_IN_FILES.items()]


@pytest.mark.parametrize(("family", "one"), MASKED)
def test_names_of_2019(family, one, tmp_path, plain):
    def old(tensors):
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): x
            for name, x in tensors.items()
        }
        renamed[f"{FAMILIES[family].prefix}.embeddings.position_ids"] = torch.arange(19)[None]
        return renamed

    save(tmp_path / "old", family, one, old)
    same(load_model(tmp_path / "old"), plain(family, one))


@pytest.mark.parametrize(("family", "one"), [*MASKED, ("bert", "BertForPreTraining")])
def test_a_tied_tensor_may_be_stored_under_its_other_name(family, one, tmp_path, plain):
    def moved(tensors):
        return {name: x for name, x in tensors.items() if name not in ("cls.predictions.bias", "lm_head.bias")}

    save(tmp_path / "moved", family, one, moved)
    same(load_model(tmp_path / "moved"), plain(family, one))


# Tensors that published files hold and that transformers does not read: family -> names.
LEFTOVERS = {
    "deberta-v2": ["deberta.embeddings.position_embeddings.weight", "deberta.embeddings.word_embeddings._weight"],
    "nomic_bert": ["nomic_bert.encoder.layers.0.attn.rotary_emb.inv_freq"],
}


@pytest.mark.parametrize("family", LEFTOVERS)
@pytest.mark.parametrize("end", ["ForMaskedLM", "Model"])
def test_tensors_that_no_model_reads(family, end, tmp_path):
    """As microsoft/deberta-v3-base, microsoft/mdeberta-v3-base and early files of nomic-bert."""
    one, prefix = f"{PREFIXES[family]}{end}", f"{FAMILIES[family].prefix}."
    model_of(CASES[family], one).save_pretrained(tmp_path)
    expected, path = load_model(tmp_path), tmp_path / "model.safetensors"
    names = [name.removeprefix(prefix) if end == "Model" else name for name in LEFTOVERS[family]]
    tensors = safetensors.torch.load_file(path) | {name: torch.ones(19, 24) for name in names}
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    _, report = getattr(transformers, one).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    found = load_model(tmp_path)
    assert found.unused == tuple(sorted(names))
    same(dataclasses.replace(found, unused=()), expected)


def test_names_with_and_without_the_prefix(tmp_path, plain):
    save(tmp_path / "prefixed", "bert", "BertModel", lambda t: {f"bert.{name}": x for name, x in t.items()})
    same(load_model(tmp_path / "prefixed"), plain("bert", "BertModel"))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_exactly(kind, tmp_path):
    save(tmp_path / "half", "bert", "BertForMaskedLM", lambda t: {name: x.to(kind) for name, x in t.items()})
    save(tmp_path / "whole", "bert", "BertForMaskedLM", lambda t: {name: x.to(kind).float() for name, x in t.items()})
    same(load_model(tmp_path / "half"), load_model(tmp_path / "whole"))


@pytest.mark.parametrize(("family", "one"), MASKED)
def test_shards(family, one, tmp_path, plain):
    model = model_of(CASES[family], one)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) >= 2
    same(load_model(tmp_path / "shards"), plain(family, one))
    # As the cache of the hub lays them out: links to files that lie elsewhere under names of their own.
    (tmp_path / "blobs").mkdir()
    for path in list((tmp_path / "shards").iterdir()):
        path.rename(tmp_path / "blobs" / path.name)
        path.symlink_to(tmp_path / "blobs" / path.name)
    same(load_model(tmp_path / "shards"), plain(family, one))


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_files_of_torch(kind, tmp_path):
    model = save(tmp_path / "torch", "roberta", "RobertaForMaskedLM", lambda t: {n: x.to(kind) for n, x in t.items()})
    expected = load_model(tmp_path / "torch")
    (tmp_path / "torch" / "model.safetensors").unlink()
    torch.save({n: x.to(kind) for n, x in model.state_dict().items()}, tmp_path / "torch" / "pytorch_model.bin")
    same(load_model(tmp_path / "torch"), expected)


def test_a_missing_head_is_drawn_and_reported(tmp_path):
    model = save(tmp_path, "bert", "BertForPreTraining")
    heads = (Head("sequence_classification", 4),)
    found = load_model(tmp_path, heads, jax.random.key(3))
    assert (found.heads, found.new) == (heads, ("sequence_classification/bias", "sequence_classification/kernel"))
    assert found.unused == tuple(sorted(n for n in model.state_dict() if n.startswith("cls.") and "decoder" not in n))
    initial = jax.jit(make_model(found.config, ComputeConfig(), heads).init)(jax.random.key(3))[
        "sequence_classification"
    ]
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6)  # another program, so it may round otherwise
    jax.tree.map(close, found.params["sequence_classification"], initial)
    np.testing.assert_array_equal(found.params["pooler"]["kernel"], model.bert.pooler.dense.weight.detach().T)
    with pytest.raises(
        UserError, match="holds a BertForPreTraining without sequence_classification; fine-tune it first"
    ):
        load_model(tmp_path, heads)


@pytest.mark.parametrize("family", [family for family in AS_IN_FILES if family != "mobilebert"])  # as BERT names them
def test_the_weights_of_a_fine_tuned_model_for_another_task(family, tmp_path):
    """The pooler goes along, as the families call it; the classifier of one task is never that of another."""
    one = f"{PREFIXES[family]}ForSequenceClassification"
    model = save(tmp_path, family, one)
    own = load_model(tmp_path)
    assert own.heads == (Head("sequence_classification", CLASSES["sequence_classification"]),)
    classifiers = tuple(sorted(n for n in model.state_dict() if n.startswith("classifier") and ".dense." not in n))
    for heads, new in (
        ((Head("sequence_classification", 9),), ("sequence_classification/bias", "sequence_classification/kernel")),
        ((Head("multiple_choice"),), ("multiple_choice/bias", "multiple_choice/kernel")),
    ):
        found = load_model(tmp_path, heads, jax.random.key(0))
        unused = tuple(name for name in found.unused if name not in UNREAD)
        assert (found.new, unused, found.labels) == (new, classifiers, ())
        jax.tree.map(np.testing.assert_array_equal, found.params["pooler"], own.params["pooler"])
    tagging = load_model(
        tmp_path, (Head("token_classification", 3),), jax.random.key(0)
    )  # as many classes, another meaning
    assert tagging.new == ("token_classification/bias", "token_classification/kernel")
    assert set(classifiers) <= set(tagging.unused)


def test_tensors_of_other_heads_are_reported_as_transformers_does(tmp_path):
    """roberta-base: the class says masked language model, and the file has a pooler too."""
    width = CASES["roberta"].ours.hidden_size
    pooler = {"roberta.pooler.dense.weight": torch.ones(width, width), "roberta.pooler.dense.bias": torch.ones(width)}
    save(tmp_path, "roberta", "RobertaForMaskedLM", lambda tensors: tensors | pooler)
    found = load_model(tmp_path)
    assert (found.heads, found.unused) == ((Head("masked_token"),), tuple(sorted(pooler)))
    # Its classes for sentences do not read this pooler, so that neither do we; those for choices do.
    found = load_model(tmp_path, (Head("sequence_classification", 2),), jax.random.key(0))
    assert {path.partition("/")[0] for path in found.new} == {"pooler", "sequence_classification"}
    found = load_model(tmp_path, (Head("multiple_choice"),), jax.random.key(0))
    assert {path.partition("/")[0] for path in found.new} == {"multiple_choice"}
    assert (found.params["pooler"]["bias"] == 1).all()
    _, report = transformers.RobertaForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["unexpected_keys"]) > set(pooler)


@pytest.mark.parametrize("family", [family for family in AS_IN_FILES if family != "modernbert"])
def test_without_architectures_the_tensors_determine_the_class(family, tmp_path):
    for end, heads in {"ForMaskedLM": ("masked_token",), "ForQuestionAnswering": ("question_answering",)}.items():
        save(tmp_path / end, family, f"{PREFIXES[family]}{end}", architectures=None)
        assert tuple(head.name for head in load_model(tmp_path / end).heads) == heads


def test_without_architectures_a_classifier_can_be_two_things(tmp_path):
    save(tmp_path / "choice", "bert", "BertForMultipleChoice", architectures=None)
    with pytest.raises(UserError, match="BertForSequenceClassification and BertForMultipleChoice; add"):
        load_model(tmp_path / "choice")
    save(tmp_path / "classes", "bert", "BertForSequenceClassification", architectures=None)  # of several outputs
    assert load_model(tmp_path / "classes").heads == (Head("sequence_classification", 3),)
    save(tmp_path / "modern", "modernbert", "ModernBertForQuestionAnswering", architectures=None)
    with pytest.raises(UserError, match="the tensors fit ModernBertForSequenceClassification and ModernBertForTok"):
        load_model(tmp_path / "modern")
    save(tmp_path / "masked", "modernbert", "ModernBertForMaskedLM", architectures=None)
    assert load_model(tmp_path / "masked").heads == (Head("masked_token"),)


def test_labels_come_with_their_head_only(tmp_path):
    names = {"0": "no", "1": "yes", "2": "maybe"}
    inverse = {label: int(i) for i, label in names.items()}
    save(tmp_path, "electra", "ElectraForSequenceClassification", id2label=names, label2id=inverse)
    assert load_model(tmp_path).labels == ("no", "yes", "maybe")
    assert load_model(tmp_path, (Head("sequence_classification", 3),)).labels == ("no", "yes", "maybe")
    assert load_model(tmp_path, (Head("sequence_classification", 2),), jax.random.key(0)).labels == ()
    assert load_model(tmp_path, (Head("hidden_states"),)).labels == ()


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        ("cls.predictions.transform.dense.bias", r"tensor 'cls\.predictions\.transform\.dense\.bias' is missing"),
        ("cls.predictions.transform.LayerNorm", "has only a part of 'masked_token': 'masked_token/norm/"),
        ("bert.embeddings.LayerNorm.bias", r"tensor 'bert\.embeddings\.LayerNorm\.bias' is missing"),
    ],
)
def test_part_of_a_head_or_of_the_encoder_is_never_drawn(lost, words, tmp_path):
    def without(tensors):
        return {name: x for name, x in tensors.items() if not name.startswith(lost)}

    save(tmp_path, "bert", "BertForMaskedLM", without)
    with pytest.raises(UserError, match=words):
        load_model(tmp_path, (Head("masked_token"),), jax.random.key(0))
    with pytest.raises(UserError, match=r"is missing"):
        load_model(tmp_path)
