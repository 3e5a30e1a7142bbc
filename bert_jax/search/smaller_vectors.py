"""Vectors of documents with fewer numbers or fewer bits per number, and the search in these vectors.

The name of a form is a size, a row of STORED_FORMS, or both, such as `64`, `int8` or `64-int8`. The vectors of queries
stay in float32.
"""

import contextlib
import functools
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError, did_you_mean, refuse_existing_file, writing
from bert_jax.files import new_file
from bert_jax.objectives.vector_scores import Scores, inner_products
from bert_jax.search.top_documents import TopDocuments, top_documents

FLOAT, INT8, BINARY = "float", "int8", "binary"
RESCORED = 4  # candidates of the search by bits for each document of the result
RESCORE_BLOCK = 32  # queries whose candidates are decoded at once
INT8_STEPS = 255
MAX_WIDTH = 1 << 20  # numbers of a vector
CONVERTED_BLOCK = 1 << 14  # vectors of a file that are converted at once


class VectorForm(NamedTuple):
    """A form of stored vectors: its name, the count of numbers per vector (None: all), and its row of STORED_FORMS."""

    name: str
    size: int | None
    stored: str


class Stored(NamedTuple):
    """Stored vectors of documents, and the ranges of their numbers; a form without ranges has an empty array."""

    vectors: np.ndarray
    ranges: np.ndarray


class StoredForm(NamedTuple):
    """A row of STORED_FORMS, with the functions that store vectors in a form and compare the stored vectors.

    Attributes:
        store: function that converts float32 vectors `[documents, width]` to stored vectors.
        prepare: function that converts (float32 vectors of queries `[queries, width]`, ranges) to the first argument of
            `scores`.
        scores: function that returns the scores of prepared queries and stored documents.
        rescore: (float32 vectors of queries, stored vectors of candidates `[queries, candidates, ...]`) -> scores;
            None: the order of `scores` is final.
    """

    store: Callable[[np.ndarray], Stored]
    prepare: Callable[[np.ndarray, np.ndarray], np.ndarray]
    scores: Scores
    rescore: Callable[[Any, Any], jax.Array] | None = None


def quantize_int8(vectors: np.ndarray, ranges: np.ndarray | None = None) -> Stored:
    """Return vectors in int8, `[texts, width]`, and the ranges of their numbers in float32, `[2, width]`.

    For each dimension, the smallest and the largest value over all texts become -128 and 127, as in
    `sentence_transformers.quantize_embeddings`. The argument `ranges` is the result of `number_ranges` for all texts;
    None: `vectors` are the vectors of all texts.
    """
    ranges = number_ranges([vectors]) if ranges is None else ranges
    codes = np.clip(np.floor((vectors - ranges[0]) / int8_step_sizes(ranges)), 0, INT8_STEPS) - 128
    return Stored(codes.astype(np.int8), ranges)


def number_ranges(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the smallest and the largest number of each dimension over blocks of vectors, float32 `[2, width]`."""
    lows, highs = zip(*((block.min(axis=0), block.max(axis=0)) for block in blocks), strict=True)
    return np.stack([np.min(lows, axis=0), np.max(highs, axis=0)]).astype(np.float32)


def int8_step_sizes(ranges: np.ndarray) -> np.ndarray:
    """Return the size of an int8 step for each dimension, float32 `[width]`; it is 1 for a constant dimension."""
    steps = (ranges[1] - ranges[0]) / np.float32(INT8_STEPS)
    return np.where(steps > 0, steps, np.float32(1))


def quantize_binary(vectors: np.ndarray) -> Stored:
    """Return the signs of vectors as bits, uint8 `[texts, ceil(width / 8)]`; a bit is 1 for a number above 0.

    The bytes equal the result of `sentence_transformers.quantize_embeddings` with the precision `ubinary`.
    """
    return Stored(np.packbits(vectors > 0, axis=1), np.zeros(0, np.float32))


def negative_hamming_distance(queries: jax.Array, documents: jax.Array) -> jax.Array:
    """Return the negative number of bits in which each query and each document differ, `[queries, documents]`."""
    queries, documents = (_pack_bytes_into_words(vectors) for vectors in (queries, documents))
    different = jax.lax.population_count(queries[:, None] ^ documents[None])
    return -different.astype(jnp.int32).sum(axis=-1).astype(jnp.float32)


def _pack_bytes_into_words(vectors: jax.Array) -> jax.Array:
    """Return vectors of bytes as vectors of 32-bit words, or unchanged if 4 does not divide the number of bytes."""
    if vectors.shape[1] % 4:
        return vectors
    return jax.lax.bitcast_convert_type(vectors.reshape(len(vectors), -1, 4), jnp.uint32)


@jax.jit
def score_signs(queries: jax.Array, candidates: jax.Array) -> jax.Array:
    """Return the inner products of queries `[queries, width]` and the signs of candidates, where a sign is +1 or -1.

    Args:
        queries: float32 vectors.
        candidates: uint8 `[queries, candidates, bytes]`, from `quantize_binary`.
    """
    bits = jnp.unpackbits(candidates, axis=2, count=queries.shape[1])
    return 2 * jnp.einsum("qw,qcw->qc", queries, bits.astype(jnp.float32)) - queries.sum(axis=1, keepdims=True)


# Name of a form -> functions that store and compare vectors in this form. For int8, the products of the codes with
# (query x step) rank the documents as the products with the decoded vectors do.
STORED_FORMS: dict[str, StoredForm] = {
    FLOAT: StoredForm(
        lambda vectors: Stored(vectors, np.zeros(0, np.float32)), lambda queries, ranges: queries, inner_products
    ),
    INT8: StoredForm(
        quantize_int8,
        lambda queries, ranges: queries * int8_step_sizes(ranges),
        lambda queries, codes: inner_products(queries, codes.astype(jnp.float32)),
    ),
    BINARY: StoredForm(
        quantize_binary,
        lambda queries, ranges: quantize_binary(queries).vectors,
        negative_hamming_distance,
        rescore=score_signs,
    ),
}


def parse_vector_forms(text: str, width: int) -> list[VectorForm]:
    """Return the forms that a text names, such as 'float,int8,binary,64,64-int8'.

    Args:
        text: names of forms, separated by commas.
        width: count of numbers in a vector.

    Raises:
        UserError: a form is unknown, or its size is not from 1 to the width of the vectors.
    """
    return [_parse_vector_form(name.strip(), width) for name in text.split(",") if name.strip()]


def _parse_vector_form(name: str, width: int) -> VectorForm:
    match = re.fullmatch(r"(?:(\d+)(?:-|$))?([a-z]\w*)?", name)
    stored = match and (match[2] or FLOAT)
    if not match or stored not in STORED_FORMS:
        raise UserError(
            f"--vectors {name}: give {', '.join(STORED_FORMS)}, a size such as 64, or both such as "
            f"64-int8{did_you_mean(name, STORED_FORMS)}"
        )
    size = int(match[1]) if match[1] else None
    if size is not None and not 1 <= size <= width:
        raise UserError(
            f"--vectors {name}: the vectors of this model have {width} numbers; give a size from 1 to {width}"
        )
    return VectorForm(name, size, stored)


def truncate_vectors(vectors: np.ndarray, size: int | None, normalize: bool) -> np.ndarray:
    """Return vectors cut to `size` numbers (None: uncut); if `normalize`, scale cut vectors to length 1."""
    if size is None or size == vectors.shape[1]:
        return vectors
    vectors = vectors[:, :size]
    if not normalize:
        return vectors
    lengths: np.ndarray = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit_vectors: np.ndarray = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit_vectors


def check_embed_form(name: str, output: str, projector: str | None) -> None:
    """Raise UserError if `embed` cannot write a form of vectors; the size is checked when the width is known."""
    if len(parse_vector_forms(name, MAX_WIDTH)) != 1:
        raise UserError(f"--vectors {name}: a file has one form; give one such as 64-int8")
    if projector or not output.endswith(".npy"):
        raise UserError("--vectors is for vectors of texts in a .npy file, without --projector and --pooling tokens")


@contextlib.contextmanager
def float_vectors_file_to_convert(output: pathlib.Path, name: str | None) -> Iterator[pathlib.Path]:
    """Yield the path of a `.npy` file for float vectors; on exit, write the vectors in the form `name` to `output`.

    Shortened vectors are scaled to length 1 if all vectors of the float file have length 1. Ranges of int8 are written
    beside the output as `NAME.ranges.npy`.

    Args:
        output: `.npy` file to create.
        name: name of a form, as in `parse_vector_forms`; None: the float vectors are written to the output.

    Raises:
        UserError: a file to write exists; without `name`, the caller checks the output.
    """
    if name is None:
        yield output
        return
    refuse_existing_file(output)
    if parse_vector_forms(name, MAX_WIDTH)[0].stored == INT8:
        refuse_existing_file(_ranges_file(output))
    with contextlib.ExitStack() as stack:
        with writing(output, "make room, or choose another --output"):
            directory = stack.enter_context(
                tempfile.TemporaryDirectory(".partial", f".{output.name}.", output.absolute().parent)
            )
        path = pathlib.Path(directory, "vectors.npy")
        yield path
        _convert_vectors_file(path, output, name)


def _ranges_file(output: pathlib.Path) -> pathlib.Path:
    """Return the file for the ranges of int8 vectors in the file `output`."""
    return output.with_suffix(".ranges.npy")


def _convert_vectors_file(path: pathlib.Path, output: pathlib.Path, name: str) -> None:
    """Write the float vectors of the `.npy` file `path` in the form `name` to `output`, block by block.

    If a form has ranges, the vectors are read twice: for the ranges, then for the conversion.
    """
    vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    (form,) = parse_vector_forms(name, vectors.shape[1])
    blocks = [vectors[start : start + CONVERTED_BLOCK] for start in range(0, len(vectors), CONVERTED_BLOCK)]
    are_units = all(np.allclose(np.linalg.norm(block, axis=1), 1, atol=1e-4) for block in blocks)

    def short_blocks() -> Iterator[np.ndarray]:
        return (truncate_vectors(block, form.size, are_units) for block in blocks)

    store = STORED_FORMS[form.stored].store
    ranges: np.ndarray | None = None
    if form.stored == INT8:
        ranges = number_ranges(short_blocks())
        store = functools.partial(quantize_int8, ranges=ranges)
    advice = "make room, or choose another --output"
    with writing(output, advice), new_file(output, binary=True) as file:
        for index, stored in enumerate(store(block).vectors for block in short_blocks()):
            if index == 0:
                header = np.lib.format.header_data_from_array_1_0(stored)
                np.lib.format.write_array_header_1_0(file, header | {"shape": (len(vectors), stored.shape[1])})
            file.write(np.ascontiguousarray(stored).data)
    if ranges is not None:
        target = _ranges_file(output)
        with writing(target, advice), new_file(target, binary=True) as file:
            np.save(file, ranges)


def search_stored(form: StoredForm, queries: np.ndarray, stored: Stored, depth: int) -> TopDocuments:
    """Return the best documents of each query, found in stored vectors by the search of a row of STORED_FORMS.

    Args:
        form: a row of STORED_FORMS.
        queries: float32 `[queries, width]`.
        stored: the documents, from `form.store`.
        depth: number of best documents for each query.
    """
    prepared = form.prepare(queries, stored.ranges)
    if form.rescore is None:
        return top_documents(prepared, stored.vectors, depth, form.scores)
    candidates = top_documents(prepared, stored.vectors, RESCORED * depth, form.scores).indices
    return _rescore_candidates(form.rescore, queries, stored.vectors, np.sort(candidates, axis=1), depth)


def _rescore_candidates(
    rescore: Callable[[Any, Any], jax.Array],
    queries: np.ndarray,
    documents: np.ndarray,
    candidates: np.ndarray,
    depth: int,
) -> TopDocuments:
    """Return the `depth` best of the candidates `[queries, candidates]` of each query, ranked by `rescore`."""
    depth = min(depth, len(documents))
    scores, indices = [], []
    for start in range(0, len(queries), RESCORE_BLOCK):
        of_block = candidates[start : start + RESCORE_BLOCK]
        values, columns = jax.lax.top_k(rescore(queries[start : start + RESCORE_BLOCK], documents[of_block]), depth)
        scores.append(np.asarray(values))
        indices.append(np.take_along_axis(of_block, np.asarray(columns), axis=1))
    return TopDocuments(np.concatenate(scores), np.concatenate(indices))
