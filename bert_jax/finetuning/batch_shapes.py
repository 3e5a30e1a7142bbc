"""The choice of the shapes of training batches: padded sequences, or rows of sequences laid end to end."""

import math
from collections.abc import Sequence

import jax

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models import describe_used_kernel, model_flops
from bert_jax.models.attention import KERNELS
from bert_jax.models.token_rows import padding_needed
from bert_jax.parallel import sharding
from bert_jax.tasks.batching import Feed, choose_rows
from bert_jax.tasks.features import Features
from bert_jax.tasks.late_interaction import UNREAD
from bert_jax.tasks.rows import RowShape

# An operation of attention takes longer than an operation of a linear map: BERT-mini on 2 CPU cores.
XLA_PAIR_COST = 3.0


def with_rows(
    feed: Feed,
    features: Sequence[Features],
    epochs: float,
    grad_accum_steps: int,
    architectures: Sequence[EncoderConfig],
    compute: ComputeConfig,
    mesh: jax.sharding.Mesh,
) -> Feed:
    """Return the feed with rows of sequences laid end to end, if all architectures can read them and rows are cheaper.

    Args:
        feed: lengths to pad to, and the batch size.
        features: features of the training set.
        epochs: passes over the features.
        grad_accum_steps: micro-batches of a step.
        architectures: architectures that read each batch, the trained architecture first.
        compute: settings of the computation.
        mesh: mesh of the training.
    """
    if any(map(padding_needed, architectures)) or UNREAD in features[0].targets:
        return feed
    return choose_rows(
        feed,
        features,
        empty_rows(mesh, grad_accum_steps),
        passes=epochs,
        pair_cost=relative_pair_cost(architectures[0], compute, mesh),
        max_row_length=min(architecture.max_positions for architecture in architectures),
    )


def empty_rows(mesh: jax.sharding.Mesh, grad_accum_steps: int) -> RowShape:
    """Return rows of length 0 for the devices of a mesh.

    With several micro-batches, each shard of the axis `data` computes its own (`sharding.sum_over_data`).
    """
    num_devices = math.prod(mesh.shape[axis] for axis in sharding.BATCH_AXES)
    data_shards = mesh.shape["data"] if grad_accum_steps > 1 else 1
    return RowShape(0, 0, num_devices, data_shards, grad_accum_steps)


def relative_pair_cost(architecture: EncoderConfig, compute: ComputeConfig, mesh: jax.sharding.Mesh) -> float:
    """Return the time of a pair of a query and a key, divided by the time of a token without attention.

    It is 0 where the attention kernel skips pairs of different sequences of a row.
    """
    platform = mesh.devices.flat[0].platform
    if platform != "cpu" and not describe_used_kernel(architecture, compute, platform).startswith(
        KERNELS["xla"].display_name
    ):
        return 0.0
    shorter, longer = (model_flops(architecture, length, 0) / length for length in (16, 32))
    return XLA_PAIR_COST * (longer - shorter) / 16 / model_flops(architecture, 1, 0)
