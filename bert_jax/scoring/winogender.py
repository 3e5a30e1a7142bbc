"""Winogender (Rudinger et al. 2018): the pronoun of a person with an occupation, beside who has that occupation."""

import csv
import pathlib
from collections.abc import Iterable, Sequence
from statistics import correlation, fmean
from typing import NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, Scored, check_length, read_table
from bert_jax.scoring.queries import Context, Queries, Span, Tokens, stretch_queries, tokens_in

SENTENCES, STATISTICS = "all_sentences.tsv", "occupations-stats.tsv"
GENDERS = ("male", "female", "neutral")
REFERENTS = {"0": "of the occupation", "1": "of the other person"}  # the answer in the name of a sentence
SOURCES = ("bls", "bergsma")  # of the columns SOURCE_pct_female: the labor statistics of the US, and texts
FEWEST_OCCUPATIONS = 3  # that have a correlation


class Schema(NamedTuple):
    """A sentence in three genders: spans of the pronouns, and the percentage of women by source, where it is known."""

    occupation: str
    spans: tuple[Span, ...]
    women: tuple[float | None, ...]


def read(path: pathlib.Path) -> list[Item]:
    """Return the sentences of `all_sentences.tsv`, each in the genders of GENDERS.

    `path` is the file, or its directory. `occupations-stats.tsv` beside it gives the percentages of women.

    Raises:
        UserError: no such file, another format, or a sentence that lacks a gender.
    """
    file = path / SENTENCES if path.is_dir() else path
    beside = file.with_name(STATISTICS)
    women = (
        {row["occupation"]: _women(beside, row) for _, row in _rows(beside, "occupation")} if beside.is_file() else {}
    )
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for where, row in _rows(file, "sentid", "sentence"):
        name = row["sentid"].split(".")
        if len(name) != 5 or name[2] not in REFERENTS or name[3] not in GENDERS:
            raise UserError(f"{where}: sentid {row['sentid']!r:.60} is not of Winogender; give {SENTENCES}")
        found.setdefault(tuple(name[:3]), {})[name[3]] = row["sentence"]
    if not found:
        raise UserError(f"{file} holds no sentence")
    return [_item(f"{file}, {'.'.join(key)}", key, texts, women.get(key[0])) for key, texts in found.items()]


def ask(context: Context, item: Item, tokens: tuple[Tokens, ...]) -> list[Queries]:
    """Return the queries of the pronoun of each sentence, given the rest of it."""
    for one in tokens:
        check_length(context, item, one)
    places = [tokens_in(one, span) for one, span in zip(tokens, item.details.spans, strict=True)]
    return [stretch_queries(context, *both) for both in zip(tokens, places, strict=True)]


def measure(context: Context, scored: Sequence[Scored]) -> Figures:
    """Return which pronouns the model expects, in percent, and how that correlates with who works there.

    `female`: the probability of the female pronoun, of that of the male and the female one. `neutral`: that of they,
    them and their, of all three. `correlation_bls` and `correlation_bergsma` are Pearson's r over the occupations
    between `female` and the percentage of women, as in the paper, which has the answers of coreference systems in the
    place of probabilities.
    """
    by_occupation: dict[str, list[tuple[float, float]]] = {}
    for one in scored:
        male, female, neutral = (float(value) for value in np.exp(np.array(one.sums) - max(one.sums)))
        values = 100 * female / (male + female), 100 * neutral / (male + female + neutral)
        by_occupation.setdefault(one.item.details.occupation, []).append(values)
    means = {name: [fmean(column) for column in zip(*values, strict=True)] for name, values in by_occupation.items()}
    women = {one.item.details.occupation: one.item.details.women for one in scored}
    return {
        "sentences": len(scored),
        "occupations": len(means),
        "female": fmean(female for female, _ in means.values()),
        "neutral": fmean(neutral for _, neutral in means.values()),
    } | {
        f"correlation_{source}": _correlation((means[name][0], women[name][number]) for name in means)
        for number, source in enumerate(SOURCES)
    }


def _correlation(pairs: Iterable[tuple[float, float | None]]) -> float | None:
    """Pearson's r of the pairs that have both numbers; None where it is not defined."""
    known = [(one, other) for one, other in pairs if other is not None]
    both = [one for one, _ in known], [other for _, other in known]
    if len(known) < FEWEST_OCCUPATIONS or any(min(values) == max(values) for values in both):
        return None
    return correlation(*both)


def _item(where: str, key: tuple[str, ...], texts: dict[str, str], women: tuple[float, ...] | None) -> Item:
    if len(texts) != len(GENDERS):
        raise UserError(f"{where}: in {', '.join(texts)} alone; it needs {', '.join(GENDERS)}")
    found = tuple(texts[gender] for gender in GENDERS)
    words = [text.split(" ") for text in found]
    differing = [place for place, pair in enumerate(zip(*words[:2], strict=False)) if pair[0] != pair[1]]
    if len(differing) != 1 or len({*map(len, words)}) != 1:
        raise UserError(f"{where}: its sentences must differ in one pronoun (and the verb after it)")
    starts = [len(" ".join([*row[: differing[0]], ""])) for row in words]
    spans = tuple((at, at + len(row[differing[0]])) for at, row in zip(starts, words, strict=True))
    return Item(where, REFERENTS[key[2]], found, Schema(key[0], spans, women or (None,) * len(SOURCES)))


def _women(file: pathlib.Path, row: dict[str, str]) -> tuple[float, ...]:
    try:
        return tuple(float(row[f"{source}_pct_female"]) for source in SOURCES)
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{file}: {row['occupation']}: no number in a column; give that of Winogender") from None


def _rows(file: pathlib.Path, *columns: str) -> list[tuple[str, dict[str, str]]]:
    """The rows of a file with tabs between columns, without quoting, each after its place."""
    source = "the file of rudinger/winogender-schemas"
    rows = read_table(file, columns, source, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [(where, row) for where, row in rows if all(row[name] for name in columns)]


WINOGENDER = Benchmark(read, "sentences", ask, measure, masking="the pronoun")
