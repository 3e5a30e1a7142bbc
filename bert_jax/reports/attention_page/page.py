"""A heat map per head, layer by layer, with the patterns of Clark et al. 2019."""

import collections

import jax
import numpy as np

from bert_jax import __version__
from bert_jax.errors import UserError
from bert_jax.inference.load import OpenModel, open_model
from bert_jax.models.encoder import attention_weights
from bert_jax.reports.attention_page.patterns import Reading, reading_of
from bert_jax.reports.html.markup import Html, element, page, section, table, write_page
from bert_jax.reports.html.png import data_uri
from bert_jax.reports.html.style import STYLE
from bert_jax.reports.sequences_text import printable
from bert_jax.tasks.kinds.shared.texts import text_features

MAX_TOKENS = 128  # more are no longer readable as labels
CELL, MARGIN, FONT = 12, 84, 10  # of a map, in its own units; the font is that of .label
MAX_LABEL = 14  # characters


def attention_page(model: OpenModel, text: str, pair: str | None = None) -> str:
    """Return an HTML page with what each head of each layer reads in a text, or in a pair of texts.

    Raises UserError where they have more tokens than the model reads, or than a map can show.
    """
    ids, types = _encoded(model, text, pair)
    tokens = [printable(model.tokenizer.tokens[number]) for number in ids]
    batch = {"input_ids": ids[None], "token_type_ids": types[None], "attention_mask": np.ones_like(ids)[None]}
    weights = jax.jit(lambda params, batch: attention_weights(model.config, params, batch))
    found = [np.asarray(layer[0]) for layer in weights(model.params["encoder"], batch)]
    special = {"cls": model.tokenizer.cls_id, "sep": model.tokenizer.sep_id}
    readings = [[reading_of(head, ids, special) for head in layer] for layer in found]
    layers = [_layer(number, *both) for number, both in enumerate(zip(found, readings, strict=True))]
    said = (
        f"{len(found)} layers of {len(found[0])} heads on {len(tokens)} tokens. A row of a map is a token that reads, "
        "a column one that is read; the more a field stands out from the page, the more is read. Each map has its own "
        "scale, up to its largest weight. The name of a head is the pattern that has half of its attention (Clark et "
        "al. 2019), broad where it reads nearly all tokens alike, else mixed."
    )
    return page(
        f"Attention: {text}",
        STYLE,
        element("h1", "What each head reads"),
        element("p", element("bdi", text), *([" / ", element("bdi", pair)] if pair else []), class_="lead"),
        element("p", said),
        _labels(tokens),
        section("Patterns", _counts(readings)),
        *layers,
        element("p", f"Written by bert-jax attention, version {__version__}.", class_="note"),
    )


def write_attention(place: str, text: str, pair: str | None, output: str) -> str:
    """Write `attention_page` of the model in a directory to the .html file `output`, and return its name."""
    return write_page(output, lambda: attention_page(open_model(place), text, pair))


def _encoded(model: OpenModel, text: str, pair: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Ids and token types, int32 `[length]` each."""
    fields = {"id": "0", "text": text} | ({} if pair is None else {"text_pair": pair})
    limit = min(model.config.max_positions, MAX_TOKENS)
    (made,), counts = text_features([fields], model.tokenizer, limit)
    if counts["truncated_texts"]:
        raise UserError(f"the text has more than {limit} tokens, all that this model reads or a map shows; shorten it")
    ((ids, second),) = made.sequences
    types = (np.arange(len(ids)) >= second) & (model.config.num_token_types > 1)
    return np.asarray(ids, np.int32), types.astype(np.int32)


def _labels(tokens: list[str]) -> Html:
    """The tokens beside and above a map, drawn once; each map refers to them."""
    beside = [
        element("text", _short(token), x=MARGIN - 3, y=_middle(number), text_anchor="end")
        for number, token in enumerate(tokens)
    ]
    above = [
        element("text", _short(token), transform=f"translate({_middle(number)} {MARGIN - 3}) rotate(-90)")
        for number, token in enumerate(tokens)
    ]
    labels = element("g", *beside, *above, id="tokens", class_="label")
    return element("svg", element("defs", labels), class_="defined", width=0, height=0, aria_hidden="true")


def _short(token: str) -> str:
    return token if len(token) <= MAX_LABEL else token[: MAX_LABEL - 1] + "…"


def _middle(number: int) -> int:
    return MARGIN + CELL * number + FONT - 1


def _layer(number: int, weights: np.ndarray, readings: list[Reading]) -> Html:
    heads = [_head(number, head, *both) for head, both in enumerate(zip(weights, readings, strict=True))]
    return section(f"Layer {number}", element("div", *heads, class_="maps"))


def _head(layer: int, head: int, weights: np.ndarray, reading: Reading) -> Html:
    size = CELL * len(weights)
    gray = np.round(255 * (1 - weights / weights.max())).astype(np.uint8)
    fractions = ", ".join(f"{name} {fraction:.0%}" for name, fraction in reading.fractions.items())
    words = f"layer {layer}, head {head}: {reading.name}; {fractions}; entropy {reading.entropy:.2f} nats"
    drawing = element(
        "svg",
        element("image", class_="map", x=MARGIN, y=MARGIN, width=size, height=size, href=data_uri(gray)),
        element("rect", class_="frame", x=MARGIN, y=MARGIN, width=size, height=size),
        element("use", href="#tokens"),
        viewBox=f"0 0 {MARGIN + size + 2} {MARGIN + size + 2}",
        role="img",
        aria_label=words,
    )
    caption = element("figcaption", f"{fractions}; entropy {reading.entropy:.2f} nats")
    return element("figure", element("h3", f"Head {head}: {reading.name}"), drawing, caption)


def _counts(readings: list[list[Reading]]) -> Html:
    """Heads of each name, by layer."""
    names = list(dict.fromkeys(one.name for layer in readings for one in layer))
    counts = [collections.Counter(one.name for one in layer) for layer in readings]
    rows = [(f"layer {number}", *(count[name] or "" for name in names)) for number, count in enumerate(counts)]
    return table(("", *names), rows, "patterns by layer")
