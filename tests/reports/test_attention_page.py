"""The page about heads: patterns of known heads, a picture that another library reads, and text that stays text."""

import base64
import dataclasses
import html
import io
import pathlib
import xml.etree.ElementTree as ET

import numpy as np
import PIL.Image
import pytest

from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.errors import UserError
from bert_jax.reports.attention.detail import MAX_FIELDS, MIN_LINE_WEIGHT, ROW, attention_lines, head_detail_section
from bert_jax.reports.attention.maps import CELL, MAX_PIXELS, label_margin, max_pooled, small_heat_map, tokens_per_pixel
from bert_jax.reports.attention.page import attention_page
from bert_jax.reports.attention.patterns import head_pattern
from bert_jax.reports.attention.picture import draw_attention
from bert_jax.reports.attention.text import TextAttention, text_attention
from bert_jax.reports.attention.write import write_attention_file
from bert_jax.reports.html.markup import UNPRINTABLE
from bert_jax.reports.html.png import png_data_uri
from tests.helpers.browser import Opened
from tests.helpers.tiny_models import save
from tests.helpers.written_pages import HOSTILE, Page

IDS = np.array([2, 7, 8, 3, 9, 3])  # [CLS] a b [SEP] c [SEP]
SPECIAL = {"cls": 2, "sep": 3}
NUMBER = len(IDS)


def heads() -> dict[str, np.ndarray]:
    """A head of each name; the last query of "next token" has no next one and reads the first."""
    shifted = np.eye(NUMBER, k=1)
    shifted[-1, 0] = 1
    separators = np.zeros((NUMBER, NUMBER))
    separators[:, [3, 5]] = 0.5
    mixed = np.full((NUMBER, NUMBER), 0.005)  # a key without any attention would be out of reach
    mixed[:, [1, 4]] = 0.49
    return {
        "next token": shifted,
        "previous token": np.where(np.arange(NUMBER)[:, None] == 0, np.eye(NUMBER)[0], np.eye(NUMBER, k=-1)),
        "itself": np.eye(NUMBER),
        "[SEP]": separators,
        "[CLS]": np.tile(np.eye(NUMBER)[0], (NUMBER, 1)),
        "broad": np.full((NUMBER, NUMBER), 1 / NUMBER),
        "mixed": mixed,
    }


@pytest.mark.parametrize("name", heads())
def test_heads_get_the_name_of_their_pattern(name: str) -> None:
    found = head_pattern(heads()[name], IDS, SPECIAL)
    assert found.name == name
    of_mixed = -2 * 0.49 * np.log(0.49) - 4 * 0.005 * np.log(0.005)
    entropies = {"broad": np.log(NUMBER), "[SEP]": np.log(2), "mixed": of_mixed}
    assert found.entropy == pytest.approx(entropies.get(name, 0.0))
    assert name not in found.fractions or found.fractions[name] == pytest.approx(1)


def test_shares_by_hand() -> None:
    weights = np.array([[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]])
    found = head_pattern(weights, np.array([2, 7, 3]), SPECIAL)
    assert found.fractions == pytest.approx(
        {
            "next token": (0.7 + 0.4) / 2,
            "previous token": (0.3 + 0.25) / 2,
            "itself": (0.1 + 0.3 + 0.25) / 3,
            "[SEP]": (0.2 + 0.4 + 0.25) / 3,
            "[CLS]": (0.1 + 0.3 + 0.5) / 3,
        }
    )
    assert found.name == "next token"


def test_the_picture_is_a_png() -> None:
    gray = np.random.default_rng(0).integers(0, 256, (7, 5)).astype(np.uint8)
    content = base64.b64decode(png_data_uri(gray).removeprefix("data:image/png;base64,"), validate=True)
    np.testing.assert_array_equal(np.asarray(PIL.Image.open(io.BytesIO(content))), gray)


TEXT, PAIR = '<img src=x onerror="alert(1)">', "</svg><script>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> OpenModel:
    place = tmp_path_factory.mktemp("attention")
    save(place, "bert")
    return open_model(place)


@pytest.fixture(scope="module")
def found(model: OpenModel) -> TextAttention:
    """What the model reads in a hostile text, whose tokens are hostile too."""
    attention = text_attention(model, TEXT, PAIR)
    hostile = [UNPRINTABLE.sub("\ufffd", token) for token in HOSTILE]
    return dataclasses.replace(attention, tokens=[*hostile, *attention.tokens[len(hostile) :]])


@pytest.fixture(scope="module")
def hostile(model: OpenModel, found: TextAttention, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The page of it."""
    page = tmp_path_factory.mktemp("hostile") / "page.html"
    page.write_text(attention_page(model, found, TEXT, PAIR, (1, 0)), encoding="utf-8")
    return page


def test_a_page_of_hostile_text(model, hostile) -> None:
    page = Page(hostile.read_text(encoding="utf-8"))
    assert f"{TEXT} / {PAIR}" in page.text
    assert "4 layers of 2 heads" in page.text
    assert page.text.count("entropy") == 8
    assert sum(value.startswith("data:image/png;base64,") for value in page.values) == 10  # rollout, one in detail
    with pytest.raises(UserError, match="more than 32 tokens"):
        text_attention(model, "a " * 40)


def test_a_browser_runs_nothing_of_it(hostile, browser) -> None:
    assert browser.open(hostile.as_uri()) == Opened([], [])
    assert f"{TEXT} / {PAIR}" in browser.run("document.body.innerText")
    # 7 links of the contents; matrix, lines and table of one head, patterns, lines of 8 heads
    assert browser.reached() == list(range(19))


def titled(drawing: str, name: str) -> list[tuple[dict[str, str], str]]:
    """Attributes and title of each element of that name."""
    tree = ET.fromstring(drawing)
    return [(one.attrib, one.findtext("title") or "") for one in tree.iter(name)]


def test_maps_are_pooled_to_the_largest_weight() -> None:
    assert tokens_per_pixel(MAX_PIXELS) == 1
    for tokens, side in ((128, 1), (129, 2), (257, 3), (512, 4)):
        weights = np.random.default_rng(tokens).random((tokens, tokens))
        found, number = max_pooled(weights), -(-tokens // side)
        assert found.shape == (number, number)
        assert number <= MAX_PIXELS
        for row, column in ((0, 0), (1, 7), (number - 1, number - 1), (number - 1, 3)):
            field = [
                weights[query, key]
                for query in range(side * row, min(side * (row + 1), tokens))
                for key in range(side * column, min(side * (column + 1), tokens))
            ]
            assert found[row, column] == max(field)


def test_lines_and_fields_have_the_weights_of_the_model(found: TextAttention) -> None:
    tokens, weights = found.tokens, found.weights[1][0]
    svg = titled(attention_lines(tokens, weights, "a"), "line")
    drawn = {(one["y1"], one["y2"]): (title, one["opacity"]) for one, title in svg}
    wanted = {
        (str(ROW * query + ROW // 2), str(ROW * key + ROW // 2)): (
            f"{tokens[query]} → {tokens[key]}: {weights[query, key]:.3f}",
            f"{0.1 + 0.9 * weights[query, key]:.2f}",
        )
        for query, key in np.ndindex(weights.shape)
        if weights[query, key] >= MIN_LINE_WEIGHT
    }
    assert drawn == wanted
    assert 0 < len(wanted) < weights.size
    fields = [
        (one, title)
        for one, title in titled(f"<div>{head_detail_section(tokens, weights, 1, 0)}</div>", "rect")
        if title
    ]
    assert [title for _, title in fields] == [
        f"{tokens[query]} → {tokens[key]}: {weights[query, key]:.3f}" for query, key in np.ndindex(weights.shape)
    ]
    assert {int(one["x"]) for one, _ in fields} == {CELL * number for number in range(len(tokens))}


def test_rows_of_small_maps_have_the_largest_weights(model: OpenModel, found: TextAttention) -> None:
    page = attention_page(model, found, TEXT, PAIR)
    for layer in found.weights:
        for head in layer:
            for query, row in enumerate(head):
                largest = sorted(range(len(row)), key=lambda key: -row[key])[:3]
                text = ", ".join(f"{found.tokens[key]} {row[key]:.2f}" for key in largest)
                assert html.escape(f"{found.tokens[query]} → {text}") in page


@pytest.mark.parametrize(("tokens", "margin"), [(["a", "bc"], 18), (["x" * 30], 96), (["漢字"], 26)])
def test_labels_have_the_space_that_they_need(tokens: list[str], margin: int) -> None:
    """5 units, and for each of at most 14 characters 6.5, or 10.5 for a wide character."""
    assert label_margin(tokens) == margin
    assert f'viewBox="-{margin} -{margin} ' in small_heat_map(np.eye(len(tokens)), tokens, "a")


def test_a_long_text_shows_its_largest_weights() -> None:
    """512 tokens without lines: 16,384 of 262,144 weights on hover, none of them smaller than those left out."""
    weights = np.random.default_rng(0).permutation(512 * 512).reshape(512, 512) / (512**2 / 0.04)
    drawn = f"<div>{head_detail_section([str(number) for number in range(512)], weights, 0, 0)}</div>"
    values = [title for _, title in titled(drawn, "rect") if title]
    least = (512**2 - MAX_FIELDS) / (512**2 / 0.04)
    places = zip(*np.nonzero(weights >= least), strict=True)
    wanted = {f"{query} → {key}: {weights[query, key]:.3f}" for query, key in places}
    assert len(values) == MAX_FIELDS == len(set(values))
    assert set(values) == wanted
    assert "the 16,384 largest of 262,144 weights" in drawn


def test_a_page_of_many_tokens(model: OpenModel) -> None:
    """No more pixels than 128 x 128 for a map, no tokens beside it, and it says so."""
    whole = np.random.default_rng(0).random((2, 200, 200))
    whole /= whole.sum(-1, keepdims=True)
    many = TextAttention(tokens=["a"] * 200, ids=np.full(200, 9), weights=[whole], rollout=whole[0])
    shown = attention_page(model, many, "a")
    page = Page(shown)
    assert "a field of it stands for 2 x 2 tokens" in page.text
    assert "#tokens" not in page.values
    maps = [value for value in page.values if value.startswith("data:image")]
    assert len(maps) == 3
    picture = PIL.Image.open(io.BytesIO(base64.b64decode(maps[1].partition(",")[2])))
    peaks = whole[0].reshape(100, 2, 100, 2).max((1, 3))
    np.testing.assert_array_equal(np.asarray(picture), np.round(255 * (1 - peaks / peaks.max())))
    with pytest.raises(UserError, match="at most 128 tokens"):
        draw_attention(many, "x.png", 0, 0)


def test_choosing_a_head(model: OpenModel, found: TextAttention) -> None:
    for one, says in (((4, 0), "--layer 4: this model has 4"), ((0, -1), "--head -1: this model has 2")):
        with pytest.raises(UserError, match=says):
            attention_page(model, found, "ab", detail_of=one)
    with pytest.raises(UserError, match="give both or none"):
        write_attention_file("absent", "ab", None, "x.html", layer=1)


def test_half_of_a_surrogate_pair_is_refused(model: OpenModel) -> None:
    for texts in (("a \ud800", None), ("a", "b \udfff")):
        with pytest.raises(UserError, match="the text has half of a surrogate pair"):
            text_attention(model, *texts)
