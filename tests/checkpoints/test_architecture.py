"""The architecture of a model directory without its weights: `--config.model=from_init`, and a model in one line."""

import dataclasses
import json
import shutil

import pytest

from bert_jax.checkpoints.architecture import read_architecture, read_run_config
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.config import PretrainConfig, to_json
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from bert_jax.loaded_model import load
from tests.helpers.tiny_models import CLASSES, save

FROM_INIT = "--config.model=from_init"


@pytest.mark.parametrize("family", CLASSES)
def test_from_init_takes_the_architecture_of_the_weights(tmp_path, family):
    save(tmp_path, family)
    expected = load_model(tmp_path).config
    (tmp_path / "model.safetensors").unlink()
    assert read_architecture(tmp_path) == expected
    words = [FROM_INIT, f"--config.init_from={tmp_path}", "--config.train.phases[0].seq_len=32"]
    config = read_run_config(PretrainConfig, None, words)
    expected = dataclasses.replace(expected, vocab_size=None)  # of the corpus
    assert config.model == expected
    changed = read_run_config(PretrainConfig, None, [*words, "--config.model.dropout=0.25"])
    assert changed.model == dataclasses.replace(expected, dropout=0.25)


def test_from_init_without_an_architecture(tmp_path):
    with pytest.raises(UserError, match=r"--config.model=from_init needs weights: give --config.init_from=DIR"):
        read_run_config(PretrainConfig, None, [FROM_INIT])
    with pytest.raises(UserError, match=r"describes no architecture \(no config.json\)"):
        read_run_config(PretrainConfig, None, [FROM_INIT, f"--config.init_from={tmp_path}"])


def test_a_resumed_run_has_its_recorded_architecture_and_not_the_values_of_a_phase(tmp_path):
    save(tmp_path / "start", "modernbert")
    words = [FROM_INIT, f"--config.init_from={tmp_path / 'start'}", "--config.train.phases[0].rotary_base=5000"]
    words.append("--config.train.phases[0].seq_len=32")
    first = read_run_config(PretrainConfig, None, words, tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "2").mkdir(parents=True)
    run = {"config": to_json(first), "fingerprint": {"tokenizer": "f00"}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(run))
    shutil.rmtree(tmp_path / "start")
    assert read_run_config(PretrainConfig, None, words, tmp_path / "run") == first


def test_a_model_is_shown_in_a_line(tmp_path):
    model, _ = save(tmp_path, "bert")
    text = repr(load(tmp_path))
    assert (
        text
        == f"<LoadedModel bert: 4 layers x 16, {model.num_parameters():,} parameters, masked_token, from {tmp_path}>"
    )
    assert len(repr(load(tmp_path).model)) < 4000 > len(repr(read_weights(tmp_path)))
