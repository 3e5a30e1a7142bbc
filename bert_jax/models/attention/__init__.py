"""Attention: one interface, several kernels; add a file and its row in KERNELS (kernels.py).

self_attention.py  the layer of the encoder: projections, position scheme, kernel
inputs.py          the arrays that every kernel reads
patterns.py        windows and global tokens of long sequences
kernels.py         KERNELS, the ways to compute attention, and the choice between them
xla.py             plain operations, which XLA compiles for any platform
local.py           plain operations over chunks, for windows of long sequences
tpu.py             the fused kernel for TPUs, in Pallas
triton.py          the fused kernel for GPUs by tiles in shared memory, in Pallas for Triton
cudnn.py           cuDNN's fused attention, for GPUs
devices.py         a kernel on a mesh: each device computes its part
"""

from bert_jax.models.attention.inputs import AttentionInputs, attention_inputs
from bert_jax.models.attention.kernels import KERNELS, Kernel, kernel_used, unmet_needs

__all__ = ["KERNELS", "AttentionInputs", "Kernel", "attention_inputs", "kernel_used", "unmet_needs"]
