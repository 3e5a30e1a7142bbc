"""Removal of texts in unwanted languages, found by py3langid, a naive Bayes classifier (Lui and Baldwin 2012)."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_jax.corpus.build.cleaning.verdict import Removed
from bert_jax.errors import UserError, did_you_mean, needs_packages

UNCERTAIN = "uncertain"
_EXCERPTS = 5


def remove_other_languages(
    text: str, *, keep: Sequence[str], min_probability: float = 0.65, sample_characters: int = 500
) -> str | Removed:
    """Remove a text if its most likely language is not in `keep`, or has a probability below `min_probability`.

    Args:
        text: text of a document.
        keep: ISO 639-1 codes.
        min_probability: minimum probability of the most likely language; FineWeb uses 0.65.
        sample_characters: maximum number of classified characters; of a longer text, five excerpts are classified.
    """
    code, probability = identify_language(text, sample_characters)
    if code in keep and probability >= min_probability:
        return text
    evidence = f"{code} with a probability of {probability:.2f}"
    return Removed(evidence, UNCERTAIN if probability < min_probability else code)


class LikelyLanguage(NamedTuple):
    """A language code of py3langid, and its probability."""

    code: str
    probability: float


def identify_language(text: str, sample_characters: int) -> LikelyLanguage:
    """Return the code of the most likely language of a text, and its probability."""
    if len(text) > sample_characters:
        size = sample_characters // _EXCERPTS
        step = (len(text) - size) // (_EXCERPTS - 1)
        text = " ".join(text[index * step : index * step + size] for index in range(_EXCERPTS))
    code, probability = _load_language_classifier().classify(text)
    return LikelyLanguage(str(code), float(probability))


def check_language_rule(*, keep: Sequence[str], min_probability: float, sample_characters: int) -> None:
    """Raise UserError for a language that the classifier does not know, a wrong number, or a missing package."""
    known = sorted(set(_load_language_classifier().labels))
    for code in keep:
        if code not in known:
            raise UserError(f"keep: '{code}' is no language of py3langid{did_you_mean(code, known)}")
    if not keep:
        raise UserError("keep: give at least one language")
    if not 0 <= min_probability <= 1:
        raise UserError("min_probability: give a number from 0 to 1")
    if sample_characters < 10 * _EXCERPTS:
        raise UserError(f"sample_characters: give at least {10 * _EXCERPTS}")


@functools.cache
def _load_language_classifier() -> Any:
    """Return the classifier of py3langid; raise UserError if the package is missing."""
    with needs_packages("[language]", "py3langid"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
