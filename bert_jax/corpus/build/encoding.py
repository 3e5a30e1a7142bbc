"""Tokens that begin within a character: a sentence that is too long is not cut before them.

Documents -> records of token ids. Pure functions: a chunk gives the same records wherever it is encoded.
"""

import re
import numpy as np
from bert_jax.tokenizer.tokenizer import Tokenizer
from bert_jax.tokenizer.tokenizer_json import components
import collections
import heapq
import itertools
import math
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
import sentencex
from bert_jax.corpus.store import MAX_SENTENCE
from bert_jax.corpus.store import SPLITS
from bert_jax.corpus.build.corpus_writer import PackedRecords
from bert_jax.corpus.build.corpus_writer import concatenate_records
from bert_jax.corpus.build.corpus_writer import cut_sentences
from bert_jax.corpus.build.corpus_writer import pack_document
from bert_jax.corpus.build.corpus_writer import token_dtype
from bert_jax.corpus.build.normal_form import choose_split
from bert_jax.corpus.build.normal_form import text_hashes
from bert_jax.corpus.build.segmenters import NO_SEGMENTER
from bert_jax.corpus.build.segmenters import find_sentences
from bert_jax.corpus.build.segmenters import find_words
from bert_jax.corpus.build.segmenters import word_starts
from bert_jax.readers import RawDocument
from bert_jax.readers import ReadOptions
from bert_jax.readers import to_document
from bert_jax.readers.rejections import Rejections
from bert_jax.readers.rejections import first_fields
from bert_jax.tokenizer import Tokenizer
from bert_jax.tokenizer.changes import count_changes


# How ByteLevel writes bytes (Radford et al. 2019): printable ones as they are, the others in order from 256 on.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
_LETTERS = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
_BYTE = re.compile("<0x([89AB][0-9A-F])>")  # of SentencePiece: a byte that begins no character


def inside_character(tokenizer: Tokenizer) -> np.ndarray:
    """Return for each token whether its first byte continues a character of UTF-8: bool `[vocab_size]`."""
    parts = components(tokenizer.definition.get("pre_tokenizer"))
    letters = _LETTERS if any(one.get("type") == "ByteLevel" for one in parts) else {}
    within = [0x80 <= letters.get(token[:1], 0) < 0xC0 or bool(_BYTE.fullmatch(token)) for token in tokenizer.tokens]
    return np.array(within, bool)


MIN_HELDOUT = 2  # documents: the second sentence of a pair may come from another document
NO_LANGUAGE = "none"  # a line is a sentence and stays as it is: for code, logs, proteins
WINDOW = 8192  # characters that are split into sentences in one call, and of the longest sentence
UNKNOWN_READ = 500  # sentences with unknown tokens in a chunk that are encoded again, to count their characters
CHANGED_READ = 20_000  # characters of a chunk that are compared with what the tokenizer makes of them
GOLDEN_RATIO = (1 + math.sqrt(5)) / 2
SENTENCES_PER_CALL = 512  # of the tokenizer library; its memory is a hundred times the text
# When it looks back, the library takes every white space for one byte, and panics inside a wider one.
WIDE_SPACES = "".join(filter(str.isspace, map(chr, range(0x80, 0x3001))))
_LINE = re.compile("[^\n]*\n|[^\n]+")


class SentenceEnds(NamedTuple):
    """Where sentences end in a language: a pattern of what follows their text, and the same in words."""

    pattern: re.Pattern[str]
    where: str


_AT_LINES = SentenceEnds(re.compile(r"\n\s*"), "at line ends")
_AT_SHADS = SentenceEnds(re.compile(r"[།༎][།༎\s]*|\n\s*"), "at shads and line ends")
# The languages in which sentencex finds no sentences.
SENTENCE_ENDS = {
    "th": _AT_LINES,
    "lo": _AT_LINES,
    "km": SentenceEnds(re.compile(r"[។៕៘!?]+\s*|\n\s*"), "at khans and line ends"),
    "bo": _AT_SHADS,
    "dz": _AT_SHADS,
}


class PrepareSettings(NamedTuple):
    """The settings that decide, with the tokenizer, the records of a document."""

    read_options: ReadOptions = ReadOptions()
    language: str = "en"  # ISO 639 code whose rules split sentences, or NO_LANGUAGE
    heldout_fraction: float = 0.02
    deduplicate: str = "none"  # one of `decisions.DEDUPLICATION`
    max_rejected_fraction: float = 0.1  # of the documents; more are an error
    segmenter: str = NO_SEGMENTER  # or a row of SEGMENTERS, whose words are stored


class DocumentCounts(NamedTuple):
    """Counts over documents; `_asdict()` is JSON."""

    documents: int = 0  # found, stored or rejected
    rejected: Mapping[str, int] = {}
    sentences_split: int = 0  # sentences cut because they exceed WINDOW characters or MAX_SENTENCE tokens
    unknown_tokens: int = 0
    characters: int = 0  # of all sentences
    unknown_characters: int = 0  # that unknown tokens stand for; see `_unknown_characters`
    compared_characters: int = 0  # in which changes were counted
    changed_characters: Mapping[str, int] = {}  # by kind, see `tokenizer.changes`; scaled to all characters
    fields: str = ""  # of a record that lacks the requested one
    lowest_hashes: Sequence[int] = ()  # the MIN_HELDOUT smallest `split_hash` of stored documents, sorted


class Chunk(NamedTuple):
    """Documents, or pieces of long ones, that are encoded together; made by `chunks.read_chunks`."""

    partition: int
    number: int  # in its partition
    block: int  # of its partition, whose shards its records go to
    last: bool  # of its partition
    documents: list[RawDocument]
    bytes_read: int  # of all inputs, after it
    # Of the document whose pieces began in earlier chunks:
    split: str = ""
    begun: bool = False  # whether it has records already
    split_hashes: Sequence[int] = ()  # of each document; empty: to be computed


class EncodedChunk(NamedTuple):
    """The records of a chunk, for the splits that have any, and the counts of its documents."""

    splits: dict[str, PackedRecords]
    counts: DocumentCounts


def encode_chunk(chunk: Chunk, tokenizer: Tokenizer, settings: PrepareSettings) -> EncodedChunk:
    """Return the records of a chunk.

    Raises:
        UserError: as `sources.to_document`.
    """
    rejections = Rejections()
    # A document or piece, its split, the hash of its normal form, `split_hash`, number of sentences.
    kept: list[tuple[RawDocument, str, bytes, int, int]] = []
    sentences: list[str] = []
    begins: list[bool] = []
    split, found, own_hash = chunk.split, 0, 0
    for number, raw in enumerate(chunk.documents):
        document = to_document(raw, settings.read_options)
        found += raw.piece == 0
        if document.rejected and raw.piece == 0 and raw.last:
            rejections.add(document)
            continue
        content, hash_of_text = (bytes(16), 0) if chunk.split_hashes else text_hashes(document.text)
        if raw.piece == 0:
            own_hash = chunk.split_hashes[number] if chunk.split_hashes else hash_of_text
            split = choose_split(own_hash, settings.heldout_fraction)
        before = len(sentences)
        parts = _sentences(document.text, raw.piece == 0, tokenizer, settings)
        for sentence, whether in parts:
            sentences.append(sentence)
            begins.append(whether)
        kept.append((raw, split, content, own_hash, len(sentences) - before))
    lengths, tokens, words = encode_texts(sentences, tokenizer, settings.segmenter)
    splits: dict[str, list[PackedRecords]] = {name: [] for name in SPLITS}
    hashes: list[int] = []
    begun = chunk.begun
    first = token = 0
    for raw, split, content, own_hash, number in kept:
        own = lengths[first : first + number]
        own = own[own > 0]
        size = int(own.sum())
        begun = begun and raw.piece > 0
        if size:
            inside = slice(token, token + size)
            own_words = None if words is None else words[inside]
            too_long = own.max() > MAX_SENTENCE
            cut = cut_sentences(own, inside_character(tokenizer)[tokens[inside]] if too_long else None)
            packed = pack_document(cut, tokens[inside], not begun, content, own_words)
            splits[split].append(packed)
            if raw.piece == 0:
                hashes.append(own_hash)
            begun = True
        if raw.last and not begun:
            rejections.reasons["no tokens"] += 1
        first, token = first + number, token + size
    records = {name: concatenate_records(parts) for name, parts in splits.items() if parts}
    whole = np.array(begins, bool)
    cut = np.unique(np.cumsum(whole)[~whole | (lengths > MAX_SENTENCE)])
    unknown = np.count_nonzero(tokens == tokenizer.unk_id)
    characters = sum(map(len, sentences))
    compared, changed = _changed_characters(sentences, characters, tokenizer)
    counts = DocumentCounts(
        documents=found,
        rejected=dict(rejections.reasons),
        sentences_split=len(cut),
        unknown_tokens=int(unknown),
        characters=characters,
        unknown_characters=_unknown_characters(sentences, lengths, tokens, tokenizer),
        compared_characters=compared,
        changed_characters=changed,
        fields=rejections.fields,
        lowest_hashes=_lowest(hashes),
    )
    return EncodedChunk(records, counts)


def _changed_characters(sentences: Sequence[str], characters: int, tokenizer: Tokenizer) -> tuple[int, dict[str, int]]:
    """Return the number of characters compared, about `CHANGED_READ`, and those changed by kind, scaled to all.

    A sentence of each stretch of equally many is read. Its place differs from stretch to stretch, so that a text with a
    period, such as of two languages in turns, is read evenly.
    """
    number = math.ceil(len(sentences) * min(1.0, CHANGED_READ / max(1, characters)))
    places = (np.arange(number) + np.arange(number) * GOLDEN_RATIO % 1) * len(sentences) / max(1, number)
    read = [sentences[place] for place in places.astype(int).tolist()]
    compared = sum(map(len, read))
    changed = count_changes(tokenizer, read)
    return compared, {kind: round(found * characters / compared) for kind, found in changed.items()}


def _unknown_characters(sentences: Sequence[str], lengths: np.ndarray, tokens: np.ndarray, tokenizer: Tokenizer) -> int:
    """Return the number of characters that unknown tokens stand for, of `UNKNOWN_READ` sentences scaled to all."""
    unknown = tokens == tokenizer.unk_id
    found = np.unique(np.repeat(np.arange(len(lengths)), lengths)[unknown])
    read = found[np.linspace(0, len(found), min(len(found), UNKNOWN_READ), endpoint=False).astype(int)]
    lost = seen = 0
    for encoded in tokenizer.encode_with_offsets([sentences[number] for number in read.tolist()]):
        pairs = zip(encoded.ids, encoded.offsets, strict=True)
        own = [end - start for token, (start, end) in pairs if token == tokenizer.unk_id]
        lost, seen = lost + sum(own), seen + len(own)
    return round(lost * int(np.count_nonzero(unknown)) / max(1, seen))


def sum_counts(counts: Iterable[DocumentCounts]) -> DocumentCounts:
    """Return the sum of several counts."""
    documents = sentences_split = unknown_tokens = characters = unknown_characters = compared = 0
    changed: collections.Counter[str] = collections.Counter()
    rejections = Rejections()
    hashes: list[int] = []
    for one in counts:
        documents += one.documents
        rejections.reasons.update(one.rejected)
        rejections.fields = first_fields(rejections.fields, one.fields)
        sentences_split += one.sentences_split
        unknown_tokens += one.unknown_tokens
        characters += one.characters
        unknown_characters += one.unknown_characters
        compared += one.compared_characters
        changed.update(one.changed_characters)
        hashes += one.lowest_hashes
    rejected = dict(sorted(rejections.reasons.items()))
    return DocumentCounts(
        documents,
        rejected,
        sentences_split,
        unknown_tokens,
        characters,
        unknown_characters,
        compared,
        dict(sorted(changed.items())),
        rejections.fields,
        _lowest(hashes),
    )


def _lowest(hashes: Iterable[int]) -> list[int]:
    return heapq.nsmallest(MIN_HELDOUT, hashes)


def fraction_above(value: int) -> float:
    """Return the smallest held-out fraction of three decimals that holds out a document with this `split_hash`."""
    return ((value * 1000 >> 64) + 1) / 1000


def has_tokens(text: str, begins: bool, tokenizer: Tokenizer, settings: PrepareSettings) -> bool:
    """Return whether `encode_chunk` finds a token in the text of a document or piece; stops at the first."""
    found = _sentences(text, begins, tokenizer, settings)
    return any(tokenizer.encode_sentences([sentence])[0] for sentence, _ in found)


def _sentences(text: str, begins: bool, tokenizer: Tokenizer, settings: PrepareSettings) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a document or piece, as `split_sentences`."""
    return split_sentences(text, settings.language, tokenizer.sentence_prefix, begins, settings.segmenter)


def split_sentences(
    text: str, language: str, prefix: str = "", begins: bool = True, segmenter: str = NO_SEGMENTER
) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a text without surrounding white space; those longer than the window in several parts.

    The text is read through a window: the library's time is quadratic in a paragraph that is not ASCII. A sentence cut
    by the end of the window is read again from its start; one that fills it is cut, at a space if possible.

    Args:
        text: any.
        language: ISO 639 code, or NO_LANGUAGE: the lines with their ends, as they are. Those of SENTENCE_ENDS are split
            there, the others by sentencex.
        prefix: put before every sentence after white space, but for the first of a document.
        begins: whether the text begins a document.
        segmenter: NO_SEGMENTER, or a row of SEGMENTERS, which finds the sentences of a line if it can.

    Yields:
        A sentence or part of one, and whether it begins a sentence.
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
        found = _segment(language, segmenter, plain[start : paragraph if whole else end])
        fills = not whole and len(found) == 1
        if fills:
            space_at = max(plain.rfind(space, start + 1, end) for space in " \n")
            found = [plain[start : space_at + 1 if space_at > 0 else end]]
        elif not whole:
            found.pop()
        for sentence in found:
            end = plain.index(sentence, start) + len(sentence)  # the library leaves out empty lines of a longer text
            own = text[start:end].strip()
            spaced = spaced or text[start].isspace()
            if own:
                # A byte-level vocabulary would encode the line end as bytes, and not recognize the word after it.
                line = " ".join(own.split()) if "\n" in own else own
                yield (prefix if spaced and not begins else "") + line, not inside
                begins, spaced = False, False
            spaced = spaced or text[end - 1].isspace()
            start, inside = end, fills and bool(own)


def _segment(language: str, segmenter: str, text: str) -> list[str]:
    """Return the sentences of a text, each with what follows it."""
    split = find_sentences(segmenter)
    if split:
        lines = [(line, split(line) if line.strip() else [line]) for line in _LINE.findall(text)]
        # A package that changes characters has not found where a sentence ends in the text itself.
        return [each for line, parts in lines for each in (parts if "".join(parts) == line else [line])]
    ends = SENTENCE_ENDS.get(language.partition("-")[0])
    if ends is None:
        return sentencex.segment(language, text)
    cuts = [0, *(match.end() for match in ends.pattern.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(cuts) if start < end]


def encode_texts(
    texts: Sequence[str], tokenizer: Tokenizer, segmenter: str = NO_SEGMENTER
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return the number of ids of each text, int64 [texts], and all ids, uint16 or uint32 [their sum].

    With a segmenter, also which tokens begin a word, bool [their sum]; without, None.
    """
    dtype, words_of = token_dtype(tokenizer.vocab_size), find_words(segmenter)
    lengths, tokens, starts = [np.zeros(0, np.int64)], [np.zeros(0, dtype)], list[bool]()
    for first in range(0, len(texts), SENTENCES_PER_CALL):
        part = texts[first : first + SENTENCES_PER_CALL]
        if words_of:
            encoded = tokenizer.encode_with_offsets(part)
            ids = [one.ids for one in encoded]
            for text, one in zip(part, encoded, strict=True):
                starts += word_starts(text, words_of(text), one.offsets)
        else:
            ids = tokenizer.encode_sentences(part)
        lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        tokens.append(np.fromiter(itertools.chain.from_iterable(ids), dtype, int(lengths[-1].sum())))
    return np.concatenate(lengths), np.concatenate(tokens), np.array(starts, bool) if words_of else None
