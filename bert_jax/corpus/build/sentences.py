"""Split a text into sentences by the rules of a language.

For an unknown language, the library that splits sentences uses the rules of English.
"""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

import sentencex

from bert_jax.corpus.build.segmenters import NO_SEGMENTER, load_sentence_splitter
from bert_jax.corpus.languages import NO_LANGUAGE

WINDOW = 8192  # maximum number of characters of a sentence, and of one call of the sentence splitter
# When the library looks back over white space, it assumes one byte per character, and panics inside a wider character.
WIDE_SPACES = "".join(filter(str.isspace, map(chr, range(0x80, 0x3001))))
_LINE = re.compile("[^\n]*\n|[^\n]+")


class SentenceEnds(NamedTuple):
    """The ends of sentences in a language: a pattern for the characters after a sentence, and a description."""

    pattern: re.Pattern[str]
    description: str


_AT_LINES = SentenceEnds(re.compile(r"\n\s*"), "at line ends")
_AT_SHADS = SentenceEnds(re.compile(r"[།༎][།༎\s]*|\n\s*"), "at shads and line ends")
# Language -> its sentence ends, for the languages in which sentencex finds no sentences.
SENTENCE_ENDS = {
    "th": _AT_LINES,
    "lo": _AT_LINES,
    "km": SentenceEnds(re.compile(r"[។៕៘!?]+\s*|\n\s*"), "at khans and line ends"),
    "bo": _AT_SHADS,
    "dz": _AT_SHADS,
}


class SentencePart(NamedTuple):
    """A sentence, or a part of a sentence that is longer than the window."""

    text: str
    begins_sentence: bool


def split_sentences(
    text: str, language: str, prefix: str = "", begins_document: bool = True, segmenter: str = NO_SEGMENTER
) -> Iterator[SentencePart]:
    """Yield the sentences of a text, stripped of white space; a sentence longer than the window comes in parts.

    The text is read through a window, since the time of the library grows with the square of the length of a paragraph
    that is not ASCII. If the end of the window cuts a sentence, the sentence is read again from its start; a sentence
    that fills the window is cut, at a space if possible.

    Args:
        text: text of any length.
        language: ISO 639 code. The patterns of SENTENCE_ENDS split texts in the languages of this table; sentencex
            splits texts in all other languages. With NO_LANGUAGE, the sentences are the lines, unchanged and with their
            line ends.
        prefix: text that is put before every sentence that follows white space, except the first sentence of a
            document.
        begins_document: True if the text begins a document.
        segmenter: NO_SEGMENTER, or a key of SEGMENTERS. A segmenter with `load_sentences` finds the sentences of a
            line.

    Yields:
        A sentence or a part of a sentence, and whether the text begins a sentence.
    """
    if language == NO_LANGUAGE:
        for line in _LINE.findall(text):
            for offset in range(0, len(line), WINDOW):
                yield SentencePart(line[offset : offset + WINDOW], offset == 0)
        return
    plain = text
    for space in WIDE_SPACES if not text.isascii() else "":
        plain = plain.replace(space, " ")
    start, after_space, inside_sentence = 0, True, False
    while start < len(plain):
        end = start + WINDOW
        paragraph = plain.rfind("\n\n", start + 1, end) if end < len(plain) else len(plain)
        is_complete = paragraph > 0
        sentences = _split_window_into_sentences(language, segmenter, plain[start : paragraph if is_complete else end])
        fills_window = not is_complete and len(sentences) == 1
        if fills_window:
            space_at = max(plain.rfind(space, start + 1, end) for space in " \n")
            sentences = [plain[start : space_at + 1 if space_at > 0 else end]]
        elif not is_complete:
            sentences.pop()
        for sentence in sentences:
            end = plain.index(sentence, start) + len(sentence)  # the library drops empty lines between sentences
            stripped = text[start:end].strip()
            after_space = after_space or text[start].isspace()
            if stripped:
                # A byte-level vocabulary would encode a line end as bytes, and not recognize the next word.
                line = " ".join(stripped.split()) if "\n" in stripped else stripped
                yield SentencePart((prefix if after_space and not begins_document else "") + line, not inside_sentence)
                begins_document, after_space = False, False
            after_space = after_space or text[end - 1].isspace()
            start, inside_sentence = end, fills_window and bool(stripped)


def _split_window_into_sentences(language: str, segmenter: str, text: str) -> list[str]:
    """Split a text into sentences without loss of characters; white space and marks belong to the sentence before."""
    split_line = load_sentence_splitter(segmenter)
    if split_line:
        lines = [(line, split_line(line) if line.strip() else [line]) for line in _LINE.findall(text)]
        # If the package changed characters, its sentence ends are not positions of the text, and the line stays whole.
        return [part for line, parts in lines for part in (parts if "".join(parts) == line else [line])]
    ends = SENTENCE_ENDS.get(language.partition("-")[0])
    if ends is None:
        return sentencex.segment(language, text)
    cuts = [0, *(match.end() for match in ends.pattern.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(cuts) if start < end]
