"""A picture for papers of the attention of one head, of the heads of one layer, or of all heads."""

import numpy as np

from bert_jax.errors import UserError
from bert_jax.reports.attention.text import TextAttention, attention_within_window, chosen_indexes
from bert_jax.reports.figure import saved_figure

TOKEN_INCHES, MAP_INCHES = 0.28, 1.6  # size of a token in a single map; size of each of several maps
MIN_INCHES, LABEL_INCHES = 2.0, 1.2  # smallest side of a single map; space for its labels
MAX_NAMED = 128  # tokens of the largest single map, which is a meter wide


def draw_attention(attention: TextAttention, output: str, layer: int | None = None, head: int | None = None) -> None:
    """Draw attention weights into the file `output` (.png, .svg or .pdf); a map shows a head, a row of maps a layer.

    Args:
        attention: attention of a model in a text; for a long text, a line of text below the maps names the shown
            window.
        output: file to create; its directory must exist.
        layer: the only layer to draw, counted from 0; None: all layers.
        head: the only head of this layer to draw, counted from 0; its map has the names of the tokens; None: all heads.

    Raises:
        UserError: matplotlib is not installed, the model has no such layer or head, a single head has more tokens
            than a picture can name, or `output` cannot be written.
    """
    shown, window, total = attention_within_window(attention), attention.window, len(attention.tokens)
    layers = chosen_indexes("layer", layer, len(shown.weights))
    heads = chosen_indexes("head", head, len(shown.weights[0]))
    num_tokens, is_single = len(shown.tokens), len(layers) == len(heads) == 1
    size = (MAP_INCHES * len(heads), MAP_INCHES * len(layers))
    if is_single:
        if num_tokens > MAX_NAMED:
            raise UserError(
                f"a picture names at most {MAX_NAMED} tokens, not {num_tokens}; shorten the text, or give --output an "
                ".html name"
            )
        side = max(MIN_INCHES, TOKEN_INCHES * num_tokens) + LABEL_INCHES
        size = (side, side)
    with saved_figure(output, "attention", (len(layers), len(heads)), size, dpi=200) as (figure, axes):
        for row, layer_index in zip(axes, layers, strict=True):
            for panel, head_index in zip(row, heads, strict=True):
                panel.imshow(shown.weights[layer_index][head_index], cmap="Greys", vmin=0)
                panel.set(xticks=[], yticks=[])
                panel.set_title(f"layer {layer_index}, head {head_index}", fontsize=7)
        if is_single:
            tokens = [token.replace("$", r"\$") for token in shown.tokens]  # a dollar sign would begin mathematics
            axes[0, 0].set_xticks(np.arange(num_tokens), tokens, rotation=90, fontsize=8)
            axes[0, 0].set_yticks(np.arange(num_tokens), tokens, fontsize=8)
        if num_tokens < total:
            figure.supxlabel(f"{window.start:,} to {window.stop - 1:,} of {total:,}, counted from 0", fontsize=7)
