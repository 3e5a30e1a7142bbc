"""The bias of a model as an HTML page, and as JSON."""

from collections.abc import Sequence
from typing import Any

from bert_jax import __version__
from bert_jax.reports.bias_metric_notes import readings
from bert_jax.reports.bias_pictures import picture
from bert_jax.reports.html.markup import Html, element, folded, page, section, table
from bert_jax.reports.html.style import STYLE
from bert_jax.scoring.score import BENCHMARKS, Report

TITLES = {
    "crows_pairs": "CrowS-Pairs: which of two sentences is likelier",
    "stereoset": "StereoSet: which word fills a blank",
    "intersentence": "StereoSet: which sentence follows",
    "winobias": "WinoBias: sentences with and against a stereotype",
    "winogender": "Winogender: the pronoun of a person with an occupation",
    "templates": "Templates: what the model expects beside each filler",
}
WARNING = (
    "These figures measure associations that the model learned from its texts, in the sentences of a few data sets. "
    "A small figure does not show that a model is safe to use: bias that nobody asked about is not measured."
)


def bias_json(model: str, weights: str, reports: Sequence[Report]) -> dict[str, Any]:
    """Return reports with their readings as JSON values.

    Args:
        model: where the model is.
        weights: `weights_digest` of it, by which `export --bias` knows the model again.
        reports: of rows of BENCHMARKS that are about bias.
    """
    results = [one._asdict() | {"readings": [item._asdict() for item in readings(one)]} for one in reports]
    return {"model": model, "weights": weights, "results": results}


def bias_page(model: str, reports: Sequence[Report]) -> str:
    """Return the HTML page about some reports."""
    return page(
        f"Bias of {model}",
        STYLE,
        element("h1", "What the model associates"),
        element("p", element("bdi", model), class_="lead"),
        element("p", WARNING),
        *(_section(report) for report in reports),
        element("p", f"Written by bert-jax bias, version {__version__}.", class_="note"),
    )


def _section(report: Report) -> Html:
    chosen = f"{report.scored:,} of " if report.scored < report.items else ""
    unknown = f", {report.unknown_tokens:,} unknown tokens" if report.unknown_tokens else ""
    about = f"{report.source}: {chosen}{report.items:,} {BENCHMARKS[report.benchmark].unit}{unknown}; masked: "
    rows = [(_spaced(one.figure), _number(one.value), one.says, one.does_not_say) for one in readings(report)]
    head = ("", *(_spaced(name) for name in report.total))
    groups = [(name, *map(_number, row.values())) for name, row in {**report.rows, "all": report.total}.items()]
    return section(
        TITLES[report.benchmark],
        element("p", about + report.masking, class_="note"),
        picture(report),
        table(("figure", "value", "what it says", "what it does not say"), rows, "figures and what they say"),
        folded(f"All figures by group ({len(report.rows):,})", table(head, groups, "figures by group")),
    )


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
