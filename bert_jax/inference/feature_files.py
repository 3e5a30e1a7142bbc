"""Files of features. The texts can be written in any order. A file is not held in memory, except a `.npz` file.

A `.npy` file has vectors of texts; a `.safetensors` file has features of tokens; `.jsonl` and `.npz` files have sparse
vectors. A file appears only when it is complete. Files are written with seek and write, so that a full disk raises an
error; with a memory map, a full disk would end the process. The files of TensorBoard's embedding projector are made
from a `.npy` file.
"""

import contextlib
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import scipy.sparse

from bert_jax.errors import UserError, refuse_existing_file, writing
from bert_jax.files import new_directory, new_file
from bert_jax.inference.inputs import STDIN, TEXT, read_texts
from bert_jax.inference.vectors import SparseVectors

# (index of a text, its ids int32 [tokens], its features float32 [width] or [at least tokens, width])
PutFeatures = Callable[[int, np.ndarray, np.ndarray], None]

VECTORS, METADATA = "vectors.tsv", "metadata.tsv"
EMPTY = "(empty)"  # written for an empty text, since the projector skips empty lines and would shift later lines
PROJECTOR_CONFIG = f"""embeddings {{
  tensor_name: "vectors"
  tensor_path: "{VECTORS}"
  metadata_path: "{METADATA}"
}}
"""

SPARSE_SUFFIXES = (".jsonl", ".npz")
WEIGHT_DIGITS = 6  # digits after the decimal point of weights in JSON
SAFETENSORS_NAMES = {"int64": "I64", "float32": "F32", "int32": "I32"}


@contextlib.contextmanager
def vector_file_writer(path: pathlib.Path, lengths: np.ndarray, width: int) -> Iterator[PutFeatures]:
    """Open a `.npy` file, float32 `[len(lengths), width]`, and yield the function that fills it."""
    with _new_output_file(path, ".npy") as file:
        shape = (len(lengths), width)
        header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        file.truncate(start + 4 * math.prod(shape))

        def write_vector(text_index: int, input_ids: np.ndarray, values: np.ndarray) -> None:
            _write_array(file, start, text_index * width, values.astype("<f4"))

        yield write_vector


@contextlib.contextmanager
def token_file_writer(path: pathlib.Path, lengths: np.ndarray, width: int) -> Iterator[PutFeatures]:
    """Open a `.safetensors` file for texts with `lengths` tokens, and yield the function that fills it.

    The file holds `features` float32 `[tokens, width]`, `input_ids` int32 `[tokens]` and `offsets` int64 `[texts + 1]`:
    the index of the first token of each text and, as the last element, the number of all tokens.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    total = int(offsets[-1])
    with _new_output_file(path, ".safetensors") as file:
        shapes = {"offsets": ("int64", offsets.shape), "features": ("float32", (total, width))}
        starts = _write_safetensors_header(file, shapes | {"input_ids": ("int32", (total,))})
        _write_array(file, starts["offsets"], 0, offsets.astype("<i8"))

        def write_token_vectors(text_index: int, input_ids: np.ndarray, values: np.ndarray) -> None:
            first, end = map(int, offsets[text_index : text_index + 2])
            _write_array(file, starts["features"], first * width, values[: end - first].astype("<f4"))
            _write_array(file, starts["input_ids"], first, input_ids.astype("<i4"))

        yield write_token_vectors


@contextlib.contextmanager
def sparse_file_writer(path: pathlib.Path, num_texts: int, tokens: Sequence[str]) -> Iterator[PutFeatures]:
    """Open a file of sparse vectors for writing, and yield the function that fills it.

    A `.jsonl` file has a line for each text, in order: `{"cat": 1.5, "dog": 0.7}`, the largest weight first. A `.npz`
    file has the arrays of a CSR matrix of scipy, float32 `[num_texts, vocabulary]`, which are in memory until the end.
    """
    if path.suffix not in SPARSE_SUFFIXES:
        raise UserError(f"{path}: these vectors are sparse; end the file name with {' or '.join(SPARSE_SUFFIXES)}")
    pending, rows = dict[int, np.ndarray](), list[SparseVectors]()
    expected = 0  # index of the next text to write
    with _new_output_file(path, path.suffix) as file:

        def write_terms(text_index: int, input_ids: np.ndarray, values: np.ndarray) -> None:
            """Write each text as soon as all earlier texts are written; keep later texts in memory until then."""
            nonlocal expected
            pending[text_index] = values
            while expected in pending:
                row = SparseVectors.from_rows([pending.pop(expected)], len(tokens))
                expected += 1
                if path.suffix == ".jsonl":
                    order = np.argsort(-row.weights, kind="stable")
                    terms = {tokens[row.ids[term]]: round(float(row.weights[term]), WEIGHT_DIGITS) for term in order}
                    file.write(json.dumps(terms, ensure_ascii=False).encode() + b"\n")
                else:
                    rows.append(row)

        yield write_terms
        if path.suffix == ".npz":
            matrix = SparseVectors.joined(rows)
            scipy.sparse.save_npz(
                file, scipy.sparse.csr_array((matrix.weights, matrix.ids, matrix.offsets), (num_texts, len(tokens)))
            )


def check_projector_arguments(directory: pathlib.Path, source: str, output: pathlib.Path) -> None:
    """Raise UserError for vectors of tokens, for texts from a pipe, and for a directory that is not empty."""
    if output.suffix != ".npy":
        raise UserError(f"--projector {directory}: the projector shows vectors of texts; leave out --pooling tokens")
    if source == STDIN or pathlib.Path(source).is_fifo():
        raise UserError(
            f"--projector {directory}: the projector needs to read the texts twice; give them as --input FILE"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UserError(f"{directory} exists and is not an empty directory; name another, or remove it")


def write_projector_files(vectors: pathlib.Path, source: str, directory: pathlib.Path, field: str = TEXT) -> None:
    """Write the files of TensorBoard's embedding projector, for `tensorboard --logdir DIR` or its web page.

    `vectors.tsv` has the vectors with seven digits. `metadata.tsv` has the texts and, if the source has JSON objects,
    their other fields with texts or numbers; with several columns, this file has a header. The file
    `projector_config.pbtxt` names `vectors.tsv` and `metadata.tsv`.

    Args:
        vectors: `.npy` file, float32 `[texts, width]`.
        source: file with the texts, in the order of the vectors.
        directory: directory to create.
        field: field or column of the text, as in `embed_file`.
    """
    rows = np.load(vectors, mmap_mode="r", allow_pickle=False)
    with writing(directory, "make room, or choose another --projector"), new_directory(directory) as folder:
        with (folder / VECTORS).open("w", encoding="utf-8") as file:
            for row in rows:
                file.write("\t".join(f"{value:.7g}" for value in row) + "\n")
        with (folder / METADATA).open("w", encoding="utf-8") as file:
            columns = dict[str, None]()  # names of columns in the order of the file
            for line in read_texts(source, field):
                columns |= {name: None for name, value in line.fields.items() if _cell_text(value) is not None}
            if len(columns) > 1:
                file.write("\t".join(_cell_text(name) or "" for name in columns) + "\n")
            for line in read_texts(source, field):
                file.write("\t".join(_cell_text(line.fields.get(name)) or EMPTY for name in columns) + "\n")
        (folder / "projector_config.pbtxt").write_text(PROJECTOR_CONFIG, encoding="utf-8")


def _cell_text(value: Any) -> str | None:
    """Return a text or a number without tabs and line ends; None for any other value."""
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else None


def _write_safetensors_header(file: IO[bytes], shapes: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, int]:
    """Write the header of a safetensors file, and return the offset of each tensor in bytes.

    The library safetensors writes only arrays that are in memory. The file has the length of a JSON header (uint64),
    the header, and the tensors without gaps.
    """
    header, begins = {}, {}
    end = 0
    for name, (dtype, shape) in shapes.items():
        begins[name], end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        kind = SAFETENSORS_NAMES[dtype]
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begins[name], end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the spaces align the tensors
    file.write(len(text).to_bytes(8, "little") + text)
    start = file.tell()
    file.truncate(start + end)
    return {name: start + begin for name, begin in begins.items()}


def _write_array(file: IO[bytes], start: int, index: int, values: np.ndarray) -> None:
    """Write `values` from element `index` of the tensor at `start` on."""
    file.seek(start + index * values.itemsize)
    file.write(np.ascontiguousarray(values).data)


@contextlib.contextmanager
def _new_output_file(path: pathlib.Path, suffix: str) -> Iterator[IO[bytes]]:
    """Yield a temporary file for writing; rename it to `path` when the context ends without an error."""
    if path.suffix != suffix:
        raise UserError(f"{path}: the output has another format; end the file name with {suffix}")
    refuse_existing_file(path)
    with writing(path, "make room, or choose another --output"), new_file(path, binary=True) as file:
        yield file
        refuse_existing_file(path)  # another command may have written the file meanwhile
