"""Runs that start from weights with the other attention: causal weights, of ours or of a decoder, and the reverse."""

import pathlib

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from bert_jax.cli.main import main
from bert_jax.corpus.build.prepare import prepare
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.tiny_models import LETTERS, MAX_POSITIONS, special_ids, tokenizer_of

RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=2, num_heads=2, mlp_size=32, max_positions=32)
    config.data.sentence_pairs = "full_sentences"
    config.train.update(steps=2, batch_size=8)
    config.train.phases = phases({"seq_len": 32})
    config.evaluate.update(num_sequences=16, batch_size=8)
    return config
"""
LEFT_TO_RIGHT = "--config.objective=left_to_right"
FIXED = "--config.optimizer.peak_learning_rate=0.0"  # no weight changes
FROM_INIT = "--config.model=from_init"


def exported(workdir: pathlib.Path) -> dict[str, np.ndarray]:
    """The tensors of the run's export, which is written to `workdir / "model"`."""
    assert main(["export", "--workdir", str(workdir), "--output", str(workdir / "model")]) == 0
    return safetensors.numpy.load_file(workdir / "model" / "model.safetensors")


def test_causal_weights_start_a_run_with_masks_and_the_reverse(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a work directory, then from an export; the heads of both classes have equal names in transformers."""
    corpus = generated_corpus(tmp_path / "text", documents=60, vocab_size=150)
    (tmp_path / "recipe.py").write_text(RECIPE)

    def train(name: str, *words: str) -> dict[str, np.ndarray]:
        command = ["pretrain", f"--config={tmp_path / 'recipe.py'}", f"--workdir={tmp_path / name}"]
        assert main([*command, f"--config.data.corpus={corpus}", *words]) == 0
        return exported(tmp_path / name)

    causal = train("causal", LEFT_TO_RIGHT, "--config.model.causal=True")
    masked = train("masked", FROM_INIT, FIXED, f"--config.init_from={tmp_path / 'causal'}")
    says = "causal: attention becomes bidirectional, and the head next_token becomes masked_token"
    said = capsys.readouterr().err
    assert says in said
    assert "randomly initialized" not in said
    again = train("again", LEFT_TO_RIGHT, FROM_INIT, FIXED, f"--config.init_from={tmp_path / 'masked' / 'model'}")
    assert "attention becomes causal, and the head masked_token becomes next_token" in capsys.readouterr().err
    for tensors in (masked, again):
        assert tensors.keys() == causal.keys()
        assert all(np.array_equal(tensors[name], x) for name, x in causal.items())
    for name, kind in {"causal": "BertLMHeadModel", "masked": "BertForMaskedLM"}.items():
        assert transformers.AutoConfig.from_pretrained(tmp_path / name / "model").architectures == [kind]


@pytest.mark.slow
def test_a_decoder_takes_the_causal_detour(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At a rate of 0, the exported ModernBERT has the decoder's weights."""
    tokenizer, random = tokenizer_of("modernbert"), np.random.default_rng(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": MAX_POSITIONS, "local_attention": 6}
    settings = transformers.ModernBertDecoderConfig(
        **sizes, pad_token_id=tokenizer.pad_token_id, **special_ids(tokenizer)
    )
    torch.manual_seed(0)
    decoder = transformers.ModernBertDecoderForCausalLM(settings)
    decoder.save_pretrained(tmp_path / "decoder")
    tokenizer.save_pretrained(tmp_path / "decoder")
    for number in range(60):
        words = ["".join(random.choice(list(LETTERS), 5)) for _ in range(40)]
        (tmp_path / f"{number}.txt").write_text(" ".join(words) + ".")
    prepare([str(tmp_path / "*.txt")], tmp_path / "decoder", tmp_path / "corpus", workers=1, heldout_fraction=0.1)
    short = [f"--config.train.phases[{index}].seq_len=32" for index in range(2)]
    short += ["--config.train.steps=5", "--config.train.batch_size=8", "--config.optimizer.warmup_steps=1"]
    short += ["--config.evaluate.num_sequences=8", "--config.evaluate.batch_size=8"]
    words = ["--config=causal_detour", FROM_INIT, f"--workdir={tmp_path / 'run'}", "--corpus", str(tmp_path / "corpus")]
    assert main(["pretrain", *words, "--init_from", str(tmp_path / "decoder"), FIXED, *short]) == 0
    said = capsys.readouterr().err
    assert "phase 1: steps 0 to 4 of 8 sequences x 32 tokens" in said
    assert "decoder: attention becomes bidirectional, and the head next_token becomes masked_token" in said
    tensors, theirs = exported(tmp_path / "run"), {name: x.numpy() for name, x in decoder.state_dict().items()}
    assert transformers.ModernBertForMaskedLM.from_pretrained(tmp_path / "run" / "model").config.local_attention == 4
    for layer in range(4):
        attention = [theirs.pop(f"model.layers.{layer}.attn.{name}_proj.weight") for name in "qkv"]
        np.testing.assert_array_equal(tensors.pop(f"model.layers.{layer}.attn.Wqkv.weight"), np.concatenate(attention))
    for name, x in tensors.items():
        np.testing.assert_array_equal(x, theirs[name.replace("head.", "lm_head.")], err_msg=name)
