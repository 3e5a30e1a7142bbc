"""A family of one's own: a row of FAMILIES, and no other change."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

from bert_jax.config import PretrainConfig, check_choices
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES, Family, NamedModule
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.models import PRESETS
from tests.helpers import tokenizer_directories
from tests.helpers.family_cases import CASES, model_of


def toy() -> Family:
    """BERT's encoder under other names, its pooler with another activation, and a class for masked tokens alone."""
    bert = FAMILIES["bert"]

    def renamed(modules: tuple[NamedModule, ...]) -> tuple[NamedModule, ...]:
        return tuple(
            module._replace(name=module.name.replace("bert.", "toy.").replace("attention.", "mixer."))
            for module in modules
        )

    masked = next(one for one in bert.classes if one.name == "BertForMaskedLM")
    return dataclasses.replace(
        bert,
        prefix="toy",
        encoder=renamed(bert.encoder),
        classes=(masked._replace(name="ToyForMaskedLM", modules=renamed(masked.modules)),),
        tied={copy: name.replace("bert.", "toy.") for copy, name in bert.tied.items()},
        constants={"pooler_activation": "relu"},
    )


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """BERT of transformers, saved and renamed to the toy family."""
    monkeypatch.setitem(FAMILIES, "toy", toy())
    model_of(CASES["bert"], "BertForMaskedLM").save_pretrained(tmp_path / "bert")
    tensors = safetensors.numpy.load_file(tmp_path / "bert" / "model.safetensors")
    fields = json.loads((tmp_path / "bert" / "config.json").read_text())
    (tmp_path / "toy").mkdir()
    named = {name.replace("bert.", "toy.").replace("attention.", "mixer."): x for name, x in tensors.items()}
    safetensors.numpy.save_file(named, tmp_path / "toy" / "model.safetensors")
    fields |= {"model_type": "toy", "architectures": ["ToyForMaskedLM"]}
    (tmp_path / "toy" / "config.json").write_text(json.dumps(fields))
    return tmp_path


def test_a_family_there_and_back(directory, monkeypatch):
    loaded, bert = load_model(directory / "toy"), load_model(directory / "bert")
    assert loaded.config == dataclasses.replace(bert.config, family="toy", pooler_activation="relu")
    jax.tree.map(np.testing.assert_array_equal, loaded.params, bert.params)

    monkeypatch.setitem(PRESETS, "toy_tiny", loaded.config)
    config = PRESETS["toy_tiny"]
    check_choices(PretrainConfig(model=config))
    tokenizer = tokenizer_directories.of_family("bert", directory / "tokenizer")
    export_model(loaded.params, config, loaded.heads, tokenizer, directory / "again")
    names = safetensors.numpy.load_file(directory / "again" / "model.safetensors").keys()
    assert names == safetensors.numpy.load_file(directory / "toy" / "model.safetensors").keys()
    again = load_model(directory / "again")
    assert again.config == config
    jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)

    other = dataclasses.replace(config, pooler_activation="tanh")
    with pytest.raises(UserError, match=r"no toy .* has model\.pooler_activation='tanh' \(it has 'relu'\)"):
        export_model(loaded.params, other, loaded.heads, tokenizer, directory / "other")
