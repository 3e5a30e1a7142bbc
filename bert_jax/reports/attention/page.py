"""The page with a heat map of each head of each layer, with patterns, rollout and relevance."""

import collections
import dataclasses

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel
from bert_jax.reports.attention.detail import MIN_LINE_WEIGHT, attention_lines, head_detail_section, hover_rows
from bert_jax.reports.attention.head_roles import Relevance
from bert_jax.reports.attention.maps import MAX_LABEL, small_heat_map, token_labels, tokens_per_pixel
from bert_jax.reports.attention.patterns import HeadPattern
from bert_jax.reports.attention.text import (
    MAX_TOKENS,
    TextAttention,
    attention_within_window,
    chosen_indexes,
    patterns_of_heads,
)
from bert_jax.reports.html.markup import SHOWN_SPACE, SPACE, Html, collapsible, element, page, section, shortened, table

MAX_LINED = 32  # tokens of the longest text with lines for each head: about 2 MB for 144 heads
LEFT, RIGHT = 130, 60  # margins of the bars of a relevance
BAR, ROW = 420, 20  # length of the longest bar, height of a row
CENTRAL = {"dominant_baseline": "central"}

ROLLOUT = (
    "How much of each input token reaches each output token: the heads of a layer are averaged, half of a token comes "
    "from the residual connection, and the layers are multiplied (Abnar and Zuidema 2020). Rollout does not depend "
    "on the answer of the model."
)
POOLED = (
    "So many {unit} fit no small map: a field of it stands for {side} x {side} {unit} and has their largest weight. "
    "Their names are left out."
)
WINDOW = (
    "The model read all {total:,} {unit}; the page shows the attention of {unit} {first:,} to {last:,}, counted from "
    "0, to each other. Patterns and entropies include their attention to all {unit}; each head gives the part "
    "that is not shown. "
    "--first_token N shows the text from token N on. Rollout and relevance need all weights of a text, so the page "
    "has them only for texts of up to {most} tokens."
)
LINES = (
    "The pointer on a row of a map shows its largest weights. "
    f"Each head has its weights from {MIN_LINE_WEIGHT} on as lines; the pointer on a line shows its weight. "
)
DETAIL = "--layer and --head add the weights of one head in detail."
RELEVANCE = (
    "Attention weighted by how much it raises the logit of that answer, through all layers (Chefer et al. 2021). A bar "
    "is about this model and this text; it does not say that the text would get another answer without the token."
)


def attention_page(
    model: OpenModel,
    attention: TextAttention,
    text: str,
    pair: str | None = None,
    detail_of: tuple[int, int] | None = None,
) -> str:
    """Return an HTML page with the attention of each head of each layer in a text, or in a pair of texts.

    Args:
        model: the model that read the text.
        attention: attention of the model's heads in the text.
        text: the text of the user.
        pair: the second text of the user.
        detail_of: indices of the layer and the head that the page shows in detail.

    Raises:
        UserError: the model has no such layer or head.
    """
    if detail_of:
        chosen_indexes("layer", detail_of[0], model.config.num_layers)
        chosen_indexes("head", detail_of[1], model.config.num_heads)
    patterns, unit, rollout = patterns_of_heads(model, attention), attention.unit, attention.rollout
    shown = _with_dots(attention_within_window(attention))
    mask = model.tokenizer.tokens[model.tokenizer.mask_id]
    texts = _text_with_answer(text, mask, shown.relevance) if shown.relevance else [element("bdi", text)]
    lead = element("p", *texts, *([" / ", element("bdi", pair)] if pair else []), class_="lead")
    num_tokens, side = len(shown.tokens), tokens_per_pixel(len(shown.tokens))
    explanation = (
        f"{len(patterns)} layers of {len(patterns[0])} heads on {num_tokens} {unit}. A row of a map is a "
        f"{unit[:-1]} that reads, a column is a {unit[:-1]} that is read; the larger a "
        "weight, the more its field stands out. Each map has its own scale, up to its largest weight. The name of a "
        "head is the pattern that has half of its attention (Clark et al. 2019), broad where it reads nearly all "
        "tokens alike, else mixed."
    )
    if any(SHOWN_SPACE in token for token in shown.tokens):
        explanation += f" The vocabulary writes a space as {SPACE}, which is a dot here."
    parts = [
        element("h1", "Attention of each head"),
        lead if rollout is not None else collapsible("The whole text", lead),
    ]
    parts.append(element("p", explanation))
    if rollout is None:
        first, last, total = attention.window.start, attention.window.stop - 1, len(attention.tokens)
        parts.append(element("p", WINDOW.format(total=total, unit=unit, first=first, last=last, most=MAX_TOKENS)))
    if side > 1:
        parts.append(element("p", POOLED.format(side=side, unit=unit)))
    if not detail_of:
        parts.append(element("p", LINES if num_tokens <= MAX_LINED else "", DETAIL))
    parts.append(token_labels(shown.tokens))
    if detail_of:
        layer, head = detail_of
        parts.append(head_detail_section(shown.tokens, shown.weights[layer][head], layer, head))
    parts.append(section("Patterns", _pattern_counts_table(patterns)))
    if rollout is not None:
        map_ = _map_with_hover_rows(shown.tokens, rollout, "attention rollout of all layers")
        figure = element("div", element("figure", element("h3", "Rollout"), map_), class_="maps")
        parts.append(section("Through all layers", element("p", ROLLOUT), figure))
    if relevance := shown.relevance:
        bars = _relevance_bars(shown.tokens, relevance)
        title = f"Relevance for {relevance.target}, {relevance.answer}{_probability_text(relevance)}"
        parts.append(section(title, element("p", RELEVANCE), bars))
    for layer, layer_patterns in enumerate(patterns):
        heads = [_head_figure(shown, layer, head, pattern) for head, pattern in enumerate(layer_patterns)]
        parts.append(section(f"Layer {layer}", element("div", *heads, class_="maps")))
    return page(f"Attention: {text}", *parts, command="attention")


def _with_dots(attention: TextAttention) -> TextAttention:
    """Return attention with a dot for each ▁ in the names of tokens, because a ▁ looks like a bar in a column title."""
    relevance = attention.relevance
    return dataclasses.replace(
        attention,
        tokens=[token.replace(SPACE, SHOWN_SPACE) for token in attention.tokens],
        relevance=relevance and relevance._replace(answer=relevance.answer.replace(SPACE, SHOWN_SPACE)),
    )


def _text_with_answer(text: str, mask: str, relevance: Relevance) -> list[Html]:
    """Return a text with the answer of the model in place of the first mask; a class is put after the text."""
    answer = element("mark", relevance.answer.removeprefix(SHOWN_SPACE), _probability_text(relevance), class_="answer")
    before, has_mask, after = text.partition(mask if relevance.is_token else "\0")
    if not has_mask:
        return [element("bdi", text), Html(" "), answer]
    return [element("bdi", before), answer, element("bdi", after)]


def _probability_text(relevance: Relevance) -> str:
    return "" if relevance.probability is None else f" ({relevance.probability:.1%})"


def _map_with_hover_rows(tokens: list[str], weights: np.ndarray, description: str) -> Html:
    """Return a small heat map; for a short text, each row of the map has a tooltip with its largest weights."""
    marks = [hover_rows(tokens, weights)] if len(tokens) <= MAX_LINED else []
    return small_heat_map(weights, tokens, description, *marks)


def _relevance_bars(tokens: list[str], relevance: Relevance) -> Html:
    """Return a chart with the relevance of each token as a bar."""
    longest, drawn = max(float(relevance.tokens.max()), 1e-30), []
    for index, (token, value) in enumerate(zip(tokens, relevance.tokens, strict=True)):
        top, middle, length = ROW * index + 2, ROW * index + ROW // 2, BAR * value / longest
        label = shortened(token, MAX_LABEL)
        drawn += [
            element("text", label, x=LEFT - 8, y=middle, text_anchor="end", **CENTRAL),
            element("rect", class_="fill0", x=LEFT, y=top, width=f"{length:.1f}", height=ROW - 4),
            element("text", f"{value:.3f}", x=f"{LEFT + length + 6:.1f}", y=middle, **CENTRAL),
        ]
    description = f"relevance for {relevance.target}, {relevance.answer}, a bar for each token"
    box = f"0 0 {LEFT + BAR + RIGHT} {ROW * len(tokens)}"
    drawing = element("svg", *drawn, viewBox=box, role="img", aria_label=description)
    return element("figure", drawing, class_="wide")


def _head_figure(shown: TextAttention, layer: int, head: int, pattern: HeadPattern) -> Html:
    """Return the heat map of a head, titled with the head's pattern; for a short text, add a drawing of lines."""
    weights, name = shown.weights[layer][head], f"layer {layer}, head {head}"
    fractions = ", ".join(f"{pattern_name} {fraction:.0%}" for pattern_name, fraction in pattern.fractions.items())
    caption = f"{fractions}; entropy {pattern.entropy:.2f} nats"
    if shown.rollout is None:
        caption += f"; {1 - weights.sum(-1).mean():.0%} not shown"
    has_lines = len(shown.tokens) <= MAX_LINED
    return element(
        "figure",
        element("h3", f"Head {head}: {pattern.name}"),
        _map_with_hover_rows(shown.tokens, weights, f"{name}: {pattern.name}; {caption}"),
        element("figcaption", caption),
        collapsible("Lines", attention_lines(shown.tokens, weights, name)) if has_lines else "",
    )


def _pattern_counts_table(patterns: list[list[HeadPattern]]) -> Html:
    """Return a table with the number of heads of each pattern in each layer."""
    names = list(dict.fromkeys(pattern.name for layer in patterns for pattern in layer))
    counts = [collections.Counter(pattern.name for pattern in layer) for layer in patterns]
    rows = [(f"layer {layer}", *(count[name] or "" for name in names)) for layer, count in enumerate(counts)]
    return table(("", *names), rows, "patterns by layer")
