"""Rollout and relevance against their published rules in loops, with the weights and gradients of `transformers`."""

import dataclasses
import pathlib
import xml.etree.ElementTree as ET

import numpy as np
import PIL.Image
import pytest
import transformers

from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.errors import UserError
from bert_jax.reports.attention.head_roles import attention_rollout, gradient_relevance, token_to_word_attention
from bert_jax.reports.attention.page import attention_page
from bert_jax.reports.attention.picture import draw_attention
from bert_jax.reports.attention.text import (
    TextAttention,
    attention_between_words,
    attention_within_window,
    patterns_of_heads,
    text_attention,
)
from bert_jax.reports.attention.write import write_attention_file
from tests.helpers.tiny_models import CLASSES, save
from tests.helpers.written_pages import HOSTILE, Page

TEXT = "ab c [MASK] de f gaa."


def published_rollout(weights: list[np.ndarray]) -> np.ndarray:
    """Abnar and Zuidema 2020, equation 1: A = 0.5 W + 0.5 I for each layer, then their product from the last one."""
    number = weights[0].shape[-1]
    found = None
    for layer in weights:
        attention = np.zeros((number, number))
        for head in layer:
            attention += head / len(layer)
        attention = 0.5 * attention + 0.5 * np.eye(number)
        found = attention if found is None else np.dot(attention, found)
    assert found is not None
    return found


def published_relevance(weights: list[np.ndarray], gradients: list[np.ndarray]) -> np.ndarray:
    """Chefer et al. 2021: A' = E_h((dA * A)+), R = R + A' R, one entry after another."""
    number = weights[0].shape[-1]
    found = np.eye(number)
    for layer, gradient in zip(weights, gradients, strict=True):
        mean, heads = np.zeros((number, number)), len(layer)
        for h, q, k in np.ndindex(layer.shape):
            mean[q, k] += max(0.0, gradient[h, q, k] * layer[h, q, k]) / heads
        added = np.zeros((number, number))
        for q, k, through in np.ndindex(number, number, number):
            added[q, k] += mean[q, through] * found[through, k]
        found = found + added
    return found


def drawn(seed: int, layers: int = 3) -> list[np.ndarray]:
    raw = np.random.default_rng(seed).exponential(size=(layers, 2, 5, 5))
    return list(raw / raw.sum(-1, keepdims=True))


def test_rollout_and_relevance_by_their_rules() -> None:
    weights = drawn(0)
    np.testing.assert_allclose(attention_rollout(weights), published_rollout(weights), atol=1e-12)
    np.testing.assert_allclose(attention_rollout(weights).sum(-1), 1)
    gradients = list(np.random.default_rng(1).standard_normal((3, 2, 5, 5)))
    np.testing.assert_allclose(
        gradient_relevance(weights, gradients), published_relevance(weights, gradients), atol=1e-12
    )


def test_tokens_to_words_by_hand() -> None:
    """Read: the sum over the tokens of a word. Reads: the mean of what its tokens read."""
    tokens = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
    wanted = [[0.1, 0.9], [(0.3 + 0.5) / 2, (0.7 + 0.5) / 2]]
    np.testing.assert_allclose(token_to_word_attention(tokens, np.array([0, 1, 1])), wanted)
    np.testing.assert_allclose(token_to_word_attention(tokens[1:], np.array([0, 1, 1]), 1), wanted[1:])
    np.testing.assert_allclose(
        token_to_word_attention(tokens[:2], np.array([0, 1, 1])), wanted[:1]
    )  # half of the second word reads


@pytest.mark.parametrize(
    ("family", "task", "more"),
    [
        ("modernbert", "ForMaskedLM", {}),
        ("modernbert", "ForSequenceClassification", {"classifier_pooling": "mean"}),
        pytest.param("electra", "ForSequenceClassification", {}, marks=pytest.mark.slow),
    ],
)
def test_a_text_through_the_model_as_transformers_computes_it(
    family: str, task: str, more: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier answers from the first token, or from the mean of all tokens, whose relevance is a mean."""
    _, tokenizer = save(tmp_path, family, task, **more)
    kind = getattr(transformers, f"{CLASSES[family]}{task}")
    theirs = kind.from_pretrained(tmp_path, attn_implementation="eager").eval()
    encoded = tokenizer(TEXT, return_tensors="pt", return_token_type_ids=False)
    output = theirs(**encoded, output_attentions=True)
    for layer in output.attentions:
        layer.retain_grad()
    ids = encoded["input_ids"][0]
    is_mask = task == "ForMaskedLM"
    place = int((ids == tokenizer.mask_token_id).nonzero()[0, 0]) if is_mask else 0
    logits = output.logits[0, place] if is_mask else output.logits[0]
    logits.max().backward()
    weights = [layer.detach().numpy()[0].astype(np.float64) for layer in output.attentions]
    gradients = [layer.grad.numpy()[0].astype(np.float64) for layer in output.attentions]
    model = open_model(tmp_path)
    found = text_attention(model, TEXT)
    np.testing.assert_allclose(found.rollout, published_rollout(weights), atol=1e-5)
    added = published_relevance(weights, gradients) - np.eye(len(ids))
    wanted = added.mean(0) if more else added[place]
    assert wanted.max() > 1e-3
    assert found.relevance is not None
    np.testing.assert_allclose(found.relevance.tokens, wanted, rtol=1e-3, atol=1e-5 * wanted.max())
    best = int(logits.argmax())
    name = tokenizer.convert_ids_to_tokens(best) if is_mask else str(best)
    assert found.relevance.answer in (name, f"LABEL_{best}")
    assert found.relevance.probability == pytest.approx(float(logits.detach().softmax(-1)[best]), rel=1e-4)
    monkeypatch.setattr("bert_jax.reports.attention.text.MAX_TOKENS", 5)
    part = text_attention(model, TEXT, first=4)
    assert (part.tokens, part.rollout, part.relevance, part.window) == (found.tokens, None, None, slice(4, 9))
    for layer, shorter, other in zip(part.weights, attention_within_window(part).weights, weights, strict=True):
        np.testing.assert_allclose(layer, other[:, 4:9], atol=1e-5)
        np.testing.assert_array_equal(shorter, layer[:, :, 4:9])
    with pytest.raises(UserError, match=f"--first_token {len(ids)}: this text has {len(ids)} tokens, 0 to"):
        text_attention(model, TEXT, first=len(ids))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> OpenModel:
    directory = tmp_path_factory.mktemp("flow") / "bert"
    save(directory, "bert")
    return open_model(directory)


@pytest.fixture(scope="module")
def found(model: OpenModel) -> TextAttention:
    return text_attention(model, TEXT)


def test_words_on_a_page(model: OpenModel, found: TextAttention) -> None:
    words = attention_between_words(model, found)
    assert words.tokens == ["[CLS]", "ab", "c", "[MASK]", "de", "f", "gaa", ".", "[SEP]"]
    groups = np.array([0, 1, 1, 2, 3, 4, 4, 5, 6, 6, 6, 7, 8])
    assert len(found.tokens) == len(groups)
    np.testing.assert_allclose(words.rollout, token_to_word_attention(found.rollout, groups))
    assert found.relevance is not None
    assert words.relevance is not None
    np.testing.assert_allclose(words.relevance.tokens, [found.relevance.tokens[groups == n].sum() for n in range(9)])
    page = Page(attention_page(model, dataclasses.replace(words, tokens=[*HOSTILE, "a", "b", "c"]), TEXT))
    assert "on 9 words" in page.text
    relevance = found.relevance
    assert f"Relevance for {relevance.target}, {relevance.answer} ({relevance.probability:.1%})" in page.text
    marked = TEXT.replace("[MASK]", f"{relevance.answer} ({relevance.probability:.1%})", 1)
    assert marked in page.text  # the answer is at its place in the text
    assert "<script>alert" in page.text  # as text


def test_words_of_a_byte_level_vocabulary(tmp_path: pathlib.Path) -> None:
    """The first word of each text has no mark of a space."""
    save(tmp_path, "roberta")
    model = open_model(tmp_path)
    found = text_attention(model, "ab c", "d e")
    words = attention_between_words(model, found).tokens
    assert [word.replace(" ", "") for word in words] == ["<s>", "ab", "c", "</s>", "</s>", "d", "e", "</s>"]


def test_a_window_of_a_long_text(model: OpenModel, found: TextAttention) -> None:
    """Tokens 2 to 5 read: the end of one word, two words of one token, and the beginning of another word."""
    rows = [layer[:, 2:6] for layer in found.weights]
    part = dataclasses.replace(found, weights=rows, rollout=None, relevance=None, first=2)
    page = Page(attention_page(model, part, TEXT))
    assert f"read all {len(found.tokens)} tokens; the page shows the attention of tokens 2 to 5," in page.text
    assert "on 4 tokens" in page.text
    assert "Rollout" not in page.text.replace("Rollout and relevance need", "")
    for layer, readings in zip(found.weights, patterns_of_heads(model, part), strict=True):
        for head, reading in zip(layer, readings, strict=True):
            previous = np.mean([head[query, query - 1] for query in range(2, 6)])  # token 1 is not shown
            assert reading.fractions["previous token"] == pytest.approx(previous)
            assert f"entropy {reading.entropy:.2f} nats; {1 - head[2:6, 2:6].sum() / 4:.0%} not shown" in page.text
    words = attention_between_words(model, part)
    assert words.window == slice(2, 4)
    assert attention_within_window(words).tokens == ["c", "[MASK]"]
    for layer, whole in zip(words.weights, attention_between_words(model, found).weights, strict=True):
        np.testing.assert_allclose(layer, whole[:, 2:4], rtol=1e-5)
    with pytest.raises(UserError, match="the tokens from 5 on hold no complete word"):
        attention_between_words(
            model, dataclasses.replace(part, weights=[layer[:, 5:6] for layer in found.weights], first=5)
        )


def test_texts_that_cannot_be_read(model: OpenModel) -> None:
    with pytest.raises(UserError, match="allowed in a single text only"):
        text_attention(model, TEXT, "ab")
    with pytest.raises(UserError, match="more than 32 tokens"):
        text_attention(model, "[MASK] " * 40)


def test_pictures(found: TextAttention, tmp_path: pathlib.Path) -> None:
    draw_attention(found, str(tmp_path / "all.png"))
    with PIL.Image.open(tmp_path / "all.png") as picture:
        width, height = picture.size
    assert height == pytest.approx(2 * width, rel=0.02)  # 4 layers of 2 heads
    draw_attention(
        dataclasses.replace(found, tokens=[HOSTILE[0], "a$b$", *found.tokens[2:]]),
        str(tmp_path / "one.svg"),
        layer=3,
        head=1,
    )
    names = {element.tag.rpartition("}")[2] for element in ET.parse(tmp_path / "one.svg").iter()}
    assert "image" in names
    assert "script" not in names
    for words, says in (({"layer": 4}, "--layer 4: this model has 4, 0 to 3"), ({"head": -1}, "--head -1: this model")):
        with pytest.raises(UserError, match=says):
            draw_attention(found, str(tmp_path / "x.png"), **words)
    with pytest.raises(UserError, match="cannot be written"):
        draw_attention(found, str(tmp_path / "absent" / "x.png"), 0, 0)
    with pytest.raises(UserError, match="--head needs --layer"):
        write_attention_file("absent", "ab", None, str(tmp_path / "x.png"), head=1)
