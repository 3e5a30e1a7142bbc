"""datatrove's filters as rules: Gopher (Rae et al. 2021), C4 (Raffel et al. 2020) and FineWeb (Penedo et al. 2024).

A rule has the parameters, defaults and verdicts of its filter, so a recipe keeps the documents that a datatrove
pipeline with the same filters keeps. The parameter `language`, an ISO 639 code, selects datatrove's word tokenizer.
"""

import functools
import inspect
import re
from typing import Any

from bert_jax.corpus.build.cleaning.verdict import Removed
from bert_jax.errors import UserError, needs_packages

FILTERS = {
    "gopher_quality": "GopherQualityFilter",
    "gopher_repetition": "GopherRepetitionFilter",
    "c4_quality": "C4QualityFilter",
    "fineweb_quality": "FineWebQualityFilter",
}
_PACKAGES = "datatrove regex spacy"
# spaCy takes time quadratic in the number of consecutive punctuation marks: 14 s for 16,000 brackets.
_PUNCTUATION_RUN = re.compile(r"(?<![^\w\s])(?:[^\w\s]|_|['\u2019]\w){1000}")
_MAX_ADDRESSES = 100  # for a word with so many URLs, spaCy takes quadratic time, too


def apply_filter(text: str, *, rule: str, **parameters: Any) -> str | Removed:
    """Return the text, without the lines that the filter removes, or `Removed` with datatrove's reason.

    Args:
        text: text of a document.
        rule: a key of FILTERS.
        parameters: arguments of the filter.
    """
    from datatrove.data import Document

    if _stalls_tokenizer(text):
        return Removed("1,000 punctuation marks or 100 addresses without a space between them", "unspaced_marks")
    document = Document(text=text, id="")
    verdict = _make_filter(rule, tuple(parameters.items())).filter(document)
    is_kept, reason = verdict if isinstance(verdict, tuple) else (verdict, "")
    if is_kept and document.text:
        return str(document.text)
    reason = reason or "empty"
    return Removed(reason, reason)


def check_filter(*, rule: str, **parameters: Any) -> None:
    """Raise UserError for a missing package, or for a language for which datatrove has no word tokenizer."""
    with needs_packages(f"[{rule}]", _PACKAGES):
        from datatrove.utils.word_tokenizers import load_tokenizer_assignments

        from bert_jax.corpus.build.cleaning.spacy_words import load_cached_word_tokenizer
    language = parameters["language"]
    if language not in load_tokenizer_assignments():
        raise UserError(
            f"language: datatrove splits no words of {language!r}; give an ISO 639 code such as 'en' or 'deu', or leave"
            f" [{rule}] out"
        )
    try:
        load_cached_word_tokenizer(language).word_tokenize("One sentence.")
    except (ImportError, ValueError) as error:
        raise UserError(f"language: {error}") from None


def filter_parameters(rule: str) -> dict[str, inspect.Parameter]:
    """Return a filter's parameters except the writer of removed documents; raise UserError if datatrove is missing."""
    parameters = dict(inspect.signature(_filter_class(rule)).parameters)
    del parameters["exclusion_writer"]
    return parameters


def _stalls_tokenizer(text: str) -> bool:
    """Return whether a word tokenizer of spaCy would take quadratic time for a text."""
    marks = "://"
    has_addresses = text.count(marks) >= _MAX_ADDRESSES and any(
        word.count(marks) >= _MAX_ADDRESSES for word in text.split()
    )
    return has_addresses or _PUNCTUATION_RUN.search(text) is not None


@functools.lru_cache(maxsize=8)
def _make_filter(rule: str, parameters: tuple[tuple[str, Any], ...]) -> Any:
    """Return a filter of datatrove."""
    from bert_jax.corpus.build.cleaning.spacy_words import load_cached_word_tokenizer

    arguments = dict(parameters)
    return _filter_class(rule)(**{**arguments, "language": load_cached_word_tokenizer(arguments["language"])})


def _filter_class(rule: str) -> Any:
    """Return the class of a filter; raise UserError if datatrove is missing."""
    with needs_packages(f"[{rule}]", _PACKAGES):
        from datatrove.pipeline import filters
    return getattr(filters, FILTERS[rule])
