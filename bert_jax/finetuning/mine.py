"""The main function of `bert-jax mine`: from pairs of texts and documents to pairs with hard negatives."""

import contextlib
import fcntl
import functools
import hashlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from bert_jax import __version__, errors, strict_json
from bert_jax.checkpoints.load_model import OpenModel, open_model, weights_digest
from bert_jax.corpus.build.corpus_writer import write_json
from bert_jax.corpus.build.passes import FinishedBlocks
from bert_jax.errors import UserError, check_not_input
from bert_jax.files import local_path, new_file, read_file, sha256_of
from bert_jax.finetuning.negatives import (
    NegativeRule,
    QueryAndPositive,
    choose_negatives,
    retrieve_candidates,
    retriever_by_bm25,
    retriever_by_vectors,
    without_extra_spaces,
)
from bert_jax.inference.cross_encoder import make_cross_encoder_scorer
from bert_jax.inference.embed import HEADS
from bert_jax.inference.inputs import Input, read_inputs, texts_by_key
from bert_jax.inference.predict import make_predictor
from bert_jax.scoring.retrieval_files import CorpusDocument, read_corpus_documents
from bert_jax.search.bm25 import make_bm25_scorer
from bert_jax.search.text_vectors import DOCUMENTS, text_vectors
from bert_jax.search.top_documents import DOCUMENT_BLOCK
from bert_jax.tasks.kinds.records import NEGATIVE, SCORES

PAIR_BLOCK = 2_048  # pairs whose negatives are written at once
VECTORS, LINES = "vectors", "jsonl"  # parts of finished blocks
JOINED = "all.vectors"

PathLike = str | os.PathLike[str]
Progress = Callable[[str, int, int], None]


class MinedCounts(NamedTuple):
    """Numbers of written pairs, of pairs without enough negatives, and of repeated and empty documents."""

    written: int
    without_enough: int
    repeated: int
    empty: int


def mine_negatives(
    pairs: PathLike,
    corpus: PathLike,
    output: PathLike,
    *,
    model: PathLike | None = None,
    ranks: tuple[int, int] = (10, 50),
    margin: float | None = None,
    num_negatives: int = 1,
    cross_encoder: PathLike | None = None,
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
    progress: Progress = lambda task, num_done, total: None,
) -> MinedCounts:
    """Write pairs of texts with hard negatives, as JSON lines that a fine-tuning of sentence vectors reads.

    A negative is a document that ranks high for the query and is not one of its positives. A document that equals the
    query, or equals or contains a positive of the pair, is never a negative; the comparison ignores extra spaces.
    A pair for which too few documents remain is left out and counted. The search is exact. Memory holds all texts, and
    the scores of a single block of pairs. If a call is killed, its finished blocks are kept; the same call then
    continues, and the output has the same bytes as without the interruption.

    Args:
        pairs: file of JSON lines with `text`, a query, and `text_pair`, its positive.
        corpus: the documents, as in `read_corpus_documents`.
        output: .jsonl file to create.
        model: model whose vectors are compared; None: BM25.
        ranks: the first rank of negatives and the rank after the last, counted from 0 after positives are left out.
        margin: documents whose score exceeds the score of the positive minus this number are skipped; None: no limit.
        num_negatives: negatives of a pair, drawn at random from the remaining documents.
        cross_encoder: fine-tuned model that scores pairs; its scores are compared with the margin and written as
            `scores`.
        seed: seed of the draw.
        say: function that prints a line.
        progress: called with the name of the work, the number of finished items and the number of all items.

    Raises:
        UserError: a file is malformed, the ranks are no range, BM25 needs the score of a positive that is not in the
            corpus, or no pair has enough negatives.
    """
    output = local_path(output)
    if len(ranks) != 2:
        raise UserError(f"ranks={ranks}: give two ranks, such as (10, 50)")
    rule = NegativeRule(*ranks, margin, num_negatives, seed)
    if not 0 <= rule.first < rule.end or not 1 <= num_negatives <= rule.end - rule.first:
        raise UserError(
            f"--ranks {rule.first}:{rule.end} and --number {num_negatives}: give a range such as 10:50, and from 1 to "
            "as many negatives as the range has ranks"
        )
    if margin is not None and not math.isfinite(margin):
        raise UserError(f"--margin {margin}: give a finite number, or leave it out")
    if output.suffix not in (".jsonl", ".json"):
        raise UserError(f"--output {output}: give the name of a .jsonl file; negatives are written as JSON lines")
    check_not_input(output, [pairs], "--pairs")
    check_not_input(output, [corpus, *pathlib.Path(corpus).glob("corpus.jsonl*")], "--corpus")
    lines, read = _read_pairs(pathlib.Path(pairs)), read_corpus_documents(pathlib.Path(corpus))
    texts = [QueryAndPositive(line.fields["text"], line.fields["text_pair"]) for line in lines]
    documents = [text for text in dict.fromkeys(document.title_and_text for document in read) if text.strip()]
    if not documents:
        raise UserError(f"{corpus}: no document has a text; give other documents")
    num_empty = sum(not document.title_and_text.strip() for document in read)
    positions = _positions_of_texts(documents, read)
    opened = None if model is None else open_model(model, HEADS)
    if opened and not opened.sentences.has_pooling:
        raise UserError(f"{model}: has no dense vectors, which --model compares; give another model, or --bm25")
    needs_positive = opened is None and margin is not None and cross_encoder is None
    for line, pair in zip(lines, texts, strict=True):
        if needs_positive and without_extra_spaces(pair.positive) not in positions:
            raise UserError(
                f"{line.where}: text_pair is no document of {corpus}, so BM25 has no score for --margin; add the "
                "document, or leave out --margin"
            )
    judge = None if cross_encoder is None else open_model(cross_encoder)
    predictor = make_predictor(judge) if judge else None
    scores_of_pairs = make_cross_encoder_scorer(predictor) if predictor else None
    excluded = _excluded_documents(texts, positions)

    def position_of(text: str) -> int | None:
        return min(positions.get(without_extra_spaces(text), ()), default=None)

    identity = {
        "the pairs": sha256_of(pairs),
        "the corpus": _texts_digest([text for document in read for text in document]),
        "the model": opened and [*_identity_of_model(opened), repr(opened.sentences)],
        "the cross-encoder": judge
        and predictor
        and [*_identity_of_model(judge), repr((judge.labels, judge.activation, predictor.settings))],
        "the settings": [*rule],
        "the program": [__version__, DOCUMENT_BLOCK, PAIR_BLOCK],
    }

    with _open_blocks_of_earlier_call(output, identity, say) as (embedded, mined):
        if opened:
            _embed_unfinished_documents(embedded, opened, documents, progress)
            retrieve = retriever_by_vectors(opened, _join_and_map_vectors(embedded, len(documents)), position_of)
        else:
            retrieve = retriever_by_bm25(make_bm25_scorer(documents), position_of)
        for first in range(0, len(texts), PAIR_BLOCK):
            key, block = (0, first // PAIR_BLOCK), slice(first, min(first + PAIR_BLOCK, len(texts)))
            progress("mining", first, len(texts))
            if key in mined.records:
                continue
            candidates = retrieve_candidates(retrieve, rule, texts[block], excluded[block], documents)
            chosen = choose_negatives(
                rule,
                range(len(texts))[block],
                texts[block],
                candidates,
                excluded[block],
                documents,
                scores_of_pairs,
            )
            written = [
                strict_json.json_line(
                    {
                        **line.fields,
                        NEGATIVE: [documents[index] for index in negatives.indices],
                        **({SCORES: negatives.scores} if negatives.scores else {}),
                    }
                )
                + "\n"
                for line, negatives in zip(lines[block], chosen, strict=True)
                if negatives is not None
            ]
            mined.create_files_of_block(key, [LINES])
            mined.append(key, {LINES: "".join(written).encode()})
            mined.finish(key, block.stop == len(texts), written=len(written))
        num_written = sum(record["written"] for record in mined.records.values())
        if num_written:
            with mined.writing(), new_file(output, binary=True) as file:
                for key in mined.in_order():
                    file.write(mined.path(key, LINES).read_bytes())
    if not num_written:
        shared = "" if opened else " that share words with the queries"  # BM25 ranks no other documents
        raise UserError(
            f"no pair has {num_negatives} negative{'s' * (num_negatives > 1)}; give more documents{shared}, other "
            "--ranks or a smaller --margin"
        )
    return MinedCounts(num_written, len(texts) - num_written, len(read) - num_empty - len(documents), num_empty)


def _read_pairs(path: pathlib.Path) -> list[Input]:
    """Return the lines of a file of pairs; raise UserError for a line that is no pair of texts that belong together."""
    lines = []
    for line in read_inputs(path):
        texts = texts_by_key(line, ("text", "text_pair"))
        if "text_pair" not in texts or not all(text.strip() for text in texts.values()):
            raise UserError(f"{line.where}: needs text and text_pair, neither of them empty")
        for field in ("label", NEGATIVE, SCORES):
            if field in line.fields:
                raise UserError(f"{line.where}: has {field}; give pairs that belong together, without this field")
        lines.append(line)
    if not lines:
        raise UserError(f"{path} holds no pair")
    return lines


def _positions_of_texts(documents: Sequence[str], read: Iterable[CorpusDocument]) -> Mapping[str, Set[int]]:
    """Return text without extra spaces -> indices in `documents` of the documents with this text.

    Both the text alone and the text after its title lead to a document, because a pair may have one of the two texts.
    """
    index_of = {text: index for index, text in enumerate(documents)}
    positions: dict[str, set[int]] = {}
    for document in read:
        if (index := index_of.get(document.title_and_text)) is not None:
            for text in document:
                positions.setdefault(without_extra_spaces(text), set()).add(index)
    return positions


def _excluded_documents(pairs: Sequence[QueryAndPositive], positions: Mapping[str, Set[int]]) -> list[Set[int]]:
    """Return, for each pair, the documents that equal the query or a positive of any pair with this query."""
    of_query: dict[str, set[int]] = {}
    for pair in pairs:
        equal = of_query.setdefault(without_extra_spaces(pair.query), set())
        equal.update(*(positions.get(without_extra_spaces(text), ()) for text in pair))
    return [of_query[without_extra_spaces(pair.query)] for pair in pairs]


def _embed_unfinished_documents(
    finished: FinishedBlocks, model: OpenModel, documents: Sequence[str], progress: Progress
) -> None:
    """Write the vectors of the documents, in blocks of DOCUMENT_BLOCK; skip finished blocks."""
    for first in range(0, len(documents), DOCUMENT_BLOCK):
        progress("embedding documents", first, len(documents))
        key, texts = (0, first // DOCUMENT_BLOCK), documents[first : first + DOCUMENT_BLOCK]
        if key not in finished.records:
            vectors = np.asarray(text_vectors(model, texts, DOCUMENTS).vectors, np.float32)
            finished.create_files_of_block(key, [VECTORS])
            finished.append(key, {VECTORS: vectors.tobytes()})
            finished.finish(key, first + len(texts) == len(documents))


def _join_and_map_vectors(finished: FinishedBlocks, num_documents: int) -> np.ndarray:
    """Return the vectors of all documents, float32 `[documents, width]`, mapped from one file."""
    path = finished.directory / JOINED
    with finished.writing(), path.open("wb") as file:
        for key in finished.in_order():
            file.write(finished.path(key, VECTORS).read_bytes())
    return np.memmap(path, np.float32, "r").reshape(num_documents, -1)


def _identity_of_model(opened: OpenModel) -> list[str]:
    """Return a digest of all weights, the architecture, and a digest of the tokenizer."""
    return [weights_digest({"encoder": opened.params}), repr(opened.config), opened.tokenizer.sha256]


def _texts_digest(texts: Sequence[str]) -> str:
    """Return the hex SHA-256 of texts."""
    sha256 = hashlib.sha256()
    for text in texts:
        sha256.update(json.dumps(text).encode())
    return sha256.hexdigest()


class _BlocksOfBothPasses(NamedTuple):
    """The finished blocks of both passes: the embedding of documents, and the search for negatives."""

    embedded: FinishedBlocks
    mined: FinishedBlocks


@contextlib.contextmanager
def _open_blocks_of_earlier_call(
    output: pathlib.Path, identity: Mapping[str, Any], say: Callable[[str], None]
) -> Iterator[_BlocksOfBothPasses]:
    """Yield the blocks that an earlier, killed call with equal `identity` finished in the directory `.NAME.incomplete`.

    The directory is removed at the end, and also after an error before the first finished block.
    """
    directory = output.absolute().parent / f".{output.name}.incomplete"
    writing = functools.partial(errors.writing, output, "make room, or choose another --output")
    passes = _BlocksOfBothPasses(*(FinishedBlocks(directory / name, writing) for name in ("documents", "pairs")))
    with writing():
        directory.mkdir(exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
    try:
        # The system releases the lock at any end of the process.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UserError(f"{output}: another process is writing this file; wait for its end") from None
    is_done = False
    try:
        identity, plan = json.loads(json.dumps(identity)), directory / "plan.json"
        before = None
        with contextlib.suppress(OSError, ValueError):
            before = strict_json.parse(read_file(plan).decode())
        if before == identity:
            for blocks in passes:
                blocks.resume()
        elif isinstance(before, dict):
            changed = [name for name, value in identity.items() if before.get(name) != value]
            say(f"{output}: starts over, as {' and '.join(changed)} changed since it was interrupted")
        if num_finished := sum(len(blocks.records) for blocks in passes):
            say(f"{output}: resumes after {num_finished} finished blocks of an interrupted call")
        else:
            with writing():
                for blocks in passes:
                    shutil.rmtree(blocks.directory, ignore_errors=True)
                write_json(plan, identity)
        yield passes
        is_done = True
    finally:
        if is_done or not any(blocks.records for blocks in passes):
            shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)
