"""Raw documents -> records: text, sentences, ids. Pure: a unit gives the same records wherever it is encoded."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import sentencex

from bert_jax.data.corpus import MAX_SENTENCE, SPLITS
from bert_jax.data.preparation.corpus_writer import Packed, concatenate, cut_sentences, pack_document, token_dtype
from bert_jax.data.sources import Raw, Reading, convert
from bert_jax.data.sources.rejections import LeftOut, earlier
from bert_jax.data.tokenizer import Tokenizer

NO_LANGUAGE = "none"  # a line is a sentence, and nothing is changed: for code, logs, proteins
WINDOW = 8192  # characters that are parted into sentences in one call, and of the longest sentence
SENTENCES_AT_ONCE = 512  # that the library encodes in one call; its memory is a hundred times the text
# The library takes every white space for one byte when it looks back, and panics inside of a wider one.
WIDE_SPACES = "".join(filter(str.isspace, map(chr, range(0x80, 0x3001))))


_LINE = re.compile("[^\n]*\n|[^\n]+")


class Settings(NamedTuple):
    """What decides, with the tokenizer, which records a document gives."""

    reading: Reading = Reading()
    language: str = "en"  # ISO 639 code whose rules part the sentences, or NO_LANGUAGE
    heldout_fraction: float = 0.02


class Counts(NamedTuple):
    """The account of some documents; `_asdict()` is JSON."""

    documents: int = 0  # found, whatever became of them
    rejected: Mapping[str, int] = {}
    sentences_split: int = 0  # sentences that were cut because they exceed WINDOW characters or MAX_SENTENCE tokens
    unknown_tokens: int = 0
    fields: str = ""  # of a record that has not the one that was asked for


class Unit(NamedTuple):
    """Documents, or pieces of long ones, that are encoded together; made by `units.units`."""

    part: int
    number: int  # in its part
    block: int  # the shards of its part that its records go to
    last: bool  # of its part
    documents: list[Raw]
    bytes_read: int  # of all inputs, after it
    # Of the document whose pieces began in units before this one:
    split: str = ""
    begun: bool = False  # whether any of its records went before


class Encoded(NamedTuple):
    """A unit, ready to be written: records of the splits that have any, and the account of the documents."""

    splits: dict[str, Packed]
    counts: Counts


def encode(unit: Unit, tokenizer: Tokenizer, settings: Settings) -> Encoded:
    """The records of a unit.

    Raises:
        UserError: as `sources.convert`.
    """
    left_out = LeftOut()
    kept: list[tuple[Raw, str, int]] = []  # a document or piece, its split, the number of its sentences
    sentences: list[str] = []
    begins: list[bool] = []
    split, found = unit.split, 0
    for raw in unit.documents:
        document = convert(raw, settings.reading)
        found += raw.piece == 0
        if document.rejected and raw.piece == 0 and raw.last:
            left_out.add(document)
            continue
        if raw.piece == 0:
            split = split_of(document.text, settings.heldout_fraction)
        before = len(sentences)
        parts = sentences_of(document.text, settings.language, tokenizer.sentence_prefix, raw.piece == 0)
        for sentence, whether in parts:
            sentences.append(sentence)
            begins.append(whether)
        kept.append((raw, split, len(sentences) - before))
    lengths, tokens = _ids(sentences, tokenizer)
    splits: dict[str, list[Packed]] = {name: [] for name in SPLITS}
    begun = unit.begun
    first = token = 0
    for raw, split, number in kept:
        own = lengths[first : first + number]
        own = own[own > 0]
        size = int(own.sum())
        begun = begun and raw.piece > 0
        if size:
            splits[split].append(pack_document(cut_sentences(own), tokens[token : token + size], not begun))
            begun = True
        if raw.last and not begun:
            left_out.reasons["no tokens"] += 1
        first, token = first + number, token + size
    packed = {name: concatenate(parts) for name, parts in splits.items() if parts}
    whole = np.array(begins, bool)
    cut = np.unique(np.cumsum(whole)[~whole | (lengths > MAX_SENTENCE)])
    unknown = np.count_nonzero(tokens == tokenizer.unk_id)
    return Encoded(packed, Counts(found, dict(left_out.reasons), len(cut), int(unknown), left_out.fields))


def total(counts: Iterable[Counts]) -> Counts:
    """Several accounts as one."""
    documents = sentences_split = unknown_tokens = 0
    left_out = LeftOut()
    for one in counts:
        documents += one.documents
        left_out.reasons.update(one.rejected)
        left_out.fields = earlier(left_out.fields, one.fields)
        sentences_split += one.sentences_split
        unknown_tokens += one.unknown_tokens
    rejected = dict(sorted(left_out.reasons.items()))
    return Counts(documents, rejected, sentences_split, unknown_tokens, left_out.fields)


def split_of(text: str, heldout_fraction: float) -> str:
    """'train' or 'heldout': the same for equal texts, whatever else the corpus holds."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "big") < heldout_fraction * 2**64 else "train"


def has_tokens(text: str, begins: bool, tokenizer: Tokenizer, settings: Settings) -> bool:
    """Whether `encode` finds a token in the text of a document or piece; reads no further than to the first."""
    found = sentences_of(text, settings.language, tokenizer.sentence_prefix, begins)
    return any(tokenizer.encode_sentences([sentence])[0] for sentence, _ in found)


def sentences_of(text: str, language: str, prefix: str = "", begins: bool = True) -> Iterator[tuple[str, bool]]:
    """The sentences of a text without the white space around them; those longer than the window in several parts.

    Read through a window, as the library's time grows with the square of a paragraph that is not ASCII. A sentence that
    the window's end cuts is read again from its start; one that fills the window is cut, at a space if it has one.

    Args:
        text: any.
        language: ISO 639 code, or NO_LANGUAGE: the lines with their ends, as they are.
        prefix: goes before all that white space goes before, but for the first sentence of a document.
        begins: whether the text begins a document.

    Yields:
        A sentence or part of one; whether a sentence begins with it.
    """
    if language == NO_LANGUAGE:
        for line in _LINE.findall(text):
            for place in range(0, len(line), WINDOW):
                yield line[place : place + WINDOW], place == 0
        return
    plain = text
    for space in WIDE_SPACES if not text.isascii() else "":
        plain = plain.replace(space, " ")
    start, spaced, inside = 0, True, False
    while start < len(plain):
        end = start + WINDOW
        paragraph = plain.rfind("\n\n", start + 1, end) if end < len(plain) else len(plain)
        whole = paragraph > 0
        found = sentencex.segment(language, plain[start : paragraph if whole else end])
        fills = not whole and len(found) == 1
        if fills:
            space_at = max(plain.rfind(space, start + 1, end) for space in " \n")
            found = [plain[start : space_at + 1 if space_at > 0 else end]]
        elif not whole:
            found.pop()
        for sentence in found:
            end = plain.index(sentence, start) + len(sentence)  # of a longer text the library leaves out empty lines
            own = text[start:end].strip()
            spaced = spaced or text[start].isspace()
            if own:
                # A byte-level vocabulary would spell the end of a line, and not know the word after it.
                line = " ".join(own.split()) if "\n" in own else own
                yield (prefix if spaced and not begins else "") + line, not inside
                begins, spaced = False, False
            spaced = spaced or text[end - 1].isspace()
            start, inside = end, fills and bool(own)


def _ids(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The number of ids of each text, int64 [texts], and all ids, uint16 or uint32 [sum of those]."""
    dtype = token_dtype(tokenizer.vocab_size)
    lengths, tokens = [np.zeros(0, np.int64)], [np.zeros(0, dtype)]
    for start in range(0, len(texts), SENTENCES_AT_ONCE):
        ids = tokenizer.encode_sentences(texts[start : start + SENTENCES_AT_ONCE])
        lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        tokens.append(np.fromiter(itertools.chain.from_iterable(ids), dtype, int(lengths[-1].sum())))
    return np.concatenate(lengths), np.concatenate(tokens)
