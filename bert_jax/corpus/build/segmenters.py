"""Words of scripts without spaces, and sentences of languages without rules, found by packages of other projects.

A package is imported at its first use. A new segmenter is a row of SEGMENTERS and a function that imports its
package.
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

NO_SEGMENTER = "none"  # no segmenter: the vocabulary marks the word starts

SplitText = Callable[[str], list[str]]  # a pure function: text -> its parts


class Segmenter(NamedTuple):
    """A row of SEGMENTERS.

    Attributes:
        language: ISO 639 code of the texts.
        packages: pip packages, with dictionaries and models; no network is needed. Other versions of a package may find
            other words.
        load_words: returns a function from a text to its words in order; white space may be left out.
        load_sentences: returns a function from a line to its sentences, which cover the line; None: the rules of the
            language find the sentences.
    """

    language: str
    packages: tuple[str, ...]
    load_words: Callable[[], SplitText]
    load_sentences: Callable[[], SplitText] | None = None


def _import_rjieba() -> SplitText:
    import rjieba

    return rjieba.cut


def _import_fugashi() -> SplitText:
    import fugashi
    import unidic_lite

    directory = unidic_lite.DICDIR  # given explicitly, since fugashi would prefer an installed full UniDic
    tagger = fugashi.GenericTagger(f'-O wakati -d "{directory}" -r "{os.path.join(directory, "mecabrc")}"')
    return lambda text: tagger.parse(text).split(" ")


def _import_pythainlp_words() -> SplitText:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # otherwise, the import makes a directory in the user's home
    from pythainlp.tokenize import word_tokenize

    return functools.partial(word_tokenize, engine="newmm")


def _import_pythainlp_sentences() -> SplitText:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")
    from pythainlp.tokenize import sent_tokenize

    sentences: Any = functools.partial(sent_tokenize, engine="crfcut")  # the return type depends on the arguments
    return sentences


def _import_khmercut() -> SplitText:
    import khmercut

    return khmercut.tokenize


def _import_laonlp() -> SplitText:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # laonlp imports pythainlp, which would make a directory
    from laonlp.tokenize import word_tokenize

    return word_tokenize


def _import_icu() -> SplitText:
    import icu

    breaks = icu.BreakIterator.createWordInstance(icu.Locale("my"))

    def split_at_word_breaks(text: str) -> list[str]:
        units = icu.UnicodeString(text)  # the iterator counts UTF-16 units
        breaks.setText(units)
        return [str(units[start:end]) for start, end in itertools.pairwise([0, *breaks])]

    return split_at_word_breaks


SEGMENTERS: dict[str, Segmenter] = {
    # jieba's dictionary and algorithm in Rust, by the author of jieba-rs
    "jieba": Segmenter("zh", ("rjieba",), _import_rjieba),
    # MeCab with the short unit words of UniDic
    "fugashi": Segmenter("ja", ("fugashi", "unidic-lite"), _import_fugashi),
    # Words of a dictionary by maximal matching; sentences by a conditional random field
    "pythainlp": Segmenter(
        "th", ("pythainlp", "python-crfsuite"), _import_pythainlp_words, _import_pythainlp_sentences
    ),
    "khmercut": Segmenter("km", ("khmercut", "python-crfsuite"), _import_khmercut),
    "laonlp": Segmenter("lo", ("laonlp", "pythainlp"), _import_laonlp),
    # The dictionary of ICU; the wheel of PyICU contains the library
    "icu": Segmenter("my", ("pyicu-wheels",), _import_icu),
}


def check_segmenter(name: str, language: str) -> None:
    """Raise UserError for an unknown segmenter, a missing package, or a language that the segmenter does not read.

    Args:
        name: value of `--segmenter`, other than NO_SEGMENTER.
        language: value of `--language`; 'none' allows every segmenter.
    """
    if name not in SEGMENTERS:
        rows = ", ".join(f"{known} ({row.language})" for known, row in SEGMENTERS.items())
        raise UserError(f"--segmenter {name}: give {rows} or none{did_you_mean(name, SEGMENTERS)}")
    row = SEGMENTERS[name]
    if language.partition("-")[0] not in (row.language, "none"):
        raise UserError(
            f"--segmenter {name} reads {row.language}, and --language is {language}; give --language {row.language}"
        )
    load_word_splitter(name)
    load_sentence_splitter(name)
    segmenter_manifest(name)


def segmenter_manifest(name: str) -> dict[str, Any]:
    """Return the part of a manifest about a segmenter, as JSON: its name and the versions of its packages.

    Return {} for NO_SEGMENTER.

    Raises:
        UserError: a package is missing.
    """
    if name == NO_SEGMENTER:
        return {}
    with _needs_packages_of(name):  # PackageNotFoundError is an ImportError
        versions = {package: metadata.version(package) for package in SEGMENTERS[name].packages}
    return {"segmenter": name, "segmenter_versions": versions}


@functools.cache
def load_word_splitter(name: str) -> SplitText | None:
    """Return the function that splits a text into words; None for NO_SEGMENTER."""
    return None if name == NO_SEGMENTER else _import_splitter(name, SEGMENTERS[name].load_words)


@functools.cache
def load_sentence_splitter(name: str) -> SplitText | None:
    """Return the function that splits a line into sentences; None if the rules of the language find the sentences."""
    load = None if name == NO_SEGMENTER else SEGMENTERS[name].load_sentences
    return _import_splitter(name, load) if load else None


def _import_splitter(name: str, load: Callable[[], SplitText]) -> SplitText:
    with _needs_packages_of(name):
        return load()


def _needs_packages_of(name: str) -> contextlib.AbstractContextManager[None]:
    packages, advice = " ".join(SEGMENTERS[name].packages), ", or pip install '.[words]' for all segmenters"
    return needs_packages(f"--segmenter {name}", packages, advice)


def word_starts(text: str, words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """Return, for each token of a text, whether it begins a word.

    A token belongs to the word in which it begins, even if the token reaches into the next word. White space belongs to
    the following word. No word begins between two letters of a script with upper and lower case: such scripts have
    spaces, and a package for another script may cut their words into letters.

    Args:
        text: the text that was encoded.
        words: words of the text, in order. Characters between two words belong to the first word. If the package
            changed the characters of a word, so that the text does not contain the word, no token begins the word.
        offsets: [start, end) of the characters of each token.
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
