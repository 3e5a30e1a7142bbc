"""The words of a text -> which of its tokens begin a word.

Packages that find words in scripts without spaces between them, and sentences where a language has no rules.
"""

import bisect
from collections.abc import Sequence
import functools
import itertools
import os
from collections.abc import Callable
from importlib import metadata
from typing import Any
from typing import NamedTuple
from bert_jax.errors import UserError
from bert_jax.errors import did_you_mean


def word_starts(text: str, words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """Return for each token of a text whether it begins a word.

    A token belongs to the word in which it begins, even where it reaches into the next; white space belongs to the word
    after it. Between two letters that have a case no word begins: their scripts have spaces, and packages for other
    scripts may cut such words into letters.

    Args:
        text: that was encoded.
        words: of the text, in order. What lies between them belongs to the word before. A word that is not found there,
            since the package changed its characters, begins nowhere.
        offsets: of the tokens: their first character and one past the last.
    """
    begins = list[int]()
    at = 0
    for word in words:
        found = text.find(word, at)
        if found < 0 or not word.strip():
            continue
        at = found + len(word)
        if not (found and _has_case(text[found - 1]) and _has_case(text[found])):
            begins.append(found)
    starts, before = list[bool](), -1
    for first, _ in offsets:
        while first < len(text) and text[first].isspace():
            first += 1
        number = bisect.bisect_right(begins, first)
        starts.append(number != before)
        before = number
    return starts


def _has_case(character: str) -> bool:
    return character.lower() != character.upper()


NO_SEGMENTER = "none"  # words begin as the vocabulary marks them

Parts = Callable[[str], list[str]]


class Segmenter(NamedTuple):
    """A row of SEGMENTERS.

    Attributes:
        language: ISO 639 code of the texts that it reads.
        packages: what pip installs, with dictionaries and models; no row needs a network. Another version may find
            other words.
        words: () -> a pure function: text -> its words in order; white space may be left out.
        sentences: () -> a pure function: line -> its sentences, end to end. None: by the rules of the language.
    """

    language: str
    packages: tuple[str, ...]
    words: Callable[[], Parts]
    sentences: Callable[[], Parts] | None = None


def _rjieba() -> Parts:
    import rjieba

    return rjieba.cut


def _fugashi() -> Parts:
    import fugashi
    import unidic_lite

    place = unidic_lite.DICDIR  # by name: fugashi takes a full UniDic instead where it is installed
    tagger = fugashi.GenericTagger(f'-O wakati -d "{place}" -r "{os.path.join(place, "mecabrc")}"')
    return lambda text: tagger.parse(text).split(" ")


def _pythainlp_words() -> Parts:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # otherwise it makes a directory in the user's home
    from pythainlp.tokenize import word_tokenize

    return functools.partial(word_tokenize, engine="newmm")


def _pythainlp_sentences() -> Parts:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")
    from pythainlp.tokenize import sent_tokenize

    sentences: Any = functools.partial(sent_tokenize, engine="crfcut")  # which has another type for other arguments
    return sentences


def _khmercut() -> Parts:
    import khmercut

    return khmercut.tokenize


def _laonlp() -> Parts:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # which it is built on
    from laonlp.tokenize import word_tokenize

    return word_tokenize


def _icu() -> Parts:
    import icu

    breaks = icu.BreakIterator.createWordInstance(icu.Locale("my"))

    def words(text: str) -> list[str]:
        units = icu.UnicodeString(text)  # of UTF-16, which the iterator counts
        breaks.setText(units)
        return [str(units[start:end]) for start, end in itertools.pairwise([0, *breaks])]

    return words


SEGMENTERS: dict[str, Segmenter] = {
    # jieba's dictionary and algorithm in Rust, by the author of jieba-rs
    "jieba": Segmenter("zh", ("rjieba",), _rjieba),
    # MeCab with the short unit words of UniDic
    "fugashi": Segmenter("ja", ("fugashi", "unidic-lite"), _fugashi),
    # Words of a dictionary by maximal matching; sentences by a conditional random field
    "pythainlp": Segmenter("th", ("pythainlp", "python-crfsuite"), _pythainlp_words, _pythainlp_sentences),
    "khmercut": Segmenter("km", ("khmercut", "python-crfsuite"), _khmercut),
    "laonlp": Segmenter("lo", ("laonlp", "pythainlp"), _laonlp),
    # The dictionary of ICU; a wheel of PyICU that has the library inside
    "icu": Segmenter("my", ("pyicu-wheels",), _icu),
}


def check_segmenter(name: str, language: str) -> None:
    """Raise UserError for an unknown name, a missing package, and a language that the package does not read.

    Args:
        name: a row of SEGMENTERS, or NO_SEGMENTER.
        language: of the texts, as `--language`; none: any.
    """
    if name == NO_SEGMENTER:
        return
    if name not in SEGMENTERS:
        rows = ", ".join(f"{known} ({row.language})" for known, row in SEGMENTERS.items())
        raise UserError(f"--segmenter {name}: give {rows} or none{did_you_mean(name, SEGMENTERS)}")
    row = SEGMENTERS[name]
    if language.partition("-")[0] not in (row.language, "none"):
        raise UserError(
            f"--segmenter {name} reads {row.language}, and --language is {language}; give --language {row.language}"
        )
    find_words(name)
    find_sentences(name)
    versions(name)


def versions(name: str) -> dict[str, str]:
    """Return the version of each package of a row; UserError where one is missing."""
    try:
        return {package: metadata.version(package) for package in SEGMENTERS[name].packages}
    except metadata.PackageNotFoundError:
        raise _missing(name) from None


def description(name: str) -> dict[str, Any]:
    """Return what a manifest says about a segmenter, as JSON: its name and `versions`; {} for NO_SEGMENTER."""
    return {"segmenter": name, "segmenter_versions": versions(name)} if name != NO_SEGMENTER else {}


@functools.cache
def find_words(name: str) -> Parts | None:
    """Return the function from a text to its words; None for NO_SEGMENTER."""
    return None if name == NO_SEGMENTER else _load(name, SEGMENTERS[name].words)


@functools.cache
def find_sentences(name: str) -> Parts | None:
    """Return the function from a line to its sentences; None where the rules of the language find them."""
    make = None if name == NO_SEGMENTER else SEGMENTERS[name].sentences
    return _load(name, make) if make else None


def _load(name: str, make: Callable[[], Parts]) -> Parts:
    try:
        return make()
    except ImportError:
        raise _missing(name) from None


def _missing(name: str) -> UserError:
    packages = " ".join(SEGMENTERS[name].packages)
    return UserError(
        f"--segmenter {name} needs {packages}: pip install {packages}, or pip install '.[words]' for all segmenters"
    )
