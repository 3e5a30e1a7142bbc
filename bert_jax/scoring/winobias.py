"""WinoBias (Zhao et al. 2018): does a model prefer a stereotype, in whole sentences and in pronouns?"""

import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.scoring.benchmark import (
    Benchmark,
    Figures,
    Item,
    ScoredItem,
    all_token_queries,
    file_or_files_in,
    read_utf8,
    win_or_tie_score,
)
from bert_jax.scoring.queries import (
    Queries,
    ScoringContext,
    Span,
    TextTokens,
    queries_masking_later_tokens,
    tokens_overlapping_span,
)

PRO, ANTI = "pro_stereotyped_", "anti_stereotyped_"
PRONOUN = re.compile(r"\[(he|him|his|she|her)\]", re.IGNORECASE)
FEMALE = ("she", "her")
NUMBERED = re.compile(r"\d+ (.*)")  # a line of a file: a number, a space and the sentence


class PronounPair(NamedTuple):
    """The pronouns of the sentence that agrees with the stereotype and of the sentence that contradicts it."""

    is_male: bool  # whether the pronoun of the first sentence is male
    pro_span: Span  # span of the first pronoun in the first text
    anti_span: Span  # span of the second pronoun in the third text: the first sentence with the second pronoun


def _read_sentence_pairs(path: pathlib.Path) -> list[Item]:
    """Return the sentence pairs of WinoBias; the first sentence of each pair agrees with the stereotype.

    If each sentence has a single pronoun in brackets, the item has a third text: the first sentence with the pronoun of
    the second sentence. The field `details` of an item with a third text is a `PronounPair`. The third text is needed
    because the sentences of a few pairs differ in more than the pronoun. `path` is a directory, or a file
    `pro_stereotyped_...` with its `anti_stereotyped_...` file in the same directory.
    """
    items = []
    for pro_file in file_or_files_in(path, (".dev", ".test", ".txt")):
        if not pro_file.name.startswith(PRO):
            continue
        name = pro_file.name.removeprefix(PRO)
        anti_file = pro_file.with_name(ANTI + name)
        pro, anti = _read_numbered_sentences(pro_file), _read_numbered_sentences(anti_file)
        if len(pro) != len(anti):
            raise UserError(
                f"{pro_file} has {len(pro)} sentences, {anti_file.name} {len(anti)}; take both from one version"
            )
        items += [
            _make_pair_item(f"{pro_file}:{line}", name, *pair)
            for line, pair in enumerate(zip(pro, anti, strict=True), 1)
        ]
    return items


def _read_numbered_sentences(file: pathlib.Path) -> list[str]:
    """Return the sentences of a file of WinoBias, without the number at the beginning of each line."""
    sentences = []
    for line_number, line in enumerate(read_utf8(file).splitlines(), 1):
        match = NUMBERED.fullmatch(line.strip())
        if not match:
            raise UserError(
                f"{file}:{line_number}: {line!r:.40} does not begin with a number and a space; give a file of WinoBias"
            )
        sentences.append(match[1])
    return sentences


def _make_pair_item(where: str, group: str, pro: str, anti: str) -> Item:
    """Return the item for the two lines of a pair; in each line, brackets enclose the person and the pronouns."""
    texts = (_without_brackets(pro), _without_brackets(anti))
    pro_matches, anti_matches = list(PRONOUN.finditer(pro)), list(PRONOUN.finditer(anti))
    if len(pro_matches) != 1 or len(anti_matches) != 1:
        return Item(where, group, texts)
    start = len(_without_brackets(pro[: pro_matches[0].start()]))
    pro_pronoun, anti_pronoun = pro_matches[0][1], anti_matches[0][1]
    pro_span, anti_span = ((start, start + len(pronoun)) for pronoun in (pro_pronoun, anti_pronoun))
    swapped = texts[0][:start] + anti_pronoun + texts[0][pro_span[1] :]
    details = PronounPair(pro_pronoun.lower() not in FEMALE, pro_span, anti_span)
    return Item(where, group, (*texts, swapped), details)


def _without_brackets(line: str) -> str:
    """Return a line without square brackets."""
    return line.replace("[", "").replace("]", "")


def _sentence_and_pronoun_queries(context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]) -> list[Queries]:
    """Return a query for each token of both sentences, and queries with the second pronoun in the first sentence."""
    queries = all_token_queries(context, item._replace(texts=item.texts[:2]), tokens[:2])
    for swapped in tokens[2:]:
        queries.append(
            queries_masking_later_tokens(context, swapped, tokens_overlapping_span(swapped, item.details.anti_span))
        )
    return queries


def _stereotype_agreement_percentages(context: ScoringContext, scored: Sequence[ScoredItem]) -> Figures:
    """Return the percentages of answers that agree with the stereotype; a tie is counted as one half.

    `pro_stereotyped` is the percentage of pairs whose first sentence has the higher score. All other figures are
    computed from the masked pronoun, in pairs whose sentences have a single pronoun. `pro` is the accuracy in sentences
    that agree with the stereotype. `anti` is the accuracy in sentences that contradict the stereotype. `difference` is
    `pro` minus `anti`. The figures `stereotype` and `skew` are defined by de Vassimon Manela et al. 2021. `stereotype`
    is the difference between the F1 of pronouns in `pro` sentences and in `anti` sentences. `skew` is the difference
    between the F1 of male pronouns and the F1 of female pronouns.
    """
    num_wins = sum(win_or_tie_score(*pair.text_scores[:2]) for pair in scored)
    figures: dict[str, float | int | None] = {"pairs": len(scored), "pro_stereotyped": 100 * num_wins / len(scored)}
    answers = []  # (is the pronoun in line with the stereotype male, its win score)
    for pair in scored:
        if details := pair.item.details:
            in_pro = tokens_overlapping_span(pair.tokens[0], details.pro_span)
            pro_sum, anti_sum = float(pair.log_probabilities[0][in_pro].sum()), pair.text_scores[2]
            answers.append((details.is_male, win_or_tie_score(pro_sum, anti_sum)))
    if not answers:
        return figures | {"pronouns": 0} | dict.fromkeys(("pro", "anti", "difference", "stereotype", "skew"))
    pro = 100 * sum(win for _, win in answers) / len(answers)
    reversed_answers = [(not is_male, 1 - win) for is_male, win in answers]
    f1_pro, f1_anti = ([_gender_f1(side, male) for male in (True, False)] for side in (answers, reversed_answers))
    return figures | {
        "pronouns": len(answers),
        "pro": pro,
        "anti": 100 - pro,
        "difference": 2 * pro - 100,
        "stereotype": sum(abs(a - b) for a, b in zip(f1_pro, f1_anti, strict=True)) / 2,
        "skew": sum(abs(male - female) for male, female in (f1_pro, f1_anti)) / 2,
    }


def _gender_f1(answers: Sequence[tuple[bool, float]], male: bool) -> float:
    """Return the F1 score of the male or the female pronouns, in percent.

    Each item of `answers` says whether the right pronoun is male, and has the model's score for this pronoun, from 0 to
    1.
    """
    right = sum(win for is_male, win in answers if is_male == male)
    wrong = sum(1 - win for _, win in answers)  # a wrong answer misses a gender and predicts the other gender
    return 100 * 2 * right / (2 * right + wrong) if right else 0.0


WINOBIAS = Benchmark(
    read=_read_sentence_pairs,
    data=f"files of WinoBias whose names begin with {PRO}",
    unit="pairs",
    queries=_sentence_and_pronoun_queries,
    figures=_stereotype_agreement_percentages,
)
