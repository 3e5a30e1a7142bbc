"""A chart as SVG: axes, ticks, lines, marks and a legend."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax.reports.html.markup import Html, element, small_paragraph
from bert_jax.reports.html.style import DASHES, LIGHT

WIDTH, HEIGHT = 480, 280  # in the units of the drawing, which scales with the page
LEFT, RIGHT = 74, 10  # margins
TOP, BOTTOM = 20, 26
BASE = HEIGHT - BOTTOM  # of the horizontal axis
LEVEL = "line4 dash2"  # look of a level
NUM_TICKS = 5  # approximate, on the vertical axis
NUM_STEPS = 6  # ticks on the horizontal axis
BUCKETS = 400, 40  # of the horizontal axis, at most and at least; a curve keeps two points in each
POINTS_OF_ALL = 6_000  # buckets that all curves of a chart have together
MAX_DOTS = 60  # a curve of more points has no dots
MAX_BROKEN = 50

Point = tuple[float, float | None]  # x and y; None where the run had no finite number


class Curve(NamedTuple):
    """Points with a label and a style; `dots` marks the points if they are few, `thin` is for noisy curves."""

    label: str
    points: Sequence[Point]
    look: int  # chooses color and dashes
    dots: bool = False
    thin: bool = False


class Marks(NamedTuple):
    """Events at steps: phases as (begin, end, name), checkpoints on disk, restarts."""

    phases: Sequence[tuple[int, int, str]] = ()
    checkpoints: Sequence[int] = ()
    restarts: Sequence[int] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves over steps, with horizontal lines at named levels; `percent`, `log` and `from_zero` are of the y axis."""

    title: str
    curves: Sequence[Curve]
    levels: Sequence[tuple[str, float]] = ()
    marks: Marks = Marks()
    percent: bool = False
    log: bool = False
    from_zero: bool = False


def charts_side_by_side(charts: Iterable[Chart]) -> Html:
    """Return charts side by side if the page is wide enough."""
    return element("div", *map(chart_html, charts), class_="charts")


def chart_html(chart: Chart) -> Html:
    """Return a chart as an HTML figure; if the chart has no finite number, return a figure with a note."""
    values = [y for curve in chart.curves for _, y in curve.points if y is not None and (y > 0 or not chart.log)]
    steps = [x for curve in chart.curves for x, _ in curve.points]
    if not values:
        return element("figure", element("h3", chart.title), small_paragraph("no finite number"))
    values += [level for _, level in chart.levels]
    low, high = (0.0 if chart.from_zero else min(values)), max(values)
    y_ticks = log_ticks(low, high) if chart.log else ticks(low, high)
    axes = _Axes(min(0.0, *steps), max(*steps, 1.0), min(low, y_ticks[0]), max(high, y_ticks[-1]), chart.log)
    buckets = max(BUCKETS[1], min(BUCKETS[0], POINTS_OF_ALL // len(chart.curves)))
    drawing = element(
        "svg",
        *_draw_phases(chart.marks, axes),
        *_draw_grid(axes, y_ticks, chart.percent),
        *(_horizontal_line(f"line {LEVEL}", axes.y_coordinate(level)) for _, level in chart.levels),
        *(part for curve in chart.curves for part in _draw_curve(curve, axes, buckets)),
        *_draw_restarts_and_checkpoints(chart.marks, axes),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=chart_in_words(chart),
    )
    return element("figure", element("h3", chart.title), drawing, _chart_legend(chart))


def chart_in_words(chart: Chart) -> str:
    """Return a description of a chart for readers who do not see it."""
    descriptions = []
    for curve in chart.curves:
        if finite := [(x, y) for x, y in curve.points if y is not None]:
            (first, begin), (last, end) = finite[0], finite[-1]
            least = min(y for _, y in finite)
            at_begin, at_end, lowest = (number_text(y, chart.percent) for y in (begin, end, least))
            descriptions.append(
                f"{curve.label} from {at_begin} at step {first:,.0f} to {at_end} at {last:,.0f}, least {lowest}"
            )
    levels = [f"{name} at {number_text(value, chart.percent)}" for name, value in chart.levels]
    return f"{chart.title}: {'; '.join(descriptions[:8] + levels)}"


def downsample(points: Sequence[Point], buckets: int) -> list[Point]:
    """Return the points; if there are many, only the lowest and the highest point of each of `buckets` intervals of x.

    The first and the last point stay. Points without a number stay, at most one per interval, so that the line has a
    gap there.
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
    """Return about `count` round numbers that enclose `low` to `high`."""
    if high <= low:
        spread = abs(low) or 1.0
        low, high = low - spread / 2, high + spread / 2
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(begin, end + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten that enclose `low` to `high` (both above 0); for a short range, also 2 and 5 times these."""
    begin, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(end - begin) // NUM_TICKS))
    sizes = (1, 2, 5) if end - begin <= 2 else (1,)
    values = [size * 10.0**power for power in range(begin, end + every, every) for size in sizes]
    first = max(index for index, value in enumerate(values) if value <= low)
    last = min(index for index, value in enumerate(values) if value >= high)
    return values[first : last + 1]


def number_text(value: float, percent: bool = False) -> str:
    """Return a number in few characters: 12.5%, 0.0021, 12,500, 150k, 2M."""
    if percent:
        return f"{100 * value:.4g}%"
    for at_least, size, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k")):
        if abs(value) >= at_least:
            return f"{value / size:.4g}{letter}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


class _Axes(NamedTuple):
    """The ranges of both axes, and the coordinates of a point in the drawing."""

    first: float
    last: float
    low: float
    high: float
    log: bool

    def x_coordinate(self, step: float) -> str:
        """Return the x coordinate of a step."""
        return _coordinate(LEFT + (WIDTH - LEFT - RIGHT) * (step - self.first) / (self.last - self.first))

    def y_coordinate(self, value: float) -> str:
        """Return the y coordinate of a value."""
        ends = (self.low, self.high, value)
        low, high, scaled = (math.log(max(end, 1e-30)) for end in ends) if self.log else ends
        return _coordinate(BASE - (BASE - TOP) * (scaled - low) / ((high - low) or 1.0))


def _coordinate(value: float) -> str:
    """Return a coordinate with one decimal, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def _horizontal_line(class_: str, y: float | str) -> Html:
    return element("line", class_=class_, x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)


def _vertical_line(class_: str, x: str, top: float, bottom: float) -> Html:
    return element("line", class_=class_, x1=x, x2=x, y1=top, y2=bottom)


def _draw_grid(axes: _Axes, y_ticks: Sequence[float], percent: bool) -> Iterable[Html]:
    """Yield grid lines and numbers of both axes."""
    for tick in y_ticks:
        y = axes.y_coordinate(tick)
        yield _horizontal_line("grid", y)
        name = number_text(tick, percent)
        yield element("text", name, x=LEFT - 6, y=y, text_anchor="end", dominant_baseline="middle")
    steps = [tick for tick in ticks(axes.first, axes.last, NUM_STEPS) if axes.first <= tick <= axes.last]
    for index, tick in enumerate(steps):
        x = axes.x_coordinate(tick)
        yield _vertical_line("axis", x, BASE, BASE + 4)
        fraction = (tick - axes.first) / (axes.last - axes.first)  # a name at an end stays inside
        anchor = "start" if fraction < 0.03 else "end" if fraction > 0.97 else "middle"
        yield element("text", f"{'' if index else 'step '}{number_text(tick)}", x=x, y=HEIGHT - 7, text_anchor=anchor)
    yield _horizontal_line("axis", BASE)


def _draw_curve(curve: Curve, axes: _Axes, buckets: int) -> Iterable[Html]:
    """Yield the line of a curve, its dots, and marks at numbers that are not finite."""
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
    if (curve.dots and len(finite) <= MAX_DOTS) or len(finite) == 1:
        fill = f"fill{curve.look % len(LIGHT)}"
        yield from (
            element("circle", class_=fill, cx=axes.x_coordinate(x), cy=axes.y_coordinate(y), r=2.6) for x, y in finite
        )
    if broken:
        yield element("path", class_="broken", d="".join(broken[:MAX_BROKEN]))


def _color_and_dash_classes(index: int) -> str:
    """Return the CSS classes of color and dashes; lines of equal color have different dashes."""
    return f"line{index % len(LIGHT)} dash{index % len(DASHES)}"


def _draw_phases(marks: Marks, axes: _Axes) -> Iterable[Html]:
    """Yield the drawing of the phases: every second phase is shaded, and a name is at the top if it fits."""
    if len(marks.phases) < 2:
        return
    for index, (begin, end, name) in enumerate(marks.phases):
        left, right = float(axes.x_coordinate(begin)), float(axes.x_coordinate(min(end, axes.last)))
        if right <= left:
            continue
        if index % 2:
            yield element("rect", class_="band", x=left, y=TOP, width=_coordinate(right - left), height=BASE - TOP)
        if right - left > 7 * len(name):
            yield element("text", name, x=_coordinate((left + right) / 2), y=TOP - 6, text_anchor="middle")


def _draw_restarts_and_checkpoints(marks: Marks, axes: _Axes) -> Iterable[Html]:
    for step in marks.restarts:
        yield _vertical_line("restart", axes.x_coordinate(step), TOP, BASE)
    for step in marks.checkpoints:
        yield element("path", class_="checkpoint", d=f"M{axes.x_coordinate(step)} {BASE - 7}l4 7h-8z")


def _chart_legend(chart: Chart) -> Html:
    looks = [(_color_and_dash_classes(curve.look), curve.label) for curve in chart.curves]
    looks += [(LEVEL, f"{name} {number_text(value, chart.percent)}") for name, value in chart.levels]
    entries = [(path_mark(f"line {look}", "M1 6H33"), label) for look, label in looks]
    if chart.marks.restarts:
        entries.append((path_mark("restart", "M17 0V12"), "restart"))
    if chart.marks.checkpoints:
        entries.append((path_mark("checkpoint", "M17 1l6 10h-12z"), "checkpoint kept"))
    if any(y is None for curve in chart.curves for _, y in curve.points):
        entries.append((path_mark("broken", "M17 1v10"), "not finite"))
    return legend_html(entries)


def path_mark(class_: str, path: str) -> Html:
    """Return an SVG path for a drawing, or for a legend symbol of 34 x 12."""
    return element("path", class_=class_, d=path)


def legend_html(entries: Iterable[tuple[Html, str]]) -> Html:
    """Return a legend: symbols of 34 x 12 with their meanings."""
    items = (
        element("li", element("svg", mark, viewBox="0 0 34 12", aria_hidden="true"), label) for mark, label in entries
    )
    return element("ul", *items, class_="legend")
