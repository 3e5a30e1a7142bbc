"""Charts as SVG: axes, ticks, lines and marks, with one legend for all charts of a section."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bert_jax.console import format_number
from bert_jax.reports.html.markup import Html, element, join_html, small_paragraph
from bert_jax.reports.html.point_values import Point, point_values_html, values_by_x
from bert_jax.reports.html.style import DASHES, LIGHT

WIDTH, HEIGHT = 480, 280  # size of a chart, in the units of the drawing, which scales with the page
LEFT, RIGHT = 74, 10  # margins
TOP, BOTTOM = 20, 26
BASE = HEIGHT - BOTTOM  # y coordinate of the horizontal axis
LEVEL = "line4 dash2"  # CSS classes of the line at a level
NUM_TICKS = 5  # approximate number of ticks on the vertical axis
NUM_STEPS = 6  # approximate number of ticks on the horizontal axis
BUCKETS = 400, 40  # maximum and minimum number of intervals of x; a curve keeps two points in each interval
POINTS_OF_ALL = 6_000  # intervals of x that all curves of a chart have together
MAX_DOTS, MAX_THIN_DOTS = 60, 30  # maximum number of points of a usual and of a thin curve with dots
MAX_BROKEN = 50
HINT = "The pointer on a chart shows its values. The Tab key and the arrow keys show them, too."
# Unit -> (smallest number, divisor, suffix) for each size of its numbers, largest first.
SIZES = {
    "": ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k")),
    "bytes": ((1e12, 1e12, " TB"), (1e9, 1e9, " GB"), (1e6, 1e6, " MB"), (1e3, 1e3, " kB")),
}


class Curve(NamedTuple):
    """Points with a label and a style; `dots` adds dots if there are few points, `thin` suits noisy curves."""

    label: str
    points: Sequence[Point]
    look: int  # chooses color and dashes
    dots: bool = False
    thin: bool = False

    def shows_dots(self, num_points: int) -> bool:
        """Return True if the curve has dots at its points, of which `num_points` are drawn."""
        most = MAX_THIN_DOTS if self.thin else MAX_DOTS
        return (self.dots and num_points <= most) or num_points == 1


class Marks(NamedTuple):
    """Events on the horizontal axis: phases as (begin, end, name), checkpoints on disk, restarts."""

    phases: Sequence[tuple[float, float, str]] = ()
    checkpoints: Sequence[float] = ()
    restarts: Sequence[float] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves, and horizontal lines at named levels; the fields `unit`, `log` and `from_zero` apply to the y axis."""

    title: str
    curves: Sequence[Curve]
    levels: Sequence[tuple[str, float]] = ()
    marks: Marks = Marks()
    unit: str = ""
    log: bool = False
    from_zero: bool = False
    x_title: str = "step"  # name of a value of the horizontal axis


def charts_by_axis_html(charts: Mapping[str, Sequence[Chart]]) -> Html:
    """Return charts with one legend; buttons choose the horizontal axis, initially the first axis of `charts`.

    Args:
        charts: for each name of an axis (steps, tokens, time), the charts over this axis.
    """
    buttons = [
        element("label", element("input", type="radio", name="axis", id=f"by-{name}", checked=not index), name)
        for index, name in enumerate(charts)
    ]
    choice = element("fieldset", element("legend", "Horizontal axis"), *buttons) if len(buttons) > 1 else ""
    legend = _charts_legend(next(iter(charts.values()), ()))
    drawn = [element("div", *map(chart_html, group), class_=f"charts by-{name}") for name, group in charts.items()]
    return join_html([element("div", legend, choice, class_="filters"), *drawn, small_paragraph(HINT)])


def chart_html(chart: Chart) -> Html:
    """Return a chart as an HTML figure; if the chart has no finite number, return a figure with a note."""
    values = [y for curve in chart.curves for _, y in curve.points if y is not None and (y > 0 or not chart.log)]
    xs = [x for curve in chart.curves for x, _ in curve.points]
    if not values:
        return element("figure", element("h3", chart.title), small_paragraph("no finite number"))
    values += [level for _, level in chart.levels]
    low, high = (0.0 if chart.from_zero else min(values)), max(values)
    y_ticks = log_ticks(low, high) if chart.log else ticks(low, high)
    axes = _Axes(min(0.0, *xs), max(xs) or 1.0, min(low, y_ticks[0]), max(high, y_ticks[-1]), chart.log)
    buckets = max(BUCKETS[1], min(BUCKETS[0], POINTS_OF_ALL // len(chart.curves)))
    drawing = element(
        "svg",
        *_draw_phases(chart.marks, axes),
        *_draw_grid(axes, y_ticks, chart),
        *(part for name, level in chart.levels for part in _draw_level(name, level, chart.unit, axes)),
        *(part for curve in chart.curves for part in _draw_curve(curve, axes, buckets)),
        *_draw_restarts_and_checkpoints(chart.marks, axes),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=chart_in_words(chart),
    )
    strips = [
        (axes.fraction(x), _point_values_text(chart, x, values))
        for x, values in values_by_x([(curve.label, curve.points) for curve in chart.curves])
    ]
    values_html = point_values_html(f"{chart.title} by {chart.x_title}", strips)
    return element("figure", element("h3", chart.title), element("div", drawing, values_html, class_="plot"))


def _point_values_text(chart: Chart, x: float, values: Sequence[tuple[str, float]]) -> str:
    """Return the text that appears under the pointer at `x`: a line with x, and a line with each curve's value."""
    lines = [f"{label}: {number_text(y, chart.unit, 4)}" for label, y in values]
    return "\n".join([_x_text(chart, x), *lines])


def _x_text(chart: Chart, x: float) -> str:
    return f"step {x:,.0f}" if chart.x_title == "step" else f"{number_text(x)} {chart.x_title}"


def chart_in_words(chart: Chart) -> str:
    """Return a description of a chart for readers who cannot see the chart."""
    descriptions = []
    for curve in chart.curves:
        if finite := [(x, y) for x, y in curve.points if y is not None]:
            (first, begin), (last, end) = finite[0], finite[-1]
            least = min(y for _, y in finite)
            at_begin, at_end, lowest = (number_text(y, chart.unit) for y in (begin, end, least))
            descriptions.append(
                f"{curve.label} from {at_begin} at {_x_text(chart, first)} to {at_end} at {_x_text(chart, last)}, "
                f"least {lowest}"
            )
    levels = [f"{name} at {number_text(value, chart.unit)}" for name, value in chart.levels]
    return f"{chart.title}: {'; '.join(descriptions[:8] + levels)}"


def downsample(points: Sequence[Point], buckets: int) -> list[Point]:
    """Return the points of a curve, thinned to the lowest and the highest point of each of `buckets` intervals of x.

    A curve with few points is not thinned. The first and the last point are kept. At most one point without a number is
    kept per interval, so that the line has a gap at this point.
    """
    if len(points) <= 2 * buckets:
        return list(points)
    first, last = points[0][0], points[-1][0]
    width = (last - first) / buckets or 1.0
    indexes = {0, len(points) - 1}
    lowest, highest, broken = dict[int, int](), dict[int, int](), dict[int, int]()
    for index, (x, y) in enumerate(points):
        bucket = min(buckets - 1, int((x - first) / width))
        if y is None:
            broken.setdefault(bucket, index)
            continue
        if bucket not in lowest or y < points[lowest[bucket]][1]:  # type: ignore[operator]
            lowest[bucket] = index
        if bucket not in highest or y > points[highest[bucket]][1]:  # type: ignore[operator]
            highest[bucket] = index
    indexes.update(lowest.values(), highest.values(), broken.values())
    return [points[index] for index in sorted(indexes)]


def ticks(low: float, high: float, count: int = NUM_TICKS) -> list[float]:
    """Return about `count` round numbers that enclose the range from `low` to `high`."""
    if high <= low:
        spread = abs(low) or 1.0
        low, high = low - spread / 2, high + spread / 2
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(begin, end + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten that enclose `low` to `high` (both above 0).

    If the range is short, the result also contains 2 times and 5 times each power.
    """
    begin, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(end - begin) // NUM_TICKS))
    sizes = (1, 2, 5) if end - begin <= 2 else (1,)
    values = [size * 10.0**power for power in range(begin, end + every, every) for size in sizes]
    first = max(index for index, value in enumerate(values) if value <= low)
    last = min(index for index, value in enumerate(values) if value >= high)
    return values[first : last + 1]


def number_text(value: float, unit: str = "", digits: int = 3) -> str:
    """Return a number as a short text, such as 12.5%, 0.0021, 12,500, 150k, 2M or 747 MB."""
    if unit == "%":
        return f"{100 * value:.{digits}g}%"
    for at_least, size, letter in SIZES[unit]:
        if abs(value) >= at_least:
            return f"{format_number(value / size, digits if unit else 4)}{letter}"
    return format_number(value, digits) if abs(value) < 1000 else f"{value:,.0f}"


class _Axes(NamedTuple):
    """The ranges of both axes, and the coordinates of a point in the drawing."""

    first: float
    last: float
    low: float
    high: float
    log: bool

    def x_coordinate(self, x: float) -> str:
        """Return the x coordinate of a value of the horizontal axis."""
        return _format_coordinate(WIDTH * self.fraction(x))

    def fraction(self, x: float) -> float:
        """Return the position of a value of the horizontal axis, as a fraction of the width of the drawing."""
        return (LEFT + (WIDTH - LEFT - RIGHT) * (x - self.first) / (self.last - self.first)) / WIDTH

    def y_coordinate(self, value: float) -> str:
        """Return the y coordinate of a value of the vertical axis."""
        ends = (self.low, self.high, value)
        low, high, scaled = (math.log(max(end, 1e-30)) for end in ends) if self.log else ends
        return _format_coordinate(BASE - (BASE - TOP) * (scaled - low) / ((high - low) or 1.0))


def _format_coordinate(value: float) -> str:
    """Return a coordinate with one decimal, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def _horizontal_line(class_: str, y: float | str) -> Html:
    return element("line", class_=class_, x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)


def _vertical_line(class_: str, x: str, top: float, bottom: float) -> Html:
    return element("line", class_=class_, x1=x, x2=x, y1=top, y2=bottom)


def _draw_level(name: str, level: float, unit: str, axes: _Axes) -> Iterable[Html]:
    """Yield a horizontal line at a level and, above the end of the line, the name and the value of the level."""
    y = axes.y_coordinate(level)
    yield _horizontal_line(f"line {LEVEL}", y)
    text = f"{name} {number_text(level, unit)}"
    yield element(
        "text", text, class_="level", x=WIDTH - RIGHT - 4, y=_format_coordinate(float(y) - 5), text_anchor="end"
    )


def _draw_grid(axes: _Axes, y_ticks: Sequence[float], chart: Chart) -> Iterable[Html]:
    """Yield grid lines and numbers of both axes."""
    for tick in y_ticks:
        y = axes.y_coordinate(tick)
        yield _horizontal_line("grid", y)
        name = number_text(tick, chart.unit)
        yield element("text", name, x=LEFT - 6, y=y, text_anchor="end", dominant_baseline="middle")
    steps = [tick for tick in ticks(axes.first, axes.last, NUM_STEPS) if axes.first <= tick <= axes.last]
    for index, tick in enumerate(steps):
        x = axes.x_coordinate(tick)
        yield _vertical_line("axis", x, BASE, BASE + 4)
        fraction = (tick - axes.first) / (axes.last - axes.first)  # a label at an end stays inside
        anchor = "start" if fraction < 0.03 else "end" if fraction > 0.97 else "middle"
        yield element(
            "text", f"{'' if index else chart.x_title + ' '}{number_text(tick)}", x=x, y=HEIGHT - 7, text_anchor=anchor
        )
    yield _horizontal_line("axis", BASE)


def _draw_curve(curve: Curve, axes: _Axes, buckets: int) -> Iterable[Html]:
    """Yield the line of a curve, its dots, and marks at values that are not finite."""
    path, pen_up, broken = list[str](), True, list[str]()
    for x, y in downsample(curve.points, buckets):
        if y is None or (axes.log and y <= 0):
            pen_up = True
            broken.append(f"M{axes.x_coordinate(x)} {TOP}v8")
            continue
        path.append(f"{'M' if pen_up else 'L'}{axes.x_coordinate(x)} {axes.y_coordinate(y)}")
        pen_up = False
    yield element(
        "path", class_=f"line {_color_and_dash_classes(curve.look)}{' thin' if curve.thin else ''}", d="".join(path)
    )
    finite = [(x, y) for x, y in curve.points if y is not None and (y > 0 or not axes.log)]
    if curve.shows_dots(len(finite)):
        fill = f"fill{curve.look % len(LIGHT)}"
        yield from (
            element(
                "circle", class_=fill, cx=axes.x_coordinate(x), cy=axes.y_coordinate(y), r=1.8 if curve.thin else 2.6
            )
            for x, y in finite
        )
    if broken:
        yield element("path", class_="broken", d="".join(broken[:MAX_BROKEN]))


def _color_and_dash_classes(index: int) -> str:
    """Return the CSS classes of a line for color and dashes; lines of the same color have different dashes."""
    return f"line{index % len(LIGHT)} dash{index % len(DASHES)}"


def _draw_phases(marks: Marks, axes: _Axes) -> Iterable[Html]:
    """Yield the drawing of the phases; every second phase is shaded, and names that fit are at the top."""
    if len(marks.phases) < 2:
        return
    for index, (begin, end, name) in enumerate(marks.phases):
        left, right = float(axes.x_coordinate(begin)), float(axes.x_coordinate(min(end, axes.last)))
        if right <= left:
            continue
        if index % 2:
            yield element(
                "rect", class_="band", x=left, y=TOP, width=_format_coordinate(right - left), height=BASE - TOP
            )
        if right - left > 7 * len(name):
            yield element("text", name, x=_format_coordinate((left + right) / 2), y=TOP - 6, text_anchor="middle")


def _draw_restarts_and_checkpoints(marks: Marks, axes: _Axes) -> Iterable[Html]:
    """Yield the marks of restarts and checkpoints; of marks less than a unit apart, only the first is drawn."""
    for step in _first_of_each_unit(marks.restarts, axes):
        yield _vertical_line("restart", axes.x_coordinate(step), TOP, BASE)
    for step in _first_of_each_unit(marks.checkpoints, axes):
        yield element("path", class_="checkpoint", d=f"M{axes.x_coordinate(step)} {BASE - 7}l4 7h-8z")


def _first_of_each_unit(steps: Iterable[float], axes: _Axes) -> Iterable[float]:
    """Return the first step in each unit of the drawing, since a run may have thousands of checkpoints."""
    first: dict[int, float] = {}
    for step in steps:
        first.setdefault(int(float(axes.x_coordinate(step))), step)
    return first.values()


def _charts_legend(charts: Sequence[Chart]) -> Html:
    """Return one legend for the curves and the marks of all charts."""
    curves = [curve for chart in charts for curve in chart.curves]
    looks = dict.fromkeys((_color_and_dash_classes(curve.look), curve.label) for curve in curves)
    entries = [(svg_path(f"line {look}", "M1 6H33"), label) for look, label in looks]
    if any(chart.marks.restarts for chart in charts):
        entries.append((svg_path("restart", "M17 0V12"), "restart"))
    if any(chart.marks.checkpoints for chart in charts):
        entries.append((svg_path("checkpoint", "M17 1l6 10h-12z"), "checkpoint kept"))
    if any(y is None for curve in curves for _, y in curve.points):
        entries.append((svg_path("broken", "M17 1v10"), "not finite"))
    return legend_html(entries)


def svg_path(class_: str, path: str) -> Html:
    """Return an SVG path for a chart, or for a legend symbol of 34 x 12 pixels."""
    return element("path", class_=class_, d=path)


def legend_html(entries: Iterable[tuple[Html, str]]) -> Html:
    """Return a legend of symbols, each 34 x 12 pixels, with their meanings."""
    items = (
        element("li", element("svg", mark, viewBox="0 0 34 12", aria_hidden="true"), label) for mark, label in entries
    )
    return element("ul", *items, class_="legend")
