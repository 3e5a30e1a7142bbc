"""Words of scripts without spaces between them, and sentences of languages without rules, by packages of others.

The packages are imported when they are used. To add one, add a row to SEGMENTERS and the function that imports it.
"""

import bisect
import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, NamedTuple

from bert_jax.errors import UserError, did_you_mean, needs_packages

NO_SEGMENTER = "none"  # words begin as the vocabulary marks them

SplitText = Callable[[str], list[str]]  # a pure function: text -> its parts


class Segmenter(NamedTuple):
    """A row of SEGMENTERS.

    Attributes:
        language: ISO 639 code of the texts that it reads.
        packages: of pip, with dictionaries and models; no row needs a network. Another version may find other words.
        load_words: imports a function from a text to its words in order; white space may be left out.
        load_sentences: imports a function from a line to its sentences, end to end. None: by the rules of the language.
    """

    language: str
    packages: tuple[str, ...]
    load_words: Callable[[], SplitText]
    load_sentences: Callable[[], SplitText] | None = None


def _rjieba() -> SplitText:
    import rjieba

    return rjieba.cut


def _fugashi() -> SplitText:
    import fugashi
    import unidic_lite

    directory = unidic_lite.DICDIR  # by name: fugashi takes a full UniDic instead where it is installed
    tagger = fugashi.GenericTagger(f'-O wakati -d "{directory}" -r "{os.path.join(directory, "mecabrc")}"')
    return lambda text: tagger.parse(text).split(" ")


def _pythainlp_words() -> SplitText:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # otherwise it makes a directory in the user's home
    from pythainlp.tokenize import word_tokenize

    return functools.partial(word_tokenize, engine="newmm")


def _pythainlp_sentences() -> SplitText:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")
    from pythainlp.tokenize import sent_tokenize

    sentences: Any = functools.partial(sent_tokenize, engine="crfcut")  # which has another type for other arguments
    return sentences


def _khmercut() -> SplitText:
    import khmercut

    return khmercut.tokenize


def _laonlp() -> SplitText:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # which it is built on
    from laonlp.tokenize import word_tokenize

    return word_tokenize


def _icu() -> SplitText:
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
    segmenter_manifest(name)


def segmenter_manifest(name: str) -> dict[str, Any]:
    """Return the part of a manifest about a segmenter, as JSON: its name and the versions of its packages.

    It is {} for NO_SEGMENTER.

    Raises:
        UserError: a package is missing.
    """
    if name == NO_SEGMENTER:
        return {}
    with _needs_packages_of(name):  # PackageNotFoundError is an ImportError
        versions = {package: metadata.version(package) for package in SEGMENTERS[name].packages}
    return {"segmenter": name, "segmenter_versions": versions}


@functools.cache
def find_words(name: str) -> SplitText | None:
    """Return the function from a text to its words; None for NO_SEGMENTER."""
    return None if name == NO_SEGMENTER else _load(name, SEGMENTERS[name].load_words)


@functools.cache
def find_sentences(name: str) -> SplitText | None:
    """Return the function from a line to its sentences; None where the rules of the language find them."""
    load = None if name == NO_SEGMENTER else SEGMENTERS[name].load_sentences
    return _load(name, load) if load else None


def _load(name: str, load: Callable[[], SplitText]) -> SplitText:
    with _needs_packages_of(name):
        return load()


def _needs_packages_of(name: str) -> contextlib.AbstractContextManager[None]:
    packages, advice = " ".join(SEGMENTERS[name].packages), ", or pip install '.[words]' for all segmenters"
    return needs_packages(f"--segmenter {name}", packages, advice)


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
    word_offsets = list[int]()
    end = 0
    for word in words:
        start = text.find(word, end)
        if start < 0 or not word.strip():
            continue
        end = start + len(word)
        if not (start and _has_case(text[start - 1]) and _has_case(text[start])):
            word_offsets.append(start)
    starts, previous_word = list[bool](), -1
    for first, _ in offsets:
        while first < len(text) and text[first].isspace():
            first += 1
        word_index = bisect.bisect_right(word_offsets, first)
        starts.append(word_index != previous_word)
        previous_word = word_index
    return starts


def _has_case(character: str) -> bool:
    return character.lower() != character.upper()
