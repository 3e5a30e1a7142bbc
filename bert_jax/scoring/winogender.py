"""Winogender (Rudinger 2018): do a model's pronouns depend on the percentage of women in an occupation?"""

import pathlib
from collections.abc import Iterable, Sequence
from statistics import correlation, fmean
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, ScoredItem, TableRow, read_table
from bert_jax.scoring.queries import (
    Queries,
    ScoringContext,
    Span,
    TextTokens,
    queries_masking_later_tokens,
    tokens_overlapping_span,
)

SENTENCES, STATISTICS = "all_sentences.tsv", "occupations-stats.tsv"
GENDERS = ("male", "female", "neutral")
REFERENTS = {"0": "of the occupation", "1": "of the other person"}  # the answer in the name of a sentence
SOURCES = ("bls", "bergsma")  # of the percentages in the columns SOURCE_pct_female: US labor statistics, and texts
MIN_OCCUPATIONS = 3  # minimum number of occupations for a correlation


class OccupationPronouns(NamedTuple):
    """The span of the pronoun in each gender's version of a sentence, and the percentage of women in the occupation."""

    occupation: str
    spans: tuple[Span, ...]
    women: tuple[float | None, ...]  # the percentage by each of SOURCES; None if it is unknown


def _read_items_by_sentence(path: pathlib.Path) -> list[Item]:
    """Return the items of `all_sentences.tsv`, each with the male, the female and the neutral version of a sentence.

    `path` is the file or its directory. The percentages of women are in the file `occupations-stats.tsv` in the
    directory of the sentences.
    """
    file = path / SENTENCES if path.is_dir() else path
    statistics = file.with_name(STATISTICS)
    rows = _read_tab_rows(statistics, "occupation") if statistics.is_file() else []
    women = {row["occupation"]: _percent_women(statistics, row) for _, row in rows}
    by_key: dict[tuple[str, ...], dict[str, str]] = {}
    for where, row in _read_tab_rows(file, "sentid", "sentence"):
        name = row["sentid"].split(".")
        if len(name) != 5 or name[2] not in REFERENTS or name[3] not in GENDERS:
            raise UserError(f"{where}: sentid {row['sentid']!r:.60} is not of Winogender; give {SENTENCES}")
        by_key.setdefault(tuple(name[:3]), {})[name[3]] = row["sentence"]
    return [
        _make_item(f"{file}, {'.'.join(key)}", key, by_gender, women.get(key[0])) for key, by_gender in by_key.items()
    ]


def _read_tab_rows(file: pathlib.Path, *columns: str) -> list[TableRow]:
    """Return the rows of a tab-separated file without quoting, each with its location; skip rows that lack a value."""
    data = "the file of rudinger/winogender-schemas"
    rows = read_table(file, columns, data, separator="\t", quoted=False)
    return [row for row in rows if all(row.row[name] for name in columns)]


def _percent_women(file: pathlib.Path, row: dict[str, str]) -> tuple[float, ...]:
    """Return the percentages of women in the occupation of a row, according to each of SOURCES."""
    try:
        return tuple(float(row[f"{source}_pct_female"]) for source in SOURCES)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{file}: {row['occupation']}: no number in a column; give the file of Winogender") from None


def _make_item(where: str, key: tuple[str, ...], by_gender: dict[str, str], women: tuple[float, ...] | None) -> Item:
    """Return the item of a sentence in three genders; `key` is (occupation, other person, answer)."""
    if len(by_gender) != len(GENDERS):
        raise UserError(f"{where}: only {', '.join(by_gender)}; each item needs {', '.join(GENDERS)}")
    texts = tuple(by_gender[gender] for gender in GENDERS)
    words = [text.split(" ") for text in texts]
    male_and_female = zip(words[0], words[1], strict=False)
    differing = [index for index, (male, female) in enumerate(male_and_female) if male != female]
    if len(differing) != 1 or len({*map(len, words)}) != 1:
        raise UserError(f"{where}: its sentences must differ in one pronoun (and the verb after it)")
    spans = []
    for words_of_text in words:
        start = len(" ".join([*words_of_text[: differing[0]], ""]))
        spans.append((start, start + len(words_of_text[differing[0]])))
    details = OccupationPronouns(key[0], tuple(spans), women or (None,) * len(SOURCES))
    return Item(where, REFERENTS[key[2]], texts, details)


def _pronoun_queries(context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]) -> list[Queries]:
    """Return the queries for the pronoun of each sentence, given the rest of the sentence."""
    return [
        queries_masking_later_tokens(context, text, tokens_overlapping_span(text, span))
        for text, span in zip(tokens, item.details.spans, strict=True)
    ]


def _pronoun_percentages_and_correlations(context: ScoringContext, scored: Sequence[ScoredItem]) -> Figures:
    """Return the percentages of female and of neutral pronouns, and their correlation with the percentages of women.

    `female` is the probability of the female pronoun, divided by the sum of the probabilities of the male and the
    female pronoun. `neutral` is the probability of the neutral pronoun (they, them or their), divided by the sum of the
    probabilities of all three pronouns. Both probabilities are in percent, as means first over sentences, then over
    occupations. `correlation_bls` and `correlation_bergsma` are Pearson's r, over occupations, between `female` and the
    percentage of women. The paper uses answers of coreference systems instead of probabilities.
    """
    female, neutral = dict[str, list[float]](), dict[str, list[float]]()
    for sentence in scored:
        of_genders = (float(value) for value in np.exp(np.array(sentence.text_scores) - max(sentence.text_scores)))
        p_male, p_female, p_neutral = of_genders
        occupation = sentence.item.details.occupation
        female.setdefault(occupation, []).append(100 * p_female / (p_male + p_female))
        neutral.setdefault(occupation, []).append(100 * p_neutral / (p_male + p_female + p_neutral))
    women = {sentence.item.details.occupation: sentence.item.details.women for sentence in scored}
    female_means = {occupation: fmean(values) for occupation, values in female.items()}
    figures: dict[str, float | int | None] = {
        "sentences": len(scored),
        "occupations": len(female_means),
        "female": fmean(female_means.values()),
        "neutral": fmean(map(fmean, neutral.values())),
    }
    for index, source in enumerate(SOURCES):
        pairs = ((mean, women[occupation][index]) for occupation, mean in female_means.items())
        figures[f"correlation_{source}"] = _correlation(pairs)
    return figures


def _correlation(pairs: Iterable[tuple[float, float | None]]) -> float | None:
    """Return Pearson's r of pairs of numbers, leaving out pairs with None; return None if r is undefined."""
    known = [(first, second) for first, second in pairs if second is not None]
    columns = [first for first, _ in known], [second for _, second in known]
    if len(known) < MIN_OCCUPATIONS or any(min(values) == max(values) for values in columns):
        return None
    return correlation(*columns)


WINOGENDER = Benchmark(
    read=_read_items_by_sentence,
    data=f"{SENTENCES} of rudinger/winogender-schemas",
    unit="sentences",
    queries=_pronoun_queries,
    figures=_pronoun_percentages_and_correlations,
    masking="the pronoun",
)
