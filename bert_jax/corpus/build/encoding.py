"""A chunk of documents -> sentences -> records of token ids: pure functions, with equal results on every machine."""

import collections
import dataclasses
import heapq
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.corpus.build.corpus_writer import (
    PackedRecords,
    concatenate_records,
    cut_long_sentence_lengths,
    pack_document,
    token_dtype,
)
from bert_jax.corpus.build.segmenters import NO_SEGMENTER, load_word_splitter, word_starts
from bert_jax.corpus.build.sentences import split_sentences
from bert_jax.corpus.build.signatures import choose_split, text_hashes
from bert_jax.corpus.store import MAX_SENTENCE, SPLITS
from bert_jax.readers import RawDocument, ReadOptions, to_document
from bert_jax.readers.rejections import Rejections
from bert_jax.tokenizer import Tokenizer
from bert_jax.tokenizer.changes import count_changed_characters
from bert_jax.tokenizer.tokenizer_json import steps_of_part

MIN_HELDOUT = 2  # minimum number of held-out documents: the second sentence of a pair may come from another document
UNKNOWN_READ = 500  # maximum number of sentences of a chunk that are encoded twice, to count unknown characters
CHANGED_READ = 20_000  # approximate number of characters of a chunk that are compared with the tokenizer's normal form
GOLDEN_RATIO = (1 + math.sqrt(5)) / 2
SENTENCES_PER_CALL = 512  # a call of the tokenizer library needs about a hundred times the memory of its input text
# The pre-tokenizer ByteLevel writes each byte as a character (Radford et al. 2019). A printable byte becomes the
# character whose code is the byte. The other bytes become, in order, the characters from code 256 on.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = (byte for byte in range(256) if byte not in _PRINTABLE)
_LETTERS = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
_BYTE = re.compile("<0x([89AB][0-9A-F])>")  # SentencePiece's token for a byte that continues a character of UTF-8


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrepareSettings:
    """The settings that, together with the tokenizer, determine the records of a document.

    Attributes:
        read_options: how inputs are read.
        language: ISO 639 code of the language whose rules split sentences, or NO_LANGUAGE.
        heldout_fraction: fraction of the documents that is held out.
        deduplicate: a key of `dedup_decisions.REMOVED_COPIES`.
        max_rejected_fraction: maximum fraction of rejected documents; a higher fraction is an error.
        segmenter: NO_SEGMENTER, or the key in SEGMENTERS of the segmenter whose word starts are stored.
    """

    read_options: ReadOptions = ReadOptions()
    language: str = "en"
    heldout_fraction: float = 0.02
    deduplicate: str = "split"
    max_rejected_fraction: float = 0.1
    segmenter: str = NO_SEGMENTER


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentCounts:
    """Counts, summed over documents; `vars(counts)` is a JSON object.

    Attributes:
        documents: number of documents, stored or rejected.
        rejected: reason -> number of documents.
        sentences_split: number of sentences that were cut because they have more than WINDOW characters or MAX_SENTENCE
            tokens.
        unknown_tokens: number of unknown tokens.
        characters: number of characters of all sentences.
        unknown_characters: number of characters that unknown tokens stand for, see `_count_unknown_characters`.
        compared_characters: number of characters that were compared with the tokenizer's normal form.
        changed_characters: kind of change (`tokenizer.changes`) -> number of changed characters, scaled from the
            compared characters to all characters.
        fields: field names of a record that lacks the requested field; an error message shows these names.
        lowest_hashes: the MIN_HELDOUT smallest split hashes of stored documents, ascending.
    """

    documents: int = 0
    rejected: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sentences_split: int = 0
    unknown_tokens: int = 0
    characters: int = 0
    unknown_characters: int = 0
    compared_characters: int = 0
    changed_characters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    fields: str = ""
    lowest_hashes: Sequence[int] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """Documents, or pieces of long documents, that are encoded together; made by `chunks.read_chunks`.

    Attributes:
        partition: index of the partition.
        index: index of the chunk in the partition.
        block: index of the block in the partition; the results go to the files of this block.
        is_last: True if the chunk is the last of the partition.
        documents: documents and pieces.
        bytes_read: bytes of all inputs up to the end of the chunk.
        split: the split, such as "heldout", of the document that began in an earlier chunk.
        has_records: True if the document that continues from an earlier chunk has records already.
        split_hashes: split hash of each document; empty if `encode_chunk` computes the hashes.
    """

    partition: int
    index: int
    block: int
    is_last: bool
    documents: Sequence[RawDocument]
    bytes_read: int
    split: str = ""
    has_records: bool = False
    split_hashes: Sequence[int] = ()


class EncodedChunk(NamedTuple):
    """The records of a chunk, by split, and the counts of its documents."""

    splits: dict[str, PackedRecords]
    counts: DocumentCounts


class _Sentences(NamedTuple):
    """A document or piece `raw` with its split, its hashes and its number of sentences."""

    raw: RawDocument
    split: str
    content_hash: bytes
    split_hash: int
    num_sentences: int


def encode_chunk(chunk: Chunk, tokenizer: Tokenizer, settings: PrepareSettings) -> EncodedChunk:
    """Return the records of a chunk, by split, and the counts of its documents.

    Raises:
        UserError: `readers.to_document` raises it.
    """
    rejections = Rejections()
    parts: list[_Sentences] = []
    sentences: list[str] = []
    begins_sentence: list[bool] = []
    num_documents, split, document_hash = 0, chunk.split, 0
    for index, raw in enumerate(chunk.documents):
        document = to_document(raw, settings.read_options)
        num_documents += raw.piece == 0
        if document.rejected and raw.piece == 0 and raw.last:
            rejections.add(document)
            continue
        content_hash, hash_of_text = (bytes(16), 0) if chunk.split_hashes else text_hashes(document.text)
        if raw.piece == 0:
            document_hash = chunk.split_hashes[index] if chunk.split_hashes else hash_of_text
            split = choose_split(document_hash, settings.heldout_fraction)
        num_before = len(sentences)
        for sentence, begins in split_sentences(
            document.text, settings.language, tokenizer.kind.word_prefix, raw.piece == 0, settings.segmenter
        ):
            sentences.append(sentence)
            begins_sentence.append(begins)
        parts.append(_Sentences(raw, split, content_hash, document_hash, len(sentences) - num_before))
    lengths, tokens, words = encode_texts(sentences, tokenizer, settings.segmenter)
    splits: dict[str, list[PackedRecords]] = {name: [] for name in SPLITS}
    hashes: list[int] = []
    has_records = chunk.has_records
    num_sentences = token = 0
    for part in parts:
        part_lengths = lengths[num_sentences : num_sentences + part.num_sentences]
        part_lengths = part_lengths[part_lengths > 0]
        size = int(part_lengths.sum())
        has_records = has_records and part.raw.piece > 0
        if size:
            span = slice(token, token + size)
            if part_lengths.max() > MAX_SENTENCE:
                inside = tokens_inside_character(tokenizer)[tokens[span]]
                part_lengths = cut_long_sentence_lengths(part_lengths, inside)
            part_words = None if words is None else words[span]
            splits[part.split].append(
                pack_document(part_lengths, tokens[span], not has_records, part.content_hash, words=part_words)
            )
            if part.raw.piece == 0:
                hashes.append(part.split_hash)
            has_records = True
        if part.raw.last and not has_records:
            rejections.reasons["no tokens"] += 1
        num_sentences, token = num_sentences + part.num_sentences, token + size
    begins_array = np.array(begins_sentence, bool)
    split_sentence = np.unique(np.cumsum(begins_array)[~begins_array | (lengths > MAX_SENTENCE)])
    characters = sum(map(len, sentences))
    compared, changed = _count_changed_characters(sentences, characters, tokenizer)
    counts = DocumentCounts(
        documents=num_documents,
        rejected=dict(rejections.reasons),
        sentences_split=len(split_sentence),
        unknown_tokens=int(np.count_nonzero(tokens == tokenizer.unk_id)),
        characters=characters,
        unknown_characters=_count_unknown_characters(sentences, lengths, tokens, tokenizer),
        compared_characters=compared,
        changed_characters=changed,
        fields=rejections.fields,
        lowest_hashes=heapq.nsmallest(MIN_HELDOUT, hashes),
    )
    records = {name: concatenate_records(packed) for name, packed in splits.items() if packed}
    return EncodedChunk(records, counts)


def tokens_inside_character(tokenizer: Tokenizer) -> np.ndarray:
    """Return, for each token of the vocabulary, whether it begins in the middle of a character: bool `[vocab_size]`.

    A sentence of too many tokens is not cut before a token that begins in the middle of a character.
    """
    parts = steps_of_part(tokenizer.definition.get("pre_tokenizer"))
    letters = _LETTERS if any(part.get("type") == "ByteLevel" for part in parts) else {}
    within = [0x80 <= letters.get(token[:1], 0) < 0xC0 or bool(_BYTE.fullmatch(token)) for token in tokenizer.tokens]
    return np.array(within, bool)


class _ChangedCharacters(NamedTuple):
    """The number of compared characters, and the number of changed characters by kind."""

    num_compared: int
    num_changed: dict[str, int]


def _count_changed_characters(sentences: Sequence[str], characters: int, tokenizer: Tokenizer) -> _ChangedCharacters:
    """Return the number of compared characters, and the number of changed characters by kind.

    A sample of sentences, about `CHANGED_READ` characters, is compared with the normal form. The numbers of changed
    characters are scaled from the sample to all characters. The sample has a sentence from each of several equal
    stretches of the chunk. The offset of the sentence differs between stretches, so that a periodic text, such as
    alternating languages, is sampled evenly.
    """
    count = math.ceil(len(sentences) * min(1.0, CHANGED_READ / max(1, characters)))
    offsets = (np.arange(count) + np.arange(count) * GOLDEN_RATIO % 1) * len(sentences) / max(1, count)
    sampled = [sentences[offset] for offset in offsets.astype(int).tolist()]
    compared = sum(map(len, sampled))
    changed = count_changed_characters(tokenizer, sampled)
    return _ChangedCharacters(
        compared, {kind: round(num_changed * characters / compared) for kind, num_changed in changed.items()}
    )


def _count_unknown_characters(
    sentences: Sequence[str], lengths: np.ndarray, tokens: np.ndarray, tokenizer: Tokenizer
) -> int:
    """Return the number of characters of unknown tokens, estimated from at most `UNKNOWN_READ` sentences."""
    unknown = tokens == tokenizer.unk_id
    with_unknown = np.unique(np.repeat(np.arange(len(lengths)), lengths)[unknown])
    size = min(len(with_unknown), UNKNOWN_READ)
    sampled = with_unknown[np.linspace(0, len(with_unknown), size, endpoint=False).astype(int)]
    characters = num_unknown = 0
    for encoded in tokenizer.encode_with_offsets([sentences[index] for index in sampled.tolist()]):
        for token, (start, end) in zip(encoded.ids, encoded.offsets, strict=True):
            if token == tokenizer.unk_id:
                characters, num_unknown = characters + end - start, num_unknown + 1
    return round(characters * int(np.count_nonzero(unknown)) / max(1, num_unknown))


def sum_document_counts(counts: Iterable[DocumentCounts]) -> DocumentCounts:
    """Return the sum of the counts of blocks or corpora."""
    counts = list(counts)
    rejected: collections.Counter[str] = collections.Counter()
    changed: collections.Counter[str] = collections.Counter()
    for part in counts:
        rejected.update(part.rejected)
        changed.update(part.changed_characters)
    return DocumentCounts(
        documents=sum(part.documents for part in counts),
        rejected=dict(sorted(rejected.items())),
        sentences_split=sum(part.sentences_split for part in counts),
        unknown_tokens=sum(part.unknown_tokens for part in counts),
        characters=sum(part.characters for part in counts),
        unknown_characters=sum(part.unknown_characters for part in counts),
        compared_characters=sum(part.compared_characters for part in counts),
        changed_characters=dict(sorted(changed.items())),
        fields=min((part.fields for part in counts if part.fields), default=""),
        lowest_hashes=heapq.nsmallest(MIN_HELDOUT, (value for part in counts for value in part.lowest_hashes)),
    )


def smallest_fraction_that_holds_out(split_hash: int) -> float:
    """Return the smallest held-out fraction, a multiple of 0.001, that holds out a document with this split hash."""
    return ((split_hash * 1000 >> 64) + 1) / 1000


def has_tokens(text: str, begins_document: bool, tokenizer: Tokenizer, settings: PrepareSettings) -> bool:
    """Return whether the text of a document or piece has at least one token; stop at the first token."""
    prefix = tokenizer.kind.word_prefix
    sentences = split_sentences(text, settings.language, prefix, begins_document, settings.segmenter)
    return any(tokenizer.encode_sentences([sentence])[0] for sentence, _ in sentences)


class EncodedTexts(NamedTuple):
    """The number of ids of each text, the ids of all texts, and the word starts; see `encode_texts`."""

    num_ids: np.ndarray
    ids: np.ndarray
    begins_word: np.ndarray | None


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, segmenter: str = NO_SEGMENTER) -> EncodedTexts:
    """Return the number of ids of each text, the ids of all texts, and the word starts.

    The numbers of ids are int64 [texts], and the ids uint16 or uint32 [ids]. The word starts are bool [ids], True for a
    token that begins a word; None without a segmenter.
    """
    dtype, split_words = token_dtype(tokenizer.vocab_size), load_word_splitter(segmenter)
    lengths, tokens, starts = [np.zeros(0, np.int64)], [np.zeros(0, dtype)], list[bool]()
    for first in range(0, len(texts), SENTENCES_PER_CALL):
        group = texts[first : first + SENTENCES_PER_CALL]
        if split_words:
            encodings = tokenizer.encode_with_offsets(group)
            ids = [encoding.ids for encoding in encodings]
            for text, encoding in zip(group, encodings, strict=True):
                starts += word_starts(text, split_words(text), encoding.offsets)
        else:
            ids = tokenizer.encode_sentences(group)
        lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        tokens.append(np.fromiter(itertools.chain.from_iterable(ids), dtype, int(lengths[-1].sum())))
    return EncodedTexts(
        np.concatenate(lengths), np.concatenate(tokens), np.array(starts, bool) if split_words else None
    )
