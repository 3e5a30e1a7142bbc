"""One head in detail: its weights on hover, lines between two columns of tokens, and a table."""

import numpy as np

from bert_jax.reports.attention.maps import CELL, MARGIN, MOST, large_map, short
from bert_jax.reports.attention.text import ReadText
from bert_jax.reports.html.markup import Html, element, folded, section, table

LINES_FROM = 0.05  # the weight of the thinnest line: a token has at most 20
CELLS = MOST * MOST  # fields with their weight on hover: all up to 128 tokens, about 1.5 MB
TITLES = ("token", "reads most", "then", "then")
COLUMN, NARROW, WIDE, ROW = 100, 140, 420, 16  # of the lines: a column, and between them in a small and a large one


def detail(found: ReadText, layer: int, head: int) -> Html:
    """Return the section about one head."""
    weights, name = found.weights[layer][head], f"layer {layer}, head {head}"
    count, number = weights.size, min(weights.size, CELLS)
    values = "all weights" if number == count else f"the {number:,} largest of {count:,} weights"
    said = (
        f"A field shows its weight where the mouse rests on it: {values}. Lines go from the token that reads, left, to "
        f"the token that is read, from a weight of {LINES_FROM} on; the larger the weight, the darker the line."
    )
    rows = [(found.tokens[at], *_largest(found.tokens, row)) for at, row in enumerate(weights)]
    return section(
        f"Layer {layer}, head {head} in detail",
        element("p", said),
        _scrolled(large_map(weights, name, _cells(found.tokens, weights)), f"{name}: every weight"),
        _scrolled(lines(found.tokens, weights, name, large=True), f"{name}: lines"),
        folded("The largest weights of each token as a table", table(TITLES, rows, f"{name}: largest weights")),
    )


def lines(tokens: list[str], weights: np.ndarray, name: str, large: bool = False) -> Html:
    """Return weights from `LINES_FROM` on as lines from the token that reads, left, to what it reads, right.

    Args:
        tokens: their names.
        weights: float `[queries, keys]`.
        name: of the head.
        large: in its own size, with room between the columns; else as wide as its place.
    """
    gap = WIDE if large else NARROW
    left = [_reads(tokens, number, row, gap) for number, row in enumerate(weights)]
    right = [
        element("text", short(token), x=gap + 6, y=ROW * number + ROW // 2, dominant_baseline="central")
        for number, token in enumerate(tokens)
    ]
    width, height = 2 * COLUMN + gap, ROW * len(tokens)
    drawing = element("g", *left, *right, transform=f"translate({COLUMN} 0)")
    size = {"class_": "real", "width": width, "height": height} if large else {}
    words = f"{name}, as lines from each token to those that it reads"
    return element("svg", drawing, viewBox=f"0 0 {width} {height}", role="img", aria_label=words, **size)


def _reads(tokens: list[str], number: int, row: np.ndarray, gap: int) -> Html:
    """A token of the left column with its lines."""
    middle = ROW * number + ROW // 2
    drawn = [
        element(
            "line",
            element("title", _weight(tokens, number, key, row[key])),
            y1=middle,
            x2=gap,
            y2=ROW * key + ROW // 2,
            opacity=f"{0.1 + 0.9 * row[key]:.2f}",
        )
        for key in np.flatnonzero(row >= LINES_FROM).tolist()
    ]
    name = element("text", short(tokens[number]), x=-6, y=middle, text_anchor="end", dominant_baseline="central")
    return element("g", name, *drawn, class_="reads")


def _cells(tokens: list[str], weights: np.ndarray) -> Html:
    """Fields without color over the `CELLS` largest weights."""
    flat = np.sort(np.argpartition(weights, -min(weights.size, CELLS), axis=None)[-CELLS:])
    cells = [
        element(
            "rect",
            element("title", _weight(tokens, query, key, weights[query, key])),
            x=MARGIN + CELL * key,
            y=MARGIN + CELL * query,
            width=CELL,
            height=CELL,
        )
        for query, key in zip(*np.unravel_index(flat, weights.shape), strict=True)
    ]
    return element("g", *cells, class_="cells")


def _largest(tokens: list[str], row: np.ndarray) -> list[str]:
    return [f"{tokens[key]} {row[key]:.3f}" for key in np.argsort(-row, kind="stable")[: len(TITLES) - 1]]


def _weight(tokens: list[str], query: int, key: int, weight: float) -> str:
    return f"{tokens[query]} → {tokens[key]}: {weight:.3f}"


def _scrolled(drawing: Html, label: str) -> Html:
    return element("div", drawing, class_="scroll tall", tabindex=0, role="region", aria_label=label)
