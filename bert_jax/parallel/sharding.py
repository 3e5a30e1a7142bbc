"""The mesh, the table that maps logical axes to mesh axes, and the placement of parameters and batches.

To add a logical axis, add a row to RULES.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bert_jax.config import MeshConfig
from bert_jax.errors import UserError
from bert_jax.parallel.platform import traced_platform

AXES = ("data", "fsdp", "tensor")
BATCH_AXES = ("data", "fsdp")

# The feature axis of the embedding tables is never sharded: XLA would rematerialize whole tables.
RULES: dict[str, str | tuple[str, ...] | None] = {
    # axes of parameters
    "layers": None,
    "vocab": ("tensor", "fsdp"),  # in this order, a gather over `fsdp` leaves contiguous parts for `tensor`
    "positions": None,
    "token_types": None,
    "features": None,
    "embed": "fsdp",
    "heads": "tensor",
    "mlp": "tensor",
    "classes": None,
    "rank": None,  # rank of the matrices of an adapter
    # axes of activations and batches
    "accumulation": None,  # micro-batches of a step
    "batch": BATCH_AXES,
    "length": None,
    "predictions": None,
    "logits": "tensor",
    "vocab_read": "tensor",  # rows of the token table in the lookup and in the logits
    "key_words": None,
    "maps": None,  # queries, keys and values in one array
}


def single_device_mesh() -> Mesh:
    """Return the mesh of the first device of this process."""
    return Mesh(np.array(jax.local_devices()[:1]).reshape(1, 1, 1), AXES)


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Return the mesh with axes `data`, `fsdp` and `tensor` over `devices` (None: all); -1 takes the remaining devices.

    Over several TPU slices, only the axis `data` crosses the network between slices.

    Raises:
        UserError: the product of the sizes is not the number of devices, or `data` is no multiple of the number of
        slices.
    """
    devices = jax.devices() if devices is None else list(devices)
    sizes = [getattr(config, axis) for axis in AXES]
    shown = ", ".join(f"mesh.{axis}={size}" for axis, size in zip(AXES, sizes, strict=True))
    if sizes.count(-1) > 1 or any(size < 1 and size != -1 for size in sizes):
        raise UserError(f"{shown}: sizes must be positive; one size may be -1, which takes the remaining devices")
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(devices) % known == 0:
        sizes[sizes.index(-1)] = len(devices) // known
    if math.prod(sizes) != len(devices):
        fitting = ", ".join(str(size) for size in range(1, len(devices) + 1) if len(devices) % size == 0)
        raise UserError(
            f"{shown} does not divide {len(devices)} devices; set sizes whose product is {len(devices)} "
            f"(each of them from {fitting}), or one of them to -1 for the rest"
        )
    slices = count_slices(devices)
    if sizes[0] % slices:
        raise UserError(
            f"{shown}: mesh.data must be a multiple of the number of slices, {slices}, because only `data` "
            "crosses their network"
        )
    types = (AxisType.Auto,) * len(AXES)
    if any(getattr(device, "core_on_chip", 0) for device in devices):
        # JAX knows no torus for single cores of a TPU v4, which the compiler reports if there is no TPU.
        return Mesh(np.asarray(devices).reshape(sizes), AXES, axis_types=types)
    if slices > 1:
        inside, across = (sizes[0] // slices, *sizes[1:]), (slices, 1, 1)
        placed = mesh_utils.create_hybrid_device_mesh(inside, across, devices, allow_split_physical_axes=True)
        return Mesh(placed, AXES, axis_types=types)
    try:
        return jax.make_mesh(tuple(sizes), AXES, axis_types=types, devices=devices)
    except NotImplementedError:  # raised for a size that is not a product of whole axes of the torus
        placed = mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
        return Mesh(placed, AXES, axis_types=types)


def count_slices(devices: Sequence[jax.Device]) -> int:
    """Return the number of TPU slices that the devices belong to; 1 on other platforms."""
    return len({getattr(device, "slice_index", 0) if device.platform == "tpu" else 0 for device in devices})


def warm_up_collectives(mesh: Mesh) -> None:
    """Run a program whose collectives open the connections between devices along all axes of `mesh`.

    Gloo has a fixed limit of 30 s for opening a connection. So call this function in all processes at the same time
    (`Watchdog.wait_for_all`). If a process later compiles longer than other processes, the other processes wait up to
    the limit of the watchdog.
    """
    axes = [axis for axis in AXES if mesh.shape[axis] > 1]
    groups = [group for size in range(1, len(axes) + 1) for group in itertools.combinations(axes, size)]

    def sums(x: jax.Array) -> list[jax.Array]:
        return [jax.lax.psum(x, group) for group in groups]

    call = jax.shard_map(sums, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False)
    jax.block_until_ready(jax.jit(call)(np.ones(1, np.float32)))


def partition_spec(logical_axes: Sequence[str]) -> PartitionSpec:
    """Return the PartitionSpec for the logical axes of an array; inside `sum_over_data`, it omits the axis `data`."""
    manual = jax.sharding.get_abstract_mesh().manual_axes

    def mesh_axes(name: str) -> tuple[str, ...]:
        rule = RULES[name]
        return tuple(axis for axis in ((rule,) if isinstance(rule, str) else rule or ()) if axis not in manual)

    parts = [mesh_axes(name) for name in logical_axes]
    return PartitionSpec(*(part if len(part) > 1 else part[0] if part else None for part in parts))


def sum_over_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map `function(batch, *others)` over the shards of the `data` axis, and sum the results.

    So gradients are summed over `data` once per step; without this function, the compiler would sum gradients after
    every micro-batch. With one shard or no mesh, return `function` itself.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.shape["data"] == 1:
        return function

    def summed(batch: Any, *others: Any) -> Any:
        return jax.lax.psum(function(batch, *others), "data")

    def mapped(batch: Any, *others: Any) -> Any:
        specs = (PartitionSpec("data"), *(PartitionSpec() for _ in others))
        call = jax.shard_map(summed, in_specs=specs, out_specs=PartitionSpec(), axis_names={"data"}, check_vma=False)
        return call(batch, *others)

    return mapped


def map_over_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Map `function(batch, *others)` over the shards of the `data` axis, and join the results along their first axis.

    With one shard or no mesh, return `function` itself.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.shape["data"] == 1:
        return function

    def mapped(batch: Any, *others: Any) -> Any:
        specs = (PartitionSpec("data"), *(PartitionSpec() for _ in others))
        joined = PartitionSpec("data")
        call = jax.shard_map(function, in_specs=specs, out_specs=joined, axis_names={"data"}, check_vma=False)
        return call(batch, *others)

    return mapped


def first_row_of_shard(num_rows: int) -> jax.Array:
    """Return the index of this device's first row in the global batch, uint32; 0 outside `sum_over_data`."""
    if "data" in jax.sharding.get_abstract_mesh().manual_axes:
        return jax.lax.axis_index("data").astype(np.uint32) * np.uint32(num_rows)
    return jnp.uint32(0)


def named_shardings(logical_axes: Any, mesh: Mesh) -> Any:
    """Return a tree of `NamedSharding` for a tree of tuples of logical axes (`Model.logical_axes`)."""
    return jax.tree.map(lambda names: NamedSharding(mesh, partition_spec(names)), logical_axes, is_leaf=is_logical_axes)


def check_mesh_divides_parameters(logical_axes: Any, shapes: Any, mesh: Mesh) -> None:
    """Check that the mesh divides every parameter; `shapes` is the tree of arrays or of their shapes.

    Raises:
        UserError: the mesh does not divide a parameter.
    """

    def check_parameter(path: tuple[Any, ...], names: tuple[str, ...], leaf: Any) -> None:
        for name, size in zip(names, leaf.shape, strict=True):
            axes = (RULES[name],) if isinstance(RULES[name], str) else RULES[name] or ()
            parts = math.prod(mesh.shape[axis] for axis in axes)
            if size % parts:
                name_of_parameter = jax.tree_util.keystr(path, simple=True, separator="/")
                raise UserError(
                    f"the model's {name} axis has size {size} ({name_of_parameter}), "
                    f"which {' x '.join(f'mesh.{axis}' for axis in axes)} = {parts} does not divide; "
                    f"choose one of {_divisors_text(size)}"
                )

    jax.tree_util.tree_map_with_path(check_parameter, logical_axes, shapes, is_leaf=is_logical_axes)


def check_mesh_divides_heads(mesh: Mesh, num_heads: int) -> None:
    """Check that the size of the mesh axis `tensor` divides the number of attention heads.

    Raises:
        UserError: `mesh.tensor` does not divide the number of heads.
    """
    if num_heads % mesh.shape["tensor"]:
        raise UserError(
            f"mesh.tensor={mesh.shape['tensor']} does not divide model.num_heads={num_heads}; "
            f"choose one of {_divisors_text(num_heads)}"
        )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a batch: sequences are sharded over `data` and `fsdp`, other axes are not."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds in full."""
    return NamedSharding(mesh, PartitionSpec())


def check_mesh_divides_batch(
    mesh: Mesh, batch_size: int, grad_accum_steps: int = 1, name: str = "config.train.batch_size"
) -> None:
    """Check that the mesh divides a micro-batch of `batch_size / grad_accum_steps` sequences evenly.

    Raises:
        UserError: the mesh does not divide the micro-batch; the message names the config key `name`.
    """
    shards = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    unit = shards * grad_accum_steps
    if batch_size < 1 or batch_size % unit:
        below, above = batch_size // unit * unit, (batch_size // unit + 1) * unit
        nearest = f"{below} or {above}" if below > 0 else f"{above}"
        raise UserError(
            f"{name}: a batch of {batch_size} sequences does not divide over mesh.data x mesh.fsdp = {shards} times "
            f"{grad_accum_steps} micro-batches; use {nearest}, or any multiple of {unit}"
        )


class BatchBlocks(NamedTuple):
    """The part of every batch that this process's devices need, as blocks of equal size.

    Processes along a tensor axis need the same part of a batch. If a TPU's topology determines the order of devices,
    the part may consist of several blocks.
    """

    blocks: tuple[int, ...]  # numbers of this process's blocks, ascending
    num_blocks: int  # number of blocks of the whole batch


SINGLE_HOST = BatchBlocks(blocks=(0,), num_blocks=1)


def batch_blocks(mesh: Mesh) -> BatchBlocks:
    """Return the part of every batch that this process needs, in as few blocks as possible."""
    shards = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    indices = batch_sharding(mesh).addressable_devices_indices_map((shards,)).values()
    own_shards = sorted({index[0].indices(shards)[0] for index in indices if index})
    for size in range(len(own_shards), 0, -1):
        begins = own_shards[::size]
        if shards % size == 0 and own_shards == [
            begin + i for begin in begins for i in range(size) if begin % size == 0
        ]:
            return BatchBlocks(tuple(begin // size for begin in begins), shards // size)
    raise AssertionError("blocks of one shard always fit")


def place_batch(batch: Mapping[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Return global arrays `[batch, ...]` from the numpy arrays `[part of the batch, ...]` of this process."""
    blocks, num_blocks = batch_blocks(mesh)
    target = batch_sharding(mesh)

    def global_array_from_local(local: np.ndarray) -> jax.Array:
        size = len(local) // len(blocks)  # sequences per block
        total = size * num_blocks

        def local_part_of_shard(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            begin, end, _ = index[0].indices(total)
            begin_here = blocks.index(begin // size) * size + begin % size
            return local[begin_here : begin_here + end - begin]

        return jax.make_array_from_callback((total, *local.shape[1:]), target, local_part_of_shard)

    return {name: global_array_from_local(array) for name, array in batch.items()}


def copy_to_hosts(params: Any) -> Any:
    """Return a tree of arrays on one mesh as numpy arrays, whole on every process."""
    mesh = jax.tree.leaves(params)[0].sharding.mesh
    return jax.device_get(jax.jit(_identity, out_shardings=replicated(mesh))(params))


def _identity(tree: Any) -> Any:  # a function with a name, for which `jax.jit` keeps its programs
    return tree


def constrain(x: jax.Array, *names: str) -> jax.Array:
    """Constrain the sharding of an activation by its logical axes; without a mesh (`jax.set_mesh`), return `x`.

    On GPUs, also constrain the memory layout to the order of the axes. Otherwise XLA would store the residual stream
    with the batch as the last axis, and transpose it in each norm. If the mesh does not divide an array evenly, XLA
    chooses its layout.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return x
    spec = partition_spec(names)
    x = jax.lax.with_sharding_constraint(x, spec)
    if traced_platform() != "gpu" or not _divides_evenly(x.shape, spec, mesh.shape):
        return x
    return _pin_layout(x, spec)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _pin_layout(x: jax.Array, spec: PartitionSpec) -> jax.Array:
    """Return the array `x` with a memory layout in the order of its axes.

    Each device constrains its shard, because XLA would otherwise gather the array.
    """
    mesh = jax.sharding.get_abstract_mesh()
    pinned = functools.partial(with_layout_constraint, layouts=Layout(tuple(range(x.ndim))))
    automatic = set(mesh.axis_names) - set(mesh.manual_axes)
    call = jax.shard_map(pinned, in_specs=spec, out_specs=spec, axis_names=automatic, check_vma=False)
    return cast(jax.Array, call(x))


# The gradient of `shard_map` would be summed over the axes that `spec` does not name.
_pin_layout.defvjp(
    lambda x, spec: (_pin_layout(x, spec), None), lambda spec, _, gradient: (_pin_layout(gradient, spec),)
)


def _divides_evenly(shape: Sequence[int], spec: PartitionSpec, mesh: Mapping[str, int]) -> bool:
    """Return whether the mesh divides each axis that `spec` shards; `spec` may name fewer axes than `shape`."""
    axes = [(part,) if isinstance(part, str) else part or () for part in spec]
    return all(size % math.prod(mesh[axis] for axis in part) == 0 for size, part in zip(shape, axes, strict=False))


def gather_once(x: jax.Array, stored_axes: tuple[str, ...], used_axes: tuple[str, ...]) -> jax.Array:
    """Return the parameter `x`, resharded from its stored logical axes to the axes of the step; without a mesh, `x`.

    So a step gathers the parameter once for all uses, sums the gradients of the uses, and scatters the sum once.
    Without this function, the compiler gathers and scatters for each use.
    """

    @jax.custom_vjp
    def gather(x: jax.Array) -> jax.Array:
        return constrain(x, *used_axes)

    def reshard_gradient(_: None, gradient: jax.Array) -> tuple[jax.Array]:
        return (constrain(constrain(gradient, *used_axes), *stored_axes),)

    gather.defvjp(lambda x: (gather(x), None), reshard_gradient)
    return gather(x)


def is_logical_axes(node: Any) -> bool:
    """Return whether a node of a tree is the logical axes of one array, a tuple of names."""
    return isinstance(node, tuple) and all(isinstance(name, str) for name in node)


def _divisors_text(size: int) -> str:
    """Return the divisors of a size up to 256, as a list for a message."""
    return ", ".join(str(part) for part in range(1, min(size, 256) + 1) if size % part == 0)
