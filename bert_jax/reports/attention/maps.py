"""Heat maps of attention weights, with the names of tokens if there is space for them."""

import math
import unicodedata

import numpy as np

from bert_jax.reports.html.markup import Html, element, shortened
from bert_jax.reports.html.png import png_data_uri

CELL, FONT = 12, 10  # sizes in the units of a map's drawing; `.label` in style.py has this font size
CHARACTER, WIDE_CHARACTER = 6.5, 10.5  # width of an ordinary and of a full-width character (kanji) of a label
MAX_LABEL = 14  # maximum number of characters of a label
UNIT_PIXELS = 1.4  # pixels per unit of a large map
MAX_PIXELS = 128  # pixels of a side of a small map; a small map of more tokens has no names


def token_labels(tokens: list[str]) -> Html:
    """Return an SVG of the names of tokens beside and above a map; all maps of the page refer to this SVG."""
    names = [(CELL * index + FONT - 1, shortened(token, MAX_LABEL)) for index, token in enumerate(tokens)]
    left = [element("text", name, x=-3, y=middle, text_anchor="end") for middle, name in names]
    above = [element("text", name, transform=f"translate({middle} -3) rotate(-90)") for middle, name in names]
    group = element("g", *left, *above, id="tokens", class_="label")
    return element("svg", element("defs", group), class_="defined", width=0, height=0, aria_hidden="true")


def label_margin(tokens: list[str]) -> int:
    """Return the width of the margin beside and above a map, in which the longest name of a token fits."""
    widths = [
        sum(WIDE_CHARACTER if unicodedata.east_asian_width(character) in "WF" else CHARACTER for character in label)
        for label in (shortened(token, MAX_LABEL) for token in tokens)
    ]
    return 5 + math.ceil(max(widths))


def small_heat_map(weights: np.ndarray, tokens: list[str], description: str, *marks: Html) -> Html:
    """Return a heat map with the names of tokens, or a `MAX_PIXELS` map without names above `max_pooled` tokens.

    Args:
        weights: float `[queries, keys]`.
        tokens: names of the tokens.
        description: description of the map for screen readers.
        marks: drawings to put over the map, in the coordinates of the map.
    """
    pixels = max_pooled(weights)
    if len(pixels) < len(weights):
        return _heat_map_html(pixels, 1, description)
    return _heat_map_html(pixels, label_margin(tokens), description, element("use", href="#tokens"), *marks)


def large_heat_map(weights: np.ndarray, tokens: list[str], description: str, *marks: Html) -> Html:
    """Return a large heat map with the names of all tokens; `marks` are drawings in the map's coordinates."""
    margin = label_margin(tokens)
    side = round(UNIT_PIXELS * (margin + CELL * len(weights) + 2))
    size = {"class_": "real", "width": side, "height": side}
    return _heat_map_html(weights, margin, description, element("use", href="#tokens"), *marks, **size)


def tokens_per_pixel(num_tokens: int) -> int:
    """Return the number of tokens per pixel on each axis of a small map."""
    return -(-num_tokens // MAX_PIXELS)


def max_pooled(weights: np.ndarray) -> np.ndarray:
    """Return the largest weight of each square of tokens; `[tokens, tokens]` weights become `[pixels, pixels]`."""
    starts = np.arange(0, len(weights), tokens_per_pixel(len(weights)))
    return np.asarray(np.maximum.reduceat(np.maximum.reduceat(weights, starts, axis=0), starts, axis=1))


def _heat_map_html(pixels: np.ndarray, margin: int, description: str, *marks: Html | str, **size: object) -> Html:
    """Return a heat map as SVG: a framed gray picture with `marks` over it; a dark pixel is a large weight.

    The origin of the coordinates is the top left corner of the picture.
    """
    side = CELL * len(pixels)
    gray = np.round(255 * (1 - pixels / max(float(pixels.max()), 1e-30))).astype(np.uint8)
    return element(
        "svg",
        element("image", class_="map", width=side, height=side, href=png_data_uri(gray)),
        element("rect", class_="frame", width=side, height=side),
        *marks,
        viewBox=f"{-margin} {-margin} {margin + side + 2} {margin + side + 2}",
        role="img",
        aria_label=description,
        **size,
    )
