"""Pictures of bias: bars of groups by filler, dots with intervals by group of items."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from bert_jax.reports.bias_metric_notes import interval
from bert_jax.reports.html.markup import Html, element
from bert_jax.reports.html.style import LIGHT
from bert_jax.scoring.score import Report
from bert_jax.scoring.templates import HIDDEN, groups_of

WIDTH, LEFT, RIGHT, ROW, BAR = 640, 170, 16, 26, 18  # in the units of the drawing, which scales with the page
TICKS = (0, 25, 50, 75, 100)
MAX_ROWS = 100
MAX_LABEL = 22  # characters
LEAST_WRITTEN = 12  # percent, of a bar that has its number inside


class Dots(NamedTuple):
    """A percentage by group of items, 50 without bias; `of` counts items for its interval, "" has none."""

    figure: str
    of: str = ""


def picture(report: Report) -> Html:
    """Return what a report looks like, or nothing where it has no picture."""
    return PICTURES[report.benchmark](report)


def _bars(report: Report) -> Html:
    """The parts of the groups beside each filler, the largest part of the first group on top."""
    groups = groups_of(report.total)
    order = sorted(report.rows, key=lambda filler: -float(report.rows[filler][groups[0]] or 0))
    shown = _shown(order)
    rows = [part for at, filler in enumerate(shown) for part in _bar(report, groups, filler, at)]
    most = f"{len(shown)} of " if len(shown) < len(order) else ""
    title = f"What the model expects beside {most}{len(order)} fillers, in percent"
    entries = [(element("rect", class_=f"fill{_look(n)}", width=34, height=12), name) for n, name in enumerate(groups)]
    entries.append((element("path", class_="mark", d="M17 0V12"), "border where the filler is masked"))
    return _figure(title, rows, len(shown), entries)


def _bar(report: Report, groups: Sequence[str], filler: str, at: int) -> Iterable[Html]:
    figures, start, border = report.rows[filler], 0.0, 0.0
    yield _label(filler, at)
    for number, group in enumerate(groups):
        part = float(figures[group] or 0)
        fill = f"fill{_look(number)}"
        yield element("rect", class_=fill, x=_x(start), y=_top(at), width=_length(part), height=BAR)
        if part >= LEAST_WRITTEN:
            middle = _x(start + part / 2)
            yield element("text", f"{part:.0f}", class_="inside", x=middle, y=_middle(at), text_anchor="middle")
        start += part
    for group in groups[:-1]:
        border += float(figures[group + HIDDEN] or 0)
        yield element("path", class_="mark", d=f"M{_x(border)} {_top(at) - 3}v{BAR + 6}")


def _dots(dots: Dots) -> Callable[[Report], Html]:
    def drawn(report: Report) -> Html:
        values = {**report.rows, "all": report.total} if len(report.rows) > 1 else dict(report.rows)
        shown = _shown([name for name, row in values.items() if row[dots.figure] is not None])
        rows = [element("path", class_="mark", d=f"M{_x(50)} {ROW // 2}V{ROW * (len(shown) + 1)}")]
        for at, name in enumerate(shown):
            value = float(values[name][dots.figure] or 0)
            rows.append(_label(name, at))
            if dots.of:
                low, high = interval(value, int(values[name][dots.of] or 0))
                rows.append(element("path", class_="line line0", d=f"M{_x(low)} {_middle(at)}H{_x(high)}"))
            rows.append(element("circle", class_="fill0", cx=_x(value), cy=_middle(at), r=5))
        entries = [(element("circle", class_="fill0", cx=17, cy=6, r=5), dots.figure.replace("_", " "))]
        if dots.of:
            entries.append((element("path", class_="line line0", d="M1 6H33"), "95 % interval"))
        entries.append((element("path", class_="mark", d="M17 0V12"), "50: no preference"))
        return _figure(f"{dots.figure.replace('_', ' ').capitalize()}, in percent", rows, len(shown), entries)

    return drawn


# Benchmark -> the picture of a report.
PICTURES: dict[str, Callable[[Report], Html]] = {
    "crows_pairs": _dots(Dots("metric_score", "pairs")),
    "stereoset": _dots(Dots("stereotype_score")),
    "intersentence": _dots(Dots("stereotype_score")),
    "winobias": _dots(Dots("pro_stereotyped", "pairs")),
    "winogender": _dots(Dots("female")),
    "templates": _bars,
}


def _figure(title: str, rows: Sequence[Html], number: int, entries: Sequence[tuple[Html, str]]) -> Html:
    """A picture with a scale from 0 to 100 and a legend."""
    bottom = ROW * (number + 1)
    grid = [element("path", class_="grid", d=f"M{_x(tick)} {ROW // 2}V{bottom}") for tick in TICKS]
    scale = [element("text", str(tick), x=_x(tick), y=bottom + 16, text_anchor="middle") for tick in TICKS]
    words = f"{title}; the table below has the numbers"
    box = f"0 0 {WIDTH} {bottom + 22}"
    drawing = element("svg", *grid, *rows, *scale, viewBox=box, role="img", aria_label=words)
    legend = [
        element("li", element("svg", mark, viewBox="0 0 34 12", aria_hidden="true"), name) for mark, name in entries
    ]
    return element("figure", element("h3", title), drawing, element("ul", *legend, class_="legend"), class_="wide")


def _shown(names: Sequence[str]) -> list[str]:
    """All names, or of many those at both ends."""
    half = MAX_ROWS // 2
    return list(names) if len(names) <= MAX_ROWS else [*names[:half], *names[-half:]]


def _label(name: str, at: int) -> Html:
    short = name if len(name) <= MAX_LABEL else name[: MAX_LABEL - 1] + "…"
    return element("text", short, x=LEFT - 10, y=_middle(at), text_anchor="end", dominant_baseline="central")


def _look(number: int) -> int:
    return number % len(LIGHT)


def _x(percent: float) -> str:
    return f"{LEFT + (WIDTH - LEFT - RIGHT) * percent / 100:.1f}"


def _length(percent: float) -> str:
    return f"{(WIDTH - LEFT - RIGHT) * percent / 100:.1f}"


def _top(at: int) -> int:
    return ROW * at + ROW // 2 + (ROW - BAR) // 2


def _middle(at: int) -> int:
    return _top(at) + BAR // 2
