"""Charts: round ticks that enclose the values, extremes that survive downsampling, points at their places."""

import math
import re

import numpy as np
import pytest

from bert_jax.reports.html.chart import (
    Chart,
    Curve,
    Marks,
    chart_html,
    charts_by_axis_html,
    downsample,
    log_ticks,
    number_text,
    ticks,
)
from bert_jax.reports.html.point_values import MAX_STRIPS, point_values_html, values_by_x


@pytest.mark.parametrize("seed", range(50))
def test_ticks_are_round_even_and_enclose(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = float(rng.normal() * 10 ** rng.uniform(-6, 6))
    high = low + float(10 ** rng.uniform(-6, 6))
    found = ticks(low, high)
    steps = np.diff(found)
    size = steps[0] / 10 ** math.floor(math.log10(steps[0] * (1 + 1e-6)))
    assert min(abs(size - each) for each in (1, 2, 2.5, 5)) < 1e-3
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    slack = 1e-6 * steps[0] + 1e-9 * abs(low)
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert 3 <= len(found) <= 8


@pytest.mark.parametrize("seed", range(50))
def test_logarithmic_ticks_enclose(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = float(10 ** rng.uniform(-6, 3))
    high = low * float(10 ** rng.uniform(0.1, 8))
    found = log_ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert found == sorted(set(found))
    assert all(f"{tick:e}"[0] in "125" for tick in found)
    assert 2 <= len(found) <= 9


def test_one_value_has_an_axis() -> None:
    for value in (0.0, 3.0, -2.0):
        found = ticks(value, value)
        assert found[0] <= value <= found[-1]
        assert len(found) > 1


@pytest.mark.parametrize("buckets", [40, 100, 400])
def test_each_stretch_keeps_its_lowest_and_highest_point(buckets: int) -> None:
    rng = np.random.default_rng(buckets)
    points = [(float(10 * step), float(y)) for step, y in enumerate(rng.normal(size=10_000))]
    found = downsample(points, buckets)
    assert found == sorted(found)
    assert set(found) <= set(points)
    assert len(found) <= 2 * buckets + 2
    assert {points[0], points[-1]} <= set(found)
    for part in np.array_split(np.array(points), buckets):  # as long as the stretches, within a point
        inner = part[1:-1]
        kept = {y for x, y in found if part[0, 0] <= x <= part[-1, 0]}
        assert max(kept) >= inner[:, 1].max()
        assert min(kept) <= inner[:, 1].min()


def test_a_gap_survives_downsampling() -> None:
    points = [(float(step), None if 5_000 <= step < 5_100 else 1.0) for step in range(10_000)]
    assert any(y is None and 5_000 <= x < 5_100 for x, y in downsample(points, 100))


@pytest.mark.parametrize("log", [False, True])
def test_points_are_drawn_at_their_places(log: bool) -> None:
    """The drawing spans 74 to 470 and 254 up to 20; both axes begin and end at a tick here."""
    points = [(0.0, 1.0), (50.0, 10.0), (100.0, 100.0)]
    text = chart_html(Chart(title="a", curves=[Curve("b", points, 0)], log=log, from_zero=False))
    (path,) = re.findall(r'<path class="line line0 dash0" d="(.*?)"/>', text)[:1]
    drawn = [tuple(map(float, pair)) for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]
    share = (lambda y: math.log10(y) / 2) if log else (lambda y: y / 100)  # ticks from 1 to 100, and from 0 to 100
    expected = [(74 + 396 * x / 100, 254 - 234 * share(y)) for x, y in points]
    np.testing.assert_allclose(drawn, expected, atol=0.06)


def test_phases_checkpoints_and_restarts_are_marked() -> None:
    marks = Marks([(0, 80, "128 tokens"), (80, 100, "512 tokens")], [60, 100], [30])
    text = chart_html(Chart(title="a", curves=[Curve("b", [(0.0, 1.0), (100.0, 2.0)], 0)], marks=marks))
    assert '<rect class="band" x="390.8" y="20" width="79.2" height="234"/>' in text
    assert "128 tokens</text>" in text
    assert text.count('class="checkpoint"') == 2
    assert '<line class="restart" x1="192.8" x2="192.8"' in text
    shared = charts_by_axis_html({"steps": [Chart(title="a", curves=[Curve("b", [(0.0, 1.0)], 0)], marks=marks)] * 3})
    assert shared.count("restart</li>") == 1
    assert shared.count('class="legend"') == 1


def test_thousands_of_checkpoints_do_not_make_a_page_large() -> None:
    marks = Marks(checkpoints=range(100, 1_000_001, 100), restarts=range(100, 1_000_001, 100))
    text = chart_html(Chart(title="a", curves=[Curve("b", [(0.0, 1.0), (1e6, 2.0)], 0)], marks=marks))
    assert 300 < text.count('class="checkpoint"') <= 480
    assert 300 < text.count('class="restart"') <= 480


def test_a_chart_without_numbers_says_so() -> None:
    assert "no finite number" in chart_html(Chart(title="a", curves=[Curve("b", [(0.0, None)], 0)]))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00021, "0.00021"),
        (6.17, "6.17"),
        (2500, "2,500"),
        (20_000, "20,000"),
        (150_000, "150k"),
        (1e6, "1M"),
        (2.5e9, "2.5G"),
        (999.7, "1,000"),
        (999_999, "1,000k"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number_text(value) == text
    assert number_text(0.125, "%") == "12.5%"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (999.0, "999"), (1500, "1.5 kB"), (747_012_096, "747 MB"), (999.7e6, "1,000 MB"), (7.5e10, "75 GB")],
)
def test_bytes_are_read_by_people(value: float, text: str) -> None:
    assert number_text(value, "bytes") == text


def drawn_values(count: int, seed: int) -> list[tuple[str, list[tuple[float, float | None]]]]:
    """A curve of `count` points, of which some are not finite, and one of a tenth as many."""
    rng = np.random.default_rng(seed)
    dense = [(float(x), None if rng.random() < 0.05 else float(rng.normal())) for x in range(1, count + 1)]
    sparse = [(float(x), float(rng.normal())) for x in range(10, count + 1, 10)]
    return [("training", dense), ("held out", sparse)]


@pytest.mark.parametrize("count", [30, 90, 5_000])
def test_values_are_values_of_the_curves(count: int) -> None:
    """Against a search through all points: the nearest point of each curve, at most a strip away, in order of x."""
    curves = drawn_values(count, count)
    found = values_by_x(curves)
    xs = [x for x, _ in found]
    assert xs == sorted(set(xs))
    assert len(xs) <= MAX_STRIPS
    finite = [(label, [point for point in points if point[1] is not None]) for label, points in curves]
    all_xs = {x for _, points in finite for x, _ in points}
    width = (max(all_xs) - min(all_xs)) / MAX_STRIPS
    if len(all_xs) <= MAX_STRIPS:
        assert set(xs) == all_xs  # every point can be looked up
    assert {min(all_xs), max(all_xs)} <= set(xs)
    for x, values in found:
        wanted = {}
        for label, points in finite:
            distance = min(abs(each - x) for each, _ in points)
            if distance == 0 or distance < width:
                wanted[label] = {y for each, y in points if abs(each - x) == distance}
        assert [label for label, _ in values] == list(wanted)
        assert all(y in wanted[label] for label, y in values)


def test_values_of_nothing() -> None:
    assert values_by_x([("a", []), ("b", [(1.0, None)])]) == []
    assert point_values_html("a", []) == ""


def test_strips_touch_and_mark_their_points() -> None:
    """Each strip ends where the next begins, halfway between two points, and its line is at the point."""
    drawn = point_values_html("a", [(0.2, "one"), (0.3, "two"), (0.7, "three")])
    numbers = re.findall(r"left:([\d.]+)%;width:([\d.]+)%;--at:(\d+)%", drawn)
    strips = [(float(left), float(left) + float(width)) for left, width, _ in numbers]
    assert strips == [(19, 25), (25, 50), (50, pytest.approx(71))]
    lines = [left + (right - left) * int(at) / 100 for (left, right), (_, _, at) in zip(strips, numbers, strict=True)]
    assert lines == pytest.approx([20, 30, 70], abs=0.2)
    assert drawn.count("checked") == 1
