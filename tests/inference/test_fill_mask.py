"""Predictions for masked tokens against the pipeline of `transformers`, for all families."""

import pytest
import torch
import transformers

from bert_jax.checkpoints.load_model import open_model
from bert_jax.errors import UserError
from bert_jax.inference.fill_mask import HEADS, fill_masks
from tests.helpers import tiny_models


@pytest.mark.parametrize("family", tiny_models.CLASSES)
def test_predictions_equal_the_predictions_of_transformers(tmp_path, family):
    model, tokenizer = tiny_models.save(tmp_path, family)
    text = f"a {tokenizer.mask_token} cd {tokenizer.mask_token}."
    guesses = fill_masks(open_model(tmp_path, HEADS), text, top_k=4)
    theirs = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, top_k=4)(text)
    wanted = [guess for mask in theirs for guess in mask]
    assert [guess["id"] for guess in guesses] == [guess["token"] for guess in wanted]
    assert [guess["probability"] for guess in guesses] == pytest.approx([guess["score"] for guess in wanted], rel=1e-4)
    assert guesses[0]["text"].count(tokenizer.mask_token) == 1
    assert [guess["token"] for guess in guesses] == tokenizer.convert_ids_to_tokens([g["token"] for g in wanted])


@pytest.mark.parametrize("num_letters", [1, 10, 11, 12, 13, 16])
def test_a_short_text_of_big_bird_is_read_by_dense_attention(tmp_path, num_letters):
    """The text has three tokens more; up to 14 tokens, the attention of transformers is dense."""
    model, tokenizer = tiny_models.save_big_bird(tmp_path)
    words = ["abcdefghij"[n % 10] for n in range(num_letters)]
    middle = num_letters // 2
    text = " ".join([*words[:middle], "[MASK]", *words[middle:]])
    with torch.no_grad():
        wanted = model(**tokenizer(text, return_tensors="pt")).logits[0, 1 + middle].softmax(-1).sort(descending=True)
    guesses = fill_masks(open_model(tmp_path, HEADS), text, top_k=5)
    assert [guess["id"] for guess in guesses] == wanted.indices[:5].tolist()
    assert [guess["probability"] for guess in guesses] == pytest.approx(wanted.values[:5].tolist(), rel=1e-5)


def test_bad_texts_options_and_models_are_refused(tmp_path):
    _, tokenizer = tiny_models.save(tmp_path / "roberta", "roberta")
    roberta = open_model(tmp_path / "roberta", HEADS)
    with pytest.raises(UserError, match=r"the text has \[MASK\], which is not the mask of this model; write <mask>"):
        fill_masks(roberta, "a [MASK]")
    with pytest.raises(UserError, match="the text has no <mask>"):
        fill_masks(roberta, "a word")
    with pytest.raises(UserError, match="tokens; this model reads 32"):
        fill_masks(roberta, "a <mask>" * 20)
    with pytest.raises(UserError, match=f"choose from 1 to {len(tokenizer)}"):
        fill_masks(roberta, "a <mask>", top_k=0)
    tiny_models.save(tmp_path / "classifier", "electra", "ForSequenceClassification")
    with pytest.raises(UserError, match="ElectraForSequenceClassification without masked_token"):
        open_model(tmp_path / "classifier", HEADS)
    models = [
        ("electra", "ForPreTraining", {}, "the generator of an ELECTRA run can"),
        ("bert", "LMHeadModel", {"is_decoder": True}, "it predicts the next token, and cannot fill masks"),
        ("bert", "Model", {}, "it cannot fill masks; use a model with a masked-token head"),
    ]
    for family, task, settings, advice in models:
        tiny_models.save(tmp_path / task, family, task, **settings)
        with pytest.raises(UserError, match=f"without masked_token; .*{advice}"):
            open_model(tmp_path / task, HEADS)
