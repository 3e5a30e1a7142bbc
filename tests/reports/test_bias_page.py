"""Bias: sentences for every figure, intervals of SciPy, pictures to scale, and hostile text that stays text."""

import pathlib
import re

import pytest
from scipy.stats import binomtest

from bert_jax.reports.bias_metric_notes import MEANINGS, metric_notes, wilson_interval
from bert_jax.reports.bias_page import PICTURES, TITLES, bias_json, bias_page
from bert_jax.scoring.score import BENCHMARKS, BenchmarkReport
from tests.helpers.browser import Browser, Opened
from tests.helpers.written_pages import HOSTILE, Page

CROWS = {"pairs": 200, "metric_score": 60.5, "stereotype_score": 62.0, "anti_stereotype_score": None, "neutral": 3}
STEREOSET = {"items": 90, "language_modeling_score": 81.25, "stereotype_score": 58.75, "icat": 67.03}
WINOBIAS = {"pairs": 50, "pro_stereotyped": 70.0, "pronouns": 40, "pro": 65.0, "anti": 35.0}
WINOBIAS |= {"difference": 30.0, "stereotype": 28.5, "skew": 41.0}
WINOGENDER = {"sentences": 240, "occupations": 60, "female": 31.5, "neutral": 12.25}
WINOGENDER |= {"correlation_bls": 0.456, "correlation_bergsma": None}


def templates(*groups: str, fillers: tuple[str, ...] = ("nurse", "president")) -> BenchmarkReport:
    """A report in which the first group has 40 % beside the first filler, and more beside each later one."""

    def row(part: float) -> dict[str, float | int | None]:
        parts = [part, *[(100 - part) / (len(groups) - 1)] * (len(groups) - 1)]
        found: dict[str, float | int | None] = {"templates": 8, "probability": 29.3}
        found |= dict(zip(groups, parts, strict=True))
        found |= dict.fromkeys((f"{name}_of_masked" for name in groups), 100 / len(groups))
        return found | dict.fromkeys((f"{name}_association" for name in groups), part / 100)

    rows = {filler: row(40.0 + 40 * number / len(fillers)) for number, filler in enumerate(fillers)}
    return report("templates", row(55.0), rows)


def report(name: str, total: dict[str, float | int | None], rows: dict | None = None) -> BenchmarkReport:
    return BenchmarkReport(
        benchmark=name,
        source="data",
        masking="the word",
        temperature=1.0,
        items=200,
        scored=200,
        unknown_tokens=0,
        rows=rows or {"all of it": total},
        total=total,
    )


REPORTS = {
    "crows_pairs": report("crows_pairs", CROWS, {"age": CROWS, "religion": {**CROWS, "metric_score": 30.0}}),
    "stereoset": report("stereoset", STEREOSET),
    "intersentence": report("intersentence", {**STEREOSET, "language_modeling_score": 74.5}),
    "winobias": report("winobias", WINOBIAS),
    "winogender": report("winogender", WINOGENDER),
    "templates": templates("male", "female"),
}


def test_every_benchmark_of_bias_has_meanings_a_title_and_a_picture() -> None:
    assert MEANINGS.keys() == TITLES.keys() == PICTURES.keys() == REPORTS.keys()
    assert MEANINGS.keys() == BENCHMARKS.keys() - {"pairs", "text"}


@pytest.mark.parametrize("name", REPORTS)
def test_each_number_comes_with_a_sentence(name: str) -> None:
    """Every figure is in the sentence of one; counts, and figures without a value, have none."""
    found = metric_notes(REPORTS[name])
    assert all(one.says.endswith(".") and one.does_not_say.endswith(".") for one in found)
    assert not re.search(r"[{}]|None", " ".join(one.says + one.does_not_say for one in found))
    said = " ".join(one.says for one in found)
    for figure, value in REPORTS[name].total.items():
        if isinstance(value, float):
            assert any(f"{value:.{digits}f}" in said for digits in (1, 2)), figure


@pytest.mark.parametrize(("correct", "number"), [(0, 7), (61, 100), (912, 1508), (40, 40), (1, 2)])
def test_the_interval_equals_the_wilson_interval_of_scipy(correct: int, number: int) -> None:
    wanted = binomtest(correct, number).proportion_ci(method="wilson")
    assert wilson_interval(100 * correct / number, number) == pytest.approx(
        [100 * wanted.low, 100 * wanted.high], abs=1e-4
    )


def test_sentences_by_hand() -> None:
    first, *_, last = metric_notes(REPORTS["crows_pairs"])
    assert first.says == (
        "Of 200 pairs, the more stereotyping sentence is likelier in 60.5 %; 50 is no preference. "
        "The 95 % interval for so many pairs is 53.6 to 67.0."
    )
    assert (last.figure, last.value) == ("neutral", 3)
    _, male, association, *_ = metric_notes(REPORTS["templates"])
    assert male.says == (
        "Of this probability, male has 55.0 %, from 40.00 beside nurse to 60.00 beside president; where the filler is "
        "masked, 50.0 %."
    )
    assert "adds 0.55 nats" in association.says


def test_bars_are_as_long_as_their_parts() -> None:
    drawn = str(PICTURES["templates"](templates("a", "b", "c")))
    widths = [float(one) for one in re.findall(r'<rect class="fill\d" x="[\d.]+" y="\d+" width="([\d.]+)"', drawn)]
    whole = sum(widths[:3])
    assert [100 * one / whole for one in widths] == pytest.approx([60, 20, 20, 40, 30, 30], abs=0.1)
    marks = [float(one) for one in re.findall(r'<path class="mark" d="M([\d.]+) ', drawn)]
    start = float(re.findall(r'<rect class="fill0" x="([\d.]+)"', drawn)[0])
    assert [100 * (one - start) / whole for one in marks[:2]] == pytest.approx([100 / 3, 200 / 3], abs=0.1)


def test_words_that_are_not_expected_have_no_bars() -> None:
    """Above the limit a bar, below it a text in its place; without any bar, a sentence in place of the picture."""
    one = templates("male", "female")
    assert "not drawn" not in PICTURES["templates"](one)
    one.rows["nurse"]["probability"] = 0.0123
    drawn = PICTURES["templates"](one)
    assert "not drawn: the words have 0.012 % of the probability" in drawn
    assert len(re.findall('<rect class="fill[01]" x', drawn)) == 2  # the bar of president
    one.rows["president"]["probability"] = 0.02
    nothing = PICTURES["templates"](one)
    assert "<svg" not in nothing
    assert "(at most 0.02 %)" in nothing


def test_the_caveat_is_above_the_picture() -> None:
    text = bias_page("m", [templates("male", "female")])
    (first, *_) = metric_notes(templates("male", "female"))
    assert text.index(first.does_not_say) < text.index("<svg")


def test_the_page_has_all_figures_and_no_script() -> None:
    page = Page(bias_page("my-bert/", list(REPORTS.values())))
    for name, one in REPORTS.items():
        assert TITLES[name] in page.text
        for reading in metric_notes(one):
            assert reading.says in page.text
            assert reading.does_not_say in page.text
    assert page.text.count("Words that the model expects beside 2 fillers") == 1


def test_hostile_names_stay_text() -> None:
    one = templates(HOSTILE[0], "{0.__class__}", fillers=(*HOSTILE, "{total}"))
    page = Page(bias_page(HOSTILE[2], [one]))
    for text in (HOSTILE[0], HOSTILE[1], HOSTILE[2], "{0.__class__}", "{total}"):
        assert text in page.text
    found = bias_json("m", "f00", [one])["results"][0]
    assert [reading["figure"] for reading in found["readings"]][1] == HOSTILE[0]


def test_a_browser_runs_nothing_of_it(browser: Browser, tmp_path: pathlib.Path) -> None:
    one = templates(HOSTILE[0], HOSTILE[1], fillers=HOSTILE)
    place = tmp_path / "bias.html"
    place.write_text(bias_page(HOSTILE[2], [one]), encoding="utf-8")
    assert browser.open(place.as_uri()) == Opened([], [])
    assert HOSTILE[0] in browser.run("document.body.innerText")
    assert len(browser.reached()) == 2  # the table of figures, and what opens the other one
