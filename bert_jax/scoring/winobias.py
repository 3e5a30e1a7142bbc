"""WinoBias (Zhao et al. 2018): which of two sentences is likelier, and which of two pronouns."""

import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.scoring.benchmark import (
    Benchmark,
    Figures,
    Item,
    Scored,
    check_length,
    files_in,
    read_text,
    whole_texts,
    wins,
)
from bert_jax.scoring.queries import Context, Queries, Span, Tokens, stretch_queries, tokens_in

PRO, ANTI = "pro_stereotyped_", "anti_stereotyped_"
PRONOUN = re.compile(r"\[(he|him|his|she|her)\]", re.IGNORECASE)
FEMALE = ("she", "her")


class Pronoun(NamedTuple):
    """The pronoun of the sentence in line with the stereotype, as a span of it, and the span of the other pronoun."""

    male: bool
    span: Span
    other: Span  # of the same sentence with the other pronoun, the third text of the item


def read(path: pathlib.Path) -> list[Item]:
    """Return the pairs of WinoBias, the sentence in line with the stereotype first.

    Where each sentence has a single pronoun in brackets, a third text is the first sentence with the pronoun of the
    second: in a few pairs the sentences differ elsewhere too. `path` is a directory, or a file `pro_stereotyped_...`;
    beside each is its `anti_stereotyped_...`.

    Raises:
        UserError: no such file, a line without a number, or two files of different lengths.
    """
    items = []
    files = [file for file in files_in(path, (".dev", ".test", ".txt")) if file.name.startswith(PRO)]
    if not files:
        raise UserError(f"{path}: no file of WinoBias whose name begins with {PRO}")
    for file in files:
        name = file.name.removeprefix(PRO)
        beside = file.with_name(ANTI + name)
        pro, anti = _sentences(file), _sentences(beside)
        if len(pro) != len(anti):
            raise UserError(f"{file} has {len(pro)} sentences, {beside.name} {len(anti)}; take both from one version")
        items += [_item(f"{file}:{number}", name, *both) for number, both in enumerate(zip(pro, anti, strict=True), 1)]
    return items


def ask(context: Context, item: Item, tokens: tuple[Tokens, ...]) -> list[Queries]:
    """Return the queries of all tokens of both sentences, and those of the other pronoun in the first one."""
    for one in tokens:
        check_length(context, item, one)
    found = whole_texts(context, item._replace(texts=item.texts[:2]), tokens[:2])
    return found + [stretch_queries(context, one, tokens_in(one, item.details.other)) for one in tokens[2:]]


def measure(context: Context, scored: Sequence[Scored]) -> Figures:
    """Return how often the model sides with the stereotype, in percent; ties count half.

    `pro_stereotyped`: the whole sentence in line with it is likelier. The others are of the pronoun alone, masked, in
    pairs with a single one: `pro` and `anti` are the accuracies where the pronoun of that side is the right answer,
    `difference` is the first less the second. `stereotype` and `skew` are those of de Vassimon Manela et al. 2021:
    the F1 of male and of female pronouns, differences between the sides and between the genders.
    """
    whole = sum(wins(*one.sums[:2]) for one in scored)
    of = [(one.item.details.male, wins(*_pronouns(one))) for one in scored if one.item.details]
    found: dict[str, float | int | None] = {"pairs": len(scored), "pro_stereotyped": 100 * whole / len(scored)}
    names = ("pro", "anti", "difference", "stereotype", "skew")
    if not of:
        return found | {"pronouns": 0} | dict.fromkeys(names)
    pro = 100 * sum(win for _, win in of) / len(of)
    f1_pro = [_f1(of, male) for male in (True, False)]
    f1_anti = [_f1([(not one, 1 - win) for one, win in of], male) for male in (True, False)]
    stereotype = sum(abs(a - b) for a, b in zip(f1_pro, f1_anti, strict=True)) / 2
    skew = sum(abs(male - female) for male, female in (f1_pro, f1_anti)) / 2
    values = (pro, 100 - pro, 2 * pro - 100, stereotype, skew)
    return found | {"pronouns": len(of)} | dict(zip(names, values, strict=True))


def _pronouns(one: Scored) -> tuple[float, float]:
    """The log-probability of each pronoun in the sentence in line with the stereotype."""
    places = tokens_in(one.tokens[0], one.item.details.span)
    return float(one.log_probabilities[0][places].sum()), one.sums[2]


def _f1(answers: Sequence[tuple[bool, float]], male: bool) -> float:
    """The F1 of a gender, in percent: answers are (the right one is male, how far the model gave it, 0 to 1)."""
    right = sum(win for one, win in answers if one == male)
    wrong = sum(1 - win for _, win in answers)  # each misses a gender and names the other
    return 100 * 2 * right / (2 * right + wrong) if right else 0.0


def _item(where: str, group: str, pro: str, anti: str) -> Item:
    """`pro` and `anti` have brackets around the person and the pronouns."""
    texts = tuple(line.replace("[", "").replace("]", "") for line in (pro, anti))
    found, others = (list(PRONOUN.finditer(line)) for line in (pro, anti))
    if len(found) != 1 or len(others) != 1:
        return Item(where, group, texts)
    start = len(pro[: found[0].start()].replace("[", "").replace("]", ""))
    pronoun, other = found[0][1], others[0][1]
    spans = ((start, start + len(word)) for word in (pronoun, other))
    swapped = texts[0][:start] + other + texts[0][start + len(pronoun) :]
    return Item(where, group, (*texts, swapped), Pronoun(pronoun.lower() not in FEMALE, *spans))


def _sentences(file: pathlib.Path) -> list[str]:
    """The sentences of a file of WinoBias, without numbers."""
    found = []
    for number, line in enumerate(read_text(file).splitlines(), 1):
        match = re.fullmatch(r"\d+ (.*)", line.strip())
        if not match:
            raise UserError(
                f"{file}:{number}: {line!r:.40} does not begin with a number and a space; is it of WinoBias?"
            )
        found.append(match[1])
    return found


WINOBIAS = Benchmark(read, "pairs", ask, measure)
