"""cuDNN's fused attention, for GPUs: bfloat16, without dropout."""

import jax
import jax.numpy as jnp

from bert_jax.models.attention.inputs import AttentionInputs, has_score_terms, readable_key_mask, split_heads
from bert_jax.parallel.platform import runs_fused_kernels

HEAD_MULTIPLE, MAX_HEAD_SIZE = 8, 128  # features per head; MAX_HEAD_SIZE is the limit of the oldest supported GPUs


def is_cudnn_available() -> bool:
    """Return whether the GPUs of this process support cuDNN's kernel; True if the process has no GPU."""
    return runs_fused_kernels()


def fits_cudnn(inputs: AttentionInputs, rate: float) -> bool:
    """Return whether cuDNN's kernel can compute attention for these inputs."""
    _, length, width = inputs.q.shape
    head_dim = width // inputs.num_heads
    fits_tiles = length % 2 == 0 and head_dim % HEAD_MULTIPLE == 0 and head_dim <= MAX_HEAD_SIZE
    return fits_tiles and rate == 0 and not has_score_terms(inputs) and inputs.q.dtype == jnp.bfloat16


def cudnn_attention(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the attention output, in the shape of `inputs.q`; dropout must be 0, and padding must be at the end."""
    assert rate == 0, "kernels.py says that this kernel has no dropout"
    assert not has_score_terms(inputs), "kernels.py says that this kernel has no bias"
    batch, length, _ = inputs.q.shape
    q, k, v = (split_heads(x, inputs.num_heads) for x in (inputs.q, inputs.k, inputs.v))
    lengths = mask = None
    if inputs.segments is None and inputs.radius is None:
        # cuDNN gets lengths instead of a mask in memory. An empty sequence reads one token, because a mean over no
        # tokens is NaN.
        lengths = jnp.maximum(inputs.mask.sum(axis=1, dtype=jnp.int32), 1)
    else:
        mask = jnp.broadcast_to(readable_key_mask(inputs), (batch, 1, length, length))
    context = jax.nn.dot_product_attention(q, k, v, mask=mask, key_value_seq_lengths=lengths, implementation="cudnn")
    return context.reshape(inputs.q.shape)
