"""One head, the heads of a layer, or all heads as a picture for papers."""

import pathlib

import numpy as np

from bert_jax.checkpoints.load_model import open_model
from bert_jax.errors import UserError, needs_packages, writing
from bert_jax.reports.attention.text import ReadText, between_words, chosen, read_text, shown

SUFFIXES = (".png", ".svg", ".pdf")
CELL, SMALL = 0.28, 1.6  # inches: a token of a single head, a map of several
MOST_NAMED = 128  # tokens of a single map, which is then a meter wide
LEAST, MARGIN = 2.0, 1.2  # inches: a single map, its labels


def write_picture(
    place: str,
    text: str,
    pair: str | None,
    output: str,
    words: bool = False,
    layer: int | None = None,
    head: int | None = None,
    first: int = 0,
) -> str:
    """Draw what the model of a directory reads in a text with `draw`, and return `output`."""
    if head is not None and layer is None:
        raise UserError(f"--head {head}: of which layer? give --layer as well")
    model = open_model(place)
    found = read_text(model, text, pair, first)
    draw(between_words(model, found) if words else found, output, layer, head)
    return output


def draw(found: ReadText, output: str, layer: int | None = None, head: int | None = None) -> None:
    """Draw what heads read into `output` (.png, .svg or .pdf), a map per head, a row of maps per layer.

    Args:
        found: of `read_text`; where it is a window, a line below the maps says which.
        output: file to create; its directory must exist.
        layer: the only layer to draw, from 0; None: all.
        head: of that layer, the only head to draw, from 0, with tokens beside it; None: all.

    Raises:
        UserError: matplotlib is not installed, there is no such layer or head, a single head has more tokens than a
            picture can name, or `output` cannot be written.
    """
    window, total, found = found.window, len(found.tokens), shown(found)
    layers = chosen("layer", layer, len(found.weights))
    heads = chosen("head", head, len(found.weights[0]))
    if len(layers) == len(heads) == 1 and len(found.tokens) > MOST_NAMED:
        raise UserError(
            f"a picture names at most {MOST_NAMED} tokens, not {len(found.tokens)}; shorten the text, or give --output "
            "an .html name"
        )
    with needs_packages("a picture of attention", "matplotlib"):
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = _size(found, len(layers), len(heads))
    figure, axes = pyplot.subplots(len(layers), len(heads), figsize=size, squeeze=False, layout="constrained")
    for row, number in zip(axes, layers, strict=True):
        for panel, column in zip(row, heads, strict=True):
            panel.imshow(found.weights[number][column], cmap="Greys", vmin=0)
            panel.set(xticks=[], yticks=[])
            panel.set_title(f"layer {number}, head {column}", fontsize=7)
    if axes.size == 1:
        tokens = [token.replace("$", r"\$") for token in found.tokens]  # a dollar sign would begin mathematics
        axes[0, 0].set_xticks(np.arange(len(tokens)), tokens, rotation=90, fontsize=8)
        axes[0, 0].set_yticks(np.arange(len(tokens)), tokens, fontsize=8)
    if len(found.tokens) < total:
        figure.supxlabel(f"{window.start:,} to {window.stop - 1:,} of {total:,}, counted from 0", fontsize=7)
    try:
        with writing(output, "choose another --output"):
            figure.savefig(output, dpi=200)
    finally:
        pyplot.close(figure)


def is_picture(output: str) -> bool:
    """Return whether the name of a file is that of a picture."""
    return pathlib.Path(output).suffix in SUFFIXES


def _size(found: ReadText, layers: int, heads: int) -> tuple[float, float]:
    """Width and height in inches."""
    if layers == heads == 1:
        side = max(LEAST, CELL * len(found.tokens)) + MARGIN
        return side, side
    return SMALL * heads, SMALL * layers
