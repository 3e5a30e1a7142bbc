"""Kernels on a mesh: each device computes its own sequences and heads."""

from collections.abc import Callable
from typing import Any

import jax

from bert_jax.models.attention.inputs import AttentionInputs, Joint
from bert_jax.parallel.sharding import partition_spec

WIDE = ("batch", "length", "heads")  # of what is as wide as the heads together
BY_HEAD = ("batch", "heads", "length")
JOINT = ("batch", "length", "maps", "heads")  # of queries, keys and values in one array
_MASK = ("batch", "length")
_INPUTS = (WIDE, WIDE, WIDE, _MASK, _MASK, ("batch", "heads", "key_words"), (), ())


def on_each_device(kernel: Callable[..., Any], inputs: AttentionInputs, *more: Any, axes: Any, out_axes: Any) -> Any:
    """Return `kernel(inputs, *more)`, whose bias, window and distances are None, computed by each device on its part.

    `axes` and `out_axes` are logical names of the axes of `more` and of what is returned, as tuples of names.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel(inputs, *more)

    def specs(tree: Any) -> Any:
        return jax.tree.map(partition_spec, tree, is_leaf=_is_names)

    names = set(mesh.axis_names) - set(mesh.manual_axes)
    joint = Joint(specs(JOINT), specs(JOINT[2:])) if inputs.joint else None
    in_specs = (AttentionInputs(*map(specs, _INPUTS))._replace(joint=joint), *map(specs, axes))
    mapped = jax.shard_map(kernel, in_specs=in_specs, out_specs=specs(out_axes), axis_names=names, check_vma=False)
    return mapped(inputs, *more)


def _is_names(one: Any) -> bool:
    return isinstance(one, tuple) and all(isinstance(name, str) for name in one)
