"""Compile-only devices: libtpu's compiler needs only a name such as `v5e:4x4`, no real TPU. GPUs are in gpus.py."""

import contextlib
import importlib.util
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax.dryrun.gpus import GPUS, MAX_GPUS, compile_only_gpus
from bert_jax.errors import UserError, nearest

# Number of axes of a slice, by libtpu's name of the generation.
AXES = {"v4": 3, "v5e": 2, "v5p": 3, "v6e": 2, "tpu7x": 3}
EXAMPLES = {2: "4x4", 3: "2x2x1"}
# Google Cloud's accelerator types, such as v5litepod-64 and v5p-128, and the default sizes of their slices by number of
# axes. The number in a type counts chips for v5e and v6e, and TensorCores for v4 and v5p; a chip of v4 or v5p has two
# TensorCores.
CLOUD_CHIPS = {"v5litepod": "v5e", "v5e": "v5e", "v6e": "v6e", "v4": "v4", "v5p": "v5p"}
CLOUD_SIZES = {
    2: {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"},
    3: {
        8: "2x2x1",
        16: "2x2x2",
        32: "2x2x4",
        64: "2x4x4",
        128: "4x4x4",
        256: "4x4x8",
        512: "4x8x8",
        1024: "8x8x8",
        2048: "8x8x16",
        4096: "8x16x16",
    },
}


def compile_only_devices(name: str) -> list[Any]:
    """Return the compile-only devices of TPU slices, slice by slice in libtpu's order, or of the GPUs of a host.

    Call this function before JAX uses a device: unless JAX_PLATFORMS is set, the function keeps JAX on the CPU.

    Raises:
        UserError: the name is malformed, or the compiler is missing or refuses the name.
    """
    chip, sizes, slices = parse_topology(name)
    return compile_only_gpus(name, chip, sizes[0]) if chip in GPUS else _compile_only_tpus(name, chip, sizes, slices)


def _compile_only_tpus(name: str, chip: str, sizes: tuple[int, ...], slices: int) -> list[Any]:
    """Return the compile-only devices of TPU slices; `name` appears in error messages."""
    if importlib.util.find_spec("libtpu") is None:
        raise UserError(f"--topology={name} needs the TPU compiler: pip install 'jax[tpu]'")
    for variable, value in {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",  # libtpu must not query the cloud's metadata server
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }.items():
        os.environ.setdefault(variable, value)
    from jax.errors import JaxRuntimeError
    from jax.experimental.topologies import get_topology_desc

    # A host has 2 x 2 chips by default; a smaller slice has one host.
    options: dict[str, Any] = {"chips_per_host_bounds": (*sizes, 1, 1)[:3]} if math.prod(sizes) < 4 else {}
    options |= {"num_slices": slices} if slices > 1 else {}
    slice_name = f"{chip}:{'x'.join(map(str, sizes))}"
    try:
        with discarded_stderr():
            return list(get_topology_desc(platform="tpu", topology_name=slice_name, **options).devices)
    except (JaxRuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0].removeprefix("INVALID_ARGUMENT: ")
        raise UserError(
            f"--topology={name}: {reason}; use whole hosts, such as {chip}:{EXAMPLES[AXES[chip]]}"
        ) from error


class Topology(NamedTuple):
    """The chip of a topology, the sizes of each slice, and the number of slices."""

    chip: str
    sizes: tuple[int, ...]
    num_slices: int


def parse_topology(name: str) -> Topology:
    """Return the chip, sizes and slices that a name gives, such as `v5e:16x16`, `v5e:16x16:2` (two slices) or `h100:8`.

    An accelerator type of Google Cloud, such as `v5litepod-64`, names its slice with the default sizes.

    Raises:
        UserError: the name is malformed.
    """
    kind, _, count = name.partition("-")
    if kind in CLOUD_CHIPS and count:
        sizes_of = CLOUD_SIZES[AXES[CLOUD_CHIPS[kind]]]
        if not count.isdecimal() or int(count) not in sizes_of:
            types = f": there are {kind}-{f', {kind}-'.join(map(str, sizes_of))}"
            raise UserError(f"--topology={name}{_topology_suggestion_text(name) or types}")
        return parse_topology(f"{CLOUD_CHIPS[kind]}:{sizes_of[int(count)]}")
    chip, _, shape = name.partition(":")
    if chip not in AXES and chip not in GPUS:
        examples = f"; write v5e-64 or v5e:8x8 for TPUs ({', '.join(AXES)}), h100:8 for GPUs ({', '.join(GPUS)})"
        near = nearest(chip, [*AXES, *GPUS], cutoff=0.6)
        meant = _topology_suggestion_text(name) or (f"; did you mean '{near}'?" if near else examples)
        raise UserError(f"--topology={name}: unknown chip '{chip}'{meant}")
    if chip in GPUS:
        if not re.fullmatch(rf"[1-{MAX_GPUS}]|", shape) or name.endswith(":"):
            raise UserError(f"--topology={name}: write 1 to {MAX_GPUS} GPUs of one host, such as {chip}:{MAX_GPUS}")
        return Topology(chip, (int(shape or 1),), 1)
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*(:[1-9]\d?)?", shape) or shape.count("x") + 1 != AXES[chip]:
        example = f"{chip}:{EXAMPLES[AXES[chip]]}"
        raise UserError(
            f"--topology={name}: a {chip} slice has {AXES[chip]} sizes, such as {example} ({example}:2 for two slices)"
        )
    sizes, _, slices = shape.partition(":")
    return Topology(chip, tuple(int(size) for size in sizes.split("x")), int(slices or 1))


def _topology_suggestion_text(name: str) -> str:
    """Return `; did you mean ...?` for a name with a wrong separator, such as `h100x8` or `v5e-4x4`, else ''."""
    for chip in (*AXES, *GPUS):
        if name.startswith(chip) and name[len(chip) :]:
            meant = f"{chip}:{name[len(chip) :].lstrip(':-_x ')}"
            with contextlib.suppress(UserError):
                if meant != name:
                    parse_topology(meant)
                    return f"; did you mean '{meant}'?"
    return ""


@contextlib.contextmanager
def discarded_stderr() -> Iterator[None]:
    """Discard the messages on stderr in which a compiler complains that its devices are absent."""
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with tempfile.TemporaryFile() as sink:
            os.dup2(sink.fileno(), 2)
            yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
