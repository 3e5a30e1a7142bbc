"""The choice of the shapes of training batches: padded sequences, or rows of sequences laid end to end."""

from collections.abc import Sequence

import jax

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.inference.row_limits import row_limits
from bert_jax.models import Head
from bert_jax.tasks.batching import Feed, choose_packing_or_padding
from bert_jax.tasks.features import Features
from bert_jax.tasks.late_interaction import UNREAD
from bert_jax.tasks.rows import RowShape


def with_packed_rows_if_cheaper(
    feed: Feed,
    features: Sequence[Features],
    epochs: float,
    grad_accum_steps: int,
    architectures: Sequence[EncoderConfig],
    heads: Sequence[Head],
    compute: ComputeConfig,
    mesh: jax.sharding.Mesh,
) -> Feed:
    """Return `feed`, with packed rows of sequences if all architectures read rows and rows cost less than padding.

    Args:
        feed: the shapes of padded batches: the lengths to pad to, and the batch size.
        features: features of the training set.
        epochs: passes over the features.
        grad_accum_steps: micro-batches of a step.
        architectures: architectures that read each batch, the trained architecture first.
        heads: heads of the trained model.
        compute: settings of the computation.
        mesh: mesh of the training.
    """
    limits = row_limits(architectures, heads, compute, mesh)
    if limits is None or UNREAD in features[0].targets:
        return feed
    # With several micro-batches, each shard of the axis `data` computes its own micro-batches
    # (`sharding.sum_over_data`).
    data_shards = mesh.shape["data"] if grad_accum_steps > 1 else 1
    empty = RowShape(0, 0, limits.num_devices, data_shards, grad_accum_steps)
    return choose_packing_or_padding(feed, features, empty, passes=epochs, limits=limits)
