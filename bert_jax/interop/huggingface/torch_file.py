"""The tensors of a `pytorch_model.bin`, a file of `torch.save`, which is read as untrusted data.

torch's own loader of weights (`weights_only`) runs no code of the file. But a few bytes can make the loader allocate
much memory, and a tensor that the loader builds may repeat the same stored numbers. So this module first scans the
pickle, without running it, and accepts only plain tensors. This module accepts a tensor only if the file holds each
number of the tensor.
"""

import math
import pathlib
import pickletools
import re
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from bert_jax.errors import UserError, needs_packages
from bert_jax.files import open_regular_file

# The calls in a pickle that `torch.save` writes for a state dict.
PLAIN = re.compile(
    r"collections OrderedDict|torch \w+Storage|torch\._utils _rebuild_(tensor|tensor_v2|parameter)", re.ASCII
)
MAX_PICKLE = 16 << 20  # bytes of the pickle, which holds the names, shapes and offsets of the tensors
ZIP = b"PK\3\4"  # the prefix of the newer of torch's two formats
LEGACY_PICKLES = 5  # number of pickles before the tensors' numbers, in the format of torch before 1.6
MAX_EXPANSION = 8  # limit of (float32 bytes of all tensors) / (bytes of the file); half precision and ties raise it


def read_torch(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file; half precision becomes float32.

    Raises:
        UserError: torch is not installed; the file is damaged, or holds more than named, plain, dense tensors; a
            tensor has more numbers than the file holds for it.
    """
    with needs_packages(f"{path}", "torch", ", or save it as model.safetensors"):
        import torch
    try:
        _check_pickle_calls(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # damaged bytes cause many types of errors
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"{path} is refused: torch finds more in it than weights, or damage ({reason})") from None
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(x, torch.Tensor) for name, x in tensors.items()
    ):
        raise UserError(f"{path} is not a plain table of named tensors, as `save_pretrained` writes it")
    size, total = path.stat().st_size, 0
    for name, x in tensors.items():
        _check_tensor(name, x, size, path)
        total += 4 * math.prod(x.shape)
        if total > MAX_EXPANSION * size:
            raise UserError(
                f"{path}: up to tensor '{name}', its tensors take {total:,} bytes, more than {MAX_EXPANSION} times the "
                "file: many names share the same numbers"
            )
    narrow = (torch.float16, torch.bfloat16)
    return {name: (x.float() if x.dtype in narrow else x).detach().numpy() for name, x in tensors.items()}


def _check_tensor(name: str, x: Any, size: int, path: pathlib.Path) -> None:
    """Raise UserError if the file does not hold every number of a tensor, before the tensor takes memory."""
    if x.is_conj() or x.is_neg():
        raise UserError(f"{path}: tensor '{name}' is stored negated or conjugated; save it with `resolve_neg()`")
    claimed, held = x.element_size() * math.prod(x.shape), x.untyped_storage().nbytes()
    if claimed > held or held > size:
        raise UserError(
            f"{path}: tensor '{name}' of shape {[*x.shape]} has more numbers than the file holds for it (an expanded "
            "tensor?); save it with `contiguous()`"
        )


def _check_pickle_calls(path: pathlib.Path) -> None:
    """Raise UserError for a file whose pickle calls a function that plain tensors do not need."""
    with open_regular_file(path) as file:
        name = ""
        for stream in _pickle_streams(path, file):
            for code, argument, offset in pickletools.genops(stream):
                if code.name == "BINUNICODE":
                    name = str(argument)  # a tensor follows its name
                elif code.name == "GLOBAL" and not PLAIN.fullmatch(str(argument)):
                    raise UserError(
                        f"{path} is refused: torch finds more in it than weights: tensor '{name}' needs "
                        f"{str(argument).replace(' ', '.')}; save dense tensors of float32, float16 or bfloat16"
                    )
                if (offset or 0) > MAX_PICKLE:
                    raise UserError(f"{path} is refused: more than {MAX_PICKLE >> 20} MiB of names and shapes")


def _pickle_streams(path: pathlib.Path, file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a stream for each pickle: `data.pkl` in a zip archive, or the file itself in the legacy format."""
    is_zip = file.read(len(ZIP)) == ZIP
    file.seek(0)
    if not is_zip:
        yield from [file] * LEGACY_PICKLES
        return
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.compress_type != zipfile.ZIP_STORED:
                raise UserError(f"{path} is refused: {member.filename} in it is compressed, which torch never writes")
            if member.filename.endswith("data.pkl"):
                with archive.open(member) as stream:
                    yield stream
