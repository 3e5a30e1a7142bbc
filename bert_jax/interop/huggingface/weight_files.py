"""The tensors of a model directory: `model.safetensors`, whole or in shards, or torch's `pytorch_model.bin`.

The tensors that this module returns are float32 and finite. A file is untrusted data, so no code of the file is run,
and its header is checked before memory is allocated.
"""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from bert_jax import strict_json
from bert_jax.errors import UserError, file_error
from bert_jax.files import open_regular_file
from bert_jax.interop.huggingface.torch_file import read_torch

Tensors = dict[str, np.ndarray]

# The dtypes that can be read. All but float64 are exact in float32.
FLOATS = tuple(np.dtype(kind) for kind in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64))
READABLE = "float32, float16, bfloat16 and float64 can be read"
NARROW = ("F4", "F6_", "F8")  # prefixes of safetensors' names of dtypes with fewer than 16 bits
POSITIONS = "position_ids"  # a buffer of the position numbers that transformers saved until version 4.30
INDEX = ".index.json"


class StoredWeights(NamedTuple):
    """The tensors of a directory, by their names in the file."""

    where: str  # path of the file, for messages
    tensors: Tensors


def read_weight_files(directory: pathlib.Path) -> StoredWeights:
    """Return all tensors of `directory` as float32, from the first file of `READERS` that exists.

    float16 and bfloat16 are widened, which is exact, and float64 is rounded. Raises `UserError` for a file that is
    absent, truncated or damaged, for other dtypes, and for a weight that is not finite; each message names the file and
    the tensor. A flipped bit that leaves a number finite is not detected.
    """
    for name, reader in READERS.items():
        for path in (directory / name, directory / (name + INDEX)):
            if path.is_file():
                tensors = reader(path) if path.name == name else _read_shards(path, reader)
                return StoredWeights(str(path), {key: _to_float32(key, x, path) for key, x in tensors.items()})
    if any(directory.glob("*.onnx")) or any(directory.glob("*.xml")):
        raise UserError(
            f"{directory}: an export for other programs, which bert_jax does not read; run it as its README.md shows, "
            "or give the model from which it was exported"
        )
    names = ", ".join(f"{name} (or {name}{INDEX})" for name in READERS)
    raise UserError(f"{directory} holds no weights: {names}; save the model with `save_pretrained` of transformers")


def read_dense_kernel(folder: pathlib.Path) -> np.ndarray:
    """Return the kernel of a Dense module of sentence-transformers, float32 `[hidden, outputs]`."""
    where, tensors = read_weight_files(folder)
    if [*tensors] != ["linear.weight"] or tensors["linear.weight"].ndim != 2:
        raise UserError(f"{where}: the tensors are {', '.join(tensors)}; only the matrix linear.weight can be read")
    return tensors["linear.weight"].T


def read_safetensors(path: pathlib.Path) -> Tensors:
    """Return the tensors of one safetensors file, with the dtypes of the file."""
    _check_safetensors_header(path)
    try:
        return safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None


def read_safetensors_as_float32(path: pathlib.Path) -> Tensors:
    """Return the tensors of one safetensors file as float32; raise UserError as `read_weight_files` does."""
    return {name: _to_float32(name, x, path) for name, x in read_safetensors(path).items()}


READERS: dict[str, Callable[[pathlib.Path], Tensors]] = {
    "model.safetensors": read_safetensors,
    "pytorch_model.bin": read_torch,
}


def _check_safetensors_header(path: pathlib.Path) -> None:
    """Raise UserError for a repeated tensor name, which the library does not report, or a dtype that numpy lacks."""
    try:
        with open_regular_file(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= path.stat().st_size - 8:
                raise UserError(f"{path} cannot be read: truncated, or no safetensors file")
            if length > strict_json.MAX_BYTES:
                raise UserError(f"{path} cannot be read: a header of {length:,} bytes")
            text = file.read(length)
    except OSError as error:
        raise file_error(error, path, "cannot be read") from None
    for name, entry in strict_json.parse_object(text, f"the header of {path}").items():
        if isinstance(entry, dict) and str(entry.get("dtype")).startswith(NARROW):
            raise UserError(f"{path}: tensor '{name}' is {entry['dtype']}; {READABLE}")


def _read_shards(path: pathlib.Path, reader: Callable[[pathlib.Path], Tensors]) -> Tensors:
    """Return the tensors of all shards; the index must list exactly the tensors of each shard.

    A shard must be in the index's directory. A shard may be a symbolic link, as in the cache of the Hugging Face hub.
    """
    names: Any = strict_json.read_object(path).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{path} has no 'weight_map' of tensor names to file names")
    tensors: Tensors = {}
    for file in sorted(set(names.values())):
        if file in ("", ".", "..") or {"/", "\\", "\0"} & set(file):
            raise UserError(f"{path} names the file {file!r}; only files beside it are read")
        if not (shard_path := path.with_name(file)).is_file():
            raise UserError(f"{shard_path} is missing, but {path.name} names it")
        shard = reader(shard_path)
        promised = {name for name, where in names.items() if where == file}
        for name in sorted(promised ^ shard.keys()):
            has, lacks = (path.name, file) if name in promised else (file, path.name)
            raise UserError(f"{path}: {has} lists '{name}' in {file}, {lacks} does not")
        tensors |= shard
    return tensors


def _to_float32(name: str, x: np.ndarray, path: pathlib.Path) -> np.ndarray:
    """Return a tensor as float32; raise UserError for a dtype outside FLOATS or a number that is not finite."""
    if name.endswith(POSITIONS) and x.dtype.kind in "if":
        return x
    if x.dtype not in FLOATS:
        raise UserError(f"{path}: tensor '{name}' is {x.dtype}; {READABLE}")
    with np.errstate(over="ignore"):  # a number beyond float32 is refused below
        x = x.astype(np.float32, copy=False)
    if not np.isfinite(x).all():
        raise UserError(
            f"{path}: tensor '{name}' has numbers that are not finite; the file is damaged, or the training diverged"
        )
    return x
