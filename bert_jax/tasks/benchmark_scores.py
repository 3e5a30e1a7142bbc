"""Exact match and F1 of benchmarks in which every question has an answer; each published rule is a `BenchmarkRule`.

The rules differ in the normalization of texts, in the units of F1 (words or characters), and in the F1 of two texts
that have no units. The published scripts are evaluate-v1.1.py of SQuAD (Rajpurkar et al., 2016), the script of KorQuAD
1.0 (Lim et al., 2019), cmrc2018_evaluate.py, version 5 (Cui et al., 2019), and the notebook of JaQuAD (So et al.,
2022).
"""

import collections
import functools
import importlib
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bert_jax.errors import needs_packages
from bert_jax.tasks.kinds.squad_score import exact_match, normalize_answer, token_f1
from bert_jax.tasks.task import Example

_SPACES = dict.fromkeys("'\"《》<>〈〉()‘’", " ")  # noqa: RUF001
KORQUAD_SYMBOLS = str.maketrans(dict.fromkeys(string.punctuation, "") | _SPACES)
# The published list also has "……", which is two characters. The script compares single characters, so an ellipsis stays
# in the text in the script and in this module.
CMRC_SYMBOLS = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")  # noqa: RUF001
CMRC_CHARACTER = re.compile("[\u4e00-\u9fa5]")


class BenchmarkRule(NamedTuple):
    """The two scores of a benchmark; each is a function that maps (answer, prediction) to a score from 0 to 1."""

    exact: Callable[[str, str], float]
    f1: Callable[[str, str], float]


def benchmark_scores(
    rule: BenchmarkRule, examples: Sequence[Example], predictions: Mapping[str, str]
) -> dict[str, float]:
    """Return `exact` and `f1` in percent, as means over questions; each question has the best score over its answers.

    A question without a prediction scores 0; if there are such questions, `missing` is their number.

    Args:
        rule: rule of the benchmark.
        examples: questions, each with one or more "answers".
        predictions: predicted text of each question, with the id of the question as key.
    """
    given = [example for example in examples if example["id"] in predictions]
    totals = {
        name: sum(
            max(score(answer["text"], predictions[example["id"]]) for answer in example["answers"]) for example in given
        )
        for name, score in rule._asdict().items()
    }
    missing = len(examples) - len(given)
    return {name: 100.0 * total / len(examples) for name, total in totals.items()} | (
        {"missing": float(missing)} if missing else {}
    )


def character_f1(answer: str, prediction: str) -> float:
    """Return the F1 over the characters of two texts, without white space; 0 if the texts share no character."""
    gold, predicted = ("".join(text.split()) for text in (answer, prediction))
    common = (collections.Counter(gold) & collections.Counter(predicted)).total()
    return 2 * common / (len(gold) + len(predicted)) if common else 0.0


def jaquad_f1(answer: str, prediction: str) -> float:
    """Return the F1 over characters, as defined by JaQuAD: `character_f1`, except that two blank texts score 1."""
    return character_f1(answer, prediction) if answer.split() or prediction.split() else 1.0


def squad1_f1(answer: str, prediction: str) -> float:
    """Return the F1 over words, as defined by SQuAD 1.1: the F1 of SQuAD 2.0, or 0 if a normalized text is empty."""
    return token_f1(answer, prediction) if normalize_answer(answer) else 0.0


@functools.lru_cache(maxsize=1 << 16)
def normalize_for_korquad(text: str) -> str:
    """Return a text as KorQuAD normalizes it: lower case, spaces for brackets and quotes, no other punctuation."""
    return " ".join(text.translate(KORQUAD_SYMBOLS).lower().split())


@functools.lru_cache(maxsize=1 << 16)
def split_for_cmrc(text: str) -> tuple[str, ...]:
    """Return the segments of a text, without CMRC_SYMBOLS: each Chinese character, and NLTK's words of all other text.

    The published script first splits the text between Chinese characters into sentences, with a model that the package
    of NLTK does not contain. `split_for_cmrc` does not split a text into sentences. The only effect of this difference
    is that a full stop before white space stays with its word.

    Raises:
        UserError: NLTK is not installed.
    """
    segments: list[str] = []
    run = ""
    for character in [*normalize_for_cmrc(text), ""]:
        if character and not CMRC_CHARACTER.match(character):
            run += character
            continue
        segments += _nltk_word_splitter()(run) if run else []
        segments += [character] if character else []
        run = ""
    return tuple(segments)


def normalize_for_cmrc(text: str) -> str:
    """Return a text normalized as in CMRC: in lower case, without CMRC_SYMBOLS and without surrounding white space."""
    return "".join(character for character in text.lower().strip() if character not in CMRC_SYMBOLS)


def cmrc_f1(answer: str, prediction: str) -> float:
    """Return the F1 of CMRC, which is computed from the longest run of segments that both texts contain."""
    gold, predicted = split_for_cmrc(answer), split_for_cmrc(prediction)
    longest, ends = 0, [0] * (len(predicted) + 1)  # ends[j]: length of the common run that ends at predicted[j - 1]
    for segment in gold:
        ends = [0] + [
            before + 1 if predicted_segment == segment else 0
            for before, predicted_segment in zip(ends, predicted, strict=False)
        ]
        longest = max(longest, *ends)
    return 2 * longest / (len(gold) + len(predicted)) if longest else 0.0


@functools.cache
def _nltk_word_splitter() -> Callable[[str], list[str]]:
    with needs_packages("the score of cmrc2018", "nltk"):
        module = importlib.import_module("nltk.tokenize.destructive")
    split: Callable[[str], list[str]] = module.NLTKWordTokenizer().tokenize
    return split


SQUAD1 = BenchmarkRule(exact=exact_match, f1=squad1_f1)
KORQUAD = BenchmarkRule(
    exact=lambda answer, prediction: float(normalize_for_korquad(answer) == normalize_for_korquad(prediction)),
    f1=lambda answer, prediction: character_f1(normalize_for_korquad(answer), normalize_for_korquad(prediction)),
)
CMRC = BenchmarkRule(
    exact=lambda answer, prediction: float(normalize_for_cmrc(answer) == normalize_for_cmrc(prediction)),
    f1=cmrc_f1,
)
# JaQuAD counts an F1 of 1 as an exact match, so two texts with the same characters in any order match.
JAQUAD = BenchmarkRule(
    exact=lambda answer, prediction: float(jaquad_f1(answer, prediction) == 1.0),
    f1=jaquad_f1,
)
