"""The bias of a model as an HTML page with pictures, and as JSON."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bert_jax.reports.bias_metric_notes import metric_notes, wilson_interval
from bert_jax.reports.html.chart import legend_html, svg_path
from bert_jax.reports.html.markup import Html, collapsible, element, page, section, shortened, small_paragraph, table
from bert_jax.reports.html.style import LIGHT
from bert_jax.scoring.score import BENCHMARKS, BenchmarkReport
from bert_jax.scoring.templates import HIDDEN, PROBABILITY, group_names_in_figures

# Sizes in the units of the drawing, which scales with the page.
WIDTH, ROW, BAR = 640, 26, 18
LEFT, RIGHT = 170, 16  # margins
TICKS = (0, 25, 50, 75, 100)
MAX_ROWS = 100
MIN_PROBABILITY = 1.0  # percent of the probability at the mask; below, the parts of a bar would say little
MAX_LABEL = 22  # characters
MIN_WRITTEN = 12  # percent; a shorter bar has no number inside
TITLES = {
    "crows_pairs": "CrowS-Pairs: which of two sentences is likelier",
    "stereoset": "StereoSet: which word fills a blank",
    "intersentence": "StereoSet: which sentence follows",
    "winobias": "WinoBias: sentences with and against a stereotype",
    "winogender": "Winogender: the pronoun of a person with an occupation",
    "templates": "Templates: the words that the model expects beside each filler",
}
NOT_DRAWN = (
    f"No bars are drawn. Beside each of the {{count}} fillers, the words have less than {MIN_PROBABILITY:g} % of the "
    "probability (at most {most:.2g} %), so the model expects other words there."
)
LIMITS = (
    "These figures measure associations that the model learned from its texts, in the sentences of a few data sets. "
    "A small figure does not show that a model is safe to use: the data sets do not measure every bias."
)


def bias_json(model: str, weights: str, reports: Sequence[BenchmarkReport]) -> dict[str, Any]:
    """Return bias reports as JSON values, with the notes on their figures.

    Args:
        model: directory of the model.
        weights: the `weights_digest` of the model, which `export --bias` compares with the digest of the exported
            model.
        reports: reports of the bias benchmarks.
    """
    results = [vars(report) | {"readings": [item._asdict() for item in metric_notes(report)]} for report in reports]
    return {"model": model, "weights": weights, "results": results}


def bias_page(model: str, reports: Sequence[BenchmarkReport]) -> str:
    """Return the HTML page about the bias reports of a model."""
    return page(
        f"Bias of {model}",
        element("h1", "Associations of the model"),
        element("p", element("bdi", model), class_="lead"),
        element("p", LIMITS),
        *map(_benchmark_section, reports),
        command="bias",
    )


def _benchmark_section(report: BenchmarkReport) -> Html:
    """Return the section about a bias report: a picture, the meanings of the figures, and all figures by group."""
    scored = f"{report.scored:,} of " if report.scored < report.items else ""
    unknown = f", {report.unknown_tokens:,} unknown tokens" if report.unknown_tokens else ""
    about = f"{report.source}: {scored}{report.items:,} {BENCHMARKS[report.benchmark].unit}{unknown}; masked: "
    rows = [
        (_without_underscores(item.figure), _format_value(item.value), item.says, item.does_not_say)
        for item in metric_notes(report)
    ]
    groups = [(name, *map(_format_value, row.values())) for name, row in {**report.rows, "all": report.total}.items()]
    caveat = next(iter(metric_notes(report)))
    return section(
        TITLES[report.benchmark],
        small_paragraph(about + report.masking),
        element("p", f"{caveat.says} {caveat.does_not_say}"),
        PICTURES[report.benchmark](report),
        table(("figure", "value", "meaning", "limits"), rows, "figures and their meanings"),
        collapsible(
            f"All figures by group ({len(report.rows):,})",
            table(("", *map(_without_underscores, report.total)), groups, "figures by group"),
        ),
    )


def _without_underscores(name: str) -> str:
    return name.replace("_", " ")


def _format_value(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _draw_dots(report: BenchmarkReport, figure: str, counted_by: str = "") -> Html:
    """Return a picture of a percentage with a dot for each group of items; 50 means no preference.

    `counted_by` names the figure with the number of items; the 95 % interval is computed from this number; "": no
    interval.
    """
    values = dict(report.rows)
    if len(values) > 1:
        values["all"] = report.total
    groups = _first_and_last_names([name for name, row in values.items() if row[figure] is not None])
    drawn = [svg_path("mark", f"M{_x_of_percent(50)} {ROW // 2}V{ROW * (len(groups) + 1)}")]
    for index, group in enumerate(groups):
        value, middle = float(values[group][figure] or 0), _row_middle(index)
        drawn.append(_row_label(group, index))
        if counted_by:
            low, high = wilson_interval(value, int(values[group][counted_by] or 0))
            drawn.append(svg_path("line line0", f"M{_x_of_percent(low)} {middle}H{_x_of_percent(high)}"))
        drawn.append(element("circle", class_="fill0", cx=_x_of_percent(value), cy=middle, r=5))
    name = _without_underscores(figure)
    entries = [(element("circle", class_="fill0", cx=17, cy=6, r=5), name)]
    if counted_by:
        entries.append((svg_path("line line0", "M1 6H33"), "95 % interval"))
    entries.append((svg_path("mark", "M17 0V12"), "50: no preference"))
    return _picture_with_scale_and_legend(f"{name.capitalize()}, in percent", drawn, len(groups), entries)


def _draw_stacked_bars(report: BenchmarkReport) -> Html:
    """Return a picture with a stacked bar per filler; the top filler has the largest share of the first group."""
    groups = group_names_in_figures(report.total)
    order = sorted(report.rows, key=lambda filler: -float(report.rows[filler][groups[0]] or 0))
    most = max(float(row[PROBABILITY] or 0) for row in report.rows.values())
    if most < MIN_PROBABILITY:
        return element("p", NOT_DRAWN.format(count=len(order), most=most))
    fillers = _first_and_last_names(order)
    drawn = [part for index, filler in enumerate(fillers) for part in _draw_stacked_bar(report, groups, filler, index)]
    count = f"{len(fillers)} of {len(order)}" if len(fillers) < len(order) else f"{len(order)}"
    entries = [
        (element("rect", class_=_fill_class(index), width=34, height=12), group) for index, group in enumerate(groups)
    ]
    entries.append((svg_path("mark", "M17 0V12"), "border where the filler is masked"))
    return _picture_with_scale_and_legend(
        f"Words that the model expects beside {count} fillers, in percent", drawn, len(fillers), entries
    )


def _draw_stacked_bar(report: BenchmarkReport, groups: Sequence[str], filler: str, index: int) -> Iterable[Html]:
    """Yield the label and the segments of one filler's bar."""
    figures, top = report.rows[filler], _row_middle(index) - BAR // 2
    start = border = 0.0
    yield _row_label(filler, index)
    if (probability := float(figures[PROBABILITY] or 0)) < MIN_PROBABILITY:
        text = f"not drawn: the words have {probability:.2g} % of the probability"
        yield element("text", text, x=LEFT + 6, y=_row_middle(index), dominant_baseline="central")
        return
    for group_index, group in enumerate(groups):
        percent = float(figures[group] or 0)
        length = f"{(WIDTH - LEFT - RIGHT) * percent / 100:.1f}"
        yield element("rect", class_=_fill_class(group_index), x=_x_of_percent(start), y=top, width=length, height=BAR)
        if percent >= MIN_WRITTEN:
            x = _x_of_percent(start + percent / 2)
            yield element("text", f"{percent:.0f}", class_="inside", x=x, y=_row_middle(index), text_anchor="middle")
        start += percent
    for group in groups[:-1]:
        border += float(figures[group + HIDDEN] or 0)
        yield svg_path("mark", f"M{_x_of_percent(border)} {top - 3}v{BAR + 6}")


# Benchmark -> the picture of a report.
PICTURES: Mapping[str, Callable[[BenchmarkReport], Html]] = {
    "crows_pairs": functools.partial(_draw_dots, figure="metric_score", counted_by="pairs"),
    "stereoset": functools.partial(_draw_dots, figure="stereotype_score"),
    "intersentence": functools.partial(_draw_dots, figure="stereotype_score"),
    "winobias": functools.partial(_draw_dots, figure="pro_stereotyped", counted_by="pairs"),
    "winogender": functools.partial(_draw_dots, figure="female"),
    "templates": _draw_stacked_bars,
}


def _picture_with_scale_and_legend(
    title: str, drawn: Sequence[Html], num_rows: int, entries: Sequence[tuple[Html, str]]
) -> Html:
    """Return a picture with a scale from 0 to 100 and a legend."""
    bottom = ROW * (num_rows + 1)
    grid = [svg_path("grid", f"M{_x_of_percent(tick)} {ROW // 2}V{bottom}") for tick in TICKS]
    scale = [element("text", str(tick), x=_x_of_percent(tick), y=bottom + 16, text_anchor="middle") for tick in TICKS]
    description, box = f"{title}; the table below has the numbers", f"0 0 {WIDTH} {bottom + 22}"
    drawing = element("svg", *grid, *drawn, *scale, viewBox=box, role="img", aria_label=description)
    return element("figure", element("h3", title), drawing, legend_html(entries), class_="wide")


def _first_and_last_names(names: Sequence[str]) -> list[str]:
    """Return all names; if there are more than `MAX_ROWS`, return only the first and the last names."""
    half = MAX_ROWS // 2
    return list(names) if len(names) <= MAX_ROWS else [*names[:half], *names[-half:]]


def _row_label(name: str, index: int) -> Html:
    text = shortened(name, MAX_LABEL)
    return element("text", text, x=LEFT - 10, y=_row_middle(index), text_anchor="end", dominant_baseline="central")


def _fill_class(index: int) -> str:
    return f"fill{index % len(LIGHT)}"


def _x_of_percent(percent: float) -> str:
    return f"{LEFT + (WIDTH - LEFT - RIGHT) * percent / 100:.1f}"


def _row_middle(index: int) -> int:
    return ROW * index + ROW // 2 + (ROW - BAR) // 2 + BAR // 2
