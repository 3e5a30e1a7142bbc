"""The values of a chart at a point, which the mouse pointer and the arrow keys show without a script.

Each transparent strip of a chart is the label of a radio button. The Tab key stops only once for all radio buttons of a
chart.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from bert_jax.reports.html.markup import Html, element

MAX_STRIPS = 100  # strips of a chart
MAX_LABELS = 8  # values in a strip

Point = tuple[float, float | None]  # x and y; y is None if the run had no finite number there


def values_by_x(curves: Sequence[tuple[str, Sequence[Point]]]) -> list[tuple[float, list[tuple[str, float]]]]:
    """Return (x, [(label, y), ...]) with the values of the curves near each x, in ascending order of x.

    The result has at most `MAX_STRIPS` values of x. If the curves have more values of x, half of the result is chosen
    evenly from the curve with the fewest points, and half is chosen evenly from all curves. If a curve has no point at
    x, the value of its nearest point is used, unless this point is a strip or more away.
    """
    finite = [(label, dict(point for point in points if point[1] is not None)) for label, points in curves]
    finite = [(label, points) for label, points in finite if points][:MAX_LABELS]
    if not finite:
        return []
    every = np.unique(np.concatenate([list(points) for _, points in finite]))
    width = (every[-1] - every[0]) / MAX_STRIPS
    if len(every) > MAX_STRIPS:
        fewest = np.sort([*min((list(points) for _, points in finite), key=lambda points: len(points))])
        parts = [_evenly_chosen(fewest, MAX_STRIPS // 2), _evenly_chosen(every, MAX_STRIPS // 2)]
        every = np.unique(np.concatenate(parts))
    columns = [(label, np.sort(list(points)), points) for label, points in finite]
    values_at = []
    for x in every.tolist():
        values = []
        for label, xs, points in columns:
            nearest = min(xs[max(0, np.searchsorted(xs, x) - 1) :][:2].tolist(), key=lambda each: abs(each - x))
            if nearest == x or abs(nearest - x) < width:
                values.append((label, float(points[nearest] or 0.0)))
        values_at.append((x, values))
    return values_at


def _evenly_chosen(values: np.ndarray, count: int) -> np.ndarray:
    chosen: np.ndarray = values[np.unique(np.linspace(0, len(values) - 1, min(len(values), count)).astype(int))]
    return chosen


def point_values_html(name: str, texts: Sequence[tuple[float, str]]) -> Html:
    """Return transparent strips over a chart; a strip shows its text under the pointer.

    Args:
        name: name of the group of radio buttons, unique in the page.
        texts: position (fraction of the width of the drawing) and text of each strip, in order.
    """
    if not texts:
        return Html("")
    positions = [100 * position for position, _ in texts]
    ends = [positions[0] - 1, *(sum(pair) / 2 for pair in itertools.pairwise(positions))]
    ends.append(positions[-1] + 1)
    strips = []
    for index, (_, text) in enumerate(texts):
        left, width = ends[index], max(ends[index + 1] - ends[index], 0.01)
        at = 100 * (positions[index] - left) / width
        strips.append(
            element(
                "label",
                element("input", type="radio", name=name, checked=index == len(texts) - 1),
                element("span", text),
                class_="left" if positions[index] > 50 else None,
                style=f"left:{left:.2f}%;width:{width:.2f}%;--at:{at:.0f}%",
            )
        )
    return element("div", *strips, class_="values", role="radiogroup", aria_label=name)
