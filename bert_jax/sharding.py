"""The mesh, the one table of logical axis -> mesh axis, and the placing of parameters and batches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax.config import MeshConfig
from bert_jax.errors import UserError

AXES = ("data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")

# The feature axis of the embedding tables is never sharded: XLA would rematerialise them in full.
RULES: dict[str, str | tuple[str, ...] | None] = {
    # of parameters
    "layers": None,
    "vocab": ("fsdp", "tensor"),
    "positions": None,
    "token_types": None,
    "features": None,
    "embed": "fsdp",
    "heads": "tensor",
    "head_dim": None,
    "mlp": "tensor",
    "classes": None,
    # of activations
    "accumulation": None,
    "batch": BATCH_AXES,
    "length": None,
    "predictions": None,
    "logits": "tensor",
}


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh of axes `data`, `fsdp` and `tensor` over `devices` (all of them if None); -1 takes what is left.

    Raises `UserError` where the sizes do not multiply to the number of devices.
    """
    devices = jax.devices() if devices is None else list(devices)
    sizes = [getattr(config, axis) for axis in AXES]
    shown = ", ".join(f"mesh.{axis}={size}" for axis, size in zip(AXES, sizes, strict=True))
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise UserError(f"{shown}: sizes are positive, and at most one is -1 (takes what is left)")
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if math.prod(sizes) != len(devices):
        fitting = ", ".join(str(size) for size in range(1, len(devices) + 1) if len(devices) % size == 0)
        raise UserError(
            f"{shown} does not divide {len(devices)} devices; set sizes whose product is {len(devices)} "
            f"(each one of {fitting}), one of them -1 for the rest"
        )
    return jax.make_mesh(tuple(sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def partition_spec(names: Sequence[str]) -> PartitionSpec:
    """The `PartitionSpec` of an array whose axes have these logical names."""
    return PartitionSpec(*(RULES[name] for name in names))


def shardings(logical_axes: Any, mesh: Mesh) -> Any:
    """A tree of `NamedSharding` from a tree of tuples of logical names (`Model.logical_axes`)."""
    return jax.tree.map(lambda names: NamedSharding(mesh, partition_spec(names)), logical_axes, is_leaf=_is_names)


def check_parameters(logical_axes: Any, shapes: Any, mesh: Mesh) -> None:
    """Raises `UserError` where the mesh does not divide a parameter; `shapes` is the tree of arrays or their shapes."""

    def check(path: tuple[Any, ...], names: tuple[str, ...], leaf: Any) -> None:
        for name, size in zip(names, leaf.shape, strict=True):
            axes = (RULES[name],) if isinstance(RULES[name], str) else RULES[name] or ()
            parts = math.prod(mesh.shape[axis] for axis in axes)
            if size % parts:
                place = jax.tree_util.keystr(path, simple=True, separator="/")
                raise UserError(
                    f"the model's {name} axis has size {size} ({place}), "
                    f"which {' x '.join(f'mesh.{axis}' for axis in axes)} = {parts} does not divide; "
                    f"choose one of {_divisors(size)}"
                )

    jax.tree_util.tree_map_with_path(check, logical_axes, shapes, is_leaf=_is_names)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`, every other axis whole."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """The whole array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def check_batch(mesh: Mesh, batch_size: int, accumulation: int = 1, name: str = "config.train.batch_size") -> None:
    """Raises `UserError` where a micro-batch of `batch_size / accumulation` rows does not divide over the mesh.

    `name` is the knob to mend.
    """
    shards = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    unit = shards * accumulation
    if batch_size < 1 or batch_size % unit:
        below, above = batch_size // unit * unit, (batch_size // unit + 1) * unit
        near = f"{below} or {above}" if below > 0 else f"{above}"
        raise UserError(
            f"{name}: a batch of {batch_size} rows does not divide over mesh.data x mesh.fsdp = {shards} times "
            f"{accumulation} micro-batches; take {near}, or any multiple of {unit}"
        )


def place_batch(batch: Mapping[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Global arrays from this host's contiguous rows: numpy `[rows / hosts, ...]` -> `[rows, ...]`."""
    sharding = batch_sharding(mesh)
    return {name: jax.make_array_from_process_local_data(sharding, array) for name, array in batch.items()}


def constrain(x: jax.Array, *names: str) -> jax.Array:
    """Tells the compiler how the activation `x` lies on the mesh of `jax.set_mesh`; without one, nothing."""
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, partition_spec(names))


def _is_names(node: Any) -> bool:
    return isinstance(node, tuple) and all(isinstance(name, str) for name in node)


def _divisors(size: int) -> str:
    return ", ".join(str(part) for part in range(1, min(size, 256) + 1) if size % part == 0)
