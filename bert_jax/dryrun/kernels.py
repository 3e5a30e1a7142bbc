"""Kernels of a compiled program: the FLOPs of library calls, and the kinds of kernels that a report counts.

To add a library call, add a row to CALLS. The compiler writes the name and the configuration of a library call into the
instruction for the call.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bert_jax.dryrun.hlo import Array, HloModule, Instruction, called_computation_names


class Call(NamedTuple):
    """A row of CALLS: the kind of kernel in the report, and the FLOPs as a function of the call and its operands."""

    kind: str
    flops: Callable[[Instruction, Sequence[Array]], float]


def _cublas_product_flops(op: Instruction, operands: Sequence[Array]) -> float:
    """Return the FLOPs of a matrix product that cuBLAS computes, 2 FLOPs per multiply-add."""
    match = re.search(r'"lhs_contracting_dimensions":\s*\[([^\]]*)\]', op.attributes)
    contracted = [int(axis) for axis in re.findall(r"\d+", match[1])] if match else []
    return 2.0 * op.arrays[0].size * math.prod(operands[0].shape[axis] for axis in contracted)


def _cudnn_attention_flops_counter(num_products: int) -> Callable[[Instruction, Sequence[Array]], float]:
    """Return a function that counts the FLOPs of a library call with `num_products` matrix products, with padding."""

    def flops_of_call(op: Instruction, operands: Sequence[Array]) -> float:
        match = re.search(r'"intermediate_tensor_shape":.*?"dimensions":\s*\[([^\]]*)\]', op.attributes)
        scores = [int(size) for size in re.findall(r"\d+", match[1])] if match else [0]
        return 2.0 * num_products * math.prod(scores) * operands[0].shape[-1]

    return flops_of_call


def _triton_attention_flops_counter(num_products: int) -> Callable[[Instruction, Sequence[Array]], float]:
    """Return a function that counts the FLOPs of a kernel of models/attention/triton.py with `num_products` products.

    The fifth operand of the kernel is the array `[batch, length, ..., width]`. The name of a kernel contains the number
    of query-key pairs in the tiles that a head visits.
    """

    def flops_of_call(op: Instruction, operands: Sequence[Array]) -> float:
        batch, *_, width = operands[4].shape
        pairs = re.search(r"attention_\w+ward_(\d+)_pairs", op.attributes)
        assert pairs, op
        return 2.0 * num_products * batch * int(pairs[1]) * width

    return flops_of_call


# Pattern of custom_call_target and the operation's name -> call; the first match counts. The backward pass computes the
# scores again; Triton's backward pass computes them twice.
CALLS = {
    r"__gpu\$xla\.gpu\.triton .*attention_backward_\d+_pairs": Call(
        "our attention, backward", _triton_attention_flops_counter(7)
    ),
    r"__gpu\$xla\.gpu\.triton .*attention_forward_\d+_pairs": Call(
        "our attention, forward", _triton_attention_flops_counter(2)
    ),
    r"__gpu\$xla\.gpu\.triton .*sum_norm_(for|back)ward": Call("our sum and norm", lambda *_: 0.0),
    r"__cublas\$": Call("cuBLAS product", _cublas_product_flops),
    r"__cudnn\$fmha\w*Backward": Call("cuDNN attention, backward", _cudnn_attention_flops_counter(5)),
    r"__cudnn\$fmha": Call("cuDNN attention, forward", _cudnn_attention_flops_counter(2)),
}
WORKSPACE = ("s8", "u8")  # dtypes of the memory that a call gets to work in


def library_call(op: Instruction) -> Call | None:
    """Return the row of CALLS for an instruction that is a library call; None for all other instructions."""
    if op.opcode != "custom-call":
        return None
    target, name = (re.search(f'{key}="([^"]*)"', op.attributes) for key in ("custom_call_target", "op_name"))
    words = f"{target[1] if target else ''} {name[1] if name else ''}"
    return next((call for pattern, call in CALLS.items() if re.match(pattern, words)), None)


def result_arrays_without_workspace(op: Instruction) -> tuple[Array, ...]:
    """Return the arrays that an instruction writes, without the workspace of a library call."""
    if not library_call(op):
        return op.arrays
    return tuple(array for array in op.arrays if array.dtype not in WORKSPACE)


def kernel_kind(module: HloModule, op: Instruction) -> str | None:
    """Return the kind of kernel that an instruction runs; None for instructions that the report does not count."""
    if call := library_call(op):
        return call.kind
    if op.opcode != "fusion":
        return None
    if '"kind":"__triton' not in op.attributes:
        return "fusion"
    return (
        "Triton product"
        if any(_contains_matrix_product(module, part) for part in called_computation_names(op, "calls"))
        else "Triton fusion"
    )


def _contains_matrix_product(module: HloModule, name: str) -> bool:
    """Return whether there is a matrix product in a computation or in the computations that it calls."""
    instructions = module.computations[name].instructions.values()
    return any(
        op.opcode == "dot"
        or any(_contains_matrix_product(module, part) for part in called_computation_names(op, "calls"))
        for op in instructions
    )
