"""Attention kernels on a mesh: each device computes attention for its sequences and heads."""

from collections.abc import Callable
from typing import Any

import jax

from bert_jax.models.attention.inputs import AttentionInputs, FusedQKV, inputs_with_only
from bert_jax.parallel.sharding import is_logical_axes, partition_spec

WIDE = ("batch", "length", "heads")  # logical axes of arrays with the features of all heads
BY_HEAD = ("batch", "heads", "length")
FUSED_QKV = ("batch", "length", "maps", "heads")  # logical axes of `FusedQKV.products`


def on_each_device(kernel: Callable[..., Any], inputs: AttentionInputs, *arrays: Any, axes: Any, out_axes: Any) -> Any:
    """Return `kernel(inputs, *arrays)`, of which each device computes a part; bias, window and distances must be None.

    The tuples `axes` and `out_axes` hold the logical axis names of the input arrays and of the output arrays.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel(inputs, *arrays)

    def partition_specs(tree: Any) -> Any:
        return jax.tree.map(partition_spec, tree, is_leaf=is_logical_axes)

    input_specs = inputs_with_only(
        **{name: partition_specs(WIDE) for name in ("q", "k", "v")},
        **{name: partition_specs(("batch", "length")) for name in ("mask", "segments")},
        dropout_keys=partition_specs(("batch", "heads", "key_words")),
        bias=partition_specs(()),
        radius=partition_specs(()),
        fused_qkv=FusedQKV(partition_specs(FUSED_QKV), partition_specs(FUSED_QKV[2:])) if inputs.fused_qkv else None,
    )
    mapped = jax.shard_map(
        kernel,
        in_specs=(input_specs, *map(partition_specs, axes)),
        out_specs=partition_specs(out_axes),
        axis_names=set(mesh.axis_names) - set(mesh.manual_axes),
        check_vma=False,
    )
    return mapped(inputs, *arrays)
