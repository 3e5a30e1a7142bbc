"""cuDNN's fused attention, for GPUs: bfloat16, without dropout."""

import jax
import jax.numpy as jnp

from bert_jax.models.attention.inputs import AttentionInputs, readable_keys, split_heads


def attend(inputs: AttentionInputs, rate: float) -> jax.Array:
    """Return the context, as `inputs.q`; `rate` is 0."""
    assert rate == 0, "kernels.py says that this kernel has no dropout"
    assert inputs.bias is None, "kernels.py says that this kernel has no bias"
    batch, length, _ = inputs.q.shape
    q, k, v = (split_heads(x, inputs.keys.shape[1]) for x in (inputs.q, inputs.k, inputs.v))
    readable = jnp.broadcast_to(readable_keys(inputs), (batch, 1, length, length))
    context = jax.nn.dot_product_attention(q, k, v, mask=readable, implementation="cudnn")
    return context.reshape(inputs.q.shape)
