"""A parser of optimized HLO, which converts the text of a compiled program to computations and instructions."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple


class Array(NamedTuple):
    """The type of an array: its element type, shape and layout."""

    dtype: str
    shape: tuple[int, ...]
    padded: tuple[int, ...]  # shape rounded up to whole tiles (TPU), axes from major to minor
    in_vmem: bool  # in the chip's own memory (TPU: VMEM, SMEM), not in HBM

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The number of bytes of the array, without padding."""
        return -(-self.size * BITS.get(self.dtype, 0) // 8)

    @property
    def padded_bytes(self) -> int:
        """The number of bytes of the array, with padding."""
        return -(-math.prod(self.padded) * BITS.get(self.dtype, 0) // 8)


class Instruction(NamedTuple):
    """An instruction of HLO, which is a line of the form `%name = type opcode(operands), attributes`."""

    name: str
    arrays: tuple[Array, ...]  # the result, or the leaves of a tuple
    opcode: str
    operands: tuple[str, ...]
    arguments: str  # the text between the parentheses
    attributes: str


class Computation(NamedTuple):
    """A computation: instructions by name, in the order of the text; the root is not always the last instruction."""

    instructions: dict[str, Instruction]
    root: Instruction


class HloModule(NamedTuple):
    """All computations of a program, and the name of the entry computation."""

    computations: dict[str, Computation]
    entry: str


BITS = {"pred": 8, "bf16": 16, "c64": 64, "c128": 128} | {
    f"{kind}{bits}": bits for kind in "suf" for bits in (2, 4, 8, 16, 32, 64)
}
_HEADER = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{$")
_LINE = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (.*)")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,<=]*)\](?:\{([^}]*)\})?")
_TILE = re.compile(r"([\d,]*):T\(([\d,]+)\)")
_SPACE = re.compile(r"S\(([1-9]\d*)\)")
_NAME = re.compile(r"%([\w.\-]+)")


def parse_hlo(text: str) -> HloModule:
    """Return the computations of an HLO text; raise ValueError if the text has no entry computation."""
    computations: dict[str, Computation] = {}
    entry = name = ""
    instructions: dict[str, Instruction] = {}
    root = None
    for line in text.splitlines():
        if line.startswith("}") and name:
            if root is None:
                raise ValueError(f"the computation {name} has no root")
            computations[name], name = Computation(instructions, root), ""
        elif name and (match := _LINE.match(line)):
            instruction = _parse_instruction(match[2], match[3])
            instructions[instruction.name] = instruction
            if match[1]:
                root = instruction
        elif not line.startswith(" ") and (match := _HEADER.match(line)):
            name, instructions, root = match[2], {}, None
            entry = name if match[1] else entry
    if not entry:
        raise ValueError("not HLO: there is no ENTRY computation")
    return HloModule(computations, entry)


def _parse_instruction(name: str, rest: str) -> Instruction:
    """Return the instruction that is parsed from a line of the form `%name = rest`."""
    cut = _end_of_parentheses(rest, 0) if rest.startswith("(") else rest.index(" ")
    opening = rest.index("(", cut)
    closing = _end_of_parentheses(rest, opening)
    arguments = rest[opening + 1 : closing - 1]
    operands = tuple(_NAME.findall(arguments))
    return Instruction(name, _parse_arrays(rest[:cut]), rest[cut:opening].strip(), operands, arguments, rest[closing:])


def _end_of_parentheses(text: str, start: int) -> int:
    """Return the index after the parenthesis that closes the parenthesis at `start`."""
    depth = 0
    for match in re.compile(r"[()]").finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    raise ValueError(f"unbalanced: {text[:200]}")


def _parse_arrays(text: str) -> tuple[Array, ...]:
    """Return the arrays of a type, such as `f32[8,128]{1,0}` or a tuple of such types."""
    arrays = []
    for dtype, sizes, layout in _ARRAY.findall(text):
        shape = tuple(int(size.lstrip("<=")) for size in sizes.split(",") if size)
        arrays.append(Array(dtype, shape, _padded_shape(shape, layout), bool(_SPACE.search(layout))))
    return tuple(arrays)


def _padded_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the axis sizes from major to minor, the last sizes rounded up to whole tiles: `{1,0:T(8,128)(2,1)}`."""
    if not (match := _TILE.match(layout)):
        return shape
    physical = [shape[int(axis)] for axis in reversed(match[1].split(",")) if axis]
    tile = [int(size) for size in match[2].split(",")]
    first = max(0, len(physical) - len(tile))
    tiles = tile[len(tile) - (len(physical) - first) :]
    rounded = [-(-size // to) * to for size, to in zip(physical[first:], tiles, strict=True)]
    return (*physical[:first], *rounded)


def called_computation_names(instruction: Instruction, *keys: str) -> Iterator[str]:
    """Yield the names of the computations that an instruction calls by attributes such as `calls` or `body`."""
    for key in keys:
        yield from re.findall(rf"\b{key}=%?([\w.\-]+)", instruction.attributes)
