"""ModernBERT's decoder beside transformers: import, export, the width of its windows."""

import dataclasses
import pathlib

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax.checkpoints.architecture import with_attention
from bert_jax.config import ComputeConfig
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.interop.huggingface.model_config import model_config_fields, parse_model_config
from bert_jax.models import Head, make_model
from tests.helpers import reference
from tests.helpers.family_cases import MODERN, MODERNBERT
from tests.helpers.tiny_models import special_ids, tokenizer_of

DECODER = dataclasses.replace(MODERNBERT, family="modernbert-decoder", causal=True, local_window=4)


def test_logits_equal_transformers_and_an_export_gives_them_back(tmp_path: pathlib.Path) -> None:
    """Of sequences longer than the windows, with padding."""
    tokenizer = tokenizer_of("modernbert")
    sizes = MODERN | {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id} | special_ids(tokenizer)
    config = transformers.ModernBertDecoderConfig(**sizes)
    theirs = reference.randomized(transformers.ModernBertDecoderForCausalLM, config, deviation=0.15)
    theirs.save_pretrained(tmp_path / "theirs")
    tokenizer.save_pretrained(tmp_path / "theirs")
    loaded = load_model(tmp_path / "theirs")
    assert (loaded.config, loaded.heads) == (
        dataclasses.replace(DECODER, vocab_size=len(tokenizer)),
        (Head("next_token"),),
    )
    assert (loaded.notes, loaded.unused) == ((), ())
    export_model(loaded.params, loaded.config, loaded.heads, tmp_path / "theirs", tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert again.config.local_attention == 6
    ids = np.random.default_rng(0).integers(5, len(tokenizer), (3, 19)).astype(np.int32)
    mask = (np.arange(19) < np.array([[19], [12], [15]])).astype(np.int32)
    batch = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask}
    model = make_model(loaded.config, ComputeConfig(), loaded.heads)
    logits = np.asarray(jax.jit(model.apply)(loaded.params, batch, None)["next_logits"])[..., : len(tokenizer)]
    for reading in (theirs, again):
        with torch.no_grad():
            expected = reading(torch.tensor(ids).long(), torch.tensor(mask).long()).logits.numpy()[:, :-1]
        real = mask[:, :-1] > 0
        assert expected.std() > 0.05
        np.testing.assert_allclose(logits[real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.parametrize("change", [{}, {"local_window": 7}, {"global_every": 1, "local_window": None}], ids=str)
def test_the_fields_of_a_file_are_read_as_they_are_written(change: dict[str, int | None]) -> None:
    config = dataclasses.replace(DECODER, **change)
    if config.local_window is None:
        config = dataclasses.replace(config, local_rotary_base=None)
    fields = model_config_fields(config, 0, "")
    assert parse_model_config(fields, "").encoder == config
    assert transformers.AutoConfig.for_model(**fields).layer_types == fields["layer_types"]


def test_a_family_has_a_twin_with_the_other_attention() -> None:
    encoder = dataclasses.replace(MODERNBERT, local_window=4)
    assert (with_attention(DECODER, False), with_attention(encoder, True)) == (encoder, DECODER)
    assert with_attention(encoder, False) == encoder
