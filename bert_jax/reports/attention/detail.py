"""The details of one head: a map with weights as tooltips, lines between two columns of tokens, and a table."""

import numpy as np

from bert_jax.reports.attention.maps import CELL, MAX_LABEL, MAX_PIXELS, large_heat_map
from bert_jax.reports.html.markup import Html, collapsible, element, scrollable, section, shortened, table

NUM_LARGEST = 3  # weights that a row of a map shows
MIN_LINE_WEIGHT = 0.05  # smallest weight with a line; a token has at most 20 lines
MAX_FIELDS = MAX_PIXELS * MAX_PIXELS  # maximum number of weights with a tooltip: all of 128 tokens, about 1.5 MB
TITLES = ("token", "reads most", "then", "then")
COLUMN, ROW = 100, 16  # width of the labels and height of a token, in the units of the drawing
GAP, LARGE_GAP = 140, 420  # width of the gap between the two columns of tokens


def head_detail_section(tokens: list[str], weights: np.ndarray, layer: int, head: int) -> Html:
    """Return the section of the page about one head, from the head's attention `weights`, float `[queries, keys]`."""
    name, count, shown = f"layer {layer}, head {head}", weights.size, min(weights.size, MAX_FIELDS)
    values = "all weights" if shown == count else f"the {shown:,} largest of {count:,} weights"
    explanation = (
        f"The mouse on a field shows its weight: {values}. Lines go from the token that reads, left, to "
        f"the token that is read, from a weight of {MIN_LINE_WEIGHT} on; the larger the weight, the darker the line."
    )
    rows = []
    for token, row in zip(tokens, weights, strict=True):
        largest = np.argsort(-row, kind="stable")[: len(TITLES) - 1]
        rows.append((token, *(f"{tokens[key]} {row[key]:.3f}" for key in largest)))
    map_ = large_heat_map(weights, tokens, name, _hover_fields(tokens, weights))
    return section(
        f"Layer {layer}, head {head} in detail",
        element("p", explanation),
        scrollable(map_, f"{name}: every weight", class_="scroll tall"),
        scrollable(attention_lines(tokens, weights, name, large=True), f"{name}: lines", class_="scroll tall"),
        collapsible("The largest weights of each token as a table", table(TITLES, rows, f"{name}: largest weights")),
    )


def attention_lines(tokens: list[str], weights: np.ndarray, name: str, large: bool = False) -> Html:
    """Return a line from the query (left) to the key (right) for each weight of at least `MIN_LINE_WEIGHT`.

    Args:
        tokens: names of the tokens.
        weights: float `[queries, keys]`.
        name: name of the head.
        large: True draws in full size, with a wide gap between the columns; False fits the drawing to the surrounding
            element.
    """
    gap = LARGE_GAP if large else GAP
    middles = [ROW * index + ROW // 2 for index in range(len(tokens))]
    left, right = [], []
    for query, (token, middle) in enumerate(zip(tokens, middles, strict=True)):
        label = shortened(token, MAX_LABEL)
        lines = [
            element(
                "line",
                element("title", _weight_text(tokens, weights, query, key)),
                y1=middle,
                x2=gap,
                y2=middles[key],
                opacity=f"{0.1 + 0.9 * weights[query, key]:.2f}",
            )
            for key in np.flatnonzero(weights[query] >= MIN_LINE_WEIGHT).tolist()
        ]
        query_label = element("text", label, x=-6, y=middle, text_anchor="end", dominant_baseline="central")
        left.append(element("g", query_label, *lines, class_="reads"))
        right.append(element("text", label, x=gap + 6, y=middle, dominant_baseline="central"))
    width, height = 2 * COLUMN + gap, ROW * len(tokens)
    drawing = element("g", *left, *right, transform=f"translate({COLUMN} 0)")
    size = {"class_": "real", "width": width, "height": height} if large else {}
    description = f"{name}, as lines from each token to the tokens that it reads"
    return element("svg", drawing, viewBox=f"0 0 {width} {height}", role="img", aria_label=description, **size)


def _hover_fields(tokens: list[str], weights: np.ndarray) -> Html:
    """Return a transparent rectangle over each of the `MAX_FIELDS` largest weights, with the weight as its tooltip."""
    indexes = np.sort(np.argpartition(weights, -min(weights.size, MAX_FIELDS), axis=None)[-MAX_FIELDS:])
    fields = [
        element(
            "rect",
            element("title", _weight_text(tokens, weights, query, key)),
            x=CELL * key,
            y=CELL * query,
            width=CELL,
            height=CELL,
        )
        for query, key in zip(*np.unravel_index(indexes, weights.shape), strict=True)
    ]
    return element("g", *fields, class_="cells")


def hover_rows(tokens: list[str], weights: np.ndarray) -> Html:
    """Return a transparent rectangle over each row of a map, with the largest weights of the row as its tooltip."""
    rows = []
    for query, row in enumerate(weights):
        largest = np.argsort(-row, kind="stable")[:NUM_LARGEST].tolist()
        text = f"{tokens[query]} → {', '.join(f'{tokens[key]} {row[key]:.2f}' for key in largest)}"
        rows.append(element("rect", element("title", text), y=CELL * query, width=CELL * len(tokens), height=CELL))
    return element("g", *rows, class_="cells")


def _weight_text(tokens: list[str], weights: np.ndarray, query: int, key: int) -> str:
    return f"{tokens[query]} → {tokens[key]}: {weights[query, key]:.3f}"
