"""Heat maps of attention weights, with the names of tokens if there is space for them."""

import numpy as np

from bert_jax.reports.html.markup import Html, element, shortened
from bert_jax.reports.html.png import data_uri

CELL, MARGIN, FONT = 12, 84, 10  # of a map, in the units of its drawing; `.label` in style.py has this font size
MAX_LABEL = 14  # characters
UNIT_PIXELS = 1.4  # of a large map
MAX_PIXELS = 128  # of a side of a small map; a map of more tokens has no names


def token_labels(tokens: list[str]) -> Html:
    """Return an SVG with the names of tokens left of and above a map; all maps of the page refer to this SVG."""
    names = [(MARGIN + CELL * index + FONT - 1, shortened(token, MAX_LABEL)) for index, token in enumerate(tokens)]
    left = [element("text", name, x=MARGIN - 3, y=middle, text_anchor="end") for middle, name in names]
    above = [element("text", name, transform=f"translate({middle} {MARGIN - 3}) rotate(-90)") for middle, name in names]
    group = element("g", *left, *above, id="tokens", class_="label")
    return element("svg", element("defs", group), class_="defined", width=0, height=0, aria_hidden="true")


def small_map(weights: np.ndarray, description: str) -> Html:
    """Return a heat map with the names of tokens; above `MAX_PIXELS` tokens, return a `max_pooled` map without names.

    Args:
        weights: float `[queries, keys]`.
        description: description of the map for screen readers.
    """
    pixels = max_pooled(weights)
    named = len(pixels) == len(weights)
    margin = MARGIN if named else 1
    return _map_html(pixels, margin, description, element("use", href="#tokens") if named else "")


def large_map(weights: np.ndarray, description: str, *marks: Html) -> Html:
    """Return a large heat map with every token, and with `marks` over it in units of the map, offset by `MARGIN`."""
    side = round(UNIT_PIXELS * (MARGIN + CELL * len(weights) + 2))
    size = {"class_": "real", "width": side, "height": side}
    return _map_html(weights, MARGIN, description, element("use", href="#tokens"), *marks, **size)


def tokens_per_pixel(num_tokens: int) -> int:
    """Return the number of tokens per pixel on each axis of a small map."""
    return -(-num_tokens // MAX_PIXELS)


def max_pooled(weights: np.ndarray) -> np.ndarray:
    """Return the largest weight of each square of tokens: `[tokens, tokens]` becomes `[pixels, pixels]`."""
    starts = np.arange(0, len(weights), tokens_per_pixel(len(weights)))
    return np.asarray(np.maximum.reduceat(np.maximum.reduceat(weights, starts, axis=0), starts, axis=1))


def _map_html(pixels: np.ndarray, margin: int, description: str, *marks: Html | str, **size: object) -> Html:
    """Return a heat map as SVG: a framed gray picture with `marks` over it; a dark pixel is a large weight."""
    side = CELL * len(pixels)
    gray = np.round(255 * (1 - pixels / max(float(pixels.max()), 1e-30))).astype(np.uint8)
    return element(
        "svg",
        element("image", class_="map", x=margin, y=margin, width=side, height=side, href=data_uri(gray)),
        element("rect", class_="frame", x=margin, y=margin, width=side, height=side),
        *marks,
        viewBox=f"0 0 {margin + side + 2} {margin + side + 2}",
        role="img",
        aria_label=description,
        **size,
    )
