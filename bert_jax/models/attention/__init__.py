"""Attention: one interface, several kernels; add a file and its row in KERNELS (kernels.py).

cudnn.py           cuDNN's fused attention, for GPUs
devices.py         a kernel on a mesh, each device on its part
inputs.py          what every kernel reads
kernels.py         KERNELS, the ways to compute it: add a row, and a file with its function
local.py           plain operations over chunks, for windows of long sequences
patterns.py        Which tokens attention reads in long sequences
self_attention.py  the layer of the encoder: projections, position scheme, kernel
tpu.py             the fused kernel on TPUs, plain operations elsewhere
tpu_kernels.py     the fused kernel itself, in Pallas
triton.py          Attention on GPUs by tiles in shared memory, in Pallas for Triton
xla.py             plain operations, which XLA compiles for any platform
"""

from bert_jax.models.attention.inputs import AttentionInputs, attention_inputs
from bert_jax.models.attention.kernels import KERNELS, Kernel, kernel_used, missing_for

__all__ = ["KERNELS", "AttentionInputs", "Kernel", "attention_inputs", "kernel_used", "missing_for"]
