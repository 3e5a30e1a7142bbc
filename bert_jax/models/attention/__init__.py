"""Attention: one interface, several kernels; for a new kernel, add a file and a row of KERNELS (kernels.py).

self_attention.py  the attention layer of the encoder: projections, position scheme, kernel
inputs.py          the input arrays of every kernel
patterns.py        windows and global tokens of long sequences
kernels.py         KERNELS, the table of attention kernels, and the choice of a kernel
xla.py             attention in plain operations, which XLA compiles for any platform
local.py           attention in plain operations over chunks, for windows of long sequences
tpu.py             the fused kernel for TPUs, in Pallas
triton.py          the fused kernel for GPUs by tiles in shared memory, in Pallas for Triton
cudnn.py           cuDNN's fused attention, for GPUs
devices.py         a kernel on a mesh: each device computes a part of the result
"""

from bert_jax.models.attention.inputs import AttentionInputs, attention_inputs
from bert_jax.models.attention.kernels import KERNELS, Kernel, describe_used_kernel, unmet_kernel_settings

__all__ = [
    "KERNELS",
    "AttentionInputs",
    "Kernel",
    "attention_inputs",
    "describe_used_kernel",
    "unmet_kernel_settings",
]
