"""The rows that a model can read: sequences laid end to end (tasks/rows.py)."""

import math
from collections.abc import Sequence

import jax

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.models import Head, describe_used_kernel, model_flops
from bert_jax.models.attention import KERNELS
from bert_jax.models.token_rows import reason_for_padding
from bert_jax.parallel import sharding
from bert_jax.tasks.rows import RowLimits

# The time of an operation of attention, divided by the time of an operation of a linear map (BERT-mini on 2 CPU cores).
XLA_PAIR_COST = 3.0
# Heads whose costliest map reads each token after the encoder, where sequences in rows have more padding.
PADDED_HEADS = frozenset({"sparse_embedding", "token_embedding", "next_token"})


def row_limits(
    architectures: Sequence[EncoderConfig], heads: Sequence[Head], compute: ComputeConfig, mesh: jax.sharding.Mesh
) -> RowLimits | None:
    """Return the limits of rows that all architectures can read; None if any architecture or head needs padding.

    Args:
        architectures: architectures that read each batch; the first determines the cost of a query-key pair.
        heads: heads of the model.
        compute: settings of the computation.
        mesh: devices that compute a batch together.
    """
    if any(map(reason_for_padding, architectures)) or any(head.name in PADDED_HEADS for head in heads):
        return None
    max_length = min(architecture.max_positions for architecture in architectures)
    pair_cost = _relative_pair_cost(architectures[0], compute, mesh.devices.flat[0].platform)
    return RowLimits(max_length, pair_cost, math.prod(mesh.shape[axis] for axis in sharding.BATCH_AXES))


def _relative_pair_cost(architecture: EncoderConfig, compute: ComputeConfig, platform: str) -> float:
    """Return the time of a pair of a query and a key, divided by the time of a token without attention.

    The result is 0 if the attention kernel skips pairs of different sequences of a row.
    """
    if platform != "cpu" and not describe_used_kernel(architecture, compute, platform).startswith(
        KERNELS["xla"].display_name
    ):
        return 0.0
    shorter, longer = (model_flops(architecture, length, 0) / length for length in (16, 32))
    return XLA_PAIR_COST * (longer - shorter) / 16 / model_flops(architecture, 1, 0)
