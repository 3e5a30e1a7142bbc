"""Sentences about the meaning and the limits of each figure of bias."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bert_jax.scoring.score import BenchmarkReport
from bert_jax.scoring.templates import ASSOCIATION, HIDDEN, PROBABILITY, group_names_in_figures

Z = 1.959964  # standard deviations on each side of the mean that hold 95 % of a normal distribution


class Meaning(NamedTuple):
    """Sentences about a figure of bias.

    In the sentence `says`, the placeholder `{name}` stands for the value of a figure. The field `counted_by` names the
    figure that has the number of items.
    """

    says: str
    does_not_say: str
    counted_by: str = ""


class MetricNote(NamedTuple):
    """A figure of bias with the sentences on its meaning and its limits."""

    figure: str
    value: float | int
    says: str
    does_not_say: str


NO_CAUSE = "It does not show the cause, nor the behavior of the model in an application."
ONE_SET = "It does not say more than these pairs do: Blodgett et al. 2021 found many of them unclear or invalid."

CROWS_PAIRS = {
    "metric_score": Meaning(
        "Of {pairs:,} pairs, the more stereotyping sentence is likelier in {metric_score:.1f} %; 50 is no preference.",
        f"{ONE_SET} A model that has learned little is near 50 as well.",
        "pairs",
    ),
    "stereotype_score": Meaning(
        "Where a sentence states a stereotype of a disadvantaged group, it is likelier in {stereotype_score:.1f} %.",
        NO_CAUSE,
    ),
    "anti_stereotype_score": Meaning(
        "Where a sentence violates a stereotype of a disadvantaged group, the other, more stereotyping sentence is "
        "likelier in {anti_stereotype_score:.1f} %.",
        "These pairs are few, so the figure moves by several points with the choice of pairs.",
    ),
    "neutral": Meaning(
        "{neutral:,} pairs have equal scores to three decimals, and count as not preferred.",
        "It does not say that the model treats both groups of the other pairs alike.",
    ),
}
STEREOSET = {
    "language_modeling_score": Meaning(
        "A word with a meaning is likelier than an unrelated word in {language_modeling_score:.1f} % of comparisons; "
        "50 is chance.",
        "It does not measure bias. Near 50 the model does not read the sentences, and the other figures say nothing.",
    ),
    "stereotype_score": Meaning(
        "The stereotype is likelier than the anti-stereotype for {stereotype_score:.1f} % of the items, as a mean over "
        "target terms; 50 is no preference.",
        "It does not say more than these items do: Blodgett et al. 2021 found many of them unclear or invalid.",
    ),
    "icat": Meaning(
        "Language modeling and bias in one number: {icat:.1f} of 100; a good model without preference has 100.",
        "It does not separate the two: a weak model and a biased model may have the same number.",
    ),
}
INTERSENTENCE = STEREOSET | {
    "language_modeling_score": Meaning(
        "A sentence about the topic is a likelier next sentence than an unrelated sentence in "
        "{language_modeling_score:.1f} % of comparisons; 50 is chance.",
        "It does not measure bias. Near 50 the next-sentence head has learned nothing, and the other figures say "
        "nothing.",
    )
}
WINOBIAS = {
    "pro_stereotyped": Meaning(
        "Of {pairs:,} pairs, the whole sentence in line with the stereotype is likelier in {pro_stereotyped:.1f} %; 50 "
        "is no preference.",
        "It is not the published figure, which is about coreference systems; the occupations are from US statistics.",
        "pairs",
    ),
    "pro": Meaning(
        "Where the pronoun is masked, the pronoun in line with the stereotype is likelier in {pro:.1f} % of "
        "{pronouns:,} sentences.",
        "It does not say that the model knows whom the pronoun is about.",
        "pronouns",
    ),
    "difference": Meaning(
        "The model is right {difference:.1f} points more often where the right pronoun follows the stereotype than "
        "where it goes against it ({anti:.1f} %); 0 is no preference.",
        "It does not say that a model at 0 is fair: it may write he everywhere, which skew shows.",
    ),
    "stereotype": Meaning(
        "The F1 of a gender differs by {stereotype:.1f} points between the two sides (de Vassimon Manela et al. 2021); "
        "0 is no stereotype.",
        "It has no sign: it does not say in which direction the model leans.",
    ),
    "skew": Meaning(
        "The F1 of male and female pronouns differs by {skew:.1f} points (de Vassimon Manela et al. 2021); 0 is none.",
        "It is about the frequency of pronouns, not about occupations.",
    ),
}
WINOGENDER = {
    "female": Meaning(
        "Of the probability of he and she (his and her, ...), the female pronoun has {female:.1f} %, as a mean over "
        "{occupations:,} occupations.",
        "It does not say how the occupations differ; the correlations do.",
    ),
    "neutral": Meaning(
        "Of the probability of all pronouns, they (them, their) has {neutral:.1f} %.",
        "It does not say that the model means one person by it: they may stand for several people.",
    ),
    "correlation_bls": Meaning(
        "Over the occupations, the probability of the female pronoun and the fraction of women there (US, 2015 and "
        "2016) have a correlation of {correlation_bls:.2f}: 0 is none, 1 follows it.",
        "It does not say how large the differences are; and the paper has coreference systems for probabilities.",
    ),
    "correlation_bergsma": Meaning(
        "With the fraction of women among people of the occupation in texts (Bergsma and Lin 2006), the correlation is "
        "{correlation_bergsma:.2f}.",
        "It does not say that the model learned it from such texts.",
    ),
}


def _make_sentence_filler(meanings: Mapping[str, Meaning]) -> Callable[[BenchmarkReport], dict[str, Meaning]]:
    """Return a function that puts the figures of a report into the sentences; figures without a value are left out."""

    def meanings_of(report: BenchmarkReport) -> dict[str, Meaning]:
        known = {name: meaning for name, meaning in meanings.items() if report.total[name] is not None}
        return {name: meaning._replace(says=meaning.says.format_map(report.total)) for name, meaning in known.items()}

    return meanings_of


def _template_meanings(report: BenchmarkReport) -> dict[str, Meaning]:
    """Return the meanings of the figures of the templates benchmark, whose file defines groups and fillers."""
    figures, groups = report.total, group_names_in_figures(report.total)
    meanings = {
        PROBABILITY: Meaning(
            f"At the mask, the words of {', '.join(groups[:-1])} and {groups[-1]} have "
            f"{_format_percent(figures[PROBABILITY])} % of the probability.",
            "It measures no bias. Where it is small, the model expects other words, and the other figures say little.",
        )
    }
    for group in groups:
        meanings[group] = Meaning(
            f"Of this probability, {group} has {figures[group]:.1f} %, {_extreme_fillers(report, group)}; where the "
            f"filler is masked, {figures[group + HIDDEN]:.1f} %.",
            "It does not say which value would be right. Frequent words have more everywhere: read the difference "
            "between fillers, not the level.",
        )
        association = group + ASSOCIATION
        meanings[association] = Meaning(
            f"A filler adds {figures[association]:.2f} nats to the logarithm of the probability of {group} in the "
            f"mean, {_extreme_fillers(report, association)}.",
            "A few templates are a small sample: other sentences give other numbers.",
        )
    return meanings


# Benchmark -> the meanings of the figures of a report, in the order of the page.
MEANINGS: dict[str, Callable[[BenchmarkReport], dict[str, Meaning]]] = {
    "crows_pairs": _make_sentence_filler(CROWS_PAIRS),
    "stereoset": _make_sentence_filler(STEREOSET),
    "intersentence": _make_sentence_filler(INTERSENTENCE),
    "winobias": _make_sentence_filler(WINOBIAS),
    "winogender": _make_sentence_filler(WINOGENDER),
    "templates": _template_meanings,
}


def metric_notes(report: BenchmarkReport) -> list[MetricNote]:
    """Return the sentences about all figures of a report that have a value."""
    notes = []
    for name, meaning in MEANINGS[report.benchmark](report).items():
        value, says = report.total[name] or 0, meaning.says
        if meaning.counted_by:
            low, high = wilson_interval(value, int(report.total[meaning.counted_by] or 0))
            says += f" The 95 % interval for so many {meaning.counted_by} is {low:.1f} to {high:.1f}."
        notes.append(MetricNote(name, value, says, meaning.does_not_say))
    return notes


class PercentInterval(NamedTuple):
    """The lower and the upper end of a confidence interval, in percent."""

    low: float
    high: float


def wilson_interval(percent: float, count: int) -> PercentInterval:
    """Return the 95 % Wilson score interval, in percent, of a percentage measured on `count` independent items."""
    fraction, extra = percent / 100, Z * Z / count
    middle = (fraction + extra / 2) / (1 + extra)
    reach = math.sqrt(fraction * (1 - fraction) * extra + extra * extra / 4) / (1 + extra)
    return PercentInterval(100 * (middle - reach), 100 * (middle + reach))


def _format_percent(value: float | int | None) -> str:
    """Return a percentage with one decimal, or with two significant digits if the percentage is below 1."""
    return f"{value or 0:.1f}" if (value or 0) >= 1 else f"{value or 0:.2g}"


def _extreme_fillers(report: BenchmarkReport, figure: str) -> str:
    """Return a clause that names the fillers with the lowest and the highest value of a figure."""
    values = sorted((float(row[figure] or 0), filler) for filler, row in report.rows.items())
    (low, first), (high, last) = values[0], values[-1]
    return f"from {low:.2f} beside {first} to {high:.2f} beside {last}"
