"""The language of a text, by py3langid (a naive Bayes classifier over byte n-grams, after Lui and Baldwin 2012)."""

import functools
from collections.abc import Sequence
from typing import Any

from bert_jax.corpus.build.cleaning.texts import Removed
from bert_jax.errors import UserError
from bert_jax.errors import did_you_mean

UNCERTAIN = "uncertain"
_EXCERPTS = 5


def language(
    text: str, *, keep: Sequence[str], min_probability: float = 0.65, sample_characters: int = 500
) -> str | Removed:
    """Remove a text in another language, or of which the probability of the language is lower.

    Args:
        text: any.
        keep: ISO 639-1 codes.
        min_probability: of the language that is found; FineWeb has 0.65.
        sample_characters: number that is looked at of a longer text, in five places.
    """
    found, probability = identify(text, sample_characters)
    if probability < min_probability:
        return Removed(f"{found} with a probability of {probability:.2f}", UNCERTAIN)
    return text if found in keep else Removed(f"{found} with a probability of {probability:.2f}", found)


def identify(text: str, sample_characters: int) -> tuple[str, float]:
    """Return the code of the most likely language, and its probability."""
    if len(text) > sample_characters:
        size = sample_characters // _EXCERPTS
        step = (len(text) - size) // (_EXCERPTS - 1)
        text = " ".join(text[place * step : place * step + size] for place in range(_EXCERPTS))
    code, probability = _identifier().classify(text)
    return str(code), float(probability)


def check(*, keep: Sequence[str], min_probability: float, sample_characters: int) -> None:
    """Raise UserError for a language that the classifier does not know, and where the package is missing."""
    known = sorted(set(_identifier().labels))
    for code in keep:
        if code not in known:
            raise UserError(f"keep: '{code}' is no language of py3langid{did_you_mean(code, known)}")
    if not keep:
        raise UserError("keep: give at least one language")
    if sample_characters < 10 * _EXCERPTS:
        raise UserError(f"sample_characters: give at least {10 * _EXCERPTS}")


@functools.cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE
        from py3langid.langid import LanguageIdentifier
    except ImportError:
        raise UserError("[language] needs the package py3langid: pip install py3langid") from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
