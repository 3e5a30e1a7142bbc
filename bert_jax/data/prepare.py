"""Documents -> corpus: sentences, token ids, records; on all cores, in the order of the input, in bounded memory."""

import collections
import concurrent.futures
import concurrent.futures.process
import contextlib
import functools
import hashlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencex

from bert_jax.data import corpus, sources
from bert_jax.data.corpus import CorpusWriter, Packed
from bert_jax.data.sources import Document
from bert_jax.data.tokenizer import Tokenizer, cut_text, load_tokenizer, save, train_wordpiece
from bert_jax.errors import UserError, writing

HELDOUT_SHARE = 0.02
UNIT_CHARACTERS = 1 << 20  # of text that a worker gets at once
CHARACTERS_AT_ONCE = 1 << 20  # that are parted into sentences in one call
SENTENCES_AT_ONCE = 2048  # that the library encodes in one call
UNITS_IN_FLIGHT = 3  # a worker: one in work, one waiting, one done and waiting for its turn
MANY_UNKNOWN = 0.05

Progress = Callable[[int, int, int], None]


class Counts(NamedTuple):
    """What the manifest reports beside the sizes of the splits."""

    no_tokens: int = 0  # documents
    sentences_split: int = 0  # sentences that were cut because they exceed MAX_TEXT characters or MAX_SENTENCE tokens
    unknown_tokens: int = 0


class Encoded(NamedTuple):
    """A unit of documents, ready to be written."""

    splits: dict[str, Packed]
    counts: Counts


class Unit(NamedTuple):
    """Documents that are encoded together, and where the input stood after them."""

    texts: list[str]
    bytes_read: int
    documents: int


def train_tokenizer(
    inputs: Sequence[str],
    vocab_size: int,
    output: str | os.PathLike[str],
    lowercase: bool = True,
    kind: str = "wordpiece",
    encoding_errors: str = "reject",
) -> str:
    """Trains a vocabulary on the inputs (see `sources.documents`) and saves it in `output`.

    Returns:
        One line that says what was made.

    Raises:
        UserError: an unknown kind, an output that holds something, and as `train_wordpiece` and `sources`.
    """
    if kind != "wordpiece":
        raise UserError(f"--kind {kind}: not known; the one kind so far is wordpiece")
    corpus.check_output(output)
    rejected: collections.Counter[str] = collections.Counter()

    def texts() -> Iterator[str]:
        rejected.clear()
        for document in sources.documents(inputs, "file", encoding_errors):
            if document.rejected:
                rejected[document.rejected] += 1
            else:
                yield document.text

    try:
        tokenizer = train_wordpiece(texts, vocab_size, lowercase)
    except UserError as error:
        raise UserError(f"{error}{_left_out(rejected)}") from None
    with writing(output):
        save(tokenizer, output)
    case = "uncased" if lowercase else "cased"
    return f"{tokenizer.vocab_size:,} tokens, {case}, sha256 {tokenizer.sha256[:12]}, in {output}{_left_out(rejected)}"


def prepare(
    inputs: Sequence[str],
    tokenizer_directory: str | os.PathLike[str],
    output: str | os.PathLike[str],
    documents: str = "file",
    workers: int | None = None,
    heldout_share: float = HELDOUT_SHARE,
    encoding_errors: str = "reject",
    language: str = "en",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Makes the corpus `output` from text; the same input gives the same bytes for any number of workers.

    Args:
        inputs, documents, encoding_errors: as in `sources.documents`.
        tokenizer_directory: for `load_tokenizer`; its files are copied into the corpus.
        workers: processes that encode; None takes one a core, 1 works in this process.
        heldout_share: of the documents, chosen by a hash of their text, so that equal texts fall on one side.
        language: ISO 639 code whose rules part the sentences.
        progress: called with (bytes of input read, bytes in all, documents done).

    Returns:
        The manifest. `manifest['documents']` has {in, stored, rejected: {reason: n}}, where in = stored + the sum of
        rejected; `manifest['warnings']` has lines to show.

    Raises:
        UserError: bad input, tokenizer or output; no document, or one training document alone.
    """
    if not 0 <= heldout_share < 1:
        raise UserError(f"--heldout_share {heldout_share}: give a share from 0 to below 1")
    workers = workers or os.cpu_count() or 1
    if workers < 1:
        raise UserError(f"--workers {workers}: give at least 1")
    tokenizer = load_tokenizer(tokenizer_directory)
    files = sources.find_files(inputs)
    all_bytes = sources.total_bytes(files)
    rejected: collections.Counter[str] = collections.Counter()
    counts = Counts()
    found = 0
    with CorpusWriter(output, corpus.token_dtype(tokenizer.vocab_size)) as writer:
        units = _units(sources.documents(files, documents, encoding_errors), rejected)
        encode = functools.partial(_encode, language=language, heldout_share=heldout_share)
        with contextlib.closing(_encode_all(units, tokenizer, encode, workers)) as results:
            for unit, encoded in results:
                for split, packed in encoded.splits.items():
                    writer.write(split, packed)
                counts = Counts(*(a + b for a, b in zip(counts, encoded.counts, strict=True)))
                found = unit.documents
                if progress:
                    progress(unit.bytes_read, all_bytes, found)
        if counts.no_tokens:
            rejected["no tokens"] = counts.no_tokens
        totals = {split: writer.totals(split) for split in corpus.SPLITS}
        facts = {
            "tokenizer": {
                "kind": tokenizer.kind.name,
                "sha256": tokenizer.sha256,
                "vocab_size": tokenizer.vocab_size,
                "lowercase": tokenizer.lowercase,
            },
            "settings": {
                "documents": documents,
                "encoding_errors": encoding_errors,
                "heldout_share": heldout_share,
                "language": language,
                "max_record": corpus.MAX_RECORD,
                "max_sentence": corpus.MAX_SENTENCE,
            },
            **_account(totals, rejected, counts, found),
        }
        with writing(output):
            save(tokenizer, writer.tokenizer_directory)
        return writer.commit(facts)


def describe(rejected: Mapping[str, int]) -> str:
    """`2 binary, 1 empty`, the commonest first."""
    return ", ".join(f"{n:,} {reason}" for reason, n in sorted(rejected.items(), key=lambda item: (-item[1], item[0])))


def _left_out(rejected: Mapping[str, int]) -> str:
    return f"; left out {describe(rejected)}" if rejected else ""


def summary(manifest: Mapping[str, Any], output: str | os.PathLike[str]) -> str:
    """Three lines of a manifest: where every document went, what each split holds, what was changed on the way."""
    documents, splits = manifest["documents"], manifest["splits"]
    held = ", ".join(
        f"{name} {split['documents']:,} documents / {split['sentences']:,} sentences / {split['tokens']:,} tokens"
        for name, split in splits.items()
    )
    return (
        f"{output}: {documents['in']:,} documents in = {documents['stored']:,} stored + "
        f"{sum(documents['rejected'].values()):,} rejected ({describe(documents['rejected']) or 'none'})\n"
        f"{held}\n"
        f"{manifest['unknown_token_share']:.2%} of the tokens unknown, "
        f"{manifest['sentences_split']:,} overlong sentences cut in pieces"
    )


def _account(
    totals: Mapping[str, Mapping[str, int]], rejected: Mapping[str, int], counts: Counts, found: int
) -> dict[str, Any]:
    """The counts of the manifest, and the refusal of what no model can be trained on."""
    train, heldout = (totals[split]["documents"] for split in corpus.SPLITS)
    stored = train + heldout
    left_out = describe(rejected) or "none rejected"
    assert found == stored + sum(rejected.values()), f"{found} documents in, {stored} stored, {rejected} rejected"
    if not stored:
        raise UserError(
            f"0 of {found:,} documents could be used: {left_out}; give UTF-8 text, or --encoding_errors replace"
        )
    if train < 2:
        raise UserError(
            f"{train} training document ({heldout} held out, {left_out}): next-sentence prediction draws from another"
            " document; give more files, or part these with --documents blank-line or line"
        )
    tokens, sentences = (sum(split[unit] for split in totals.values()) for unit in ("tokens", "sentences"))
    warnings = []
    if sentences == stored:
        warnings.append(
            "every document is one sentence, so every pair will be a random one; join lines that belong together"
        )
    if not heldout:
        warnings.append(
            "no document fell on the held-out side, so there is nothing to evaluate on; raise --heldout_share"
        )
    if counts.unknown_tokens > MANY_UNKNOWN * tokens:
        warnings.append(f"{counts.unknown_tokens / tokens:.1%} of the tokens are [UNK]: a tokenizer for another text?")
    return {
        "documents": {"in": found, "stored": stored, "rejected": dict(sorted(rejected.items()))},
        "sentences_split": counts.sentences_split,
        "sentences_per_document": round(sentences / stored, 3),
        "unknown_token_share": round(counts.unknown_tokens / tokens, 6),
        "warnings": warnings,
    }


def _units(documents: Iterable[Document], rejected: collections.Counter[str]) -> Iterator[Unit]:
    """Groups texts by `UNIT_CHARACTERS` and counts what is rejected. The last unit may be without texts."""
    texts: list[str] = []
    size = found = bytes_read = 0
    for document in documents:
        found += 1
        bytes_read = document.bytes_read
        if document.rejected:
            rejected[document.rejected] += 1
            continue
        texts.append(document.text)
        size += len(document.text)
        if size >= UNIT_CHARACTERS:
            yield Unit(texts, bytes_read, found)
            texts, size = [], 0
    yield Unit(texts, bytes_read, found)


def _encode(texts: Sequence[str], tokenizer: Tokenizer, language: str, heldout_share: float) -> Encoded:
    """Sentences, ids and records of some documents."""
    pieces_of: list[int] = []
    pieces: list[str] = []
    cut = 0
    for text in texts:
        before = len(pieces)
        for sentence in _sentences(text, language):
            if not sentence.isspace():
                parts = list(cut_text(sentence))
                cut += len(parts) > 1
                pieces += parts
        pieces_of.append(len(pieces) - before)
    lengths, tokens = _ids(pieces, tokenizer)
    splits: dict[str, list[Packed]] = {split: [] for split in corpus.SPLITS}
    no_tokens = 0
    piece = token = 0
    for text, number in zip(texts, pieces_of, strict=True):
        own = lengths[piece : piece + number]
        own = own[own > 0]
        size = int(own.sum())
        cut += int((own > corpus.MAX_SENTENCE).sum())
        if size:
            split = "heldout" if is_heldout(text, heldout_share) else "train"
            splits[split].append(corpus.pack_document(corpus.cut_sentences(own), tokens[token : token + size]))
        no_tokens += not size
        piece, token = piece + number, token + size
    packed = {split: corpus.concatenate(parts) for split, parts in splits.items() if parts}
    return Encoded(packed, Counts(no_tokens, cut, int((tokens == tokenizer.unk_id).sum())))


def _sentences(text: str, language: str) -> Iterator[str]:
    """The sentences of a text, of a large one in stretches between paragraphs.

    The library's time grows with the square of a paragraph's length, so an overlong paragraph is cut at spaces; the
    sentence that lies across a cut is found whole, but for some that quotations hold together.
    """
    start, head, rest = 0, "", ""
    while start < len(text):
        end = start + CHARACTERS_AT_ONCE
        if end < len(text):
            paragraph, word = text.rfind("\n\n", start + 1, end), text.rfind(" ", start, end) + 1
            end = next((place for place in (paragraph, word) if place > start), end)
        *whole, rest = sentencex.segment(language, rest + text[start:end]) or [""]
        if end >= len(text) or text.startswith("\n\n", end):
            whole, rest = [*whole, rest], ""
        if whole:
            yield head + whole[0]
            yield from whole[1:]
            head = ""
        else:  # no sentence ends in this stretch: it is not read again
            head, rest = head + rest, ""
        start = end


def _ids(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """The number of ids of each text, int64 [texts], and all ids, uint16 or uint32 [sum of those]."""
    dtype = corpus.token_dtype(tokenizer.vocab_size)
    lengths, tokens = [np.zeros(0, np.int64)], [np.zeros(0, dtype)]
    for start in range(0, len(texts), SENTENCES_AT_ONCE):
        ids = tokenizer.encode_sentences(texts[start : start + SENTENCES_AT_ONCE])
        lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        tokens.append(np.fromiter(itertools.chain.from_iterable(ids), dtype, int(lengths[-1].sum())))
    return np.concatenate(lengths), np.concatenate(tokens)


def is_heldout(text: str, share: float) -> bool:
    """Whether a document is held out: the same for equal texts, whatever else the corpus holds."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def _encode_all(
    units: Iterator[Unit], tokenizer: Tokenizer, encode: Callable[..., Encoded], workers: int
) -> Generator[tuple[Unit, Encoded]]:
    """Each unit with its result, in order, computed by that many processes, with few units in memory."""
    if workers == 1:
        for unit in units:
            yield unit._replace(texts=[]), encode(unit.texts, tokenizer)
        return
    executor = concurrent.futures.ProcessPoolExecutor(
        workers,
        # Spawned: a fork copies the locks of the library's threads as they happen to be.
        multiprocessing.get_context("spawn"),
        _start_worker,
        (tokenizer, encode),
    )
    waiting: collections.deque[tuple[Unit, concurrent.futures.Future[Encoded]]] = collections.deque()
    try:
        for unit in units:
            waiting.append((unit._replace(texts=[]), executor.submit(_work, unit.texts)))
            if len(waiting) >= UNITS_IN_FLIGHT * workers:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    except concurrent.futures.process.BrokenProcessPool:
        raise UserError("a worker process was killed, perhaps for want of memory; try fewer --workers") from None
    finally:
        executor.shutdown(cancel_futures=True)


_worker_encode: Callable[[Sequence[str]], Encoded]


def _start_worker(tokenizer: Tokenizer, encode: Callable[..., Encoded]) -> None:
    global _worker_encode
    # Built anew: the library's tokenizers lose `encode_special_tokens` on their way to another process.
    _worker_encode = functools.partial(encode, tokenizer=tokenizer)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _work(texts: Sequence[str]) -> Encoded:
    return _worker_encode(texts)
