"""The attention of a model in a text, written as a page or as a picture."""

import pathlib

from bert_jax.checkpoints.load_model import open_model
from bert_jax.errors import UserError
from bert_jax.reports.attention.page import attention_page
from bert_jax.reports.attention.picture import draw_attention
from bert_jax.reports.attention.text import attention_between_words, text_attention
from bert_jax.reports.html.markup import write_page

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")


def write_attention_file(
    model_dir: str,
    text: str,
    pair: str | None,
    output: str,
    words: bool = False,
    layer: int | None = None,
    head: int | None = None,
    first_token: int = 0,
) -> str:
    """Write the attention in a text, or in a pair of texts, to the file `output`; return its path.

    Args:
        model_dir: directory of the model.
        text: a text, as in `text_attention`.
        pair: a second text.
        output: an .html file for `attention_page`, or a file of PICTURE_SUFFIXES for `draw_attention`.
        words: True shows attention between words, False between tokens.
        layer: the only layer that a picture shows, counted from 0; with `head`, a page shows the details of this head
            of the layer.
        head: index of a head of `layer`, counted from 0.
        first_token: index of the first token of the window of a long text.

    Raises:
        UserError: `head` is given without `layer`, or a called function raises UserError.
    """
    is_picture = pathlib.Path(output).suffix.lower() in PICTURE_SUFFIXES
    if layer is None and head is not None:
        raise UserError("--head needs --layer")
    if layer is not None and head is None and not is_picture:
        raise UserError("--layer and --head together choose the head that a page shows in detail; give both or none")

    def make_page() -> str:
        model = open_model(model_dir)
        attention = text_attention(model, text, pair, first_token)
        if words:
            attention = attention_between_words(model, attention)
        if is_picture:
            draw_attention(attention, output, layer, head)
            return ""
        detail_of = None if layer is None or head is None else (layer, head)
        return attention_page(model, attention, text, pair, detail_of)

    if not is_picture:
        return write_page(output, make_page)
    make_page()
    return output
