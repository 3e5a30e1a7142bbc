"""Documents -> corpus: sentences, token ids, records; on all cores, in the order of the input, in bounded memory."""

import collections
import concurrent.futures
import hashlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import sentencex

from bert_jax.data import corpus, sources
from bert_jax.data.corpus import CorpusWriter, Packed
from bert_jax.data.tokenizer import Tokenizer, cut_text, load_tokenizer, save, train_wordpiece
from bert_jax.errors import UserError

HELDOUT_SHARE = 0.02
UNIT_CHARACTERS = 1 << 20  # of text that a worker gets at once
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

    tokenizer = train_wordpiece(texts, vocab_size, lowercase)
    save(tokenizer, output)
    left_out = f"; left out {describe(rejected)}" if rejected else ""
    case = "uncased" if lowercase else "cased"
    return f"{tokenizer.vocab_size:,} tokens, {case}, sha256 {tokenizer.sha256[:12]}, in {output}{left_out}"


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
    tokenizer = load_tokenizer(tokenizer_directory)
    files = sources.find_files(inputs)
    all_bytes = sources.total_bytes(files)
    rejected: collections.Counter[str] = collections.Counter()
    totals = Counts()
    found = 0
    with CorpusWriter(output, corpus.token_dtype(tokenizer.vocab_size)) as writer:
        units = _units(sources.documents(files, documents, encoding_errors), rejected)
        for unit, encoded in _encode_all(units, tokenizer, language, heldout_share, workers):
            for split, packed in encoded.splits.items():
                writer.write(split, packed)
            totals = Counts(*(a + b for a, b in zip(totals, encoded.counts, strict=True)))
            found = unit.documents
            if progress:
                progress(unit.bytes_read, all_bytes, found)
        rejected += collections.Counter({"no tokens": totals.no_tokens})
        save(tokenizer, writer.tokenizer_directory)
        facts = {
            "tokenizer": {
                "kind": "wordpiece",
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
        }
        return writer.commit(facts | _account(writer.totals(), rejected, totals, found, documents))
