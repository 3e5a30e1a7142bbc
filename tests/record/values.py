"""Values that are recorded: digests, sums of tensors, the shape of files; and how two of them differ."""

import hashlib
import json
import math
import pathlib
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import safetensors.numpy

TOLERANCE = 1e-5  # relative: floats differ between CPUs
# The least size that the tolerance is of, by a part of the key; else 0.1, as losses are means of differences of numbers
# of about 1, and their errors do not become smaller with them.
LEAST = {"learning_rate": 0.0, "pearson": 1.0}
LEAST_NORM = 0.1  # likewise, of a tensor
MANY = 12  # keys from which on the members of an object are taken for data, such as a vocabulary


def digest(x: np.ndarray) -> str:
    """SHA-256 of dtype, shape and bytes, the first 12 digits."""
    x = np.ascontiguousarray(x)
    return hashlib.sha256(f"{x.dtype.str}{x.shape}".encode() + x.tobytes()).hexdigest()[:12]


def digests(batch: Mapping[str, np.ndarray]) -> dict[str, str]:
    return {key: f"{x.dtype}{list(x.shape)} {digest(x)}" for key, x in sorted(batch.items())}


def sums(x: np.ndarray) -> dict[str, Any]:
    """Mean and norm, in float64."""
    x = x.astype(np.float64)
    return {"mean": float(x.mean()), "norm": float(np.sqrt((x * x).sum())), "shape": list(x.shape)}


def sums_of_file(file: pathlib.Path) -> dict[str, Any]:
    return {name: sums(x) for name, x in sorted(safetensors.numpy.load_file(file).items())}


def drawn(name: str, shape: tuple[int, ...], scale: float = 0.2) -> np.ndarray:
    """float32 from -scale/2 to scale/2 that follow from the name alone, equal on every machine (splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(zlib.crc32(name.encode()) << 24)
        x = x * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    unit = (x >> np.uint64(40)).astype(np.float32) / np.float32(2**24) - np.float32(0.5)
    return (unit * np.float32(scale)).reshape(shape)


def lines(file: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def keys(value: Any, prefix: str = "") -> Iterator[str]:
    """`a.b[] int` for every leaf of a JSON value; members of a large object that are all alike are `*`."""
    if isinstance(value, dict) and value:
        kinds = {tuple(sorted(set(keys(one)))) for one in value.values()}
        data = len(value) >= MANY and len(kinds) == 1
        for name, one in value.items():
            yield from keys(one, f"{prefix}.{'*' if data else name}")
    elif isinstance(value, list) and value:
        for one in value:
            yield from keys(one, f"{prefix}[]")
    else:
        yield f"{prefix.removeprefix('.')} {type(value).__name__}"


def keys_of_file(file: pathlib.Path) -> list[str]:
    values = lines(file) if file.suffix == ".jsonl" else [json.loads(file.read_text(encoding="utf-8"))]
    found = {key for value in values for key in keys(value)}
    return sorted(key for key in found if not key.startswith(OF_A_MACHINE))


# What other libraries name, with hosts, times and versions in the names.
FOREIGN = (
    (re.compile(r"events\.out\.tfevents\..*"), "events.out.tfevents.*"),
    (re.compile(r"((?:^|.*/)checkpoints/\d+)/(?!run/metadata).*"), r"\1/*"),
)
OF_A_MACHINE = ("energy_joules", "memory_bytes", "model_flops_utilization")  # keys that only some have


def formats(place: pathlib.Path) -> dict[str, Any]:
    """The files below a directory, or one file; of JSON and JSON lines their keys, of arrays names and dtypes."""
    found: dict[str, Any] = {}
    for file in sorted(path for path in [place, *place.rglob("*")] if path.is_file()):
        name = file.relative_to(place).as_posix() if place.is_dir() else file.name
        for pattern, instead in FOREIGN:
            name = pattern.sub(instead, name)
        found[name] = _content(file) if "*" not in name else "of another library"
    return found


def _content(file: pathlib.Path) -> Any:
    if file.suffix in (".json", ".jsonl") or file.name == "metadata":
        return keys_of_file(file)
    if file.suffix == ".safetensors" and file.name != "model.safetensors":
        tensors = safetensors.numpy.load_file(file)
        return {name: f"{x.dtype} of {x.ndim} dimensions" for name, x in sorted(tensors.items())}
    if file.suffix == ".npy":
        x = np.load(file)
        return f"{x.dtype} of {x.ndim} dimensions"
    return "a file"


def differences(recorded: Any, found: Any, where: str = "") -> list[str]:
    """A line for each value that differs; floats may by TOLERANCE, a mean by TOLERANCE of the tensor's size."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        told = [f"{where}: {key!r} is gone" for key in recorded if key not in found]
        told += [f"{where}: {key!r} is new" for key in found if key not in recorded]
        if recorded.keys() == found.keys() == {"mean", "norm", "shape"}:
            norm = max(recorded["norm"], LEAST_NORM)
            mean = norm / math.sqrt(math.prod(recorded["shape"]))
            return told + [
                f"{where}: {name} was {recorded[name]}, is {found[name]}"
                for name, size in (("mean", mean), ("norm", norm), ("shape", 0.0))
                if not _close(recorded[name], found[name], size)
            ]
        return told + [
            line
            for key in recorded
            if key in found
            for line in differences(recorded[key], found[key], f"{where}/{key}")
        ]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        pairs = zip(recorded, found, strict=True)
        return [line for n, (old, new) in enumerate(pairs) for line in differences(old, new, f"{where}[{n}]")]
    if isinstance(recorded, float) and isinstance(found, float):
        least = next((size for key, size in LEAST.items() if key in where), 0.1)
        same = _close(recorded, found, max(abs(recorded), least))
    else:
        same = type(recorded) is type(found) and recorded == found
    return [] if same else [f"{where}: was {_short(recorded)}, is {_short(found)}"]


def _close(recorded: Any, found: Any, size: float) -> bool:
    if isinstance(recorded, float):
        return abs(recorded - found) <= TOLERANCE * size
    return recorded == found


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}..."
