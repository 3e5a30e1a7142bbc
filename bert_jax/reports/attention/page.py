"""The page: a heat map per head, layer by layer, with patterns, rollout and relevance."""

import collections

import numpy as np

from bert_jax import __version__
from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.errors import UserError
from bert_jax.reports.attention.detail import LINES_FROM, detail, lines
from bert_jax.reports.attention.maps import block, labels, short, small_map
from bert_jax.reports.attention.patterns import Reading
from bert_jax.reports.attention.text import MAX_TOKENS, ReadText, between_words, chosen, read_text, readings_of, shown
from bert_jax.reports.html.markup import Html, element, folded, page, section, table, write_page
from bert_jax.reports.html.style import STYLE

LINED = 32  # tokens, up to which each head has its lines: about 2 MB for 144 heads
LEFT, BAR, RIGHT, ROW = 130, 420, 60, 20  # of the bars of a relevance
CENTRAL = {"dominant_baseline": "central"}

ROLLOUT = (
    "How much of each input token reaches each output token: the heads of a layer are averaged, half of a token comes "
    "from the residual connection, and the layers are multiplied (Abnar and Zuidema 2020). It does not ask what the "
    "model answers."
)
POOLED = (
    "So many {what} fit no small map: a field of it stands for {side} x {side} {what} and has their largest weight. "
    "Their names are left out."
)
WINDOW = (
    "The model read all {total:,} {what}; the page shows what {what} {first:,} to {last:,}, counted from 0, read of "
    "each other. Patterns and entropies are of all that these read, and each head says how much of it is not shown. "
    "--first_token N shows the text from token N on. Rollout and relevance need all weights of a text: they are for "
    "texts of up to {most} tokens."
)
LINES = f"Each head has its weights from {LINES_FROM} on as lines, with the weight where the mouse rests on one. "
ASK = "--layer and --head add the weights of one head in detail."
RELEVANCE = (
    "Attention weighted by how much it raises the logit of that answer, through all layers (Chefer et al. 2021). A bar "
    "is about this model and this text; it does not say that the text would get another answer without the token."
)


def attention_page(
    model: OpenModel,
    text: str,
    pair: str | None = None,
    words: bool = False,
    one: tuple[int, int] | None = None,
    first: int = 0,
) -> str:
    """Return an HTML page with what each head of each layer reads in a text, or in a pair of texts.

    `one` is the layer and the head to show in detail, `first` as in `read_text`. Raises UserError as `read_text`, and
    where there is no such head.
    """
    if one:
        chosen("layer", one[0], model.config.num_layers)
        chosen("head", one[1], model.config.num_heads)
    found, what = read_text(model, text, pair, first), "words" if words else "tokens"
    return page_of(model, between_words(model, found) if words else found, text, pair, what, one)


def page_of(
    model: OpenModel, found: ReadText, text: str, pair: str | None, what: str, one: tuple[int, int] | None = None
) -> str:
    """Return the page of a text that was read; `what` is "tokens" or "words", `one` as in `attention_page`."""
    readings, is_whole = readings_of(model, found), found.rollout is not None
    window = "" if is_whole else element("p", _window(found, what))
    found = shown(found)
    layers = [_layer(found, number, *both) for number, both in enumerate(zip(found.weights, readings, strict=True))]
    side = block(len(found.tokens))
    lead = element("p", element("bdi", text), *([" / ", element("bdi", pair)] if pair else []), class_="lead")
    said = (
        f"{len(layers)} layers of {len(readings[0])} heads on {len(found.tokens)} {what}. A row of a map is a "
        f"{what[:-1]} that reads, a column one that is read; the more a field stands out from the page, the more is "
        "read. Each map has its own scale, up to its largest weight. The name of a head is the pattern that has half "
        "of its attention (Clark et al. 2019), broad where it reads nearly all tokens alike, else mixed."
    )
    return page(
        f"Attention: {text}",
        STYLE,
        element("h1", "What each head reads"),
        lead if is_whole else folded("The whole text", lead),
        element("p", said),
        window,
        element("p", POOLED.format(side=side, what=what)) if side > 1 else "",
        element("p", LINES if len(found.tokens) <= LINED else "", ASK) if not one else "",
        labels(found.tokens),
        detail(found, *one) if one else "",
        section("Patterns", _counts(readings)),
        section("Through all layers", element("p", ROLLOUT), element("div", _rollout(found.rollout), class_="maps"))
        if found.rollout is not None
        else "",
        section(f"What matters for {found.relevance.answer}", element("p", RELEVANCE), _bars(found))
        if found.relevance
        else "",
        *layers,
        element("p", f"Written by bert-jax attention, version {__version__}.", class_="note"),
    )


def write_attention(
    place: str,
    text: str,
    pair: str | None,
    output: str,
    words: bool = False,
    layer: int | None = None,
    head: int | None = None,
    first: int = 0,
) -> str:
    """Write `attention_page` of the model in a directory to the .html file `output`, and return its name.

    Raises UserError where only one of `layer` and `head` is given, and as `attention_page` and `write_page`.
    """
    if (layer is None) != (head is None):
        raise UserError("--layer and --head together choose the head that a page shows in detail; give both or none")
    one = None if layer is None or head is None else (layer, head)
    return write_page(output, lambda: attention_page(open_model(place), text, pair, words, one, first))


def _window(found: ReadText, what: str) -> str:
    """What a page says that does not show the whole text."""
    first, last = found.window.start, found.window.stop - 1
    return WINDOW.format(total=len(found.tokens), what=what, first=first, last=last, most=MAX_TOKENS)


def _rollout(weights: np.ndarray) -> Html:
    return element("figure", element("h3", "Rollout"), small_map(weights, "attention rollout of all layers"))


def _bars(found: ReadText) -> Html:
    """The relevance of each token as a bar."""
    assert found.relevance
    values, whole = found.relevance.tokens, LEFT + BAR + RIGHT
    longest = max(float(values.max()), 1e-30)
    rows = [
        part
        for at, (token, value) in enumerate(zip(found.tokens, values, strict=True))
        for part in (
            element("text", short(token), x=LEFT - 8, y=ROW * at + ROW // 2, text_anchor="end", **CENTRAL),
            element(
                "rect", class_="fill0", x=LEFT, y=ROW * at + 2, width=f"{BAR * value / longest:.1f}", height=ROW - 4
            ),
            element(
                "text", f"{value:.3f}", x=f"{LEFT + BAR * value / longest + 6:.1f}", y=ROW * at + ROW // 2, **CENTRAL
            ),
        )
    ]
    words = f"relevance for {found.relevance.answer}, a bar for each token"
    drawing = element("svg", *rows, viewBox=f"0 0 {whole} {ROW * len(values)}", role="img", aria_label=words)
    return element("figure", drawing, class_="wide")


def _layer(found: ReadText, number: int, weights: np.ndarray, readings: list[Reading]) -> Html:
    heads = [_head(found, number, head, *both) for head, both in enumerate(zip(weights, readings, strict=True))]
    return section(f"Layer {number}", element("div", *heads, class_="maps"))


def _head(found: ReadText, layer: int, head: int, weights: np.ndarray, reading: Reading) -> Html:
    tokens, name = found.tokens, f"layer {layer}, head {head}"
    fractions = ", ".join(f"{pattern} {fraction:.0%}" for pattern, fraction in reading.fractions.items())
    caption = f"{fractions}; entropy {reading.entropy:.2f} nats"
    if found.rollout is None:
        caption += f"; {1 - weights.sum(-1).mean():.0%} not shown"
    return element(
        "figure",
        element("h3", f"Head {head}: {reading.name}"),
        small_map(weights, f"{name}: {reading.name}; {caption}"),
        element("figcaption", caption),
        folded("Lines", lines(tokens, weights, name)) if len(tokens) <= LINED else "",
    )


def _counts(readings: list[list[Reading]]) -> Html:
    """Heads of each name, by layer."""
    names = list(dict.fromkeys(one.name for layer in readings for one in layer))
    counts = [collections.Counter(one.name for one in layer) for layer in readings]
    rows = [(f"layer {number}", *(count[name] or "" for name in names)) for number, count in enumerate(counts)]
    return table(("", *names), rows, "patterns by layer")
