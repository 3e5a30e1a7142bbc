"""One chart as SVG: axes, ticks, lines, marks and a legend."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax.reports.html.markup import Html, element, joined
from bert_jax.reports.html.style import DASHES, LIGHT

WIDTH, HEIGHT = 480, 280  # in the units of the drawing, which scales with the page
LEFT, RIGHT, TOP, BOTTOM = 74, 10, 20, 26  # margins
NUM_TICKS = 5  # about, on the vertical axis
NUM_STEPS = 6  # on the horizontal one
BUCKETS = 400, 40  # of the horizontal axis, at most and at least; a line keeps two points in each
POINTS_OF_ALL = 6_000  # buckets that all lines of a chart have together
MAX_DOTS = 60  # more measurements than these are a line without dots
MAX_BROKEN = 50

Point = tuple[float, float | None]  # x and y; None where the run had no finite number


class Line(NamedTuple):
    """A curve; `look` chooses color and dashes, `dots` marks each point where they are few, `thin` is for noise."""

    label: str
    points: Sequence[Point]
    look: int
    dots: bool = False
    thin: bool = False


class Marks(NamedTuple):
    """What happened at which step: phases as (begin, end, name), checkpoints on disk, restarts."""

    phases: Sequence[tuple[int, int, str]] = ()
    checkpoints: Sequence[int] = ()
    restarts: Sequence[int] = ()


class Chart(NamedTuple):
    """What to draw. `levels` are horizontal lines with their names; `percent` and `log` are about the vertical axis."""

    title: str
    lines: Sequence[Line]
    levels: Sequence[tuple[str, float]] = ()
    marks: Marks = Marks()
    percent: bool = False
    log: bool = False
    from_zero: bool = False


def draw(chart: Chart) -> Html:
    """Return a figure; without any finite number, one that says so."""
    values = [y for line in chart.lines for _, y in line.points if y is not None and (y > 0 or not chart.log)]
    steps = [x for line in chart.lines for x, _ in line.points]
    if not values:
        return element("figure", element("h3", chart.title), element("p", "no finite number", class_="note"))
    values += [level for _, level in chart.levels]
    low, high = (0.0 if chart.from_zero else min(values)), max(values)
    marks = log_ticks(low, high) if chart.log else ticks(low, high)
    low, high = min(low, marks[0]), max(high, marks[-1])
    axes = _Axes(min(0.0, *steps), max(*steps, 1.0), low, high, chart.log)
    buckets = max(BUCKETS[1], min(BUCKETS[0], POINTS_OF_ALL // len(chart.lines)))
    drawing = element(
        "svg",
        *_marks_below(chart.marks, axes),
        *_grid(axes, marks, chart.percent),
        *(_level(axes, level) for _, level in chart.levels),
        *(part for line in chart.lines for part in _curve(line, axes, buckets)),
        *_marks_above(chart.marks, axes),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=in_words(chart),
    )
    return element("figure", element("h3", chart.title), drawing, _legend(chart))


def in_words(chart: Chart) -> str:
    """Return what a chart shows, for those who do not see it."""
    said = []
    for line in chart.lines:
        finite = [(x, y) for x, y in line.points if y is not None]
        if finite:
            (first, begin), (last, end) = finite[0], finite[-1]
            shown = (number_text(y, chart.percent) for y in (begin, end, min(y for _, y in finite)))
            at_begin, at_end, lowest = shown
            said.append(f"{line.label} from {at_begin} at step {first:,.0f} to {at_end} at {last:,.0f}, least {lowest}")
    levels = [f"{name} at {number_text(value, chart.percent)}" for name, value in chart.levels]
    return f"{chart.title}: {'; '.join(said[:8] + levels)}"


def downsample(points: Sequence[Point], buckets: int) -> list[Point]:
    """Return the points, or the lowest and the highest of each of `buckets` stretches of x, with both ends.

    Points without a number stay, one after each stretch that has one, so that the line is broken there.
    """
    if len(points) <= 2 * buckets:
        return list(points)
    first, last = points[0][0], points[-1][0]
    width = (last - first) / buckets or 1.0
    kept = {0, len(points) - 1}
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
    kept.update(lowest.values(), highest.values(), broken.values())
    return [points[index] for index in sorted(kept)]


def ticks(low: float, high: float, number: int = NUM_TICKS) -> list[float]:
    """Return about `number` round numbers that enclose `low` to `high`."""
    if high <= low:
        spread = abs(low) or 1.0
        low, high = low - spread / 2, high + spread / 2
    rough = (high - low) / number
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(begin, end + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten that enclose `low` to `high`, both above 0; where they are few, 2 and 5 times them too."""
    begin, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, -(-(end - begin) // NUM_TICKS))
    sizes = (1, 2, 5) if end - begin <= 2 else (1,)
    marks = [size * 10.0**power for power in range(begin, end + every, every) for size in sizes]
    first = max(at for at, mark in enumerate(marks) if mark <= low)
    last = min(at for at, mark in enumerate(marks) if mark >= high)
    return marks[first : last + 1]


def number_text(value: float, percent: bool = False) -> str:
    """Return a number in few characters: 12.5%, 0.0021, 12,500, 150k, 2M."""
    if percent:
        return f"{100 * value:.4g}%"
    for at_least, size, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e5, 1e3, "k")):
        if abs(value) >= at_least:
            return f"{value / size:.4g}{letter}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


class _Axes(NamedTuple):
    """The ranges of both axes, and where a point is in the drawing."""

    first: float
    last: float
    low: float
    high: float
    log: bool

    def x(self, step: float) -> str:
        return _place(LEFT + (WIDTH - LEFT - RIGHT) * (step - self.first) / (self.last - self.first))

    def y(self, value: float) -> str:
        low, high, at = (
            (math.log(max(one, 1e-30)) for one in (self.low, self.high, value))
            if self.log
            else (
                self.low,
                self.high,
                value,
            )
        )
        return _place(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (at - low) / ((high - low) or 1.0))


def _place(value: float) -> str:
    """A coordinate with one decimal, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def _grid(axes: _Axes, marks: Sequence[float], percent: bool) -> Iterable[Html]:
    bottom = HEIGHT - BOTTOM
    for mark in marks:
        y = axes.y(mark)
        yield element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        yield element(
            "text", number_text(mark, percent), x=LEFT - 6, y=y, text_anchor="end", dominant_baseline="middle"
        )
    steps = [mark for mark in ticks(axes.first, axes.last, NUM_STEPS) if axes.first <= mark <= axes.last]
    for number, mark in enumerate(steps):
        x = axes.x(mark)
        yield element("line", class_="axis", x1=x, x2=x, y1=bottom, y2=bottom + 4)
        place = (mark - axes.first) / (axes.last - axes.first)  # a name at an end stays inside
        anchor = "start" if place < 0.03 else "end" if place > 0.97 else "middle"
        name = f"{'' if number else 'step '}{number_text(mark)}"
        yield element("text", name, x=x, y=HEIGHT - 7, text_anchor=anchor)
    yield element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom)


def _level(axes: _Axes, level: float) -> Html:
    y = axes.y(level)
    return element("line", class_="line line4 dash2", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)


def _curve(line: Line, axes: _Axes, buckets: int) -> Iterable[Html]:
    points = downsample(line.points, buckets)
    path, pen_up, broken = list[str](), True, list[str]()
    for x, y in points:
        if y is None or (axes.log and y <= 0):
            pen_up = True
            broken.append(f"M{axes.x(x)} {TOP}v8")
            continue
        path.append(f"{'M' if pen_up else 'L'}{axes.x(x)} {axes.y(y)}")
        pen_up = False
    yield element("path", class_=f"line {_look(line.look)}{' thin' if line.thin else ''}", d="".join(path))
    finite = [(x, y) for x, y in line.points if y is not None and (y > 0 or not axes.log)]
    if (line.dots and len(finite) <= MAX_DOTS) or len(finite) == 1:
        fill = f"fill{line.look % len(LIGHT)}"
        yield from (element("circle", class_=fill, cx=axes.x(x), cy=axes.y(y), r=2.6) for x, y in finite)
    if broken:
        yield element("path", class_="broken", d="".join(broken[:MAX_BROKEN]))


def _look(number: int) -> str:
    """Color and dashes; a second line with the same color has other dashes."""
    return f"line{number % len(LIGHT)} dash{number % len(DASHES)}"


def _marks_below(marks: Marks, axes: _Axes) -> Iterable[Html]:
    """Phases: every second one is shaded, each has its name at the top where there is room."""
    if len(marks.phases) < 2:
        return
    for number, (begin, end, name) in enumerate(marks.phases):
        left, right = float(axes.x(begin)), float(axes.x(min(end, axes.last)))
        if right <= left:
            continue
        if number % 2:
            height = HEIGHT - TOP - BOTTOM
            yield element("rect", class_="band", x=left, y=TOP, width=_place(right - left), height=height)
        if right - left > 7 * len(name):
            yield element("text", name, x=_place((left + right) / 2), y=TOP - 6, text_anchor="middle")


def _marks_above(marks: Marks, axes: _Axes) -> Iterable[Html]:
    bottom = HEIGHT - BOTTOM
    for step in marks.restarts:
        x = axes.x(step)
        yield element("line", class_="restart", x1=x, x2=x, y1=TOP, y2=bottom)
    for step in marks.checkpoints:
        yield element("path", class_="checkpoint", d=f"M{axes.x(step)} {bottom - 7}l4 7h-8z")


def _legend(chart: Chart) -> Html:
    entries = [(_look(line.look), line.label) for line in chart.lines]
    entries += [("line4 dash2", f"{name} {number_text(value, chart.percent)}") for name, value in chart.levels]
    items = [
        element("li", _swatch(element("path", class_=f"line {look}", d="M1 6H33")), label) for look, label in entries
    ]
    if chart.marks.restarts:
        items.append(element("li", _swatch(element("path", class_="restart", d="M17 0V12")), "restart"))
    if chart.marks.checkpoints:
        items.append(
            element("li", _swatch(element("path", class_="checkpoint", d="M17 1l6 10h-12z")), "checkpoint kept")
        )
    if any(y is None for line in chart.lines for _, y in line.points):
        items.append(element("li", _swatch(element("path", class_="broken", d="M17 1v10")), "not finite"))
    return element("ul", *items, class_="legend")


def _swatch(drawing: Html) -> Html:
    return element("svg", drawing, viewBox="0 0 34 12", aria_hidden="true")


def charts(drawn: Iterable[Html]) -> Html:
    """Return charts beside each other where the page is wide enough."""
    return element("div", joined(drawn), class_="charts")
