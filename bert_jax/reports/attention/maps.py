"""Heat maps of attention weights, with their tokens where these can be read."""

import numpy as np

from bert_jax.reports.html.markup import Html, element
from bert_jax.reports.html.png import data_uri

CELL, MARGIN, FONT = 12, 84, 10  # of a map, in its own units; the font is that of .label
MAX_LABEL = 14  # characters
LARGE = 1.4  # pixels of a unit of a large map
MOST = 128  # pixels of a side of a small map; more tokens are not named beside it


def labels(tokens: list[str]) -> Html:
    """Return the tokens beside and above a map, drawn once; each map refers to them."""
    beside = [
        element("text", short(token), x=MARGIN - 3, y=_middle(number), text_anchor="end")
        for number, token in enumerate(tokens)
    ]
    above = [
        element("text", short(token), transform=f"translate({_middle(number)} {MARGIN - 3}) rotate(-90)")
        for number, token in enumerate(tokens)
    ]
    both = element("g", *beside, *above, id="tokens", class_="label")
    return element("svg", element("defs", both), class_="defined", width=0, height=0, aria_hidden="true")


def small_map(weights: np.ndarray, words: str) -> Html:
    """Return a map with tokens beside it; of more than `MOST` tokens, `pooled` and without them.

    Args:
        weights: float `[queries, keys]`.
        words: what the map is of, for those who do not see it.
    """
    pixels = pooled(weights)
    named = len(pixels) == len(weights)
    margin = MARGIN if named else 1
    return _drawn(pixels, margin, element("use", href="#tokens") if named else "", role="img", aria_label=words)


def large_map(weights: np.ndarray, words: str, *marks: Html) -> Html:
    """Return a map of every token large enough to read, with `marks` in its units, from `MARGIN` on."""
    side = round(LARGE * (MARGIN + CELL * len(weights) + 2))
    size = {"class_": "real", "width": side, "height": side}
    return _drawn(weights, MARGIN, element("use", href="#tokens"), *marks, role="img", aria_label=words, **size)


def block(tokens: int) -> int:
    """Return how many tokens a pixel of a small map stands for, on each side."""
    return -(-tokens // MOST)


def pooled(weights: np.ndarray) -> np.ndarray:
    """Return weights `[tokens, tokens]` as at most `[MOST, MOST]`: the largest of each square of `block` tokens."""
    starts = np.arange(0, len(weights), block(len(weights)))
    return np.asarray(np.maximum.reduceat(np.maximum.reduceat(weights, starts, axis=0), starts, axis=1))


def short(token: str) -> str:
    """Return a token that fits beside a map."""
    return token if len(token) <= MAX_LABEL else token[: MAX_LABEL - 1] + "…"


def _drawn(pixels: np.ndarray, margin: int, *marks: Html | str, **attributes: object) -> Html:
    size = CELL * len(pixels)
    gray = np.round(255 * (1 - pixels / max(float(pixels.max()), 1e-30))).astype(np.uint8)
    return element(
        "svg",
        element("image", class_="map", x=margin, y=margin, width=size, height=size, href=data_uri(gray)),
        element("rect", class_="frame", x=margin, y=margin, width=size, height=size),
        *marks,
        viewBox=f"0 0 {margin + size + 2} {margin + size + 2}",
        **attributes,
    )


def _middle(number: int) -> int:
    return MARGIN + CELL * number + FONT - 1
