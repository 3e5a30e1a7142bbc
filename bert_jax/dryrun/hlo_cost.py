"""The cost of one run of a compiled program, from its optimized HLO.

XLA's `cost_analysis()` counts the body of a loop once, so only one of several scanned layers is counted. This module
multiplies each computation by its number of runs. All other conventions of counting are the conventions of XLA. A
multiply-add counts as 2 FLOPs, an element of an element-wise operation as 1 FLOP, and a transcendental function as 0
FLOPs. A fusion reads its operands and writes its results once; if a fusion slices an operand, only the slice is read.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bert_jax.dryrun.hlo import Array, Computation, HloModule, Instruction, called_computation_names, parse_hlo
from bert_jax.dryrun.kernels import kernel_kind, library_call, result_arrays_without_workspace


@dataclasses.dataclass(frozen=True)
class Collective:
    """All collectives of one kind, in one run of the program on one device.

    Attributes:
        bytes: size of the whole array: the operand of a reduce-scatter, and the result of any other collective.
        sent: number of bytes that a device sends in a ring of n devices, which is `bytes` times a factor. The factor is
            2 (n - 1) / n for an all-reduce, 1 for a permutation, and (n - 1) / n for an all-gather, reduce-scatter or
            all-to-all.
    """

    kind: str
    count: int
    bytes: int
    sent: float


class Cost(NamedTuple):
    """The cost of one run of the program on one device."""

    flops: float
    bytes: float  # accessed bytes
    hbm_bytes: float  # bytes accessed in HBM, not in the chip's internal memory
    collectives: tuple[Collective, ...]
    kernels: dict[str, int]  # number of launches of each kind
    dcn_bytes: float = 0.0  # bytes sent over the network between slices


COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
# Instructions that move or name data, or that are counted with another instruction.
NO_FLOPS = frozenset(
    str.split(
        "parameter constant iota tuple get-tuple-element bitcast bitcast-convert copy copy-start copy-done slice "
        "slice-start slice-done dynamic-slice dynamic-update-slice pad concatenate reshape broadcast transpose reverse "
        "gather partition-id replica-id custom-call after-all fusion while call conditional "
        "async-start async-update async-done call-start call-done rng-bit-generator optimization-barrier domain infeed "
        "outfeed send recv"
    )
)
ELEMENT_BY_ELEMENT = ("convert", "bitcast", "reduce")  # an element of the result reads only the elements at its index
TRANSCENDENTAL = frozenset(
    str.split(
        "exponential exponential-minus-one log log-plus-one logistic tanh sine cosine tan erf rsqrt sqrt cbrt power "
        "atan2"
    )
)
NO_BYTES = frozenset(
    str.split(
        "parameter constant tuple get-tuple-element bitcast while call conditional after-all partition-id replica-id "
        "async-start async-update async-done call-start call-done optimization-barrier domain"
    )
)


def program_cost(hlo_text: str, multiply_loops: bool = True) -> Cost:
    """Return the cost of a program.

    Args:
        hlo_text: optimized HLO, from `compiled.as_text()`.
        multiply_loops: True counts the body of a loop once per iteration; False counts the body only once, as XLA does.

    Raises:
        ValueError: the text is not an HLO module, or the text does not show how often a loop runs.
    """
    module = parse_hlo(hlo_text)
    flops = bytes_ = hbm = dcn = 0.0
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    for times, computation, op in _executed_instructions(module, module.entry, 1, multiply_loops):
        flops += times * _flops_with_fused_instructions(module, computation, op)
        if kind := kernel_kind(module, op):
            kernels[kind] += times
        accessed, in_hbm = _total_and_hbm_bytes_moved(module, computation, op)
        bytes_, hbm = bytes_ + times * accessed, hbm + times * in_hbm
        dcn += times * _bytes_sent_to_other_slices(computation, op)
        for kind, size, group in _instruction_collectives(module, computation, op):
            counts[kind] += times
            sizes[kind] += times * size
            sent[kind] += times * size * _ring_fraction_sent(kind, group)  # type: ignore[assignment]
    collectives = tuple(Collective(kind, counts[kind], sizes[kind], sent[kind]) for kind in COLLECTIVES if counts[kind])
    return Cost(flops, bytes_, hbm, collectives, dict(sorted(kernels.items())), dcn)


class _ExecutedInstruction(NamedTuple):
    """An instruction, its computation, and the number of its runs."""

    num_runs: int
    computation: Computation
    instruction: Instruction


def _executed_instructions(
    module: HloModule, name: str, num_runs: int, multiply_loops: bool
) -> Iterator[_ExecutedInstruction]:
    """Yield (number of runs, computation, instruction) of all instructions, except instructions inside fusions.

    Of the branches of a conditional, only the branch with the most FLOPs is counted. Therefore the summed cost is an
    upper bound.
    """
    computation = module.computations[name]
    for op in computation.instructions.values():
        yield _ExecutedInstruction(num_runs, computation, op)
        if op.opcode == "while":
            trips = _trip_count(module, computation, op) if multiply_loops else 1
            for part in called_computation_names(op, "body", "condition"):
                yield from _executed_instructions(module, part, num_runs * trips, multiply_loops)
        elif op.opcode in ("call", "call-start"):  # TPU7x: SparseCores run collectives beside the program
            for part in called_computation_names(op, "to_apply"):
                yield from _executed_instructions(module, part, num_runs, multiply_loops)
        elif op.opcode == "async-start":
            for part in called_computation_names(op, "calls"):
                yield from _executed_instructions(module, part, num_runs, multiply_loops)
        elif op.opcode == "conditional":
            listed = re.findall(r"branch_computations=\{([^}]*)\}", op.attributes)
            names = [
                *re.findall(r"[\w.\-]+", "".join(listed)),
                *called_computation_names(op, "true_computation", "false_computation"),
            ]
            branches = [[*_executed_instructions(module, part, num_runs, multiply_loops)] for part in names]
            yield from max(
                branches,
                key=lambda branch: sum(
                    n * _flops_with_fused_instructions(module, inside, it) for n, inside, it in branch
                ),
            )


def _trip_count(module: HloModule, computation: Computation, loop: Instruction) -> int:
    """Return the trip count of a loop, from the compiler's annotation or from the constant that bounds its counter."""
    if noted := re.search(r'"?known_trip_count"?:\s*\{"n":"(\d+)"\}', loop.attributes):
        return int(noted[1])
    condition = module.computations[next(called_computation_names(loop, "condition"))]
    for op in _instructions_with_fused(module, condition):
        if op.opcode == "compare" and "direction=LT" in op.attributes:
            for constant in _instructions_with_fused(module, condition):
                if constant.opcode == "constant" and constant.arrays[0].shape == () and constant.arguments.isdigit():
                    return int(constant.arguments)
    raise ValueError(f"{loop.name}: the condition of this loop does not show how often it runs")


def _instructions_with_fused(module: HloModule, computation: Computation) -> Iterator[Instruction]:
    """Yield the instructions of a computation and of the fusions in it."""
    for op in computation.instructions.values():
        yield op
        if op.opcode == "fusion":
            for part in called_computation_names(op, "calls"):
                yield from _instructions_with_fused(module, module.computations[part])


def _flops_with_fused_instructions(module: HloModule, computation: Computation, op: Instruction) -> float:
    """Return the FLOPs of one run of an instruction, including the instructions inside a fusion."""
    if op.opcode == "fusion":
        return sum(
            _flops_with_fused_instructions(module, fused, inner)
            for part in called_computation_names(op, "calls")
            for fused in [module.computations[part]]
            for inner in fused.instructions.values()
        )
    if (noted := _cost_declared_by_kernel(op)) is not None:
        return noted["flops"]
    library = library_call(op)
    if op.opcode in TRANSCENDENTAL or (op.opcode in NO_FLOPS and not library):
        return 0.0
    operands = [
        computation.instructions[name].arrays[0] for name in op.operands if _has_array_result(computation, name)
    ]
    if library:
        return library.flops(op, operands)
    result = op.arrays[0]
    if op.opcode == "dot":
        match = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", op.attributes)
        contracted = [int(axis) for axis in re.findall(r"\d+", match[1])] if match else []
        return 2.0 * result.size * math.prod(operands[0].shape[axis] for axis in contracted)
    if op.opcode == "convolution":
        return _convolution_flops(op, operands[0], operands[1], result)
    if op.opcode in ("reduce", "reduce-window", "scatter", "select-and-scatter", "map", "sort"):
        return float(operands[0].size if op.opcode == "reduce" else 0)
    if op.opcode.removesuffix("-start").removesuffix("-done") in COLLECTIVES:
        return float(sum(array.size for array in op.arrays)) if op.opcode == "all-reduce" else 0.0
    return float(result.size)


def _cost_declared_by_kernel(op: Instruction) -> dict[str, float] | None:
    """Return the cost that the author of a kernel declares (`pl.CostEstimate` of a Pallas call); None if undeclared."""
    match = re.search(r'"cost_estimate":\{([^}]*)\}', op.attributes) if op.opcode == "custom-call" else None
    if not match:
        return None
    noted = {name: float(value) for name, value in re.findall(r'"(\w+)":"?([\d.e+]+)"?', match[1])}
    return {"flops": 0.0, "bytes_accessed": 0.0} | noted


def _has_array_result(computation: Computation, name: str) -> bool:
    return bool(computation.instructions[name].arrays)


def _convolution_flops(op: Instruction, lhs: Array, rhs: Array, result: Array) -> float:
    """Return the FLOPs of a convolution (2 per multiply-add), without padding and the holes of dilated operands."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", op.attributes)
    assert labels, op
    lhs_size = dict(zip(labels[1], lhs.shape, strict=True))
    rhs_size = dict(zip(labels[2], rhs.shape, strict=True))
    result_size = dict(zip(labels[3], result.shape, strict=True))
    window = (
        dict(re.findall(r"(\w+)=(\S+)", match[1])) if (match := re.search(r"window=\{(.*?)\}", op.attributes)) else {}
    )

    def window_values_along_axis(key: str, default: str, axis: int) -> list[int]:
        values = window[key].split("x") if key in window else [default] * (axis + 1)
        return [int(value) for value in values[axis].split("_")]

    multiply_adds = float(result_size["b"] * result_size["f"] * rhs_size["i"])
    for axis in range(len(labels[1]) - 2):
        (stride,), (lhs_dilate,), (rhs_dilate,) = (
            window_values_along_axis(key, "1", axis) for key in ("stride", "lhs_dilate", "rhs_dilate")
        )
        low = window_values_along_axis("pad", "0_0", axis)[0]
        outputs = np.arange(result_size[str(axis)])[:, None] * stride
        places = outputs + np.arange(rhs_size[str(axis)]) * rhs_dilate - low
        inside = (places >= 0) & (places < lhs_size[str(axis)] * lhs_dilate) & (places % lhs_dilate == 0)
        multiply_adds *= int(inside.sum())
    if groups := re.search(r"batch_group_count=(\d+)", op.attributes):
        multiply_adds /= int(groups[1])
    return 2 * multiply_adds


class _MovedBytes(NamedTuple):
    """The bytes that an instruction reads and writes, and the part of these bytes in HBM."""

    total: float
    in_hbm: float


def _total_and_hbm_bytes_moved(module: HloModule, computation: Computation, op: Instruction) -> _MovedBytes:
    """Return the bytes that an instruction reads and writes, and the part of these bytes in HBM."""
    if op.opcode in NO_BYTES or re.search('target="(AllocateBuffer|ConcatBitcast)"', op.attributes):
        return _MovedBytes(0.0, 0.0)
    if (noted := _cost_declared_by_kernel(op)) is not None:
        return _MovedBytes(noted["bytes_accessed"], noted["bytes_accessed"])
    moved: list[tuple[float, bool]] = []  # (bytes, in_vmem)
    by_name = computation.instructions
    if op.opcode == "fusion":
        for part in called_computation_names(op, "calls"):
            fused = module.computations[part]
            numbered, carries = _fusion_parameters(fused), _continues_async_collective(part, fused)
            for index, name in enumerate(op.operands):
                in_vmem = by_name[name].arrays[0].in_vmem if by_name[name].arrays else True
                moved.append((_fusion_bytes_read(module, fused, numbered[index], carries), in_vmem))
            moved += [
                (written, array.in_vmem)
                for written, array in zip(_fusion_bytes_written(fused, carries), op.arrays, strict=True)
            ]
    elif op.opcode.endswith("-done"):
        # XLA counts the result of an asynchronous copy a second time in its `-done`, where no bytes move.
        moved = [(array.padded_bytes, True) for array in op.arrays] if op.opcode in ("copy-done", "slice-done") else []
    elif op.opcode in ("slice", "dynamic-slice", "gather"):
        moved = [
            (op.arrays[0].padded_bytes, by_name[op.operands[0]].arrays[0].in_vmem),
            (op.arrays[0].padded_bytes, op.arrays[0].in_vmem),
        ]
    elif op.opcode in ("dynamic-update-slice", "scatter"):
        update = by_name[op.operands[1 if op.opcode == "dynamic-update-slice" else 2]].arrays[0]
        moved = [(update.padded_bytes, update.in_vmem), (update.padded_bytes, op.arrays[0].in_vmem)]
    elif op.opcode in ("copy-start", "slice-start"):
        target = op.arrays[0] if op.opcode == "copy-start" else op.arrays[1]
        moved = [
            (target.padded_bytes, target.in_vmem),
            (target.padded_bytes, op.arrays[1].in_vmem if target is op.arrays[0] else False),
        ]
    else:
        moved = [(array.padded_bytes, array.in_vmem) for name in op.operands for array in by_name[name].arrays]
        moved += [(array.padded_bytes, array.in_vmem) for array in result_arrays_without_workspace(op)]
    return _MovedBytes(sum(size for size, _ in moved), sum(size for size, in_vmem in moved if not in_vmem))


def _fusion_parameters(fused: Computation) -> dict[int, Instruction]:
    """Return the parameters of a fusion as a dict from the index of each parameter."""
    return {int(op.arguments): op for op in fused.instructions.values() if op.opcode == "parameter"}


def _fusion_bytes_read(
    module: HloModule, fused: Computation, parameter: Instruction, continues_transfer: bool = False
) -> float:
    """Return the number of bytes that a fusion reads of a parameter; of a sliced parameter, only the slices are read.

    A fusion that continues a transfer, which another fusion began, does not read the parameters of the transfer.
    """
    total, is_counted = 0.0, False
    for user in fused.instructions.values():
        if parameter.name not in user.operands or (
            continues_transfer and (user.opcode == "tuple" or user.opcode in COLLECTIVES)
        ):
            continue
        first = user.operands[0] == parameter.name
        if first and user.opcode in ("slice", "dynamic-slice", "gather"):
            total += user.arrays[0].padded_bytes
        elif (
            first
            and (user.opcode in ELEMENT_BY_ELEMENT or _only_changes_tiles(module, user))
            and user is not fused.root
        ):
            # Only the elements that later slices take are computed.
            read = _fusion_bytes_read(module, fused, user) / user.arrays[0].padded_bytes
            total += min(read, 1.0) * sum(array.padded_bytes for array in parameter.arrays)
        elif first and user.opcode == "dynamic-update-slice":
            continue  # the parameter is written, not read
        elif user.opcode == "fusion":
            inner = module.computations[next(called_computation_names(user, "calls"))]
            numbered = _fusion_parameters(inner)
            total += sum(
                _fusion_bytes_read(module, inner, numbered[i])
                for i, n in enumerate(user.operands)
                if n == parameter.name
            )
        elif not is_counted:
            total, is_counted = total + sum(array.padded_bytes for array in parameter.arrays), True
    return total


def _only_changes_tiles(module: HloModule, op: Instruction) -> bool:
    """Return whether an instruction of a fusion only changes the tiles of an array (TPU7x: 16 x 128 to 8 x 128)."""
    names = called_computation_names(op, "calls") if op.opcode == "fusion" else ()
    opcodes = [[inner.opcode for inner in module.computations[name].instructions.values()] for name in names]
    return opcodes == [["parameter", "copy"]]


def _fusion_bytes_written(fused: Computation, continues_transfer: bool = False) -> list[float]:
    """Return the number of bytes that a fusion writes for each result; in-place updates write only the updated part."""
    by_name = fused.instructions
    roots = [by_name[name] for name in fused.root.operands] if fused.root.opcode == "tuple" else [fused.root]

    def bytes_written_by_root(root: Instruction) -> list[float]:
        """Return the number of bytes that a root instruction writes to each of its arrays."""
        if root.opcode == "bitcast":
            return bytes_written_by_root(by_name[root.operands[0]])
        if root.opcode == "dynamic-update-slice":
            return [float(by_name[root.operands[1]].arrays[0].padded_bytes)]
        if continues_transfer and root.opcode in ("parameter", "custom-call", *COLLECTIVES):
            return [0.0] * len(root.arrays)
        return [float(array.padded_bytes) for array in root.arrays]

    return [size for root in roots for size in bytes_written_by_root(root)]


class _Collective(NamedTuple):
    """The kind of a collective, the number of its bytes, and the number of devices in one group."""

    kind: str
    num_bytes: int
    group_size: int


def _instruction_collectives(module: HloModule, computation: Computation, op: Instruction) -> Iterator[_Collective]:
    """Yield (kind, number of bytes, devices per group) for each collective in an instruction, which may be a fusion."""
    if op.opcode == "fusion":
        for part in called_computation_names(op, "calls"):
            fused = module.computations[part]
            scatter = part.startswith("all-reduce-scatter")  # TPU: an all-reduce of which each device takes a slice
            for inner in fused.instructions.values() if not _continues_async_collective(part, fused) else ():
                for kind, size, group in _instruction_collectives(module, fused, inner):
                    yield _Collective("reduce-scatter" if scatter and kind == "all-reduce" else kind, size, group)
        return
    kind = op.opcode.removesuffix("-start")
    if kind not in COLLECTIVES or (group := _collective_group_size(op.attributes)) == 1:
        return
    results = sum(array.bytes for array in op.arrays if array.shape or kind == "all-reduce")
    operands = sum(array.bytes for name in op.operands for array in computation.instructions[name].arrays)
    if op.opcode.endswith("-start") and kind != "all-reduce":
        results -= operands  # the tuple of a start operation holds the operands, too
    yield _Collective(kind, operands if kind == "reduce-scatter" else results, group)


def _bytes_sent_to_other_slices(computation: Computation, op: Instruction) -> float:
    """Return the number of bytes of a collective that libtpu sends to other TPU slices through the host."""
    crosses = op.opcode == "send" and "_xla_megascale_transfer_type" in op.attributes
    return float(computation.instructions[op.operands[0]].arrays[0].bytes) if crosses else 0.0


def _continues_async_collective(name: str, fused: Computation) -> bool:
    """Return whether a fusion continues the transfer of another fusion while the TPU does other work."""
    instructions = fused.instructions.values()
    starts = any('"AsyncCollectiveStart"' in op.attributes for op in instructions)
    carries = any(op.opcode in COLLECTIVES for op in instructions)
    return carries and not starts and not name.startswith("all-reduce-scatter")


def _collective_group_size(attributes: str) -> int:
    """Return the number of devices in one group of a collective; 2 for a permutation."""
    if match := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return match[1].count(",") + 1
    if match := re.search(r"replica_groups=\[\d+,(\d+)\]<=", attributes):
        return int(match[1])
    if match := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", attributes):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", match[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", match[2]))
    if match := re.search(r"num_partitions=(\d+)", attributes):
        return int(match[1])
    return 2


def _ring_fraction_sent(kind: str, group_size: int) -> float:
    """Return the fraction of the bytes of a collective that a device sends in a ring."""
    ring = (group_size - 1) / group_size
    return {"all-reduce": 2 * ring, "collective-permute": 1.0, "collective-broadcast": 1.0}.get(kind, ring)
