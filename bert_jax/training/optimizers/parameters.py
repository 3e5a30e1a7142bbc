"""What an optimizer may ask of each parameter, from its name, its section and its logical axes."""

from typing import Any, NamedTuple

import jax

Tree = Any
Rate = jax.Array | float


class ParamInfo(NamedTuple):
    """What an optimizer may ask of each parameter; trees with the structure of the parameters."""

    logical_axes: Tree  # tuple of axis names; "layers" is the axis on which blocks are stacked
    sections: Tree  # "embeddings", "layers", "top", "heads" or "unused"
    decayed: Tree  # whether weight decay applies: matrices and tables, not norms, not biases, not what is unused
    linear: Tree  # whether it is the matrix of a linear map in a block, `[layers, inputs, outputs]`


def param_info(logical_axes: Tree, sections: Tree) -> ParamInfo:
    """Return what follows from the logical axes and the sections of a model (models.Model)."""
    decayed = jax.tree.map(lambda section, it: it and section != "unused", sections, decay_mask(logical_axes))
    return ParamInfo(logical_axes, sections, decayed, linear_maps(logical_axes, sections))


def decay_mask(logical_axes: Tree) -> Tree:
    """Return True for the weights that decay: matrices and embedding tables, not norms, not biases."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key not in ("bias", "scale"), logical_axes, is_leaf=is_axes
    )


def linear_maps(logical_axes: Tree, sections: Tree) -> Tree:
    """Return True for the matrices of the blocks: not tables, not vectors, not the maps of embeddings and heads."""
    return jax.tree_util.tree_map_with_path(
        lambda path, axes, section: section == "layers" and path[-1].key == "kernel" and len(axes) == 3,
        logical_axes,
        sections,
        is_leaf=is_axes,
    )


def axes_within_layer(axes: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers of the axes of one layer's parameter: all but that on which blocks are stacked."""
    return tuple(i for i, name in enumerate(axes) if name != "layers")


def is_axes(x: Any) -> bool:
    """Whether `x` is the logical axes of one parameter."""
    return isinstance(x, tuple) and all(isinstance(name, str) for name in x)
